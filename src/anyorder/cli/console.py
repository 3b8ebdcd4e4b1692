"""The standard streams: tables for people, values for JSON, notes on standard error, files as "-".

"-" on the command line is standard input or standard output. Text for a terminal is made printable
first: names and cells of a file can hold control sequences. Nothing heavy is imported here, so that
`anyorder --help` answers at once.
"""

import datetime
import json
import math
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pandas as pd

ROW = "row"
"""Heading of the row numbers, where the columns of a frame are split over several tables."""

FRAME = 3
"""Characters of a column beside its cells; the table has one more."""

UNBOUNDED = 10_000
"""Width of lines that go to a file or a pipe, where nothing needs to be cut."""


def note(sentence: str) -> None:
    """Prints a line on standard error; standard output is for the answer."""
    Console(stderr=True, markup=False, highlight=False, soft_wrap=True).print(printable(sentence))


def shell(*words: object) -> str:
    """Returns a command as it can be typed."""
    return shlex.join(str(word) for word in words)


def show(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    numbers: Sequence[str] = (),
    aside: bool = False,
) -> None:
    """Prints a table; on a terminal that is too narrow, cells go over several lines.

    The columns that `numbers` names are aligned to the right; `aside` prints to standard error.
    """
    console = _console(aside=aside)
    table = Table()
    for name in columns:
        side: Literal["left", "right"] = "right" if name in numbers else "left"
        table.add_column(Text(printable(name)), justify=side, overflow="fold")
    for row in rows:
        table.add_row(
            *(Text(printable(cell)) for cell in row)
        )  # brackets are brackets, not rich's markup
    if title is not None:  # not the table's own, which is folded to its width
        console.print(printable(title), soft_wrap=True)
    console.print(table)


def show_rows(frame: "pd.DataFrame") -> int:
    """Prints the rows of a frame, in several tables where a terminal is too narrow for one.

    Returns:
        Number of tables.
    """
    cells = [[words(cell) for cell in row] for row in frame.itertuples(index=False)]
    names = [str(name) for name in frame.columns]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    number = len(str(len(cells)))
    parts = _fitting(widths, _console().width, first=max(number, len(ROW)))
    for part in parts:
        numbered = [ROW] if len(parts) > 1 else []
        rows = [
            [*([str(place)] if numbered else []), *(row[column] for column in part)]
            for place, row in enumerate(cells, start=1)
        ]
        show([*numbered, *(names[column] for column in part)], rows)
    return len(parts)


def _fitting(widths: Sequence[int], width: int, *, first: int) -> list[list[int]]:
    """Splits columns into parts that fit the width; of several, each begins with row numbers."""
    if sum(widths) + FRAME * len(widths) + 1 <= width:
        return [list(range(len(widths)))]
    parts: list[list[int]] = [[]]
    used = start = first + FRAME + 1
    for place, wide in enumerate(widths):
        if parts[-1] and used + wide + FRAME > width:
            parts.append([])
            used = start
        parts[-1].append(place)
        used += wide + FRAME
    return parts


def _console(*, aside: bool = False) -> Console:
    stream = sys.stderr if aside else sys.stdout
    width = None if stream.isatty() else UNBOUNDED
    return Console(file=stream, width=width, markup=False, highlight=False)


def words(value: Any) -> str:
    """Formats a value for people: six digits of a number, a date without its midnight."""
    import pandas as pd

    if value is None or value is pd.NaT or value is pd.NA or value != value:
        return ""
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        return str(value).removesuffix(" 00:00:00")
    if isinstance(value, Integral):
        return str(int(value))
    number = float(value)
    return f"{number:.6g}" if abs(number) < 1e6 or not math.isfinite(number) else f"{number:.0f}"


def records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Returns the rows of a frame as values that JSON can hold; a missing value is null."""
    columns = [[plain(value) for value in frame[name].tolist()] for name in frame.columns]
    return [dict(zip(frame.columns, cells, strict=True)) for cells in zip(*columns, strict=True)]


def plain(value: Any) -> Any:
    """Returns a value that JSON can hold; a missing value is None."""
    import pandas as pd

    if value is None or value is pd.NaT or value is pd.NA:
        return None
    value = value.item() if hasattr(value, "item") and not hasattr(value, "isoformat") else value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime.timedelta):
        return str(value)
    return value.isoformat() if hasattr(value, "isoformat") else value


def print_json(document: Mapping[str, Any]) -> None:
    """Prints a JSON object as one line, the last of standard output."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def check_target(out: str | Path, *sources: str | Path | None) -> None:
    """Raises a `ConfigError`, before the work, if `out` is a folder or one of the inputs."""
    from anyorder.errors import ConfigError

    if str(out) == STREAM:
        return
    if Path(out).is_dir():
        raise ConfigError(f'`--out` must be a file; "{out}" is a folder.')
    for source in sources:
        both = source is not None and Path(out).exists() and Path(source).exists()
        if both and Path(out).samefile(str(source)):
            raise ConfigError(
                f'`--out` must be another file than the one that is read, "{source}": it would '
                "be lost. Choose another name."
            )


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
