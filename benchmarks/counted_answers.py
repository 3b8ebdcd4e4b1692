"""Answers that can be counted: p(column | one category) beside the shares of the training rows.

    python -m benchmarks.counted_answers --data DIR --seconds 60 --seeds 0 1 2 3 4 --json

Every model answers p(category | nothing) and p(category | one category), for all evidence that at
least 30 training rows match. Three errors are printed, each as the mean over training seeds with
its standard error: the largest difference from the share of the matching rows in percentage points,
the root mean square difference in points, and the root mean square of the difference in standard
errors of the share. About 1 of those is what a fresh sample of as many rows would differ by.

The rivals are the column frequencies, which ignore the evidence, and whatever `--variants` names.
penguins comes with the package palmerpenguins; other sets are described in `benchmarks.table_sets`.
"""

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from anyorder.cli.app import run
from anyorder.demo.show import penguins
from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import check_choice
from anyorder.reproduce.record import Record, Row, check_record
from anyorder.tables.evaluation import Counted
from anyorder.tables.model import TableModel
from benchmarks.table_sets import load_set

VARIANTS: dict[str, dict[str, Any]] = {"TableModel": {}, "no prior": {"prior": False}}
"""Arguments of the models that are compared."""

ERRORS = ("largest_points", "rms_points", "rms_z")
METRICS = (*ERRORS, *(f"numbers_{name}" for name in ERRORS))

app = App(name="counted_answers", help=__doc__)


@app.default
def measure(
    *,
    data: Path | None = None,
    sets: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    seconds: float = 60.0,
    seeds: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    variants: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Fits every variant for every seed, and compares its answers with counts.

    Args:
        data: Folder of the data sets other than penguins.
        sets: Data sets; penguins by default.
        seconds: Processor time of each training.
        seeds: Training seeds; 0 to 4 by default.
        variants: Models; TableModel by default.
        json: Print one JSON object, the last line of the output.
        record: File to which the numbers are written with the command and the commit.
    """
    check_record(record)
    chosen, names, numbers = variants or ["TableModel"], sets or ["penguins"], seeds or [*range(5)]
    for name in chosen:
        check_choice("--variants", name, VARIANTS)
    rows: list[Row] = []
    for name in names:
        frame = penguins() if name == "penguins" else load_set(data or Path(), name).train
        rows += _frequencies(name, frame)
        for variant in chosen:
            rows += _measured(name, variant, frame, seconds, numbers)
    settings = {"seconds": seconds, "seeds": numbers, "threads": torch.get_num_threads()}
    command = (
        f"python -m benchmarks.counted_answers --data DIR --sets {' '.join(names)} "
        f"--seconds {seconds:g} --seeds {' '.join(map(str, numbers))} "
        f"--variants {' '.join(map(repr, chosen))}"
    )
    if Record(command, settings, rows).publish(record, json=json):
        _show(rows)


def _measured(
    name: str, variant: str, frame: pd.DataFrame, seconds: float, seeds: list[int]
) -> list[Row]:
    found = []
    for seed in seeds:
        start = time.process_time()
        model = TableModel(
            minutes=seconds / 60, clock="processor", random_state=seed, **VARIANTS[variant]
        )
        counts = model.fit(frame).check_counts(frame)
        spent = time.process_time() - start
        found.append([*errors(counts), spent])
        worst = counts[counts["event"].str.contains("=")].iloc[0]
        Console(stderr=True).print(
            f"{name}, {variant}, seed {seed}: {found[-1]}; worst p({worst.event} | {worst.given}) "
            f"{worst.probability:.3f}, {worst.share:.3f} of {worst.rows} rows"
        )
    estimates = [Estimate(torch.tensor(values).double()) for values in zip(*found, strict=True)]
    return [
        Row(name, variant, metric, one.value, one.se if len(seeds) > 1 else None, len(seeds))
        for metric, one in zip((*METRICS, "processor_seconds"), estimates, strict=True)
        if not np.isnan(one.value)
    ]


def errors(counts: pd.DataFrame) -> list[float]:
    """Returns `METRICS`: the largest and the root mean square error in points, and the z-score.

    Args:
        counts: From `TableModel.check_counts`. Without numbers, theirs are not a number.
    """
    of_levels = counts["event"].str.contains("=")
    return [*_errors(counts[of_levels]), *_errors(counts[~of_levels])]


def _errors(counts: pd.DataFrame) -> list[float]:
    points = 100 * (counts["probability"] - counts["share"])
    return [
        float(points.abs().max()),
        float(np.sqrt((points**2).mean())),
        float(np.sqrt((counts["z"] ** 2).mean())),
    ]


def _frequencies(name: str, frame: pd.DataFrame) -> list[Row]:
    """Returns the errors of a model that ignores the evidence."""
    counts = TableModel(max_steps=1, layers=1, width=8, heads=2).fit(frame).check_counts(frame)
    alone = counts[counts["given"] == ""].set_index("event")["share"]
    levels = [
        Counted(one.given, one.event, one.rows, one.share, alone[one.event])
        for one in counts[counts["event"].isin(alone.index)].itertuples()
    ]
    found = errors(pd.DataFrame([{**vars(one), "z": one.z} for one in levels]))
    return [
        Row(name, "column frequencies", metric, value)
        for metric, value in zip(ERRORS, found, strict=False)
    ]


def _show(rows: list[Row]) -> None:
    table = Table(title="Answers beside counts")
    for title in ("set", "model", "metric", "value"):
        table.add_column(title, justify="right" if title == "value" else "left")
    for row in rows:
        error = "" if row.se is None else f" ± {row.se:.2f}"
        table.add_row(row.dataset, row.model, row.metric, f"{row.value:.2f}{error}")
    Console().print(table)


if __name__ == "__main__":
    run(app)
