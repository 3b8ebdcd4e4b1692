"""The demo, from its first act to its page.

`run_demo` fills a text with the model that ships, fits and queries a table of penguins, fits and
inpaints handwritten digits, and writes a page with all of it. Sentences and commands go to standard
error, answers to standard output.

`table_act` returns the sections of the penguins: the answer to a query (`answer_section`), imputed
cells beside the hidden truth (`Hidden`), and the report of the model.
"""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from rich.console import Console

from anyorder.cli.console import note, shell, show, words
from anyorder.diagnostics.evaluation import Estimate
from anyorder.diagnostics.plots import NARROW
from anyorder.errors import ConfigError, check_seed
from anyorder.images.data import bundled_digits
from anyorder.images.domain import InpaintOptions, inpaint
from anyorder.images.model import IMAGE_SETTINGS, ImageModel
from anyorder.images.public_sets import BUNDLED
from anyorder.images.report import painted_section
from anyorder.report.page import Code, Grid, Page, Panels, Picture, Section, Words
from anyorder.report.sections import NATS
from anyorder.saving.checkpoint import replace_text
from anyorder.tables.cli import query_table
from anyorder.tables.conditional import Conditional
from anyorder.tables.model import TableModel
from anyorder.tables.questions import read_given
from anyorder.tables.report import table_report
from anyorder.tables.schema import TableSchema
from anyorder.text.model import TextModel

MINUTES, STEPS = 1.0, 400
"""Training budget, in CPU minutes and steps; a larger one would overfit the few rows."""

HELD_OUT = 60
"""Number of held-out rows."""

QUERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "joint": ("p(all columns)", {}),
    "marginal": ("p(species, island)", {"query": ["species", "island"]}),
    "conditional": ("p(sex | body_mass_g)", {"query": "sex", "given": ["body_mass_g"]}),
}
"""A query of each kind: in notation, and as arguments of `log_prob`."""

MASS, SEX = "body_mass_g", "sex"
QUERY, GIVEN = f"{MASS},{SEX}", "species=Gentoo,flipper_length_mm=220.."
TITLE = "What does a Gentoo with long flippers weigh?"

ANSWER, NOTHING = "#2458a6", "#8a94a3"
"""Colours of conditional and marginal distributions."""

POINTS, TAIL = 300, 0.002
"""Points of a density curve, and the probability that is cut off at each end."""


def table_act(run: Path, seed: int) -> tuple[list[Section], list[Section]]:
    """Fits a model of the penguins, and queries it.

    Returns:
        Sections on answers and their quality, and on the model: its samples first.
    """
    rows = penguins().sample(frac=1, random_state=seed, ignore_index=True)
    train, test = rows.iloc[:-HELD_OUT], rows.iloc[-HELD_OUT:]
    say(f"A table: {len(train)} penguins, {_missing(train)} missing values. Its columns:")
    show(["column", "type", "details"], TableSchema.infer(train).summary())
    budget = {"minutes": MINUTES, "clock": "processor", "max_steps": STEPS}
    model = TableModel(**budget, random_state=seed, progress=True)  # type: ignore[arg-type]
    model.fit(train, folder=run / "training")
    model.save(run)
    _show_likelihoods(model, test)
    hidden = Hidden.made(model, test, seed)
    say("A held-out penguin with hidden cells, and their imputations:")
    show(TITLES, hidden.first_row())
    say(hidden.sentence())
    _query(run, seed)
    data = f"{len(test)} held-out penguins"
    training = run / "training"
    page = table_report(model, test, name="penguins", data=data, training=training, seed=seed)
    guessed, *about = (
        replace(part, title=f"Penguins: {part.title[0].lower()}{part.title[1:]}")
        for part in page.sections
    )
    answer = answer_section(model, run, data=_described(train, test), seed=seed)
    return [answer, hidden.section(), guessed], about


def _described(train: pd.DataFrame, test: pd.DataFrame) -> str:
    """Describes the rows, their number and their source."""
    return (
        f"The data: {len(train) + len(test)} penguins of three species, a row each, with their "
        "island, sex, body mass and the sizes of bill and flippers. They were measured near Palmer "
        "Station, Antarctica, from 2007 to 2009; the package palmerpenguins has them. A model of "
        f"this table was trained on {len(train)} of them, with {_missing(train)} missing values; "
        f"the other {len(test)} were held out."
    )


def _missing(frame: pd.DataFrame) -> int:
    return int(frame.isna().sum().sum())


def _show_likelihoods(model: TableModel, test: pd.DataFrame) -> None:
    """Prints the likelihood of a query of each kind on held-out rows."""
    whole = test.dropna()
    lines = []
    for kind, (query, arguments) in QUERIES.items():
        logs = model.log_prob(whole, **arguments)
        lines.append([kind, query, str(Estimate(torch.from_numpy(logs)))])
    say(f"Of {len(test)} held-out penguins, {len(whole)} have no missing values. Their likelihood:")
    show(["kind", "query", "nats per row"], lines, numbers=["nats per row"])
    note(NATS)


def _query(run: Path, seed: int) -> None:
    say("Two columns, given two others, one of them as an interval:")
    plot = run / "query.png"
    command("query", run, "--of", QUERY, "--given", GIVEN, "--plot", plot)
    query_table(run, of=QUERY, given=GIVEN, plot=plot, seed=seed, json=False)


def penguins() -> pd.DataFrame:
    """Loads 344 penguins of three species, measured near Palmer Station; 19 cells are missing.

    Reference:
        Horst, Hill and Gorman (2020), palmerpenguins: Palmer Archipelago penguin data. CC0.
    """
    from palmerpenguins import load_penguins

    found: pd.DataFrame = load_penguins().drop(columns="year")
    return found


def answer_section(model: TableModel, run: Path, *, data: str, seed: int) -> Section:
    """Answers the query of the command that is shown, beside the marginal distributions."""
    given = read_given(model.table_, GIVEN)
    mass, sex = (model.conditional(n, given=given, random_state=seed) for n in (MASS, SEX))
    any_mass, any_sex = model.conditional(MASS), model.conditional(SEX)
    likely = sex.mode()
    shares = [part.probabilities()[likely] for part in (sex, any_sex)]
    sentence = (
        f"A Gentoo whose flippers are 220 mm long or more weighs {_range(mass)}. "
        f"Any penguin, with nothing given, weighs {_range(any_mass)}. "
        f"The Gentoo is {likely} with a probability of {shares[0]:.0%}, any penguin with "
        f"{shares[1]:.0%}."
    )
    pictures = [
        Picture(mass_figure(mass, any_mass), f"Densities of the body mass. {sentence}"),
        Picture(sex_figure(sex, any_sex), f"Probabilities of each sex: {likely} {shares[0]:.0%}"),
    ]
    caption = "Blue: this Gentoo. Grey: any penguin, with nothing given. Shaded: 90% intervals."
    rest = "Any other columns can be queried, given any others, without training again."
    return Section(
        TITLE,
        [
            Words(data),
            Code(shell("anyorder", "query", run, "--of", QUERY, "--given", GIVEN)),
            Words(sentence),
            Panels(pictures, caption),
            Words(rest),
        ],
    )


def mass_figure(given: Conditional, nothing: Conditional) -> Figure:
    """Plots both densities with their 90% intervals."""
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
    """Plots the probabilities of both distributions."""
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


DRAWS, HIDDEN_SHARE = 100, 0.4
"""Imputations of each hidden cell, and the share of cells that are hidden."""

HIDDEN = ("island", "bill_length_mm", "body_mass_g")
"""Hidden columns of the first row."""

TITLES = ("column", "given", "imputed", "uncertainty", "hidden truth")


@dataclass(frozen=True)
class Hidden:
    """Rows with hidden cells, and their multiple imputations."""

    truth: pd.DataFrame
    cells: pd.DataFrame
    fills: pd.DataFrame

    @classmethod
    def made(cls, model: TableModel, truth: pd.DataFrame, seed: int) -> "Hidden":
        """Hides random cells, in the first row those of `HIDDEN`, and imputes them."""
        truth = truth.dropna().reset_index(drop=True)
        hidden = np.random.default_rng(seed).random(truth.shape) < HIDDEN_SHARE
        hidden[0] = [name in HIDDEN for name in truth.columns]
        cells = pd.DataFrame(hidden, columns=truth.columns)
        fills = model.impute(truth.mask(cells), draws=DRAWS, random_state=seed)
        return cls(truth, cells, fills)

    def first_row(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yields the cells of the first row, in the columns of `TITLES`."""
        fills = self.fills.xs(0, level="row")
        for name in self.truth.columns:
            value = words(self.truth[name].iloc[0])
            if self.cells[name].iloc[0]:
                yield name, "", *_filled(fills[name]), value
            else:
                yield name, value, "", "", ""

    def sentence(self) -> str:
        """Tells the coverage of the 90% intervals of hidden numbers."""
        numbers = list(self.truth.select_dtypes("number").columns)
        rows = self.fills[numbers].groupby(level="row")
        within = (self.truth[numbers] >= rows.quantile(0.05)) & (
            self.truth[numbers] <= rows.quantile(0.95)
        )
        hidden = self.cells[numbers]
        inside, count = (int(part.to_numpy().sum()) for part in (within & hidden, hidden))
        return (
            f"Of {count} numbers hidden in {len(self.truth)} penguins, {inside} "
            f"({inside / count:.0%}) lie in their 90% intervals."
        )

    def section(self) -> Section:
        """Returns the first row and the sentence as a section of the page."""
        text = (
            f"A held-out penguin with {len(HIDDEN)} hidden cells. Each was imputed {DRAWS} times: "
            "shown are the median of a number, the most frequent category, and how they vary."
        )
        grid = Grid(TITLES, [*self.first_row()])
        return Section(
            "A penguin with missing values, imputed", [Words(text), grid, Words(self.sentence())]
        )


def _filled(fills: pd.Series) -> tuple[str, str]:
    """Returns the median and 90% interval of numbers, or the mode and shares of categories."""
    if pd.api.types.is_numeric_dtype(fills):
        # Nearest values, so that the quantiles have the resolution of the column.
        low, middle, high = fills.quantile([0.05, 0.5, 0.95], interpolation="nearest")
        return words(middle), f"90% in {words(low)} .. {words(high)}"
    shares = fills.value_counts(normalize=True)
    return words(shares.index[0]), ", ".join(f"{k} {share:.0%}" for k, share in shares.items())


def say(sentence: str) -> None:
    """Prints a sentence to standard error, after an empty line."""
    note(f"\n{sentence}")


def command(*arguments: object) -> None:
    """Prints the command of the next step to standard error."""
    note(f"$ {shell('anyorder', *arguments)}\n")


HOLES = "the ______ statement r_ises an exc_pti_n if th_ obj_ct is not fo_nd"
FILLS = 3

DIGIT_MINUTES, DIGIT_STEPS = 1.5, 1000
"""Training budget: CPU minutes and steps, whichever ends first."""

SHAPE = {"layers": 3, "width": 96, "heads": 4}
IMAGES_EVALUATED = 128
"""Number of held-out digits that are evaluated."""


def run_demo(*, out: Path, seed: int) -> None:
    """Runs all acts and writes the page; see `anyorder demo --help`."""
    check_seed(seed)
    if out.exists() and not out.is_dir():
        raise ConfigError(f'`--out` must be a folder; "{out}" is a file.')
    shipped = TextModel.shipped()
    text = text_act(shipped, seed)
    answers, about = table_act(out / "penguins", seed)
    digits = digits_act(out / "digits", seed)
    page = Page(
        "What anyorder does",
        "Three models, of a table, of text and of images; each answers any query of the form "
        "p(these | those): what is queried, given what is known. Made by anyorder demo.",
        [*answers, text, digits, *about],
    )
    report = out / "report.html"
    replace_text(report, page.html())
    say(f"All of it with pictures: {report} (open it in a browser). To go on:")
    for line in activation():
        note(f"  {line}")
    for arguments in (
        ("query", out / "penguins", "--of", QUERY, "--given", GIVEN),
        ("inpaint", out / "digits", "digits", "--half", "left", "--out", "left.png"),
        ("fit", "YOUR.csv", "--out", "runs/yours"),
    ):
        note(f"  {shell('anyorder', *arguments)}")


def activation() -> list[str]:
    """Returns the shell command that puts `anyorder` on the path, if one is needed."""
    scripts = Path(sys.executable).parent
    found, script = shutil.which("anyorder"), scripts / "activate"
    if not script.exists() or (found is not None and Path(found).parent == scripts):
        return []
    here = Path.cwd()
    return [f". {shell(script.relative_to(here) if script.is_relative_to(here) else script)}"]


def text_act(model: TextModel, seed: int) -> Section:
    """Fills the holes of a text with the model that ships."""
    words = "A text model comes with the package; it was trained on Python's own reference."
    say(f"{words} It fills the holes three times:")
    command("infill", "shipped", HOLES, "--n", FILLS, "--seed", seed)
    fills = model.infill(HOLES, n=FILLS, random_state=seed)
    Console(soft_wrap=True, highlight=False, markup=False).print("\n".join(fills))
    lines = [f"known   {HOLES}", *(f"filled  {fill}" for fill in fills)]
    sentence = f"{words} It fills holes, the underscores, here {FILLS} times."
    return Section("Text: holes and fills", [Words(sentence), Code("\n".join(lines))])


def digits_act(run: Path, seed: int) -> Section:
    """Fits handwritten digits, evaluates the model, and inpaints held-out ones."""
    digits = bundled_digits()
    count, (height, width, _) = len(digits.train), digits.shape
    data = f"{count} handwritten digits of {height}x{width} pixels, which scikit-learn has."
    say(f"Images: {data}")
    budget = {"minutes": DIGIT_MINUTES, "clock": "processor", "steps": DIGIT_STEPS}
    settings = replace(IMAGE_SETTINGS, **budget, seed=seed)  # type: ignore[arg-type]
    model = ImageModel(**SHAPE, settings=settings, progress=True).fit(digits)  # type: ignore[arg-type]
    model.save(run)
    found = model.evaluate(digits, rows=IMAGES_EVALUATED, random_state=seed)
    show(
        ["query", "bits per pixel"],
        [[name, str(bits)] for name, bits in found.items()],
        numbers=["bits per pixel"],
    )
    say("Their lower halves, hidden and inpainted:")
    grid = run / "grid.png"
    command("inpaint", run, BUNDLED, "--half", "bottom", "--out", grid, "--seed", seed)
    inpaint(run, BUNDLED, options=InpaintOptions(half="bottom", out=grid, seed=seed))
    painted = painted_section(model, digits, seed)
    words = Words(f"The data: {data} The model inpaints hidden parts of held-out ones.")
    return Section("Images: inpainted parts", [words, *painted.blocks[1:]])
