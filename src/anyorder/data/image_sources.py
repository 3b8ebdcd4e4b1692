"""Sets of images by their names."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from anyorder.data.cifar10 import load_cifar10
from anyorder.data.image import Images, Size, bundled_digits
from anyorder.data.image_changes import quantised, shrunk
from anyorder.data.imagenet32 import load_imagenet32
from anyorder.data.mnist import load_binarized_mnist, load_mnist
from anyorder.errors import ConfigError, check_choice

DATA = "ANYORDER_DATA"
"""The environment variable that names the folder of the data sets."""

BUNDLED = "digits"
READERS: Mapping[str, Callable[[Path], Images]] = {
    "cifar10": load_cifar10,
    "imagenet32": load_imagenet32,
    "mnist": load_mnist,
    "binarized_mnist": load_binarized_mnist,
}


def load_images(
    dataset: str = BUNDLED,
    folder: str | Path | None = None,
    *,
    size: Size | None = None,
    levels: int | None = None,
) -> Images:
    """Reads a public set of images, or the one that ships with scikit-learn.

    Args:
        dataset: "cifar10", "imagenet32", "mnist", "binarized_mnist", or "digits", which needs no
            file.
        folder: Where its files are; by default the environment variable ANYORDER_DATA says so.
        size: A smaller size that divides that of the images; see `shrunk`.
        levels: Fewer levels; see `quantised`.

    Example:
        >>> load_images(levels=4).name
        'digits, scikit-learn, 4 levels'
    """
    check_choice("dataset", dataset, [BUNDLED, *READERS])
    images = bundled_digits() if dataset == BUNDLED else READERS[dataset](_folder(dataset, folder))
    if size is not None:
        images = shrunk(images, size)
    return images if levels is None else quantised(images, levels)


def _folder(dataset: str, folder: str | Path | None) -> Path:
    found = folder or os.environ.get(DATA)
    if not found:
        raise ConfigError(
            f'"{dataset}" is read from files: say where they are by the environment variable '
            f"{DATA} (in Python, also by `folder`)."
        )
    return Path(found)
