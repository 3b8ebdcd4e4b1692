"""The folder by which the benchmark and a rival talk to each other. Needs numpy only.

    schema.json   columns (name, kind, step, levels), draws, seed
    train.csv     rows to fit; categories are the numbers of their levels, gaps are "nan"
    test.csv      rows to score
    gaps.csv      the same with holes to fill
    given.npy     which cells of the test rows are known when conditionals are asked

A worker adds `joint.npy` and `conditional.npy`, nats a row by the measure of the schema (a cell of
its step for a rounded number, a density for another, a probability for a category), `point.npy`,
the filled rows, `draws.npy` of shape ``(draws, rows, columns)``, and `seconds.json`. Each is
written as soon as it is there, so that a worker that is stopped leaves what it had.
"""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ANSWERS = ("joint", "conditional", "point", "draws")


class Column(NamedTuple):
    """What a column is: a number rounded to `step` (None if not), or one of `levels` categories."""

    name: str
    kind: str
    step: float | None = None
    levels: int = 0

    @property
    def is_category(self) -> bool:
        """Whether its values are numbers of levels."""
        return self.kind == "category"


class Task(NamedTuple):
    """What a rival is given. Arrays have shape ``(rows, columns)``."""

    columns: list[Column]
    train: Array
    test: Array
    gaps: Array
    given: NDArray[np.bool_]
    draws: int
    seed: int

    def save(self, folder: Path) -> None:
        """Writes the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        schema = {
            "columns": [column._asdict() for column in self.columns],
            "draws": self.draws,
            "seed": self.seed,
        }
        (folder / "schema.json").write_text(json.dumps(schema, indent=1) + "\n")
        names = ",".join(column.name for column in self.columns)
        for part in ("train", "test", "gaps"):
            path = folder / f"{part}.csv"
            # 17 digits: every double comes back as it was
            np.savetxt(path, getattr(self, part), "%.17g", ",", header=names, comments="")
        np.save(folder / "given.npy", self.given)

    @classmethod
    def load(cls, folder: Path) -> "Task":
        """Reads the folder."""
        schema = json.loads((folder / "schema.json").read_text())
        columns = [Column(**column) for column in schema["columns"]]
        train, test, gaps = (
            np.loadtxt(folder / f"{part}.csv", delimiter=",", skiprows=1, ndmin=2)
            for part in ("train", "test", "gaps")
        )
        given = np.load(folder / "given.npy")
        return cls(columns, train, test, gaps, given, schema["draws"], schema["seed"])

    @property
    def categories(self) -> NDArray[np.bool_]:
        """Which columns are categories."""
        return np.array([column.is_category for column in self.columns])

    def whole_rows(self) -> Array:
        """Rows to fit that have no gap."""
        return self.train[~np.isnan(self.train).any(axis=1)]


class Answers:
    """What a worker gives back, with the seconds that processors spent on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seconds = folder, dict[str, float]()

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        """Does some work; if it is one of `ANSWERS`, what comes back is kept."""
        start = processor_seconds()
        found = work()
        self._keep(name, found, start)
        return found

    def draw(self, times: int, draw: Callable[[], Array]) -> None:
        """Fills holes several times; the draws that a worker has made when it is stopped count."""
        start, found = processor_seconds(), list[Array]()
        for _ in range(times):
            found.append(draw())
            if len(found) > 1:  # one alone does not say how far draws lie apart
                self._keep("draws", np.stack(found), start)

    def _keep(self, name: str, found: Any, start: float) -> None:
        self.seconds[name] = processor_seconds() - start
        if name in ANSWERS:
            half = self.folder / "half.npy"  # a worker may be stopped while it writes
            np.save(half, np.asarray(found, dtype=np.float64))
            half.replace(self.folder / f"{name}.npy")
        (self.folder / "seconds.json").write_text(json.dumps(self.seconds))


def processor_seconds() -> float:
    """Of this process with all its threads, and of those that it started and saw end."""
    return sum(os.times()[:4])


def read_answers(folder: Path) -> tuple[dict[str, Array], dict[str, float]]:
    """The answers that a folder holds, and their seconds."""
    found, seconds = {}, {}
    for name in ANSWERS:
        with suppress(FileNotFoundError):
            found[name] = np.load(folder / f"{name}.npy")
    with suppress(FileNotFoundError, ValueError):
        seconds = json.loads((folder / "seconds.json").read_text())
    return found, seconds


def work(answer: Callable[[Task, Answers], None]) -> None:
    """The `main` of a worker."""
    folder = Path(sys.argv[1])
    answer(Task.load(folder), Answers(folder))
