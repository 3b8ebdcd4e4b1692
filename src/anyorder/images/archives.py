"""Archives of public data sets: their files, and the arrays in their pickles, read safely.

`unpacked` reads the files of a folder, a zip or a tar archive by name, without unpacking to disk.

The archives of CIFAR-10 and ImageNet32 hold pickles, and loading a pickle can run any code.
`pickled_bytes` replaces the few classes that a pickled array needs by stand-ins, which record their
arguments and do nothing; every other name is refused. The array is then built from the recorded
bytes. The unpickler in Python is used, not the one in C: its memo is a dict, so that a file of a
few bytes cannot allocate gigabytes, and it can refuse keys whose hash takes forever.
"""

import io
import lzma
import math
import pickle
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from gzip import BadGzipFile
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

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
    """Returns the array of bytes that a pickled dict holds under `key`."""
    try:
        found = _Reader(io.BytesIO(raw), encoding="bytes").load()
    except SchemaError as error:
        raise SchemaError(f'"{file}" {error}') from None
    except Exception as error:  # a pickle that is cut off or altered can fail in any way
        raise SchemaError(
            f'"{file}" is cut off or is no pickled batch of images ({error!r}). Put a complete '
            "copy there."
        ) from error
    record = found.get(key, found.get(key.encode())) if isinstance(found, dict) else None
    array = _array(record) if isinstance(record, _Recorded) else None
    if array is None:
        raise SchemaError(f'"{file}" must hold a dict with an array of bytes called "{key}".')
    return array


class _Recorded:
    """Stand-in for an array, and for its dtype: records the arguments in a pickle."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _latin1(text: str, encoding: str) -> bytes:
    """Decodes the bytes that Python 3 pickles for Python 2."""
    del encoding  # it is always this one
    return text.encode("latin1")


MOST = 2**40
"""Greatest size of an axis: a number in a pickle may have a million digits."""

STAND_INS = {
    ("numpy", "ndarray"): _Recorded,
    ("numpy", "dtype"): _Recorded,
    ("numpy.core.multiarray", "_reconstruct"): _Recorded,
    ("numpy._core.multiarray", "_reconstruct"): _Recorded,
    ("_codecs", "encode"): _latin1,
}
"""All names that a pickled array may use."""


REFUSED = (
    pickle.PERSID, pickle.BINPERSID, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.INST, pickle.OBJ,
    pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET,
    pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER,
)  # fmt: skip
"""Opcodes that no pickled array needs: other ways to name classes, and sets, which hash members."""


InPython: Any = pickle._Unpickler
"""The unpickler in Python, whose methods typeshed does not list."""


class _Reader(InPython):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Any]] = dict(InPython.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        """Returns the stand-in of a class that a pickle names."""
        if (module, name) not in STAND_INS:
            raise SchemaError(
                f"is a pickle that asks for {module}.{name}, and is not opened: only arrays are "
                "read, because a pickle can run any code. Put the public file there."
            )
        return STAND_INS[module, name]

    def load_build(self) -> None:
        """Sets the state of a stand-in; no other object can be changed."""
        if not isinstance(self.stack[-2], _Recorded):
            raise SchemaError("is a pickle that sets what is not an array, and is not opened.")
        super().load_build()

    def load_setitem(self) -> None:
        """Checks and sets one key of a dict."""
        _check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        """Checks and sets keys of a dict: they and their values are on the stack since the mark."""
        _check_keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        """Checks the keys and builds a dict of the stack."""
        _check_keys(self.stack[::2])
        super().load_dict()

    def load_refused(self) -> None:
        """Refuses an opcode that no pickled array needs."""
        raise SchemaError("is a pickle of something else than a batch of images.")

    dispatch |= dict.fromkeys((code[0] for code in REFUSED), load_refused)
    dispatch |= {
        pickle.BUILD[0]: load_build,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
    }


def _check_keys(keys: list[Any]) -> None:
    """Refuses keys that are not names: the hash of nested tuples takes exponential time."""
    if not all(isinstance(key, str | bytes) for key in keys):
        raise SchemaError("is a pickle of something else than a batch of images.")


def _array(record: _Recorded) -> NDArray[np.uint8] | None:
    """Builds the recorded array; None if it is not one of bytes."""
    try:
        _, shape, kind, is_fortran, data = record.state
        if kind.arguments[0] not in ("u1", b"u1") or not isinstance(data, bytes):
            return None
        if any(not 0 <= size < MOST for size in shape) or math.prod(shape) != len(data):
            return None
        order: Any = "F" if is_fortran else "C"
        return np.frombuffer(data, dtype=np.uint8).reshape(shape, order=order)
    except (TypeError, ValueError, AttributeError, IndexError):
        return None
