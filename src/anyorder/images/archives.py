"""Archives of public data sets: their files, and the arrays in their pickles, read safely.

`unpacked` reads the files of a folder, a zip or a tar archive by name, without unpacking to disk.

The archives of CIFAR-10 and ImageNet32 hold pickles, and loading a pickle can run any code.
`pickled_bytes` lists the operations of a pickle and runs none of them: it finds the parts of the
array among their arguments, and ignores the rest of the file.
"""

import lzma
import math
import pickletools
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from gzip import BadGzipFile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyorder.errors import SchemaError

Reader = Callable[[], bytes]
"""Reads one file."""

DAMAGE = (
    EOFError, BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile,
    NotImplementedError,
)  # fmt: skip
"""Errors of the archive readers on a truncated, altered or unknown archive."""

SHAPE = re.compile(r"BININT[12]? BININT[12]? TUPLE2")
"""Operations that make the shape of a table."""

ENCRYPTED = 1
"""Flag of a zip entry that needs a password."""


@contextmanager
def intact(path: Path) -> Iterator[None]:
    """Converts the errors of a damaged archive to a SchemaError."""
    try:
        yield
    except DAMAGE as error:
        raise SchemaError(
            f'"{path}" is cut off or damaged ({error}). Put a complete copy there.'
        ) from error


@contextmanager
def unpacked(path: Path) -> Iterator[Mapping[str, Reader]]:
    """Yields readers of the files of a folder (not its subfolders), a zip or a tar, by name.

    Names are without folders, and hidden files are left out: archives made on a Mac have a hidden
    copy of every file.
    """
    with intact(path), ExitStack() as stack:
        if path.is_dir():
            found = {file.name: file.read_bytes for file in path.iterdir() if file.is_file()}
        elif zipfile.is_zipfile(path):
            found = _zipped(stack.enter_context(zipfile.ZipFile(path)))
        elif tarfile.is_tarfile(path):
            found = _tarred(stack.enter_context(tarfile.open(path)))
        else:
            raise SchemaError(
                f'"{path}" must be a folder, a zip or a tar archive, and not be cut off.'
            )
        yield {name: reader for name, reader in found.items() if not name.startswith(".")}


def matching(files: Mapping[str, Reader], pattern: str) -> dict[str, Reader]:
    """Returns the files whose names match a regular expression; number 2 comes before 10."""
    names = [name for name in files if re.fullmatch(pattern, name)]
    return {name: files[name] for name in sorted(names, key=lambda name: (len(name), name))}


def _zipped(archive: zipfile.ZipFile) -> dict[str, Reader]:
    return {
        PurePosixPath(entry.filename).name: partial(_entry, archive, entry)
        for entry in archive.infolist()
        if not entry.is_dir()
    }


def _entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    if entry.flag_bits & ENCRYPTED:
        raise SchemaError(
            f'"{archive.filename}" is encrypted. Unpack it with its password, and put there what '
            "was in it."
        )
    return archive.read(entry)


def _tarred(archive: tarfile.TarFile) -> dict[str, Reader]:
    return {
        PurePosixPath(member.name).name: partial(_member, archive, member)
        for member in archive.getmembers()
        if member.isfile()
    }


def _member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return b"" if file is None else file.read()


def pickled_bytes(raw: bytes, key: str, *, file: str) -> NDArray[np.uint8]:
    """Returns the array of bytes ``(rows, columns)`` that a pickled dict holds under `key`."""
    try:
        operations = [(code.name, value) for code, value, _ in pickletools.genops(raw)]
    except Exception as error:  # a pickle that is cut off or altered can fail in any way
        raise SchemaError(
            f'"{file}" is cut off or is no pickled batch of images ({error!r}). Put a complete '
            "copy there."
        ) from error
    array = _array(operations, key)
    if array is None:
        raise SchemaError(
            f'"{file}" is a pickle, but not of a dict with an array of bytes called "{key}".'
        )
    return array


def _array(operations: list[tuple[str, Any]], key: str) -> NDArray[np.uint8] | None:
    """Returns the array whose shape, type, order and bytes stand behind a key, in this order."""
    names, values = [name for name, _ in operations], [value for _, value in operations]
    try:
        start = next(n for n, value in enumerate(values) if value in (key, key.encode()))
        place = next(n for n in range(start, len(names)) if SHAPE.match(" ".join(names[n : n + 3])))
        shape = values[place : place + 2]
        end = next(n for n in range(place, len(names)) if _is_text(values[n], math.prod(shape)))
        kind = values.index("u1", place, end)
    except (StopIteration, ValueError):
        return None
    text = values[end]
    # Strings of Python 2 are listed as text, and Python 3 pickles bytes for Python 2 as such.
    data = text.encode("latin1") if isinstance(text, str) else text
    flags = [name for name in names[kind:end] if name in ("NEWTRUE", "NEWFALSE")]
    order: Any = "F" if flags[-1:] == ["NEWTRUE"] else "C"
    return np.frombuffer(data, dtype=np.uint8).reshape(shape, order=order)


def _is_text(value: object, size: int) -> bool:
    return isinstance(value, str | bytes) and 0 < len(value) == size
