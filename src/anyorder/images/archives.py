"""An array out of a pickle, without running what the pickle says.

The public archives of CIFAR-10 and ImageNet32 hold pickles, and opening a pickle can run any code.
Here the few names that a pickled array needs are given stand-ins, which keep what they are told and
do nothing; every other name is refused. The array is then made of the bytes that were kept.

Python's own reader in Python is used, not the one in C: its memo is a dict, where a file of a few
bytes cannot ask for gigabytes, and it can be told to refuse keys whose hash takes forever.

The files of a folder, a zip or a tar archive by their names, none of them unpacked to disk.
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
"""What the readers of archives raise where one is cut off, altered or compressed in another way."""

ENCRYPTED = 1
"""The flag of an entry of a zip that asks for a password."""


@contextmanager
def intact(path: Path) -> Iterator[None]:
    """Says in a sentence that an archive is damaged, where reading it finds so."""
    try:
        yield
    except DAMAGE as error:
        raise SchemaError(
            f'"{path}" is cut off or damaged ({error}). Put a complete copy there.'
        ) from error


@contextmanager
def unpacked(path: Path) -> Iterator[Mapping[str, Reader]]:
    """The files of a folder (not of those inside it), a zip or a tar, to be read while it is open.

    Names are without folders, and hidden files are left out: archives made on a Mac have a hidden
    shadow of every file.
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
    """The files whose name is `pattern`, a regular expression; number 2 comes before number 10."""
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
    """The array of bytes that a pickled dict holds under `key`.

    Args:
        raw: The pickle, of Python 2 or 3.
        key: Of the dict.
        file: What to call it in an error.
    """
    try:
        found = _Reader(io.BytesIO(raw), encoding="bytes").load()
    except SchemaError as error:
        raise SchemaError(f'"{file}" {error}') from None
    except Exception as error:  # a pickle that is cut off or altered can fail in any way
        raise SchemaError(
            f'"{file}" is cut off or is no pickled batch of images ({error!r}). Put a complete '
            "copy there."
        ) from error
    told = found.get(key, found.get(key.encode())) if isinstance(found, dict) else None
    array = _array(told) if isinstance(told, _Told) else None
    if array is None:
        raise SchemaError(f'"{file}" must hold a dict with an array of bytes called "{key}".')
    return array


class _Told:
    """Stands in for an array, and for its type: keeps what a pickle says about it."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes for Python 2."""
    del encoding  # it is always this one
    return text.encode("latin1")


MOST = 2**40
"""Of bytes along an axis: what a pickle says may be a number of a million digits."""

STAND_INS = {
    ("numpy", "ndarray"): _Told,
    ("numpy", "dtype"): _Told,
    ("numpy.core.multiarray", "_reconstruct"): _Told,
    ("numpy._core.multiarray", "_reconstruct"): _Told,
    ("_codecs", "encode"): _latin1,
}
"""All that a pickled array may name."""


REFUSED = (
    pickle.PERSID, pickle.BINPERSID, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.INST, pickle.OBJ,
    pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET,
    pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER,
)  # fmt: skip
"""What no pickled array needs: other ways to name things, and sets, which hash what is in them."""


InPython: Any = pickle._Unpickler
"""Python's reader, whose methods typeshed does not list."""


class _Reader(InPython):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Any]] = dict(InPython.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        """A stand-in for what a pickle names."""
        if (module, name) not in STAND_INS:
            raise SchemaError(
                f"is a pickle that asks for {module}.{name}, and is not opened: only arrays are "
                "read, because a pickle can run any code. Put the public file there."
            )
        return STAND_INS[module, name]

    def load_build(self) -> None:
        """Tells a stand-in what it stands for; nothing else can be changed."""
        if not isinstance(self.stack[-2], _Told):
            raise SchemaError("is a pickle that sets what is not an array, and is not opened.")
        super().load_build()

    def load_setitem(self) -> None:
        """One key of a dict."""
        _check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        """Several keys of a dict: they and their values are all on the stack, since the mark."""
        _check_keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        """A dict of what is on the stack."""
        _check_keys(self.stack[::2])
        super().load_dict()

    def load_refused(self) -> None:
        """What no pickled array needs."""
        raise SchemaError("is a pickle of something else than a batch of images.")

    dispatch |= dict.fromkeys((code[0] for code in REFUSED), load_refused)
    dispatch |= {
        pickle.BUILD[0]: load_build,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
    }


def _check_keys(keys: list[Any]) -> None:
    """Names only: the hash of tuples in tuples doubles with each, and never ends."""
    if not all(isinstance(key, str | bytes) for key in keys):
        raise SchemaError("is a pickle of something else than a batch of images.")


def _array(told: _Told) -> NDArray[np.uint8] | None:
    """The array that was told about, or None where it is not one of bytes."""
    try:
        _, shape, kind, is_fortran, data = told.state
        if kind.arguments[0] not in ("u1", b"u1") or not isinstance(data, bytes):
            return None
        if any(not 0 <= size < MOST for size in shape) or math.prod(shape) != len(data):
            return None
        order: Any = "F" if is_fortran else "C"
        return np.frombuffer(data, dtype=np.uint8).reshape(shape, order=order)
    except (TypeError, ValueError, AttributeError, IndexError):
        return None
