"""The path perceptron: encodings, masks, other orders, and probabilities that sum to one."""

from itertools import product

import pytest
import torch

from anyorder import Schema, Variable
from anyorder.errors import ConfigError
from anyorder.heads.mixed import MixedConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.networks.path_perceptron import MaskedLinear, PathPerceptron, ValueEncoding
from tests.networks.conftest import mixed_schema, schema_of, wake

SIZES = (2, 3, 2, 2)


@torch.no_grad()
def test_the_values_of_every_query_sum_to_one_given_any_evidence():
    schema = schema_of(*SIZES)
    network = wake(PathPerceptron(schema, units=3, blocks=2))
    heads = MixedConditionals(schema, width=network.width)
    model = AnyOrderModel(schema, network, heads, RemoveGreatest(lexicographic(len(SIZES)))).eval()
    worlds = torch.tensor(list(product(*(range(size) for size in SIZES))))
    for roles in product(("query", "given", "neither"), repeat=len(SIZES)):
        query, given = (
            torch.tensor([role == name for role in roles]) for name in ("query", "given")
        )
        if not query.any():
            continue
        # One world for each value of the query, with all else at its first value.
        asked = worlds[(worlds[:, ~query] == 0).all(dim=1)]
        sets = (part.expand(len(asked), -1) for part in (query, given))
        logs = log_prob(model, asked, **dict(zip(("query", "given"), sets, strict=True)))
        assert logs.exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_numbers_are_encoded_with_their_atoms_and_that_they_are_there():
    schema = Schema(
        (
            Variable.continuous("rain", atoms=(0.0, 2.5)),
            Variable.categorical("sky", [0, 1, 2]),
            Variable.continuous("wind"),
        )
    )
    encoding = ValueEncoding(schema)
    found = encoding(torch.tensor([[2.5, 1.0, 0.3], [0.1, 2.0, 0.3]]))
    rain, sky, wind = (found[:, encoding.owner == place] for place in range(3))
    assert rain[:, -2:].tolist() == [[0, 1], [0, 0]]
    assert rain[:, -3].tolist() == [1, 1]
    assert sky.tolist() == [[0, 1, 0], [0, 0, 1]]
    assert torch.equal(wind[0], wind[1])
    torch.testing.assert_close(rain[:, :-3], encoding.encoding(torch.tensor([2.5, 0.1])))


def test_masked_weights_stay_out():
    layer = MaskedLinear(torch.tensor([[True, False], [True, True]]))
    with torch.no_grad():
        layer.weight.fill_(2.0)
    layer(torch.ones(1, 2)).sum().backward()
    assert layer(torch.tensor([[0.0, 1.0]]))[0].tolist() == pytest.approx(
        (layer.bias + torch.tensor([0.0, 2.0])).tolist()
    )
    assert layer.weight.grad[0, 1] == 0


@torch.no_grad()
def test_along_another_order_a_factor_reads_all_that_is_known_as_evidence():
    network = wake(PathPerceptron(mixed_schema(), units=4, blocks=1))
    x = torch.randint(5, (1, 9), generator=torch.Generator().manual_seed(0))
    query, given = (torch.zeros(1, 9, dtype=torch.bool) for _ in range(2))
    query[0, [2, 5]] = True
    given[0, 7] = True
    backwards = network(x, query, given, torch.arange(9).flip(0))
    assert backwards.target.tolist() == [5, 2]
    known = given.clone()
    known[0, 5] = True
    evidence = network.ask(network.encode(x, known), torch.tensor([2]))[:, 0]
    torch.testing.assert_close(backwards.features[1:], evidence)


@torch.no_grad()
def test_context_is_always_read():
    network = wake(PathPerceptron(mixed_schema(Variable.continuous("s", context=True)), units=4))
    x = torch.zeros(2, 10)
    x[1, 9] = 1.0
    nothing = torch.zeros(2, 9, dtype=torch.bool)
    features = network.ask(network.encode(x, nothing), torch.arange(9))
    assert (features[0] != features[1]).any(dim=1).all()


@pytest.mark.parametrize("name", ["units", "blocks"])
def test_sizes_are_counts(name):
    with pytest.raises(ConfigError, match=f"`{name}` must be"):
        PathPerceptron(schema_of(2, 2), **{name: 0})
