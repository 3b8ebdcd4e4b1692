"""Processor seconds until a fit is as good as an earlier one of seven minutes.

    python -m benchmarks.fit_speed --data DIR --json

On penguins, abalone, wine, adult, diamonds, nltcs, plants, jester, accidents and dna, if no
`--sets` are named. The reference of a set is the joint and conditional likelihood of `TableModel`
in `experiments/results/tables.SET.json`, on the rows of that record; where there is none, it is
that of the longest budget, fitted in the same run. A model is fitted with each budget in turn, from
the start, until both likelihoods are within their tolerance of the reference. Budgets count all of
`fit`, its prior and its evaluations too. The layout of DIR is described in `benchmarks.table_sets`.

    seconds       processor time of the first fit that reaches the reference; none if no one does
    default       processor time of `TableModel()` with nothing set
    joint_nats, conditional_nats    nats a row, in cells: see `benchmarks.tables`
"""

import json as jsons
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from anyorder.cli.app import run
from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import check_choice, check_positive
from anyorder.reproduce.record import Record, Row, check_record
from anyorder.tables.model import TableModel
from benchmarks.cell_likelihood import cell_log_prob
from benchmarks.table_scores import LIKELIHOODS, likelihood
from benchmarks.table_sets import SETS, load_set
from benchmarks.table_task import TableTask, table_task

BY_DEFAULT = (
    *("penguins", "abalone", "wine", "adult", "diamonds"),
    *("nltcs", "plants", "jester", "accidents", "dna"),
)
RESULTS = Path(__file__).parent.parent / "experiments" / "results"
BUDGETS = (5.0, 10.0, 20.0, 45.0, 90.0, 180.0, 420.0)
"""Seconds of the fits that are tried in turn."""

ROWS, TRAIN_ROWS = 500, 50_000
"""Test rows, and the most training rows, of sets without a record."""

TOLERANCE = 0.0
"""Nats by which a likelihood may be below its reference."""


class Reference(NamedTuple):
    """A reference: nats by likelihood, its commit, and the rows that it was measured on."""

    nats: dict[str, float]
    commit: str
    rows: int
    train_rows: int


class Fitted(NamedTuple):
    """A fit: processor seconds, and its likelihoods."""

    seconds: float
    nats: dict[str, Estimate]

    def reaches(self, nats: dict[str, float], tolerance: float) -> bool:
        """Tests whether all likelihoods are within a tolerance of those of a reference."""
        return all(self.nats[name].value >= nats[name] - tolerance for name in LIKELIHOODS)


app = App(name="fit_speed", help=__doc__)


@app.default
def measure(
    *,
    data: Path,
    sets: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    budgets: Annotated[list[float] | None, Parameter(consume_multiple=True)] = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Fits every set with rising budgets, and with nothing set.

    Args:
        data: Folder of the data.
        sets: Data sets; by default those named above.
        budgets: Processor seconds to try, in rising order; 5 to 420 by default.
        tolerance: Nats by which a likelihood may be below its reference.
        seed: Seed of the models.
        json: Print one JSON object, the last line of the output.
        record: File to which the numbers are written with the command and the commit.
    """
    check_record(record)
    tried = sorted(budgets or BUDGETS)
    for budget in tried:
        check_positive("budgets", budget)
    names = sets or list(BY_DEFAULT)
    for name in names:
        check_choice("sets", name, SETS)
    rows: list[Row] = []
    references: dict[str, Any] = {}
    for name in names:
        found, references[name] = speed_on(data, name, tried, tolerance=tolerance, seed=seed)
        rows += found
        Console(stderr=True).print(f"{name}: {[(r.model, r.metric, r.value) for r in found]}")
    settings = {
        "references": references,
        "budgets": tried,
        "tolerance": tolerance,
        "seed": seed,
        "threads": torch.get_num_threads(),
    }
    command = f"python -m benchmarks.fit_speed --data DIR --sets {' '.join(names)} --seed {seed}"
    command += f" --tolerance {tolerance:g} --budgets {' '.join(f'{each:g}' for each in tried)}"
    written = Record(command, settings, rows, [])
    if written.publish(record, json=json):
        _show(rows)


def speed_on(
    data: Path, name: str, budgets: list[float], *, tolerance: float, seed: int
) -> tuple[list[Row], dict[str, Any]]:
    """Returns the rows of a data set, and its reference."""
    recorded = reference(name)
    rows, train_rows = (ROWS, TRAIN_ROWS) if recorded is None else recorded[2:]
    task = table_task(load_set(data, name), rows=rows, train_rows=train_rows, draws=2)
    fits: dict[float, Fitted] = {}
    if recorded is None:
        fits[budgets[-1]] = fitted(task, budgets[-1], seed)
        nats = {key: value.value for key, value in fits[budgets[-1]].nats.items()}
        recorded = Reference(nats, "this run", rows, train_rows)
    reached = None
    for budget in budgets:
        fits[budget] = fits.get(budget) or fitted(task, budget, seed)
        if fits[budget].reaches(recorded.nats, tolerance):
            reached = f"{budget:g}s"
            break
    found = {f"{budget:g}s": fit for budget, fit in sorted(fits.items())}
    found["default"] = fitted(task, None, seed)
    kept = [row for model, fit in found.items() for row in _rows(name, model, fit)]
    if reached is not None:
        kept.append(Row(name, "reaches the reference", "seconds", found[reached].seconds))
    return kept, recorded._asdict()


def reference(name: str) -> Reference | None:
    """Returns the recorded likelihoods of a set; None if there is no record."""
    path = RESULTS / f"tables.{name}.json"
    if not path.exists():
        return None
    document = jsons.loads(path.read_text())
    ours = {
        row["metric"].removesuffix("_nats"): row["value"]
        for row in document["rows"]
        if row["dataset"] == name and row["model"] == "TableModel"
    }
    settings = document["settings"]
    nats = {key: ours[key] for key in LIKELIHOODS}
    return Reference(nats, document["commit"], settings["rows"], settings["train_rows"])


def fitted(task: TableTask, budget: float | None, seed: int) -> Fitted:
    """Fits a model within so many processor seconds, or with nothing set but the clock."""
    start = time.process_time()
    minutes = None if budget is None else budget / 60
    model = TableModel(minutes=minutes, clock="processor", random_state=seed, progress=False)
    model.fit(task.train)
    seconds = time.process_time() - start
    have, given = (torch.from_numpy(part) for part in (task.have, task.task.given))
    asked = {"joint": (have, torch.zeros_like(given)), "conditional": (have & ~given, given)}
    nats = {}
    for name, (query, known) in asked.items():
        logs = cell_log_prob(model, task.test, query=query, given=known, steps=task.steps)
        nats[name], _ = likelihood(logs.numpy())
    return Fitted(seconds, nats)


def _rows(name: str, model: str, fit: Fitted) -> list[Row]:
    scores = [
        Row(name, model, f"{key}_nats", value.value, value.se, len(value.rows))
        for key, value in fit.nats.items()
    ]
    return [*scores, Row(name, model, "seconds", fit.seconds)]


def _show(rows: list[Row]) -> None:
    table = Table(title="Processor seconds, and nats a row: more nats are better")
    for title in ("set", "fit", "metric", "value"):
        table.add_column(title, justify="right" if title == "value" else "left")
    for row in rows:
        error = "" if row.se is None else f" ± {row.se:.3f}"
        table.add_row(row.dataset, row.model, row.metric, f"{row.value:.3f}{error}")
    Console().print(table)


if __name__ == "__main__":
    run(app)
