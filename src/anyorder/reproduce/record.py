"""Records of results: the numbers of a run, with the command and the commit that produced them.

Every `reproduce` and benchmark command can write a `Record`. The committed ones are in
`experiments/results`; the result tables of the README and the documentation are generated from
them. Below stand `Entry`, a model of an experiment, and the tables that experiments print.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anyorder.cli.console import print_json
from anyorder.errors import ConfigError
from anyorder.lattice.protocols import DecompositionProtocol, RemoveGreatest, lexicographic
from anyorder.training.losses import Objective

SOURCE = Path(__file__).parent


@dataclass(frozen=True)
class Row:
    """One measurement: a metric of a model on a data set, with its standard error over n."""

    dataset: str
    model: str
    metric: str
    value: float
    se: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Paired:
    """Mean of a paired difference a - b, with its standard error."""

    dataset: str
    a: str
    b: str
    metric: str
    difference: float
    se: float


@dataclass
class Record:
    """Numbers of one run, and the settings and code that produced them."""

    command: str
    settings: dict[str, Any]
    rows: list[Row]
    paired: list[Paired] = field(default_factory=list)
    source: dict[str, Any] | None = None
    """`commit` and `dirty` of the code that ran; the present code if None."""

    def save(self, path: Path) -> None:
        """Writes the record as JSON, with the commit and the versions of the packages."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n")

    def publish(self, path: Path | None, *, json: bool) -> bool:
        """Writes the record to `path`, and prints it as JSON if `json` is set.

        Returns:
            True if the caller should print a table for people.
        """
        if path is not None:
            self.save(path)
        if json:
            print_json(self.to_json())
        return not json

    def to_json(self) -> dict[str, Any]:
        """Returns the record as plain values; `dirty` tells uncommitted changes of the code."""
        return {
            "command": self.command,
            **(self.source or source()),
            "settings": self.settings,
            "versions": {
                "python": platform.python_version(),
                **{name: _version(name) for name in ("anyorder", "torch", "numpy")},
            },
            "rows": [asdict(row) for row in self.rows],
            "paired": [asdict(pair) for pair in self.paired],
        }


def source() -> dict[str, Any]:
    """Returns the commit of the running code, and whether it has uncommitted changes."""
    changes = _git("status", "--porcelain", "--", ":/", ":(top,exclude)experiments/results")
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if changes is None else bool(changes),
    }


def check_record(path: Path | None) -> None:
    """Raises, before any work, if no record can be written to `path`."""
    if path is None:
        return
    if path.is_dir():
        raise ConfigError(f'`record` must be a file; "{path}" is a folder. Name a file in it.')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f'`record` must be a file that can be written; got "{path}": {error}.'
        ) from error


def _git(*arguments: str) -> str | None:
    """Returns git's output about the running code; None outside a checkout or without git."""
    if arguments[0] != "ls-files" and _git("ls-files", "--error-unmatch", __file__) is None:
        return None  # installed inside another project's checkout
    environment = {name: v for name, v in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(SOURCE), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Entry:
    """A model of an experiment: description, network, objective and protocol for N variables."""

    meaning: str
    network: Literal["masked", "path", "single_stream", "patches"]
    objective: Callable[[int], Objective]
    protocol: Callable[[int], DecompositionProtocol]
    head: Literal["categorical", "mixture", "energy"] = "categorical"


def mac_protocol(n: int) -> DecompositionProtocol:
    """Returns the protocol of MAC in the order of the variables."""
    return RemoveGreatest(lexicographic(n))


WIDE = 120
"""Width of tables in a file or a pipe; on a terminal it is the terminal's."""

TOO_SHORT = "Too short to compare: this scale only shows that everything runs."


def report_console() -> Console:
    """Returns a console for reports, without markup, that does not cut piped lines at 80."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(width=width, markup=False, highlight=False)


def progress_console() -> Console:
    """Returns a console for progress on standard error, so that results can be piped."""
    return Console(stderr=True)


def report_table(name: str, *numbers: str) -> Table:
    """Returns an empty table with a column of names, never wrapped, and columns of numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(name, no_wrap=True)
    for title in numbers:
        table.add_column(title, justify="right")
    return table


def difference_table(paired: Sequence[Paired], metrics: Sequence[str], unit: str) -> Table:
    """Returns a table of paired differences: a row for each pair, a column for each metric."""
    found = {(pair.a, pair.b, pair.metric): pair for pair in paired}
    table = report_table("a - b: negative is better for a", *metrics)
    for a, b in dict.fromkeys((a, b) for a, b, _ in found):
        pairs = [found[a, b, f"{metric}_{unit}"] for metric in metrics]
        table.add_row(f"{a} - {b}", *(cell(p.difference, p.se, sign="+") for p in pairs))
    return table


def cell(value: float, se: float, *, sign: str = "", digits: int = 3) -> str:
    """Formats a number with its standard error."""
    return f"{value:{sign}.{digits}f} ± {se:.{digits}f}"


def legend(entries: Mapping[str, Entry], names: Iterable[str]) -> str:
    """Returns a line for each model: its name and its description."""
    used = list(names)
    width = max(map(len, used), default=0)
    return "\n".join(f"{name:<{width}}  {entries[name].meaning}" for name in used)
