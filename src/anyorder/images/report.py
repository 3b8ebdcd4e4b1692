"""The report of a model of images, on images that it has not seen."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from anyorder.images.data import Images, to_x
from anyorder.images.files import png_bytes
from anyorder.images.holes import half_hole, picture_grid
from anyorder.images.model import EVALUATED, ImageModel
from anyorder.report.page import Page, Picture, Section, Words
from anyorder.report.sections import asked_sections, settings_section, training_section

SHOWN, DRAWS = 6, 3
"""Images that are completed, and how often."""


def image_report(
    model: ImageModel,
    images: Images,
    *,
    name: str,
    training: Path | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Page:
    """Asks a model all that a report tells.

    Args:
        model: Fitted.
        images: Their test part is read.
        name: What to call the model.
        training: The folder of its training, for the curve.
        seed: Of draws and questions.
        progress: Whether a line shows how the check goes.
    """
    x = to_x(images.test[:EVALUATED])
    names = {"cell": "pixel", "dimension": "dimension"}
    asked = asked_sections(model, images, x, **names, seed=seed, progress=progress)
    height, width, channels = images.shape
    variables = model.fitted().schema.names
    sections = [
        painted_section(model, images, seed),
        *asked.sections,
        training_section(training, model.queries_, variables, dimension=names["dimension"]),
        settings_section(model.options | asdict(model.training_settings())),
    ]
    words = (
        f"A model of images of {height}x{width} pixels and {channels} channel(s): any part given "
        f"any other. Evaluated on the test part of {images.name}."
    )
    return Page(f'The model "{name}"', words, sections, asked.facts)


def painted_section(model: ImageModel, images: Images, seed: int) -> Section:
    """Test images, a part taken away, and what the model paints there."""
    originals = images.test[:SHOWN]
    size: tuple[int, int] = (images.shape.height, images.shape.width)
    holes = {
        "the bottom half": half_hole(size, "bottom"),
        "the left half": half_hole(size, "left"),
        "all of it": np.ones(size, dtype=bool),
    }
    pictures = []
    for words, hole in holes.items():
        painted = model.inpaint(originals, hole, n=DRAWS, random_state=seed)
        grid = picture_grid(originals, hole, painted, levels=model.levels_)
        alt = f"Images, their known part without {words}, and {DRAWS} completions"
        caption = f"The original, what is known (magenta is not), and {words} drawn {DRAWS} times."
        pictures.append(Picture(png_bytes(grid), alt, caption, pixelated=True))
    return Section("Painted parts", [Words("Images that it has not seen."), *pictures])
