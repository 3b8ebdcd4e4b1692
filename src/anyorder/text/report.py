"""The report of a model of text, on the test part of a text."""

from dataclasses import asdict
from pathlib import Path

import torch

from anyorder.lattice.random_sets import seeded
from anyorder.report.page import Code, Page, Section, Words
from anyorder.report.sections import asked_sections, settings_section, training_section
from anyorder.text.data import Text, chunks, decode
from anyorder.text.model import CHECKED_CHUNKS, TextModel

EXAMPLES, FILLS, HOLES = 3, 2, 0.3
"""Chunks that are shown, how often each is filled, and how many of its characters are holes."""


def text_report(
    model: TextModel,
    text: Text,
    *,
    name: str,
    training: Path | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Page:
    """Asks a model all that a report tells.

    Args:
        model: Fitted.
        text: Its test part is read.
        name: What to call the model.
        training: The folder of its training, for the curve.
        seed: Of draws and questions.
        progress: Whether a line shows how the check goes.
    """
    x = chunks(text.test, model.length, CHECKED_CHUNKS)
    names = {"cell": "character", "dimension": "character"}
    asked = asked_sections(model, text, x, **names, seed=seed, progress=progress)
    places = [str(place) for place in range(model.length)]
    sections = [
        _fills_section(model, x, seed),
        *asked.sections,
        training_section(training, model.queries, places, dimension=names["dimension"]),
        settings_section({"length": model.length, **asdict(model.training_settings())}),
    ]
    words = (
        f"A model of text: any characters of a chunk of {model.length} given any others. "
        f"Evaluated on the test part of {text.name}."
    )
    return Page(f'The model "{name}"', words, sections, asked.facts)


def _fills_section(model: TextModel, x: torch.Tensor, seed: int) -> Section:
    """Chunks of the test text with holes, and what the model fills in."""
    holes = torch.rand(x[:EXAMPLES].shape, generator=seeded(seed)) < HOLES
    lines = []
    for row, unknown in zip(x[:EXAMPLES], holes, strict=True):
        whole = decode(row, model.alphabet_)
        holed = "".join(
            model.hole if gone else letter
            for letter, gone in zip(whole, unknown.tolist(), strict=True)
        )
        lines += [f"known   {holed}"]
        lines += [f"filled  {fill}" for fill in model.infill(holed, n=FILLS, random_state=seed)]
        lines += [f"truth   {whole}", ""]
    words = f"Chunks that it has not seen, with {HOLES:.0%} of their characters taken out."
    return Section("Holes and fills", [Words(words), Code("\n".join(lines).rstrip())])
