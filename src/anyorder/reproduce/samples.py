"""The paper's appendix: test chunks, the same with holes, and how the model fills them.

Nothing is chosen by hand: chunks are spread evenly over the test text, holes fall at random, and
the first fill is shown.
"""

from pathlib import Path

import torch
from rich.console import Console

from anyorder.data.text import chunks, decode
from anyorder.errors import check_seed
from anyorder.estimators.text import TextModel
from anyorder.reproduce.record import print_json
from anyorder.reproduce.text_models import read_text

HOLE_SHARES = (0.35, 0.35, 0.7)
"""How much of each snippet is missing: about what the paper's three show."""

LINE = 70


def samples(
    *, run: Path | None = None, data: Path | None = None, seed: int = 0, json: bool = False
) -> None:
    """Prints three snippets: the text, the text with holes, and a fill.

    Args:
        run: The folder of a model of text; the model that ships with the package by default.
        data: text8, or the folder that holds it; without it, the text that ships with Python.
        seed: Of the holes and the fills.
        json: Whether to print one JSON object.
    """
    check_seed(seed)
    model = TextModel.shipped() if run is None else TextModel.load(run)
    text = read_text(data)
    rows = chunks(text.test, model.length, len(HOLE_SHARES))
    generator = torch.Generator().manual_seed(seed)
    snippets = []
    for row, share in zip(rows, HOLE_SHARES, strict=False):
        original = decode(row, text.alphabet)
        holes = (torch.rand(len(row), generator=generator) < share).tolist()
        masked = "".join(model.hole if h else c for c, h in zip(original, holes, strict=True))
        filled = model.infill(masked, seed=seed)[0]
        snippets.append({"original": original, "masked": masked, "filled": filled})
    if json:
        print_json({"data": text.name, "snippets": snippets})
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for snippet in snippets:
        console.print("\n\n".join(_wrapped(part) for part in snippet.values()), end="\n\n\n")


def _wrapped(text: str) -> str:
    return "\n".join(text[start : start + LINE] for start in range(0, len(text), LINE))
