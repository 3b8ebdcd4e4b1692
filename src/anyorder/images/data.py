"""Images as arrays of levels, and as rows `x (count, vars)`.

A set of images is an array ``(count, height, width, channels)`` of whole numbers, the codes of
their levels. In a row, variables are numbered channel by channel, each row by row: as in the binary
files of CIFAR-10, in `Rectangle` and in `raster`.

`shrunk` and `quantised` make a hard data set easy enough for a laptop; the result is another data
set, and its name says so. `turned` augments a batch by the symmetries of the square, as in the
paper's runs on CIFAR-10. `ImageRows` serves batches to training and keeps images as bytes until
then.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.errors import ConfigError, SchemaError, check_count, check_flag
from anyorder.lattice.masks import source_device
from anyorder.training.batches import Rows
from anyorder.variables import Schema, Variable

Pixels = NDArray[np.uint8]
Size = int | tuple[int, int]
"""Height and width, or one number for both."""

MAX_LEVELS = 256
"""Number of values of a byte."""

HELD_OUT = 0.1
"""Fractions of the validation and of the test images, where there is no public split."""

CHANNELS = {
    1: ("grey",),
    2: ("grey", "alpha"),
    3: ("red", "green", "blue"),
    4: ("red", "green", "blue", "alpha"),
}
"""Names of the channels, by their number."""

AT_ONCE = 8192
"""Images that are averaged at a time: sums take four times the memory of bytes."""


class Shape(NamedTuple):
    """Height, width and channels of one image."""

    height: int
    width: int
    channels: int

    @property
    def num_variables(self) -> int:
        """N: one variable for each pixel and channel."""
        return math.prod(self)


@dataclass(frozen=True)
class Images:
    """A set of images of one shape, split.

    Args:
        name: Name in tables; it says so if this is not all of a public data set.
        levels: Number of values of a channel of a pixel; its code is 0..levels-1.
        train: Training images as bytes. Shape ``(count, height, width, channels)``.
        valid: Validation images.
        test: Test images.
        is_public_test: True if the test images are those of published numbers.
    """

    name: str
    levels: int
    train: Pixels
    valid: Pixels
    test: Pixels
    is_public_test: bool = False

    def __post_init__(self) -> None:
        check_count("levels", self.levels, low=2, high=MAX_LEVELS)
        if not len(self.train):
            raise SchemaError(f'"{self.name}" must have a training image; it has none.')
        for part in (self.train, self.valid, self.test):
            check_pixels(part, self.levels)
            if part.shape[1:] != self.train.shape[1:]:
                raise SchemaError(
                    f'All images of "{self.name}" must have one shape; got {part.shape[1:]} and '
                    f"{self.train.shape[1:]}."
                )

    @property
    def shape(self) -> Shape:
        """Shape of each image."""
        return Shape(*self.train.shape[1:])


def from_array(pixels: Any, *, levels: int = MAX_LEVELS, name: str = "array") -> Images:
    """Splits images in memory at random, with a fixed seed: 8 to 1 to 1.

    Args:
        pixels: Whole numbers of shape ``(count, height, width)``, or with channels as the last
            axis. To split them in another way, construct `Images` from the parts.
        levels: Number of levels; pixels are from 0 to this minus 1.
        name: Name in tables.

    Example:
        >>> from_array(np.zeros((20, 4, 4), dtype=bool), levels=2).shape
        Shape(height=4, width=4, channels=1)
    """
    check_count("levels", levels, low=2, high=MAX_LEVELS)
    found = as_pixels(np.asarray(pixels), levels)
    train, valid, test = (found[part] for part in random_parts(len(found)))
    return Images(name, levels, train, valid, test)


def bundled_digits() -> Images:
    """Returns the digits of scikit-learn: 1797 images of 8x8 pixels in 17 levels of grey."""
    from sklearn.datasets import load_digits

    return from_array(load_digits().images.astype(np.uint8), levels=17, name="digits, scikit-learn")


def random_parts(count: int, number: int = 3) -> list[NDArray[np.int64]]:
    """Returns a random split of images into parts, as indices, with a fixed seed.

    Each part but the first has a tenth of the images, at least one. Three parts are train,
    validation and test; two are train and validation.
    """
    if count < number:
        raise SchemaError(f"There must be {number} images at least, one a part; got {count}.")
    held_out = max(1, int(HELD_OUT * count))
    order = np.random.default_rng(0).permutation(count)
    return np.split(order, range(count - (number - 1) * held_out, count, held_out))


def to_x(pixels: Pixels) -> Tensor:
    """Converts images to rows of codes. Shape ``(count, vars)``, eight times the memory."""
    check_pixels(pixels)
    rows = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    return torch.from_numpy(rows.astype(np.int64))


def from_x(x: Tensor, shape: Shape | tuple[int, int, int]) -> Pixels:
    """Converts rows of codes to images: the inverse of `to_x`."""
    height, width, channels = shape
    if x.ndim != 2 or x.shape[1] != math.prod(shape):
        raise SchemaError(
            f"`x` must have shape (count, {math.prod(shape)}), one column a pixel and channel; "
            f"got {tuple(x.shape)}."
        )
    planes = x.detach().cpu().numpy().reshape(-1, channels, height, width)
    return as_pixels(planes.transpose(0, 2, 3, 1), MAX_LEVELS)


def image_schema(shape: Shape | tuple[int, int, int], levels: int) -> Schema:
    """Returns the variables of an image, by channel, row and column.

    Example:
        >>> image_schema((1, 2, 3), levels=256).names[:3]
        ('red_0_0', 'red_0_1', 'green_0_0')
    """
    height, width, channels = shape
    for name, value in (("height", height), ("width", width)):
        check_count(name, value)
    check_count("channels", channels, high=max(CHANNELS))
    codes = range(check_count("levels", levels, low=2, high=MAX_LEVELS))
    return Schema(
        tuple(
            Variable.categorical(f"{channel}_{row}_{column}", codes)
            for channel in CHANNELS[channels]
            for row in range(height)
            for column in range(width)
        )
    )


def check_size(size: object) -> tuple[int, int]:
    """Returns height and width, if `size` is one number or two."""
    both = size if isinstance(size, tuple | list) else (size, size)
    if len(both) != 2:
        raise ConfigError(f"`size` must be a number, or height and width; got {size!r}.")
    return check_count("size", both[0]), check_count("size", both[1])


def check_pixels(pixels: object, levels: int = MAX_LEVELS) -> None:
    """Refuses what is not an array of bytes ``(count, height, width, channels)`` below `levels`."""
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 4:
        got = (
            f"shape {pixels.shape} of {pixels.dtype}"
            if isinstance(pixels, np.ndarray)
            else type(pixels).__name__
        )
        raise SchemaError(
            "Images must be an array of uint8 with the shape (count, height, width, channels); "
            f"got {got}."
        )
    if not 1 <= pixels.shape[3] <= max(CHANNELS):
        raise SchemaError(
            f"Images must have 1 to {max(CHANNELS)} channels, as the last axis; got shape "
            f"{pixels.shape}. Move the axis there."
        )
    if levels < MAX_LEVELS and pixels.size and pixels.max() >= levels:
        raise SchemaError(
            f"Images of {levels} levels must hold numbers from 0 to {levels - 1}; "
            f"got {pixels.max()}."
        )


def as_pixels(pixels: NDArray[Any], levels: int) -> Pixels:
    """Converts an array of whole numbers to `Pixels`; without an axis of channels, adds one."""
    if pixels.ndim not in (3, 4) or not pixels.size:
        raise SchemaError(
            "Images must be an array of shape (count, height, width) or (count, height, width, "
            f"channels) with an image or more; got shape {pixels.shape}."
        )
    if pixels.dtype.kind not in "bui":
        raise SchemaError(
            f"Images must hold whole numbers, the codes of levels; got {pixels.dtype}. Shades from "
            "0 to 1 become 256 levels by (255 * images).round().astype(np.uint8)."
        )
    for value in (int(pixels.min()), int(pixels.max())):
        if not 0 <= value < levels:
            raise SchemaError(
                f"Images of {levels} levels must hold numbers from 0 to {levels - 1}; got {value}."
            )
    found = np.ascontiguousarray(pixels if pixels.ndim == 4 else pixels[..., None], dtype=np.uint8)
    check_pixels(found)
    return found


def shrunk(images: Images, size: Size) -> Images:
    """Returns smaller images; each pixel is the rounded mean of a block of pixels.

    The new size must divide the present one.
    """
    height, width = check_size(size)
    full = images.shape
    if full[:2] == (height, width):
        return images
    if full.height % height or full.width % width:
        raise ConfigError(
            f"`size` must divide {full.height}x{full.width}; got {height}x{width}.{_fitting(full)}"
        )
    name = f"{images.name}, {height}x{width}"
    return _changed(images, name, images.levels, lambda part: _averaged(part, height, width))


def quantised(images: Images, levels: int) -> Images:
    """Returns images of fewer levels, of equal width up to rounding."""
    check_count("levels", levels, low=2, high=images.levels)
    if levels == images.levels:
        return images
    name = f"{images.name}, {levels} levels"
    return _changed(images, name, levels, lambda part: coarser(part, images.levels, levels))


def coarser(pixels: Pixels, levels: int, fewer: int) -> Pixels:
    """Converts codes among `levels` to codes among `fewer`."""
    return (np.arange(levels) * fewer // levels).astype(np.uint8)[pixels]


def turned(pixels: Pixels, *, generator: torch.Generator, rotations: bool = True) -> Pixels:
    """Rotates each image by a random multiple of 90 degrees, and flips it with probability 1/2.

    A copy is returned. Only square images can be rotated.

    Reference:
        Shih, Sadigh and Ermon (2022), Table 3; ImageNet32 (Table 2) is not augmented.
    """
    check_pixels(pixels)
    source_device(generator)  # checks it
    if check_flag("rotations", rotations) and pixels.shape[1] != pixels.shape[2]:
        raise ConfigError(
            f"Images must be square to be turned by quarters; got {pixels.shape[1]}x"
            f"{pixels.shape[2]}. Pass `rotations=False`."
        )
    found = pixels.copy()
    if rotations:
        quarters = _random_integers(4, len(pixels), generator)
        for number in (1, 2, 3):
            rows = quarters == number
            found[rows] = np.rot90(found[rows], number, axes=(1, 2))
    rows = _random_integers(2, len(pixels), generator) == 1
    found[rows] = found[rows, :, ::-1]
    return found


def _random_integers(number: int, count: int, generator: torch.Generator) -> np.ndarray:
    return torch.randint(number, (count,), generator=generator, device=generator.device).numpy(
        force=True
    )


def _changed(images: Images, name: str, levels: int, change: Callable[[Pixels], Pixels]) -> Images:
    train, valid, test = (change(part) for part in (images.train, images.valid, images.test))
    return replace(
        images,
        name=name,
        levels=levels,
        train=train,
        valid=valid,
        test=test,
        is_public_test=False,
    )


def _averaged(pixels: Pixels, height: int, width: int) -> Pixels:
    count, full_height, full_width, channels = pixels.shape
    rows, columns = full_height // height, full_width // width
    found = np.empty((count, height, width, channels), dtype=np.uint8)
    for start in range(0, count, AT_ONCE):
        part = pixels[start : start + AT_ONCE]
        blocks = part.reshape(len(part), height, rows, width, columns, channels)
        sums = blocks.sum(axis=(2, 4), dtype=np.uint32)
        found[start : start + AT_ONCE] = (sums + rows * columns // 2) // (rows * columns)
    return found


def _fitting(full: tuple[int, int, int]) -> str:
    """Returns the sizes to which images can be shrunk, in words."""
    height, width, _ = full
    sizes = [
        f"{height // factor}x{width // factor}"
        for factor in range(2, min(height, width) + 1)
        if height % factor == 0 and width % factor == 0
    ]
    return f" Take {', '.join(sizes)}." if sizes else ""


class ImageRows:
    """Images in random order, reshuffled every epoch.

    With `turns`, they are flipped at random whenever they are sampled, and rotated if they are
    square.
    """

    def __init__(self, pixels: Pixels, *, turns: bool = False) -> None:
        self.pixels, self.turns = pixels, turns
        self.places = Rows(torch.arange(len(pixels))[:, None])

    def describe(self) -> dict[str, str | int]:
        """Returns what identifies the images: their number, `turns`, and a hash of them."""
        digest = hashlib.sha256(self.pixels.tobytes()).hexdigest()
        return {"images": len(self.pixels), "turns": int(self.turns), "sha256": digest}

    def batch(
        self, step: int, size: int, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the images of a step as rows ``(size, vars)``; no pixel is missing."""
        places = self.places.batch(step, size, generator=generator)[0][:, 0]
        pixels = self.pixels[places.numpy()]
        if self.turns:
            square = pixels.shape[1] == pixels.shape[2]
            pixels = turned(pixels, generator=generator, rotations=square)
        return to_x(pixels), None
