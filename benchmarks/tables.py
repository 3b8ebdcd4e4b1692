"""Our `TableModel` beside other models of tables, on the same rows and by the same measure.

    python -m benchmarks.tables --data DIR --minutes 7

DIR is laid out as `benchmarks.table_sets` says. Each rival runs with its defaults in a virtual
environment of its own, made on first use (`benchmarks.rival_environments`). Every model is asked
for what it can do of:

    joint         nats of all that a test row has
    conditional   nats of a random half of it given the other
    imputation    three cells of ten are taken out at random: best guesses and draws of them

A rounded number counts as the probability of its rounding cell, another as its density in the
units of the column, a category as its probability. See `benchmarks.table_scores` for
the scores. Seconds are those of processors, of all threads together: a busy machine changes
nothing. Beside our model as it comes may stand variants of it:

    ten_seconds   after ten seconds of training: rivals are often quick
    one_minute    after a minute
    joint_alone   trained on whole rows only: what being asked anything costs
"""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated

import torch
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from anyorder.cli.app import run
from anyorder.errors import ConfigError, check_choice, check_count
from anyorder.lattice.masks import FixedCardinality
from anyorder.lattice.query_laws import as_query_law
from anyorder.reproduce.record import Paired, Record, Row, check_record
from benchmarks.rival_environments import RIVALS, default_folder
from benchmarks.table_contest import Scored, ours, theirs
from benchmarks.table_scores import LIKELIHOODS
from benchmarks.table_sets import BINARY, MIXED, MORE_MIXED, load_set
from benchmarks.table_task import TableTask, table_task

OURS = "TableModel"
QUICK = {"ten_seconds": 1 / 6, "one_minute": 1.0}
"""Variants that are trained for so many minutes."""

VARIANTS = (*QUICK, "joint_alone")
SHOWN = (*(f"{name}_nats" for name in LIKELIHOODS), "nrmse", "error_rate", "crps", "fit_seconds")

app = App(name="tables", help=__doc__)


@app.default
def measure(
    *,
    data: Path,
    sets: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    rivals: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    minutes: float = 7.0,
    rows: int = 2000,
    train_rows: int = 50_000,
    draws: int = 20,
    timeout: float = 60.0,
    variants: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    environments: Path | None = None,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Fits and scores every model on every set.

    Args:
        data: The folder of the data.
        sets: Which sets; nltcs, plants, jester, adult, diamonds, abalone and wine by default.
        rivals: Which rivals; all by default.
        minutes: Of the processor, the longest that our model may train on a set.
        rows: At most so many test rows.
        train_rows: At most so many rows to fit, of every model.
        draws: How often each hole is drawn.
        timeout: Minutes of the processor after which a rival is stopped; what it has answered by
            then counts.
        variants: Which variants of our model, none by default: ten_seconds, one_minute,
            joint_alone.
        environments: Where the environments of the rivals are; under the user's cache by default.
        json: Print one JSON object, the last line of the output.
        record: A file to which the numbers are written with the command and the commit.
    """
    for name, count in (("rows", rows), ("train_rows", train_rows)):
        check_count(name, count)
    check_count("draws", draws, low=2)
    if not timeout > 0:
        raise ConfigError(f"`timeout` must be above 0 minutes; got {timeout}.")
    names = list(RIVALS) if rivals is None else rivals
    for name in names:
        check_choice("rivals", name, RIVALS)
    variants = list(dict.fromkeys(variants or ()))
    for name in variants:
        check_choice("variants", name, VARIANTS)
    check_record(record)
    folder = environments or default_folder()
    found: dict[str, dict[str, Scored]] = {}
    tasks: dict[str, TableTask] = {}
    for name in sets or [*BINARY, *MIXED, *MORE_MIXED]:
        tasks[name] = table_task(
            load_set(data, name), rows=rows, train_rows=train_rows, draws=draws
        )
        found[name] = {OURS: ours(tasks[name], minutes)}
        _tell(name, OURS, found[name][OURS])
        for variant in variants:
            found[name][variant] = _variant(variant, tasks[name], minutes)
            _tell(name, variant, found[name][variant])
        for rival in names:
            found[name][rival] = theirs(tasks[name], RIVALS[rival], folder, minutes=timeout)
            _tell(name, rival, found[name][rival])
    settings = {
        "minutes": minutes,
        "rows": rows,
        "train_rows": train_rows,
        "draws": draws,
        "timeout_minutes": timeout,
        "threads": torch.get_num_threads(),
        "rivals": {name: RIVALS[name].requirements for name in names},
        "measures": {name: _measures(task) for name, task in tasks.items()},
        "dropped_test_rows": {name: task.dropped for name, task in tasks.items()},
        "not_measured": _reasons(found),
    }
    chosen = "".join(
        f" --{flag} {' '.join(value)}"
        for flag, value in (("sets", sets), ("rivals", rivals), ("variants", variants))
        if value
    )
    sizes = f"--minutes {minutes:g} --rows {rows} --timeout {timeout:g}"
    sizes += f" --train-rows {train_rows} --draws {draws}"
    sizes += "" if names else " --empty-rivals"
    command = f"python -m benchmarks.tables --data DIR {sizes}{chosen}"
    written = Record(command, settings, _rows(found), _paired(found))
    if written.publish(record, json=json):
        _show(found)


def _variant(name: str, task: TableTask, minutes: float) -> Scored:
    if name in QUICK:
        return ours(task, min(QUICK[name], minutes))
    columns = len(task.task.columns)
    return ours(task, minutes, as_query_law(FixedCardinality(columns, columns)))


def _measures(task: TableTask) -> dict[str, str]:
    """By which measure each column is scored, for the record."""
    found = {}
    for column in task.task.columns:
        cell = "density" if column.step is None else f"cell of {column.step:g}"
        found[column.name] = "probability" if column.is_category else cell
    return found


def _reasons(found: Mapping[str, Mapping[str, Scored]]) -> dict[str, dict[str, str]]:
    return {
        name: {model: score.reason for model, score in models.items() if score.reason}
        for name, models in found.items()
    }


def _rows(found: Mapping[str, Mapping[str, Scored]]) -> list[Row]:
    rows = []
    for name, models in found.items():
        for model, result in models.items():
            for metric, score in result.scores.items():
                rows.append(Row(name, model, metric, score.value, score.se, len(score.rows)))
            rows += [Row(name, model, metric, v) for metric, v in result.counts.items()]
    return rows


def _paired(found: Mapping[str, Mapping[str, Scored]]) -> list[Paired]:
    """Our models less each that comes after them, in all scores that are not of single columns."""
    pairs = []
    for name, models in found.items():
        for (own, ours_), (rival, theirs_) in combinations(models.items(), 2):
            if own not in (OURS, *VARIANTS):
                continue
            for metric in theirs_.scores:
                if "/" not in metric and metric in ours_.scores:
                    less = ours_.scores[metric].minus(theirs_.scores[metric])
                    pairs.append(Paired(name, own, rival, metric, less.value, less.se))
    return pairs


def _tell(name: str, model: str, result: Scored) -> None:
    told = {m: round(result.scores[m].value, 3) for m in SHOWN if m in result.scores}
    note = f" ({result.reason})" if result.reason else ""
    Console(stderr=True).print(f"{name}, {model}: {told}{note}", markup=False)


def _show(found: Mapping[str, Mapping[str, Scored]]) -> None:
    pairs = {(p.dataset, p.b, p.metric): p for p in _paired(found) if p.a == OURS}
    table = Table(title="More nats are better, and less of all else")
    for title in ("set", "model", "metric", "value", "ours less it"):
        number = title in ("value", "ours less it")
        table.add_column(title, justify="right" if number else "left", no_wrap=number)
    for row in _rows(found):
        if row.metric in SHOWN:
            pair = pairs.get((row.dataset, row.model, row.metric))
            less = "" if pair is None else f"{pair.difference:+.3f} ± {pair.se:.3f}"
            value = f"{row.value:.3f}" + ("" if row.se is None else f" ± {row.se:.3f}")
            table.add_row(row.dataset, row.model, row.metric, value, less)
    Console().print(table)
    for name, reasons in _reasons(found).items():
        for model, reason in reasons.items():
            Console().print(f"{name}, {model}: {reason}", markup=False)


if __name__ == "__main__":
    run(app)
