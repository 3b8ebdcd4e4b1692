"""Memory and time of fitting a Parquet file that is not read whole.

    python -m benchmarks.large_fit --json

The file is made first: numbers and categories that depend on each other, 2 million rows of 20
columns. Memory is that of the whole process at its peak, the libraries included.

    peak_megabytes    greatest resident memory of the process
    before_megabytes  that before `fit`, when the file was written
    seconds           processor time of `fit`
"""

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from cyclopts import App
from rich.console import Console

from anyorder.cli.app import run
from anyorder.cli.console import print_json
from anyorder.errors import check_count
from anyorder.tables.model import TableModel

CHUNK = 65_536

app = App(name="large_fit", help=__doc__)


@app.default
def measure(
    *, rows: int = 2_000_000, columns: int = 20, minutes: float = 1.0, json: bool = False
) -> None:
    """Measures one fit.

    Args:
        rows: Rows of the file.
        columns: Columns of the file, half of them numbers.
        minutes: Budget of the fit.
        json: Print one JSON object, the last line of the output.
    """
    check_count("rows", rows)
    check_count("columns", columns)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.parquet"
        _write(path, rows, columns)
        before, started = _megabytes(), time.process_time()
        model = TableModel(minutes=minutes, progress=False).fit(path)
        seconds = time.process_time() - started
    found = {
        "rows": model.trained_on_["rows"],
        "steps": model.fit_.step,
        "peak_megabytes": _megabytes(),
        "before_megabytes": before,
        "seconds": seconds,
    }
    if json:
        print_json(found)
        return
    for name, value in found.items():
        Console().print(f"{name:16} {value:>12,.0f}")


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _write(path: Path, rows: int, columns: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for start in range(0, rows, CHUNK):
        part = pa.Table.from_pandas(_rows(min(CHUNK, rows - start), columns, start))
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()


def _rows(rows: int, columns: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=rows)
    found = {}
    for place in range(columns):
        value = hidden * (place % 5) / 4 + rng.normal(size=rows)
        found[f"c{place}"] = value if place % 2 else np.array(list("abcdef"))[_bins(value)]
    return pd.DataFrame(found)


def _bins(values: np.ndarray) -> np.ndarray:
    return np.digitize(values, [-1.5, -0.5, 0.0, 0.5, 1.5])


if __name__ == "__main__":
    run(app)
