"""How a CSV file is written: what separates its cells, and what parts decimals.

Much of Europe writes `Anna;1,5`. The first lines of a file tell it: the header has a semicolon, a
tab or a bar where the ending promised commas, and every line has as many cells as the header. What
parts decimals is told by the cells of each column: see `decimals`. Between commas it is a point;
"1,2" in quotes may be a list there, and stays text.
"""

import csv
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from gzip import BadGzipFile
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import pandas as pd

from anyorder.data.decimals import Decimals, decimals_of
from anyorder.data.inference import NAME_OF_DIGITS
from anyorder.data.number_forms import signs_of
from anyorder.errors import ConfigError, SchemaError

_PANDAS = tuple(int(part) for part in pd.__version__.split(".")[:2])

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

MOSTLY = 0.5
"""From this share of numbers on, a column of any file is one of numbers."""

GAPS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""What pandas takes for a gap; it has to be listed where some columns are spared."""

NEITHER = "\x1f"
"""A decimal sign that is in no file: pandas then leaves numbers with a sign as text."""

EXACT_DECIMALS = {"float_precision": "round_trip"} if _PANDAS < (3, 1) else {}
"""0.1 must be the double that Python reads, or values would not repeat and not be round. pandas
does so of itself from 3.1 on."""


class Dialect(NamedTuple):
    """How the cells of a file are written.

    Args:
        separator: Between cells.
        decimals: What parts the decimals of its columns.
    """

    separator: str
    decimals: Decimals = Decimals()

    @property
    def decimal(self) -> str:
        """What parts the decimals of a file that is written like it: "." or ","."""
        return "," if "," in self.decimals.signs.values() else "."

    @property
    def words(self) -> str:
        """What is unusual about it, for people; nothing where nothing is."""
        cells = "" if self.separator in ",\t" else f"{OTHERS[self.separator]} between cells"
        return ", ".join(filter(None, [cells, "decimal commas" if self.decimal == "," else ""]))


class Told(NamedTuple):
    """What is known of a file before it is read.

    Args:
        missing_values: What else stands for a gap in it.
        text: Columns whose cells stay as they are written.
        known: What parts the decimals of the columns of a model that the file is for.
        decimal: What parts decimals where a column does not show it; "" if nobody said it.
    """

    missing_values: Sequence[Any] = ()
    text: Collection[str] = ()
    known: Mapping[str, str] = {}
    decimal: str = ""


NOTHING_TOLD = Told()


def dialect_of(file: Path, usual: str, told: Told = NOTHING_TOLD) -> Dialect:
    """The dialect of a CSV file by its first lines.

    Args:
        file: Also compressed.
        usual: What separates cells by the ending of the file; it does wherever it may.
        told: What is known of it.
    """
    separator = separator_of(file, usual)
    if separator == ",":
        if told.decimal == ",":
            raise ConfigError(
                f'"{file}" has commas between its cells, so that decimals must have points; got '
                '`decimal` ",". Save it with semicolons between cells.'
            )
        return Dialect(separator)
    head = pd.read_csv(file, nrows=HEAD_ROWS, **csv_options(Dialect(separator), told), dtype=str)
    head = head.drop(columns=[name for name in told.text if name in head.columns])
    return Dialect(separator, decimals_of(head, known=told.known, decimal=told.decimal or None))


def separator_of(file: Path, usual: str) -> str:
    """What separates the cells of a CSV file; see `dialect_of`."""
    lines = _first_lines(file)
    return _separator(lines, usual, file) if lines else usual  # pandas refuses an empty file


def csv_options(dialect: Dialect, told: Told) -> dict[str, Any]:
    """How pandas is to read a file; columns that it shall not touch are up to the caller."""
    signs = set(dialect.decimals.signs.values())
    return {
        "sep": dialect.separator,
        "decimal": NEITHER if len(signs) > 1 else dialect.decimal,
        "na_values": [str(marker) for marker in told.missing_values],
        "low_memory": False,  # one dtype a column, not one a block
        "index_col": False,  # a row with more cells than the header is an error, no index
        **EXACT_DECIMALS,
    }


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
    return bool(signs_of(cell))


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


def names_of_digits(file: Path, separator: str) -> list[str]:
    """The columns of a CSV file whose first rows hold digits after a zero, such as 01234, or many.

    Read as numbers, such postcodes and codes would lose their zeros, or their last digits.
    """
    check_header(file, separator)
    head = pd.read_csv(file, nrows=HEAD_ROWS, sep=separator, dtype=str, index_col=False)
    return [str(name) for name in head if head[name].str.fullmatch(NAME_OF_DIGITS).any()]


def check_header(file: Path, separator: str) -> None:
    """Refuses a header that names a column twice: pandas would rename one, and we not see it."""
    header = pd.read_csv(file, header=None, nrows=1, sep=separator, dtype=str, index_col=False)
    refuse_doubles(header.iloc[0].dropna())


def refuse_doubles(names: Iterable[str]) -> None:
    """Refuses columns of one name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise SchemaError(
                f'Column names must differ; "{name}" stands {count} times. Rename it.'
            )


@contextmanager
def in_sentences(file: Path) -> Iterator[None]:
    """Turns what pandas and pyarrow say of a damaged file into one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except UnicodeDecodeError as error:
        raise SchemaError(
            f'"{file}" is not UTF-8 text. Convert it to UTF-8 first: spreadsheets can save "CSV '
            'UTF-8".'
        ) from error
    except pd.errors.ParserWarning as error:
        raise SchemaError(
            f'"{file}" has rows with more cells than its header names. Put cells that hold a '
            "separator in double quotes."
        ) from error
    except (ValueError, BadGzipFile, BadZipFile) as error:
        if isinstance(error, SchemaError | ConfigError):
            raise
        if file.suffix.lower() == ".zip":
            raise SchemaError(
                f'"{file}" must hold one CSV file and nothing else ({error}). Unpack it, and give '
                "the file in it."
            ) from error
        raise SchemaError(f'"{file}" cannot be read as a table ({error}).') from error
