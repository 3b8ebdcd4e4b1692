"""Public data sets of images, by name: CIFAR-10, ImageNet32, MNIST and binarized MNIST.

Published numbers are on the public test images. Most of these sets have no validation images: the
last of the training images are held out.

CIFAR-10 is read from either public archive; MNIST from its idx files, or in the fixed binarisation
on which density models are compared. ImageNet at 32x32 pixels has two public versions. The older
one (van den Oord et al. 2016) is a folder of PNG files; the newer one (Chrabaszcz et al. 2017), the
paper's, was downsampled by averages and comes as pickles or npz. They are different images and
their likelihoods must not be compared: the name of the set says which one it is.

References:
    Krizhevsky (2009), Learning multiple layers of features from tiny images.
    van den Oord, Kalchbrenner and Kavukcuoglu (2016), Pixel recurrent neural networks.
    Chrabaszcz, Loshchilov and Hutter (2017), A downsampled variant of ImageNet.
    LeCun, Bottou, Bengio and Haffner (1998), Gradient-based learning applied to document
    recognition.
    Larochelle and Murray (2011), The neural autoregressive distribution estimator.
"""

import gzip
import hashlib
import io
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from anyorder.errors import ConfigError, SchemaError, check_choice
from anyorder.images.archives import Reader, intact, matching, pickled_bytes, unpacked
from anyorder.images.data import MAX_LEVELS, Images, Pixels, Size, bundled_digits, quantised, shrunk
from anyorder.images.files import decoded, pixels_of


@dataclass(frozen=True)
class Public:
    """A public data set.

    `train` and `test` are numbers of images, `held_out` the fraction of the former for validation;
    `files` says what to put into the folder, and `archive` where it comes from.
    """

    name: str
    train: int
    test: int
    held_out: float
    files: str
    archive: str
    levels: int = MAX_LEVELS

    def images(self, train: Pixels, test: Pixels, *, valid: Pixels | None = None) -> Images:
        """Returns the images that were read; the name says so if they are not the whole set."""
        if valid is None:
            if len(train) < 2:
                raise SchemaError(f"{self.name} must have two training images at least.")
            held_out = max(1, round(self.held_out * len(train)))
            train, valid = train[:-held_out], train[-held_out:]
        name = self._name(len(train) + len(valid), len(test))
        is_public = len(test) == self.test
        return Images(name, self.levels, train, valid, test, is_public_test=is_public)

    def missing(self, folder: Path) -> ConfigError:
        """Returns the error that says which files to put where."""
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
    """Joins rows of bytes, channel by channel, of some files into square colour images."""
    for file, rows in batches.items():
        if rows.ndim != 2 or rows.shape[1] != 3 * side * side:
            raise SchemaError(
                f'"{file}" must hold rows of {3 * side * side} bytes, images of 3 channels of '
                f"{side}x{side}; its shape is {rows.shape}."
            )
    # A view: the bytes stay channel by channel, which is how variables are numbered.
    return np.concatenate([*batches.values()]).reshape(-1, 3, side, side).transpose(0, 2, 3, 1)


CIFAR10 = Public(
    name="CIFAR-10",
    train=50_000,
    test=10_000,
    held_out=0.1,
    files="cifar-10-binary.tar.gz, cifar-10-python.tar.gz or the folder that is in one of them",
    archive="https://www.cs.toronto.edu/~kriz/cifar.html",
)
CIFAR10_PLACES = (
    ".", "cifar-10-batches-bin", "cifar-10-binary.tar.gz", "cifar-10-batches-py",
    "cifar-10-python.tar.gz",
)  # fmt: skip
"""Places in a folder, the binary version first, because it is read faster."""

CIFAR10_SIDE, CIFAR10_CLASSES = 32, 10
CIFAR10_ROW = 1 + 3 * CIFAR10_SIDE * CIFAR10_SIDE
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
        train = {name: _cifar10_batch(name, reader()) for name, reader in batches.items()}
        test = {test_name: _cifar10_batch(test_name, files[test_name]())}
    return CIFAR10.images(joined(train, side=CIFAR10_SIDE), joined(test, side=CIFAR10_SIDE))


def _place(path: Path) -> Path:
    if path.is_file():
        return path
    for place in (path / name for name in CIFAR10_PLACES):
        tests = (place / "test_batch.bin", place / "test_batch")
        if place.is_file() or any(file.exists() for file in tests):
            return place
    raise CIFAR10.missing(path)


def _cifar10_batch(file: str, raw: bytes) -> Pixels:
    """Returns the images of one file as rows of bytes."""
    if not file.endswith(".bin"):
        return pickled_bytes(raw, "data", file=file)
    rows = np.frombuffer(raw, dtype=np.uint8)
    if not len(rows) or len(rows) % CIFAR10_ROW or rows[::CIFAR10_ROW].max() >= CIFAR10_CLASSES:
        raise SchemaError(
            f'"{file}" is cut off or is not of CIFAR-10: it must hold images of {CIFAR10_ROW} '
            f"bytes each, of which the first is a class from 0 to {CIFAR10_CLASSES - 1}; it has "
            f"{len(raw):,} bytes."
        )
    return rows.reshape(-1, CIFAR10_ROW)[:, 1:]


def _listed(files: Mapping[str, Reader]) -> str:
    """Returns the first few names, in words."""
    names = sorted(files)
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "") if names else "nothing"


NEWER = Public(
    name="ImageNet32, newer version (Chrabaszcz et al.)",
    train=1_281_167,
    test=50_000,
    held_out=0.01,
    files="Imagenet32_train.zip and Imagenet32_val.zip, with pickles or npz, or what is in them",
    archive="https://image-net.org/download-images",
)
OLDER = Public(
    name="ImageNet32, older version (van den Oord et al.)",
    train=1_281_149,
    test=49_999,
    held_out=0.01,
    files="train_32x32 and valid_32x32, folders of PNG files, or their .zip or .tar",
    archive="copies of image-net.org/small, which is gone",
)

IMAGENET_SIDE = 32
ARCHIVES = ("", ".zip", ".tar", ".tar.gz")


def load_imagenet32(folder: str | Path) -> Images:
    """Reads the version of ImageNet32 that a folder holds; its validation images are the test."""
    folder = Path(folder)
    newer, older = _newer(folder), _older(folder)
    if newer and older:
        raise ConfigError(
            f'"{folder}" must hold one version of ImageNet32, and it holds both, whose numbers '
            "cannot be compared. Put them into two folders."
        )
    if newer:
        train, test = newer
        batches = _batches(train, r"train_data_batch_\d+")
        return NEWER.images(batches, _batches(test, "val_data"))
    if older:
        train, test = older
        return OLDER.images(_pictures(train), _pictures(test))
    raise ConfigError(
        f'There is no ImageNet32 in "{folder}": put {NEWER.files} there (from {NEWER.archive}), '
        f"or, for the older version, {OLDER.files} (from {OLDER.archive})."
    )


def _newer(folder: Path) -> tuple[Path, Path] | None:
    """Returns the places of the training and the validation images of the newer version."""
    places = []
    for part, files in (("train", "train_data_batch_*"), ("val", "val_data*")):
        here = folder if any(folder.glob(files)) else None
        stem = f"Imagenet32_{part}"
        places.append(here or _first(folder, stem) or _first(folder, f"{stem}_npz"))
    train, test = places
    return (train, test) if train and test else None


def _older(folder: Path) -> tuple[Path, Path] | None:
    train, test = _first(folder, "train_32x32"), _first(folder, "valid_32x32")
    return (train, test) if train and test else None


def _first(folder: Path, stem: str) -> Path | None:
    """Returns the folder or archive of a name."""
    places = (folder / f"{stem}{ending}" for ending in ARCHIVES)
    return next((place for place in places if place.exists()), None)


def _batches(place: Path, pattern: str) -> Pixels:
    """Reads the images of the pickles or npz files of a name."""
    with unpacked(place) as files:
        found = matching(files, rf"{pattern}\.npz") or matching(files, pattern)
        if not found:
            raise SchemaError(f'"{place}" must hold files called {pattern}; it has none.')
        return joined(
            {name: _imagenet_batch(name, read()) for name, read in found.items()},
            side=IMAGENET_SIDE,
        )


def _imagenet_batch(file: str, raw: bytes) -> Pixels:
    if not file.endswith(".npz"):
        return pickled_bytes(raw, "data", file=file)
    try:
        data = np.load(io.BytesIO(raw), allow_pickle=False)["data"]
    except Exception as error:  # an npz that is encrypted or altered can fail in any way
        raise SchemaError(
            f'"{file}" is cut off, encrypted or holds no array of bytes called "data" ({error}).'
        ) from error
    if data.dtype != np.uint8:
        raise SchemaError(f'"data" of "{file}" must be of uint8; it is of {data.dtype}.')
    return data


def _pictures(place: Path) -> Pixels:
    """Reads the PNG files of a folder or archive, in random order with a fixed seed.

    The order is random because the last images are held out, and names may go by classes.
    """
    with unpacked(place) as files:
        pngs = {name: read for name, read in files.items() if name.endswith(".png")}
        if not pngs:
            raise SchemaError(f'"{place}" must hold PNG files; it has none.')
        order = np.random.default_rng(0).permutation(len(pngs))
        rank = dict(zip(sorted(pngs), order, strict=True))
        found = np.empty((len(pngs), IMAGENET_SIDE, IMAGENET_SIDE, 3), dtype=np.uint8)
        for name, read in pngs.items():  # in the order of the archive: seeking back is slow
            picture = pixels_of(decoded(read(), name), name=name, channels=3)
            if picture.shape != found.shape[1:]:
                height, width, _ = picture.shape
                raise SchemaError(
                    f'"{name}" must be {IMAGENET_SIDE}x{IMAGENET_SIDE}; it is {height}x{width}.'
                )
            found[rank[name]] = picture
    return found


MNIST = Public(
    name="MNIST",
    train=60_000,
    test=10_000,
    held_out=1 / 6,
    files="train-images-idx3-ubyte.gz and t10k-images-idx3-ubyte.gz, or these without .gz,",
    archive="https://ossci-datasets.s3.amazonaws.com/mnist",
)
TEST_SHA256 = "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
"""Hash of MNIST's test images. Fashion-MNIST and others have files of the same names and sizes."""

BINARIZED = Public(
    name="binarized MNIST",
    train=60_000,
    test=10_000,
    held_out=1 / 6,
    files="binarized_mnist_train.amat, binarized_mnist_valid.amat and binarized_mnist_test.amat",
    archive="http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist",
    levels=2,
)
MNIST_PLACES = (".", "MNIST/raw", "MNIST", "mnist", "binarized_mnist")
"""Places of the files in a folder."""

MNIST_SIDE = 28
IDX_IMAGES = 2051
"""Magic number of an idx file of images: bytes, along three axes."""

GZIP = b"\x1f\x8b"
"""Magic number of a compressed file."""


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
    """Reads the images of an idx file, compressed by gzip or not."""
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
    """Reads the binarized MNIST of Larochelle, with its public split.

    The public test file is sorted by digit. It is shuffled with a fixed seed, so that its first
    images are representative.
    """
    folder = Path(folder)
    names = [f"binarized_mnist_{part}.amat" for part in ("train", "valid", "test")]
    for place in (folder / name for name in MNIST_PLACES):
        if all((place / name).exists() for name in names):
            train, valid, test = (read_amat(place / name) for name in names)
            shuffled = np.random.default_rng(0).permutation(len(test))
            return BINARIZED.images(train, test[shuffled], valid=valid)
    raise BINARIZED.missing(folder)


def read_amat(file: str | Path) -> Pixels:
    """Reads the images of a text file of zeros and ones, one image of 28x28 a line."""
    rows = []
    with Path(file).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            values = line.split()
            if len(values) != MNIST_SIDE * MNIST_SIDE or not set(values) <= {b"0", b"1"}:
                raise SchemaError(
                    f'"{file}" is cut off or is not of binarized MNIST: each line must hold '
                    f"{MNIST_SIDE * MNIST_SIDE} zeros and ones; line {number} does not."
                )
            rows.append(b"".join(values))
    digits = np.frombuffer(b"".join(rows), dtype=np.uint8)
    return (digits - ord("0")).reshape(-1, MNIST_SIDE, MNIST_SIDE, 1)


def _idx_file(folder: Path, part: str) -> Path:
    for place in (folder / name for name in MNIST_PLACES):
        for name in (f"{part}-images-idx3-ubyte", f"{part}-images.idx3-ubyte"):
            for file in (place / name, place / f"{name}.gz"):
                if file.is_file():
                    return file
    raise MNIST.missing(folder)


def _uncompressed(file: Path) -> bytes:
    raw = file.read_bytes()
    with intact(file):
        return gzip.decompress(raw) if raw.startswith(GZIP) else raw


DATA = "ANYORDER_DATA"
"""Environment variable that names the folder of the data sets."""

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
        folder: Folder of its files; by default that of the environment variable ANYORDER_DATA.
        size: Smaller size that divides that of the images; see `shrunk`.
        levels: Smaller number of levels; see `quantised`.

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
