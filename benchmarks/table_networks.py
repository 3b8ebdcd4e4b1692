"""Which network is the better default for tables: all are fitted for the same time.

    python -m benchmarks.table_networks --data DIR --minutes 2

`path` keeps what is told and what is asked apart (two streams), `path_one_stream` does not, and
`mlp` is the masked residual perceptron of the shape that ACE and the paper use. All else is
`TableModel()`; the time is that of training, without evaluations. DIR is laid out as
`benchmarks.table_sets` says. The likelihoods, nats a row, are of the first test rows:

    joint          of all that a row has
    conditional    of random halves of it given the others
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from anyorder.cli import run
from anyorder.errors import check_count
from anyorder.estimators.table import TableModel
from anyorder.estimators.table_batches import row_log_prob
from anyorder.evaluation import Estimate
from anyorder.reproduce.record import Paired, Record, Row, check_record, print_json
from benchmarks.table_sets import BINARY, MIXED, TableSet, load_set

NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "path": {"network": "path", "streams": 2},
    "path_one_stream": {"network": "path", "streams": 1},
    "mlp": {"network": "mlp"},
}
BASELINE = "path"
METRICS = ("joint", "conditional")

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
    check_count("rows", rows)
    check_record(record)
    kept: list[Row] = []
    paired: list[Paired] = []
    for name in sets or [*BINARY, *MIXED]:
        table = load_set(data, name)
        found = {network: scores(table, network, minutes, rows) for network in NETWORKS}
        for network, estimates in found.items():
            for metric in METRICS:
                value = estimates[metric]
                kept.append(
                    Row(name, network, f"{metric}_nats", value.value, value.se, len(value.rows))
                )
        for network in NETWORKS:
            if network != BASELINE:
                paired += [_difference(name, found, network, metric) for metric in METRICS]
        told = {n: [round(e[m].value, 3) for m in METRICS] for n, e in found.items()}
        Console(stderr=True).print(f"{name}: {told}")
    settings = {"minutes": minutes, "rows": rows, "threads": torch.get_num_threads()}
    chosen = f" --sets {' '.join(sets)}" if sets else ""
    command = f"python -m benchmarks.table_networks --data DIR --minutes {minutes:g}{chosen}"
    written = Record(command, settings, kept, paired)
    if record is not None:
        written.save(record)
    if json:
        print_json(written.to_json())
    else:
        _show(kept, paired)


def scores(table: TableSet, network: str, minutes: float, rows: int) -> dict[str, Estimate]:
    """Joint and conditional log-likelihoods of test rows."""
    model = TableModel(minutes=minutes, **NETWORKS[network]).fit(table.train)
    x, missing = model.table_.encode(table.test.iloc[:rows])
    have = ~missing
    given = have & (torch.rand(have.shape, generator=torch.Generator().manual_seed(0)) < 0.5)
    nothing = torch.zeros_like(given)
    sets = {"joint": (have, nothing), "conditional": (have & ~given, given)}
    return {
        metric: Estimate(row_log_prob(model.model_, x, query=query, given=known))
        for metric, (query, known) in sets.items()
    }


def _difference(
    name: str, found: Mapping[str, Mapping[str, Estimate]], network: str, metric: str
) -> Paired:
    value = found[network][metric].minus(found[BASELINE][metric])
    return Paired(name, network, BASELINE, f"{metric}_nats", value.value, value.se)


def _show(rows: list[Row], paired: list[Paired]) -> None:
    differences = {(pair.dataset, pair.a, pair.metric): pair for pair in paired}
    table = Table(title="Nats a row: more is better")
    for title in ("set", "network", "metric", "value", f"minus {BASELINE}"):
        table.add_column(
            title, justify="left" if title in ("set", "network", "metric") else "right"
        )
    for row in rows:
        pair = differences.get((row.dataset, row.model, row.metric))
        difference = "" if pair is None else f"{pair.difference:+.3f} ± {pair.se:.3f}"
        value = f"{row.value:.3f} ± {row.se:.3f}"
        table.add_row(row.dataset, row.model, row.metric, value, difference)
    Console().print(table)


if __name__ == "__main__":
    run(app)
