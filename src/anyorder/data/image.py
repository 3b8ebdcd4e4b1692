"""Images: pictures as arrays of levels, and the same as rows `x (count, vars)`.

A set of pictures is an array ``(count, height, width, channels)`` of whole numbers, the codes of
their levels. In a row, variables are numbered channel by channel, each row by row: as in the binary
files of CIFAR-10, in `Rectangle` and in `raster`.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.errors import ConfigError, SchemaError, check_count
from anyorder.variables import Schema, Variable

Pixels = NDArray[np.uint8]
Size = int | tuple[int, int]
"""Height and width, or one number for both."""

MAX_LEVELS = 256
"""What a byte holds."""

HELD_OUT = 0.1
"""The shares of the validation and of the test images, where nobody has split them before."""

CHANNELS = {
    1: ("grey",),
    2: ("grey", "alpha"),
    3: ("red", "green", "blue"),
    4: ("red", "green", "blue", "alpha"),
}
"""What the channels are called, by how many there are."""


class Shape(NamedTuple):
    """Of one image."""

    height: int
    width: int
    channels: int

    @property
    def num_variables(self) -> int:
        """N: one variable a pixel and channel."""
        return math.prod(self)


@dataclass(frozen=True)
class Images:
    """A set of images of one shape, split.

    Args:
        name: What to call it in tables; says so where it is not all of a public data set.
        levels: How many values a channel of a pixel can take; its code is 0..levels-1.
        train: Bytes. Shape ``(count, height, width, channels)``.
        valid: Of the same shape.
        test: Of the same shape.
        is_public_test: Whether the test images are those of published numbers.
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
        """Of each image."""
        return Shape(*self.train.shape[1:])


def from_array(pixels: Any, *, levels: int = MAX_LEVELS, name: str = "array") -> Images:
    """Images in memory, split at random, always alike: 8 to 1 to 1.

    Args:
        pixels: Whole numbers of shape ``(count, height, width)``, or with channels as the last
            axis. To split them in another way, make `Images` of the parts.
        levels: They are from 0 to this less 1.
        name: What to call them.

    Example:
        >>> from_array(np.zeros((20, 4, 4), dtype=bool), levels=2).shape
        Shape(height=4, width=4, channels=1)
    """
    check_count("levels", levels, low=2, high=MAX_LEVELS)
    found = as_pixels(np.asarray(pixels), levels)
    train, valid, test = (found[part] for part in random_parts(len(found)))
    return Images(name, levels, train, valid, test)


def bundled_digits() -> Images:
    """A small set that ships with scikit-learn: 1797 digits of 8x8 pixels in 17 levels of grey."""
    from sklearn.datasets import load_digits

    return from_array(load_digits().images.astype(np.uint8), levels=17, name="digits, scikit-learn")


def random_parts(count: int, number: int = 3) -> list[NDArray[np.int64]]:
    """Which images go into which part, at random and always alike.

    Each part but the first has a tenth of the images, one at least: train, validation and test by
    default, train and validation of two.
    """
    if count < number:
        raise SchemaError(f"There must be {number} images at least, one a part; got {count}.")
    held_out = max(1, int(HELD_OUT * count))
    order = np.random.default_rng(0).permutation(count)
    return np.split(order, range(count - (number - 1) * held_out, count, held_out))


def to_x(pixels: Pixels) -> Tensor:
    """Images as rows of codes. Shape ``(count, vars)``, eight times the memory of the bytes."""
    check_pixels(pixels)
    rows = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    return torch.from_numpy(rows.astype(np.int64))


def from_x(x: Tensor, shape: Shape | tuple[int, int, int]) -> Pixels:
    """Rows of codes as images: the inverse of `to_x`."""
    height, width, channels = shape
    if x.ndim != 2 or x.shape[1] != math.prod(shape):
        raise SchemaError(
            f"`x` must have shape (count, {math.prod(shape)}), one column a pixel and channel; "
            f"got {tuple(x.shape)}."
        )
    planes = x.detach().cpu().numpy().reshape(-1, channels, height, width)
    return as_pixels(planes.transpose(0, 2, 3, 1), MAX_LEVELS)


def image_schema(shape: Shape | tuple[int, int, int], levels: int) -> Schema:
    """The variables of an image, by channel, row and column.

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
    """An array of any whole numbers as `Pixels`; without an axis of channels, there is one."""
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
