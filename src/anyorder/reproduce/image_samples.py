"""The paper's figures of images: test images, the same with holes, and how a model paints them.

Nothing is chosen by hand: the images are the first of the test part, and the first three
completions are shown.
"""

from pathlib import Path

import numpy as np
import torch

from anyorder.commands.image import images_for
from anyorder.commands.showing import note
from anyorder.data.image_files import write_image
from anyorder.data.image_grid import picture_grid
from anyorder.data.image_holes import Hole, half_hole, random_hole, rectangle_hole
from anyorder.errors import check_seed
from anyorder.estimators.image import ImageModel

IMAGES, COMPLETIONS = 2, 3
"""Of each kind of hole, and of each image."""


def image_samples(run: Path, images: str, *, out: Path, seed: int = 0) -> None:
    """Draws a grid: for each kind of hole some test images, their known part, and completions.

    Args:
        run: The folder of a model of images.
        images: The set, as for `anyorder fit`.
        out: The picture.
        seed: Of the holes and of the completions.
    """
    check_seed(seed)
    model = ImageModel.load(run)
    found = images_for(model, images)
    holes = sample_holes(found.shape[:2], seed)
    test = found.test[: IMAGES * len(holes)]
    groups = np.array_split(test, len(holes))
    painted = [
        model.inpaint(group, hole, n=COMPLETIONS, seed=seed)
        for group, hole in zip(groups, holes, strict=True)
        if len(group)
    ]
    each = [hole for group, hole in zip(groups, holes, strict=True) for _ in group]
    grid = picture_grid(test, np.stack(each), np.concatenate(painted), levels=found.levels)
    write_image(out, grid)
    note(f"{found.name}: original, known part, {COMPLETIONS} completions: {out}")


def sample_holes(size: tuple[int, int], seed: int) -> list[Hole]:
    """Half of the pixels at random, the lower half, and a rectangle in the middle."""
    height, width = size
    middle = {
        "top": height // 4,
        "left": width // 4,
        "height": max(1, height // 2),
        "width": max(1, width // 2),
    }
    source = torch.Generator().manual_seed(seed)
    return [
        random_hole(size, 0.5, generator=source),
        half_hole(size, "bottom"),
        rectangle_hole(size, **middle),
    ]
