"""How a CSV file is written: what separates its cells, and what its decimal comma is.

Much of Europe writes `Anna;1,5`. The first lines of a file tell it: the header has a semicolon, a
tab or a bar where the ending promised commas, and every line has as many cells as the header. A
comma between digits is a decimal comma where it cannot group thousands, as in 176,6 or 0,125; cells
such as 1,234 alone say nothing. Between commas, "1,2" in quotes may be a list, and stays text.
"""

import csv
import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from anyorder.data.coercion import COMMA
from anyorder.data.inference import NAME_OF_DIGITS
from anyorder.errors import SchemaError

HEAD_ROWS = 1000
"""Rows of a CSV file that are looked at before it is read."""

HEAD_BYTES = 2**16
"""Of a file that has no ending of a table."""

LINES_OF_A_TABLE = 10
"""So many lines with the same number of commas are no prose."""

OTHERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
"""What may separate cells, and what people call it."""

NO_SEPARATOR = "\x1f"
"""In no file: a line is then one cell."""

THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?\s*")
POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")
GROUPED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?\s*")
WHOLE = re.compile(r"\s*[+-]?\d+\s*")

MOSTLY = 0.5
"""From this share of numbers on, the cells of a column of text are read as numbers."""


class Dialect(NamedTuple):
    """How the cells of a file are written.

    Args:
        separator: Between cells.
        decimal: "." or ",".
        grouped: Whether points group thousands, as in 1.234,5.
    """

    separator: str
    decimal: str = "."
    grouped: bool = False

    @property
    def words(self) -> str:
        """What is unusual about it, for people; nothing where nothing is."""
        cells = "" if self.separator in ",\t" else f"{OTHERS[self.separator]} between cells"
        return ", ".join(filter(None, [cells, "decimal commas" if self.decimal == "," else ""]))


def dialect_of(file: Path, usual: str) -> Dialect:
    """The dialect of a CSV file by its first lines.

    Args:
        file: Also compressed.
        usual: What separates cells by the ending of the file; it does wherever it may.
    """
    lines = _first_lines(file)
    separator = _separator(lines, usual, file) if lines else usual  # pandas refuses an empty file
    if separator == ",":
        return Dialect(separator)
    cells = [cell for row in _cells(lines, separator)[1:] for cell in row]
    if not _has_decimal_commas(cells):
        return Dialect(separator)
    points = [cell for cell in cells if POINT.fullmatch(cell)]
    return Dialect(separator, ",", all(GROUPED.fullmatch(cell) for cell in points))


def _has_decimal_commas(cells: Sequence[str]) -> bool:
    """Whether a comma parts the decimals of some number, and groups the thousands of none."""
    thousands = [cell for cell in cells if THOUSANDS.fullmatch(cell)]
    if any("." in cell or cell.count(",") > 1 for cell in thousands):
        return False
    numbers = {cell for cell in cells if COMMA.fullmatch(cell) or _is_grouped(cell)}
    return bool(numbers - {*thousands})


def _is_grouped(cell: str) -> bool:
    """Whether points group thousands before a decimal comma, as in 1.234,5."""
    return "," in cell and GROUPED.fullmatch(cell) is not None


def apparent_separator(file: Path) -> str | None:
    """What divides all first lines of any file alike, some column being numbers; else None."""
    with file.open("rb") as source:
        head = source.read(HEAD_BYTES)
    lines = [line for line in head.decode("utf-8", errors="ignore").splitlines() if line.strip()]
    lines = lines[:-1] if len(head) == HEAD_BYTES else lines  # the last may be cut
    if len(lines) < LINES_OF_A_TABLE:
        return None
    return next((sign for sign in OTHERS if _is_table(lines, sign)), None)


def _is_table(lines: Sequence[str], separator: str) -> bool:
    """Verses may have a comma in each line as well, but no column of numbers."""
    if not _has(lines[0], separator) or not _divides(lines, separator):
        return False
    columns = zip(*_cells(lines, separator)[1:], strict=True)
    return any(sum(map(_is_number, column)) >= MOSTLY * len(column) for column in columns)


def _is_number(cell: str) -> bool:
    return any(pattern.fullmatch(cell) for pattern in (WHOLE, POINT, COMMA))


def _first_lines(file: Path) -> list[str]:
    lines = pd.read_csv(
        file,
        sep=NO_SEPARATOR,
        header=None,
        names=["line"],
        nrows=HEAD_ROWS,
        dtype=str,
        keep_default_na=False,
        quoting=csv.QUOTE_NONE,
    )
    return [str(line) for line in lines["line"]]


def _separator(lines: Sequence[str], usual: str, file: Path) -> str:
    """What is in the header, and divides all lines alike; else what is usual."""
    found = [sign for sign in OTHERS if sign != usual and _has(lines[0], sign)]
    if not found or (_has(lines[0], usual) and _divides(lines, usual)):
        return usual
    fitting = [sign for sign in found if _divides(lines, sign)]
    if len(fitting) == 1:
        return fitting[0]
    if _has(lines[0], usual):
        return usual
    seen = " and ".join(OTHERS[sign] for sign in found)
    raise SchemaError(
        f'"{file}" has no {OTHERS[usual]} in its first line, but {seen}, which do not divide all '
        f"lines alike. Save it again with {OTHERS[usual]} between cells, and put cells that hold "
        "one in double quotes."
    )


def _has(line: str, separator: str) -> bool:
    return len(_cells([line], separator)[0]) > 1


def _divides(lines: Sequence[str], separator: str) -> bool:
    """Whether all lines have as many cells as the first."""
    rows = _cells(lines, separator)
    return {len(row) for row in rows} == {len(rows[0])}


def _cells(lines: Sequence[str], separator: str) -> list[list[str]]:
    """The cells of lines; a cell in quotes may go over several, and the last may be cut."""
    ended = [f"{line}\n" for line in lines]
    try:
        rows = [row for row in csv.reader(ended, delimiter=separator) if row]
    except csv.Error:  # a cell of more than 131,072 characters
        return [line.split(separator) for line in lines]
    return rows[:-1] if len(lines) == HEAD_ROWS else rows


def names_of_digits(file: Path, dialect: Dialect) -> list[str]:
    """The columns of a CSV file whose first rows hold digits after a zero, such as 01234.

    Read as numbers, such postcodes and codes would lose their zeros. Refuses a header that names
    a column twice, which pandas would rename.
    """
    options: dict[str, Any] = {"sep": dialect.separator, "dtype": str, "index_col": False}
    header = pd.read_csv(file, header=None, nrows=1, **options).iloc[0]
    for name, count in Counter(header.dropna()).items():
        if count > 1:
            raise SchemaError(
                f'Column names must differ; "{name}" stands {count} times. Rename it.'
            )
    head = pd.read_csv(file, nrows=HEAD_ROWS, **options)
    return [str(name) for name in head if head[name].str.fullmatch(NAME_OF_DIGITS).any()]


def with_points(frame: pd.DataFrame, dialect: Dialect, *, text: Collection[str]) -> pd.DataFrame:
    """The frame with numbers where a column has decimal commas among its cells.

    pandas reads columns that are nothing but numbers. Here come those with grouped thousands, and
    those with a word among the numbers, which is left for others to refuse.

    Args:
        frame: As pandas read it.
        dialect: Of the file.
        text: Columns that stay as they are written.
    """
    if dialect.decimal != ",":
        return frame
    found = frame.copy(deep=False)
    for name in frame.columns:
        if name not in text and pd.api.types.is_string_dtype(frame[name].dropna()):
            found[name] = _with_points(frame[name], dialect)
    return found


def _with_points(series: pd.Series, dialect: Dialect) -> pd.Series:
    codes, distinct = pd.factorize(series)
    present = codes >= 0
    plain = [_with_point(str(value), dialect) for value in distinct]
    changed = np.array([value is not None for value in plain])
    if not present.any() or changed[codes[present]].mean() < MOSTLY:
        return series
    pairs = zip(plain, distinct, strict=True)
    cells = np.array([*(old if new is None else new for new, old in pairs), None], dtype=object)
    spelt = pd.Series(cells[codes], index=series.index, name=series.name)
    return pd.to_numeric(spelt) if changed.all() else spelt


def _with_point(cell: str, dialect: Dialect) -> str | None:
    """The number of a cell as Python writes it; None if it is none."""
    if dialect.grouped and GROUPED.fullmatch(cell):
        return cell.replace(".", "").replace(",", ".")
    return cell.replace(",", ".") if COMMA.fullmatch(cell) or WHOLE.fullmatch(cell) else None
