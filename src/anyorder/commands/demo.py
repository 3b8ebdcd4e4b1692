"""The verb `demo`: a text with holes, the paper's Table 7, and a table with gaps."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_wine

from anyorder.commands.asking import query_table
from anyorder.commands.notation import shell
from anyorder.commands.showing import note, show, words
from anyorder.commands.text import infill_text
from anyorder.data.table import TableSchema
from anyorder.errors import check_seed
from anyorder.estimators.table import TableModel
from anyorder.reproduce.table7 import table7

HOLED = "the ______ statement r_ises an exc_pti_n if th_ obj_ct is not fo_nd"
SAMPLES = 200_000
"""Masks of each law that Table 7 is simulated with."""

COLUMNS = ("alcohol", "flavanoids", "malic_acid", "hue", "proline")
"""Of the wine's thirteen measurements; its cultivar comes besides."""

MINUTES, STEPS = 0.5, 250
"""The budget of the table: more would learn its few rows by heart."""

HELD_OUT, DRAWS, GAP_SHARE = 30, 100, 0.4
"""Rows that are kept from training, how often their gaps are filled, and how many gaps they get."""

ASKED, KNOWN = "proline,cultivar", "alcohol=13.5,hue=1.05"


def run_demo(*, out: Path, seed: int) -> None:
    """Runs what the README shows, on what comes with the package; see `anyorder demo --help`."""
    check_seed(seed)
    _say("A model of text comes with the package. It fills the holes three times:")
    _command("infill", "shipped", HOLED, "--n", 3, "--seed", seed)
    infill_text(
        Path("shipped"),
        HOLED,
        n=3,
        greedy=False,
        temperature=1.0,
        top_k=None,
        seed=seed,
        json=False,
    )
    _say("Table 7 of the paper, exactly and by simulation:")
    _command("reproduce", "table7", "--samples", SAMPLES, "--seed", seed)
    table7(samples=SAMPLES, seed=seed)
    _demo_table(out / "wine", seed)


def _demo_table(run: Path, seed: int) -> None:
    wine = _wine().sample(frac=1, random_state=seed, ignore_index=True)
    learnt, kept = wine.iloc[:-HELD_OUT], wine.iloc[-HELD_OUT:]
    _say(f"A table: {len(learnt)} Italian wines that come with scikit-learn. Its columns:")
    model = TableModel(minutes=MINUTES, max_steps=STEPS, random_state=seed, progress=True)
    show(["column", "taken for", "details"], TableSchema.infer(learnt).summary())
    model.fit(learnt)
    hidden = _Hidden.made(model, kept, seed)
    _say("A wine that it has not seen, with gaps, and what the model makes of them:")
    show(["column", "known", "fills: 90% lie in", "hidden truth"], hidden.first_row())
    inside, numbers = hidden.inside()
    _say(
        f"Of {numbers} numbers hidden in {HELD_OUT} wines, {inside} ({inside / numbers:.0%}) lie "
        "in their 90% intervals."
    )
    model.save(run)
    _say("What it says of two columns, given two others:")
    plot = run / "query.png" if find_spec("matplotlib") is not None else None
    flags = () if plot is None else ("--plot", plot)
    _command("query", run, "--of", ASKED, "--given", KNOWN, *flags)
    query_table(run, of=ASKED, given=KNOWN, plot=plot, seed=seed, json=False)
    if plot is None:
        note('No picture: pip install "anyorder[plot]"')


def _wine() -> pd.DataFrame:
    wine = load_wine(as_frame=True)
    cultivar = wine.target.map(dict(enumerate(wine.target_names)))
    return wine.frame[list(COLUMNS)].assign(cultivar=cultivar)


@dataclass(frozen=True)
class _Hidden:
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
    def made(cls, model: TableModel, truth: pd.DataFrame, seed: int) -> "_Hidden":
        """Hides cells at random, in the first row some of each kind, and fills them."""
        truth = truth.reset_index(drop=True)
        coins = np.random.default_rng(seed).random(truth.shape) < GAP_SHARE
        coins[0] = [name in ("flavanoids", "proline", "cultivar") for name in truth.columns]
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
        numbers = list(COLUMNS)
        rows = self.fills[numbers].groupby(level="row")
        within = (self.truth[numbers] >= rows.quantile(0.05)) & (
            self.truth[numbers] <= rows.quantile(0.95)
        )
        hidden = self.gaps[numbers]
        return int((within & hidden).to_numpy().sum()), int(hidden.to_numpy().sum())


def _spread(drawn: pd.Series) -> str:
    """Where fills lie: the interval of numbers, the shares of levels."""
    if pd.api.types.is_numeric_dtype(drawn):
        return f"{words(drawn.quantile(0.05))} .. {words(drawn.quantile(0.95))}"
    shares = drawn.value_counts(normalize=True)
    return ", ".join(f"{level} {share:.0%}" for level, share in shares.items())


def _say(sentence: str) -> None:
    note(f"\n{sentence}")


def _command(*arguments: object) -> None:
    note(f"$ {shell('anyorder', *arguments)}\n")
