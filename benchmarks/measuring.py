"""Measurements of time and memory, and the printing of their ratios."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise torch's profiler logs its own starts

from rich.console import Console
from rich.table import Table
from torch import Tensor, float64, tensor, trapezoid
from torch.profiler import ProfilerActivity, profile

from anyorder.cli.console import print_json
from anyorder.reproduce.record import Record, Row

Work = Callable[[], object]


def seconds(work: Work, *, repeats: int = 1) -> float:
    """Returns the median time of a call."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return median(times)


def peak_bytes(work: Work) -> int:
    """Returns torch's peak allocation during one call."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def times_faster(
    benchmarks: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, tuple[float, float]]:
    """Returns the mean and standard error of each ratio over rounds, after one warm-up."""
    found = {}
    with Console(stderr=True).status("Measuring ...") as status:
        for name, measure in benchmarks.items():
            status.update(f"Measuring {name} ...")
            measure()
            values = tensor([measure() for _ in range(rounds)])
            found[name] = float(values.mean()), standard_error(values)
    return found


def all_steps(step: Callable[[int], Work], steps: Sequence[int]) -> float:
    """Returns the time of all steps up to the last of `steps`, of which only these are timed."""
    times = tensor([seconds(step(t)) for t in steps], dtype=float64)
    count = steps[-1] + 1
    return float(trapezoid(times, tensor(steps, dtype=float64))) * count / (count - 1)


def publish_ratios(
    found: Mapping[str, tuple[float, float]],
    rounds: int,
    *,
    command: str,
    settings: dict[str, Any],
    title: str,
    record: Path | None,
    json: bool,
) -> None:
    """Writes ratios to a record, and prints them as JSON or as a table."""
    if record is not None:
        rows = [Row("random", "path", name, *ratio, rounds) for name, ratio in found.items()]
        Record(f"{command} --rounds {rounds}", settings, rows).save(record)
    if json:
        values = {name: value for name, (value, _) in found.items()}
        print_json(values | {f"{name}_se": error for name, (_, error) in found.items()})
        return
    table = Table(title=title)
    table.add_column("ratio")
    table.add_column("value", justify="right")
    for name, (value, error) in found.items():
        table.add_row(name, f"{value:.2f} ± {error:.2f}")
    Console().print(table)


def standard_error(values: Tensor) -> float:
    """Returns the standard error of a mean over rounds."""
    return float(values.std() / len(values) ** 0.5)
