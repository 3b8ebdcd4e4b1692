"""The samplers of the training law are exact; the paper's resampling is not."""

import pytest
import torch
from scipy.stats import kstest

from anyorder import (
    Bernoulli,
    ConditionalQueries,
    ConfigError,
    FixedCardinality,
    QueryError,
    RemoveGreatest,
    RemoveRandom,
    UniformCardinality,
    lexicographic,
    strided,
    training_masks,
)
from anyorder.enumeration import all_sets, edge_law, node_law, set_index
from tests import oracle
from tests.laws import CASES, SIGNIFICANCE, as_row, as_set, assert_drawn_from

WEIGHTINGS = pytest.mark.parametrize("weighting", ["path", "edge"])
REWEIGHTS = pytest.mark.parametrize("reweight", [False, True], ids=["plain", "cr"])


def edge_codes(edges):
    return set_index(edges.observed) * edges.observed.shape[1] + edges.target


@REWEIGHTS
@WEIGHTINGS
@pytest.mark.parametrize("protocol", ["rnd", "mac"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [3, 8])
def test_exact_samplers_follow_enumeration(n, name, protocol, weighting, reweight, generator):
    law = CASES[name].law(n)
    w = RemoveRandom() if protocol == "rnd" else RemoveGreatest(strided(n, 3))
    options = {"weighting": weighting, "reweight": reweight}
    edges = training_masks(law, w, 30_000, generator=generator, **options)
    assert_drawn_from(edge_codes(edges), edge_law(law, w, **options).flatten())


@REWEIGHTS
@WEIGHTINGS
@pytest.mark.parametrize("name", CASES)
def test_rows_with_gaps_follow_the_restricted_law(name, weighting, reweight, generator):
    n, order, case = 5, [3, 0, 4, 1, 2], CASES[name]
    rows = torch.tensor([[True, False, True, True, True], [True, True, True, False, False]])
    options = {"weighting": weighting, "reweight": reweight}
    available = rows.repeat(20_000, 1)
    edges = training_masks(
        case.law(n),
        RemoveGreatest(order),
        40_000,
        available=available,
        generator=generator,
        **options,
    )
    for k, row in enumerate(rows):
        questions = oracle.restrict(case.table(n), as_set(row))
        expected = torch.zeros(2**n * n, dtype=torch.float64)
        for (e, i), mass in oracle.edge_law(questions, order, **options).items():
            expected[int(set_index(as_row(e, n)[None])) * n + i] = float(mass)
        assert_drawn_from(edge_codes(edges)[k::2], expected)


def test_one_variable_is_predicted_from_nothing(generator):
    for law in (UniformCardinality(1), ConditionalQueries(1), Bernoulli(1, 0.5)):
        edges = training_masks(law, RemoveGreatest([0]), 10, generator=generator)
        assert not edges.observed.any()
        assert not edges.target.any()


@REWEIGHTS
@WEIGHTINGS
def test_cardinalities_of_long_rows(weighting, reweight, generator):
    n = 3072
    edges = training_masks(
        UniformCardinality(n),
        RemoveGreatest(strided(n, 32)),
        4_000,
        weighting=weighting,
        reweight=reweight,
        generator=generator,
    )
    t = torch.arange(n, dtype=torch.float64)
    harmonic = (1 / (t + 1)).cumsum(0)
    path = harmonic[-1] - torch.cat([torch.zeros(1), harmonic[:-1]])
    mass = (path if weighting == "path" else n - t) * (1 + t if reweight else 1)
    cdf = (mass / mass.sum()).cumsum(0)
    sizes = edges.observed.sum(dim=1)
    # A uniform number inside each size's step makes the law continuous, as the test needs.
    lower = torch.cat([torch.zeros(1), cdf[:-1]])[sizes]
    u = lower + torch.rand(len(sizes), generator=generator) * (cdf[sizes] - lower)
    assert kstest(u.numpy(), "uniform").pvalue > SIGNIFICANCE


@REWEIGHTS
@WEIGHTINGS
@pytest.mark.parametrize("law", [UniformCardinality(9), ConditionalQueries(9), Bernoulli(9, 0.4)])
def test_the_target_comes_right_after_what_was_told(law, weighting, reweight, generator):
    order = strided(9, 4)
    edges = training_masks(
        law, RemoveGreatest(order), 500, weighting=weighting, reweight=reweight, generator=generator
    )
    assert not edges.observed.gather(1, edges.target[:, None]).any()
    ranked = edges.observed[:, order]
    place = order.argsort()[edges.target]
    before = torch.arange(9) < place[:, None]
    if isinstance(law, ConditionalQueries):
        assert ranked[before].all()
    else:
        assert not ranked[~before].any()


@pytest.mark.parametrize("pool", [4, 20])
def test_resampling_is_biased_where_the_exact_sampler_is_not(pool, generator):
    n, batch, batches = 8, 512, 600
    law, protocol = UniformCardinality(n), RemoveGreatest(lexicographic(n))
    nodes = node_law(edge_law(law, protocol, reweight=True))
    expected = float(nodes @ all_sets(n).sum(dim=1).double())

    def standard_errors_off(method):
        options = {"reweight": True, "method": method, "pool": pool, "generator": generator}
        sets = [training_masks(law, protocol, batch, **options).observed for _ in range(batches)]
        means = torch.stack([drawn.sum(dim=1).double().mean() for drawn in sets])
        return float((means.mean() - expected) / (means.std() / batches**0.5))

    # Large weights are used up first, so the masks come out too small. Chance puts a right sampler
    # six standard errors off once in 10^9 runs, four once in 10^4.
    assert standard_errors_off("sir") < -6
    assert abs(standard_errors_off("exact")) < 4


@REWEIGHTS
@WEIGHTINGS
def test_resampling_from_a_large_pool_is_close(weighting, reweight, generator):
    law, protocol = ConditionalQueries(3), RemoveGreatest(lexicographic(3))
    options = {"weighting": weighting, "reweight": reweight}
    edges = training_masks(
        law, protocol, 100, method="sir", pool=2_000, generator=generator, **options
    )
    counts = torch.bincount(edge_codes(edges), minlength=24).double() / 100
    # 100 draws: a share's standard error is at most 0.05
    assert (counts - edge_law(law, protocol, **options).flatten()).abs().max() < 0.25


def test_bad_input_is_refused_in_a_sentence():
    uniform, mac = UniformCardinality(4), RemoveGreatest(lexicographic(4))
    with pytest.raises(ConfigError, match="the law has 4 and the protocol 5"):
        training_masks(uniform, RemoveGreatest(lexicographic(5)), 2)
    with pytest.raises(ConfigError, match='`weighting` must be one of "path", "edge"; got "pth"'):
        training_masks(uniform, mac, 2, weighting="pth")
    with pytest.raises(ConfigError, match=r'Did you mean "exact"\?'):
        training_masks(uniform, mac, 2, method="exat")
    with pytest.raises(ConfigError, match="`batch` must be a whole number, 1 or more; got 0"):
        training_masks(uniform, mac, 0)
    with pytest.raises(ConfigError, match='"sir" mixes the rows'):
        training_masks(uniform, mac, 2, method="sir", available=torch.ones(2, 4).bool())
    with pytest.raises(QueryError, match=r"must have shape \(2, 4\)"):
        training_masks(uniform, mac, 2, available=torch.ones(3, 4).bool())
    with pytest.raises(QueryError, match=r"got torch\.float32"):
        training_masks(uniform, mac, 2, available=torch.ones(2, 4))
    with pytest.raises(QueryError, match=r"row 1 has none\. Drop it"):
        training_masks(uniform, mac, 2, available=torch.tensor([[True] * 4, [False] * 4]))
    with pytest.raises(QueryError, match="never asks anything"):
        training_masks(FixedCardinality(4, 0), mac, 2)
    with pytest.raises(ConfigError, match="must be a QueryLaw or a MaskDistribution; got int"):
        training_masks(4, mac, 2)  # type: ignore[arg-type]
