"""Comparison of table networks, fitted for the same time.

    python -m benchmarks.table_networks --data DIR --minutes 2

On nltcs, plants, jester, adult and diamonds, if no `--sets` are named.

`perceptron` is the default, `path` is a Transformer with separate streams for evidence and query,
`path_one_stream` has one, and `mlp` is the masked residual MLP of ACE and the paper. All else is
`TableModel()`; the time is that of training, without evaluations. The layout of DIR is described in
`benchmarks.table_sets`. The likelihoods, nats a row, are of the first test rows:

    joint          all observed cells of a row
    conditional    random parts of it given the rest
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cyclopts import App

from anyorder.cli.app import run
from anyorder.lattice.masks import FixedCardinality
from anyorder.lattice.query_laws import ConditionalQueries, QueryLaw, as_query_law
from benchmarks.table_sets import BINARY, MIXED
from benchmarks.table_variants import comparison

NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "perceptron": {"network": "perceptron"},
    "path": {"network": "path", "streams": 2},
    "path_one_stream": {"network": "path", "streams": 1},
    "mlp": {"network": "mlp"},
}


def networks(_columns: Sequence[str], _minutes: float) -> Mapping[str, Mapping[str, Any]]:
    """Returns the networks, for any columns and time."""
    return NETWORKS


def questions(columns: int) -> Mapping[str, QueryLaw]:
    """Returns the laws of the test queries."""
    joint = as_query_law(FixedCardinality(columns, columns))
    return {"joint": joint, "conditional": ConditionalQueries(columns)}


app = App(name="table_networks", help=__doc__)
# A masked network takes a pass for each cell of the test rows.
measure = app.default(
    comparison(
        "benchmarks.table_networks",
        networks,
        questions,
        by_default=(*BINARY, *MIXED),
        test_rows=1000,
    )
)


if __name__ == "__main__":
    run(app)
