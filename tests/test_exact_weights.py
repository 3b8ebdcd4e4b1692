"""The weights q(i | e) equal fractions, at any length and with gaps."""

import math
from fractions import Fraction

import pytest
import torch

from anyorder import (
    Bernoulli,
    ConfigError,
    FirstK,
    FixedCardinality,
    MarginalQueries,
    QueryError,
    RemoveGreatest,
    RemoveRandom,
    UniformCardinality,
    edge_weights,
    lexicographic,
    strided,
    training_masks,
)
from anyorder.exact_weights import _log_mass, _log_mass_table
from tests import oracle
from tests.laws import SIZED, as_row, as_set

WEIGHTINGS = pytest.mark.parametrize("weighting", ["path", "edge"])


@WEIGHTINGS
@pytest.mark.parametrize("order", [None, [1, 4, 0, 5, 2, 3]], ids=["rnd", "mac"])
@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("n", [4, 6])
def test_weights_equal_fractions(n, name, order, weighting):
    order = None if order is None else [v for v in order if v < n]
    questions = SIZED[name].table(n)
    edges = oracle.edge_law(questions, order, weighting=weighting, reweight=False)
    expected = oracle.edge_weights(edges)
    nodes = sorted({e for e, _ in expected}, key=sorted)
    observed = torch.stack([as_row(e, n) for e in nodes])
    protocol = RemoveRandom() if order is None else RemoveGreatest(order)
    weights = edge_weights(SIZED[name].law(n), protocol, observed, weighting=weighting)
    fractions = [[float(expected.get((e, i), 0)) for i in range(n)] for e in nodes]
    torch.testing.assert_close(
        weights, torch.tensor(fractions, dtype=torch.float64), atol=1e-13, rtol=1e-12
    )


@WEIGHTINGS
@pytest.mark.parametrize("name", SIZED)
def test_weights_of_rows_with_gaps(name, weighting):
    n, order = 5, [3, 0, 4, 1, 2]
    available = torch.tensor([True, True, False, True, True])
    questions = oracle.restrict(SIZED[name].table(n), as_set(available))
    expected = oracle.edge_weights(
        oracle.edge_law(questions, order, weighting=weighting, reweight=True)
    )
    nodes = sorted({e for e, _ in expected}, key=sorted)
    weights = edge_weights(
        SIZED[name].law(n),
        RemoveGreatest(order),
        torch.stack([as_row(e, n) for e in nodes]),
        weighting=weighting,
        available=available.expand(len(nodes), -1),
    )
    fractions = [[float(expected.get((e, i), 0)) for i in range(n)] for e in nodes]
    torch.testing.assert_close(
        weights, torch.tensor(fractions, dtype=torch.float64), atol=1e-13, rtol=1e-12
    )


@WEIGHTINGS
def test_closed_form_equals_the_recursion(weighting):
    n, law = 40, MarginalQueries(UniformCardinality(40))
    table = _log_mass_table(law, weighting, n)
    t, i = torch.arange(n)[:, None], torch.arange(1, n + 1)[None]
    valid = t < i
    closed = _log_mass(law, weighting, n, torch.minimum(t, i - 1), i.expand(n, n))
    torch.testing.assert_close(closed[valid], table[valid], atol=1e-9, rtol=0)


def test_node_masses_have_the_closed_forms():
    n = 7
    for weighting in ("path", "edge"):
        edges = oracle.edge_law(
            oracle.marginals(oracle.cardinality_law(n, oracle.uniform_sizes(1, n))),
            list(range(n)),
            weighting=weighting,
            reweight=False,
        )
        total = Fraction(1) if weighting == "path" else Fraction(n + 1, 2)
        for e, mass in oracle.node_law(edges).items():
            t, m = len(e), max(e, default=-1) + 1
            if weighting == "edge":
                closed = Fraction(n + 1, n) * (
                    Fraction(1, (m + 1) * math.comb(m, t)) - Fraction(1, (n + 1) * math.comb(n, t))
                )
            elif t == 0:
                closed = sum(Fraction(1, i) for i in range(1, n + 1)) / n
            else:
                closed = Fraction(1, n * t) * (
                    Fraction(1, math.comb(m, t)) - Fraction(1, math.comb(n, t))
                )
            assert mass * total == closed


@WEIGHTINGS
@pytest.mark.parametrize("law", [UniformCardinality(3072), FixedCardinality(3072, 1536)], ids=repr)
def test_weights_are_stable_at_3072_variables(law, weighting, generator):
    protocol = RemoveGreatest(strided(3072, 32))
    edges = training_masks(law, protocol, 64, weighting=weighting, generator=generator)
    weights = edge_weights(law, protocol, edges.observed, weighting=weighting)
    assert weights.isfinite().all()
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(64).double())
    assert (weights.gather(1, edges.target[:, None]) > 0).all()
    assert not weights[edges.observed].any()


@WEIGHTINGS
def test_long_rows_follow_the_ratio_of_neighbours(weighting):
    n, t = 3072, 700
    observed = (torch.arange(n) < t)[None]
    q = edge_weights(
        UniformCardinality(n), RemoveGreatest(lexicographic(n)), observed, weighting=weighting
    )[0, t:]
    i = torch.arange(t + 1, n, dtype=torch.float64)
    ratio = (i - t) / (i + (1 if weighting == "path" else 2))
    torch.testing.assert_close(q[1:], q[:-1] * ratio, atol=1e-300, rtol=1e-9)


def test_bernoulli_queries_have_geometric_weights():
    observed = torch.tensor([[False, True, False, False, False, False]])
    q = edge_weights(
        Bernoulli(6, 0.25), RemoveGreatest(lexicographic(6)), observed, weighting="edge"
    )
    expected = 0.75 ** torch.arange(4).double()
    torch.testing.assert_close(q[0, 2:], expected / expected.sum())
    assert not q[0, :2].any()


def test_the_dial_runs_from_exact_to_the_paper(generator):
    law, protocol = UniformCardinality(6), RemoveGreatest(lexicographic(6))
    observed = training_masks(law, protocol, 20, generator=generator).observed
    exact = edge_weights(law, protocol, observed)
    paper = edge_weights(law, protocol, observed, uniform_share=1)
    outside = (~observed).double()
    torch.testing.assert_close(paper, outside / outside.sum(dim=1, keepdim=True))
    between = edge_weights(law, protocol, observed, uniform_share=0.3)
    torch.testing.assert_close(between, 0.7 * exact + 0.3 * paper)


def test_drawn_targets_average_to_the_weights(generator):
    law, protocol = UniformCardinality(5), RemoveGreatest(lexicographic(5))
    edges = training_masks(law, protocol, 200_000, generator=generator)
    wanted = torch.tensor([True, False, False, False, False])
    targets = edges.target[(edges.observed == wanted).all(dim=1)]
    shares = torch.bincount(targets, minlength=5).double() / len(targets)
    expected = edge_weights(law, protocol, wanted[None])[0]
    # 4 standard errors of a share
    torch.testing.assert_close(shares, expected, atol=4 * (0.25 / len(targets)) ** 0.5, rtol=0)


def test_bad_input_is_refused_in_a_sentence():
    mac, observed = RemoveGreatest(lexicographic(4)), torch.zeros(1, 4).bool()
    with pytest.raises(ConfigError, match="Weight the target that `training_masks` draws instead"):
        edge_weights(FirstK(4, 2), mac, observed)
    with pytest.raises(QueryError, match="must leave a variable to predict; row 0 does not"):
        edge_weights(UniformCardinality(4), mac, ~observed)
    with pytest.raises(QueryError, match="a set that the query law never visits"):
        edge_weights(FixedCardinality(4, 1), mac, torch.tensor([[True, False, False, False]]))
    with pytest.raises(QueryError, match=r"must have shape \(batch, 4\)"):
        edge_weights(UniformCardinality(4), mac, torch.zeros(1, 5).bool())
    with pytest.raises(ConfigError, match="`uniform_share` must be a number between 0 and 1"):
        edge_weights(UniformCardinality(4), mac, observed, uniform_share=1.5)
