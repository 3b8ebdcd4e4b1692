"""Images in files (PNG, JPEG, WebP or BMP), one by one or a folder of them."""

import io
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anyorder.errors import ConfigError, SchemaError
from anyorder.images.data import MAX_LEVELS, Images, Pixels, Shape, Size, check_size, random_parts

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
"""Formats to decode, by Pillow's names. By default Pillow tries all that it knows, whatever the
suffix, and some of them start another program: Ghostscript for EPS."""

LONGEST = {".webp": 16_383, ".jpg": 65_500, ".jpeg": 65_500}
"""Greatest number of pixels of a side, for formats where it is small."""

GREY = ("1", "L", "LA")
"""Pillow's modes of images without colour."""

DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
"""Pillow's modes of images with more than 8 bits a channel."""

NEEDS_PILLOW = 'Pictures in files need Pillow: pip install "anyorder[image]".'


def load_image_folder(
    folder: str | Path, *, size: Size | None = None, channels: int | None = None
) -> Images:
    """Reads all images of a folder and its subfolders.

    Subfolders "train" and "test", and "valid" or "val" if present, are the split; otherwise images
    are split at random with a fixed seed. Transparency is dropped.

    Args:
        folder: Folder of PNG, JPEG, WebP or BMP files.
        size: Size to which images are cropped, centred, and resized. By default all must have one
            size.
        channels: 1 for grey, 3 for colour. By default all files must have the same.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(f'There is no folder "{folder}".')
    train, valid, test = _parts(folder)
    first = read_image(train[0], size=size, channels=channels)

    def read(files: Sequence[Path]) -> Pixels:
        found = np.empty((len(files), *first.shape), dtype=np.uint8)
        for place, file in enumerate(files):
            picture = read_image(file, size=size, channels=channels)
            if picture.shape != first.shape:
                raise SchemaError(
                    f'All pictures must be alike; "{file}" is {_shown(picture)} and "{train[0]}" '
                    f"{_shown(first)}. {_remedy(picture, first)}"
                )
            found[place] = picture
        return found

    return Images(folder.resolve().name, MAX_LEVELS, read(train), read(valid), read(test))


def folder_shape(folder: str | Path, *, size: Size | None = None) -> Shape:
    """Returns the shape of the images that `load_image_folder` would read, from the first file.

    It is known before any image is resized and all of them are in memory.
    """
    height, width, channels = read_image(_parts(Path(folder))[0][0]).shape
    if size is not None:
        height, width = check_size(size)
    return Shape(height, width, channels)


def picture_files(folder: Path) -> Iterator[Path]:
    """Yields the image files of a folder and its subfolders, without hidden ones."""
    for file in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.suffix.lower() in ENDINGS and not hidden and not file.is_dir():
            yield file


def read_image(
    file: str | Path, *, size: Size | None = None, channels: int | None = None
) -> Pixels:
    """Reads one image ``(height, width, channels)``; see `load_image_folder`."""
    file = Path(file)
    check_picture_file(file)
    return pixels_of(decoded(file, str(file)), name=str(file), size=size, channels=channels)


def check_picture_file(file: Path) -> None:
    """Refuses a path that is not a file, before it is read as an image."""
    if file.is_dir():
        raise ConfigError(
            f'"{file}" is a folder, where one picture ({", ".join(ENDINGS)}) must be given. Name '
            "the file in it."
        )
    if not file.is_file():
        raise ConfigError(f'There is no file "{file}".')


def write_image(file: str | Path, picture: Pixels) -> None:
    """Writes an image ``(height, width, channels)`` of 1 or 3 channels, as its suffix says."""
    file = Path(file)
    if file.suffix.lower() not in ENDINGS:
        raise ConfigError(f'A picture\'s name must end in {", ".join(ENDINGS)}; got "{file.name}".')
    found = _encoded(picture)
    longest = LONGEST.get(file.suffix.lower())
    if longest is not None and max(found.size) > longest:
        raise ConfigError(
            f'"{file.name}" would be {picture.shape[0]}x{picture.shape[1]} (height x width), and '
            f"{file.suffix} holds {longest:,} pixels a side at most: write a .png."
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    found.save(file)


def png_bytes(picture: Pixels) -> bytes:
    """Returns an image as the bytes of a PNG file."""
    file = io.BytesIO()
    _encoded(picture).save(file, format="PNG", optimize=True)
    return file.getvalue()


def _encoded(picture: Pixels) -> "Image.Image":
    """Converts an image to Pillow's class."""
    _need_pillow()
    from PIL import Image

    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (1, 3):
        raise SchemaError(
            "A picture must be uint8 of shape (height, width, 1 or 3); got "
            f"{picture.dtype} of shape {picture.shape}."
        )
    return Image.fromarray(picture[:, :, 0] if picture.shape[2] == 1 else picture)


def decoded(source: Path | bytes, name: str) -> "Image.Image":
    """Decodes an image to Pillow's class, upright; `name` is its name in errors."""
    _need_pillow()
    from PIL import Image, ImageOps

    file = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with warnings.catch_warnings():
            # A decompression bomb is refused before it is read.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=FORMATS) as image:
                return ImageOps.exif_transpose(image)
    except (
        OSError,
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise SchemaError(f'"{name}" is not a whole picture ({error}).') from error


def pixels_of(
    image: "Image.Image", *, name: str, size: Size | None = None, channels: int | None = None
) -> Pixels:
    """Returns the pixels ``(height, width, channels)`` of a Pillow image."""
    from PIL import Image, ImageOps

    if channels not in (None, 1, 3):
        raise ConfigError(f"`channels` must be 1 (grey) or 3 (colours); got {channels!r}.")
    check_depth(image, name)
    is_grey = image.mode in GREY if channels is None else channels == 1
    image = image.convert("L" if is_grey else "RGB")
    if size is not None:
        height, width = check_size(size)
        # BOX averages the pixels of a block: `shrunk` does the same for whole factors.
        image = ImageOps.fit(image, (width, height), method=Image.Resampling.BOX)
    found = np.array(image, dtype=np.uint8)
    return found[:, :, None] if is_grey else found


def check_depth(image: "Image.Image", name: str) -> None:
    """Refuses more than 8 bits a channel, which Pillow would clip instead of scaling."""
    if image.mode in DEEP:
        raise SchemaError(
            f'"{name}" must have 8 bits a channel; it has more (mode {image.mode}). Save it so.'
        )


def _need_pillow() -> None:
    if find_spec("PIL") is None:
        raise ConfigError(NEEDS_PILLOW)


def _parts(folder: Path) -> tuple[Sequence[Path], Sequence[Path], Sequence[Path]]:
    """Returns the files for training, validation and test."""
    named = [name for name in ("train", "valid", "val", "test") if (folder / name).is_dir()]
    if not {"train", "test"} <= set(named):
        train, valid, test = _random_split(_pictures(folder), 3)
        return train, valid, test
    found = {name: _pictures(folder / name) for name in named}
    train, valid = found["train"], found.get("valid", found.get("val", []))
    if not valid:
        train, valid = _random_split(train, 2)
    return train, valid, found["test"]


def _pictures(folder: Path) -> list[Path]:
    files = sorted(picture_files(folder))
    if not files:
        raise ConfigError(f'There are no pictures in "{folder}": put {", ".join(ENDINGS)} there.')
    for file in files:
        if not file.exists():
            raise ConfigError(f'"{file}" is a link to a file that is gone. Delete or mend it.')
    return files


def _random_split(files: Sequence[Path], number: int) -> list[list[Path]]:
    return [[files[place] for place in part] for part in random_parts(len(files), number)]


def _remedy(one: Pixels, other: Pixels) -> str:
    """Returns how to make images alike, in words."""
    sized = "`size` (`--size`) crops and resizes all of them."
    coloured = "Save all in grey or all in colours, or pass `channels` in Python."
    ways = [sized] if one.shape[:2] != other.shape[:2] else []
    return " ".join(ways + ([coloured] if one.shape[2] != other.shape[2] else []))


def _shown(picture: Pixels) -> str:
    height, width, channels = picture.shape
    return f"{height}x{width} of {'one channel' if channels == 1 else f'{channels} channels'}"
