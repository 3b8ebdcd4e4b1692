"""Standard streams: "-" on the command line is standard input or standard output.

Text for a terminal is made printable first: names and cells of a file can hold control sequences.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

KEPT = "\n\t"
"""Control characters that only move the cursor on."""

CONTROLS = {
    code: chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) not in KEPT
}
"""Visible sign for each control character: an escape could rename the window or hide output."""


def printable(text: str) -> str:
    r"""Replaces control characters by visible signs.

    Example:
        >>> printable("a\x1b[2Jb\n")
        'a␛[2Jb\n'
    """
    return text.translate(CONTROLS)


STREAM = "pipe:"
"""Stand-in for "-" as a file: to the parser, a dash begins an option."""

NO_FILES = ("--given", "--hole", "--missing-values", "--queries")
"""Options whose value may be a dash that means a dash."""


def piped(words: Sequence[str]) -> list[str]:
    """Returns the words of a command line, with `STREAM` for every "-" that means a file.

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
    """Yields a file, or a copy of standard input: tables are read more than once."""
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
    """Yields a file to write, or one whose lines go to standard output once it is complete."""
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


def destination(out: Path) -> str:
    """Names the place where something was written, for people."""
    return "standard output" if str(out) == STREAM else str(out)
