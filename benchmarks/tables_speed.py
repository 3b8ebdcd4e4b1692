"""Speed of a default table model, and memory of scoring a large file.

    python -m benchmarks.tables_speed --json

Models have the default size and are untrained, because training does not change the speed.

    cells_per_second_binary   log_prob of random halves given the others, 100 binary columns
    cells_per_second_mixed    the same, 15 columns: 5 numbers, 5 with repeated values, 5 categories
    conditional_vs_energy     the same queries on 15 numbers: one pass with mixtures / the path of a
                              masked network with energies and 100 importance samples (ACE)
    parquet_rows_per_second   scoring a Parquet file of 5 million rows and 3 columns in chunks
    parquet_peak_megabytes    peak memory of the process meanwhile
"""

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from cyclopts import App
from rich.console import Console
from rich.table import Table

from anyorder.cli.app import run
from anyorder.cli.console import print_json
from anyorder.errors import check_count
from anyorder.heads.energy import EnergyConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.networks.residual_mlp import ResidualMlp
from anyorder.reproduce.record import Record, Row, check_record
from anyorder.tables.files import read_chunks
from anyorder.tables.model import TableModel
from benchmarks.measuring import seconds, standard_error

ENERGY_SAMPLES = 100
CHUNK = 65_536

app = App(name="tables_speed", help=__doc__)


@app.default
def measure(
    *,
    rounds: int = 3,
    parquet_rows: int = 5_000_000,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Measures everything.

    Args:
        rounds: Number of measurements of each.
        parquet_rows: Rows of the large file; 0 skips it.
        json: Print one JSON object, the last line of the output.
        record: File to which the numbers are written with the command and the commit.
    """
    check_count("rounds", rounds)
    check_count("parquet_rows", parquet_rows, low=0)
    check_record(record)
    rows = []
    for name, frame in {"binary": binary(2000), "mixed": mixed(4000)}.items():
        cells, per_row = cells_per_second(frame, rounds)
        rows.append(_row(f"cells_per_second_{name}", cells))
        rows.append(_row(f"rows_per_second_{name}", cells / per_row))
    rows.append(_row("conditional_vs_energy", conditional_vs_energy(rounds)))
    if parquet_rows:
        speed, peak = parquet(parquet_rows)
        rows.append(Row("made here", "TableModel", "parquet_rows_per_second", speed))
        rows.append(Row("made here", "TableModel", "parquet_peak_megabytes", peak))
    settings = {"threads": torch.get_num_threads(), "parquet_rows": parquet_rows}
    command = f"python -m benchmarks.tables_speed --rounds {rounds}"
    kept = Record(command, settings, rows)
    if record is not None:
        kept.save(record)
    if json:
        print_json({row.metric: row.value for row in rows})
        return
    table = Table(title="A default table model")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for row in rows:
        table.add_row(row.metric, f"{row.value:,.1f}" + (f" ± {row.se:,.1f}" if row.se else ""))
    Console().print(table)


def cells_per_second(frame: pd.DataFrame, rounds: int) -> tuple[torch.Tensor, float]:
    """Returns queried cells per second of random halves given the others, and cells per row."""
    model = TableModel(max_steps=1).fit(frame)
    x, missing = model.table_.encode(frame)
    given = torch.rand(missing.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    speeds = [
        (~given).sum() / seconds(lambda: log_prob(model.model_, x, query=~given, given=given))
        for _ in range(rounds)
    ]
    return torch.stack(speeds).double(), float((~given).sum() / len(x))


def conditional_vs_energy(rounds: int) -> torch.Tensor:
    """Returns the ratio of times for the same conditional likelihoods."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(512, 15))).add_prefix("c")
    ours = TableModel(max_steps=1).fit(frame)
    schema = ours.table_.schema
    torch.manual_seed(0)
    network = ResidualMlp(schema, width=64, hidden=512, blocks=4)
    energies = EnergyConditionals(schema, width=64, samples=ENERGY_SAMPLES)
    ace = AnyOrderModel(schema, network, energies, ours.model_.protocol).eval()
    x, _ = ours.table_.encode(frame)
    given = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.5

    def by_samples() -> None:
        energies.train()  # normalises by importance sampling, as ACE does
        with torch.no_grad():
            rank = ace.protocol.rank(~given)
            ace.factors(x, query=~given, given=given, rank=rank)

    def one_pass() -> None:
        log_prob(ours.model_, x, query=~given, given=given)

    ratios = []
    for _ in range(rounds + 1):  # the first is the warm-up
        ratios.append(seconds(by_samples) / seconds(one_pass, repeats=5))
    return torch.tensor(ratios[1:], dtype=torch.float64)


def parquet(number: int) -> tuple[float, float]:
    """Returns rows per second of scoring a large file in chunks, and peak memory in MB."""
    model = TableModel(max_steps=1).fit(_three(2000, 0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.parquet"
        _write(path, number)
        start, total, count = time.perf_counter(), 0.0, 0
        for chunk in read_chunks(path, rows=CHUNK):
            scores = model.log_prob(chunk)
            total, count = total + float(scores.sum()), count + len(scores)
        speed = count / (time.perf_counter() - start)
    assert count == number
    return speed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _write(path: Path, number: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = pa.Table.from_pandas(_three(2, 0))
    with pq.ParquetWriter(path, first.schema) as writer:
        for start in range(0, number, CHUNK):
            part = _three(min(CHUNK, number - start), start)
            writer.write_table(pa.Table.from_pandas(part))


def binary(rows: int) -> pd.DataFrame:
    """Returns a table of 100 binary columns."""
    return pd.DataFrame(np.random.default_rng(0).random((rows, 100)) < 0.3).add_prefix("v")


def mixed(rows: int) -> pd.DataFrame:
    """Returns a table of numbers, numbers with repeated values, and categories."""
    rng = np.random.default_rng(0)
    numbers = {f"number{i}": rng.normal(size=rows) for i in range(5)}
    counts = {f"count{i}": rng.poisson(3 + 5 * i, rows) for i in range(5)}
    levels = {f"level{i}": rng.choice(list("abcdefgh"), rows) for i in range(5)}
    return pd.DataFrame({**numbers, **counts, **levels})


def _three(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    level = rng.choice(["a", "b", "c"], rows)
    return pd.DataFrame({"x": rng.normal(size=rows), "y": rng.exponential(size=rows), "z": level})


def _row(metric: str, values: torch.Tensor) -> Row:
    error = standard_error(values) if len(values) > 1 else None
    return Row("made here", "TableModel", metric, float(values.mean()), error, len(values))


if __name__ == "__main__":
    run(app)
