"""The samplers of the training law are exact; the paper's resampling is not."""

from fractions import Fraction

import pytest
import torch
from scipy.stats import kstest

from anyorder import (
    Bernoulli,
    ConditionalQueries,
    ConfigError,
    FirstK,
    Fixed,
    FixedCardinality,
    MaskDistribution,
    MixtureQueries,
    QueryError,
    QueryList,
    Rectangle,
    RemoveGreatest,
    RemoveRandom,
    UniformCardinality,
    any_queries,
    lexicographic,
    row_masses,
    strided,
    training_masks,
)
from anyorder.lattice.enumeration import all_sets, edge_law, node_law, set_index
from tests import oracle
from tests.laws import CASES, SIGNIFICANCE, SIZED, as_row, as_set, assert_drawn_from

WEIGHTINGS = pytest.mark.parametrize("weighting", ["path", "edge"])
REWEIGHTS = pytest.mark.parametrize("reweight", [False, True], ids=["plain", "cr"])


def edge_codes(edges):
    return set_index(edges.observed) * edges.observed.shape[1] + edges.target


@REWEIGHTS
@WEIGHTINGS
@pytest.mark.parametrize("protocol", ["rnd", "mac"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [4, 8])
def test_exact_samplers_follow_enumeration(n, name, protocol, weighting, reweight, generator):
    law = CASES[name].law(n)
    w = RemoveRandom() if protocol == "rnd" else RemoveGreatest(strided(n, 3))
    options = {"weighting": weighting, "reweight": reweight}
    edges = training_masks(law, w, 30_000, generator=generator, **options)
    assert_drawn_from(edge_codes(edges), edge_law(law, w, **options).flatten())


@REWEIGHTS
@WEIGHTINGS
@pytest.mark.parametrize("protocol", ["rnd", "mac"])
@pytest.mark.parametrize("name", CASES)
def test_rows_with_gaps_follow_the_restricted_law(name, protocol, weighting, reweight, generator):
    n, case = 5, CASES[name]
    order = [3, 0, 4, 1, 2] if protocol == "mac" else None
    w = RemoveRandom() if order is None else RemoveGreatest(order)
    rows = torch.tensor([[True, False, True, True, True], [True, True, True, False, False]])
    options = {"weighting": weighting, "reweight": reweight}
    available = rows.repeat(15_000, 1)
    edges = training_masks(
        case.law(n), w, 30_000, available=available, generator=generator, **options
    )
    for k, row in enumerate(rows):
        questions = oracle.restrict(case.table(n), as_set(row))
        expected = torch.zeros(2**n * n, dtype=torch.float64)
        for (e, i), mass in oracle.edge_law(questions, order, **options).items():
            expected[int(set_index(as_row(e, n)[None])) * n + i] = float(mass)
        assert_drawn_from(edge_codes(edges)[k::2], expected)


@REWEIGHTS
@WEIGHTINGS
@pytest.mark.parametrize("law", [UniformCardinality, ConditionalQueries, any_queries])
@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_variables(n, law, weighting, reweight, generator):
    options = {"weighting": weighting, "reweight": reweight}
    protocol = RemoveGreatest(range(n - 1, -1, -1))
    edges = training_masks(law(n), protocol, 5_000, generator=generator, **options)
    assert_drawn_from(edge_codes(edges), edge_law(law(n), protocol, **options).flatten())


@REWEIGHTS
@pytest.mark.parametrize("name", SIZED)
def test_rows_with_gaps_count_by_the_mass_of_their_edges(name, reweight):
    n, case = 5, SIZED[name]
    rows = torch.tensor(
        [[True] * 5, [True, False, True, True, True], [False, False, True, False, False]]
    )

    def mass(available):
        total = 0
        for (given, query), share in case.table(n).items():
            g, c = len(given & available), len(query & available)
            total += share * c * (1 + g + Fraction(c - 1, 2) if reweight else 1)
        return total

    expected = [float(mass(as_set(row)) / mass(as_set(rows[0]))) for row in rows]
    masses = row_masses(case.law(n), rows, weighting="edge", reweight=reweight)
    torch.testing.assert_close(masses, torch.tensor(expected, dtype=torch.float64))
    if not reweight:
        assert masses.tolist() == pytest.approx([1, 4 / 5, 1 / 5])
    assert row_masses(case.law(n), rows).tolist() == [1, 1, 1]


def test_rows_with_gaps_under_path_count_by_their_mean_cardinality():
    rows = torch.tensor([[True, True, True, False], [True, False, False, False]])
    masses = row_masses(UniformCardinality(4), rows, reweight=True)
    # A query of c variables has the mean 1 + (c - 1)/2, and c is uniform on 1..a: (a + 3)/4.
    assert masses.tolist() == pytest.approx([6 / 7, 4 / 7])
    listed = QueryList(4, [([0], [1, 3], 3), ([], [0, 1, 2], 1)])
    both = torch.tensor([[True, True, True, False]])
    # edges left: 1 of the first query, 3 of the second; 2 and 3 without gaps
    assert row_masses(listed, both, weighting="edge").tolist() == pytest.approx([6 / 9])


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
def test_resampling_from_a_large_pool_has_the_right_law(weighting, reweight, generator):
    law, protocol = ConditionalQueries(3), RemoveGreatest(lexicographic(3))
    options = {"weighting": weighting, "reweight": reweight}
    # One draw from each pool of 200: the bias is of the order of 1/200 of a share, below the
    # standard error of 1500 draws, and far below the differences between the four laws.
    edges = [
        training_masks(law, protocol, 1, method="sir", pool=200, generator=generator, **options)
        for _ in range(1_500)
    ]
    codes = torch.cat([edge_codes(edge) for edge in edges])
    assert_drawn_from(codes, edge_law(law, protocol, **options).flatten())


class _Singletons(MaskDistribution):
    """A law of a user's own: small sets, and no word of how small."""

    def __init__(self, n, max_cardinality=None):
        self.num_variables, self.declared = n, max_cardinality

    @property
    def max_cardinality(self):
        return self.num_variables if self.declared is None else self.declared

    def _sample(self, batch, device, generator):
        places = torch.randint(self.num_variables, (batch, 1), device=device, generator=generator)
        return torch.arange(self.num_variables, device=device) == places


def test_rejection_wastes_little_where_sizes_are_declared(generator):
    protocol = RemoveGreatest(lexicographic(3072))
    options = {"weighting": "edge", "reweight": True, "generator": generator}
    edges = training_masks(_Singletons(3072, 1), protocol, 16, **options)
    assert not edges.observed.any()
    all_but_one = ~torch.eye(3072, dtype=torch.bool)[:3]
    edges = training_masks(ConditionalQueries(3072, Fixed(all_but_one)), protocol, 16, **options)
    assert (edges.observed.sum(dim=1) == 3071).all()
    one = (torch.arange(3072) == 7).expand(16, -1)
    edges = training_masks(Rectangle(32, 32, 3), protocol, 16, available=one, **options)
    assert (edges.target == 7).all()


def test_lists_are_drawn_by_their_masses_however_uneven(generator):
    protocol = RemoveGreatest(lexicographic(3072))
    options = {"weighting": "edge", "reweight": True, "generator": generator}
    law = QueryList(3072, [([], [0], 1.0), ([], range(3072), 0.0)])
    assert not training_masks(law, protocol, 8, **options).observed.any()
    mixed = MixtureQueries([FirstK(3072, 1), UniformCardinality(3072)], [1, 0])
    assert not training_masks(mixed, protocol, 8, **options).observed.any()


def test_laws_that_misstate_their_sizes_are_told_so(generator, monkeypatch):
    protocol = RemoveGreatest(lexicographic(250))
    options = {"weighting": "edge", "reweight": True, "generator": generator}
    monkeypatch.setattr("anyorder.lattice.masks.MAX_REJECTIONS", 50)
    with pytest.raises(QueryError, match="declare a smaller `max_cardinality`"):
        training_masks(_Singletons(250), protocol, 4, **options)
    with pytest.raises(ConfigError, match="samples larger sets than it declares"):
        training_masks(_Singletons(250, 0), protocol, 4, **options)


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
    with pytest.raises(QueryError, match="never queries a variable"):
        training_masks(FixedCardinality(4, 0), mac, 2)
    with pytest.raises(ConfigError, match=r"at most 16777216 to be resampled; got 100000000\."):
        training_masks(uniform, mac, 10**6, method="sir")
    with pytest.raises(
        ConfigError, match=r"masses of .* are unknown, so rows must not have missing values"
    ):
        row_masses(Rectangle(2, 2), torch.ones(1, 4).bool(), weighting="edge")
    with pytest.raises(ConfigError, match="must be a QueryLaw or a MaskDistribution; got int"):
        training_masks(4, mac, 2)  # type: ignore[arg-type]
