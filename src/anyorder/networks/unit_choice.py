"""Which numbers to take in units, and which as normal scores, by one normal of all of them.

A column with a long tail is best off as scores, and must not keep others from their units. From all
in units, columns become scores one by one as long as left-out rows become more probable. Gaps are
at the mean: this is a choice, not yet a model.
"""

import torch
from torch import Tensor

from anyorder.networks.normal_moments import from_factor, in_rows

READ, LEFT_OUT, ROUNDS = 4000, 4, 2
"""Rows that are read, one of so many of them left out, and how often all columns are tried."""

PRIOR = 10.0
"""Rows that the prior counts for."""

MOST = 128
"""Columns at most: each try is a decomposition."""


def chosen_units(
    z: Tensor, units: Tensor, log_slopes: Tensor, have: Tensor, weights: Tensor
) -> Tensor:
    """True for the numbers that are better in units. Shape ``(numbers,)``.

    Args:
        z: Normal scores. Shape ``(rows, numbers)``.
        units: The same in units, of mean 0 and deviation 1.
        log_slopes: Of units in scores.
        have: Which are there.
        weights: Of the rows; their unit does not matter. Shape ``(rows,)``.
    """
    size, used = z.shape[1], (weights > 0).nonzero().squeeze(1)[:READ]
    chosen = torch.ones(size, dtype=torch.bool, device=z.device)
    if size > MOST:
        return chosen
    gaps = ~have[used]
    both = torch.cat([part[used].masked_fill(gaps, 0) for part in (z, units)], dim=1).double()
    slopes, weights = log_slopes[used].masked_fill(gaps, 0), in_rows(weights[used])
    out = torch.arange(len(used), device=z.device) % LEFT_OUT == 0
    read, total = weights[~out], weights[~out].sum() + PRIOR
    center = read @ both[~out] / total
    away = both - center
    covariance = (read[:, None] * away[~out]).T @ away[~out] / total
    covariance.diagonal().add_(PRIOR / total)

    def nats(choice: Tensor) -> float:
        places = torch.arange(size, device=z.device) + size * choice
        lower = torch.linalg.cholesky_ex(covariance[places][:, places])[0]
        logs = from_factor(lower, away[out][:, places]) + slopes[out][:, choice].sum(dim=1)
        return float(weights[out] @ logs)

    best = nats(chosen)
    for place in [*range(size)] * ROUNDS:
        other = chosen.clone()
        other[place] = ~other[place]
        found = nats(other)
        if found > best:
            chosen, best = other, found
    return chosen
