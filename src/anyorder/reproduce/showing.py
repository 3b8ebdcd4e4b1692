"""What experiments print beside their numbers: the names in words, and what to beware."""

import sys
from collections.abc import Iterable, Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anyorder.reproduce.catalogue import Entry

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


def legend(entries: Mapping[str, Entry], names: Iterable[str]) -> str:
    """A line a name: what it means."""
    used = list(names)
    width = max(map(len, used), default=0)
    return "\n".join(f"{name:<{width}}  {entries[name].meaning}" for name in used)
