"""Evidence by regions: weighted draws against sums over all worlds of a tabulated joint."""

import math

import pytest
import torch

from anyorder.errors import QueryError
from anyorder.heads.mixture import Mixture
from anyorder.inference.queries import (
    Interval,
    Levels,
    SoftEvidence,
    _truncated,
    log_prob,
    soft_evidence,
)
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from tests import oracle
from tests.toys import SIZES, toy_joint, toy_model

N = 20_000
REGIONS = {1: Levels((0, 2)), 3: Levels((1,))}


def soft(kind, regions, given=None):
    model = toy_model(kind, RemoveGreatest(lexicographic(4)))
    known = torch.tensor([True, False, False, False]) if given is None else given
    x = torch.tensor([[1, 0, 0, 0]])
    generator = torch.Generator().manual_seed(0)
    return model, soft_evidence(model, x, given=known, regions=regions, n=N, generator=generator)


def truth(level):
    """p(x2 = level | x0 = 1, x1 in {0, 2}, x3 = 1), and p(the regions | x0 = 1)."""
    joint = toy_joint()
    inside = {w: p for w, p in joint.items() if w[0] == 1 and w[1] in (0, 2) and w[3] == 1}
    asked = sum(p for w, p in inside.items() if w[2] == level)
    whole = oracle.marginal(joint, (1, 0, 0, 0), frozenset({0}))
    return asked / sum(inside.values()), sum(inside.values()) / whole


@pytest.mark.parametrize("kind", ["masked", "path"])
def test_weighted_draws_give_the_conditional_of_the_region(kind):
    model, evidence = soft(kind, REGIONS)
    assert set(evidence.x[:, 1].tolist()) == {0, 2}
    assert set(evidence.x[:, 3].tolist()) == {1}
    assert evidence.known.tolist() == [True, True, False, True]
    query = torch.tensor([False, False, True, False])
    for level in range(SIZES[2]):
        x = evidence.x.clone()
        x[:, 2] = level
        found = log_prob(model, x, query=query, given=evidence.known).exp()
        wanted, probability = truth(level)
        # Four standard errors of a mean of numbers in [0, 1].
        assert float(evidence.weights @ found) == pytest.approx(wanted, abs=2 / N**0.5)
        assert math.exp(evidence.log_probability) == pytest.approx(probability, rel=0.05)
    assert 1 < evidence.effective_sample_size <= N


def test_one_region_has_equal_weights_and_none_has_one_draw():
    _, evidence = soft("path", {1: Levels((0, 1))})
    assert evidence.effective_sample_size == pytest.approx(N)
    model = toy_model("path", RemoveGreatest(lexicographic(4)))
    nothing = torch.zeros(4, dtype=torch.bool)
    exact = soft_evidence(model, torch.zeros(1, 4).long(), given=nothing, regions={}, n=1)
    assert exact.effective_sample_size == math.inf
    assert exact.log_probability == 0


def test_an_impossible_region_is_refused():
    joint = {world: p * (world[1] != 2) for world, p in toy_joint().items()}
    model = toy_model("path", RemoveGreatest(lexicographic(4)))
    table = model.network.table.table
    table.data = torch.tensor(list(joint.values()), dtype=torch.float64).view(SIZES)
    with pytest.raises(QueryError, match="no probability"):
        soft_evidence(
            model,
            torch.zeros(1, 4).long(),
            given=torch.zeros(4, dtype=torch.bool),
            regions={1: Levels((2,))},
            n=10,
        )


def test_far_intervals_have_their_small_probability_and_impossible_ones_none():
    bell = Mixture(torch.zeros(8, 1), torch.zeros(8, 1), torch.zeros(8, 1))
    generator = torch.Generator().manual_seed(0)
    for low, high in ((6.0, 7.0), (-7.0, -6.0)):
        values, log_mass = _truncated(bell, Interval(low, high), 8, torch.device("cpu"), generator)
        assert float(log_mass[0]) == pytest.approx(-20.74, abs=0.02)
        assert len(values.unique()) == 8
    assert (
        _truncated(bell, Interval(900.0, 1000.0), 8, torch.device("cpu"), generator)[1][0]
        == -math.inf
    )


def test_resampled_draws_follow_the_weights():
    weights = SoftEvidence(torch.zeros(3, 1), torch.ones(1), torch.tensor([0.0, 0.0, -torch.inf]))
    assert weights.effective_sample_size == pytest.approx(2)
    chosen = weights.resampled(10, generator=torch.Generator().manual_seed(0))
    assert torch.bincount(chosen, minlength=3).tolist() == [5, 5, 0]
    equal = SoftEvidence(torch.zeros(5, 1), torch.ones(1), torch.zeros(5))
    assert equal.resampled(4).tolist() == [0, 1, 2, 3]
