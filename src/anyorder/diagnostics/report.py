"""All diagnostics of a model on some rows: numbers, a sentence each, JSON and plots."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anyorder.diagnostics.calibration import (
    LEVELS,
    CategoryCalibration,
    ColumnCalibration,
    NumberCalibration,
    by_column,
)
from anyorder.diagnostics.evidence import EncodingGap, RatioGap
from anyorder.diagnostics.gaps import percent
from anyorder.diagnostics.marginalisation import MarginalisationGap
from anyorder.diagnostics.orders import OrderSpread, PathGap
from anyorder.errors import ConfigError

CHANCE = 0.87
"""The mean distance of n uniform numbers from uniform, times the root of n."""

SUSPICIOUS = 0.01
"""A p-value below this is not taken for chance: the share of false alarms of a sentence."""

OFF = 0.05
"""Probabilities that are off by this much mislead."""


@dataclass(frozen=True, repr=False)
class Check:
    """What a model was found to be like on some rows; prints as its sentences.

    Gaps are None where no row has two cells, or where the network cannot walk another order;
    calibrations are by how much of a row was given.

    Args:
        rows: How many rows there were.
        path: Along another order.
        marginalisation: With a variable summed out.
        ratio: Conditionals as ratios.
        orders: Whole rows along several orders.
        encoding: Evidence as evidence or along the path.
        names: Of the variables.
        numbers: Calibration of numbers.
        categories: Calibration of categories.
    """

    rows: int
    path: PathGap | None
    marginalisation: MarginalisationGap | None
    ratio: RatioGap | None
    orders: OrderSpread | None
    encoding: EncodingGap | None
    names: tuple[str, ...]
    numbers: Mapping[str, NumberCalibration]
    categories: Mapping[str, CategoryCalibration]

    def columns(self) -> list[ColumnCalibration]:
        """The calibration of each variable, that with the least p-value first."""
        return by_column([*self.numbers.values(), *self.categories.values()], self.names)

    def columns_off(self) -> list[ColumnCalibration]:
        """Those that are further off than chance explains, the one that is off the most first."""
        found = self.columns()
        off = [column for column in found if column.p_value * len(found) < SUSPICIOUS]
        return sorted(off, key=lambda column: -column.distance)

    def sentences(self) -> list[str]:
        """What the numbers mean, one plain sentence each."""
        return [*self.gap_sentences(), *self.calibration_sentences()]

    def gap_sentences(self) -> list[str]:
        """How far it agrees with itself."""
        gaps = (self.path, self.marginalisation, self.ratio, self.orders, self.encoding)
        return [gap.sentence for gap in gaps if gap is not None]

    def calibration_sentences(self) -> list[str]:
        """Whether its probabilities hold."""
        found = []
        if self.numbers:
            found.append(_numbers_sentence(self.numbers))
        if self.categories:
            found.append(_categories_sentence(self.categories))
        return [*found, self._columns_sentence()]

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def _columns_sentence(self) -> str:
        off = self.columns_off()
        if not off:
            return "No column's probabilities are off beyond chance."
        return (
            f'The probabilities of "{off[0].name}" are off the most, by up to '
            f"{off[0].distance:.1%}; {len(off)} of {len(self.columns())} columns are off beyond "
            "chance."
        )

    def to_json(self) -> dict[str, Any]:
        """All numbers as plain values, and the sentences."""
        gaps = ("path", "marginalisation", "ratio", "orders", "encoding")
        parts = {name: getattr(self, name) for name in gaps}
        return {
            "rows": self.rows,
            **{name: None if part is None else part.to_json() for name, part in parts.items()},
            "numbers": {given: part.to_json() for given, part in self.numbers.items()},
            "categories": {given: part.to_json() for given, part in self.categories.items()},
            "columns": [asdict(column) for column in self.columns()],
            "sentences": self.sentences(),
        }

    def plot(self, folder: str | Path | None = None) -> dict[str, Any]:
        """Draws calibration: PIT histograms, coverage by evidence, reliability.

        Args:
            folder: Where to write them as .png files; None writes nothing.

        Returns:
            The figures of matplotlib by name.
        """
        try:
            from anyorder.diagnostics.plots import figures
        except ImportError:
            raise ConfigError('Plots need matplotlib: pip install "anyorder[plot]".') from None
        drawn = figures(self.numbers, self.categories)
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for name, figure in drawn.items():
                figure.savefig(Path(folder) / f"{name}.png", dpi=160)
        return drawn


def _numbers_sentence(found: Mapping[str, NumberCalibration]) -> str:
    """Coverage of the widest intervals, with the evidence for which probabilities are worst."""
    level = LEVELS[-1]
    given, worst = max(found.items(), key=lambda item: item[1].distance * len(item[1].pit) ** 0.5)
    coverage, chance = worst.coverage(level), CHANCE / math.sqrt(len(worst.pit))
    # Bonferroni's correction: the worst of several is looked at.
    is_real = len(found) * worst.p_value < SUSPICIOUS
    return (
        f"Numbers are calibrated worst with {given} given: {level:.0%} intervals hold "
        f"{percent(coverage)} of the values, and stated probabilities are off by up to "
        f"{worst.distance:.1%} (chance alone: about {chance:.1%}), "
        f"{_trust(worst.distance, is_real)}."
    )


def _categories_sentence(found: Mapping[str, CategoryCalibration]) -> str:
    """How sure of its best guess the model is against how often it is right, where worst."""
    # The least p-value of redraws is that of all that is far off: the error decides among these.
    given, worst = min(
        found.items(), key=lambda item: (item[1].hit_p_value, -item[1].error_beyond_chance)
    )
    right, chance = worst.accuracy, worst.expected_by_chance
    said = right.value + worst.overconfidence.value
    # Bonferroni's correction: it holds although the same rows are there with more or less given.
    is_real = len(found) * worst.hit_p_value < SUSPICIOUS
    return (
        f"Categories are calibrated worst with {given} given: the most probable level is said to "
        f"be right in {said:.1%} of the rows and is in {percent(right)}; "
        f"stated probabilities are off by {worst.expected_error:.1%} on average "
        f"(chance alone: about {chance:.1%}), {_trust(worst.expected_error, is_real)}."
    )


def _trust(distance: float, is_real: bool) -> str:
    """What to think of stated probabilities that are so far off."""
    if not is_real:
        return "no more than chance would do"
    if distance < OFF:
        return "which is real but small"
    return "so do not take them at their word"
