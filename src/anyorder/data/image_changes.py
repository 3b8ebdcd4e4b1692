"""Smaller, coarser and turned images.

`shrunk` and `quantised` make a hard set easy enough for a laptop; numbers on what they give are
numbers of another data set, and its name says so. `turned` shows a model more images than there
are: the symmetries of the square, as in the paper's runs on CIFAR-10.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from anyorder.data.image import Images, Pixels, Size, check_pixels, check_size
from anyorder.errors import ConfigError, check_count, check_flag
from anyorder.random_sets import source_device

AT_ONCE = 8192
"""Images that are averaged at a time: sums take four times the memory of bytes."""


def shrunk(images: Images, size: Size) -> Images:
    """Smaller images; each pixel is the mean of those that it stands for, rounded.

    Args:
        images: Any.
        size: It must divide the present size.
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
    """Images of fewer levels, each as wide as the others but for rounding."""
    check_count("levels", levels, low=2, high=images.levels)
    if levels == images.levels:
        return images
    name = f"{images.name}, {levels} levels"
    return _changed(images, name, levels, lambda part: coarser(part, images.levels, levels))


def coarser(pixels: Pixels, levels: int, fewer: int) -> Pixels:
    """Codes among `levels` as codes among `fewer`."""
    return (np.arange(levels) * fewer // levels).astype(np.uint8)[pixels]


def turned(
    pixels: Pixels, *, generator: torch.Generator, flips: bool = True, rotations: bool = True
) -> Pixels:
    """Each image turned by a random number of quarters and flipped with probability one half.

    Args:
        pixels: A batch ``(count, height, width, channels)``; it is left as it is.
        generator: The source of randomness; the same one gives the same images.
        flips: Whether left and right may change places.
        rotations: Whether images may be turned; they must be square.

    Reference:
        Shih, Sadigh and Ermon (2022), Table 3; ImageNet32 (Table 2) is left as it is.
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
        quarters = _draws(4, len(pixels), generator)
        for number in (1, 2, 3):
            rows = quarters == number
            found[rows] = np.rot90(found[rows], number, axes=(1, 2))
    if check_flag("flips", flips):
        rows = _draws(2, len(pixels), generator) == 1
        found[rows] = found[rows, :, ::-1]
    return found


def _draws(number: int, count: int, generator: torch.Generator) -> np.ndarray:
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
    """The sizes to which images can be shrunk, in words."""
    height, width, _ = full
    sizes = [
        f"{height // factor}x{width // factor}"
        for factor in range(2, min(height, width) + 1)
        if height % factor == 0 and width % factor == 0
    ]
    return f" Take {', '.join(sizes)}." if sizes else ""
