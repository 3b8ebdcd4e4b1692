"""The masked network and the embedding."""

import pytest
import torch

from anyorder import ConfigError, Schema, SchemaError, Variable
from anyorder.networks.blocks import Rotary, VariableEmbedding, _rotate
from anyorder.networks.contracts import MaskedNetwork
from anyorder.networks.path_transformer import PathTransformer, SingleStreamPathTransformer
from anyorder.networks.residual_mlp import ResidualMlp
from anyorder.networks.transformer import Transformer
from tests.networks.conftest import NUM_VARIABLES, SHAPE, TABLE, mixed_schema, schema_of, wake


@torch.no_grad()
def test_masked_features_see_exactly_what_is_observed(masked_network, x, sets):
    _, observed = sets
    before = masked_network(x, observed)
    for variable in range(NUM_VARIABLES):
        other = x.clone()
        other[:, variable] = (other[:, variable] + 1) % 5
        moved = (masked_network(other, observed) - before).abs().amax((1, 2)) > 1e-6
        assert torch.equal(moved, observed[:, variable])


def test_masked_features_have_one_row_a_variable(masked_network, x, sets):
    assert masked_network(x, sets[1]).shape == (*x.shape, 16)


def test_unknown_positions_are_listed():
    with pytest.raises(ConfigError, match='"absolute", "rotary", "both"; got "sine"'):
        Transformer(schema_of(2, 2), layers=1, width=8, heads=1, positions="sine")


def test_variables_with_the_same_levels_share_a_table_and_others_do_not():
    assert VariableEmbedding(schema_of(3, 3, 3), width=4).value.num_embeddings == 3
    assert VariableEmbedding(schema_of(3, 2, 4), width=4).value.num_embeddings == 9


def test_told_is_value_plus_variable_for_shared_and_own_variables():
    embedding = VariableEmbedding(schema_of(3, 2, 4), width=4)
    x = torch.tensor([[2, 1, 3], [0, 0, 1]])
    variables = torch.tensor([[2, 0], [1, 2]])
    told = embedding.value_tokens(x.gather(1, variables), variables)
    rows = torch.tensor([[5 + 3, 2], [3 + 0, 5 + 1]])
    torch.testing.assert_close(
        told, embedding.value.weight[rows] + embedding.variable.weight[variables]
    )
    shared = embedding.value_tokens(x[:, [1, 2]].float(), torch.tensor([1, 2]))
    torch.testing.assert_close(shared[1], told[1])
    assert embedding.query_tokens(variables).shape == (2, 2, 4)


def test_the_context_comes_last_and_something_is_asked():
    context, asked = Variable.continuous("c", context=True), Variable.continuous("x")
    with pytest.raises(SchemaError, match="must come after all others"):
        VariableEmbedding(Schema((context, asked)), width=4)
    with pytest.raises(SchemaError, match="all are context"):
        VariableEmbedding(Schema((context,)), width=4)


def test_a_continuous_value_is_told_by_where_it_is_and_by_the_atom_that_it_is():
    embedding = wake(VariableEmbedding(mixed_schema(), width=4, shared=False))
    smooth, spiked = torch.tensor([3]), torch.tensor([6])
    near = torch.tensor([[0.0], [1e-6], [0.5]])
    told = embedding.value_tokens(near, smooth)[:, 0]
    torch.testing.assert_close(told[0], told[1], rtol=0, atol=1e-4)
    assert not torch.allclose(told[0], told[2], atol=1e-3)
    told = embedding.value_tokens(near, spiked)[:, 0]  # zero is an atom, and a millionth is not
    assert not torch.allclose(told[0], told[1], atol=1e-3)
    assert embedding.value_tokens(torch.tensor([[1e30], [-1e30]]), smooth).isfinite().all()


CONTEXT = (
    Variable.continuous("state", context=True),
    Variable.categorical("mode", ["slow", "fast"], context=True),
)


@pytest.mark.parametrize(
    "network",
    [PathTransformer, SingleStreamPathTransformer, Transformer, ResidualMlp],
    ids=lambda network: network.__name__,
)
@torch.no_grad()
def test_every_feature_sees_the_context(network, x, sets):
    shape = {"width": 16} if network is ResidualMlp else {**SHAPE, **TABLE}
    network = wake(network(mixed_schema(*CONTEXT), **shape))
    query, given = sets
    rows = torch.cat([x.float(), torch.tensor([[0.3, 1.0]]).expand(len(x), -1)], dim=1)

    def features(values):
        if isinstance(network, MaskedNetwork):
            return network(values, given)
        return network(values, query, given, torch.arange(NUM_VARIABLES)).features

    for column, value in ((NUM_VARIABLES, 1.7), (NUM_VARIABLES + 1, 0.0)):
        other = rows.clone()
        other[:, column] = value
        assert ((features(other) - features(rows)).abs().amax(-1) > 1e-6).all()


def test_rotary_scores_depend_on_the_distance_only():
    rotary = Rotary(20, head_dim=8)
    query, key = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(0)).double()

    def score(i: int, j: int) -> torch.Tensor:
        return (
            _rotate(query, rotary(torch.tensor([i]))) * _rotate(key, rotary(torch.tensor([j])))
        ).sum()

    # complex64 turns: angles up to 19 are known to about 1e-6
    torch.testing.assert_close(score(3, 7), score(12, 16), rtol=0, atol=1e-5)
    assert abs(score(3, 7) - score(3, 8)) > 1e-3
    assert torch.equal(
        rotary(torch.tensor([rotary.no_position])), torch.ones(1, 1, 4, dtype=torch.complex64)
    )


def test_rotary_wants_enough_channels_for_its_axes():
    with pytest.raises(ConfigError, match="multiple of 4 with 2 axes; got 6"):
        Rotary(9, [(0, 0)] * 9, head_dim=6)


@torch.no_grad()
def test_features_of_some_targets_are_those_of_all(masked_network, x, sets):
    targets = torch.tensor([[3, 0], [8, 8], [1, 2], [5, 4], [0, 7], [6, 6], [2, 1]])
    everything = masked_network(x, sets[1])
    wanted = everything.gather(1, targets[..., None].expand(-1, -1, 16))
    torch.testing.assert_close(masked_network(x, sets[1], targets), wanted)
