"""Comparison of canonical orders on tables: natural, from data, learned, and random.

    python -m experiments.table_orders --data DIR --minutes 2

On adult, diamonds and nltcs by default.

Every model is `TableModel()` but for its order and its time. "learned" spends a quarter of the time
on the model that the order is learned from. "learned_on_top" has that quarter in addition, so that
it is trained along its order for as long as the others. "mixture" is a mixture of three models
along random orders, "members" an ensemble of three along the natural one; both have the same total
time. The layout of DIR is described in `benchmarks.table_sets`. Differences are paired, from the
natural order.
"""

import random
from collections.abc import Mapping, Sequence

from cyclopts import App

from anyorder.cli.app import run
from anyorder.tables.orders import EXPLORED
from benchmarks.table_networks import questions
from benchmarks.table_variants import Options, comparison

SETS = ("adult", "diamonds", "nltcs")
RANDOM = 3
"""Number of random orders."""


def orders(columns: Sequence[str], minutes: float) -> Mapping[str, Options]:
    """Returns the variants by order, for the columns of a table."""
    found: dict[str, Options] = {"natural": {}}
    found |= {name: {"order": name} for name in ("complete", "dependence", "learned")}
    found["learned_on_top"] = {"order": "learned", "minutes": minutes / (1 - EXPLORED)}
    shuffled = [
        {"order": random.Random(seed).sample(list(columns), len(columns))} for seed in range(RANDOM)
    ]
    found |= {f"random_{seed}": options for seed, options in enumerate(shuffled)}
    return {**found, "mixture": shuffled, "members": {"members": RANDOM}}


app = App(name="table_orders", help=__doc__)
measure = app.default(comparison("experiments.table_orders", orders, questions, by_default=SETS))


if __name__ == "__main__":
    run(app)
