"""Commands for tables: fit, impute, score, sample and query."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from anyorder.cli.console import (
    STREAM,
    check_target,
    destination,
    note,
    print_json,
    reading,
    records,
    show,
    show_rows,
    words,
    writing,
)
from anyorder.cli.options import FitOptions
from anyorder.cli.resume import fit_in_folder, size_flags
from anyorder.domains import read_run
from anyorder.errors import ConfigError, QueryError, check_count, check_seed
from anyorder.tables.advice import (
    column_warnings,
    decimal_warnings,
    identifier_columns,
    remedy,
    suggestions,
    trust_hint,
    types_flag,
)
from anyorder.tables.columns import NumberColumn
from anyorder.tables.conditional import Conditional, answers, described
from anyorder.tables.csv_dialect import VERBATIM, CsvHints
from anyorder.tables.files import PARQUET, read_written, write_chunks, written
from anyorder.tables.fitting import MAR_ROUNDS, split
from anyorder.tables.large_files import TableFile
from anyorder.tables.model import TableModel
from anyorder.tables.parsing import in_form
from anyorder.tables.questions import (
    check_questions,
    column_set,
    given_queries,
    law_of,
    named_sets,
    quoted,
    read_given,
    read_names,
    read_queries,
    read_types,
)
from anyorder.tables.schema import TableSchema, as_frame
from anyorder.tables.scoring import (
    Completion,
    RunningMean,
    Scoring,
    csv_hints,
    parts,
    table_run,
    worker_pool,
)
from anyorder.training.settings import is_first_process

ROWS_AT_ONCE = 8192
"""Imputed or sampled rows in memory."""

LARGEST_INTEGER = 2**63
"""Bound of the values of a column of integers."""


def fit_table(file: Path, shared: FitOptions, own: Any) -> None:
    """Fits a table with the flags of `TableFitOptions`, and saves the model."""
    out = shared.out
    check_seed(shared.seed)
    questions, declared = read_queries(own.queries), read_types(own.types)
    columns: dict[str, Any] = {
        "types": declared,
        "missing_values": read_names(own.missing_values, option="--missing-values"),
        "context": read_names(own.context, option="--context"),
    }
    text = [name for name, kind in declared.items() if kind in VERBATIM]
    with reading(file) as source:
        known = CsvHints(columns["missing_values"], text, decimal=own.decimal or "")
        whole = TableFile(source, known)
        large = whole if str(file) != STREAM and whole.is_large else None
        if large is None:
            read, dialect = read_written(source, known)
        else:
            read, dialect = large.frame(shared.seed), written(source, known)[1]
        frame = as_frame(read)
    table = TableSchema.infer(frame, **columns)
    wanted = {*declared, *(n for given, query, _ in questions or () for n in (*given, *query))}
    left_out = [name for name in identifier_columns(frame, table) if name not in wanted]
    left_out = left_out if len(left_out) < len(table.names) else []  # unless nothing else is there
    if left_out:
        columns["types"] = {**declared, **dict.fromkeys(left_out, "ignore")}
        table = TableSchema.infer(frame, **columns)
    check_questions(table, questions)
    model = TableModel(
        queries="any" if questions is None else questions,
        missing=own.missing or "mcar",
        keep_rows=not own.forget_rows,
        random_state=shared.seed,
        minutes=shared.minutes,
        max_steps=shared.steps,
        **columns,
        **shared.sizes(),
    )
    name = "standard input" if str(file) == STREAM else file.name
    if is_first_process():
        seen = f" ({dialect.words})" if dialect and dialect.words else ""
        title = f"{name}: {frame.attrs.get('rows', len(frame)):,} rows{seen}"
        show(["column", "type", "details"], table.summary(), title=title, aside=True)
        for column in left_out:
            note(
                f'"{column}" only identifies rows, so it is left out; '
                f"{types_flag(column, 'category')} keeps it."
            )
        found = [
            *column_warnings(frame, table),
            *decimal_warnings(dialect, declared=own.decimal is not None),
        ]
        for sentence in (*(warning.sentence for warning in found), remedy(found, declared)):
            if sentence is not None:
                note(f"warning: {sentence}")
    done = fit_in_folder(
        model,
        frame if large is None else large,
        shared,
        file=file,
        name=name,
        flags=lambda one: _flags(one, table if one is model else one.table_),
        other_data=lambda earlier: _other_table(earlier.table_, table, name),
        stages=MAR_ROUNDS,
    )
    if is_first_process():
        state = "" if done is None else f"Already trained (step {done:,}). "
        held_out = _held_out(model, frame) if large is None else ""
        note(f"{state}Saved in {out}.{held_out}")
        note(trust_hint(out))
        note("Try:")
        for command in suggestions(model, frame, questions, file=file, out=out):
            note(f"  {command}")


def _flags(model: TableModel, table: TableSchema) -> dict[str, Any]:
    """Returns the options of a model as the flags that give them."""
    law = model.queries_ if hasattr(model, "queries_") else law_of(model.queries, table)
    types = [f"{quoted(name)}={kind}" for name, kind in sorted((model.types or {}).items())]
    return {
        "--queries": given_queries(law, table.names),
        "--context": ",".join(map(quoted, model.context)),
        "--types": ",".join(types),
        "--missing-values": ",".join(quoted(str(marker)) for marker in model.missing_values),
        "--missing": model.missing,
        "--minutes": model.minutes,
        "--steps": model.max_steps,
        **size_flags(model),
        "--seed": model.random_state,
    }


def _other_table(earlier: TableSchema, table: TableSchema, file: str) -> str:
    """Returns how the columns of an earlier training differ, or that its rows do."""
    before, now = earlier.layout, table.layout
    for names, others, verb in ((before, now, "lacks"), (now, before, "also has")):
        for name in names:
            if name not in others:
                return f'it is of another table; "{file}" {verb} the column "{name}"'
    return f'it is of other rows than those of "{file}"'


def _held_out(model: TableModel, frame: pd.DataFrame) -> str:
    """Returns the log-likelihood of the held-out rows, in words."""
    rows = split(len(frame), model.validation_share, model.random_state or 0)[1]
    if not len(rows):
        return ""
    found = RunningMean()
    found.add(torch.from_numpy(model.log_prob(frame.iloc[rows.numpy()])))
    return f" {found.count:,} held-out rows: {found} nats a row."


def impute_table(run: Path, file: Path, options: Any) -> None:
    """Imputes the missing values of a file, with `ImputeOptions`; see `anyorder impute --help`."""
    out, draws, how, seed = options.out, options.draws, options.how, options.seed
    check_seed(seed)
    check_target(out, file)
    if check_count("draws", draws) > 1 and how != "sample":
        raise ConfigError(f"`--draws` is for `--how sample`: there is one {how} only; got {draws}.")
    table, folder = table_run(run)
    size = max(1, ROWS_AT_ONCE // draws)
    work = Completion(folder, draws, how)
    rows, missing = _worked(work, table, file, options, rows=size, seed=seed)
    note(f"Imputed {missing:,} missing values in {rows // draws:,} rows: {destination(out)}")


def score_table(run: Path, file: Path, options: Any) -> None:
    """Writes log-likelihoods of rows, with `ScoreOptions`; see `anyorder score --help`."""
    out, asked = options.out, read_names(options.query, option="--query")
    known = read_names(options.given, option="--given")
    check_target(out, file)
    table, folder = table_run(run)
    named_sets(table, asked, known, prefix="--")
    work = Scoring(folder, asked or None, known or None)
    rows, empty = _worked(work, table, file, options, rows=ROWS_AT_ONCE)
    left = f" {empty:,} were left empty: a queried value is missing there." if empty else ""
    note(f"Scored {rows - empty:,} rows: {destination(out)}{'.' if left else ''}{left}")


def _worked(
    work: Completion | Scoring,
    table: TableSchema,
    file: Path,
    options: Any,
    *,
    rows: int,
    seed: int = 0,
) -> tuple[int, int]:
    """Works on a file in parts and writes the results; returns their rows and their count."""
    workers, total = worker_pool(workers=options.workers, cluster=options.cluster), 0
    with reading(file) as source, writing(options.out) as target, workers as pool:

        def results() -> Iterator[pd.DataFrame]:
            nonlocal total
            for frame, count in pool(work, parts(table, source, rows=rows, seed=seed)):
                total += count
                yield as_written(frame, table, target) if isinstance(work, Completion) else frame

        written = write_chunks(results(), target, like=source, hints=csv_hints(table, source))
    return written, total


def as_written(frame: pd.DataFrame, table: TableSchema, file: Path) -> pd.DataFrame:
    """Formats numbers and dates for a text file, as `as_text` does; Parquet keeps its types."""
    return frame if file.suffix.lower() in PARQUET else as_text(frame, table)


def as_text(frame: pd.DataFrame, table: TableSchema) -> pd.DataFrame:
    """Formats whole numbers without a decimal point, and dates as in the training data."""
    found = frame.copy(deep=False)
    for column in (*table.query, *table.context):
        if not isinstance(column, NumberColumn) or column.name not in frame.columns:
            continue
        values = frame[column.name]
        if column.measurement.form:
            found[column.name] = in_form(values, column.measurement.form)
        elif column.is_whole and values.dtype == np.float64:
            there = values.dropna()
            if ((there % 1 == 0) & (there.abs() < LARGEST_INTEGER)).all():
                found[column.name] = values.astype("Int64")
    return found


def sample_table(
    run: Path, *, n: int, given: str | None, out: Path | None, seed: int, json: bool
) -> None:
    """Samples rows; see `anyorder sample --help`."""
    check_count("n", n)
    check_seed(seed)
    if json and out is not None:
        raise ConfigError("`--json` prints the rows and `--out` writes them: drop one of them.")
    if out is not None:
        check_target(out)
    model = read_run(run, "table")
    known = read_given(model.table_, given)
    sizes: list[float] = []

    def sampled() -> Iterator[pd.DataFrame]:
        for number, start in enumerate(range(0, n, ROWS_AT_ONCE)):
            rows = min(ROWS_AT_ONCE, n - start)
            frame = model.sample(rows, given=known, random_state=seed + number)
            sizes.append(frame.attrs.pop("effective_sample_size", float("inf")))
            yield frame

    if out is not None:
        with writing(out) as target:
            frames_out = (as_written(frame, model.table_, target) for frame in sampled())
            rows_out = write_chunks(frames_out, target)
        note(f"Sampled {rows_out:,} rows: {destination(out)}")
    elif json:
        print_json({"rows": records(pd.concat(sampled()))})
    else:
        tables = show_rows(as_text(pd.concat(sampled()), model.table_))
        if tables > 1:
            note(
                f"The columns are in {tables} tables, because the terminal is narrow: `--out "
                "rows.csv` or `--json` has each row in one piece."
            )
    if sum(sizes) < EVEN * n:
        note(
            f"Evidence by intervals or lists is rare in the model, so that rows repeat it: {n:,} "
            f"rows are worth {sum(sizes):,.0f} independent ones (the effective sample size)."
        )


QUANTILES = (0.01, 0.1, 0.25, 0.75, 0.9, 0.99)
"""Shares whose quantiles are shown beside the median and the 90% interval."""

MOST_LEVELS, MOST_REPEATED = 20, 5
"""Greatest number of levels of a category, and of repeated values of a number, that are shown."""

EVEN = 0.99
"""Share of the samples from which on their effective size is not worth a note."""

BAR = 30
"""Characters of a bar of probability 1."""

EIGHTHS = " ▏▎▍▌▋▊▉"

PLOTS = (".png", ".svg", ".pdf")


def query_table(
    run: Path, *, of: str, given: str | None, plot: Path | None, seed: int, json: bool
) -> None:
    """Prints p(column | evidence) of each column by itself; see `anyorder query --help`."""
    check_seed(seed)
    if plot is not None and plot.suffix.lower() not in PLOTS:
        raise ConfigError(f'`--plot` must be a .png, .svg or .pdf file; got "{plot}".')
    columns = read_names(of, option="--of")
    if not columns:
        raise QueryError("`--of` must name a column.")
    model = read_run(run, "table")
    column_set(model.table_, columns, argument="--of", allow_context=False)
    known = read_given(model.table_, given)
    with warnings.catch_warnings(record=json) as caught:
        if json:  # part of the answer
            warnings.simplefilter("always")
        found = model.conditionals(columns, given=known, random_state=seed)
    listed = list(found.values())
    if plot is not None:
        _plot(listed, given, plot)
    if json:
        doubted = dict.fromkeys(str(warning.message) for warning in caught or ())
        print_json(answers(listed, described(listed), list(doubted)))
        return
    for name, conditional in found.items():
        _show(conditional, f"p({name} | {given})" if given else f"p({name})")
        if conditional.count is not None:
            matching = "match the evidence and " if given else ""
            note(f"Training rows that {matching}have a value: {conditional.count.rows:,}.")
    if listed[0].count is None:
        note("Training rows are not counted: this model does not keep them.")
    draws, size = len(listed[0].weights), listed[0].effective_sample_size
    if size < EVEN * draws:
        note(
            f"Evidence by intervals or lists is represented by {draws:,} weighted samples. They "
            f"are worth {size:,.0f} equal ones (the effective sample size): the fewer, the more "
            "another --seed changes the answer."
        )


def repeated(conditional: Conditional) -> list[tuple[Any, float]]:
    """Returns the repeated values of a number with their probabilities, most probable first."""
    column = conditional.column
    if not isinstance(column, NumberColumn) or not column.atom_values:
        return []
    values = column.restore(np.array(column.atom_values))
    probabilities = conditional.pdf(values)
    best = np.argsort(-probabilities, kind="stable")[:MOST_REPEATED]
    return [(values.iloc[place], float(probabilities[place])) for place in best]


def _show(conditional: Conditional, title: str) -> None:
    if isinstance(conditional.column, NumberColumn):
        _show_number(conditional, title)
        return
    levels = conditional.probabilities().sort_values(ascending=False, kind="stable")
    top, shares = levels.iloc[:MOST_LEVELS], conditional.shares()
    errors = conditional.standard_error()
    beside = {
        name: [part.to_dict()[level] for level in top.index]
        for name, part in (("standard error", errors), ("share of rows", shares))
        if part is not None
    }
    _show_bars({words(level): share for level, share in top.items()}, title, beside)
    if len(levels) > len(top):
        rest = levels.iloc[MOST_LEVELS:]
        note(f"{len(rest):,} other levels have {rest.sum():.1%} together.")


def _show_number(conditional: Conditional, title: str) -> None:
    low, high = conditional.interval(0.9)
    rows = [
        ("mean", words(conditional.mean())),
        ("median", words(conditional.median())),
        ("90% interval", f"{words(low)} .. {words(high)}"),
    ]
    error = conditional.standard_error()
    if error is not None:
        is_time = conditional.column.kind != "number"
        told = pd.Timedelta(seconds=error).round("s") if is_time else f"{error:.3g}"
        rows.insert(1, ("standard error", str(told)))
    rows += [(f"{share:.0%} quantile", words(conditional.quantile(share))) for share in QUANTILES]
    show(["", conditional.column.name], rows, title=title, numbers=[conditional.column.name])
    often = repeated(conditional)
    if often:
        _show_bars({words(value): share for value, share in often}, "Repeated values")


def _show_bars(
    shares: Mapping[str, float], title: str, beside: Mapping[str, Sequence[float]] | None = None
) -> None:
    """Shows probabilities as bars; `beside` has more columns of percentages."""
    parts = {"probability": [*shares.values()], **(beside or {})}
    rows = [
        [level, *(f"{share:.1%}" for share in own), bar(own[0])]
        for level, *own in zip(shares, *parts.values(), strict=True)
    ]
    show(["value", *parts, ""], rows, title=title, numbers=[*parts])


def bar(share: float) -> str:
    """Returns a bar as long as a probability, in eighths of a character.

    Example:
        >>> bar(0.5)
        '███████████████'
    """
    full, part = divmod(round(share * BAR * 8), 8)
    return ("█" * full + EIGHTHS[part]).rstrip()


def _plot(conditionals: list[Conditional], given: str | None, path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError('Plots need matplotlib: pip install "anyorder[plot]".') from None
    figure = Figure(figsize=(6, 3.5 * len(conditionals)), layout="constrained")
    places = figure.subplots(len(conditionals), squeeze=False)[:, 0]
    for conditional, axes in zip(conditionals, places, strict=True):
        conditional.plot(axes)
    if given:
        from anyorder.diagnostics.plots import as_label

        figure.suptitle(as_label(f"given {given}"), wrap=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    note(f"Plotted: {path}")
