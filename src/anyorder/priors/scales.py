"""Scales of numbers: from normal scores to units and back.

Measures that follow from each other do so in their units: a line there is bent in normal scores.
Where tails are long it is the other way round. A scale is a table of one in terms of the other at
even steps, piecewise linear between them and beyond.

`chosen_units` decides by one normal over all numbers: a column with a long tail is best as scores,
and must not keep others from their units. From all in units, columns become scores one by one as
long as left-out rows become more probable. Missing values are at the mean.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from anyorder.priors.moments import from_factor, in_rows

Units = Callable[[Tensor], Tensor]
"""From normal scores to the units of their columns. Shapes ``(rows, numbers)``."""

POINTS = 257
"""Points of a table. Between two of them a smooth scale is off by some 1e-4 deviations."""

FARTHEST, BEYOND = 8.0, 2.0
"""Greatest normal score of a table, and how far it goes beyond what was seen: a density reaches
there, and lines would lead it far from its units."""

PLAIN = 4.0
"""Deviations within which units are not compressed."""


class UnitScales(nn.Module):
    """Scales of some numbers; until `measure` is called, units are normal scores.

    Args:
        size: Number of numbers.

    Example:
        >>> scales, scores = UnitScales(1), torch.linspace(0, 4, 50)[:, None]
        >>> scales.measure(scores, torch.ones_like(scores).bool(), lambda z: 7 + z**2)
        >>> torch.allclose(scales.to_scores(scales.to_units(scores)), scores, atol=1e-4)
        True
    """

    start: Tensor
    step: Tensor
    units: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("start", torch.zeros(size))
        self.register_buffer("step", torch.ones(size))
        self.register_buffer("units", torch.arange(float(POINTS)).repeat(size, 1))

    def measure(self, z: Tensor, have: Tensor, units: Units) -> None:
        """Makes the tables, in units of mean 0 and deviation 1 over some rows.

        Numbers that did not vary, or whose units do not rise from point to point, as those of the
        longest tails in single precision, stay normal scores.

        Args:
            z: Normal scores. Shape ``(rows, numbers)``.
            have: False for missing values.
            units: From normal scores to units.
        """
        self.reset()
        low = z.masked_fill(~have, FARTHEST).amin(dim=0).clamp(min=-FARTHEST)
        high = z.masked_fill(~have, -FARTHEST).amax(dim=0).clamp(max=FARTHEST)
        varied = high > low
        low, high = low - BEYOND, high + BEYOND
        part = torch.linspace(0, 1, POINTS, dtype=z.dtype, device=z.device)
        table = units(low + (high - low) * part[:, None]).to(z)
        measured, counts = units(z.masked_fill(~have, 0)).to(z), have.sum(dim=0).clamp(min=1)
        mean = measured.masked_fill(~have, 0).sum(dim=0) / counts
        away = (measured - mean).masked_fill(~have, 0)
        deviation = (away.square().sum(dim=0) / counts).sqrt()
        found = _compressed((table - mean) / deviation).T.to(self.units)
        rises = found.isfinite().all(dim=1) & (found.diff(dim=1) > 0).all(dim=1)
        sound = (rises & varied).nonzero().squeeze(1)
        self.start[sound] = low[sound].to(self.start)
        self.step[sound] = ((high - low)[sound] / (POINTS - 1)).to(self.step)
        self.units[sound] = found[sound]

    def reset(self, keep: Tensor | None = None) -> None:
        """Resets scales to normal scores, except those to `keep`. Shape ``(numbers,)``."""
        plain = UnitScales(len(self.start))
        gone = torch.ones_like(self.start).bool() if keep is None else ~keep
        for name, buffer in self.named_buffers():
            buffer[gone] = plain.get_buffer(name).to(buffer)[gone]

    def at(self, places: Tensor) -> "UnitScales":
        """Selects scales. Shape of `places` ``(some,)``."""
        found = UnitScales(len(places)).to(self.start)
        for name, buffer in found.named_buffers():
            buffer.copy_(self.get_buffer(name)[places])
        return found

    def to_units(self, z: Tensor, places: Tensor | None = None) -> Tensor:
        """Normal scores in units.

        Args:
            z: Shape ``(rows, numbers)``, or any if `places` are given.
            places: Number of each. Shape of `z`.
        """
        return self.measured(z, places)[0]

    def log_slopes(self, z: Tensor) -> Tensor:
        """Log slopes of units in normal scores: what a density changes by. Shape of `z`."""
        return self.measured(z)[1]

    def measured(self, z: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Normal scores in units, and the logs of the slopes there; see `to_units`."""
        places = self._places(z) if places is None else places
        start, step = self.start[places].to(z), self.step[places].to(z)
        steps = (z - start) / step
        below = steps.nan_to_num().floor().clamp(0, POINTS - 2).long()
        left, right = (self.units[places, point].to(z) for point in (below, below + 1))
        return left + (steps - below) * (right - left), ((right - left) / step).log()

    def to_scores(self, units: Tensor, places: Tensor | None = None) -> Tensor:
        """Units as normal scores.

        Args:
            units: Shape ``(..., numbers)``, or ``(..., edges)`` if `places` are given.
            places: Number of each edge. Shape ``(edges,)``.
        """
        start, step, table = self.start, self.step, self.units
        if places is not None:
            start, step, table = start[places], step[places], table[places]
        table, values = table.to(units), units.reshape(-1, len(table)).T.contiguous()
        below = torch.searchsorted(table, values).clamp(1, POINTS - 1) - 1  # (numbers, values)
        left, right = (table.gather(1, point) for point in (below, below + 1))
        steps = below + (values - left) / (right - left)
        scores = start[:, None].to(units) + step[:, None].to(units) * steps
        return scores.T.reshape(units.shape)

    def _places(self, z: Tensor) -> Tensor:
        return torch.arange(len(self.start), device=z.device).expand(z.shape)


def _compressed(units: Tensor) -> Tensor:
    """Compresses units far out to their logarithm: a wrong reading must not decide."""
    beyond = (units.abs() - PLAIN).clamp(min=0)
    return units.sign() * (units.abs() - beyond + beyond.log1p())


READ, LEFT_OUT, ROUNDS = 4000, 4, 2
"""Most rows that are read, one of so many left out, and rounds over all columns."""

PRIOR = 10.0
"""Pseudo-counts of the standard normal."""

MOST = 128
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
    if size > MOST:
        return chosen
    missing = ~have[used]
    both = torch.cat([part[used].masked_fill(missing, 0) for part in (z, units)], dim=1).double()
    slopes, weights = log_slopes[used].masked_fill(missing, 0), in_rows(weights[used])
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
