"""Samples of the paper's appendix: infilled text and inpainted images, beside the test data.

Nothing is chosen by hand. Chunks are spread evenly over the test text, their holes are random, and
the first fill is shown. Images are the first of the test set, with their first three completions.
"""

from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from anyorder.cli.console import note, print_json
from anyorder.errors import check_seed
from anyorder.images.cli import images_for
from anyorder.images.files import write_image
from anyorder.images.inpainting import Hole, half_hole, picture_grid, random_hole, rectangle_hole
from anyorder.images.model import ImageModel
from anyorder.reproduce.table1_figure3 import read_text
from anyorder.text.data import chunks, decode
from anyorder.text.model import TextModel

HOLE_SHARES = (0.35, 0.35, 0.7)
"""Share of each snippet that is missing: about that of the three in the paper."""

LINE = 70


def samples(
    *, run: Path | None = None, data: Path | None = None, seed: int = 0, json: bool = False
) -> None:
    """Prints three snippets: the text, the text with holes, and a fill."""
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
        filled = model.infill(masked, random_state=seed)[0]
        snippets.append({"original": original, "masked": masked, "filled": filled})
    if json:
        print_json({"data": text.name, "snippets": snippets})
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for snippet in snippets:
        console.print("\n\n".join(_wrapped(part) for part in snippet.values()), end="\n\n\n")


def _wrapped(text: str) -> str:
    return "\n".join(text[start : start + LINE] for start in range(0, len(text), LINE))


IMAGES, COMPLETIONS = 2, 3
"""Images of each kind of hole, and completions of each image."""


def image_samples(run: Path, images: str, *, out: Path, seed: int = 0) -> None:
    """Writes a grid of test images, their known parts and completions, for each kind of hole."""
    check_seed(seed)
    model = ImageModel.load(run)
    found = images_for(model, images)
    holes = sample_holes(found.shape[:2], seed)
    test = found.test[: IMAGES * len(holes)]
    groups = np.array_split(test, len(holes))
    completions = [
        model.inpaint(group, hole, n=COMPLETIONS, random_state=seed)
        for group, hole in zip(groups, holes, strict=True)
        if len(group)
    ]
    each = [hole for group, hole in zip(groups, holes, strict=True) for _ in group]
    grid = picture_grid(test, np.stack(each), np.concatenate(completions), levels=found.levels)
    write_image(out, grid)
    note(f"{found.name}: original, known part, {COMPLETIONS} completions: {out}")


def sample_holes(size: tuple[int, int], seed: int) -> list[Hole]:
    """Returns three holes: random half of the pixels, lower half, and central rectangle."""
    height, width = size
    middle = {
        "top": height // 4,
        "left": width // 4,
        "height": max(1, height // 2),
        "width": max(1, width // 2),
    }
    generator = torch.Generator().manual_seed(seed)
    return [
        random_hole(size, 0.5, generator=generator),
        half_hole(size, "bottom"),
        rectangle_hole(size, **middle),
    ]
