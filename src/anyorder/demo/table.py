"""The demo's second act: a table with gaps, asked about all sorts of things."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from anyorder.commands.asking import query_table
from anyorder.commands.showing import show, words
from anyorder.data.table import TableSchema
from anyorder.demo.telling import command, say
from anyorder.estimators.table import TableModel
from anyorder.evaluation import Estimate
from anyorder.report.page import Section
from anyorder.report.table import table_report

MINUTES, STEPS = 1.0, 400
"""The budget of the training, minutes of the processor: more would learn its few rows by heart."""

HELD_OUT, DRAWS, GAP_SHARE = 60, 100, 0.4
"""Rows that are kept from training, how often their gaps are filled, and how many gaps they get."""

HIDDEN = ("island", "bill_length_mm", "body_mass_g")
"""What is hidden of the first row."""

ASKED, KNOWN = "body_mass_g,sex", "species=Gentoo,flipper_length_mm=220.."
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "joint": ("p(all that a row has)", {}),
    "marginal": ("p(species, island)", {"query": ["species", "island"]}),
    "conditional": ("p(sex | body_mass_g)", {"query": "sex", "given": ["body_mass_g"]}),
}
"""A question of each kind: in words, and as arguments of `log_prob`."""


def penguins() -> pd.DataFrame:
    """344 penguins of three kinds, measured near Palmer Station; 19 cells are missing.

    Reference:
        Horst, Hill and Gorman (2020), palmerpenguins: Palmer Archipelago penguin data. CC0.
    """
    from palmerpenguins import load_penguins

    found: pd.DataFrame = load_penguins().drop(columns="year")
    return found


def table_act(run: Path, seed: int) -> list[Section]:
    """Fits the penguins, and asks."""
    rows = penguins().sample(frac=1, random_state=seed, ignore_index=True)
    learnt, kept = rows.iloc[:-HELD_OUT], rows.iloc[-HELD_OUT:]
    gaps = int(learnt.isna().sum().sum())
    say(f"A table: {len(learnt)} penguins, {gaps} cells unknown. Its columns:")
    show(["column", "taken for", "details"], TableSchema.infer(learnt).summary())
    budget = {"minutes": MINUTES, "clock": "processor", "max_steps": STEPS}
    model = TableModel(**budget, random_state=seed, progress=True)  # type: ignore[arg-type]
    model.fit(learnt, folder=run / "training")
    model.save(run)
    _ask(model, kept)
    _fill(model, kept, seed)
    _query(run, seed)
    page = table_report(
        model, kept, name="penguins", data="penguins", training=run / "training", seed=seed
    )
    return [
        replace(part, title=f"A table: {part.title[0].lower()}{part.title[1:]}")
        for part in page.sections
    ]


def _ask(model: TableModel, kept: pd.DataFrame) -> None:
    """A question of each kind, about rows that were held out."""
    whole = kept.dropna()
    lines = []
    for kind, (question, arguments) in QUESTIONS.items():
        logs = model.log_prob(whole, **arguments)
        lines.append([kind, question, str(Estimate(torch.from_numpy(logs)))])
    count = f"{len(kept)} penguins that it has not seen, {len(whole)} have no gaps"
    say(f"Of {count}. Of these it says:")
    show(["kind", "question", "nats a row"], lines, numbers=["nats a row"])


def _fill(model: TableModel, kept: pd.DataFrame, seed: int) -> None:
    """Hides cells, fills them, and compares."""
    hidden = Hidden.made(model, kept, seed)
    say("A penguin that it has not seen, with gaps, and what the model makes of them:")
    show(["column", "known", "fills: 90% lie in", "hidden truth"], hidden.first_row())
    inside, numbers = hidden.inside()
    say(
        f"Of {numbers} numbers hidden in {len(hidden.truth)} penguins, {inside} "
        f"({inside / numbers:.0%}) lie in their 90% intervals."
    )


def _query(run: Path, seed: int) -> None:
    say("What it says of two columns, given two others, one of them as an interval:")
    plot = run / "query.png"
    command("query", run, "--of", ASKED, "--given", KNOWN, "--plot", plot)
    query_table(run, of=ASKED, given=KNOWN, plot=plot, seed=seed, json=False)


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

    def first_row(self) -> Iterator[tuple[str, str, str, str]]:
        """The cells of the first row: what is known of each, and what was hidden."""
        drawn = self.fills.xs(0, level="row")
        for name in self.truth.columns:
            value = words(self.truth[name].iloc[0])
            if self.gaps[name].iloc[0]:
                yield name, "", _spread(drawn[name]), value
            else:
                yield name, value, "", ""

    def inside(self) -> tuple[int, int]:
        """How many hidden numbers lie in their 90% intervals, and how many there are."""
        numbers = list(self.truth.select_dtypes("number").columns)
        rows = self.fills[numbers].groupby(level="row")
        within = (self.truth[numbers] >= rows.quantile(0.05)) & (
            self.truth[numbers] <= rows.quantile(0.95)
        )
        hidden = self.gaps[numbers]
        return int((within & hidden).to_numpy().sum()), int(hidden.to_numpy().sum())


def _spread(drawn: pd.Series) -> str:
    """Where fills lie: the interval of numbers, the shares of levels."""
    if pd.api.types.is_numeric_dtype(drawn):
        # One of the fills, so that it has the steps of the column.
        low, high = drawn.quantile([0.05, 0.95], interpolation="nearest")
        return f"{words(low)} .. {words(high)}"
    shares = drawn.value_counts(normalize=True)
    return ", ".join(f"{level} {share:.0%}" for level, share in shares.items())
