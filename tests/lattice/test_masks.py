"""The mask distributions draw what their probabilities say, in whole rows and in rows with gaps."""

from fractions import Fraction
from math import comb

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anyorder import (
    Bernoulli,
    CardinalityLaw,
    FirstK,
    Fixed,
    FixedCardinality,
    QueryError,
    Rectangle,
    UniformCardinality,
)
from anyorder.lattice.enumeration import all_sets, set_index
from tests import oracle
from tests.laws import as_row, as_set, assert_drawn_from, rectangles

N = 6
LAWS = {
    "uniform": UniformCardinality(N),
    "some_sizes": UniformCardinality(N, low=0, high=3),
    "fixed_size": FixedCardinality(N, 2),
    "bernoulli": Bernoulli(N, 0.3),
    "sizes": CardinalityLaw([0.1, 0.2, 0, 0.3, 0, 0, 0.4]),
    "first_k": FirstK(N, 2),
    "fixed": Fixed(torch.eye(N, dtype=torch.bool), [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]),
    "rectangle": Rectangle(2, 3),
    "rectangle_outside": Rectangle(2, 3, inside=False),
}


@pytest.mark.parametrize("name", LAWS)
def test_probabilities_sum_to_one(name):
    total = LAWS[name].log_prob(all_sets(N)).exp().sum()
    torch.testing.assert_close(total, torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize("name", LAWS)
def test_samples_follow_the_probabilities(name, generator):
    law = LAWS[name]
    sets = law.sample(60_000, generator=generator)
    assert_drawn_from(set_index(sets), law.log_prob(all_sets(N)).exp())
    assert int(sets.sum(dim=1).max()) <= law.max_cardinality


def test_uniform_cardinality_is_the_papers_law():
    law = oracle.cardinality_law(N, oracle.uniform_sizes(1, N))
    expected = torch.tensor([float(law[as_set(row)]) for row in all_sets(N)], dtype=torch.float64)
    torch.testing.assert_close(UniformCardinality(N).log_prob(all_sets(N)).exp(), expected)


def test_rectangles_are_those_of_the_image():
    law = rectangles(2, 3)
    for s, mass in law.items():
        log_prob = Rectangle(2, 3).log_prob(as_row(s, N)[None])
        torch.testing.assert_close(
            log_prob.exp()[0], torch.tensor(float(mass), dtype=torch.float64)
        )


def test_rectangles_cover_all_channels_alike(generator):
    law = Rectangle(4, 5, channels=3)
    sets = law.sample(50, generator=generator).view(50, 3, 20)
    assert (sets == sets[:, :1]).all()
    assert law.log_prob(sets.flatten(1)).isfinite().all()
    sets[:, 1] = ~sets[:, 1]
    assert law.log_prob(sets.flatten(1)).isneginf().all()


@pytest.mark.parametrize("name", ["uniform", "bernoulli", "rectangle", "sizes"])
def test_rows_with_gaps_get_the_restricted_law(name, generator):
    law = LAWS[name]
    available = torch.tensor([True, False, True, True, False, True])
    table = dict.fromkeys(oracle.all_sets(N), Fraction(0))
    for row, mass in zip(all_sets(N), law.log_prob(all_sets(N)).exp().tolist(), strict=True):
        table[as_set(row)] = Fraction(mass)
    restricted = oracle.restrict(oracle.marginals(table), as_set(available))
    expected = torch.tensor(
        [float(restricted.get((frozenset(), as_set(row)), 0)) for row in all_sets(N)]
    )
    sets = law.sample(40_000, available=available.expand(40_000, -1), generator=generator)
    assert_drawn_from(set_index(sets), expected.double())


def test_a_uniform_size_stays_uniform_among_the_available(generator):
    available = torch.rand(50_000, N, generator=generator) < 0.6
    available[:, 0] = True
    sets = UniformCardinality(N).sample(50_000, available=available, generator=generator)
    assert not (sets & ~available).any()
    for a in range(2, N + 1):
        sizes = sets[available.sum(dim=1) == a].sum(dim=1) - 1
        assert_drawn_from(sizes, torch.full((a,), 1 / a).double())


@given(n=st.integers(1, 9), data=st.data())
def test_restricted_sizes_are_hypergeometric(n, data):
    weights = data.draw(st.lists(st.integers(0, 9), min_size=n + 1, max_size=n + 1).filter(any))
    a = data.draw(st.integers(0, n))
    law = CardinalityLaw([w / sum(weights) for w in weights])
    expected = [
        sum(
            Fraction(weights[c], sum(weights)) * comb(a, k) * comb(n - a, c - k) / comb(n, c)
            for c in range(k, n + 1)
            if c - k <= n - a
        )
        for k in range(a + 1)
    ]
    actual = law.restricted(a)
    torch.testing.assert_close(
        actual, torch.tensor([float(e) for e in expected], dtype=torch.float64)
    )


def test_a_law_that_misses_the_available_variables_says_so(monkeypatch):
    monkeypatch.setattr("anyorder.lattice.masks.MAX_REJECTIONS", 20)
    available = torch.tensor([[False, False, True, True, True, True]])
    with pytest.raises(QueryError, match="never queries the row's available"):
        FirstK(N, 2).sample(1, available=available)


def test_small_sets_are_drawn_within_few_available_variables_at_once(generator):
    available = (torch.arange(3072) == 5).expand(8, -1)
    for law in (FixedCardinality(3072, 1), Bernoulli(3072, 1e-4), UniformCardinality(3072)):
        assert torch.equal(law.sample(8, available=available, generator=generator), available)
    with pytest.raises(QueryError, match="never queries a variable of some row"):
        FixedCardinality(3072, 0).sample(8, available=available)


def test_the_generator_decides_all():
    first, second = (
        UniformCardinality(30).sample(20, generator=torch.Generator().manual_seed(7))
        for _ in range(2)
    )
    assert torch.equal(first, second)
