"""MNIST, in its own files (idx) and in the fixed binarisation on which density models are compared.

References:
    LeCun, Bottou, Bengio and Haffner (1998), Gradient-based learning applied to document
    recognition.
    Larochelle and Murray (2011), The neural autoregressive distribution estimator.
"""

import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np

from anyorder.data.image import Images, Pixels
from anyorder.data.image_archives import intact
from anyorder.data.image_public import Public
from anyorder.errors import SchemaError

MNIST = Public(
    name="MNIST",
    train=60_000,
    test=10_000,
    held_out=1 / 6,
    files="train-images-idx3-ubyte.gz and t10k-images-idx3-ubyte.gz, or these without .gz,",
    archive="https://ossci-datasets.s3.amazonaws.com/mnist",
)
TEST_SHA256 = "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
"""Of MNIST's test images. Fashion-MNIST and others have files of the same names and sizes."""

BINARIZED = Public(
    name="binarized MNIST",
    train=60_000,
    test=10_000,
    held_out=1 / 6,
    files="binarized_mnist_train.amat, binarized_mnist_valid.amat and binarized_mnist_test.amat",
    archive="http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist",
    levels=2,
)
PLACES = (".", "MNIST/raw", "MNIST", "mnist", "binarized_mnist")
"""Where the files can be in a folder."""

SIDE = 28
IDX_IMAGES = 2051
"""The number with which an idx file of images begins: bytes, along three axes."""

GZIP = b"\x1f\x8b"
"""With which a compressed file begins."""


def load_mnist(folder: str | Path) -> Images:
    """Reads MNIST, or another set in its files, which is then not called MNIST."""
    folder = Path(folder)
    train, test = (_idx_file(folder, part) for part in ("train", "t10k"))
    found = MNIST.images(read_idx(train), read_idx(test))
    if hashlib.sha256(_uncompressed(test)).hexdigest() == TEST_SHA256:
        return found
    name = f"images in MNIST's format, {len(found.train) + len(found.valid):,} to train on"
    return replace(found, name=name, is_public_test=False)


def read_idx(file: str | Path) -> Pixels:
    """The images of an idx file, compressed by gzip or not."""
    file = Path(file)
    raw = _uncompressed(file)
    header = struct.unpack(">4I", raw[:16]) if len(raw) >= 16 else (0, 0, 0, 0)
    magic, count, height, width = header
    if magic != IDX_IMAGES:
        raise SchemaError(
            f'"{file}" is not an idx file of images: it must begin with the number {IDX_IMAGES}.'
        )
    if len(raw) - 16 != count * height * width or not count:
        raise SchemaError(
            f'"{file}" is cut off or damaged: it must hold {count:,} images of {height}x{width}, '
            f"and has {len(raw) - 16:,} bytes for them."
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=16).reshape(count, height, width, 1)


def load_binarized_mnist(folder: str | Path) -> Images:
    """Reads the binarised MNIST of Larochelle, with its own three parts.

    The public test file is sorted by digit. It is shuffled, always alike, so that its first images
    stand for all of them.
    """
    folder = Path(folder)
    names = [f"binarized_mnist_{part}.amat" for part in ("train", "valid", "test")]
    for place in (folder / name for name in PLACES):
        if all((place / name).exists() for name in names):
            train, valid, test = (read_amat(place / name) for name in names)
            shuffled = np.random.default_rng(0).permutation(len(test))
            return BINARIZED.images(train, test[shuffled], valid=valid)
    raise BINARIZED.missing(folder)


def read_amat(file: str | Path) -> Pixels:
    """The images of a text file of zeros and ones between blanks, one image of 28x28 a line."""
    rows = []
    with Path(file).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            values = line.split()
            if len(values) != SIDE * SIDE or not set(values) <= {b"0", b"1"}:
                raise SchemaError(
                    f'"{file}" is cut off or is not of binarized MNIST: each line must hold '
                    f"{SIDE * SIDE} zeros and ones; line {number} does not."
                )
            rows.append(b"".join(values))
    digits = np.frombuffer(b"".join(rows), dtype=np.uint8)
    return (digits - ord("0")).reshape(-1, SIDE, SIDE, 1)


def _idx_file(folder: Path, part: str) -> Path:
    for place in (folder / name for name in PLACES):
        for name in (f"{part}-images-idx3-ubyte", f"{part}-images.idx3-ubyte"):
            for file in (place / name, place / f"{name}.gz"):
                if file.is_file():
                    return file
    raise MNIST.missing(folder)


def _uncompressed(file: Path) -> bytes:
    raw = file.read_bytes()
    with intact(file):
        return gzip.decompress(raw) if raw.startswith(GZIP) else raw
