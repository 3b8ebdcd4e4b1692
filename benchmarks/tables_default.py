"""Likelihoods of a default `TableModel()`, beside those of other models.

    python -m benchmarks.tables_default --data DIR --json

The layout of DIR is described in `benchmarks.table_sets`. Every model is `TableModel()` with its
defaults, fitted on the training rows; the test rows are read once.

    nltcs, plants, jester ...   joint log-likelihood, nats per row
    adult                       joint; accuracy and log-loss of income given the other columns,
                                beside a gradient-boosted classifier trained for this only
    diamonds                    joint, in the units of the columns (a random tenth is the test)
"""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from anyorder.cli.app import run
from anyorder.diagnostics.evaluation import Estimate
from anyorder.reproduce.record import Paired, Record, Row, check_record
from anyorder.tables.model import TableModel
from benchmarks.table_sets import BINARY, MIXED, TableSet, load_set

ELSEWHERE = {
    "nltcs": {"TabularARGN": -6.058, "first path network": -5.99},
    "plants": {"TabularARGN": -13.36, "first path network": -12.46},
    "jester": {"first path network": -52.23},
}
"""Earlier measurements on similar machines: TabularARGN is mostlyai-engine 2.7.3 with its defaults;
the path network had 3 layers of width 96, untuned, for 150, 900 and 400 s of one core."""

app = App(name="tables_default", help=__doc__)


@app.default
def measure(
    *,
    data: Path,
    sets: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Fits and scores every data set.

    Args:
        data: Folder of the data.
        sets: Data sets; nltcs, plants, jester, adult and diamonds by default.
        json: Print one JSON object, the last line of the output.
        record: File to which the numbers are written with the command and the commit.
    """
    check_record(record)
    names = sets or [*BINARY, *MIXED]
    rows: list[Row] = []
    paired: list[Paired] = []
    for name in names:
        found = (adult if name == "adult" else joint_only)(name, load_set(data, name))
        rows += found[0]
        paired += found[1]
        Console(stderr=True).print(f"{name}: {[(r.metric, round(r.value, 3)) for r in found[0]]}")
    settings = {
        "model": TableModel().get_params(),
        "elsewhere": ELSEWHERE,
        "threads": torch.get_num_threads(),
    }
    chosen = f" --sets {' '.join(sets)}" if sets else ""
    command = f"python -m benchmarks.tables_default --data DIR{chosen}"
    kept = Record(command, settings, rows, paired)
    if kept.publish(record, json=json):
        _show(rows)


Found = tuple[list[Row], list[Paired]]


def joint_only(name: str, table: TableSet) -> Found:
    """Returns the joint log-likelihood of all columns, in nats per row."""
    model, minutes = _fitted(table.train)
    joint = Estimate(torch.from_numpy(model.log_prob(table.test)))
    rows = [
        _row(name, "TableModel", "joint_nats", joint),
        Row(name, "TableModel", "minutes", minutes),
    ]
    rows += [Row(name, other, "joint_nats", v) for other, v in ELSEWHERE.get(name, {}).items()]
    return rows, []


def adult(name: str, table: TableSet) -> Found:
    """Returns the joint of adult, and income given the rest beside a classifier."""
    train, test = table
    model, minutes = _fitted(train)
    joint = Estimate(torch.from_numpy(model.log_prob(test)))
    truth = (test.income == ">50K").to_numpy()
    ours = model.predict_proba(test, target="income")[">50K"].to_numpy()
    boosted = _boosted(train, test)
    rows = [
        _row(name, "TableModel", "joint_nats", joint),
        Row(name, "TableModel", "minutes", minutes),
    ]
    paired = []
    scores = {"income_accuracy": _hits, "income_log_loss": _log_loss}
    for metric, score in scores.items():
        a, b = Estimate(score(ours, truth)), Estimate(score(boosted, truth))
        rows += [_row(name, "TableModel", metric, a), _row(name, "HistGradientBoosting", metric, b)]
        difference = a.minus(b)
        paired.append(
            Paired(
                name, "TableModel", "HistGradientBoosting", metric, difference.value, difference.se
            )
        )
    return rows, paired


def _fitted(train: pd.DataFrame) -> tuple[TableModel, float]:
    start = time.perf_counter()
    model = TableModel().fit(train)
    return model, (time.perf_counter() - start) / 60


def _boosted(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray[Any, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    features = [c for c in train.columns if c != "income"]
    both = pd.concat([train[features], test[features]])
    for column in both.select_dtypes(exclude="number").columns:
        both[column] = both[column].astype("category")
    classifier = HistGradientBoostingClassifier(
        categorical_features="from_dtype", early_stopping=True, random_state=0
    )
    classifier.fit(both.iloc[: len(train)], train.income == ">50K")
    return classifier.predict_proba(both.iloc[len(train) :])[:, 1]


def _hits(probability: np.ndarray[Any, Any], truth: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.from_numpy(((probability > 0.5) == truth).astype(float))


def _log_loss(probability: np.ndarray[Any, Any], truth: np.ndarray[Any, Any]) -> torch.Tensor:
    right = np.where(truth, probability, 1 - probability).astype(float)
    return torch.from_numpy(-np.log(right.clip(1e-12)))


def _row(name: str, model: str, metric: str, found: Estimate) -> Row:
    return Row(name, model, metric, found.value, found.se, len(found.rows))


def _show(rows: list[Row]) -> None:
    table = Table(title="TableModel() with its defaults")
    for title in ("set", "model", "metric", "value"):
        table.add_column(title, justify="right" if title == "value" else "left")
    for row in map(asdict, rows):
        error = "" if row["se"] is None else f" ± {row['se']:.3f}"
        table.add_row(row["dataset"], row["model"], row["metric"], f"{row['value']:.3f}{error}")
    Console().print(table)


if __name__ == "__main__":
    run(app)
