"""The demo's second act: a table with gaps, asked about all sorts of things.

How the demo speaks: sentences and commands on standard error, answers on standard output.

The question of the demo's table: its answer, beside what is said when nothing is known.

Penguins with gaps that were made in them: filled, and compared with what was hidden.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from anyorder.cli.console import note, shell, show, words
from anyorder.diagnostics.evaluation import Estimate
from anyorder.diagnostics.plots import NARROW
from anyorder.report.page import Code, Grid, Panels, Picture, Section, Words
from anyorder.report.sections import NATS
from anyorder.tables.cli import query_table
from anyorder.tables.conditional import Conditional
from anyorder.tables.model import TableModel
from anyorder.tables.notation import read_given
from anyorder.tables.report import table_report
from anyorder.tables.schema import TableSchema


def say(sentence: str) -> None:
    """A sentence, after an empty line."""
    note(f"\n{sentence}")


def command(*arguments: object) -> None:
    """A command that does what comes next."""
    note(f"$ {shell('anyorder', *arguments)}\n")


MASS, SEX = "body_mass_g", "sex"
ASKED, KNOWN = f"{MASS},{SEX}", "species=Gentoo,flipper_length_mm=220.."
TITLE = "What does a Gentoo with long flippers weigh?"

ANSWER, NOTHING = "#2458a6", "#8a94a3"
"""Colours of what is said given what is known, and given nothing."""

POINTS, TAIL = 300, 0.002
"""Points of a curve, and what is cut off at each of its ends."""


def answer_section(model: TableModel, run: Path, *, data: str, seed: int) -> Section:
    """Asks the model in `run`, as the command that is shown does.

    Args:
        model: Fitted.
        run: Where it was saved.
        data: What the rows are, in words.
        seed: Of the draws that stand for the interval.
    """
    known = read_given(model.table_, KNOWN)
    mass, sex = (model.conditional(n, given=known, random_state=seed) for n in (MASS, SEX))
    any_mass, any_sex = model.conditional(MASS), model.conditional(SEX)
    likely = sex.mode()
    shares = [part.probabilities()[likely] for part in (sex, any_sex)]
    told = (
        f"A Gentoo whose flippers are 220 mm long or more weighs {_range(mass)}. "
        f"Of a penguin of which nothing is known, the same model says {_range(any_mass)}. "
        f"The Gentoo is {likely} with a probability of {shares[0]:.0%}, any penguin with "
        f"{shares[1]:.0%}."
    )
    pictures = [
        Picture(mass_figure(mass, any_mass), f"Densities of the body mass. {told}"),
        Picture(sex_figure(sex, any_sex), f"Probabilities of each sex: {likely} {shares[0]:.0%}"),
    ]
    caption = "Blue: this Gentoo. Grey: a penguin of which nothing is known. Shaded: 90% lies here."
    rest = "Any other columns can be asked, given any others, without training again."
    return Section(
        TITLE,
        [
            Words(data),
            Code(shell("anyorder", "query", run, "--of", ASKED, "--given", KNOWN)),
            Words(told),
            Panels(pictures, caption),
            Words(rest),
        ],
    )


def mass_figure(given: Conditional, nothing: Conditional) -> Figure:
    """Both densities, and the 90% interval of the first."""
    figure = Figure(figsize=(NARROW, 2.8), layout="constrained")
    axes = figure.subplots()
    for part, colour in ((nothing, NOTHING), (given, ANSWER)):
        first, last = part.quantile([TAIL, 1 - TAIL])
        values = np.linspace(first, last, POINTS)
        heights = part.pdf(values)
        axes.plot(values, heights, color=colour, linewidth=1.8)
        low, high = part.interval(0.9)
        inside = (values >= low) & (values <= high)
        axes.fill_between(values, heights, where=inside.tolist(), color=colour, alpha=0.25)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set(title=MASS, yticks=[], ylabel="density", ylim=(0, None))
    return figure


def sex_figure(given: Conditional, nothing: Conditional) -> Figure:
    """The probabilities of both."""
    figure = Figure(figsize=(NARROW, 2.8), layout="constrained")
    axes = figure.subplots()
    for shift, part, colour in ((0.2, nothing, NOTHING), (-0.2, given, ANSWER)):
        shares = part.probabilities()
        bars = axes.barh(
            np.arange(len(shares)) + shift, shares.to_numpy(), 0.36, color=colour, alpha=0.7
        )
        axes.bar_label(bars, [f"{share:.0%}" for share in shares], padding=3)
        axes.set_yticks(range(len(shares)), list(shares.index))
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set(title=SEX, xlabel="probability", xlim=(0, 1.15))
    axes.set_xticks([0, 0.5, 1])
    return figure


def _range(mass: Conditional) -> str:
    low, high = (words(end) for end in mass.interval(0.9))
    middle = words(mass.median())
    return f"{middle} g (median), and with a probability of 90% between {low} and {high} g"


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


MINUTES, STEPS = 1.0, 400
"""The budget of the training, minutes of the processor: more would learn its few rows by heart."""

HELD_OUT = 60
"""Rows that are kept from training."""

QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "joint": ("p(all that a row has)", {}),
    "marginal": ("p(species, island)", {"query": ["species", "island"]}),
    "conditional": ("p(sex | body_mass_g)", {"query": "sex", "given": ["body_mass_g"]}),
}
"""A question of each kind: in words, and as arguments of `log_prob`."""


def penguins() -> pd.DataFrame:
    """344 penguins of three species, measured near Palmer Station; 19 cells are missing.

    Reference:
        Horst, Hill and Gorman (2020), palmerpenguins: Palmer Archipelago penguin data. CC0.
    """
    from palmerpenguins import load_penguins

    found: pd.DataFrame = load_penguins().drop(columns="year")
    return found


class TableAct(NamedTuple):
    """What a page tells of the penguins."""

    answers: list[Section]
    """To questions, and how good they are."""
    samples: Section
    """Of the model, beside real rows."""
    about: list[Section]
    """How far to trust the model, and how it was made."""


def table_act(run: Path, seed: int) -> TableAct:
    """Fits the penguins, and asks."""
    rows = penguins().sample(frac=1, random_state=seed, ignore_index=True)
    learnt, kept = rows.iloc[:-HELD_OUT], rows.iloc[-HELD_OUT:]
    gaps = int(learnt.isna().sum().sum())
    say(f"A table: {len(learnt)} penguins, {gaps} cells unknown. Its columns:")
    show(["column", "type", "details"], TableSchema.infer(learnt).summary())
    budget = {"minutes": MINUTES, "clock": "processor", "max_steps": STEPS}
    model = TableModel(**budget, random_state=seed, progress=True)  # type: ignore[arg-type]
    model.fit(learnt, folder=run / "training")
    model.save(run)
    _ask(model, kept)
    hidden = Hidden.made(model, kept, seed)
    say("A penguin that it has not seen, with gaps, and what the model makes of them:")
    show(TITLES, hidden.first_row())
    say(hidden.sentence())
    _query(run, seed)
    data = f"{len(kept)} held-out penguins"
    training = run / "training"
    page = table_report(model, kept, name="penguins", data=data, training=training, seed=seed)
    guessed, samples, *about = (
        replace(part, title=f"Penguins: {part.title[0].lower()}{part.title[1:]}")
        for part in page.sections
    )
    answer = answer_section(model, run, data=_described(learnt, kept), seed=seed)
    return TableAct([answer, hidden.section(), guessed], samples, about)


def _described(learnt: pd.DataFrame, kept: pd.DataFrame) -> str:
    """What the rows are, how many, and where they are from."""
    return (
        f"The data: {len(learnt) + len(kept)} penguins of three species, a row each, with their "
        "island, sex, body mass and the sizes of bill and flippers. They were measured near Palmer "
        "Station, Antarctica, from 2007 to 2009; the package palmerpenguins has them. A model of "
        f"this table was trained on {len(learnt)} of them, {int(learnt.isna().sum().sum())} "
        f"cells unknown; the other {len(kept)} were kept for tests."
    )


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
    note(NATS)


def _query(run: Path, seed: int) -> None:
    say("What it says of two columns, given two others, one of them as an interval:")
    plot = run / "query.png"
    command("query", run, "--of", ASKED, "--given", KNOWN, "--plot", plot)
    query_table(run, of=ASKED, given=KNOWN, plot=plot, seed=seed, json=False)
