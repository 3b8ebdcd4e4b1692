"""Columns that would ruin a model, and what to do about each: one sentence a column.

How the training of a table ended, in words: was it long enough?

Commands to try after a table was fitted: a question worth asking, and whether to trust it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
import pandas as pd

from anyorder.cli.console import shell, words
from anyorder.cli.streams import STREAM
from anyorder.tables.categories import CategoryColumn
from anyorder.tables.columns import Column, NumberColumn
from anyorder.tables.csv_dialect import Cell, Decimals, Dialect
from anyorder.tables.files import COMPRESSED, STREAMS
from anyorder.tables.model import TableModel
from anyorder.tables.notation import Question, quoted, written_given
from anyorder.tables.orders import mutual_information
from anyorder.tables.parsing import ORDERS, is_foreign, plainly, possible_orders
from anyorder.tables.schema import TableSchema
from anyorder.training.loop import Fit
from anyorder.training.progress import read_metrics

FEW_ROWS = 50
"""Under so many rows nothing can be learnt."""

NEARLY_EMPTY = 0.95
"""From this share of gaps on, a column is learnt from too few rows."""

DISTINCT = 0.9
"""From this share of rows that differ on, a category names its rows."""

LEVELS = 10
"""Fewer levels than this are worth no doubt."""

MANY_LEVELS, ROWS_A_LEVEL = 50, 3
"""With more levels than this, and fewer rows for each, most levels are seen once or twice."""

MOSTLY = 0.9
"""From this share of levels on, a category looks like something else."""

DAY = re.compile(r"\s*\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T]\d{1,2}:\d{2}.*)?\s*")


class Doubt(NamedTuple):
    """What is doubtful, and the column that had better be left out, if any."""

    sentence: str
    column: str | None = None


def doubts(frame: pd.DataFrame, table: TableSchema) -> Iterator[Doubt]:
    """What is doubtful about a table before it is fitted, and the remedy.

    Example:
        >>> frame = pd.DataFrame({"id": [f"k{i}" for i in range(60)], "age": [1, 2, 3] * 20})
        >>> [doubt.sentence for doubt in doubts(frame, TableSchema.infer(frame))]
        ['"id" differs in every row: leave it out with --types id=ignore']
    """
    if len(frame) < FEW_ROWS:
        yield Doubt(
            f"{len(frame)} rows are too few to learn anything from them: answers will be little "
            "more than guesses. Some hundreds of rows are a start."
        )
    for column in (*table.query, *table.context):
        leave_out = f"leave it out with {declaring(column.name, 'ignore')}"
        words = _doubt(column, frame[column.name], leave_out)
        if words:
            name = column.name if words.endswith(leave_out) else None
            yield Doubt(f'"{column.name}" {words}', name)


def naming_rows(frame: pd.DataFrame, table: TableSchema) -> list[str]:
    """The columns that say which row it is, and nothing of it: identifiers, and numbers of rows.

    Example:
        >>> frame = pd.DataFrame({"id": [f"k{i}" for i in range(60)], "age": [1, 2, 3] * 20})
        >>> naming_rows(frame, TableSchema.infer(frame))
        ['id']
    """
    if len(frame) < FEW_ROWS:
        return []
    return [column.name for column in table.query if _names_rows(column, frame[column.name])]


def _names_rows(column: Column, values: pd.Series) -> bool:
    if isinstance(column, CategoryColumn):
        texts = [level for level in column.levels if isinstance(level, str)]
        odd = _are_days(texts) or _are_foreign(texts)
        return not odd and len(column.levels) >= max(FEW_ROWS, DISTINCT * values.notna().sum())
    return _counts_rows(values)


def doubts_of_decimals(dialect: Dialect | None, *, declared: bool) -> Iterator[Doubt]:
    """What is doubtful about the numbers of a CSV file: one sentence for columns alike.

    Args:
        dialect: Of the file; None for another.
        declared: Whether someone said what parts decimals.
    """
    found = Decimals() if dialect is None or declared else dialect.decimals
    supposed = {name: cell for name, cell in found.doubtful.items() if name in found.signs}
    if found.undecided:
        yield Doubt(_undecided(found.undecided))
    if supposed:
        yield Doubt(_supposed(supposed, found))
    commas, points = ([n for n in found.shown if found.signs[n] == sign] for sign in ",.")
    if commas and points:
        one, other = commas[0], points[0]
        yield Doubt(
            f'"{one}" has decimal commas ({found.shown[one].text}) and "{other}" decimal points '
            f"({found.shown[other].text}): each is read by its own; what is no number needs "
            f"{declaring(one, 'category')}"
        )


def _undecided(columns: Mapping[str, Cell]) -> str:
    text = next(iter(columns.values())).text.strip()
    told = f"nothing in the file tells whether {_all(columns)} {text} is {plainly(text, '.')} or "
    told += plainly(text, ",")
    if "." in text:
        return f"{told}: it is read as {plainly(text, '.')}; say --decimal , if it is the other"
    return f"{told}: it is read as text; say --decimal , or --decimal . to have numbers"


def _supposed(columns: Mapping[str, Cell], found: Decimals) -> str:
    """Of columns that are read as others are."""
    name, cell = next(iter(columns.items()))
    sign, text = found.signs[name], cell.text.strip()
    shown = next(other for other in found.shown if found.signs[other] == sign)
    contrary = "." if sign == "," else ","
    return (
        f"{_all(columns)} {text} is read as {plainly(text, sign)}, because "
        f'"{shown}" has {found.shown[shown].text.strip()}; if it is {plainly(text, contrary)}, say '
        f"--decimal {contrary}"
    )


def _all(columns: Mapping[str, Cell]) -> str:
    name, more = next(iter(columns)), len(columns) - 1
    return f'in "{name}"' + (f" (and so in {more} more)" if more else "")


def way_out(found: Sequence[Doubt], types: Mapping[str, str]) -> str | None:
    """How to fit again without the columns that had better be left out.

    Args:
        found: The doubts.
        types: What was declared of columns.

    Example:
        >>> way_out([Doubt("...", "k")], {})
        'To leave it out, press Ctrl-C, and give the same command with --types k=ignore --overwrite'
    """
    names = [doubt.column for doubt in found if doubt.column is not None]
    if not names:
        return None
    kinds = {**types, **dict.fromkeys(names, "ignore")}
    flag = shell("--types", ",".join(f"{quoted(name)}={kind}" for name, kind in kinds.items()))
    them = "them" if len(names) > 1 else "it"
    return f"To leave {them} out, press Ctrl-C, and give the same command with {flag} --overwrite"


def _doubt(column: Column, values: pd.Series, leave_out: str) -> str | None:
    """The gravest doubt about a column, if there is any."""
    present = round(len(values) * (1 - column.missing_share))
    only = _only_value(column, values)
    if only is not None:
        return (
            f"is {words(only)} wherever it is known: it tells nothing, and impute will fill every "
            f"gap with it; {leave_out}"
        )
    if column.missing_share > NEARLY_EMPTY:
        return (
            f"is known in {present:,} of {len(values):,} rows: impute will fill all others by what "
            f"these few show; {leave_out}"
        )
    if isinstance(column, CategoryColumn):
        return _doubt_levels(column, present, leave_out)
    if isinstance(column, NumberColumn) and _counts_rows(values):
        return f"numbers the rows: {leave_out}"
    return None


def _only_value(column: Column, values: pd.Series) -> object:
    """The value that all rows have, or None."""
    if isinstance(column, NumberColumn) and column.seen[0] < column.seen[1]:
        return None
    if isinstance(column, CategoryColumn) and len(column.levels) > 2:
        return None
    distinct = values.dropna().unique()
    return distinct[0] if len(distinct) == 1 else None


def _doubt_levels(column: CategoryColumn, present: int, leave_out: str) -> str | None:
    count = len(column.levels)
    if count < LEVELS:
        return None
    texts = [level for level in column.levels if isinstance(level, str)]
    if _are_days(texts):
        told = f"looks like dates ({texts[0]}) and is taken for {count:,} categories: "
        if possible_orders(texts):
            day, month = (declaring(column.name, order) for order in ORDERS)
            return f"{told}say {day} if the day comes first, {month} if the month does"
        return f"{told}write them as 2024-12-31 to have them read as dates"
    if _are_foreign(texts):
        return (
            f"looks like numbers with commas ({texts[0]}) and is taken for {count:,} categories: "
            "write decimals with a point, and thousands without a comma"
        )
    if count >= DISTINCT * present:
        return f"differs in {'every row' if count >= present else 'nearly every row'}: {leave_out}"
    if count > MANY_LEVELS and present < ROWS_A_LEVEL * count:
        return (
            f"has {count:,} levels in {present:,} rows, most of them too rare to learn: put them "
            f"into fewer groups, or {leave_out}"
        )
    return None


def _are_days(texts: list[str]) -> bool:
    return sum(DAY.fullmatch(text) is not None for text in texts) >= MOSTLY * max(1, len(texts))


def _are_foreign(texts: list[str]) -> bool:
    """Whether they look like numbers that are written in another way."""
    return sum(map(is_foreign, texts)) >= MOSTLY * max(1, len(texts))


def _counts_rows(values: pd.Series) -> bool:
    """Whether each row has the number after that of the row before."""
    if len(values) < FEW_ROWS or not pd.api.types.is_integer_dtype(values.dtype):
        return False
    return bool((np.diff(values.to_numpy()) == 1).all()) if values.notna().all() else False


def declaring(name: str, kind: str) -> str:
    """The option that says what a column is, as it can be typed.

    Example:
        >>> declaring("born on", "dmy")
        '--types "born on=dmy"'
    """
    if re.fullmatch(r"[\w .-]+", name):
        return f'--types "{name}={kind}"' if " " in name else f"--types {name}={kind}"
    return shell("--types", f"{quoted(name)}={kind}")


LATE_GAIN = 0.02
"""Bits a cell that held-out rows gained in the second half of a training that was too short."""


def ending(fit: Fit, training: Path) -> str:
    """When and why a training ended, and whether more time would pay.

    Args:
        fit: How it went; of several members, how the last one went.
        training: The folder with its metrics, or with those of its members.
    """
    gains = [late_gain(file) for file in _metrics(training) if file.exists()]
    if gains and mean(gains) >= LATE_GAIN:
        return (
            f"At the end, step {fit.step:,}, held-out rows were still predicted better and better: "
            "more time (`--minutes`, or `--steps`) would pay. "
        )
    if fit.ending == "patience":
        return (
            f"Stopped at step {fit.step:,}: held-out rows were predicted best at step "
            f"{fit.best_step:,}, which is kept. "
        )
    return ""


def _metrics(training: Path) -> list[Path]:
    """Of each member, or of the only one; of stages, of the last one."""
    places = sorted(training.glob("member-*")) or [training]
    lasts = [(sorted(place.glob("stage-*")) or [place])[-1] for place in places]
    return [last / "metrics.jsonl" for last in lasts]


def late_gain(metrics: Path) -> float:
    """Bits a cell by which held-out rows were predicted better at the end than half way.

    0 if they had been predicted better before the end.
    """
    found = [e for e in read_metrics(metrics) if e.get("held_out") is not None]
    if not found or found[-1]["held_out"] > min(e["held_out"] for e in found):
        return 0.0
    half = [e["held_out"] for e in found if e["step"] <= found[-1]["step"] / 2]
    # A training with one evaluation has gained all that it knows since it began.
    return half[-1] - found[-1]["held_out"] if half else LATE_GAIN


ROWS, COLUMNS = 2000, 40
"""So much of a table is looked at for the columns that tell most about each other."""

MOSTLY_KNOWN = 0.5
"""A column that fewer rows have tells of others by chance."""


def trust_in(out: Path) -> str:
    """How to find out what the model is worth, in words."""
    evaluate, check = (shell("anyorder", verb, out, "new.csv") for verb in ("evaluate", "check"))
    return f"How far to trust it, rows that it has not seen tell: `{evaluate}` and `{check}`."


def suggestions(
    model: TableModel,
    frame: pd.DataFrame,
    questions: Sequence[Question] | None,
    *,
    file: Path,
    out: Path,
) -> Iterator[str]:
    """Commands to try, with the columns and a row of this table."""
    names = model.table_.names
    given, query, _ = questions[0] if questions else _telling_pair(model.table_, frame)
    known = [*(column.name for column in model.table_.context), *given]
    rows = frame[known].dropna()
    evidence = {} if rows.empty else {name: words(rows[name].iloc[0]) for name in known}
    flags = ["--given", written_given(evidence)] if evidence else []
    first = min(query, key=names.index)  # given the evidence alone, it was trained for
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


def _telling_pair(table: TableSchema, frame: pd.DataFrame) -> Question:
    """Of two columns that tell most about each other, the later given the earlier."""
    rows = frame.iloc[:: max(1, len(frame) // ROWS)]
    known = [name for name in table.names if rows[name].notna().mean() > MOSTLY_KNOWN]
    telling = [name for name in known if _tells(rows[name])][:COLUMNS] or list(table.names)
    places = [table.names.index(name) for name in telling]
    x, missing = table.encode(rows)
    information = mutual_information(x[:, places], ~missing[:, places])
    if not information.any():
        return telling[:-1][:1], telling[-1:], 1.0
    first, second = sorted(divmod(int(information.argmax()), len(telling)))
    return [telling[first]], [telling[second]], 1.0


def _tells(values: pd.Series) -> bool:
    """Whether a column is worth a first question: no constant, and no label of its row."""
    there = values.dropna()
    distinct = there.nunique()
    measured = pd.api.types.is_float_dtype(there.dtype) and not (there % 1 == 0).all()
    return distinct > 1 and (measured or distinct < max(0.9 * len(there), 3))
