"""The dialect of a CSV file: the separator of its cells, and the decimal separator of each column.

Much of Europe writes `Anna;1,5`. The first lines of a file show the separator: the header has
semicolons, tabs or bars where the suffix promised commas, and every line has as many cells as the
header.

The cells of a column show its decimal separator (3,5 or 54.15). A column with ambiguous cells only,
such as 1.234, is read as in the training data of the model that the file is for, or as the other
columns are. If these contradict each other it is refused, because either reading may be wrong by a
factor of a thousand. If nothing decides, it is a point, and `fit` warns. In a file with commas
between cells it is a point; "1,2" in quotes may be a list there, and stays text.
"""

import csv
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from gzip import BadGzipFile
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from anyorder.errors import ConfigError, SchemaError
from anyorder.tables.parsing import decimal_separators, is_ambiguous, plainly, refuse_duplicates
from anyorder.tables.type_inference import NAME_OF_DIGITS

MOSTLY = 0.5
"""From this fraction of numbers on, the cells of a column of text are read as numbers."""


class Cell(NamedTuple):
    """A cell of a column: its text, and its row."""

    text: str
    row: int

    def __str__(self) -> str:
        return f"{self.text!r} (row {self.row})"


class Decimals(NamedTuple):
    """The decimal separators of columns, and the evidence for them.

    Args:
        signs: Decimal separator of each column for which it is known.
        shown: A cell that shows it, of each column with one.
        doubtful: An ambiguous cell, of each column with one and none that shows it.
        words: Columns of words, which may hold numbers too.
    """

    signs: Mapping[str, str] = {}
    shown: Mapping[str, Cell] = {}
    doubtful: Mapping[str, Cell] = {}
    words: Collection[str] = ()

    @property
    def undecided(self) -> dict[str, Cell]:
        """Columns with ambiguous cells that nothing decides; a point is assumed."""
        return {name: cell for name, cell in self.doubtful.items() if name not in self.signs}

    def as_read(self) -> dict[str, str]:
        """Returns the decimal separator that each column was read with, for later files."""
        points = {name: "." for name, cell in self.undecided.items() if "." in cell.text}
        return {**points, **self.signs}


def decimals_of(
    head: pd.DataFrame, *, known: Mapping[str, str], decimal: str | None = None
) -> Decimals:
    """Infers the decimal separators of columns from their first rows.

    Args:
        head: First rows as text, without columns that are kept verbatim.
        known: Decimal separators of the columns of a model.
        decimal: Decimal separator of columns that do not show it, whatever others show.
    """
    found = {name: _evidence(head[name]) for name in head.columns}
    numbers = {name: cells for name, cells in found.items() if cells is not None}
    shown = {name: sure for name, (sure, _) in numbers.items() if sure is not None}
    unsure = {name: cell for name, (_, cell) in numbers.items() if cell is not None}
    doubtful = {name: cell for name, cell in unsure.items() if name not in shown}
    signs = {name: decimal_separators(cell.text) for name, cell in shown.items()}
    expected = {name: decimal or _expected(name, signs, known) for name in numbers}
    for name, cell in doubtful.items():
        if shown and expected[name] is None:
            raise _contradiction(name, cell, shown, known)
    rest = {name: sign for name, sign in expected.items() if sign is not None}
    return Decimals({**rest, **signs}, shown, doubtful, {*found} - {*numbers})


def _evidence(series: pd.Series) -> tuple[Cell | None, Cell | None] | None:
    """Returns the first cell that shows its separator and the first ambiguous one, if numbers."""
    cells = [(Cell(text, row), decimal_separators(text)) for row, text in series.dropna().items()]
    numbers = [(cell, signs) for cell, signs in cells if signs]
    if len(numbers) < MOSTLY * len(cells):
        return None
    sure = (cell for cell, signs in numbers if len(signs) == 1)
    return next(sure, None), next((cell for cell, _ in numbers if is_ambiguous(cell.text)), None)


def _expected(name: str, signs: Mapping[str, str], known: Mapping[str, str]) -> str | None:
    """Returns the separator of a column that does not show it; None if others contradict it.

    Columns that the model does not know are assumed to be written like this one in training.
    """
    if name not in known:
        return next(iter(signs.values())) if len(set(signs.values())) == 1 else None
    alike = all(sign == known.get(other, known[name]) for other, sign in signs.items())
    return known[name] if alike else None


def _contradiction(
    name: str, cell: Cell, shown: Mapping[str, Cell], known: Mapping[str, str]
) -> SchemaError:
    signs = {other: decimal_separators(shown[other].text) for other in shown}
    if name in known:
        odd = next(o for o in signs if signs[o] != known.get(o, known[name]))
        return SchemaError(
            f'Column "{name}" holds {cell}, which may be {plainly(cell.text, known[name])} as in '
            f'training or {plainly(cell.text, signs[odd])}, because "{odd}" holds {shown[odd]}. '
            "Write all columns as they were in training, or plainly: commas between cells, points "
            "for decimals, nothing for thousands."
        )
    comma, point = (next(o for o in signs if signs[o] == sign) for sign in (",", "."))
    return SchemaError(
        f'Column "{name}" holds {cell}, which may be {plainly(cell.text, ",")} or '
        f'{plainly(cell.text, ".")}: "{comma}" holds {shown[comma]}, but "{point}" '
        f"{shown[point]}. Give the decimal separator of columns that do not show it "
        f"(--decimal , or --decimal .), or declare which column holds no numbers "
        f"(--types NAME=category)."
    )


def with_points(frame: pd.DataFrame, decimals: Decimals, *, text: Collection[str]) -> pd.DataFrame:
    """Parses numbers that pandas left as text, by the decimal separator of each column.

    pandas parses columns that are nothing but numbers. These are the columns with thousands
    separators, and those with a word among the numbers, which type inference refuses later.
    """
    if not decimals.signs:
        return frame
    found, kept = frame.copy(deep=False), {*text, *decimals.words}
    for name in frame.columns:
        if name not in kept and pd.api.types.is_string_dtype(frame[name].dropna()):
            found[name] = _with_points(frame[name], decimals.signs.get(name))
    return found


def _with_points(series: pd.Series, sign: str | None) -> pd.Series:
    codes, distinct = pd.factorize(series)
    cells = [str(value) for value in distinct]
    signs = [decimal_separators(cell) for cell in cells]
    numeric = np.array([bool(found) for found in signs], dtype=bool)
    present = codes >= 0
    if not present.any() or numeric[codes[present]].mean() < MOSTLY:
        return series
    for place, cell in enumerate(cells):
        if signs[place] and (is_ambiguous(cell) if sign is None else sign not in signs[place]):
            row = series.index[int(np.argmax(codes == place))]
            raise _odd_cell(str(series.name), Cell(cell, row), sign)
    plain = [
        plainly(cell, sign or found[0]) if found else old
        for cell, old, found in zip(cells, distinct, signs, strict=True)
    ]
    spelt = pd.Series(
        np.array([*plain, None], dtype=object)[codes], index=series.index, name=series.name
    )
    return pd.to_numeric(spelt) if numeric.all() else spelt


def _odd_cell(name: str, cell: Cell, sign: str | None) -> SchemaError:
    words = {".": "decimal points", ",": "decimal commas"}
    found = f"has {words[sign]} elsewhere" if sign else "does not show its decimal separator"
    return SchemaError(
        f'Column "{name}" {found}, but holds {cell}. Write its numbers alike; if they are no '
        "numbers, declare the column as categories (types, --types NAME=category)."
    )


_PANDAS = tuple(int(part) for part in pd.__version__.split(".")[:2])

HEAD_ROWS = 1000
"""Rows of a CSV file from which its dialect is inferred."""

HEAD_BYTES = 2**16
"""Bytes that are inspected of a file without the suffix of a table."""

LINES_OF_A_TABLE = 10
"""Least number of lines with the same number of separators that are not prose."""

SEPARATOR_NAMES = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
"""Separators of cells, and their names."""

ABSENT = "\x1f"
"""A character that is in no file. As a separator it makes a line one cell; as a decimal separator
it makes pandas leave numbers with one as text."""

MISSING_MARKERS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""Markers of missing values in pandas; they must be listed if some columns are exempt."""

EXACT_DECIMALS = {"float_precision": "round_trip"} if _PANDAS < (3, 1) else {}
"""0.1 must be the double that Python parses, or values would not repeat and not be round. It is the
default of pandas from 3.1 on."""


class Dialect(NamedTuple):
    """The separators of a CSV file."""

    separator: str
    decimals: Decimals = Decimals()

    @property
    def decimal(self) -> str:
        """The decimal separator for writing a file like it: "." or ","."""
        return "," if "," in self.decimals.signs.values() else "."

    @property
    def words(self) -> str:
        """The unusual properties, for people; "" if there are none."""
        unusual = self.separator not in ",\t"
        cells = f"{SEPARATOR_NAMES[self.separator]} between cells" if unusual else ""
        return ", ".join(filter(None, [cells, "decimal commas" if self.decimal == "," else ""]))


class CsvHints(NamedTuple):
    """Declared properties of a file, known before it is read.

    Args:
        missing_values: Additional markers of missing values.
        text: Columns that are kept verbatim.
        known: Decimal separators of the columns of a model that the file is for.
        decimal: Decimal separator of columns that do not show it; "" if not declared.
    """

    missing_values: Sequence[Any] = ()
    text: Collection[str] = ()
    known: Mapping[str, str] = {}
    decimal: str = ""


NO_HINTS = CsvHints()

VERBATIM = ("category", "ignore")
"""Types of columns whose cells are kept as they are written: 01234 is then no number."""


def dialect_of(file: Path, usual: str, hints: CsvHints = NO_HINTS) -> Dialect:
    """Infers the dialect of a CSV file from its first lines.

    `usual`, the separator by the suffix of the file, is preferred wherever possible.
    """
    separator = separator_of(file, usual)
    if separator == ",":
        if hints.decimal == ",":
            raise ConfigError(
                f'"{file}" has commas between its cells, so that decimals must have points; got '
                '`decimal` ",". Save it with semicolons between cells.'
            )
        return Dialect(separator)
    head = pd.read_csv(file, nrows=HEAD_ROWS, **csv_options(Dialect(separator), hints), dtype=str)
    head = head.drop(columns=[name for name in hints.text if name in head.columns])
    return Dialect(separator, decimals_of(head, known=hints.known, decimal=hints.decimal or None))


def separator_of(file: Path, usual: str) -> str:
    """Infers the separator of the cells of a CSV file; see `dialect_of`."""
    lines = _first_lines(file)
    return _separator(lines, usual, file) if lines else usual  # pandas refuses an empty file


def csv_options(dialect: Dialect, hints: CsvHints) -> dict[str, Any]:
    """Returns the options for pandas to read a file; the caller adds those for verbatim columns."""
    signs = set(dialect.decimals.signs.values())
    return {
        "sep": dialect.separator,
        "decimal": ABSENT if len(signs) > 1 else dialect.decimal,
        "na_values": [str(marker) for marker in hints.missing_values],
        "low_memory": False,  # one dtype a column, not one a block
        "index_col": False,  # a row with more cells than the header is an error, no index
        **EXACT_DECIMALS,
    }


def apparent_separator(file: Path) -> str | None:
    """Returns the separator that divides all first lines alike, with a column of numbers."""
    with file.open("rb") as source:
        head = source.read(HEAD_BYTES)
    lines = [line for line in head.decode("utf-8", errors="ignore").splitlines() if line.strip()]
    lines = lines[:-1] if len(head) == HEAD_BYTES else lines  # the last may be cut
    if len(lines) < LINES_OF_A_TABLE:
        return None
    return next((sign for sign in SEPARATOR_NAMES if _is_table(lines, sign)), None)


def _is_table(lines: Sequence[str], separator: str) -> bool:
    """Tests for a table: verse may have a comma in each line as well, but no column of numbers."""
    if not _has(lines[0], separator) or not _divides(lines, separator):
        return False
    columns = zip(*_cells(lines, separator)[1:], strict=True)
    numbers = ([bool(decimal_separators(cell)) for cell in column] for column in columns)
    return any(sum(found) >= MOSTLY * len(found) for found in numbers)


def _first_lines(file: Path) -> list[str]:
    lines = pd.read_csv(
        file,
        sep=ABSENT,
        header=None,
        names=["line"],
        nrows=HEAD_ROWS,
        dtype=str,
        keep_default_na=False,
        quoting=csv.QUOTE_NONE,
    )
    return [str(line) for line in lines["line"]]


def _separator(lines: Sequence[str], usual: str, file: Path) -> str:
    """Returns the separator that is in the header and divides all lines alike; else the usual."""
    found = [sign for sign in SEPARATOR_NAMES if sign != usual and _has(lines[0], sign)]
    if not found or (_has(lines[0], usual) and _divides(lines, usual)):
        return usual
    fitting = [sign for sign in found if _divides(lines, sign)]
    if len(fitting) == 1:
        return fitting[0]
    if _has(lines[0], usual):
        return usual
    seen, wanted = " and ".join(SEPARATOR_NAMES[sign] for sign in found), SEPARATOR_NAMES[usual]
    raise SchemaError(
        f'"{file}" has no {wanted} in its first line, but {seen}, which do not divide all '
        f"lines alike. Save it again with {wanted} between cells, and put cells that hold "
        "one in double quotes."
    )


def _has(line: str, separator: str) -> bool:
    return len(_cells([line], separator)[0]) > 1


def _divides(lines: Sequence[str], separator: str) -> bool:
    """Tests whether all lines have as many cells as the first."""
    rows = _cells(lines, separator)
    return {len(row) for row in rows} == {len(rows[0])}


def _cells(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Splits lines into cells; a quoted cell may span several lines, and the last may be cut."""
    ended = [f"{line}\n" for line in lines]
    try:
        rows = [row for row in csv.reader(ended, delimiter=separator) if row]
    except csv.Error:  # a cell of more than 131,072 characters
        return [line.split(separator) for line in lines]
    return rows[:-1] if len(lines) == HEAD_ROWS else rows


def digit_identifiers(file: Path, separator: str) -> list[str]:
    """Returns the columns whose first rows hold digits with leading zeros (01234), or too many.

    Read as numbers, such postcodes and account numbers would lose their zeros or last digits.
    """
    check_header(file, separator)
    head = pd.read_csv(file, nrows=HEAD_ROWS, sep=separator, dtype=str, index_col=False)
    return [str(name) for name in head if head[name].str.fullmatch(NAME_OF_DIGITS).any()]


def check_header(file: Path, separator: str) -> None:
    """Refuses a header that names a column twice: pandas would silently rename one."""
    header = pd.read_csv(file, header=None, nrows=1, sep=separator, dtype=str, index_col=False)
    refuse_duplicates(header.iloc[0].dropna())


@contextmanager
def explained_errors(file: Path) -> Iterator[None]:
    """Converts the errors of pandas and pyarrow on a damaged file to a SchemaError."""
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
