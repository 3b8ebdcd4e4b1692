"""Two ways to one number, and how far apart they come out, in nats."""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from anyorder.evaluation import Estimate

SMALL, LARGE = 0.05, 0.5
"""Nats: a probability that is 5% off hardly matters, one that is 65% off does."""


@dataclass(frozen=True)
class Gap:
    """The log of one answer minus the log of the other, row by row.

    Args:
        rows: Signed differences. Shape ``(rows,)``.
    """

    rows: Tensor

    @property
    def size(self) -> Estimate:
        """How far apart the answers are: the mean of the absolute differences."""
        return Estimate(self.rows.abs())

    @property
    def bias(self) -> Estimate:
        """Which answer is larger: the mean of the signed differences."""
        return Estimate(self.rows)

    @property
    def quantile_90(self) -> float:
        """Nine rows in ten are no further apart."""
        return float(self.rows.abs().quantile(0.9))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "size": estimate_json(self.size),
            "quantile_90": self.quantile_90,
            "bias": estimate_json(self.bias),
        }

    def __str__(self) -> str:
        return (
            f"{nats(self.size)} nats on average, and by more than {self.quantile_90:.2g} in a "
            "tenth of the rows"
        )


def nats(estimate: Estimate) -> str:
    """A mean for people, with its standard error if it has one."""
    places = 2 if abs(estimate.value) >= 0.1 else 3
    error = f" ± {estimate.se:.{places}f}" if math.isfinite(estimate.se) else ""
    return f"{estimate.value:.{places}f}{error}"


def percent(estimate: Estimate) -> str:
    """A mean of shares for people, with its standard error if it has one."""
    error = f" ± {estimate.se:.1%}" if math.isfinite(estimate.se) else ""
    return f"{estimate.value:.1%}{error}"


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """A mean, its standard error (None of a single row) and the number of rows."""
    se = estimate.se if math.isfinite(estimate.se) else None
    return {"value": estimate.value, "se": se, "n": len(estimate.rows)}


def verdict(size: float, small: str, middle: str, large: str) -> str:
    """Words for a gap, by its size."""
    if size < SMALL:
        return small
    return middle if size < LARGE else large
