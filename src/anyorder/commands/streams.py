"""Pipes: "-" on the command line reads standard input, and writes standard output."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STREAM = "pipe:"
"""What stands for "-" where a file is meant: to the parser, a dash begins an option."""

NO_FILES = ("--given", "--hole", "--missing-values", "--queries")
"""Options whose value may be a dash that means a dash."""


def piped(words: Sequence[str]) -> list[str]:
    """The words of a command line, with `STREAM` for every "-" that means a file.

    Example:
        >>> piped(["impute", "run", "-", "--out", "-"])
        ['impute', 'run', 'pipe:', '--out', 'pipe:']
        >>> piped(["fit", "people.csv", "--missing-values", "-"])
        ['fit', 'people.csv', '--missing-values', '-']
    """
    pairs = zip(["", *words], words, strict=False)
    return [STREAM if word == "-" and before not in NO_FILES else word for before, word in pairs]


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
