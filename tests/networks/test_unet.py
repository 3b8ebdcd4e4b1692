"""The network for images; what it shares with other masked networks is tested beside theirs."""

import json
from itertools import product

import pytest
import torch

import anyorder as ao
from anyorder import ConfigError, Schema, SchemaError, Unet, Variable
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.lattice.enumeration import _all_queries
from anyorder.networks.contracts import MaskedNetwork
from anyorder.saving.checkpoint import build, describe
from tests.networks.conftest import schema_of, wake

SMALL = {"down": 2, "middle": 1, "width": 16}


def unet_of(image_shape, levels=5, **options) -> Unet:
    height, columns, channels = image_shape
    schema = schema_of(*[levels] * (height * columns * channels))
    return Unet(schema, image_shape=image_shape, **{**SMALL, **options})


def model_of(network: Unet) -> ao.AnyOrderModel:
    head = CategoricalConditionals(network.schema, width=network.width)
    order = ao.RemoveGreatest(ao.channel_interleaved(*network.image_shape))
    return ao.AnyOrderModel(network.schema, network, head, order).eval()


def rows_of(network: Unet, batch: int = 3, levels: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (batch, network.schema.num_variables)
    return (
        torch.randint(levels, shape, generator=generator),
        torch.rand(shape, generator=generator) < 0.5,
    )


@pytest.mark.parametrize("image_shape", [(1, 1, 1), (1, 7, 2), (5, 3, 3), (4, 4, 1)])
@pytest.mark.parametrize("heads", [1, 4])
def test_images_of_any_size(image_shape, heads):
    network = wake(unet_of(image_shape, heads=heads))
    x, observed = rows_of(network)
    features = network(x, observed)
    assert features.shape == (*x.shape, 16)
    assert features.isfinite().all()


@torch.no_grad()
def test_what_is_not_observed_may_hold_anything():
    network = wake(unet_of((3, 2, 2)))
    x, observed = rows_of(network)
    features = network(x, observed)
    for filler in (0, -1, 99):
        assert torch.equal(network(torch.where(observed, x, filler), observed), features)
    nothing = torch.where(observed, x.float(), torch.nan)
    assert torch.equal(network(nothing, observed), features)


@torch.no_grad()
def test_every_question_about_a_binary_image_sums_to_one():
    model = model_of(wake(unet_of((2, 1, 2), levels=2)))
    worlds = torch.tensor(list(product(range(2), repeat=4)))
    given, query = _all_queries(4)
    # All values of each query beside one value of its evidence, in one batch.
    values = [torch.where(asked, worlds, 1).unique(dim=0) for asked in query]
    question = torch.arange(len(query)).repeat_interleave(torch.tensor([len(v) for v in values]))
    logs = ao.log_prob(model, torch.cat(values), query=query[question], given=given[question])
    total = torch.zeros(len(query), dtype=torch.float64).index_add_(0, question, logs.exp())
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)


@pytest.mark.parametrize("axis", [2, 3], ids=["upside_down", "mirrored"])
@torch.no_grad()
def test_variables_are_numbered_channel_by_channel_and_row_by_row(axis):
    """With kernels that are their own mirror images, a mirrored image has mirrored features."""
    network = wake(unet_of((2, 3, 2)))
    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.weight.add_(layer.weight.flip(axis))

    def mirrored(rows):
        return rows.unflatten(1, (2, 2, 3)).flip(axis).flatten(1, 3)

    x, observed = rows_of(network)
    expected = mirrored(network(x, observed))
    # float32: the order of summation differs
    torch.testing.assert_close(
        network(mirrored(x), mirrored(observed)), expected, rtol=1e-4, atol=1e-4
    )


@torch.no_grad()
def test_each_channel_has_features_and_levels_of_its_own():
    network = wake(unet_of((2, 3, 2)))
    x, observed = rows_of(network)
    features = network(x, observed)
    network.leave.bias[16:] += 1  # of the second channel
    moved = network(x, observed) - features
    torch.testing.assert_close(moved, (torch.arange(12) >= 6)[:, None].expand_as(moved).float())
    codes = torch.zeros(1, 12, dtype=torch.long)
    known = torch.arange(12)[None] == 6
    vectors = network.pixels.level.weight  # five levels and the absorbing one a channel
    levels = network.pixels(codes, known)[0, 12:]  # (4, height, columns)
    torch.testing.assert_close(levels[:, 0, 0], vectors[5] + vectors[6])
    torch.testing.assert_close(levels[:, 1, 2], vectors[5] + vectors[11])


@torch.no_grad()
def test_the_cardinality_enters_every_block():
    network = unet_of((3, 3, 1))
    waves = network.cardinality.waves
    assert len(waves) == 10
    assert torch.cdist(waves, waves).fill_diagonal_(1).min() > 0.1
    seen = []
    blocks = [*network.descent, *network.bottom, *network.ascent]
    for block in blocks:
        block.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1]))
    _, observed = rows_of(network)
    network(torch.zeros_like(observed).long(), observed)
    expected = network.cardinality.mlp(waves[observed.sum(dim=1)])
    assert len(seen) == len(blocks) == 2 + 1 + 3
    assert all(torch.equal(vectors, expected) for vectors in seen)


def test_the_paper_configuration_has_141_million_parameters():
    schema = schema_of(*[256] * 3072)
    with torch.device("meta"):
        network = Unet(schema, image_shape=(32, 32, 3))
        head = CategoricalConditionals(schema, width=256)
    count = sum(parameter.numel() for part in (network, head) for parameter in part.parameters())
    assert count == pytest.approx(141e6, rel=0.05)
    assert (len(network.descent), len(network.bottom), len(network.ascent)) == (32, 2, 33)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_every_parameter_has_a_gradient(checkpointing):
    network = wake(unet_of((3, 3, 2), checkpointing=checkpointing))
    x, observed = rows_of(network, batch=20)  # every level of every channel is seen
    network(x, observed).square().sum().backward()
    without = [
        name
        for name, parameter in network.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    ]
    assert without == []


def stored_by(network: Unet) -> tuple[int, torch.Tensor]:
    """Numbers that are kept for the way back, and the gradients that come of it."""
    x, observed = rows_of(network)
    kept: dict[int, int] = {}

    def keep(tensor):
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = network(x, observed).square().mean()
    loss.backward()
    own = {parameter.data_ptr() for parameter in network.parameters()}
    stored = sum(size for place, size in kept.items() if place not in own)
    return stored, torch.cat([parameter.grad.flatten() for parameter in network.parameters()])


def test_checkpointing_gives_the_same_gradients_from_fewer_activations():
    plain, thrifty = (
        stored_by(wake(unet_of((6, 6, 1), down=4, checkpointing=flag))) for flag in (False, True)
    )
    torch.testing.assert_close(plain[1], thrifty[1])
    assert thrifty[0] < plain[0] / 5


def test_networks_round_trip(tmp_path):
    network = wake(unet_of((2, 3, 1), heads=2, checkpointing=True))
    document = json.loads(json.dumps(describe(network)))
    back = build(document, MaskedNetwork, schema=network.schema)
    assert describe(back) == describe(network)
    assert back.image_shape == (2, 3, 1)
    model = model_of(network)
    ao.save_model(tmp_path, model)
    x, _ = rows_of(network)
    assert torch.equal(ao.log_prob(ao.load_model(tmp_path), x), ao.log_prob(model, x))


@torch.no_grad()
def test_features_have_the_precision_of_the_weights():
    network = wake(unet_of((3, 2, 2)))
    x, observed = rows_of(network)
    features = network(x, observed)
    doubles = network.double()(x, observed)
    assert doubles.dtype == torch.float64
    torch.testing.assert_close(doubles.float(), features, rtol=1e-4, atol=1e-4)


BAD_OPTIONS = {
    "`image_shape` must have as many values as the schema has variables, 4; got 2 x 2 x 2.": {
        "image_shape": (2, 2, 2)
    },
    "`image_shape` must be three whole numbers, height, width and channels; got (2, 2).": {
        "image_shape": (2, 2)
    },
    "`image_shape` must be three whole numbers, height, width and channels; got 4.": {
        "image_shape": 4
    },
    "`image_shape` must be three whole numbers, height, width and channels; got (4, 1, 0).": {
        "image_shape": (4, 1, 0)
    },
    "`width` must be a multiple of 8 and of `heads`; got 12 and 1.": {"width": 12},
    "`width` must be a multiple of 8 and of `heads`; got 16 and 3.": {"heads": 3},
    "`down` must be a whole number, 1 or more; got 0.": {"down": 0},
    "`middle` must be a whole number, 1 or more; got 1.5.": {"middle": 1.5},
    "`heads` must be a whole number, 1 or more; got 0.": {"heads": 0},
    "`checkpointing` must be True or False; got 'yes'.": {"checkpointing": "yes"},
}


@pytest.mark.parametrize("sentence", BAD_OPTIONS)
def test_options_that_make_no_network_are_refused(sentence):
    options = {"image_shape": (2, 2, 1), **SMALL, **BAD_OPTIONS[sentence]}
    with pytest.raises(ConfigError) as caught:
        Unet(schema_of(2, 2, 2, 2), **options)
    assert str(caught.value) == sentence


BAD_SCHEMAS = {
    'Unet takes categorical variables; "b" is continuous.': Variable.continuous("b"),
    'Unet takes variables with equal numbers of levels; "b" has 3 and "a" 2.': (
        Variable.categorical("b", range(3))
    ),
    'Unet reads no context; "b" is a context variable.': (
        Variable.categorical("b", range(2), context=True)
    ),
}


@pytest.mark.parametrize("sentence", BAD_SCHEMAS)
def test_schemas_of_no_image_are_refused(sentence):
    schema = Schema((Variable.categorical("a", range(2)), BAD_SCHEMAS[sentence]))
    with pytest.raises(SchemaError) as caught:
        Unet(schema, image_shape=(2, 1, 1), **SMALL)
    assert str(caught.value) == sentence
