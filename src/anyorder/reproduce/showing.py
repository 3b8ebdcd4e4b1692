"""What experiments print beside their numbers: the names in words, and what to beware."""

import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anyorder.reproduce.catalogue import Entry
from anyorder.reproduce.record import Paired

WIDE = 120
"""The width of tables that go to a file or a pipe; on a screen it is the screen's."""

TOO_SHORT = "Too short to compare: this scale only shows that everything runs."


def report_console() -> Console:
    """Where a report goes: brackets are brackets, and lines in a pipe are not cut at 80."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(width=width, markup=False, highlight=False)


def progress_console() -> Console:
    """Where progress goes: to standard error, so that results can be piped."""
    return Console(stderr=True)


def report_table(name: str, *numbers: str) -> Table:
    """An empty table with a column of names, which are never cut, and columns of numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(name, no_wrap=True)
    for title in numbers:
        table.add_column(title, justify="right")
    return table


def difference_table(paired: Sequence[Paired], metrics: Sequence[str], unit: str) -> Table:
    """A row for each pair of models, a column for each metric: negative is better for the first."""
    found = {(pair.a, pair.b, pair.metric): pair for pair in paired}
    table = report_table("a - b: negative is better for a", *metrics)
    for a, b in dict.fromkeys((a, b) for a, b, _ in found):
        pairs = [found[a, b, f"{metric}_{unit}"] for metric in metrics]
        table.add_row(f"{a} - {b}", *(cell(p.difference, p.se, sign="+") for p in pairs))
    return table


def cell(value: float, se: float, *, sign: str = "") -> str:
    """A number with its standard error."""
    return f"{value:{sign}.3f} ± {se:.3f}"


def legend(entries: Mapping[str, Entry], names: Iterable[str]) -> str:
    """A line a name: what it means."""
    used = list(names)
    width = max(map(len, used), default=0)
    return "\n".join(f"{name:<{width}}  {entries[name].meaning}" for name in used)
