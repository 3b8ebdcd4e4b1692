"""The files of a folder, a zip or a tar archive by their names, none of them unpacked to disk."""

import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from gzip import BadGzipFile
from pathlib import Path, PurePosixPath

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
