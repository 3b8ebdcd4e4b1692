"""Untrained networks answer validly: every conditional sums to one, and caching changes nothing."""

from itertools import product

import pytest
import torch

from anyorder import (
    ArdmLoss,
    ConfigError,
    MacLoss,
    PathLoss,
    RemoveGreatest,
    RemoveRandom,
    UniformCardinality,
    any_queries,
)
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob, sample
from anyorder.lattice.enumeration import _all_queries
from anyorder.networks.patch_path_transformer import PatchPathTransformer
from anyorder.networks.path_transformer import PathTransformer, SingleStreamPathTransformer
from anyorder.networks.transformer import Transformer
from tests.networks.conftest import SeeingNothing, schema_of, wake


def patches(schema, **shape):
    """An image of one line, in patches of two pixels, or of one if their number is odd."""
    number = len(schema)
    trunk = {"trunk_layers": 2, "trunk_width": 8, "trunk_heads": 2}
    image = {"image_shape": (1, number, 1), "patch": (1, 2 - number % 2)}
    return PatchPathTransformer(schema, **image, **trunk, **shape)


def states(schema, *, layers, width, heads, **shape):
    """The network for robots, which takes levels for numbers here."""
    network = SeeingNothing(len(schema), blocks=layers, width=width, hidden=8 * heads, **shape)
    network.schema = schema
    return network


NETWORKS = {
    "masked": Transformer,
    "two_streams": PathTransformer,
    "one_stream": SingleStreamPathTransformer,
    "patches": patches,
    "state": states,
}
SHAPE = {"layers": 2, "width": 16, "heads": 2}
PATHS = pytest.mark.parametrize("name", ["two_streams", "one_stream", "patches", "state"])
SIZES = {"own_levels": (2, 3, 2), "shared_levels": (3, 3, 3)}
# The variables of an image are alike.
SIZES_OF = [
    (name, kind) for name in NETWORKS for kind in SIZES if (name, kind) != ("patches", "own_levels")
]


def model_of(name, sizes, protocol):
    schema = schema_of(*sizes)
    head = CategoricalConditionals(schema, width=16)
    torch.nn.init.normal_(head.weight, std=0.3, generator=torch.Generator().manual_seed(1))
    return AnyOrderModel(schema, wake(NETWORKS[name](schema, **SHAPE)), head, protocol).eval()


@pytest.mark.parametrize(("name", "kind"), SIZES_OF)
@pytest.mark.parametrize("protocol", [RemoveGreatest([2, 0, 1]), RemoveRandom()], ids=repr)
def test_every_conditional_sums_to_one(name, protocol, kind):
    sizes = SIZES[kind]
    model = model_of(name, sizes, protocol)
    worlds = torch.tensor(list(product(*(range(size) for size in sizes))))
    for given, query in zip(*_all_queries(3), strict=True):
        # All values of the query beside one value of the evidence; the rest is not read.
        fixed = torch.where(query, worlds, torch.ones_like(worlds))
        values = fixed.unique(dim=0)
        total = log_prob(
            model, values, query=query, given=given, generator=torch.Generator().manual_seed(0)
        )
        if isinstance(protocol, RemoveGreatest):  # random paths differ from row to row
            assert float(total.exp().sum()) == pytest.approx(1, abs=1e-5)
        assert (total <= 1e-6).all()


@PATHS
@pytest.mark.parametrize("n", [1, 3])
def test_cached_draws_are_those_without_the_cache(name, n):
    model = model_of(name, [4] * 7, RemoveGreatest([3, 0, 6, 2, 5, 1, 4]))
    draw = torch.rand(5, 7, generator=torch.Generator().manual_seed(3))
    query, given = draw < 0.6, draw > 0.7  # rows of different lengths
    query[2] = False
    x = torch.randint(4, (5, 7), generator=torch.Generator().manual_seed(4))
    options = {"query": query, "given": given, "n": n}
    cached, plain = (
        sample(model, x, cache=cache, generator=torch.Generator().manual_seed(5), **options)
        for cache in (True, False)
    )
    assert torch.equal(cached, plain)
    assert torch.equal(cached[:, 0][given], x[given])


@pytest.mark.parametrize("name", NETWORKS)
def test_values_outside_the_question_are_not_read(name):
    model = model_of(name, [4] * 6, RemoveGreatest(range(6)))
    x = torch.randint(4, (3, 6), generator=torch.Generator().manual_seed(6))
    query = torch.tensor([True, False, True, False, False, False])
    given = torch.tensor([False, False, False, True, False, True])
    other = torch.where(query | given, x, (x + 1) % 4)
    first, second = (log_prob(model, values, query=query, given=given) for values in (x, other))
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("name", NETWORKS)
def test_memory_is_bounded_by_max_batch(name):
    """A walk in small batches gives what it gives in one."""
    model = model_of(name, [3] * 5, RemoveGreatest(range(5)))
    x = torch.randint(3, (11, 5), generator=torch.Generator().manual_seed(7))
    whole, parts = (log_prob(model, x, max_batch=size) for size in (1000, 2))
    torch.testing.assert_close(whole, parts)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_not_in_the_question_may_hold_anything(name):
    """A missing value carries whatever it carries: here a code that no level has."""
    model = model_of(name, [4] * 6, RemoveGreatest(range(6)))
    x = torch.randint(4, (3, 6), generator=torch.Generator().manual_seed(6))
    query = torch.tensor([[True, False, True, False, False, False], [True] * 6, [False] * 6])
    given = torch.tensor([[False, False, False, True, False, True], [False] * 6, [True] * 6])
    other = torch.where(query | given, x, -1)
    first, second = (log_prob(model, values, query=query, given=given) for values in (x, other))
    torch.testing.assert_close(first, second)
    unknown = torch.where(given, x, -1)
    drawn = sample(model, unknown, query=query, given=given, generator=torch.Generator())
    assert (drawn[:, 0][query] >= 0).all()


@pytest.mark.parametrize("objective", [ArdmLoss(), MacLoss(UniformCardinality(6))], ids=type)
def test_masked_losses_read_no_missing_value(objective, generator):
    _assert_reads_no_missing("masked", objective, generator)


@pytest.mark.parametrize("one_size", [False, True])
@PATHS
def test_path_losses_read_no_missing_value(name, one_size, generator):
    objective = PathLoss(any_queries(6), one_size=one_size)
    _assert_reads_no_missing(name, objective, generator)


def _assert_reads_no_missing(name, objective, generator):
    model = model_of(name, [4] * 6, RemoveGreatest(range(6)))
    x = torch.randint(4, (20, 6), generator=generator)
    available = torch.rand(20, 6, generator=generator) < 0.6
    available[:, 0] = True
    drawn = objective.draw(model, 20, available=available, generator=generator)
    losses = [objective.loss(model, v, drawn) for v in (x, torch.where(available, x, -1))]
    assert losses[0].isfinite().all()
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("name", NETWORKS)
def test_dropout_is_off_while_answering(name):
    schema = schema_of(4, 4, 4)
    network = NETWORKS[name](schema, **SHAPE, dropout=0.5)
    head = CategoricalConditionals(schema, width=16)
    model = AnyOrderModel(schema, network, head, RemoveGreatest(range(3))).train()
    x = torch.zeros(2, 3, dtype=torch.long)
    before = torch.get_rng_state()
    assert torch.equal(log_prob(model, x), log_prob(model, x))
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "state"])
def test_shapes_that_make_no_network_are_refused(name):
    for shape, sentence in (
        ({"layers": 0, "width": 8, "heads": 2}, "`layers` must be a whole number, 1 or more"),
        ({"layers": 1, "width": 16, "heads": 7}, "`heads` must divide `width`; got 7 and 16"),
        ({"layers": 1, "width": 8, "heads": 0}, "`heads` must be a whole number, 1 or more"),
    ):
        with pytest.raises(ConfigError) as caught:
            NETWORKS[name](schema_of(2, 2), **shape)
        assert sentence in str(caught.value)
