"""What a canonical order is worth on tables: natural, from data, learned, and random.

    python -m experiments.table_orders --data DIR --minutes 2

Every model is `TableModel()` but for its order and its time; "learned" spends a quarter of it on
the model that the order is learned from. DIR is laid out as `benchmarks.table_sets` says.
Differences are from the natural order, row by row.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from anyorder.cli import run
from benchmarks.table_networks import questions
from benchmarks.table_variants import compare

SETS = ("adult", "diamonds", "nltcs")
RANDOM = 3
"""How many random orders."""

app = App(name="table_orders", help=__doc__)


@app.default
def measure(
    *,
    data: Path,
    sets: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    minutes: float = 2.0,
    rows: int = 2000,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Fits every order on every set.

    Args:
        data: The folder of the data.
        sets: Which sets; adult, diamonds and nltcs by default.
        minutes: Of training, for each order on each set.
        rows: Test rows.
        json: Print one JSON object, the last line of the output.
        record: A file to which the numbers are written with the command and the commit.
    """
    compare(
        "experiments.table_orders",
        orders,
        questions,
        data=data,
        sets=sets or SETS,
        minutes=minutes,
        rows=rows,
        json=json,
        record=record,
    )


def orders(columns: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """The orders of some columns."""
    found: dict[str, Mapping[str, Any]] = {"natural": {}}
    found |= {name: {"order": name} for name in ("complete", "dependence", "learned")}
    for seed in range(RANDOM):
        shuffled = random.Random(seed).sample(list(columns), len(columns))
        found[f"random_{seed}"] = {"order": shuffled}
    return found


if __name__ == "__main__":
    run(app)
