"""What telling a model what it will be asked is worth: training laws against test laws.

    python -m experiments.query_law_matrix --data DIR --minutes 2

On adult, diamonds and nltcs, if no `--sets` are named.

Every model is `TableModel()` but for `queries=` and its time, and is asked every kind of question;
the figures are nats a row, the differences from the model that was trained on any. DIR is laid out
as `benchmarks.table_sets` says.

    joint         p(all columns)
    marginal      p(some columns), of every number of them
    conditional   p(the rest | a random part)
    partial       p(some columns | some others), the rest unknown
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
    """What each model is trained for: any, and each kind of question alone."""
    laws = questions(len(columns))
    return {"any": {}} | {name: {"queries": law} for name, law in laws.items()}


def questions(columns: int) -> Mapping[str, QueryLaw]:
    """The kinds of questions."""
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
