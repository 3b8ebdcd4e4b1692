"""Contest of `TableModel` and other table models, on the same rows and by the same measure.

    python -m benchmarks.tables --data DIR --minutes 7

The layout of DIR is described in `benchmarks.table_sets`. Each rival runs with its defaults in its
own virtual environment, made on first use (`benchmarks.rival_environments`). Every model answers
what it can of:

    joint         log-likelihood of all observed cells of a test row, in nats
    conditional   log-likelihood of a random half of the cells given the other, in nats
    imputation    point estimates and samples of random cells, three of ten, that are removed

A rounded number counts as the probability of its rounding cell, another as its density in the units
of the column, a category as its probability. `benchmarks.table_scores` defines the scores. Seconds
are CPU seconds of all threads, so that other load changes nothing. Variants of our model can be
added:

    ten_seconds   after ten seconds of training: rivals are often fast
    one_minute    after a minute
    joint_alone   trained on whole rows only, which shows the cost of any-order training
    seed_1, seed_2    with other training seeds, which shows how much they matter
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from anyorder.cli.app import run
from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import ConfigError, check_choice, check_count
from anyorder.lattice.masks import FixedCardinality
from anyorder.lattice.query_laws import as_query_law
from anyorder.reproduce.record import Paired, Record, Row, check_record
from anyorder.tables.model import TableModel
from anyorder.tables.questions import Queries
from benchmarks.cell_likelihood import cell_log_prob
from benchmarks.rival_environments import (
    RIVALS,
    Rival,
    RivalError,
    default_folder,
    environment,
    run_worker,
)
from benchmarks.rivals.task import Answers, Array, read_answers
from benchmarks.table_scores import LIKELIHOODS, imputation, likelihood
from benchmarks.table_sets import BINARY, MIXED, MORE_MIXED, load_set
from benchmarks.table_task import TableTask, table_task

OURS = "TableModel"
QUICK = {"ten_seconds": 1 / 6, "one_minute": 1.0}
"""Training minutes of the quick variants."""

SEEDS = {"seed_1": 1, "seed_2": 2}
"""Training seeds of variants that are otherwise ours, whose seed is 0."""

VARIANTS = (*QUICK, *SEEDS, "joint_alone")
SHOWN = (*(f"{name}_nats" for name in LIKELIHOODS), "nrmse", "error_rate", "crps", "fit_seconds")

FILLS = ("point", "draws")
NO_LEVEL = -1.0
"""Code of a category that a model left empty."""


@dataclass
class Scored:
    """Scores and seconds of a model on a data set, and the reason if some are missing."""

    scores: dict[str, Estimate] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    reason: str | None = None


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
        data: Folder of the data.
        sets: Data sets; nltcs, plants, jester, adult, diamonds, abalone and wine by default.
        rivals: Names of the rivals; all by default.
        minutes: Largest training time of our model on a data set, in CPU minutes.
        rows: Largest number of test rows.
        train_rows: Largest number of training rows, of every model.
        draws: Number of samples of each missing cell.
        timeout: CPU minutes after which a rival is stopped; its answers until then count.
        variants: Variants of our model, none by default; see above.
        environments: Folder of the rivals' environments; under the user's cache by default.
        json: Print one JSON object, the last line of the output.
        record: File to which the numbers are written with the command and the commit.
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
        _report(name, OURS, found[name][OURS])
        for variant in variants:
            found[name][variant] = _variant(variant, tasks[name], minutes)
            _report(name, variant, found[name][variant])
        for rival in names:
            found[name][rival] = theirs(tasks[name], RIVALS[rival], folder, minutes=timeout)
            _report(name, rival, found[name][rival])
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
    if name in SEEDS:
        return ours(task, minutes, seed=SEEDS[name])
    columns = len(task.task.columns)
    return ours(task, minutes, as_query_law(FixedCardinality(columns, columns)))


def ours(task: TableTask, minutes: float, queries: Queries = "any", seed: int = 0) -> Scored:
    """Fits and scores our model in this process, from frames as users have them."""
    have, given = (torch.from_numpy(part) for part in (task.have, task.task.given))
    nothing, kept = torch.zeros_like(given), {}
    with tempfile.TemporaryDirectory() as folder:
        answers = Answers(Path(folder))
        table_model = TableModel(
            queries=queries, minutes=minutes, clock="processor", random_state=seed
        )
        model = answers.time("fit", lambda: table_model.fit(task.train))

        def nats(query: torch.Tensor, known: torch.Tensor) -> Array:
            steps = task.steps
            return cell_log_prob(model, task.test, query=query, given=known, steps=steps).numpy()

        def sampled() -> Array:
            draws = task.task.draws
            filled = model.impute(task.gappy, draws=draws, random_state=task.task.seed)
            return task.codes(filled).reshape(draws, len(task.test), -1)

        kept["joint"] = answers.time("joint", lambda: nats(have, nothing))
        kept["conditional"] = answers.time("conditional", lambda: nats(have & ~given, given))
        kept["point"] = answers.time(
            "point", lambda: task.codes(model.impute(task.gappy, how="mean"))
        )
        kept["draws"] = answers.time("draws", sampled)
    return scored(task, kept, answers.seconds)


def theirs(task: TableTask, rival: Rival, environments: Path, *, minutes: float) -> Scored:
    """Runs and scores a rival in its environment; notes the reason of missing answers."""
    reason = None
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        task.task.save(folder)
        try:
            python = environment(rival, environments)
        except RivalError as error:
            return Scored(reason=f"cannot be installed: {error}")
        try:
            run_worker(rival, python, folder, minutes=minutes)
        except RivalError as error:
            reason = str(error)
        answers, seconds = read_answers(folder)
    result = scored(task, answers, seconds)
    result.reason = reason
    return result


def scored(task: TableTask, answers: Mapping[str, Array], seconds: Mapping[str, float]) -> Scored:
    """Returns all scores of a model's answers."""
    result = Scored(counts={f"{name}_seconds": value for name, value in seconds.items()})
    for name in LIKELIHOODS:
        if name in answers:
            result.scores[f"{name}_nats"], lost = likelihood(answers[name])
            result.counts[f"{name}_impossible_rows"] = lost
    fills = {name: answers[name] for name in FILLS if name in answers}
    if "draws" in fills:
        result.counts["draws"] = len(fills["draws"])  # fewer if a rival was stopped
    for name, rows in fills.items():
        result.counts[f"{name}_changed_cells"] = _changed(task, rows)
        fills[name], result.counts[f"{name}_empty_cells"] = _without_missing(task, rows)
    result.scores |= imputation(task, fills)
    return result


def _without_missing(task: TableTask, rows: Array) -> tuple[Array, int]:
    """Fills the cells that a model left empty, with means or `NO_LEVEL`, and counts them."""
    empty = np.isnan(rows) & task.holes
    means = np.where(task.task.categories, NO_LEVEL, np.nanmean(task.task.train, axis=0))
    return np.where(empty, means, rows), int(empty.sum())


def _changed(task: TableTask, rows: Array) -> int:
    """Counts given cells that a model changed, by reordered rows or an error of its worker.

    The scores of such a model are invalid.
    """
    known = ~np.isnan(task.task.gaps)
    return int((~np.isclose(rows, task.task.gaps, rtol=1e-5) & known).sum())  # some use float32


def _measures(task: TableTask) -> dict[str, str]:
    """Returns the measure of each column, for the record."""
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
    """Returns differences of our models and those after them, in the scores over all columns."""
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


def _report(name: str, model: str, result: Scored) -> None:
    scores = {m: round(result.scores[m].value, 3) for m in SHOWN if m in result.scores}
    note = f" ({result.reason})" if result.reason else ""
    Console(stderr=True).print(f"{name}, {model}: {scores}{note}", markup=False)


def _show(found: Mapping[str, Mapping[str, Scored]]) -> None:
    pairs = {(p.dataset, p.b, p.metric): p for p in _paired(found) if p.a == OURS}
    table = Table(title="More nats are better, and less of all else")
    for title in ("set", "model", "metric", "value", "ours minus it"):
        number = title in ("value", "ours minus it")
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
