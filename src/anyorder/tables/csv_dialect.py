"""How a CSV file is written: what separates its cells, and what parts decimals.

Much of Europe writes `Anna;1,5`. The first lines of a file tell it: the header has a semicolon, a
tab or a bar where the ending promised commas, and every line has as many cells as the header. What
parts decimals is told by the cells of each column: see `decimals`. Between commas it is a point;
"1,2" in quotes may be a list there, and stays text.

What parts the decimals of each column of a CSV file: a point or a comma.

A column whose cells show it (3,5 or 54.15) is read by what it shows. One with cells such as 1.234
alone is read as the model was that the file is for, or as the other columns show. Where these
contradict each other it is refused, because either reading may be wrong a thousand times; where
nothing tells, a point parts decimals, and `fit` says so.
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

import numpy as np
import pandas as pd

from anyorder.errors import ConfigError, SchemaError
from anyorder.tables.parsing import is_doubtful, plainly, signs_of
from anyorder.tables.type_inference import NAME_OF_DIGITS

MOSTLY = 0.5
"""From this share of numbers on, the cells of a column of text are read as numbers."""


class Cell(NamedTuple):
    """A cell of a column: what is written there, and in which row."""

    text: str
    row: int

    def __str__(self) -> str:
        return f"{self.text!r} (row {self.row})"


class Decimals(NamedTuple):
    """What parts the decimals of columns, and how it is known.

    Args:
        signs: The sign of each column of which it is known.
        shown: A cell of each column that shows it.
        doubtful: A cell of each column that has doubtful cells, and none that shows it.
        words: Columns of words, among which there may be numbers that show nothing.
    """

    signs: Mapping[str, str] = {}
    shown: Mapping[str, Cell] = {}
    doubtful: Mapping[str, Cell] = {}
    words: Collection[str] = ()

    @property
    def undecided(self) -> dict[str, Cell]:
        """Columns with doubtful cells that nothing decides; their points part decimals."""
        return {name: cell for name, cell in self.doubtful.items() if name not in self.signs}

    def as_read(self) -> dict[str, str]:
        """The sign of each column that was read by one, for files that come later."""
        points = {name: "." for name, cell in self.undecided.items() if "." in cell.text}
        return {**points, **self.signs}


def decimals_of(
    head: pd.DataFrame, *, known: Mapping[str, str], decimal: str | None = None
) -> Decimals:
    """What parts the decimals of columns, by their first rows.

    Args:
        head: Of text, without columns that stay as they are written.
        known: The signs of the columns of a model.
        decimal: The sign where a column does not show it, whatever others do.
    """
    found = {name: _evidence(head[name]) for name in head.columns}
    numbers = {name: cells for name, cells in found.items() if cells is not None}
    shown = {name: sure for name, (sure, _) in numbers.items() if sure is not None}
    unsure = {name: cell for name, (_, cell) in numbers.items() if cell is not None}
    doubtful = {name: cell for name, cell in unsure.items() if name not in shown}
    signs = {name: signs_of(cell.text) for name, cell in shown.items()}
    expected = {name: decimal or _expected(name, signs, known) for name in numbers}
    for name, cell in doubtful.items():
        if shown and expected[name] is None:
            raise _contradiction(name, cell, shown, known)
    rest = {name: sign for name, sign in expected.items() if sign is not None}
    return Decimals({**rest, **signs}, shown, doubtful, {*found} - {*numbers})


def _evidence(series: pd.Series) -> tuple[Cell | None, Cell | None] | None:
    """The first cell that shows its sign, and the first that is doubtful; None among words."""
    cells = [(Cell(text, row), signs_of(text)) for row, text in series.dropna().items()]
    numbers = [(cell, signs) for cell, signs in cells if signs]
    if len(numbers) < MOSTLY * len(cells):
        return None
    sure = (cell for cell, signs in numbers if len(signs) == 1)
    return next(sure, None), next((cell for cell, _ in numbers if is_doubtful(cell.text)), None)


def _expected(name: str, signs: Mapping[str, str], known: Mapping[str, str]) -> str | None:
    """The sign of a column that does not show it, unless others contradict each other or a model.

    Others of which a model knows nothing are supposed to be written as this column was.
    """
    if name not in known:
        return next(iter(signs.values())) if len(set(signs.values())) == 1 else None
    alike = all(sign == known.get(other, known[name]) for other, sign in signs.items())
    return known[name] if alike else None


def _contradiction(
    name: str, cell: Cell, shown: Mapping[str, Cell], known: Mapping[str, str]
) -> SchemaError:
    signs = {other: signs_of(shown[other].text) for other in shown}
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
        f"{shown[point]}. Say which sign parts decimals where a column does not show it "
        f"(--decimal , or --decimal .), or which column holds no numbers (--types NAME=category)."
    )


def with_points(frame: pd.DataFrame, decimals: Decimals, *, text: Collection[str]) -> pd.DataFrame:
    """The frame with numbers where pandas left text, by the sign of each column.

    pandas reads columns that are nothing but numbers. Here come those with grouped thousands, and
    those with a word among the numbers, which is left for others to refuse.

    Args:
        frame: As pandas read it.
        decimals: Of the file.
        text: Columns that stay as they are written.
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
    signs = [signs_of(cell) for cell in cells]
    numeric = np.array([bool(found) for found in signs], dtype=bool)
    present = codes >= 0
    if not present.any() or numeric[codes[present]].mean() < MOSTLY:
        return series
    for place, cell in enumerate(cells):
        if signs[place] and (is_doubtful(cell) if sign is None else sign not in signs[place]):
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
    told = f"has {words[sign]} elsewhere" if sign else "does not tell what parts its decimals"
    return SchemaError(
        f'Column "{name}" {told}, but holds {cell}. Write its numbers alike; if they are no '
        "numbers, declare the column as categories (types, --types NAME=category)."
    )


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
