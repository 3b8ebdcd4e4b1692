"""The verbs for tables that read and write files: fit, impute, sample."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from anyorder.commands.asking import EVEN
from anyorder.commands.chunks import Completion, Scoring, parts, table_run
from anyorder.commands.doubts import (
    declaring,
    doubts,
    doubts_of_decimals,
    naming_rows,
    way_out,
)
from anyorder.commands.endings import ending
from anyorder.commands.notation import (
    Question,
    check_questions,
    read_given,
    read_names,
    read_queries,
    read_types,
)
from anyorder.commands.overwriting import making_room
from anyorder.commands.resuming import told_by_flags
from anyorder.commands.runs import finished_step, read_run, told_by
from anyorder.commands.scoring import Running
from anyorder.commands.showing import note, records, show, show_rows
from anyorder.commands.streams import STREAM, reading, told, writing
from anyorder.commands.suggesting import suggestions, trust_in
from anyorder.commands.targets import check_target
from anyorder.data.columns import NumberColumn
from anyorder.data.date_forms import in_form
from anyorder.data.dialects import Told
from anyorder.data.frames import PARQUET, as_frame, read_written, write_chunks
from anyorder.data.table import TableSchema
from anyorder.errors import ConfigError, check_count, check_seed
from anyorder.estimators.table import TableModel
from anyorder.estimators.table_answers import How
from anyorder.estimators.table_fitting import Missing, split
from anyorder.estimators.table_questions import named_sets
from anyorder.reproduce.record import print_json
from anyorder.scale.crew import Crew, crew
from anyorder.training.settings import is_first_process

ROWS_AT_ONCE = 8192
"""Completed or drawn rows in memory."""

LARGEST_INTEGER = 2**63
"""What a column of integers no longer holds."""

VERBATIM = ("category", "ignore")
"""Types of columns whose cells are kept as they are written: 01234 is then no number."""


def fit_table(
    file: Path,
    *,
    out: Path,
    queries: str | None,
    context: str | None,
    types: str | None,
    missing_values: str | None,
    decimal: str | None,
    missing: Missing,
    minutes: float | None,
    steps: int | None,
    seed: int,
    overwrite: bool,
    **shape: Any,
) -> None:
    """Fits a table and saves the model; see `anyorder fit --help`."""
    check_seed(seed)
    questions, declared = read_queries(queries), read_types(types)
    columns: dict[str, Any] = {
        "types": declared,
        "missing_values": read_names(missing_values, option="--missing-values"),
        "context": read_names(context, option="--context"),
    }
    text = [name for name, kind in declared.items() if kind in VERBATIM]
    with reading(file) as source:
        known = Told(columns["missing_values"], text, decimal=decimal or "")
        read, dialect = read_written(source, known)
        frame = as_frame(read)
    table = TableSchema.infer(frame, **columns)
    left_out = _left_out(frame, table, {*declared, *_names(questions)})
    if left_out:
        columns["types"] = {**declared, **dict.fromkeys(left_out, "ignore")}
        table = TableSchema.infer(frame, **columns)
    check_questions(table, questions)
    budget: dict[str, Any] = {} if minutes is None else {"minutes": minutes}
    if steps is not None:
        budget = {"minutes": minutes, "max_steps": check_count("steps", steps)}
    model = TableModel(
        queries="any" if questions is None else questions,
        missing=missing,
        random_state=seed,
        **columns,
        **budget,
        **{name: size for name, size in shape.items() if size is not None},
    )
    name = "standard input" if str(file) == STREAM else file.name
    if is_first_process():
        seen = f" ({dialect.words})" if dialect and dialect.words else ""
        title = f"{name}: {len(frame):,} rows{seen}"
        show(["column", "taken for", "details"], table.summary(), title=title, aside=True)
        for column in left_out:
            note(
                f'"{column}" says which row it is and nothing of it, so it is left out; '
                f"{declaring(column, 'category')} keeps it."
            )
        found = [*doubts(frame, table), *doubts_of_decimals(dialect, declared=decimal is not None)]
        for warning in (*(doubt.sentence for doubt in found), way_out(found, declared)):
            if warning is not None:
                note(f"warning: {warning}")
    training = out / "training"
    room = making_room(out, overwrite=overwrite, file=file)
    with room, told_by_flags(out, model, table, file=name):
        done = finished_step(training)
        model.set_params(progress=done is None).fit(frame, folder=training)
        if is_first_process():
            model.save(out)
    if is_first_process():
        state = (
            ending(model.fit_, training) if done is None else f"Already trained (step {done:,}). "
        )
        note(f"{state}Saved in {out}.{_held_out(model, frame)}")
        note(trust_in(out))
        note("Try:")
        for command in suggestions(model, frame, questions, file=file, out=out):
            note(f"  {command}")


def _left_out(frame: pd.DataFrame, table: TableSchema, wanted: set[str]) -> list[str]:
    """Columns that name rows, unless the user speaks of them or nothing else is there."""
    found = [name for name in naming_rows(frame, table) if name not in wanted]
    return found if len(found) < len(table.names) else []


def _names(questions: Sequence[Question] | None) -> Iterator[str]:
    """All columns that questions speak of."""
    for given, query, _ in questions or ():
        yield from (*given, *query)


def _held_out(model: TableModel, frame: pd.DataFrame) -> str:
    """How well the model predicts the rows that it was not trained on, in words."""
    rows = split(len(frame), model.validation_share, model.random_state or 0)[1]
    if not len(rows):
        return ""
    found = Running()
    found.add(torch.from_numpy(model.log_prob(frame.iloc[rows.numpy()])))
    return f" {found.count:,} held-out rows: {found} nats a row."


def impute_table(
    run: Path,
    file: Path,
    *,
    out: Path,
    draws: int,
    how: How,
    seed: int,
    workers: int,
    cluster: str | None,
) -> None:
    """Fills the gaps of a file; see `anyorder impute --help`."""
    check_seed(seed)
    check_target(out, file)
    if check_count("draws", draws) > 1 and how != "sample":
        raise ConfigError(f"`--draws` is for `--how sample`: there is one {how} only; got {draws}.")
    (table, folder), gaps = table_run(run), 0
    work = Completion(folder, draws, how)
    with (
        reading(file) as source,
        writing(out) as target,
        crew(workers=workers, cluster=cluster) as hands,
    ):
        read = parts(table, source, rows=max(1, ROWS_AT_ONCE // draws), seed=seed)

        def completed(hands: Crew) -> Iterator[pd.DataFrame]:
            nonlocal gaps
            for frame, filled in hands(work, read):
                gaps += filled
                yield as_written(frame, table, target)

        known = told_by(table, source)
        rows = write_chunks(completed(hands), target, like=source, told=known) // draws
    note(f"Filled {gaps:,} gaps in {rows:,} rows: {told(out)}")


def score_table(
    run: Path,
    file: Path,
    *,
    out: Path,
    query: str | None,
    given: str | None,
    workers: int,
    cluster: str | None,
) -> None:
    """Writes the log-likelihood of each row; see `anyorder score --help`."""
    asked, known = read_names(query, option="--query"), read_names(given, option="--given")
    check_target(out, file)
    table, folder = table_run(run)
    named_sets(table, asked, known, prefix="--")
    work, empty = Scoring(folder, asked or None, known or None), 0
    with (
        reading(file) as source,
        writing(out) as target,
        crew(workers=workers, cluster=cluster) as hands,
    ):

        def scored(hands: Crew) -> Iterator[pd.DataFrame]:
            nonlocal empty
            for scores in hands(work, parts(table, source, rows=ROWS_AT_ONCE)):
                empty += int(scores["log_prob"].isna().sum())
                yield scores

        rows = write_chunks(scored(hands), target, like=source, told=told_by(table, source))
    left = f" {empty:,} were left empty: what is asked is a gap there." if empty else ""
    note(f"Scored {rows - empty:,} rows: {told(out)}{'.' if left else ''}{left}")


def as_written(frame: pd.DataFrame, table: TableSchema, file: Path) -> pd.DataFrame:
    """Numbers and dates as text files have them: see `as_text`."""
    return frame if file.suffix.lower() in PARQUET else as_text(frame, table)


def as_text(frame: pd.DataFrame, table: TableSchema) -> pd.DataFrame:
    """Whole numbers without the point that gaps brought them, and dates in the form of training."""
    found = frame.copy(deep=False)
    for column in (*table.query, *table.context):
        if not isinstance(column, NumberColumn) or column.name not in frame.columns:
            continue
        values = frame[column.name]
        if column.measurement.form:
            found[column.name] = in_form(values, column.measurement.form)
        elif column.is_whole and values.dtype == np.float64 and _all_whole(values):
            found[column.name] = values.astype("Int64")
    return found


def _all_whole(values: pd.Series) -> bool:
    """Whether integers hold them; a known cell stays as it is, also among whole numbers."""
    there = values.dropna()
    return bool(((there % 1 == 0) & (there.abs() < LARGEST_INTEGER)).all())


def sample_table(
    run: Path, *, n: int, given: str | None, out: Path | None, seed: int, json: bool
) -> None:
    """Draws rows; see `anyorder sample --help`."""
    check_count("n", n)
    check_seed(seed)
    if json and out is not None:
        raise ConfigError("`--json` prints the rows and `--out` writes them: drop one of them.")
    if out is not None:
        check_target(out)
    model = read_run(run, TableModel)
    known = read_given(model.table_, given)
    sizes: list[float] = []

    def drawn() -> Iterator[pd.DataFrame]:
        for number, start in enumerate(range(0, n, ROWS_AT_ONCE)):
            rows = min(ROWS_AT_ONCE, n - start)
            frame = model.sample(rows, given=known, random_state=seed + number)
            sizes.append(frame.attrs.pop("effective_sample_size", float("inf")))
            yield frame

    if out is not None:
        with writing(out) as target:
            frames_out = (as_written(frame, model.table_, target) for frame in drawn())
            rows_out = write_chunks(frames_out, target)
        note(f"Drew {rows_out:,} rows: {told(out)}")
    elif json:
        print_json({"rows": records(pd.concat(drawn()))})
    else:
        tables = show_rows(as_text(pd.concat(drawn()), model.table_))
        if tables > 1:
            note(
                f"The columns are in {tables} tables, because the terminal is narrow: `--out "
                "rows.csv` or `--json` has each row in one piece."
            )
    if sum(sizes) < EVEN * n:
        note(
            "What is given by intervals or lists is rare in the model, so that rows repeat it: "
            f"{n:,} rows are worth {sum(sizes):,.0f} independent ones (the effective sample size)."
        )
