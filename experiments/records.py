"""Committed records, `results/NAME.json` or `results/NAME.SET.json`, and their numbers as text."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "experiments" / "results"


def record(name: str) -> dict[str, Any]:
    """Reads one record."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def records(name: str) -> list[dict[str, Any]]:
    """Reads the records of an experiment, one for each data set."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{name}.*.json"))]


def with_error(row: Mapping[str, Any], digits: int = 3) -> str:
    """Formats a number and its standard error, if it has one."""
    error = "" if row["se"] is None else f" ± {row['se']:.{digits}f}"
    return f"{row['value']:.{digits}f}{error}"


def difference(pair: Mapping[str, Any], digits: int = 3) -> str:
    """Formats a paired difference and its standard error."""
    return f"{pair['difference']:+.{digits}f} ± {pair['se']:.{digits}f}"


def source(kept: Mapping[str, Any]) -> str:
    """Returns a sentence with the command and the commit."""
    commits = " and ".join(f"`{one[:9]}`" for one in kept.get("commits", [kept["commit"]]))
    return f"From `{kept['command']}` at commit {commits}."
