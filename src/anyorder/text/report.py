"""The report of a model of text, on the test part of a text."""

from typing import Any

import torch

from anyorder.errors import seeded
from anyorder.report.page import Code, Page, Section, Words
from anyorder.report.sections import level_report
from anyorder.text.data import Text, chunks, decode
from anyorder.text.model import CHECKED_CHUNKS, TextModel

EXAMPLES, FILLS, HOLES = 3, 2, 0.3
"""Number of chunks that are shown, fills of each, and the share of their characters in holes."""


def text_report(model: TextModel, text: Text, **options: Any) -> Page:
    """Evaluates a model and returns its report; `options` are those of `level_report`."""
    x = chunks(text.test, model.length, CHECKED_CHUNKS)
    return level_report(
        model,
        text,
        x,
        words=f"A model of text: any characters of a chunk of {model.length} given any others.",
        first=_fills_section(model, x, options.get("seed", 0)),
        law=model.queries,
        names=[str(place) for place in range(model.length)],
        options={"length": model.length},
        cell="character",
        dimension="character",
        **options,
    )


def _fills_section(model: TextModel, x: torch.Tensor, seed: int) -> Section:
    """Returns the section of test chunks with holes, and their fills."""
    holes = torch.rand(x[:EXAMPLES].shape, generator=seeded(seed)) < HOLES
    lines = []
    for row, queried in zip(x[:EXAMPLES], holes, strict=True):
        whole = decode(row, model.alphabet_)
        holed = "".join(
            model.hole if gone else letter
            for letter, gone in zip(whole, queried.tolist(), strict=True)
        )
        lines += [f"given   {holed}"]
        lines += [f"filled  {fill}" for fill in model.infill(holed, n=FILLS, random_state=seed)]
        lines += [f"truth   {whole}", ""]
    words = f"Chunks that it has not seen, with {HOLES:.0%} of their characters taken out."
    return Section("Holes and fills", [Words(words), Code("\n".join(lines).rstrip())])
