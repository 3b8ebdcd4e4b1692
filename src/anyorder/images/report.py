"""The report of a model of images, on images that it has not seen."""

from typing import Any

import numpy as np

from anyorder.images.data import Images, to_x
from anyorder.images.files import png_bytes
from anyorder.images.inpainting import half_hole, picture_grid
from anyorder.images.model import EVALUATED, ImageModel
from anyorder.report.page import Page, Picture, Section, Words
from anyorder.report.sections import level_report

SHOWN, DRAWS = 6, 3
"""Number of images that are completed, and completions of each."""


def image_report(model: ImageModel, images: Images, **options: Any) -> Page:
    """Evaluates a model and returns its report; `options` are those of `level_report`."""
    height, width, channels = images.shape
    return level_report(
        model,
        images,
        to_x(images.test[:EVALUATED]),
        words=(
            f"A model of images of {height}x{width} pixels and {channels} channel(s): any part "
            "given any other."
        ),
        first=painted_section(model, images, options.get("seed", 0)),
        law=model.queries_,
        names=model.fitted().schema.names,
        options=model.options,
        cell="pixel",
        dimension="dimension",
        **options,
    )


def painted_section(model: ImageModel, images: Images, seed: int) -> Section:
    """Returns the section of test images with holes, and their completions."""
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
        alt = f"Images, their given part without {words}, and {DRAWS} completions"
        caption = f"The original, what is given (magenta is not), and {DRAWS} samples of {words}."
        pictures.append(Picture(png_bytes(grid), alt, caption, pixelated=True))
    return Section("Inpainting", [Words("Images that it has not seen."), *pictures])
