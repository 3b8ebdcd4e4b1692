"""Penguins with gaps that were made in them: filled, and compared with what was hidden."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from anyorder.commands.showing import words
from anyorder.estimators.table import TableModel
from anyorder.report.page import Grid, Section, Words

DRAWS, GAP_SHARE = 100, 0.4
"""How often gaps are filled, and how many there are."""

HIDDEN = ("island", "bill_length_mm", "body_mass_g")
"""What is hidden of the first row."""

TITLES = ("column", "known", "filled in", "how sure", "hidden truth")


@dataclass(frozen=True)
class Hidden:
    """Rows with gaps that were made in them, and fills of these.

    Args:
        truth: The rows as they were.
        gaps: Where cells were hidden.
        fills: The rows, filled again and again: a level of the index a draw, then a row.
    """

    truth: pd.DataFrame
    gaps: pd.DataFrame
    fills: pd.DataFrame

    @classmethod
    def made(cls, model: TableModel, truth: pd.DataFrame, seed: int) -> "Hidden":
        """Hides cells at random, in the first row those of `HIDDEN`, and fills them."""
        truth = truth.dropna().reset_index(drop=True)
        coins = np.random.default_rng(seed).random(truth.shape) < GAP_SHARE
        coins[0] = [name in HIDDEN for name in truth.columns]
        gaps = pd.DataFrame(coins, columns=truth.columns)
        fills = model.impute(truth.mask(gaps), draws=DRAWS, random_state=seed)
        return cls(truth, gaps, fills)

    def first_row(self) -> Iterator[tuple[str, str, str, str, str]]:
        """The cells of the first row under `TITLES`."""
        drawn = self.fills.xs(0, level="row")
        for name in self.truth.columns:
            value = words(self.truth[name].iloc[0])
            if self.gaps[name].iloc[0]:
                yield name, "", *_filled(drawn[name]), value
            else:
                yield name, value, "", "", ""

    def sentence(self) -> str:
        """How many hidden numbers lie in their 90% intervals."""
        numbers = list(self.truth.select_dtypes("number").columns)
        rows = self.fills[numbers].groupby(level="row")
        within = (self.truth[numbers] >= rows.quantile(0.05)) & (
            self.truth[numbers] <= rows.quantile(0.95)
        )
        hidden = self.gaps[numbers]
        inside, count = (int(part.to_numpy().sum()) for part in (within & hidden, hidden))
        return (
            f"Of {count} numbers hidden in {len(self.truth)} penguins, {inside} "
            f"({inside / count:.0%}) lie in their 90% intervals."
        )

    def section(self) -> Section:
        """The first row and the sentence, for a page."""
        told = (
            f"A penguin that the model has not seen, {len(HIDDEN)} of its cells hidden. Each was "
            f"filled {DRAWS} times: the fill of a number is their median, that of a category the "
            "most frequent; how sure it is tells how they vary."
        )
        grid = Grid(TITLES, [*self.first_row()])
        return Section(
            "A penguin with gaps, filled in", [Words(told), grid, Words(self.sentence())]
        )


def _filled(drawn: pd.Series) -> tuple[str, str]:
    """The middle fill, and where fills lie: the interval of numbers, the shares of levels."""
    if pd.api.types.is_numeric_dtype(drawn):
        # Of the fills themselves, so that they have the steps of the column.
        low, middle, high = drawn.quantile([0.05, 0.5, 0.95], interpolation="nearest")
        return words(middle), f"90% in {words(low)} .. {words(high)}"
    shares = drawn.value_counts(normalize=True)
    return words(shares.index[0]), ", ".join(f"{k} {share:.0%}" for k, share in shares.items())
