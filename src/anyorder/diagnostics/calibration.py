"""Calibration: predicted probabilities against observed frequencies.

The *probability integral transform* (PIT) of a value is the predicted probability of less than the
value. It is uniform over rows for a calibrated model. At a level or an atom, which has a
probability of its own, the PIT is sampled uniformly over the step of the distribution function: it
is then uniform as well.

`predictions` predicts single cells with little or much of the rest of their row given, which is
what calibration is measured on; `surprise_by_evidence` measures how much the negative
log-likelihood of a cell falls as more of its row is given.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyorder.diagnostics.consistency import estimate_json, has_mass, random_members, without
from anyorder.diagnostics.evaluation import Estimate
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import answering, log_prob
from anyorder.lattice.masks import bernoulli_sets, subsets, uniform
from anyorder.variables import Kind

LEVELS = (0.5, 0.8, 0.9)
"""Probabilities of the central intervals whose coverage is measured."""

BINS = 10
"""Bins of histograms and of reliability."""

TERMS = 100
"""Terms of the series of Kolmogorov's distribution, which has converged long before."""

REDRAWS = 4000
"""Times that hits are resampled: enough to resolve p-values of a few thousandths."""

HITS_AT_ONCE = 4_000_000
"""Resampled hits that are in memory together."""

ROUNDING = 1e-9
"""Errors that differ by less count as equal."""


def ks_distance(pit: Tensor) -> float:
    """Returns the Kolmogorov-Smirnov distance of PITs from the uniform distribution."""
    ordered, n = pit.double().sort().values, len(pit)
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    return float(torch.maximum(steps[1:] - ordered, ordered - steps[:-1]).max())


def ks_p_value(distance: float, n: float) -> float:
    """Returns the probability that n uniform numbers have such a distance or a greater one.

    Kolmogorov's limit with the correction of Stephens (1970) for small n.
    """
    scaled = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * distance
    if scaled < 0.2:  # the series alternates slowly here, and the sum is 1 to twelve digits
        return 1.0
    terms = ((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, TERMS))
    return min(1.0, max(0.0, 2 * sum(terms)))


def coverage_p_value(share: float, n: float) -> float:
    """Returns the two-sided p-value of a coverage of the widest intervals, over n values.

    A binomial test: twice the lesser tail.
    """
    total, level = round(n), torch.tensor(LEVELS[-1], dtype=torch.float64)
    inside = torch.arange(total + 1, dtype=torch.float64)
    logs = inside * level.log() + (total - inside) * (-level).log1p()
    logs += math.lgamma(total + 1) - (inside + 1).lgamma() - (total - inside + 1).lgamma()
    chances, found = logs.exp(), round(share * total)
    return min(1.0, 2 * float(torch.minimum(chances[: found + 1].sum(), chances[found:].sum())))


def off_p_value(pit: Tensor, n: float) -> float:
    """Returns the p-value of PITs under calibration, with n the effective number of them.

    It combines the distance and the coverage of the widest interval: the distance has little power
    against intervals that are too narrow. Of two p-values, twice the lesser one counts.
    """
    share = float(_inside(pit, LEVELS[-1]).mean())
    return min(1.0, 2 * min(ks_p_value(ks_distance(pit), n), coverage_p_value(share, n)))


def _inside(pit: Tensor, level: float) -> Tensor:
    """Returns 1 for values in their central intervals, 0 for others."""
    return ((pit - 0.5).abs() <= level / 2).double()


class Transformed:
    """Predictions with known PITs."""

    pit: Tensor
    variable: Tensor
    row: Tensor

    @property
    def distance(self) -> float:
        """The greatest difference between a predicted probability and its frequency."""
        return ks_distance(self.pit)

    @property
    def p_value(self) -> float:
        """The p-value of the distance under calibration."""
        return ks_p_value(self.distance, len(self.pit))

    @property
    def off_p_value(self) -> float:
        """The p-value of distance and coverage under calibration."""
        return off_p_value(self.pit, len(self.pit))


@dataclass(frozen=True)
class NumberCalibration(Transformed):
    """Predictions of numbers, one cell a row.

    `pit` holds the PITs of the true values, `variable` and `row` the indices of each cell. Shapes
    ``(rows,)``.
    """

    pit: Tensor
    variable: Tensor
    row: Tensor

    def coverage(self, level: float) -> Estimate:
        """Returns the fraction of values inside their central intervals of probability `level`."""
        return Estimate(_inside(self.pit, level))

    def histogram(self) -> Tensor:
        """Returns the fraction of PITs in each tenth of (0, 1). Shape ``(bins,)``."""
        return torch.histc(self.pit.double(), bins=BINS, min=0, max=1) / len(self.pit)

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
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

    `se` is the standard error of the accuracy under calibration.
    """

    n: int
    confidence: float
    accuracy: float
    se: float


@dataclass(frozen=True)
class CategoryCalibration(Transformed):
    """Predictions of categories, one cell a row.

    PITs are those of the true levels, in the order of their codes; `confidence` is the probability
    of the most probable level, `hit` is True where that is the true one. Shapes ``(rows,)``.
    """

    pit: Tensor
    confidence: Tensor
    hit: Tensor
    variable: Tensor
    row: Tensor

    @property
    def accuracy(self) -> Estimate:
        """The fraction of cells whose most probable level is the true one."""
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
        """The approximate expectation of that error for a calibrated model."""
        total = 0.0
        for members in self._bins():
            confidence = self.confidence[members].double()
            # The mean absolute value of a normal variable with the variance of the hit count.
            total += math.sqrt(2 / math.pi * float((confidence * (1 - confidence)).sum()))
        return total / len(self.hit)

    @property
    def error_beyond_chance(self) -> float:
        """The expected calibration error minus its expectation for a calibrated model."""
        return self.expected_error - self.expected_by_chance

    @cached_property
    def hit_p_value(self) -> float:
        """The p-value of the hits under calibration, by resampling.

        Hits are resampled with the predicted confidences, from a fixed seed. They are independent,
        because there is one cell a row here. The statistic is the expected calibration error, which
        detects bins that are off in both directions, plus the absolute overconfidence, which
        detects a small bias in all of them.
        """
        found, as_far = self._error(self.hit[:, None]), 0
        generator = torch.Generator().manual_seed(0)
        size = max(1, HITS_AT_ONCE // len(self.hit))
        for some in torch.arange(REDRAWS).split(size):
            sampled = self._error(bernoulli_sets(self.confidence, len(some), generator=generator))
            as_far += int((sampled >= found - ROUNDING).sum())
        return (1 + as_far) / (1 + REDRAWS)

    def reliability(self) -> list[ReliabilityBin]:
        """Returns the non-empty bins of equal width, from the least confident up."""
        found = []
        for members in self._bins():
            confidence, n = self.confidence[members].double(), len(members)
            se = math.sqrt(float((confidence * (1 - confidence)).sum())) / n
            accuracy = float(self.hit[members].double().mean())
            found.append(ReliabilityBin(n, float(confidence.mean()), accuracy, se))
        return found

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
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
        """Returns the statistic of `hit_p_value` for each sample of hits ``(rows, samples)``."""
        table = torch.nn.functional.one_hot(self._bin_numbers(), BINS).T  # (bins, rows)
        expected = table.double() @ self.confidence.double()
        # Counts up to 2^24 are exact in float32, and several times faster than in float64.
        excess = (table.float() @ hits.float()).double() - expected[:, None]  # (bins, samples)
        return (excess.abs().sum(dim=0) + excess.sum(dim=0).abs()) / len(hits)

    def _bins(self) -> list[Tensor]:
        """Returns the indices of the predictions in each non-empty bin."""
        bins = self._bin_numbers()
        return [(bins == number).nonzero().squeeze(1) for number in bins.unique().tolist()]

    def _bin_numbers(self) -> Tensor:
        return (self.confidence.double() * BINS).long().clamp(max=BINS - 1)


@dataclass(frozen=True)
class ColumnCalibration:
    """Predictions of one variable, over all amounts of evidence.

    Args:
        name: Name of the variable.
        n: Number of predictions.
        distance: Kolmogorov-Smirnov distance of their PITs from uniform.
        n_effective: Effective number of independent predictions, at least: a row may occur several
            times, with more or less evidence. See `effective_number`.
        p_value: p-value under calibration; see `off_p_value`.
    """

    name: str
    n: int
    distance: float
    n_effective: float
    p_value: float


def by_column(parts: Sequence[Transformed], names: Sequence[str]) -> list[ColumnCalibration]:
    """Returns the calibration of each variable, the least p-value first."""
    if not parts:
        return []
    fields = ("pit", "variable", "row")
    pit, variable, row = (torch.cat([getattr(p, field) for p in parts]) for field in fields)
    found = []
    for place in variable.unique().tolist():
        own = variable == place
        distance, number = ks_distance(pit[own]), effective_number(row[own])
        p_value = off_p_value(pit[own], number)
        found.append(ColumnCalibration(names[place], int(own.sum()), distance, number, p_value))
    return sorted(found, key=lambda column: column.p_value)


def effective_number(row: Tensor) -> float:
    r"""Returns the effective number of independent predictions, several of which may share a row.

    With w predictions of a row it is (sum w)^2 / sum w^2. The fraction of PITs up to a number t has
    a variance of t (1 - t) over that if the predictions of a row are identical, as for a column
    that depends on no other, and less otherwise.
    """
    counts = row.unique(return_counts=True)[1].double()
    return float(counts.sum().square() / counts.square().sum())


SHARES = {
    "nothing": 0.0,
    "a quarter": 0.25,
    "half": 0.5,
    "three quarters": 0.75,
    "all but one": 1.0,
}
"""Fractions of the other cells of a row that are given."""


class Predictions(NamedTuple):
    """Predictions of one cell a row, beside its true value. Shapes ``(rows,)``."""

    pit: Tensor
    """Probability of less than the true value; uniform over the step of a probability mass."""
    confidence: Tensor
    """Probability of the most probable level; NaN for numbers."""
    hit: Tensor
    """True where that level is the true one; False for numbers."""
    variable: Tensor
    """Index of the variable."""
    row: Tensor
    """Index of the row."""


@answering
def predictions(
    model: AnyOrderModel,
    x: Tensor,
    have: Tensor,
    *,
    kind: Kind,
    share: float,
    along_path: bool = False,
    generator: torch.Generator | None = None,
) -> Predictions:
    """Predicts one cell of a kind in each row that has one, given some other cells.

    A fraction `share` of the other cells is given. With `along_path`, so is all that comes before
    the cell on the path of the rest: a model that was trained on paths alone has learned no other
    conditionals.
    """
    sizes = ((have.sum(dim=1) - 1) * share).round().long()
    given = subsets(sizes, have, generator=generator)
    kinds = [v.kind == kind for v in model.schema.variables[: model.num_variables]]
    candidates = have & ~given & torch.tensor(kinds, device=have.device)
    rows = candidates.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        empty = torch.zeros(0, dtype=torch.float64)
        return Predictions(empty, empty, empty.bool(), empty.long(), empty.long())
    target = random_members(candidates[rows], generator=generator)
    x, given = x[rows], given[rows]
    if along_path:
        rest = have[rows] & ~given
        rank = model.protocol.rank(rest, generator=generator)
        given = given | (rest & (rank < rank.gather(1, target[:, None])))
    found = _predicted(model, x, given, target, generator)
    return Predictions(*found, target.cpu(), rows.cpu())


def _predicted(
    model: AnyOrderModel,
    x: Tensor,
    given: Tensor,
    target: Tensor,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns PITs, confidences and hits of one variable a row. Shapes ``(rows,)``."""
    conditional = model.predict(x, given, target[:, None])
    value = x.gather(1, target[:, None])
    mass = conditional.log_prob(value).double().exp()
    is_mass = has_mass(model, x).gather(1, target[:, None])
    spread = uniform(value.shape, device=x.device, generator=generator)
    pit = conditional.cdf(value).double() - torch.where(is_mass, spread * mass, 0.0)
    confidence, hit = torch.full_like(pit, torch.nan), torch.zeros_like(is_mass)
    if model.schema.variables[int(target[0])].kind == "categorical":
        top = conditional.mode()
        confidence, hit = conditional.log_prob(top).double().exp(), top == value
    return pit[:, 0].clamp(0, 1).cpu(), confidence[:, 0].clamp(max=1).cpu(), hit[:, 0].cpu()


@answering
def surprise_by_evidence(
    model: AnyOrderModel, x: Tensor, missing: Tensor, *, generator: torch.Generator | None = None
) -> dict[str, Estimate]:
    """Returns -log p(x_i | x_e) of one cell i a row, in nats, for each fraction of `SHARES`.

    The cells are the same for all fractions, and the evidence is nested: the decrease from one
    fraction to the next is the information in the cells that were added.

    Rows without any value are left out.
    """
    rows = (~missing).any(dim=1)
    x, have = x[rows], ~missing[rows]
    target = random_members(have, generator=generator)
    others, query = without(have, target), torch.zeros_like(have).scatter(1, target[:, None], True)
    keys = uniform(others.shape, device=x.device, generator=generator).masked_fill(~others, 2.0)
    turn = keys.argsort(dim=1).argsort(dim=1)  # the order in which the others are added
    found = {}
    for name, share in SHARES.items():
        count = (others.sum(dim=1, keepdim=True) * share).round()
        logs = log_prob(model, x, query=query, given=others & (turn < count))
        found[name] = Estimate(-logs.cpu())
    return found
