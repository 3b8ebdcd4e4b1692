"""Calibration: whether what a model calls probable happens as often as it says.

The *probability integral transform* (PIT) of a value is the probability that the model gave to less
than it. It is uniform over rows for a calibrated model. A value that has a probability of its own,
a level or an atom, is spread evenly over the step that it makes: the PIT is then uniform as well.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate
from anyorder.diagnostics.gaps import estimate_json
from anyorder.lattice.random_sets import bernoulli_sets

LEVELS = (0.5, 0.8, 0.9)
"""Of the central intervals whose coverage is counted."""

BINS = 10
"""Of histograms and of reliability."""

TERMS = 100
"""Of the series of Kolmogorov's distribution, which has converged long before."""

REDRAWS = 4000
"""Times that hits are drawn again: p-values of a few thousandths can then be told apart."""

HITS_AT_ONCE = 4_000_000
"""Of those, what is in memory together."""

ROUNDING = 1e-9
"""Errors that differ by less are equal."""


def ks_distance(pit: Tensor) -> float:
    """How far the share of PITs below any number is from that number, at most."""
    ordered, n = pit.double().sort().values, len(pit)
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    return float(torch.maximum(steps[1:] - ordered, ordered - steps[:-1]).max())


def ks_p_value(distance: float, n: float) -> float:
    """The probability that as many uniform numbers are at such a distance, or a greater one.

    Kolmogorov's limit with the correction of Stephens (1970) for small numbers.
    """
    scaled = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * distance
    if scaled < 0.2:  # the series alternates slowly here, and the sum is 1 to twelve digits
        return 1.0
    terms = ((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, TERMS))
    return min(1.0, max(0.0, 2 * sum(terms)))


def coverage_p_value(share: float, n: float) -> float:
    """How often chance alone has so many of n values in their widest intervals, or as odd a number.

    Binomial, and twice the lesser tail.
    """
    total, level = round(n), torch.tensor(LEVELS[-1], dtype=torch.float64)
    inside = torch.arange(total + 1, dtype=torch.float64)
    logs = inside * level.log() + (total - inside) * (-level).log1p()
    logs += math.lgamma(total + 1) - (inside + 1).lgamma() - (total - inside + 1).lgamma()
    chances, found = logs.exp(), round(share * total)
    return min(1.0, 2 * float(torch.minimum(chances[: found + 1].sum(), chances[found:].sum())))


def off_p_value(pit: Tensor, n: float) -> float:
    """How often chance alone puts uniform numbers as far off, if they are worth n.

    By their distance, or by how many lie in the widest interval: the distance hardly notices
    intervals that are too narrow. The lesser of two p-values counts twice.
    """
    share = float(_inside(pit, LEVELS[-1]).mean())
    return min(1.0, 2 * min(ks_p_value(ks_distance(pit), n), coverage_p_value(share, n)))


def _inside(pit: Tensor, level: float) -> Tensor:
    """1 for values in their central intervals, 0 for others."""
    return ((pit - 0.5).abs() <= level / 2).double()


class Transformed:
    """Predictions of which the PITs are known."""

    pit: Tensor
    variable: Tensor
    row: Tensor

    @property
    def distance(self) -> float:
        """How far a stated probability is from the share that it has, at most."""
        return ks_distance(self.pit)

    @property
    def p_value(self) -> float:
        """How often chance alone gives such a distance, or a greater one."""
        return ks_p_value(self.distance, len(self.pit))

    @property
    def off_p_value(self) -> float:
        """How often chance alone puts a calibrated model so far off, or farther."""
        return off_p_value(self.pit, len(self.pit))


@dataclass(frozen=True)
class NumberCalibration(Transformed):
    """Predictions of numbers, a cell a row.

    Args:
        pit: Of the true values. Shape ``(rows,)``.
        variable: Which variable each is of. Shape ``(rows,)``.
        row: The number of the row that each is in. Shape ``(rows,)``.
    """

    pit: Tensor
    variable: Tensor
    row: Tensor

    def coverage(self, level: float) -> Estimate:
        """The share of values inside their central intervals of probability `level`."""
        return Estimate(_inside(self.pit, level))

    def histogram(self) -> Tensor:
        """The share of PITs in each tenth of (0, 1). Shape ``(bins,)``."""
        return torch.histc(self.pit.double(), bins=BINS, min=0, max=1) / len(self.pit)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        coverage = {f"{level:g}": estimate_json(self.coverage(level)) for level in LEVELS}
        return {
            "n": len(self.pit),
            "ks_distance": self.distance,
            "ks_p_value": self.p_value,
            "off_p_value": self.off_p_value,
            "coverage": coverage,
            "pit_histogram": self.histogram().tolist(),
        }


@dataclass(frozen=True)
class ReliabilityBin:
    """Predictions of about the same confidence.

    Args:
        n: How many.
        confidence: How often they were said to be right.
        accuracy: How often they are.
        se: The standard error of the accuracy, if they are as probable as was said.
    """

    n: int
    confidence: float
    accuracy: float
    se: float


@dataclass(frozen=True)
class CategoryCalibration(Transformed):
    """Predictions of categories, a cell a row.

    Args:
        pit: Of the true levels, in the order of their codes. Shape ``(rows,)``.
        confidence: The probability of the most probable level. Shape ``(rows,)``.
        hit: Whether that level is the true one. Shape ``(rows,)``.
        variable: Which variable each is of. Shape ``(rows,)``.
        row: The number of the row that each is in. Shape ``(rows,)``.
    """

    pit: Tensor
    confidence: Tensor
    hit: Tensor
    variable: Tensor
    row: Tensor

    @property
    def accuracy(self) -> Estimate:
        """How often the most probable level is the true one."""
        return Estimate(self.hit.double())

    @property
    def overconfidence(self) -> Estimate:
        """The mean confidence minus the accuracy."""
        return Estimate(self.confidence.double() - self.hit.double())

    @property
    def expected_error(self) -> float:
        """The expected calibration error: |accuracy - confidence| of a bin, over all bins."""
        bins = self.reliability()
        return sum(b.n * abs(b.accuracy - b.confidence) for b in bins) / len(self.hit)

    @property
    def expected_by_chance(self) -> float:
        """About what that error is for a calibrated model, with so few predictions in a bin."""
        total = 0.0
        for members in self._bins():
            confidence = self.confidence[members].double()
            # The mean absolute value of a normal variable of the variance of the number of hits.
            total += math.sqrt(2 / math.pi * float((confidence * (1 - confidence)).sum()))
        return total / len(self.hit)

    @property
    def error_beyond_chance(self) -> float:
        """How much larger than by chance the error is."""
        return self.expected_error - self.expected_by_chance

    @cached_property
    def hit_p_value(self) -> float:
        """How often chance alone puts a calibrated model so far off, or farther.

        Hits are drawn again with the confidences that were stated, from one seed. They are drawn
        one by one, because there is one cell of a row here: rows are taken to be independent. What
        is compared is the expected error, which notices bins that are off to both sides, plus the
        size of the overconfidence, which notices a little of it in all of them.
        """
        found, as_far = self._error(self.hit[:, None]), 0
        generator = torch.Generator().manual_seed(0)
        size = max(1, HITS_AT_ONCE // len(self.hit))
        for some in torch.arange(REDRAWS).split(size):
            drawn = self._error(bernoulli_sets(self.confidence, len(some), generator=generator))
            as_far += int((drawn >= found - ROUNDING).sum())
        return (1 + as_far) / (1 + REDRAWS)

    def reliability(self) -> list[ReliabilityBin]:
        """The bins of equal width that hold predictions, from the least confident up."""
        found = []
        for members in self._bins():
            said, n = self.confidence[members].double(), len(members)
            se = math.sqrt(float((said * (1 - said)).sum())) / n
            accuracy = float(self.hit[members].double().mean())
            found.append(ReliabilityBin(n, float(said.mean()), accuracy, se))
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        bins = [asdict(part) for part in self.reliability()]
        return {
            "n": len(self.pit),
            "ks_distance": self.distance,
            "ks_p_value": self.p_value,
            "accuracy": estimate_json(self.accuracy),
            "overconfidence": estimate_json(self.overconfidence),
            "expected_calibration_error": self.expected_error,
            "expected_by_chance": self.expected_by_chance,
            "hit_p_value": self.hit_p_value,
            "reliability": bins,
        }

    def _error(self, hits: Tensor) -> Tensor:
        """Expected error plus size of overconfidence of each draw of hits ``(rows, draws)``."""
        table = torch.nn.functional.one_hot(self._bin_numbers(), BINS).T  # (bins, rows)
        expected = table.double() @ self.confidence.double()
        # Counts up to 2^24 are exact in float32, and several times faster than in doubles.
        excess = (table.float() @ hits.float()).double() - expected[:, None]  # (bins, draws)
        return (excess.abs().sum(dim=0) + excess.sum(dim=0).abs()) / len(hits)

    def _bins(self) -> list[Tensor]:
        """The members of each bin that is not empty."""
        bins = self._bin_numbers()
        return [(bins == number).nonzero().squeeze(1) for number in bins.unique().tolist()]

    def _bin_numbers(self) -> Tensor:
        return (self.confidence.double() * BINS).long().clamp(max=BINS - 1)


@dataclass(frozen=True)
class ColumnCalibration:
    """Predictions of one variable, whatever was given.

    Args:
        name: Of the variable.
        n: How many predictions.
        distance: How far their PITs are from uniform, at most.
        n_effective: How many independent ones they are worth, at least: a row may be there several
            times, with more or less given. See `effective_number`.
        p_value: How often chance alone puts so many so far off, or farther; see `off_p_value`.
    """

    name: str
    n: int
    distance: float
    n_effective: float
    p_value: float


def by_column(parts: Sequence[Transformed], names: Sequence[str]) -> list[ColumnCalibration]:
    """The calibration of each variable, that with the least p-value first."""
    if not parts:
        return []
    fields = ("pit", "variable", "row")
    pit, variable, row = (torch.cat([getattr(p, field) for p in parts]) for field in fields)
    found = []
    for place in variable.unique().tolist():
        mine = variable == place
        distance, worth = ks_distance(pit[mine]), effective_number(row[mine])
        p_value = off_p_value(pit[mine], worth)
        found.append(ColumnCalibration(names[place], int(mine.sum()), distance, worth, p_value))
    return sorted(found, key=lambda column: column.p_value)


def effective_number(row: Tensor) -> float:
    r"""How many independent predictions some are worth, of which several may be of one row.

    With w predictions of a row it is (sum w)^2 / sum w^2. The share of PITs up to a number t has a
    variance of t (1 - t) over that if the predictions of a row are all alike, as for a column that
    depends on no other, and less otherwise.

    Args:
        row: The number of the row of each. Shape ``(predictions,)``.
    """
    counts = row.unique(return_counts=True)[1].double()
    return float(counts.sum().square() / counts.square().sum())
