"""Pipes: "-" on the command line reads standard input, and writes standard output."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STREAM = "pipe:"
"""What stands for "-" after the command line was read: there, a dash begins an option."""


@contextmanager
def reading(file: str | Path) -> Iterator[Path]:
    """A file, or a copy of what comes by standard input: tables are read more than once."""
    if str(file) != STREAM:
        yield Path(file)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "stdin.csv"
        with copy.open("wb") as kept:
            shutil.copyfileobj(sys.stdin.buffer, kept)
        yield copy


@contextmanager
def writing(out: str | Path) -> Iterator[Path]:
    """A file, or one whose lines go to standard output once it is complete."""
    if str(out) != STREAM:
        yield Path(out)
        return
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "stdout.csv"
        yield written
        sys.stdout.flush()
        with written.open("rb") as lines:
            shutil.copyfileobj(lines, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def told(out: Path) -> str:
    """Where something was written, for people."""
    return "standard output" if str(out) == STREAM else str(out)
