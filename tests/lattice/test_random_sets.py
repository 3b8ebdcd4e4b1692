"""Coins, subsets and Beta draws have the laws that they claim."""

import torch
from scipy.stats import beta as scipy_beta
from scipy.stats import kstest

from anyorder.lattice.enumeration import all_sets, set_index
from anyorder.lattice.masks import bernoulli_sets, beta, subsets
from tests.laws import SIGNIFICANCE, assert_drawn_from


def test_coins_are_independent_with_their_rows_probability(generator):
    for p in (0.0, 0.1, 0.5, 0.71, 1.0):
        heads = bernoulli_sets(torch.full((40_000,), p), 3, generator=generator)
        k = all_sets(3).sum(dim=1)
        assert_drawn_from(set_index(heads), (p**k * (1 - p) ** (3 - k)).double())


def test_coins_of_one_batch_have_different_probabilities(generator):
    p = torch.tensor([0.1, 0.9])
    share = bernoulli_sets(p, 100_001, generator=generator).double().mean(dim=1)
    # 5 standard errors of a share of 100,001 coins
    torch.testing.assert_close(share, p.double(), atol=5 * (0.09 / 100_001) ** 0.5, rtol=0)


def test_subsets_are_uniform_among_those_of_their_size(generator):
    within = torch.tensor([True, True, False, True, True])
    chosen = subsets(torch.full((30_000,), 2), within.expand(30_000, -1), generator=generator)
    sets = all_sets(5)
    possible = (sets.sum(dim=1) == 2) & ~(sets & ~within).any(dim=1)
    assert_drawn_from(set_index(chosen), possible.double() / possible.sum())


def test_subsets_have_exactly_their_size_in_long_rows(generator):
    sizes = torch.arange(0, 3072, 61)
    within = torch.ones(len(sizes), 3072, dtype=torch.bool)
    assert torch.equal(subsets(sizes, within, generator=generator).sum(dim=1), sizes)


def test_beta_draws(generator):
    for first, second in ((1, 1), (2, 1), (1, 2), (3, 1), (2, 2)):
        draws = beta(torch.full((5_000,), first), torch.full((5_000,), second), generator=generator)
        assert kstest(draws.numpy(), scipy_beta(first, second).cdf).pvalue > SIGNIFICANCE
