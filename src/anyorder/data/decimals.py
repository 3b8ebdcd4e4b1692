"""What parts the decimals of each column of a CSV file: a point or a comma.

A column whose cells show it (3,5 or 54.15) is read by what it shows. One with cells such as 1.234
alone is read as the model was that the file is for, or as the other columns show. Where these
contradict each other it is refused, because either reading may be wrong a thousand times; where
nothing tells, a point parts decimals, and `fit` says so.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from anyorder.data.number_forms import is_doubtful, plainly, signs_of
from anyorder.errors import SchemaError

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
