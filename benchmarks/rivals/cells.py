"""Cells of rounded numbers, for models that have densities only. Needs numpy only.

The probability of a cell is its width times the mean density in it. Models are fitted to rows
that are spread evenly over their cells, or they would put ever narrower bells on values that
repeat; and the mean is taken over random places of the cell, which is right on average whatever
the density does there. (The density at the middle times the width can exceed one.)
"""

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.rivals.task import Array

PLACES = 16
"""Random places of a cell."""


def spread(values: Array, steps: Sequence[float | None], rng: np.random.Generator) -> Array:
    """Values moved to random places of their cells."""
    widths = np.array([step or 0.0 for step in steps])
    return values + (rng.random(values.shape) - 0.5) * widths


def cell_log_prob(
    log_density: Callable[[Array], Array],
    values: Array,
    steps: Sequence[float | None],
    rng: np.random.Generator,
    *,
    exact: Array | None = None,
) -> Array:
    """The log probability of each row's cells.

    Args:
        log_density: Of rows; NaN cells are marginalised.
        values: Rows; NaN where nothing is asked.
        steps: The widths of cells; None for densities and what has a probability already.
        rng: Of the places.
        exact: Values that are known and not spread; NaN elsewhere.
    """
    logs = []
    for _ in range(PLACES):
        rows = spread(values, steps, rng)
        logs.append(log_density(rows if exact is None else np.where(np.isnan(rows), exact, rows)))
    stacked = np.stack(logs)
    highest = stacked.max(axis=0)
    highest = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        mean = highest + np.log(np.exp(stacked - highest).mean(axis=0))
    widths = np.array([np.log(step) if step else 0.0 for step in steps])
    return mean + (~np.isnan(values) * widths).sum(axis=1)
