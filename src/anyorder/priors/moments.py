"""Mean and covariance of a normal distribution from few rows, with missing values.

Pairs of columns, each by the rows that have both, need not make a covariance at all, and that of
few rows takes chance for law: conditioned on many numbers either is certain of what is wrong. So
missing values are filled by their expectations (expectation maximisation), and pseudo-counts of a
standard normal stand beside the rows; their number is chosen by left-out rows. Filling takes the
number of columns cubed for each row: where columns are many, pairs have to do, and directions in
which they contradict each other are made flat.

`chosen_units` decides by such a normal which numbers are better in units than as normal scores: a
column with a long tail is best as scores, and must not keep others from their units. From all in
units, columns become scores one by one as long as left-out rows become more probable.

Reference: Dempster, Laird and Rubin (1977), section 4.1.
"""

import torch
from torch import Tensor

PRIORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
"""Candidates for the pseudo-counts of the standard normal."""

CAUTIOUS = 10.0
"""Pseudo-counts beside too few rows to leave some out."""

FOLDS, FEWEST = 3, 10
"""Number of folds, and the fewest rows for them."""

MOST = 4000
"""Most rows by which pseudo-counts are chosen, and most rows with missing values that are read."""

ROUNDS, FILLED = 20, 64
"""Rounds of filling missing values, and the most columns for that."""

FLATTEST = 1e-3
"""Least eigenvalue of pairs, in deviations: what is less, or below 0, is their contradiction."""

ENTRIES = 2**22
"""Entries of covariances that are decomposed at a time: 32 megabytes."""

Moments = tuple[Tensor, Tensor]
"""Center and covariance."""


def normal_moments(z: Tensor, have: Tensor, weights: Tensor) -> tuple[Moments, float, float]:
    """Center and covariance of normal scores, in doubles; number of rows, and pseudo-counts.

    Args:
        z: Scores; missing ones are not read. Shape ``(rows, numbers)``.
        have: False for missing values. Shape ``(rows, numbers)``.
        weights: Weights of the rows, in any unit. Shape ``(rows,)``.
    """
    z, have, weights = used_rows(z, have, weights)
    # Missing values at the mean weaken correlations in the rows of the fit and in left-out rows
    # alike: the pseudo-counts that suit both are found without filling them.
    prior = _best_prior(z[:MOST], weights[:MOST])
    exact = have.all() or z.shape[1] <= FILLED
    moments = (_fitted if exact else _by_pairs)(z, have, weights, prior)
    return moments, float(weights.sum()), prior


def used_rows(z: Tensor, have: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of some weight in doubles, not too many with missing values, and weights in rows."""
    used = weights > 0
    z, have, weights = z[used].double().masked_fill(~have[used], 0), have[used], weights[used]
    weights = in_rows(weights)
    most = len(z) if have.all() else MOST
    return z[:most], have[:most], weights[:most]


def in_rows(weights: Tensor) -> Tensor:
    """Weights in rows: they sum to as many equal rows as they are worth (Kish)."""
    if not weights.any():
        return weights.double()
    weights = weights.double() / weights.max()
    return weights * (weights.sum() / weights.square().sum())


def _best_prior(z: Tensor, weights: Tensor) -> float:
    if weights.sum() < FEWEST:
        return CAUTIOUS
    fold, have = torch.arange(len(z), device=z.device) % FOLDS, torch.ones_like(z).bool()

    def loss(prior: float) -> float:
        total = 0.0
        for number in range(FOLDS):
            out = fold == number
            moments = _fitted(z[~out], have[~out], weights[~out], prior)
            total -= float(weights[out] @ log_densities(z[out], have[out], *moments))
        return total

    return min(PRIORS, key=loss)


def _fitted(z: Tensor, have: Tensor, weights: Tensor, prior: float) -> Moments:
    center, covariance = z.new_zeros(z.shape[1]), torch.eye(z.shape[1]).to(z)
    total = weights.sum() + prior
    for _ in range(1 if have.all() else ROUNDS):
        filled, left = (z, 0) if have.all() else _filled(z, have, weights, center, covariance)
        center = weights @ filled / total
        second = (weights[:, None] * filled).T @ filled + left
        second.diagonal().add_(prior)
        covariance = second / total - center.outer(center)
    return center, covariance


def _by_pairs(z: Tensor, have: Tensor, weights: Tensor, prior: float) -> Moments:
    there = have.to(z)
    center = weights @ z / (weights @ there + prior)
    away = (z - center) * there
    second = (weights[:, None] * away).T @ away
    second.diagonal().add_(prior)
    covariance = second / ((weights[:, None] * there).T @ there + prior)
    deviation = covariance.diagonal().sqrt()
    sizes, axes = torch.linalg.eigh(covariance / deviation / deviation[:, None])
    sound = (axes * sizes.clamp(min=FLATTEST)) @ axes.T
    return center, sound * deviation * deviation[:, None]


def _filled(
    z: Tensor, have: Tensor, weights: Tensor, center: Tensor, covariance: Tensor
) -> tuple[Tensor, Tensor]:
    """Rows with missing values at their mean, and the sum over rows of the covariance left."""
    away, filled = (z - center).masked_fill(~have, 0), center.repeat(len(z), 1)
    unknown = torch.zeros_like(covariance)
    for rows in bunches(len(z), covariance.numel(), z.device):
        gain, left, _ = conditioned(covariance, have[rows])
        filled[rows] += (away[rows, None] @ gain)[:, 0]
        unknown += torch.tensordot(weights[rows], left, dims=1)
    return filled, unknown


def conditioned(covariance: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gain and remaining covariance of a normal given some of its numbers, for several sets.

    Args:
        covariance: One or several. Shape ``(..., numbers, numbers)``.
        known: True for the given numbers. Shape ``(sets, numbers)``.

    Returns:
        The gain, by which known numbers less their means are multiplied to move the means of all;
        the covariance left; and the Cholesky factor of the known part, with ones for all else.
        Shapes ``(..., sets, numbers, numbers)``.
    """
    covariance = covariance.unsqueeze(-3)
    cross = covariance * known[:, :, None]  # (..., sets, known numbers, numbers)
    lower = _known_factor(cross, known)
    gain = torch.cholesky_solve(cross, lower)
    return gain, covariance - cross.mT @ gain, lower


def _known_factor(cross: Tensor, known: Tensor) -> Tensor:
    alone = torch.diag_embed((~known).to(cross))  # what is not known has a row of its own
    return torch.linalg.cholesky(cross * known[:, None] + alone)


def bunches(rows: int, entries: int, device: torch.device) -> tuple[Tensor, ...]:
    """Splits rows, each with so many entries of covariances, into parts that fit into memory."""
    return torch.arange(rows, device=device).split(max(1, ENTRIES // max(1, entries)))


def log_densities(z: Tensor, have: Tensor, center: Tensor, covariance: Tensor) -> Tensor:
    """Log densities of what rows have, up to powers of tau. Shape ``(rows,)``."""
    away = (z - center).masked_fill(~have, 0)
    if have.all():
        return from_factor(torch.linalg.cholesky(covariance), away)
    found = []
    for rows in bunches(len(z), covariance.numel(), z.device):
        lower = _known_factor(covariance * have[rows, :, None], have[rows])
        found.append(from_factor(lower, away[rows]))
    return torch.cat(found)


def from_factor(lower: Tensor, away: Tensor) -> Tensor:
    """Log densities, up to powers of tau, of numbers less their means: one factor, or one a row."""
    if lower.ndim == 2:
        noise = torch.linalg.solve_triangular(lower, away.T, upper=False).T
    else:
        noise = torch.linalg.solve_triangular(lower, away.unsqueeze(-1), upper=False).squeeze(-1)
    return -0.5 * noise.square().sum(-1) - lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)


READ, LEFT_OUT, TRIALS = 4000, 4, 2
"""Most rows that are read, one of so many left out, and rounds over all columns."""

BESIDE = 10.0
"""Pseudo-counts of the standard normal."""

MOST_TRIED = 128
"""Most columns: each trial is a decomposition."""


def chosen_units(
    z: Tensor, units: Tensor, log_slopes: Tensor, have: Tensor, weights: Tensor
) -> Tensor:
    """True for the numbers that are better in units. Shape ``(numbers,)``.

    Args:
        z: Normal scores. Shape ``(rows, numbers)``.
        units: The same in units, of mean 0 and deviation 1.
        log_slopes: Log slopes of units in scores.
        have: False for missing values.
        weights: Weights of the rows, in any unit. Shape ``(rows,)``.
    """
    size, used = z.shape[1], (weights > 0).nonzero().squeeze(1)[:READ]
    chosen = torch.ones(size, dtype=torch.bool, device=z.device)
    if size > MOST_TRIED:
        return chosen
    missing = ~have[used]
    both = torch.cat([part[used].masked_fill(missing, 0) for part in (z, units)], dim=1).double()
    slopes, weights = log_slopes[used].masked_fill(missing, 0), in_rows(weights[used])
    out = torch.arange(len(used), device=z.device) % LEFT_OUT == 0
    read, total = weights[~out], weights[~out].sum() + BESIDE
    center = read @ both[~out] / total
    away = both - center
    covariance = (read[:, None] * away[~out]).T @ away[~out] / total
    covariance.diagonal().add_(BESIDE / total)

    def nats(choice: Tensor) -> float:
        places = torch.arange(size, device=z.device) + size * choice
        lower = torch.linalg.cholesky_ex(covariance[places][:, places])[0]
        logs = from_factor(lower, away[out][:, places]) + slopes[out][:, choice].sum(dim=1)
        return float(weights[out] @ logs)

    best = nats(chosen)
    for place in [*range(size)] * TRIALS:
        other = chosen.clone()
        other[place] = ~other[place]
        found = nats(other)
        if found > best:
            chosen, best = other, found
    return chosen
