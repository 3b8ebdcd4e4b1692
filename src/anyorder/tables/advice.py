"""Advice that `fit` prints about a table: warnings before training, and next steps after it.

Before: columns that would spoil a model, one sentence with a remedy each. After: whether the
training was long enough, and commands to try on this very table.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from anyorder.cli.console import STREAM, shell, words
from anyorder.priors.tree_fit import dependence
from anyorder.tables.columns import CategoryColumn, Column, NumberColumn
from anyorder.tables.csv_dialect import Cell, Decimals, Dialect
from anyorder.tables.files import COMPRESSED, STREAMS
from anyorder.tables.model import TableModel
from anyorder.tables.parsing import ORDERS, is_foreign, plainly, possible_orders
from anyorder.tables.questions import Question, quoted, written_given
from anyorder.tables.schema import TableSchema

FEW_ROWS = 50
"""Least number of rows to learn anything from."""

NEARLY_EMPTY = 0.95
"""Share of missing values from which on a column is learnt from too few rows."""

DISTINCT = 0.9
"""Share of distinct values from which on a category identifies its rows."""

LEVELS = 10
"""Least number of levels that is worth a warning."""

MANY_LEVELS, ROWS_A_LEVEL = 50, 3
"""Number of levels above which, with fewer rows for each, most levels are seen once or twice."""

MOSTLY = 0.9
"""Share of levels from which on a category looks like something else."""

DAY = re.compile(r"\s*\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T]\d{1,2}:\d{2}.*)?\s*")


class ColumnWarning(NamedTuple):
    """A warning, and the column that it advises to leave out, if any."""

    sentence: str
    column: str | None = None


def column_warnings(frame: pd.DataFrame, table: TableSchema) -> Iterator[ColumnWarning]:
    """Yields warnings about a table before it is fitted, each with its remedy.

    Example:
        >>> frame = pd.DataFrame({"id": [f"k{i}" for i in range(60)], "age": [1, 2, 3] * 20})
        >>> [warning.sentence for warning in column_warnings(frame, TableSchema.infer(frame))]
        ['"id" differs in every row: leave it out with --types id=ignore']
    """
    if len(frame) < FEW_ROWS:
        yield ColumnWarning(
            f"{len(frame)} rows are too few to learn from: answers will be little more than "
            "guesses. Some hundreds of rows are a start."
        )
    for column in (*table.query, *table.context):
        leave_out = f"leave it out with {types_flag(column.name, 'ignore')}"
        words = _column_warning(column, frame[column.name], leave_out)
        if words:
            name = column.name if words.endswith(leave_out) else None
            yield ColumnWarning(f'"{column.name}" {words}', name)


def identifier_columns(frame: pd.DataFrame, table: TableSchema) -> list[str]:
    """Returns the columns that only identify rows: keys, and row numbers.

    Example:
        >>> frame = pd.DataFrame({"id": [f"k{i}" for i in range(60)], "age": [1, 2, 3] * 20})
        >>> identifier_columns(frame, TableSchema.infer(frame))
        ['id']
    """
    if len(frame) < FEW_ROWS:
        return []
    return [column.name for column in table.query if _is_identifier(column, frame[column.name])]


def _is_identifier(column: Column, values: pd.Series) -> bool:
    if isinstance(column, CategoryColumn):
        texts = [level for level in column.levels if isinstance(level, str)]
        odd = _are_days(texts) or _are_foreign(texts)
        return not odd and len(column.levels) >= max(FEW_ROWS, DISTINCT * values.notna().sum())
    return _counts_rows(values)


def decimal_warnings(dialect: Dialect | None, *, declared: bool) -> Iterator[ColumnWarning]:
    """Yields warnings about the decimal separators of a CSV file, one for all columns alike."""
    found = Decimals() if dialect is None or declared else dialect.decimals
    supposed = {name: cell for name, cell in found.doubtful.items() if name in found.signs}
    if found.undecided:
        yield ColumnWarning(_undecided(found.undecided))
    if supposed:
        yield ColumnWarning(_supposed(supposed, found))
    commas, points = ([n for n in found.shown if found.signs[n] == sign] for sign in ",.")
    if commas and points:
        one, other = commas[0], points[0]
        yield ColumnWarning(
            f'"{one}" has decimal commas ({found.shown[one].text}) and "{other}" decimal points '
            f"({found.shown[other].text}): each is read by its own separator; a column that is no "
            f"number needs {types_flag(one, 'category')}"
        )


def _undecided(columns: Mapping[str, Cell]) -> str:
    text = next(iter(columns.values())).text.strip()
    either = f"nothing in the file shows whether {_all(columns)} {text} is {plainly(text, '.')} or "
    either += plainly(text, ",")
    if "." in text:
        return f"{either}: it is read as {plainly(text, '.')}; give --decimal , if it is the other"
    return f"{either}: it is read as text; give --decimal , or --decimal . to have numbers"


def _supposed(columns: Mapping[str, Cell], found: Decimals) -> str:
    """Warns of columns whose decimal separator is taken from other columns."""
    name, cell = next(iter(columns.items()))
    sign, text = found.signs[name], cell.text.strip()
    shown = next(other for other in found.shown if found.signs[other] == sign)
    contrary = "." if sign == "," else ","
    return (
        f"{_all(columns)} {text} is read as {plainly(text, sign)}, because "
        f'"{shown}" has {found.shown[shown].text.strip()}; if it is {plainly(text, contrary)}, '
        f"give --decimal {contrary}"
    )


def _all(columns: Mapping[str, Cell]) -> str:
    name, more = next(iter(columns)), len(columns) - 1
    return f'in "{name}"' + (f" (and so in {more} more)" if more else "")


def remedy(found: Sequence[ColumnWarning], types: Mapping[str, str]) -> str | None:
    """Returns how to fit again without the columns that warnings advise to leave out.

    Example:
        >>> remedy([ColumnWarning("...", "k")], {})
        'To leave it out, press Ctrl-C, and give the same command with --types k=ignore --overwrite'
    """
    names = [warning.column for warning in found if warning.column is not None]
    if not names:
        return None
    kinds = {**types, **dict.fromkeys(names, "ignore")}
    flag = shell("--types", ",".join(f"{quoted(name)}={kind}" for name, kind in kinds.items()))
    them = "them" if len(names) > 1 else "it"
    return f"To leave {them} out, press Ctrl-C, and give the same command with {flag} --overwrite"


def _column_warning(column: Column, values: pd.Series, leave_out: str) -> str | None:
    """Returns the gravest warning about a column, if there is any."""
    present = round(len(values) * (1 - column.missing_share))
    only = _only_value(column, values)
    if only is not None:
        return (
            f"is {words(only)} wherever it is observed: it carries no information, and impute will "
            f"fill every missing value with it; {leave_out}"
        )
    if column.missing_share > NEARLY_EMPTY:
        return (
            f"is observed in {present:,} of {len(values):,} rows: impute will fill all others from "
            f"these few; {leave_out}"
        )
    if isinstance(column, CategoryColumn):
        return _levels_warning(column, present, leave_out)
    if isinstance(column, NumberColumn) and _counts_rows(values):
        return f"numbers the rows: {leave_out}"
    return None


def _only_value(column: Column, values: pd.Series) -> object:
    """Returns the value that all rows have, or None."""
    if isinstance(column, NumberColumn) and column.seen[0] < column.seen[1]:
        return None
    if isinstance(column, CategoryColumn) and len(column.levels) > 2:
        return None
    distinct = values.dropna().unique()
    return distinct[0] if len(distinct) == 1 else None


def _levels_warning(column: CategoryColumn, present: int, leave_out: str) -> str | None:
    count = len(column.levels)
    if count < LEVELS:
        return None
    texts = [level for level in column.levels if isinstance(level, str)]
    if _are_days(texts):
        found = f"looks like dates ({texts[0]}) and is read as {count:,} categories: "
        if possible_orders(texts):
            day, month = (types_flag(column.name, order) for order in ORDERS)
            return f"{found}give {day} if the day comes first, {month} if the month does"
        return f"{found}write them as 2024-12-31 to have them read as dates"
    if _are_foreign(texts):
        return (
            f"looks like numbers with commas ({texts[0]}) and is read as {count:,} categories: "
            "write decimals with a point, and thousands without a comma"
        )
    if count >= DISTINCT * present:
        return f"differs in {'every row' if count >= present else 'nearly every row'}: {leave_out}"
    if count > MANY_LEVELS and present < ROWS_A_LEVEL * count:
        return (
            f"has {count:,} levels in {present:,} rows, most of them too rare to learn: merge them "
            f"into fewer levels, or {leave_out}"
        )
    return None


def _are_days(texts: list[str]) -> bool:
    return sum(DAY.fullmatch(text) is not None for text in texts) >= MOSTLY * max(1, len(texts))


def _are_foreign(texts: list[str]) -> bool:
    """Returns whether texts look like numbers in another notation."""
    return sum(map(is_foreign, texts)) >= MOSTLY * max(1, len(texts))


def _counts_rows(values: pd.Series) -> bool:
    """Returns whether values number the rows one by one."""
    if len(values) < FEW_ROWS or not pd.api.types.is_integer_dtype(values.dtype):
        return False
    return bool((np.diff(values.to_numpy()) == 1).all()) if values.notna().all() else False


def types_flag(name: str, kind: str) -> str:
    """Returns the flag that declares the type of a column, as it can be typed.

    Example:
        >>> types_flag("born on", "dmy")
        '--types "born on=dmy"'
    """
    if re.fullmatch(r"[\w .-]+", name):
        return f'--types "{name}={kind}"' if " " in name else f"--types {name}={kind}"
    return shell("--types", f"{quoted(name)}={kind}")


ROWS, COLUMNS = 2000, 40
"""Numbers of rows and columns in which the most dependent columns are searched."""

MOSTLY_OBSERVED = 0.5
"""Least share of rows that have a column, for its dependence on others to be no chance."""


def trust_hint(out: Path) -> str:
    """Returns the commands that evaluate a model, in a sentence."""
    evaluate, check = (shell("anyorder", verb, out, "new.csv") for verb in ("evaluate", "check"))
    return f"Evaluate it on rows that it has not seen: `{evaluate}` and `{check}`."


def suggestions(
    model: TableModel,
    frame: pd.DataFrame,
    questions: Sequence[Question] | None,
    *,
    file: Path,
    out: Path,
) -> Iterator[str]:
    """Yields commands to try, with the columns and a row of this table."""
    names = model.table_.names
    given, query, _ = questions[0] if questions else _dependent_pair(model.table_, frame)
    known = [*(column.name for column in model.table_.context), *given]
    rows = frame[known].dropna()
    evidence = {} if rows.empty else {name: words(rows[name].iloc[0]) for name in known}
    flags = ["--given", written_given(evidence)] if evidence else []
    first = min(query, key=names.index)  # the model was trained for it, given the evidence alone
    yield shell("anyorder", "query", out, "--of", quoted(first), *flags)
    if questions is not None:
        return
    if frame[list(names)].isna().to_numpy().any():
        packed = file.suffix.lower() in {*COMPRESSED} - {*STREAMS}  # which is not written
        name = file.stem if packed else file.name
        filled = "filled.csv" if str(file) == STREAM else file.with_name(f"filled-{name}")
        yield shell("anyorder", "impute", out, file, "--out", filled)
    else:
        yield shell("anyorder", "sample", out, "--n", 5, *flags)


def _dependent_pair(table: TableSchema, frame: pd.DataFrame) -> Question:
    """Returns the two most dependent columns as a query: the later given the earlier."""
    rows = frame.iloc[:: max(1, len(frame) // ROWS)]
    observed = [name for name in table.names if rows[name].notna().mean() > MOSTLY_OBSERVED]
    names = [name for name in observed if _is_informative(rows[name])][:COLUMNS]
    names = names or list(table.names)
    places = [table.names.index(name) for name in names]
    x, missing = table.encode(rows)
    levels = [table[name].variable.num_levels for name in names]
    information = dependence(x[:, places], ~missing[:, places], levels)
    if not information.any():
        return names[:-1][:1], names[-1:], 1.0
    first, second = sorted(divmod(int(information.argmax()), len(names)))
    return [names[first]], [names[second]], 1.0


def _is_informative(values: pd.Series) -> bool:
    """Returns whether a column is neither constant nor an identifier."""
    there = values.dropna()
    distinct = there.nunique()
    measured = pd.api.types.is_float_dtype(there.dtype) and not (there % 1 == 0).all()
    return distinct > 1 and (measured or distinct < max(0.9 * len(there), 3))
