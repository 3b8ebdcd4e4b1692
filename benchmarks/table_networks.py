"""Which network is the better default for tables: all are fitted for the same time.

    python -m benchmarks.table_networks --data DIR --minutes 2

`path` keeps what is told and what is asked apart (two streams), `path_one_stream` does not, and
`mlp` is the masked residual perceptron of the shape that ACE and the paper use. All else is
`TableModel()`; the time is that of training, without evaluations. DIR is laid out as
`benchmarks.table_sets` says. The likelihoods, nats a row, are of the first test rows:

    joint          of all that a row has
    conditional    of random parts of it given the rest
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from anyorder.cli import run
from anyorder.masks import FixedCardinality
from anyorder.query_laws import ConditionalQueries, QueryLaw, as_query_law
from benchmarks.table_sets import BINARY, MIXED
from benchmarks.table_variants import compare

NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "path": {"network": "path", "streams": 2},
    "path_one_stream": {"network": "path", "streams": 1},
    "mlp": {"network": "mlp"},
}

app = App(name="table_networks", help=__doc__)


@app.default
def measure(
    *,
    data: Path,
    sets: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    minutes: float = 2.0,
    rows: int = 1000,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Fits every network on every set.

    Args:
        data: The folder of the data.
        sets: Which sets; nltcs, plants, jester, adult and diamonds by default.
        minutes: Of training, for each network on each set.
        rows: Test rows; a masked network takes a pass for each cell of them.
        json: Print one JSON object, the last line of the output.
        record: A file to which the numbers are written with the command and the commit.
    """
    compare(
        "benchmarks.table_networks",
        networks,
        questions,
        data=data,
        sets=sets or [*BINARY, *MIXED],
        minutes=minutes,
        rows=rows,
        json=json,
        record=record,
    )


def networks(_: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """The networks, for any columns."""
    return NETWORKS


def questions(columns: int) -> Mapping[str, QueryLaw]:
    """What is asked of each."""
    joint = as_query_law(FixedCardinality(columns, columns))
    return {"joint": joint, "conditional": ConditionalQueries(columns)}


if __name__ == "__main__":
    run(app)
