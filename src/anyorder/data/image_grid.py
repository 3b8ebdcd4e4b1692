"""A picture of pictures: each image beside its known part and what a model painted in."""

import numpy as np

from anyorder.data.image import Pixels, check_pixels
from anyorder.data.image_holes import Hole
from anyorder.errors import SchemaError, check_count

UNKNOWN = (255, 0, 255)
"""Magenta: no shade of grey, and rare in photographs."""

BETWEEN = (255, 255, 255)
"""The colour of the gaps."""

TITLES = ("original", "known", "completions")
INK, LETTERS, LINE = (60, 60, 60), 13, 20
"""The colour of titles, the size of their letters, and the height of their line."""

LEAST_HEIGHT = 64
"""Pixels of the screen that an image has at least, if nobody says how many."""


def picture_grid(
    originals: Pixels,
    holes: Hole,
    completions: Pixels,
    *,
    levels: int = 256,
    scale: int | None = None,
    gap: int = 4,
) -> Pixels:
    """One row an image: the original, its known part, and the completions.

    Args:
        originals: Shape ``(count, height, width, channels)``, of one channel or three.
        holes: True = unknown. Shape ``(height, width)``, or ``(count, height, width)``.
        completions: Shape ``(count, draws, height, width, channels)``.
        levels: Of the images.
        scale: Screen pixels along a side of a pixel; by default enough to see it.
        gap: Screen pixels between images.

    Returns:
        A picture in colours, ``(height, width, 3)``, for `write_image`.
    """
    check_pixels(originals, levels)
    count, height, width, channels = originals.shape
    _check_shapes(originals, holes, completions)
    check_pixels(completions.reshape(-1, height, width, channels), levels)
    scale = -(-LEAST_HEIGHT // height) if scale is None else check_count("scale", scale)
    gap = check_count("gap", gap, low=0)

    unknown = np.broadcast_to(holes, (count, height, width))
    known = _colours(originals, levels)
    known[unknown] = UNKNOWN
    columns = [_colours(originals, levels), known]
    columns += [_colours(completions[:, draw], levels) for draw in range(completions.shape[1])]
    cells = np.stack(columns, axis=1).repeat(scale, axis=2).repeat(scale, axis=3)
    return _laid_out(cells, gap)


def with_titles(grid: Pixels, *, columns: int, gap: int = 4) -> Pixels:
    """A grid with the titles of its columns above it; as it was where they have no room.

    Args:
        grid: From `picture_grid`.
        columns: How many it has.
        gap: Between them.
    """
    from PIL import Image, ImageDraw, ImageFont

    height, width, _ = grid.shape
    step = (width + gap) // columns
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
            "`completions` must have shape (count, draws, height, width, channels), like the "
            f"images, {originals.shape}; got {completions.shape}."
        )


def shades(pixels: Pixels, levels: int) -> Pixels:
    """Codes as bytes: level 0 is black and the last one white, in each channel."""
    return np.rint(np.arange(levels) * (255 / (levels - 1))).astype(np.uint8)[pixels]


def _colours(pixels: Pixels, levels: int) -> Pixels:
    """Codes as colours."""
    return shades(pixels, levels).repeat(3 // pixels.shape[3], axis=3)


def _laid_out(cells: Pixels, gap: int) -> Pixels:
    """Cells ``(rows, columns, height, width, 3)`` in one picture, with gaps between them."""
    rows, columns, height, width, _ = cells.shape
    shape = (rows * (height + gap) - gap, columns * (width + gap) - gap, 3)
    found = np.full(shape, BETWEEN, dtype=np.uint8)
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + gap), column * (width + gap)
            found[top : top + height, left : left + width] = cells[row, column]
    return found
