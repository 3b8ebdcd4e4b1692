"""The question of the demo's table: its answer, beside what is said when nothing is known."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from anyorder.commands.notation import read_given, shell
from anyorder.commands.showing import words
from anyorder.diagnostics.plots import NARROW
from anyorder.estimators.conditional import Conditional
from anyorder.estimators.table import TableModel
from anyorder.report.page import Code, Panels, Picture, Section, Words

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
