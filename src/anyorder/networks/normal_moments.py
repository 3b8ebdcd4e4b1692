"""The mean and covariance of a normal distribution from few rows, with gaps.

Pairs of columns, each by the rows that have both, would make no covariance at all, and that of few
rows takes chance for law: conditioned on many numbers either is certain of what is wrong. So gaps
are filled by what is believed of them (expectation maximisation), and beside the rows stand some
more of which is known only that normal scores have mean 0 and deviation 1; how many, rows say that
were left out.

Reference: Dempster, Laird and Rubin (1977), section 4.1.
"""

import torch
from torch import Tensor

PRIORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Rows that the prior counts for, of which the best is taken."""

CAUTIOUS = 10.0
"""That of too few rows to leave some out."""

FOLDS, FEWEST = 3, 10
"""Parts of the rows that are left out in turn, and the fewest rows for that."""

JUDGED, MOST = 500, 4000
"""Rows with gaps by which the prior is chosen, and rows with gaps that are read at most."""

ROUNDS, FEW_ROUNDS = 20, 6
"""Of filling gaps: for good, and to choose the prior by."""

ENTRIES = 2**22
"""Of covariances that are decomposed at a time: 32 megabytes."""

Moments = tuple[Tensor, Tensor]
"""Center and covariance."""


def normal_moments(z: Tensor, have: Tensor, weights: Tensor) -> Moments:
    """Center and covariance of normal scores, in doubles.

    Args:
        z: Scores; those that are not there are not read. Shape ``(rows, numbers)``.
        have: Which are there. Shape ``(rows, numbers)``.
        weights: Of the rows; their unit does not matter. Shape ``(rows,)``.
    """
    used = weights > 0
    z, have, weights = z[used].double().masked_fill(~have[used], 0), have[used], weights[used]
    if len(z):
        weights = weights.double() / weights.max()
        weights = weights * (weights.sum() / weights.square().sum())  # as many as they are worth
    if not have.all():
        z, have, weights = z[:MOST], have[:MOST], weights[:MOST]
    judged = slice(MOST if have.all() else JUDGED)
    prior = _best_prior(z[judged], have[judged], weights[judged])
    return _fitted(z, have, weights, prior)


def _best_prior(z: Tensor, have: Tensor, weights: Tensor) -> float:
    if weights.sum() < FEWEST:
        return CAUTIOUS
    fold = torch.arange(len(z), device=z.device) % FOLDS

    def surprise(prior: float) -> float:
        total = 0.0
        for number in range(FOLDS):
            out = fold == number
            moments = _fitted(z[~out], have[~out], weights[~out], prior, FEW_ROUNDS)
            total += _surprise(z[out], have[out], weights[out], moments)
        return total

    return min(PRIORS, key=surprise)


def _fitted(
    z: Tensor, have: Tensor, weights: Tensor, prior: float, rounds: int = ROUNDS
) -> Moments:
    center, covariance = z.new_zeros(z.shape[1]), torch.eye(z.shape[1]).to(z)
    total = weights.sum() + prior
    for _ in range(1 if have.all() else rounds):
        filled, left = (z, 0) if have.all() else _filled(z, have, weights, center, covariance)
        center = weights @ filled / total
        second = (weights[:, None] * filled).T @ filled + left
        second.diagonal().add_(prior)
        covariance = second / total - center.outer(center)
    return center, covariance


def _filled(
    z: Tensor, have: Tensor, weights: Tensor, center: Tensor, covariance: Tensor
) -> tuple[Tensor, Tensor]:
    """Rows without gaps, and the sum over rows of what stays unknown."""
    away, filled = (z - center).masked_fill(~have, 0), center.repeat(len(z), 1)
    unknown = torch.zeros_like(covariance)
    for rows in bunches(len(z), z.shape[1], z.device):
        gain, left = conditioned(covariance, have[rows])
        filled[rows] += (away[rows, None] @ gain)[:, 0]
        unknown += torch.tensordot(weights[rows], left, dims=1)
    return filled, unknown


def conditioned(covariance: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """What known numbers say of all, and the covariance that is left, for several sets of them.

    Args:
        covariance: Shape ``(numbers, numbers)``.
        known: Shape ``(sets, numbers)``.

    Returns:
        The gain, by which known numbers less their means are multiplied to move the means of all,
        and what is left. Shapes ``(sets, numbers, numbers)``.
    """
    cross = covariance * known[:, :, None]  # (sets, known numbers, numbers)
    alone = torch.diag_embed((~known).to(covariance))  # what is not known has a row of its own
    gain = torch.cholesky_solve(cross, torch.linalg.cholesky(cross * known[:, None] + alone))
    return gain, covariance - cross.mT @ gain


def bunches(rows: int, numbers: int, device: torch.device) -> tuple[Tensor, ...]:
    """The rows in parts of which each may have a covariance of its own in memory."""
    return torch.arange(rows, device=device).split(max(1, ENTRIES // max(1, numbers) ** 2))


def _surprise(z: Tensor, have: Tensor, weights: Tensor, moments: Moments) -> float:
    """Minus the log-likelihood of what rows have, up to a constant."""
    center, covariance = moments
    away = (z - center).masked_fill(~have, 0)
    if have.all():
        lower = torch.linalg.cholesky(covariance)
        noise = torch.linalg.solve_triangular(lower, away.T, upper=False).T
        logs = lower.diagonal().log().sum()
        return float((weights * (0.5 * noise.square().sum(1) + logs)).sum())
    total = 0.0
    for rows in bunches(len(z), z.shape[1], z.device):
        known = have[rows]
        both = covariance * known[:, :, None] * known[:, None]
        lower = torch.linalg.cholesky(both + torch.diag_embed((~known).to(both)))
        noise = torch.linalg.solve_triangular(lower, away[rows, :, None], upper=False)[..., 0]
        logs = lower.diagonal(dim1=1, dim2=2).log().sum(1)
        total += float((weights[rows] * (0.5 * noise.square().sum(1) + logs)).sum())
    return total
