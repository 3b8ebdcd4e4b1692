"""The network of patches: every path through patches, sizes of real images, and what it refuses.

What all path networks share (no leak, one pass equals steps, gradients) is in
`test_path_networks.py`.
"""

from itertools import product

import pytest
import torch

from anyorder import (
    AnyOrderModel,
    ArdmLoss,
    CategoricalConditionals,
    ConfigError,
    PatchPathTransformer,
    PathLoss,
    QueryError,
    RemoveGreatest,
    RemoveRandom,
    Schema,
    SchemaError,
    TrainingSettings,
    Variable,
    any_queries,
    fit,
    load_model,
    log_prob,
    patch_major,
    sample,
    save_model,
    speculative_sample,
    univariates,
)
from anyorder.lattice.enumeration import _all_queries
from tests.networks.conftest import TRUNK, schema_of, wake
from tests.networks.test_path_networks import CLOSE, step_by_step

DECODER = {"layers": 2, "width": 16, "heads": 2}
# Three channels, patches of two lines: the canonical order is far from that of the variables.
IMAGE = {"image_shape": (4, 4, 3), "patch": (2, 2)}
ORDER = patch_major(4, 4, 3, patch=2)
LEVELS = 3


def model_of(image_shape, patch, *, levels=LEVELS, order=None):
    height, width, channels = image_shape
    schema = schema_of(*[levels] * (height * width * channels))
    network = PatchPathTransformer(schema, image_shape=image_shape, patch=patch, **TRUNK, **DECODER)
    head = CategoricalConditionals(schema, width=16)
    torch.nn.init.normal_(head.weight, std=0.3, generator=torch.Generator().manual_seed(1))
    order = patch_major(height, width, channels, patch=patch) if order is None else order
    return AnyOrderModel(schema, wake(network), head, RemoveGreatest(order)).eval()


def network_and_rows(rows=5):
    """A network of 4 patches of 12 variables, values, and sets that leave some patches out."""
    network = model_of(**IMAGE).network
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(LEVELS, (rows, 48), generator=generator)
    draw = torch.rand(rows, 48, generator=generator)
    query, given = draw < 0.4, draw > 0.7
    query[0], given[0] = True, False
    apart = network.patches.patch_of  # by patch: asked whole, given whole, absent, mixed
    query[1] = (apart == 0) | ((apart == 3) & query[1])
    given[1] = (apart == 1) | ((apart == 3) & given[1])
    query[2] = False
    return network, x, query, given


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 0, 1], [1, 0, 3, 2]], ids=str)
def test_every_conditional_of_a_tiny_image_sums_to_one(order):
    model = model_of((2, 2, 1), (1, 2), levels=2, order=order)
    worlds = torch.tensor(list(product(range(2), repeat=4)))
    for given, query in zip(*_all_queries(4), strict=True):
        values = torch.where(query, worlds, torch.ones_like(worlds)).unique(dim=0)
        total = log_prob(model, values, query=query, given=given).exp().sum()
        assert float(total) == pytest.approx(1, abs=1e-5)


@torch.no_grad()
def test_one_pass_equals_step_by_step():
    network, x, query, given = network_and_rows()
    rank = ORDER.argsort()
    path = network(x, query, given, rank)
    for row in range(len(x)):
        one = slice(row, row + 1)
        expected = step_by_step(network, x[one], query[one], given[one], rank)
        torch.testing.assert_close(path.features[path.row == row], expected, **CLOSE)


@torch.no_grad()
def test_rows_of_a_batch_leave_their_patches_at_different_steps():
    network, x, query, given = network_and_rows()
    query[2, :2], given[2, :2] = True, False  # the shortest path; the steps stop where it ends
    rank = ORDER.argsort()
    path = network(x, query, given, rank)
    state = network.encode(x, given).expand(2)
    for step in range(2):
        edges = path.step == step
        target = path.target[edges].repeat_interleave(2)[:, None]
        features = network.ask(state, target)[:, 0]
        torch.testing.assert_close(features, path.features[edges].repeat_interleave(2, 0), **CLOSE)
        values = x.repeat_interleave(2, 0).gather(1, target)
        state = network.tell(state, target, values)
    rows = torch.tensor([0, 1, 3, 4])
    state = state.select(rows)
    for step in range(2, 15):
        edges = (path.step == step) & torch.isin(path.row, rows)
        target = path.target[edges].repeat_interleave(2)[:, None]
        assert len(target) == len(rows) * 2, "all these paths are longer"
        features = network.ask(state, target)[:, 0]
        torch.testing.assert_close(features, path.features[edges].repeat_interleave(2, 0), **CLOSE)
        state = network.tell(state, target, x[rows].repeat_interleave(2, 0).gather(1, target))
    assert len(state.inside.patch.unique()) > 1, "rows are in different patches"


@torch.no_grad()
def test_exactly_what_conditions_on_a_variable_moves_with_it():
    network, x, query, given = network_and_rows()
    rank = ORDER.argsort()
    before = network(x, query, given, rank)
    for variable in range(0, 48, 5):
        other = x.clone()
        other[:, variable] = (other[:, variable] + 1) % LEVELS
        after = network(other, query, given, rank)
        visible = given[:, variable][before.row] | (
            query[:, variable][before.row] & (rank[variable] < rank[before.target])
        )
        moved = (before.features - after.features).abs().amax(1) > 1e-6
        assert torch.equal(moved, visible)


@pytest.mark.parametrize("n", [1, 3])
def test_cached_draws_are_those_without_the_cache(n):
    model = model_of(**IMAGE)
    _, x, query, given = network_and_rows()
    cached, plain = (
        sample(
            model,
            x,
            query=query,
            given=given,
            n=n,
            cache=cache,
            generator=torch.Generator().manual_seed(5),
        )
        for cache in (True, False)
    )
    assert torch.equal(cached, plain)
    assert torch.equal(cached[:, 0][~query], x[~query].where(given[~query], 0))


@torch.no_grad()
def test_many_questions_are_answered_as_if_each_were_alone():
    network, x, _, given = network_and_rows()
    state = network.encode(x, given)
    started = ORDER[12:15]  # leaves the first patch out, and is in the middle of the second
    for _ in range(2):
        asked = ORDER[15:]
        together = network.ask(state, asked)
        for index in range(0, len(asked), 4):
            alone = network.ask(state, asked[index : index + 1])[:, 0]
            torch.testing.assert_close(alone, together[:, index], **CLOSE)
        state = network.tell(state, started, x[:, started])


def test_univariates_are_the_first_steps_of_paths():
    model = model_of(**IMAGE)
    _, x, _, given = network_and_rows()
    answers = univariates(model, x, given).log_prob(x)
    for variable in (0, 17, 47):
        asked = torch.zeros(48, dtype=torch.bool)
        asked[variable] = True
        rows = (~given[:, variable]).nonzero().squeeze(1)
        alone = log_prob(model, x[rows], query=asked, given=given[rows])
        torch.testing.assert_close(answers[rows, variable].double(), alone, **CLOSE)


def test_speculation_draws_what_is_asked():
    model = model_of(**IMAGE)
    _, x, query, given = network_and_rows()
    drawn = speculative_sample(model, x, query=query, given=given, generator=torch.Generator())
    assert torch.equal(drawn.x[given], x[given])
    assert drawn.passes > 0


def test_a_model_comes_back_from_its_folder(tmp_path):
    model = model_of(**IMAGE)
    _, x, query, given = network_and_rows()
    save_model(tmp_path, model)
    back = load_model(tmp_path)
    first, second = (log_prob(each, x, query=query, given=given) for each in (model, back))
    assert torch.equal(first, second)


def test_context_reaches_every_factor():
    pixels = schema_of(*[LEVELS] * 8).variables
    context = (
        Variable.categorical("class", range(4), context=True),
        Variable.continuous("light", context=True),
    )
    schema = Schema((*pixels, *context))
    network = PatchPathTransformer(schema, image_shape=(2, 4, 1), patch=2, **TRUNK, **DECODER)
    wake(network)
    x = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1, 3, 0.5]])
    given = torch.zeros(1, 8, dtype=torch.bool)
    given[0, 3] = True
    rank = patch_major(2, 4, patch=2).argsort()
    for column, value in ((8, 1.0), (9, -2.0)):
        other = x.clone()
        other[0, column] = value
        first, second = (network(each, ~given, given, rank).features for each in (x, other))
        assert ((first - second).abs().amax(1) > 1e-6).all()
    expected = step_by_step(network, x, ~given, given, rank)
    torch.testing.assert_close(first, expected, **CLOSE)


@pytest.mark.parametrize("asked", [1, 8])
def test_every_parameter_is_used_in_every_pass(asked):
    """Several processes wait for the gradients of all parameters, whatever a batch asks."""
    model = model_of((2, 4, 1), 2)
    query = (torch.arange(8) < asked).expand(3, -1)
    x = torch.zeros(3, 8, dtype=torch.long)
    rank = model.protocol.rank(query)
    model.network(x, query, torch.zeros_like(query), rank).features.sum().backward()
    assert [name for name, p in model.network.named_parameters() if p.grad is None] == []


def test_masked_objectives_can_train_it(generator):
    """They ask for all variables at once, through the steps and not through a path."""
    model = model_of(**IMAGE)
    _, x, _, _ = network_and_rows()
    objective = ArdmLoss()
    objective.loss(model, x, objective.draw(model, len(x), generator=generator)).sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_it_learns_what_patches_share():
    """One coin decides all: the first patch shows it twice, the second its other side twice."""
    torch.manual_seed(0)
    schema = schema_of(2, 2, 2, 2)
    network = PatchPathTransformer(schema, image_shape=(1, 4, 1), patch=(1, 2), **TRUNK, **DECODER)
    head = CategoricalConditionals(schema, width=16)
    model = AnyOrderModel(schema, network, head, RemoveGreatest(range(4)))
    coin = torch.randint(2, (200, 1), generator=torch.Generator().manual_seed(0))
    x = torch.cat([coin, coin, 1 - coin, 1 - coin], dim=1)
    settings = TrainingSettings(steps=150, batch=64, learning_rate=1e-2, warmup=10)
    fit(model, x, PathLoss(any_queries(4)), settings=settings)
    # The truth is log 2 = 0.69 for the whole and 0 where something is given.
    assert log_prob(model, x).mean() > -0.8
    assert log_prob(model, x, query=[0, 3], given=[2]).mean() > -0.1
    assert log_prob(model, x, query=[3], given=[1]).mean() > -0.1


def test_paths_that_come_back_to_a_patch_are_refused():
    model = model_of((2, 2, 1), (1, 2), order=[0, 2, 1, 3])
    x = torch.zeros(3, 4, dtype=torch.long)
    sentence = "row 2 leaves patch 0 and comes back to it"
    asked = torch.tensor([[True, True, False, False]] * 2 + [[True, True, True, False]])
    with pytest.raises(QueryError, match=sentence):
        log_prob(model, x, query=asked)
    with pytest.raises(QueryError, match=r"comes back to it.*patch_major"):
        sample(model, x, generator=torch.Generator())
    assert log_prob(model, x, query=[0, 2, 3]).isfinite().all()
    with pytest.raises(QueryError, match="comes back"):
        log_prob(model, x, protocol=RemoveRandom(), generator=torch.Generator().manual_seed(0))


BAD = {
    "size": ({"image_shape": (4, 4, 1)}, ConfigError, "must hold the 12 variables of the schema"),
    "shape": ({"image_shape": (3, 4)}, ConfigError, "must be a height, a width and channels"),
    "patch": ({"patch": 2}, ConfigError, "got patches of 2 x 2 for 3 x 4 pixels"),
    "sides": ({"patch": (1, 2, 3)}, ConfigError, "one number, or a height and a width"),
    "zero": ({"patch": 0}, ConfigError, "`patch` must be a whole number, 1 or more; got 0"),
    "layers": (
        {"trunk_layers": 0},
        ConfigError,
        "`trunk_layers` must be a whole number, 1 or more",
    ),
    "heads": ({"trunk_heads": 3}, ConfigError, "`trunk_heads` must divide `trunk_width`"),
    "axes": ({"trunk_heads": 4}, ConfigError, "must be a multiple of 4 with 2 axes; got 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_makes_no_network_is_refused(name):
    options, error, sentence = BAD[name]
    good = {"image_shape": (3, 4, 1), "patch": (1, 2), **TRUNK, **DECODER}
    with pytest.raises(error) as caught:
        PatchPathTransformer(schema_of(*[3] * 12), **{**good, **options})
    assert sentence in str(caught.value)


def test_variables_of_an_image_are_alike():
    with pytest.raises(SchemaError, match='"x3" differs from "x0"'):
        PatchPathTransformer(
            schema_of(3, 3, 3, 4), image_shape=(2, 2, 1), patch=1, **TRUNK, **DECODER
        )


@torch.no_grad()
def test_an_image_of_the_paper_is_one_pass():
    schema = schema_of(*[256] * 3072)
    network = PatchPathTransformer(
        schema, image_shape=(32, 32, 3), patch=4, **TRUNK, **DECODER
    ).eval()
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (2, 3072), generator=generator)
    given = torch.rand(2, 3072, generator=generator) < 0.5
    given[0] = False
    path = network(x, ~given, given, patch_major(32, 32, 3, patch=4).argsort())
    assert path.features.shape == (int((~given).sum()), 16)
    assert path.features.isfinite().all()
    assert torch.equal(path.target[path.row == 0], patch_major(32, 32, 3, patch=4))
