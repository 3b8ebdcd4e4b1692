"""The weights q(i | e) equal fractions, at any length and with gaps."""

import pytest
import torch

from anyorder import (
    Bernoulli,
    ConfigError,
    DecompositionProtocol,
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
from anyorder.lattice.exact_weights import _log_mass, _small_table, log_mass_table
from tests import oracle
from tests.laws import SIZED, as_row

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
def test_weights_of_rows_with_different_gaps_in_one_batch(name, weighting):
    n, order = 5, [3, 0, 4, 1, 2]
    observed, available, fractions = [], [], []
    for have in ([0, 1, 3, 4], [0, 1, 2, 3, 4], [2, 4]):
        questions = oracle.restrict(SIZED[name].table(n), frozenset(have))
        expected = oracle.edge_weights(
            oracle.edge_law(questions, order, weighting=weighting, reweight=True)
        )
        for e in sorted({e for e, _ in expected}, key=sorted):
            observed.append(as_row(e, n))
            available.append(as_row(frozenset(have), n))
            fractions.append([float(expected.get((e, i), 0)) for i in range(n)])
    weights = edge_weights(
        SIZED[name].law(n),
        RemoveGreatest(order),
        torch.stack(observed),
        weighting=weighting,
        available=torch.stack(available),
    )
    expected = torch.tensor(fractions, dtype=torch.float64)
    torch.testing.assert_close(weights, expected, atol=1e-13, rtol=1e-12)


@WEIGHTINGS
def test_closed_form_equals_the_recursion(weighting):
    n, law = 40, MarginalQueries(UniformCardinality(40))
    table = log_mass_table(law.size_law, law.queries_rest, weighting, n)
    t, i = torch.arange(n)[:, None], torch.arange(1, n + 1)[None]
    valid = t < i
    closed = _log_mass(law, weighting, n, torch.minimum(t, i - 1), i.expand(n, n))
    torch.testing.assert_close(closed[valid], table[valid], atol=1e-9, rtol=0)


def test_tables_are_kept_for_the_law_that_is_asked_again():
    law, protocol = FixedCardinality(60, 30), RemoveGreatest(lexicographic(60))
    observed = (torch.arange(60) < 3)[None]
    edge_weights(law, protocol, observed)
    before = _small_table.cache_info()
    edge_weights(law, protocol, observed)
    after = _small_table.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


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


def test_bernoulli_queries_are_stable_where_their_probabilities_underflow():
    observed = (torch.arange(3072) < 3000)[None]
    q = edge_weights(
        Bernoulli(3072, 0.5), RemoveGreatest(lexicographic(3072)), observed, weighting="edge"
    )
    torch.testing.assert_close(q[0, 3000:3004], 0.5 ** torch.arange(1, 5).double())


def test_the_papers_uniform_weights_need_no_closed_form():
    observed = torch.tensor([[True, False, False, False]])
    weights = edge_weights(
        FirstK(4, 2), RemoveGreatest(lexicographic(4)), observed, uniform_share=1
    )
    torch.testing.assert_close(weights, torch.tensor([[0, 1, 1, 1]]).double() / 3)


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


class _Delegate(DecompositionProtocol):
    """A protocol of a user's own."""

    def rank(self, members, *, generator=None):
        return RemoveGreatest(lexicographic(4)).rank(members, generator=generator)

    def removal(self, members):
        return RemoveGreatest(lexicographic(4)).removal(members)


@pytest.mark.parametrize("protocol", ["mac", None, lexicographic(4), RemoveGreatest])
def test_what_is_no_protocol_is_refused(protocol):
    observed = torch.zeros(1, 4).bool()
    with pytest.raises(ConfigError, match="`protocol` must be a DecompositionProtocol"):
        edge_weights(UniformCardinality(4), protocol, observed)
    with pytest.raises(ConfigError, match="`protocol` must be a DecompositionProtocol"):
        training_masks(UniformCardinality(4), protocol, 2)


def test_bad_input_is_refused_in_a_sentence():
    mac, observed = RemoveGreatest(lexicographic(4)), torch.zeros(1, 4).bool()
    with pytest.raises(ConfigError, match=r"the target that `training_masks` samples instead"):
        edge_weights(FirstK(4, 2), mac, observed)
    with pytest.raises(ConfigError, match="has no closed form"):
        edge_weights(UniformCardinality(4), _Delegate(), observed)
    with pytest.raises(QueryError, match="must leave a variable to predict; row 0 does not"):
        edge_weights(UniformCardinality(4), mac, ~observed)
    with pytest.raises(QueryError, match="a set that the query law never visits"):
        edge_weights(FixedCardinality(4, 1), mac, torch.tensor([[True, False, False, False]]))
    with pytest.raises(QueryError, match=r"must have shape \(batch, 4\)"):
        edge_weights(UniformCardinality(4), mac, torch.zeros(1, 5).bool())
    with pytest.raises(ConfigError, match="`uniform_share` must be a number between 0 and 1"):
        edge_weights(UniformCardinality(4), mac, observed, uniform_share=1.5)
