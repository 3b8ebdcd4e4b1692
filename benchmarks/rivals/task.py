"""Task folder, by which the benchmark and a rival exchange data. Needs only numpy.

    schema.json   columns (name, kind, step, levels), draws, seed
    train.csv     training rows; categories are coded by their levels, missing values are "nan"
    test.csv      test rows
    gaps.csv      test rows with removed cells to impute
    given.npy     mask of the given cells of the test rows in conditional queries

A worker adds `joint.npy` and `conditional.npy`, nats per row by the measure of the schema (a cell
of its step for a rounded number, a density for another, a probability for a category), `point.npy`,
the imputed rows, `draws.npy`, samples of shape ``(draws, rows, columns)``, and `seconds.json`. Each
is written at once, so that a worker that is stopped leaves its answers until then.
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
    """A column: a number rounded to `step` (None if not), or one of `levels` categories."""

    name: str
    kind: str
    step: float | None = None
    levels: int = 0

    @property
    def is_category(self) -> bool:
        """True if its values are codes of levels."""
        return self.kind == "category"


class Task(NamedTuple):
    """Data and queries of a rival. Arrays have shape ``(rows, columns)``."""

    columns: list[Column]
    train: Array
    test: Array
    gaps: Array
    given: NDArray[np.bool_]
    draws: int
    seed: int

    def save(self, folder: Path) -> None:
        """Writes the task folder."""
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
        """Reads the task folder."""
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
        """Mask of the columns that are categories."""
        return np.array([column.is_category for column in self.columns])

    def whole_rows(self) -> Array:
        """Returns the training rows without missing values."""
        return self.train[~np.isnan(self.train).any(axis=1)]


class Answers:
    """Answers of a worker, with their CPU seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seconds = folder, dict[str, float]()

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        """Times some work, and writes its result if it is one of `ANSWERS`."""
        start = processor_seconds()
        found = work()
        self._keep(name, found, start)
        return found

    def draw(self, times: int, draw: Callable[[], Array]) -> None:
        """Samples imputations, and writes them as they come, so that a stop loses none."""
        start, found = processor_seconds(), list[Array]()
        for _ in range(times):
            found.append(draw())
            if len(found) > 1:  # a single sample has no spread
                self._keep("draws", np.stack(found), start)

    def _keep(self, name: str, found: Any, start: float) -> None:
        self.seconds[name] = processor_seconds() - start
        if name in ANSWERS:
            half = self.folder / "half.npy"  # a worker may be stopped while it writes
            np.save(half, np.asarray(found, dtype=np.float64))
            half.replace(self.folder / f"{name}.npy")
        (self.folder / "seconds.json").write_text(json.dumps(self.seconds))


def processor_seconds() -> float:
    """Returns the CPU seconds of this process, its threads and its finished children."""
    return sum(os.times()[:4])


def read_answers(folder: Path) -> tuple[dict[str, Array], dict[str, float]]:
    """Reads the answers in a folder, and their seconds."""
    found, seconds = {}, {}
    for name in ANSWERS:
        with suppress(FileNotFoundError):
            found[name] = np.load(folder / f"{name}.npy")
    with suppress(FileNotFoundError, ValueError):
        seconds = json.loads((folder / "seconds.json").read_text())
    return found, seconds


def work(answer: Callable[[Task, Answers], None]) -> None:
    """Runs a worker on the task folder of the command line."""
    folder = Path(sys.argv[1])
    answer(Task.load(folder), Answers(folder))
