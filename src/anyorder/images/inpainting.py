"""Holes: the pixels of an image to inpaint, and the grid of images that shows the result.

A hole is a boolean array ``(height, width)``, True = queried. It covers all channels of a pixel:
`hole_query` makes the same set of variables of each.

`picture_grid` shows each image beside its given part and its completions by a model.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.errors import (
    ConfigError,
    QueryError,
    SchemaError,
    check_choice,
    check_count,
    check_fraction,
)
from anyorder.images.data import Pixels, Shape, Size, check_pixels, check_size
from anyorder.images.files import check_depth, check_picture_file, decoded
from anyorder.lattice.masks import source_device, subsets
from anyorder.lattice.query_laws import Query

if TYPE_CHECKING:
    from PIL import Image

Hole = NDArray[np.bool_]

HALF_A_BYTE = 128
"""A pixel of a mask file is in the hole from this brightness on, or below this opacity."""

UNKNOWN = (255, 0, 255)
"""Colour of a hole. Magenta is no shade of grey, and rare in photographs."""

BETWEEN = (255, 255, 255)
"""Colour between images."""

GAP = 4
"""Screen pixels between images."""

TITLES = ("original", "known", "completions")
INK, LETTERS, LINE = (60, 60, 60), 13, 20
"""Colour of titles, size of their letters, and height of their line."""

LEAST_HEIGHT = 64
"""Least height of an image in screen pixels, by default."""


def rectangle_hole(size: Size, *, top: int, left: int, height: int, width: int) -> Hole:
    """Returns a rectangular hole.

    Example:
        >>> rectangle_hole((2, 4), top=0, left=1, height=1, width=2).astype(int)
        array([[0, 1, 1, 0],
               [0, 0, 0, 0]])
    """
    hole = _nothing(size)
    bottom = check_count("top", top, low=0) + check_count("height", height)
    right = check_count("left", left, low=0) + check_count("width", width)
    if bottom > hole.shape[0] or right > hole.shape[1]:
        raise ConfigError(
            f"The rectangle must lie in the image, which is {_shown(hole)} (height x width); it "
            f"ends before row {bottom} and column {right}."
        )
    hole[top:bottom, left:right] = True
    return hole


def half_hole(size: Size, side: str) -> Hole:
    """Returns the left, right, top or bottom half; a row or column in the middle is not in it."""
    check_choice("side", side, ("left", "right", "top", "bottom"))
    height, width = check_size(size)
    row, column = np.arange(height)[:, None], np.arange(width)
    halves = {
        "left": column < width // 2,
        "right": column >= width - width // 2,
        "top": row < height // 2,
        "bottom": row >= height - height // 2,
    }
    return _nothing(size) | halves[side]


def random_hole(size: Size, share: float, *, generator: torch.Generator) -> Hole:
    """Samples pixels, as many as are nearest to a fraction of all."""
    check_fraction("share", share)
    device, hole = source_device(generator), _nothing(size)
    number = torch.tensor([round(share * hole.size)], device=device)
    everything = torch.ones(1, hole.size, dtype=torch.bool, device=device)
    return subsets(number, everything, generator=generator).numpy(force=True).reshape(hole.shape)


def alpha_hole(file: str | Path, size: Size) -> Hole:
    """Returns the transparent pixels of an image file, such as a PNG with erased parts."""
    image = _mask(file)
    if not image.has_transparency_data:
        raise SchemaError(
            f'"{file}" must have an alpha channel, by which pixels are erased; it has none. '
            "Save it as PNG with transparency."
        )
    opacity = np.array(image.convert("RGBA").getchannel("A"))
    return _sized(opacity < HALF_A_BYTE, size, file)


def picture_hole(file: str | Path, size: Size) -> Hole:
    """Returns the white pixels of a black-and-white image file."""
    brightness = np.array(_mask(file).convert("L"))
    return _sized(brightness >= HALF_A_BYTE, size, file)


def hole_query(hole: Hole, shape: Shape | tuple[int, int, int]) -> Query:
    """Returns the query of a hole: its pixels in all channels, given all others.

    Returns:
        Two sets of shape ``(vars,)``, the same for all rows.
    """
    query = pixel_set(hole, shape, argument="hole")
    if not query.any():
        raise QueryError("A hole must have an unknown pixel; it has none.")
    return Query(given=~query, query=query)


def pixel_set(pixels: Hole, shape: Shape | tuple[int, int, int], *, argument: str) -> Tensor:
    """Returns the variables of some pixels, in all channels. Shape ``(vars,)``."""
    height, width, channels = shape
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.bool_:
        got = pixels.dtype if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise QueryError(f"`{argument}` must be an array of booleans, one a pixel; got {got}.")
    if pixels.shape != (height, width):
        raise QueryError(
            f"`{argument}` must have the shape of the images, {(height, width)}; got "
            f"{pixels.shape}."
        )
    return torch.from_numpy(np.tile(pixels.ravel(), check_count("channels", channels)))


def _nothing(size: Size) -> Hole:
    return np.zeros(check_size(size), dtype=np.bool_)


def _mask(file: str | Path) -> "Image.Image":
    check_picture_file(Path(file))
    image = decoded(Path(file), str(file))
    check_depth(image, str(file))
    return image


def _sized(hole: Hole, size: Size, file: str | Path) -> Hole:
    if hole.shape != check_size(size):
        raise SchemaError(
            f'"{file}" must be as large as the images, {_shown(_nothing(size))} (height x width); '
            f"it is {_shown(hole)}. Resize it."
        )
    return hole


def _shown(hole: Hole) -> str:
    return f"{hole.shape[0]}x{hole.shape[1]}"


def picture_grid(
    originals: Pixels,
    holes: Hole,
    completions: Pixels,
    *,
    levels: int = 256,
    scale: int | None = None,
) -> Pixels:
    """Returns a grid with a row for each image: the original, its given part, and completions.

    Args:
        originals: Images of 1 or 3 channels. Shape ``(count, height, width, channels)``.
        holes: True for completed pixels. Shape ``(height, width)``, or ``(count, height, width)``.
        completions: Samples. Shape ``(count, samples, height, width, channels)``.
        levels: Number of levels of the images.
        scale: Screen pixels along a side of a pixel; by default enough to see it.

    Returns:
        A colour image ``(height, width, 3)``, for `write_image`.
    """
    check_pixels(originals, levels)
    count, height, width, channels = originals.shape
    _check_shapes(originals, holes, completions)
    check_pixels(completions.reshape(-1, height, width, channels), levels)
    scale = -(-LEAST_HEIGHT // height) if scale is None else check_count("scale", scale)

    unknown = np.broadcast_to(holes, (count, height, width))
    known = _colours(originals, levels)
    known[unknown] = UNKNOWN
    columns = [_colours(originals, levels), known]
    columns += [_colours(completions[:, k], levels) for k in range(completions.shape[1])]
    cells = np.stack(columns, axis=1).repeat(scale, axis=2).repeat(scale, axis=3)
    return _laid_out(cells)


def with_titles(grid: Pixels, *, columns: int) -> Pixels:
    """Adds the titles of the columns above a grid; returns it unchanged if they do not fit."""
    from PIL import Image, ImageDraw, ImageFont

    height, width, _ = grid.shape
    step = (width + GAP) // columns
    font = ImageFont.load_default(LETTERS)
    if font.getlength(TITLES[0]) >= step:
        return grid
    across = max(width, int(2 * step + font.getlength(TITLES[2])) + 1)
    found = Image.new("RGB", (across, height + LINE), BETWEEN)
    found.paste(Image.fromarray(grid), (0, LINE))
    for place, title in enumerate(TITLES):
        ImageDraw.Draw(found).text((place * step, 1), title, fill=INK, font=font)
    return np.asarray(found)


def _check_shapes(originals: Pixels, holes: Hole, completions: Pixels) -> None:
    count, *shape = originals.shape
    if shape[2] not in (1, 3) or not count:
        raise SchemaError(f"Images must have 1 or 3 channels to be shown; got {originals.shape}.")
    if holes.dtype != np.bool_ or holes.shape not in ((*shape[:2],), (count, *shape[:2])):
        raise SchemaError(
            f"`holes` must be booleans of shape {(*shape[:2],)} or {(count, *shape[:2])}, like the "
            f"images; got {holes.dtype} of shape {holes.shape}."
        )
    if completions.ndim != 5 or (completions.shape[0], *completions.shape[2:]) != (count, *shape):
        raise SchemaError(
            "`completions` must have shape (count, samples, height, width, channels), like the "
            f"images, {originals.shape}; got {completions.shape}."
        )


def shades(pixels: Pixels, levels: int) -> Pixels:
    """Converts codes to bytes: level 0 is black and the last one white, in each channel."""
    return np.rint(np.arange(levels) * (255 / (levels - 1))).astype(np.uint8)[pixels]


def _colours(pixels: Pixels, levels: int) -> Pixels:
    """Converts codes to colours."""
    return shades(pixels, levels).repeat(3 // pixels.shape[3], axis=3)


def _laid_out(cells: Pixels) -> Pixels:
    """Arranges cells ``(rows, columns, height, width, 3)`` in one image."""
    rows, columns, height, width, _ = cells.shape
    shape = (rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3)
    found = np.full(shape, BETWEEN, dtype=np.uint8)
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + GAP), column * (width + GAP)
            found[top : top + height, left : left + width] = cells[row, column]
    return found
