"""Commands to try after a table was fitted: a question worth asking, and whether to trust it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from anyorder.commands.notation import Question, quoted, shell, written_given
from anyorder.commands.showing import words
from anyorder.commands.streams import STREAM
from anyorder.data.frames import COMPRESSED, STREAMS
from anyorder.data.table import TableSchema
from anyorder.estimators.table import TableModel
from anyorder.orders import mutual_information

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
