"""ImageNet at 32x32 pixels, of which there are two public versions.

The older one (van den Oord et al. 2016) is a folder of PNG files; the newer one (Chrabaszcz et al.
2017), the paper's, was made smaller by averages and comes as pickles or npz. They are different
images and their likelihoods must not be compared: the name of what is read says which one it is.

References:
    van den Oord, Kalchbrenner and Kavukcuoglu (2016), Pixel recurrent neural networks.
    Chrabaszcz, Loshchilov and Hutter (2017), A downsampled variant of ImageNet.
"""

import io
from pathlib import Path

import numpy as np

from anyorder.data.image import Images, Pixels
from anyorder.data.image_archives import matching, unpacked
from anyorder.data.image_files import decoded, pixels_of
from anyorder.data.image_pickles import pickled_bytes
from anyorder.data.image_public import Public, joined
from anyorder.errors import ConfigError, SchemaError

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

SIDE = 32
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
    """Where the training and the validation images of the newer version are."""
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
    """The folder or archive of a name."""
    places = (folder / f"{stem}{ending}" for ending in ARCHIVES)
    return next((place for place in places if place.exists()), None)


def _batches(place: Path, pattern: str) -> Pixels:
    """The images of the pickles or npz files of a name, whichever are there."""
    with unpacked(place) as files:
        found = matching(files, rf"{pattern}\.npz") or matching(files, pattern)
        if not found:
            raise SchemaError(f'"{place}" must hold files called {pattern}; it has none.')
        return joined({name: _batch(name, read()) for name, read in found.items()}, side=SIDE)


def _batch(file: str, raw: bytes) -> Pixels:
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
    """The images of the PNG files of a folder or archive, in an order of chance, always alike.

    Of chance, because the last are held out, and names may go by classes.
    """
    with unpacked(place) as files:
        pngs = {name: read for name, read in files.items() if name.endswith(".png")}
        if not pngs:
            raise SchemaError(f'"{place}" must hold PNG files; it has none.')
        order = np.random.default_rng(0).permutation(len(pngs))
        rank = dict(zip(sorted(pngs), order, strict=True))
        found = np.empty((len(pngs), SIDE, SIDE, 3), dtype=np.uint8)
        for name, read in pngs.items():  # as the archive has them: going back in one takes long
            picture = pixels_of(decoded(read(), name), name=name, channels=3)
            if picture.shape != found.shape[1:]:
                height, width, _ = picture.shape
                raise SchemaError(f'"{name}" must be {SIDE}x{SIDE}; it is {height}x{width}.')
            found[rank[name]] = picture
    return found
