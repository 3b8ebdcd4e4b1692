"""Latency and throughput of a served model, with one client and with a hundred.

    python -m benchmarks.serve --json

A table of eight columns, a model of the default size, a server in its own process on loopback. Each
request queries p(income | age, job) for other values. The clients are bare sockets, so that they
take little of the machine.

    p50_ms            median latency, one client, one request after another
    p50_ms_100        median latency, 100 concurrent clients
    p99_ms_100        99th percentile of the latency, 100 concurrent clients
    requests_per_s    requests per second, 100 concurrent clients
    times_one_client  requests per second, divided by those of one client
    errors            responses other than 200 and failed connections, of both
    rss_growth        memory of the server at the end, divided by that after the warm-up
"""

import asyncio
import json as encoding
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
from cyclopts import App
from rich.console import Console
from rich.table import Table

from anyorder.cli.app import run
from anyorder.cli.console import print_json
from anyorder.cli.options import Json, Whole
from anyorder.errors import check_count
from anyorder.reproduce.record import Record, Row, check_record
from anyorder.tables.model import TableModel

ROWS = 2000
"""Rows of the table: enough to infer the usual types of its columns."""

WARM_UP = 50
"""Requests before the measurement."""

ADDRESS = re.compile(r"http://[\d.]+:\d+")


@dataclass
class Load:
    """Latencies and errors of clients.

    Args:
        seconds: Latency of each request.
        errors: Number of failed requests.
        elapsed: Seconds from the first request to the last response.
    """

    seconds: list[float] = field(default_factory=list)
    errors: int = 0
    elapsed: float = 0.0

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.seconds) / self.elapsed

    def quantile(self, share: float) -> float:
        """Returns a quantile of the latency in milliseconds."""
        return 1000 * float(np.quantile(self.seconds, share))


def main(
    *,
    clients: Whole = 100,
    seconds: float = 30.0,
    json: Json = False,
    record: Path | None = None,
) -> None:
    """Serve a model of the default size, and put it under load.

    Parameters
    ----------
    clients
        Number of concurrent clients.
    seconds
        Duration of the load; one client has a third of it.
    record
        File to which the numbers are written with the command and the commit.
    """
    check_count("clients", clients)
    check_record(record)
    with tempfile.TemporaryDirectory() as folder:
        fitted(Path(folder) / "people")
        with served(Path(folder) / "people") as (address, process):
            found = asyncio.run(measured(address, process.pid, clients=clients, seconds=seconds))
    if record is not None:
        command = f"python -m benchmarks.serve --clients {clients} --seconds {seconds:g}"
        rows = [Row("people", "server", name, value, None, 1) for name, value in found.items()]
        Record(command, {"clients": clients, "seconds": seconds}, rows).save(record)
    if json:
        print_json(found)
        return
    table = Table(title=f"One client, and {clients} concurrent clients")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in found.items():
        table.add_row(name, f"{value:.2f}")
    Console().print(table)


def fitted(folder: Path, **options: Any) -> None:
    """Saves a model of a synthetic table, of the default size and nearly untrained."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 80, ROWS)
    frame = pd.DataFrame({"age": age, "job": rng.choice(["nurse", "clerk", "baker"], ROWS)})
    frame["income"] = np.exp(9 + age / 40 + rng.normal(0, 0.3, ROWS)).round(2)
    frame["hours"] = np.where(rng.random(ROWS) < 0.6, 40.0, rng.normal(30, 8, ROWS))
    for name in ("height", "weight"):
        frame[name] = rng.normal(100, 15, ROWS)
    frame["member"] = rng.random(ROWS) < 0.3
    frame["region"] = rng.choice(list("abcdefgh"), ROWS)
    TableModel(**{"max_steps": 2, **options}).fit(frame).save(folder)


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Starts a server of a model, and yields its address and process."""
    command = [sys.executable, "-m", "anyorder", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if place := ADDRESS.search(line):
                break
        else:
            raise RuntimeError("the server did not start")
        try:
            yield place.group(), process
        finally:
            process.terminate()


async def measured(address: str, pid: int, *, clients: int, seconds: float) -> dict[str, float]:
    """Returns the metrics of a server under load."""
    place = urlsplit(address)
    where = (str(place.hostname), int(place.port or 80))
    await _client(where, Load(), until=None)
    before = resident(pid)
    alone = await loaded(where, clients=1, seconds=seconds / 3)
    crowd = await loaded(where, clients=clients, seconds=seconds)
    return {
        "p50_ms": alone.quantile(0.5),
        f"p50_ms_{clients}": crowd.quantile(0.5),
        f"p99_ms_{clients}": crowd.quantile(0.99),
        "requests_per_s": crowd.rate,
        "requests_per_s_1": alone.rate,
        "times_one_client": crowd.rate / alone.rate,
        "errors": alone.errors + crowd.errors,
        "rss_growth": resident(pid) / before,
    }


async def loaded(where: tuple[str, int], *, clients: int, seconds: float) -> Load:
    """Runs concurrent clients, each with one request after another."""
    load, start = Load(), perf_counter()
    await asyncio.gather(*(_client(where, load, until=start + seconds) for _ in range(clients)))
    load.elapsed = perf_counter() - start
    return load


def resident(pid: int) -> float:
    """Returns the resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096.0


async def _client(where: tuple[str, int], load: Load, *, until: float | None) -> None:
    """Sends requests until a time, or `WARM_UP` requests if it is None."""
    draw = random.Random()
    reader, writer = await asyncio.open_connection(*where)
    asked = 0
    while asked < WARM_UP if until is None else perf_counter() < until:
        asked += 1
        start = perf_counter()
        try:
            writer.write(_request(draw))
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            await reader.readexactly(int(length.group(1)) if length else 0)
            load.errors += not head.startswith(b"HTTP/1.1 200")
        except (OSError, asyncio.IncompleteReadError):
            load.errors += 1
            reader, writer = await asyncio.open_connection(*where)
        load.seconds.append(perf_counter() - start)
    writer.close()


def _request(draw: random.Random) -> bytes:
    given = {"age": draw.randint(20, 70), "job": draw.choice(["nurse", "clerk", "baker"])}
    body = encoding.dumps({"given": given, "columns": ["income"]}).encode()
    head = (
        "POST /v1/conditionals HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


app = App(help=__doc__)
app.default(main)

if __name__ == "__main__":
    run(app)
