"""CIFAR-10: 50,000 training and 10,000 test images of 32x32 pixels, from either public archive.

Reference: Krizhevsky (2009), Learning multiple layers of features from tiny images.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from anyorder.data.image import Images, Pixels
from anyorder.data.image_archives import Reader, matching, unpacked
from anyorder.data.image_pickles import pickled_bytes
from anyorder.data.image_public import Public, joined
from anyorder.errors import SchemaError

CIFAR10 = Public(
    name="CIFAR-10",
    train=50_000,
    test=10_000,
    held_out=0.1,
    files="cifar-10-binary.tar.gz, cifar-10-python.tar.gz or the folder that is in one of them",
    archive="https://www.cs.toronto.edu/~kriz/cifar.html",
)
PLACES = (
    ".", "cifar-10-batches-bin", "cifar-10-binary.tar.gz", "cifar-10-batches-py",
    "cifar-10-python.tar.gz",
)  # fmt: skip
"""Where it can be in a folder: the binary version first, because it is read faster."""

SIDE, CLASSES = 32, 10
ROW = 1 + 3 * SIDE * SIDE
"""Bytes of an image in the binary version: its class, then its channels."""


def load_cifar10(path: str | Path) -> Images:
    """Reads CIFAR-10 from an archive, or from the folder that holds one or was in one."""
    place = _place(Path(path))
    with unpacked(place) as files:
        ending = ".bin" if "test_batch.bin" in files else ""
        batches, test_name = matching(files, rf"data_batch_\d+{ending}"), f"test_batch{ending}"
        if not batches or test_name not in files:
            raise SchemaError(
                f'"{place}" must hold {test_name} and data_batch_1{ending} to '
                f"data_batch_5{ending}, or some of these; it has {_listed(files)}."
            )
        train = {name: _batch(name, reader()) for name, reader in batches.items()}
        test = {test_name: _batch(test_name, files[test_name]())}
    return CIFAR10.images(joined(train, side=SIDE), joined(test, side=SIDE))


def _place(path: Path) -> Path:
    if path.is_file():
        return path
    for place in (path / name for name in PLACES):
        tests = (place / "test_batch.bin", place / "test_batch")
        if place.is_file() or any(file.exists() for file in tests):
            return place
    raise CIFAR10.missing(path)


def _batch(file: str, raw: bytes) -> Pixels:
    """The images of one file as rows of bytes."""
    if not file.endswith(".bin"):
        return pickled_bytes(raw, "data", file=file)
    rows = np.frombuffer(raw, dtype=np.uint8)
    if not len(rows) or len(rows) % ROW or rows[::ROW].max() >= CLASSES:
        raise SchemaError(
            f'"{file}" is cut off or is not of CIFAR-10: it must hold images of {ROW} bytes each, '
            f"of which the first is a class from 0 to {CLASSES - 1}; it has {len(raw):,} bytes."
        )
    return rows.reshape(-1, ROW)[:, 1:]


def _listed(files: Mapping[str, Reader]) -> str:
    """The first few names, in words."""
    names = sorted(files)
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "") if names else "nothing"
