"""Sections that the reports of all domains share."""

import json
import math
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyorder.data.row_print import SEEN
from anyorder.diagnostics.gaps import nats
from anyorder.diagnostics.plots import panels
from anyorder.diagnostics.report import Check
from anyorder.diagnostics.worth import surprise_by_evidence
from anyorder.estimators.image import ImageModel
from anyorder.estimators.text import TextModel
from anyorder.evaluation import Estimate
from anyorder.query_laws import QueryLaw
from anyorder.query_words import question_words
from anyorder.random_sets import seeded
from anyorder.report.figures import curve_figures, worth_figure
from anyorder.report.page import Block, Grid, Panels, Picture, Points, Section, Words
from anyorder.training.progress import read_metrics

PACKAGES = ("anyorder", "torch", "numpy", "pandas")

PLOTS = {
    "coverage": (
        "Share of true values inside their 50%, 80% and 90% intervals, by evidence",
        "Dots on their lines: intervals hold what they say. Left of them: too narrow. Bars are two "
        "standard errors.",
    ),
    "pit": (
        "Histograms of where true values fall in their predicted distributions",
        "Where true values fell, in ten parts that were called equally probable: flat is right, a "
        "U is overconfident, a hill too cautious. In the grey band it may be chance.",
    ),
    "reliability": (
        "How often the most probable level is right, against how probable it was said to be",
        "On the diagonal, a stated 80% is right in eight cases of ten; below it, the model is too "
        "sure. Bars are two standard errors.",
    ),
}
"""What is to be seen on the pictures of a check, and what it means."""


NATS = (
    "A nat is the unit of surprise: what was given the probability p surprises by -ln p nats, so "
    "the toss of a coin by 0.69 (a nat is 1.44 bits)."
)
"""Said once, where nats are first told of."""


class Asked(NamedTuple):
    """What a model answered about what it has not seen: numbers, and sections."""

    facts: list[tuple[str, str]]
    sections: list[Section]


def asked_sections(
    model: TextModel | ImageModel,
    unseen: Any,
    x: Tensor,
    *,
    cell: str,
    dimension: str,
    seed: int,
    progress: bool,
) -> Asked:
    """Asks a model of text or images what all reports tell of them.

    Args:
        model: Fitted.
        unseen: A text or images; their test part is read.
        x: The rows of it that are asked about.
        cell: What a variable is called.
        dimension: What bits are counted by.
        seed: Of the questions.
        progress: Whether a line shows how the check goes.
    """
    bits = model.evaluate(unseen, rows=len(x), seed=seed)
    check = model.check(unseen, rows=len(x), seed=seed, progress=progress)
    missing = torch.zeros(x.shape, dtype=torch.bool)
    worth = surprise_by_evidence(model.fitted(), x, missing, generator=seeded(seed))
    facts = [(f"{name}, bits a {dimension}", str(found)) for name, found in bits.items()]
    facts.append(("weights", f"{model.fitted().num_parameters:,}"))
    return Asked(facts, [worth_section(worth, cell), *trust_sections(check)])


def trust_sections(check: Check, *, seen: bool = False) -> list[Section]:
    """Whether probabilities hold, and how far the model agrees with itself.

    Args:
        check: What was found.
        seen: Whether it was trained on the rows that it was asked about.
    """
    asked = f"Asked about {check.rows:,} rows"
    blocks: list[Block] = [
        Words(f"{asked}. {SEEN}" if seen else f"{asked} that it should not have seen in training."),
        Points(check.calibration_sentences()),
    ]
    drawn = panels(check.numbers, check.categories)
    for name, (alt, caption) in PLOTS.items():
        if name in drawn:
            blocks.append(Panels([Picture(figure, alt) for figure in drawn[name]], caption))
    found = [Section("Can its probabilities be trusted?", blocks)]
    if check.gap_sentences():
        words = Words("The same likelihood, asked for in another way, should be the same number.")
        agreement = Section("Does it agree with itself?", [words, Points(check.gap_sentences())])
        found.append(agreement)
    return found


def worth_section(
    found: Mapping[str, Estimate], cell: str, *, whole: Estimate | None = None
) -> Section:
    """What evidence is worth.

    Args:
        found: The surprise of a cell by how much is given.
        cell: What a cell is called.
        whole: The log-likelihood of a whole row, if it is told nowhere else.
    """
    first, last = (list(found.values())[place] for place in (0, -1))
    blocks: list[Block] = [
        Words(
            f"How surprising one {cell} is, with more and more of the others given. All of them "
            f"together tell {nats(first.minus(last))} nats about it. {NATS}"
        )
    ]
    if whole is not None:
        words = f"The log-likelihood of a whole row is {nats(whole)} nats; more is better."
        blocks.append(Words(words))
    alt = "Surprise by amount of evidence: " + ", ".join(
        f"{name} given {part.value:.2f}" for name, part in found.items()
    )
    blocks.append(Picture(worth_figure(found, f"surprise, nats a {cell}"), alt))
    return Section("What evidence is worth", blocks)


def training_section(
    training: Path | None, law: QueryLaw | None, names: Sequence[str], *, dimension: str
) -> Section:
    """What it was trained for, and how that went.

    Args:
        training: The folder of the training, if it is there.
        law: The questions.
        names: Of the variables.
        dimension: What bits are counted by.
    """
    blocks: list[Block] = [Words("It was trained for these questions:")]
    blocks.append(Points(question_words(law, names)))
    curves = read_curves(training)
    if curves:
        units = f"bits a {dimension}"
        pictures = [
            Picture(figure, f"Loss on {name}, {units}: {_ends(curves[name])}")
            for name, figure in curve_figures(curves, units).items()
        ]
        blocks.append(Panels(pictures, "Lower is better."))
    return Section("How it was trained", blocks)


def _ends(points: Sequence[tuple[float, float]]) -> str:
    return f"from {points[0][1]:.2f} to {points[-1][1]:.2f}"


def read_curves(training: Path | None) -> dict[str, list[tuple[float, float]]]:
    """The loss and the held-out loss of a training as (minutes, bits); of members, the first's."""
    if training is None:
        return {}
    files = sorted(training.rglob("metrics.jsonl"))
    curves: dict[str, list[tuple[float, float]]] = {}
    titles = {"loss": "training rows", "held_out": "held-out rows"}
    units = {"loss": 1 / math.log(2), "held_out": 1.0}  # as `fit` writes them: nats and bits
    for values in read_metrics(files[0]) if files else ():
        for key, title in titles.items():
            if key in values and "seconds" in values:
                point = (values["seconds"] / 60, values[key] * units[key])
                curves.setdefault(title, []).append(point)
    return {title: points for title, points in curves.items() if len(points) > 1}


def settings_section(settings: Mapping[str, Any]) -> Section:
    """All that was set, and the versions that wrote this."""
    plain = [(name, _words(value)) for name, value in settings.items() if value is not None]
    versions = [(name, metadata.version(name)) for name in PACKAGES]
    versions.append(("python", platform.python_version()))
    return Section(
        "Settings and versions",
        [Grid(("setting", "value"), plain), Grid(("package", "version"), versions)],
    )


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
