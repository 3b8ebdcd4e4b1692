"""What a canonical order is worth on tables: natural, from data, learned, and random.

    python -m experiments.table_orders --data DIR --minutes 2

On adult, diamonds and nltcs, if no `--sets` are named.

Every model is `TableModel()` but for its order and its time; "learned" spends a quarter of it on
the model that the order is learned from. DIR is laid out as `benchmarks.table_sets` says.
Differences are from the natural order, row by row.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from cyclopts import App

from anyorder.cli import run
from benchmarks.table_networks import questions
from benchmarks.table_variants import comparison

SETS = ("adult", "diamonds", "nltcs")
RANDOM = 3
"""How many random orders."""


def orders(columns: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """The orders of some columns."""
    found: dict[str, Mapping[str, Any]] = {"natural": {}}
    found |= {name: {"order": name} for name in ("complete", "dependence", "learned")}
    for seed in range(RANDOM):
        shuffled = random.Random(seed).sample(list(columns), len(columns))
        found[f"random_{seed}"] = {"order": shuffled}
    return found


app = App(name="table_orders", help=__doc__)
measure = app.default(comparison("experiments.table_orders", orders, questions, by_default=SETS))


if __name__ == "__main__":
    run(app)
