"""Matrix of training laws against test laws: the gain of training on the test queries.

    python -m experiments.query_law_matrix --data DIR --minutes 2

On adult, diamonds and nltcs by default.

Every model is `TableModel()` but for `queries=` and its time, and answers every kind of query. The
figures are nats per row, the differences those from the model that is trained on any query. The
layout of DIR is described in `benchmarks.table_sets`.

    joint         p(all columns)
    marginal      p(some columns), of every number of them
    conditional   p(the rest | a random part)
    partial       p(some columns | some others), the rest marginalised
    last          p(the last column | all others)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cyclopts import App

from anyorder.cli.app import run
from anyorder.lattice.masks import FixedCardinality, UniformCardinality
from anyorder.lattice.query_laws import (
    ConditionalQueries,
    PartialQueries,
    QueryLaw,
    QueryList,
    as_query_law,
)
from benchmarks.table_variants import comparison

SETS = ("adult", "diamonds", "nltcs")


def training(columns: Sequence[str], _minutes: float) -> Mapping[str, Mapping[str, Any]]:
    """Returns the training laws: any query, and each kind of query alone."""
    laws = questions(len(columns))
    return {"any": {}} | {name: {"queries": law} for name, law in laws.items()}


def questions(columns: int) -> Mapping[str, QueryLaw]:
    """Returns the laws of each kind of query."""
    return {
        "joint": as_query_law(FixedCardinality(columns, columns)),
        "marginal": as_query_law(UniformCardinality(columns)),
        "conditional": ConditionalQueries(columns),
        "partial": PartialQueries(columns),
        "last": QueryList(columns, [(range(columns - 1), [columns - 1], 1.0)]),
    }


app = App(name="query_law_matrix", help=__doc__)
measure = app.default(
    comparison("experiments.query_law_matrix", training, questions, by_default=SETS)
)


if __name__ == "__main__":
    run(app)
