"""What the public sets of images have in common: how many there are, and what is held out.

Published numbers are of the public test images. Most of these sets have no validation images: the
last of the training images serve.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anyorder.data.image import MAX_LEVELS, Images, Pixels
from anyorder.errors import ConfigError, SchemaError


@dataclass(frozen=True)
class Public:
    """A public set.

    Args:
        name: What it is called.
        train: How many training images it has.
        test: How many test images.
        held_out: The share of the training images that is for validation.
        files: What to put into the folder, in words.
        archive: Where that comes from.
        levels: Of a pixel's channel.
    """

    name: str
    train: int
    test: int
    held_out: float
    files: str
    archive: str
    levels: int = MAX_LEVELS

    def images(self, train: Pixels, test: Pixels, *, valid: Pixels | None = None) -> Images:
        """What was read of the set; its name says where that is not all of it."""
        if valid is None:
            if len(train) < 2:
                raise SchemaError(f"{self.name} must have two training images at least.")
            held_out = max(1, round(self.held_out * len(train)))
            train, valid = train[:-held_out], train[-held_out:]
        name = self._name(len(train) + len(valid), len(test))
        is_public = len(test) == self.test
        return Images(name, self.levels, train, valid, test, is_public_test=is_public)

    def missing(self, folder: Path) -> ConfigError:
        """The error that says what to put where."""
        return ConfigError(
            f'There is no {self.name} in "{folder}": put {self.files} there. '
            f"It comes from {self.archive}."
        )

    def _name(self, train: int, test: int) -> str:
        parts = [self.name]
        if train != self.train:
            parts.append(f"{train:,} of {self.train:,} training images")
        if test != self.test:
            parts.append(f"{test:,} of {self.test:,} test images")
        return ", ".join(parts)


def joined(batches: Mapping[str, Pixels], *, side: int) -> Pixels:
    """Rows of bytes, channel by channel, of one file or more, as square images in colours."""
    for file, rows in batches.items():
        if rows.ndim != 2 or rows.shape[1] != 3 * side * side:
            raise SchemaError(
                f'"{file}" must hold rows of {3 * side * side} bytes, images of 3 channels of '
                f"{side}x{side}; its shape is {rows.shape}."
            )
    # A view: the bytes stay channel by channel, which is how variables are numbered.
    return np.concatenate([*batches.values()]).reshape(-1, 3, side, side).transpose(0, 2, 3, 1)
