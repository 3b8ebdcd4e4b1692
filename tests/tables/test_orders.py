"""Orders from data: what they put first, and that a search finds what a model prefers."""

import pytest
import torch

from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import ConfigError
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob, sample
from anyorder.lattice.masks import FixedCardinality, UniformCardinality
from anyorder.lattice.protocols import RemoveGreatest, RemoveRandom
from anyorder.lattice.query_laws import as_query_law
from anyorder.networks.path_transformer import PathTransformer
from anyorder.tables.orders import by_completeness, by_dependence, learned_order
from anyorder.variables import Schema, Variable

N = 5
LAW = as_query_law(UniformCardinality(N))


@pytest.fixture(scope="module")
def model():
    """Untrained, so that its conditionals agree with each other in no order."""
    schema = Schema(tuple(Variable.categorical(f"v{i}", [0, 1]) for i in range(N)))
    torch.manual_seed(0)
    network = PathTransformer(schema, layers=2, width=16, heads=2)
    conditionals = CategoricalConditionals(schema, width=16)
    return AnyOrderModel(schema, network, conditionals, RemoveRandom())


def test_what_most_rows_have_comes_first():
    available = torch.tensor([[1, 1, 0, 1], [0, 1, 0, 1], [1, 1, 1, 1]]).bool()
    assert by_completeness(available).tolist() == [1, 3, 0, 2]


def test_relatives_follow_each_other():
    torch.manual_seed(0)
    chain = torch.randn(4000, 4).cumsum(dim=1)  # 0 - 1 - 2 - 3
    alone = torch.randn(4000, 1)
    x = torch.cat([alone, chain], dim=1)
    order = by_dependence(x, torch.ones_like(x, dtype=torch.bool), [0] * 5).tolist()
    assert order[-1] == 0
    placed = {order[0]}
    for variable in order[1:-1]:
        assert {variable - 1, variable + 1} & placed
        placed.add(variable)


def test_the_search_finds_the_order_that_rows_were_drawn_along(model, generator):
    truth = RemoveGreatest([3, 1, 4, 0, 2])
    source = AnyOrderModel(model.schema, model.network, model.conditionals, truth)
    x = sample(source, torch.zeros(2000, N), generator=generator)[:, 0].long()
    # Of whole rows no order is likelier, in expectation, than the one that they were drawn along.
    law = as_query_law(FixedCardinality(N, N))
    found = learned_order(model, x, law, proposals=60, generator=generator)
    assert sorted(found.order.tolist()) == list(range(N))
    assert found.gain.value > 2 * found.gain.se
    assert len(found.gain.rows) == 1000
    learned = log_prob(model, x, protocol=RemoveGreatest(found.order))
    missed = Estimate(log_prob(model, x, protocol=truth) - learned)
    assert missed.value <= 3 * missed.se  # none, if it was found


def test_a_question_is_walked_along_any_order(model, generator):
    x = torch.randint(2, (6, N), generator=generator)
    order = torch.tensor([3, 1, 4, 0, 2])
    other = AnyOrderModel(model.schema, model.network, model.conditionals, RemoveGreatest(order))
    walked = log_prob(model, x, protocol=RemoveGreatest(order))
    torch.testing.assert_close(walked, log_prob(other, x))
    ratio = log_prob(
        model, x, query=[0, 1], given=[2], method="ratio", protocol=RemoveGreatest(order)
    )
    torch.testing.assert_close(ratio, log_prob(other, x, query=[0, 1], given=[2], method="ratio"))


def test_too_few_rows_are_refused(model):
    with pytest.raises(ConfigError, match="4 held-out rows"):
        learned_order(model, torch.zeros(3, N, dtype=torch.long), LAW)
