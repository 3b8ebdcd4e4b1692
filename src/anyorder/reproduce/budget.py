"""Equal time on a shared machine: steps in place of minutes.

A clock is unfair to whichever model trains while the machine is busy. So the steps of all models
are timed first, in turns, which a disturbance strikes alike; each then gets as many steps as it
would have made in the minutes, and the training can be resumed to the same bits.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.progress import track

from anyorder.reproduce.showing import progress_console

ROUNDS = 100
"""Timed steps of each model; questions differ in length, so that few would not tell."""


def equal_steps(
    timers: Mapping[str, Callable[[int], float]], minutes: float, *, rounds: int | None = None
) -> dict[str, int]:
    """How many steps each model makes in as many minutes.

    Args:
        timers: For each model, a function that makes a step and tells its seconds; it is given
            the number of the round.
        minutes: The budget.
        rounds: How many steps are timed; `ROUNDS` by default.
    """
    rounds = ROUNDS if rounds is None else rounds
    seconds = dict.fromkeys(timers, 0.0)
    for step in timers.values():  # the first is slower: memory is set up
        step(0)
    for turn in track(range(rounds), "timing steps", console=progress_console(), transient=True):
        for name, step in timers.items():
            seconds[name] += step(turn)
    return {name: max(1, round(60 * minutes * rounds / total)) for name, total in seconds.items()}


def kept_steps(
    path: Path, identity: dict[str, Any], measure: Callable[[], dict[str, int]]
) -> dict[str, int]:
    """The steps that are written in a file, or new ones where it is of another experiment.

    Args:
        path: The file.
        identity: What the steps depend on, in plain values.
        measure: Gives new ones.
    """
    plain = json.loads(json.dumps(identity))
    if path.exists():
        kept = json.loads(path.read_text())
        if kept["identity"] == plain:
            steps: dict[str, int] = kept["steps"]
            return steps
    measured = measure()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"identity": plain, "steps": measured}, indent=1) + "\n")
    return measured
