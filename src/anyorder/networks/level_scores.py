"""Each level of a category as a number, so that a normal distribution can have it beside others.

Of two levels all numbers say the same. Several levels get those that go along best with the other
columns: of all ways to number them, the one that tells most of numbers and of levels of other
categories, by the sum of squared correlations (of levels each by its share of a category's), which
a singular value decomposition finds.

Reference: Gifi (1990), Nonlinear Multivariate Analysis: levels that are quantified.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

READ, CELLS = 20_000, 2**23
"""Rows and cells that are read, of as many as there are."""

FACETS = 64
"""Levels of a category by which others are numbered; of more, each has few rows to tell of."""

LEAST = 1e-6
"""Of the deviation of numbers: of one level there is none."""

DOUBT = 5.0
"""Rows without any relation beside those of each level: of few rows little is known."""


def level_scores(
    codes: Tensor,
    numbers: Tensor,
    have: Tensor,
    weights: Tensor | None = None,
    *,
    sizes: Sequence[int],
) -> Tensor:
    """Numbers for the levels of categories, of mean 0 and deviation 1 over the rows, in doubles.

    Args:
        codes: Of the levels. Shape ``(rows, categories)``.
        numbers: Normal scores. Shape ``(rows, numbers)``.
        have: Which are there, of the codes and then of the numbers.
        weights: Of the rows; their unit does not matter. Shape ``(rows,)``.
        sizes: How many levels each category has.

    Returns:
        Shape ``(categories, most levels)``; 0 for levels that a category does not have.

    Example:
        >>> codes, number = torch.tensor([[0, 1, 2, 0]]), torch.tensor([[1.0, -3.0, 1.0, 1.0]])
        >>> here = torch.ones(4, 2, dtype=torch.bool)
        >>> level_scores(codes.T, number.T, here, sizes=[3]).abs().argmax(dim=1)
        tensor([1])
    """
    weights = torch.ones(len(codes), device=codes.device) if weights is None else weights
    most = CELLS // max(1, numbers.shape[1] + sum(size for size in sizes if size <= FACETS))
    used = (weights > 0).nonzero().squeeze(1)[: min(READ, most)]
    codes, numbers, have, weights = codes[used], numbers[used], have[used], weights[used].double()
    if len(used):
        weights = weights / weights.max()
        weights = weights * (weights.sum() / weights.square().sum())  # as many as they are worth
    shares = [_shares(codes[:, i], have[:, i], weights, size) for i, size in enumerate(sizes)]
    facets, counted, owner = _facets(codes, numbers, have, weights, shares)
    found = torch.zeros(len(sizes), max(sizes, default=0), dtype=torch.float64).to(codes.device)
    for place, share in enumerate(shares):
        scores = torch.arange(len(share)).to(share)
        if len(share) > 2:
            rows, empty = have[:, place], facets.new_zeros(len(share), facets.shape[1])
            sums = empty.index_add(0, codes[rows, place], facets[rows])
            total = empty.index_add(0, codes[rows, place], counted[rows])
            others = owner != place
            scores = _followed(sums[:, others], total[:, others], share)
        away = scores - share @ scores
        found[place, : len(share)] = away / (share @ away.square()).sqrt().clamp(min=LEAST)
    return found


def _shares(codes: Tensor, have: Tensor, weights: Tensor, size: int) -> Tensor:
    """Of each level, half a row more than there are: none is impossible."""
    counts = torch.full((size,), 0.5, dtype=torch.float64, device=codes.device)
    counts.index_add_(0, codes[have], weights[have])
    return counts / counts.sum()


def _facets(
    codes: Tensor, numbers: Tensor, have: Tensor, weights: Tensor, shares: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """What categories are numbered by, times the weights of its rows; these; whose levels it is.

    Numbers are nobody's. An indicator is divided by the root of its share, so that all of a
    category count alike.
    """
    there = have[:, len(shares) :]
    count = (weights @ there.double()).clamp(min=LEAST)
    away = numbers.double().masked_fill(~there, 0)
    away = (away - weights @ away / count).masked_fill(~there, 0)
    facets = [away / (weights @ away.square() / count).sqrt().clamp(min=LEAST)]
    counted, owner = [there], [-1] * numbers.shape[1]
    for place, share in enumerate(shares):
        if len(share) <= FACETS:
            hit = codes[:, place, None] == torch.arange(len(share), device=codes.device)
            mine = have[:, place, None].expand(hit.shape)
            facets.append(((hit.double() - share) / share.sqrt()).masked_fill(~mine, 0))
            counted.append(mine)
            owner += [place] * len(share)
    rows = weights[:, None]
    whose = torch.tensor(owner, device=codes.device)
    return torch.cat(facets, dim=1) * rows, torch.cat(counted, dim=1) * rows, whose


def _followed(sums: Tensor, counted: Tensor, share: Tensor) -> Tensor:
    """Of numbers for levels those that the means of all else follow best; any, if nothing does.

    Args:
        sums: Of all else over the rows of each level. Shape ``(levels, facets)``.
        counted: Rows that have it.
        share: Of each level.
    """
    mean = sums.sum(dim=0) / counted.sum(dim=0).clamp(min=LEAST)
    means = (sums - mean * counted) / (counted + DOUBT)
    root = share.sqrt()[:, None]
    weighed = means * root
    weighed = weighed - root * (root.T @ weighed)  # one number for all levels says nothing
    if not (weighed.abs() > LEAST).any():
        return torch.arange(len(share)).to(share)
    left = torch.linalg.svd(weighed, full_matrices=False)[0]
    return left[:, 0] / share.sqrt()
