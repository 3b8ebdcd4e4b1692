"""Counts the functions and modules of anyorder that one call runs through.

    python -m benchmarks.modules_crossed --json

A reader who follows a call crosses these modules; fewer are easier to follow. Code that runs while
a module is imported does not count, nor does code of other packages.

    log_prob   `TableModel.log_prob` on a table of 200 rows
    fit        `TableModel.fit` on the same table, up to the first step of the optimiser
    query      `anyorder query RUN --of pay --given ...`, in this process
    table1     `anyorder reproduce table1 --scale tiny`, up to the first step of the optimiser
"""

import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from cyclopts import App
from rich.console import Console
from rich.table import Table

from anyorder.cli.app import main as anyorder
from anyorder.cli.app import run
from anyorder.cli.console import print_json
from anyorder.tables.model import TableModel
from anyorder.training.learner import AdamW

PACKAGE = "anyorder"

ROWS = 200

SMALL: dict[str, Any] = {"max_steps": 2, "layers": 1, "width": 16, "heads": 2}
"""Of a model that is fitted in a second: its size does not change what is crossed."""


@dataclass
class Crossed:
    """The functions that ran, as a module and a qualified name, and the modules they are in.

    Lambdas and comprehensions belong to the function around them: some Pythons give these no frame.
    """

    functions: set[tuple[str, str]] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)


class _FirstStepError(Exception):
    """Ends a training before the first step of its optimiser."""


def crossed(work: Callable[[], object]) -> Crossed:
    """Returns what a call runs through, up to the first step of an optimiser if it makes one."""
    found, importing = Crossed(), 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal importing
        if event not in ("call", "return"):
            return
        if frame.f_code.co_name == "<module>":
            importing += 1 if event == "call" else -1
        elif event == "call" and not importing:
            module = str(frame.f_globals.get("__name__"))
            if module == PACKAGE or module.startswith(f"{PACKAGE}."):
                found.modules.add(module)
                if not frame.f_code.co_name.startswith("<"):
                    found.functions.add((module, frame.f_code.co_qualname))

    def stop(*_: object) -> None:
        sys.setprofile(None)
        raise _FirstStepError

    sys.setprofile(note)
    try:
        with patch.object(AdamW, "step", stop):
            work()
    except _FirstStepError:
        pass
    finally:
        sys.setprofile(None)
    return found


def people(rows: int = ROWS) -> pd.DataFrame:
    """Returns a table with a category, whole numbers, numbers and missing values."""
    random = np.random.default_rng(0)
    job = random.choice(["nurse", "clerk", "smith"], rows)
    age = random.integers(20, 65, rows).astype(float)
    pay = (900 + 30 * age + random.normal(0, 90, rows)).round(2)
    frame = pd.DataFrame({"job": job, "age": age, "pay": pay})
    return frame.mask(random.random(frame.shape) < 0.05)


def fit() -> Crossed:
    """Returns what a fit of a table runs through before its first step."""
    return crossed(lambda: TableModel(**SMALL).fit(people()))


def log_prob(model: TableModel) -> Crossed:
    """Returns what the likelihoods of the rows of a table run through."""
    return crossed(lambda: model.log_prob(people()))


def query(model: TableModel, folder: Path) -> Crossed:
    """Returns what a question on the command line runs through."""
    model.save(folder)
    command = ["query", str(folder), "--of", "pay", "--given", "job=nurse,age=30..40"]
    return _quietly(lambda: anyorder(command))


def table1(folder: Path) -> Crossed:
    """Returns what the smallest experiment of the paper runs through before its first step."""
    return _quietly(lambda: anyorder(["reproduce", "table1", "--out", str(folder), "--debug"]))


def _quietly(work: Callable[[], object]) -> Crossed:
    with redirect_stdout(StringIO()):
        return crossed(work)


app = App(name="python -m benchmarks.modules_crossed", help=(__doc__ or "").splitlines()[0])


@app.default
def main(*, json: bool = False, names: bool = False) -> None:
    """Prints how many functions and modules each call runs through.

    Args:
        json: Whether to print one JSON object in place of the table.
        names: Whether to list the modules too.
    """
    with TemporaryDirectory() as place, chdir(place):
        found = {"fit": fit(), "table1": table1(Path("table1"))}
        model = TableModel(**SMALL).fit(people())
        found |= {"log_prob": log_prob(model), "query": query(model, Path("query"))}
    if json:
        print_json({name: _counts(one, names=names) for name, one in found.items()})
        return
    table = Table("call", "functions", "modules")
    for name, one in found.items():
        table.add_row(name, str(len(one.functions)), str(len(one.modules)))
    Console().print(table)
    for name, one in found.items() if names else ():
        Console().print(f"{name}: {', '.join(sorted(one.modules))}")


def _counts(one: Crossed, *, names: bool) -> dict[str, Any]:
    counts = {"functions": len(one.functions), "modules": len(one.modules)}
    return counts | ({"names": sorted(one.modules)} if names else {})


if __name__ == "__main__":
    run(app)
