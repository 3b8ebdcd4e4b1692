"""Calibration of a default `TableModel()`, by the share of a row that is given.

    python -m experiments.calibration --data DIR

On adult and diamonds by default: the model is fitted on the training rows with its defaults, and
`TableModel.check` checks it on test rows. The layout of DIR is described in
`benchmarks.table_sets`.

    coverage_90     coverage of central 90% intervals
    off             largest error of any stated probability of a number
    off_categories  expected calibration error of categories
    gaps            self-consistency gaps in nats; see docs/diagnostics.md
"""

from pathlib import Path
from typing import Annotated

import torch
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from anyorder.cli.app import run
from anyorder.diagnostics.check import Check
from anyorder.errors import check_count
from anyorder.reproduce.record import Record, Row, check_record
from anyorder.tables.model import TableModel
from anyorder.training.settings import Clock
from benchmarks.table_sets import load_set

SETS = ("adult", "diamonds")
LEVEL = 0.9

CLOCK: Clock = "processor"
"""Clock of the training budget: CPU minutes, so that other load changes nothing."""

app = App(name="calibration", help=__doc__)


@app.default
def measure(
    *,
    data: Path,
    sets: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    rows: int = 5000,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Fits and checks every data set.

    Args:
        data: Folder of the data.
        sets: Data sets.
        rows: Largest number of test rows.
        json: Print one JSON object, the last line of the output.
        record: File to which the numbers are written with the command and the commit.
    """
    check_record(record)
    check_count("rows", rows)
    names = sets or list(SETS)
    found: list[Row] = []
    for name in names:
        table = load_set(data, name)
        model = TableModel(clock=CLOCK).fit(table.train)
        check = model.check(table.test, rows=rows)
        Console(stderr=True).print(f"{name}: {check}")
        found += numbers(name, check)
    settings = {
        "model": TableModel(clock=CLOCK).get_params(),
        "rows": rows,
        "threads": torch.get_num_threads(),
    }
    command = f"python -m experiments.calibration --data DIR --sets {' '.join(names)} --rows {rows}"
    kept = Record(command, settings, found)
    if kept.publish(record, json=json):
        _show(found)


def numbers(name: str, check: Check) -> list[Row]:
    """Returns the numbers of a check as rows; `model` is the share that is given."""
    found = []
    for given, part in check.numbers.items():
        share = part.coverage(LEVEL)
        found.append(Row(name, given, "coverage_90", share.value, share.se, len(share.rows)))
        found.append(Row(name, given, "off", part.distance, n=len(part.pit)))
    for given, levels in check.categories.items():
        found.append(Row(name, given, "off_categories", levels.expected_error, n=len(levels.pit)))
    for gap in ("path", "marginalisation", "ratio", "encoding"):
        size = getattr(check, gap)
        if size is not None:
            found.append(Row(name, gap, "gap_nats", size.size.value, size.size.se))
    return found


def _show(found: list[Row]) -> None:
    table = Table(title="Calibration")
    for title in ("set", "given, or the gap", "metric", "value"):
        table.add_column(title, justify="right" if title == "value" else "left")
    for row in found:
        error = "" if row.se is None else f" ± {row.se:.3f}"
        table.add_row(row.dataset, row.model, row.metric, f"{row.value:.3f}{error}")
    Console().print(table)


if __name__ == "__main__":
    run(app)
