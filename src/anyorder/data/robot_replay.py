"""Recorded demonstrations, replayed in the simulator into exact pairs of observation and action.

The logs hold where everything was, and where the operator's controller told the joints to be. In
the simulator the same commands meet a robot that is where the simulator has it, so the action is
the way from there to the command: a_t = (command_t - joints_t) / seconds / 2, within [-1, 1].
(Actions from differences of the recorded joints miss most tasks.)
"""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from anyorder.data.kitchen import JOINTS, POSITIONS, TASKS, Kitchen, need_simulator
from anyorder.data.robot import UNREADABLE, Array, Demonstrations
from anyorder.errors import ConfigError, SchemaError

LOGS = "kitchen/demos.npz"
"""Where the logs are in a folder of data."""

ARCHIVE = "https://github.com/google-research/relay-policy-learning"

FASTEST = 2.0
"""Radians a second that an action of 1 asks of a joint."""

VERSION = 1
"""Of the replay: raised when it gives other numbers, so that old caches are not read."""


@dataclass(frozen=True)
class Logs:
    """What was recorded, at 12.5 Hz.

    Args:
        positions: Of nine joints and the things. Shape ``(steps, 30)``.
        commands: Where the joints were told to be. Shape ``(steps, 9)``.
        lengths: Steps of each demonstration.
        wanted: The four tasks that each demonstration set out to do.
    """

    positions: Array
    commands: Array
    lengths: tuple[int, ...]
    wanted: tuple[frozenset[str], ...]

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """The first positions and the commands of each demonstration."""
        ends = np.cumsum(self.lengths)
        for length, end in zip(self.lengths, ends, strict=True):
            yield self.positions[end - length], self.commands[end - length : end]

    def digest(self) -> str:
        """A hash of all that a replay depends on."""
        found = hashlib.sha256(f"{VERSION} {self.lengths}".encode())
        for part in (self.positions, self.commands):
            found.update(np.ascontiguousarray(part).tobytes())
        return found.hexdigest()


def read_logs(path: str | Path) -> Logs:
    """Reads the logs of a folder of data, or of a file: qpos, ctrl, lengths and task, by numpy."""
    place = Path(path)
    file = place / LOGS if place.is_dir() else place
    if not file.exists():
        raise ConfigError(
            f'There is no {LOGS} in "{place}": it holds the demonstrations of {ARCHIVE} as arrays '
            "qpos (steps, 30), ctrl (steps, 9), lengths and task."
        )
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            names = [str(name).split("_") for name in arrays["task"]]
            wanted = tuple(frozenset(TASKS[w] for w in name if w in TASKS) for name in names)
            lengths = tuple(int(length) for length in arrays["lengths"])
            logs = Logs(arrays["qpos"], arrays["ctrl"], lengths, wanted)
            finite = [bool(np.isfinite(part).all()) for part in (logs.positions, logs.commands)]
    except UNREADABLE as error:
        raise SchemaError(
            f'"{file}" does not hold the recorded demonstrations ({error}).'
        ) from None
    if not lengths or min(lengths) < 1 or len(lengths) != len(wanted):
        raise SchemaError(
            f'"{file}" must hold a length of 1 or more and a task for each demonstration; got '
            f"{len(lengths)} lengths and {len(wanted)} tasks."
        )
    steps = sum(logs.lengths)
    if logs.positions.shape != (steps, POSITIONS) or logs.commands.shape != (steps, JOINTS):
        raise SchemaError(
            f'"{file}" must hold {steps} rows of {POSITIONS} positions and {JOINTS} commands; got '
            f"{logs.positions.shape} and {logs.commands.shape}."
        )
    if not all(finite):
        raise SchemaError(f'"{file}" must hold finite positions and commands; some are not.')
    return logs


def replayed(
    logs: Logs, cache: str | Path, *, processes: int | None = None, progress: bool = False
) -> Demonstrations:
    """The demonstrations of logs, read from `cache` if they were replayed before.

    Args:
        logs: From `read_logs`.
        cache: A folder; each replay is a file in it.
        processes: How many replay at a time; one a core by default.
        progress: Whether a bar on standard error shows how it goes.
    """
    file = Path(cache) / f"kitchen-{logs.digest()[:16]}.npz"
    if file.exists():
        return Demonstrations.load(file)
    found = replay(logs, processes=processes, progress=progress)
    found.save(file)
    return found


def replay(logs: Logs, *, processes: int | None = None, progress: bool = False) -> Demonstrations:
    """Replays all demonstrations; see the module."""
    need_simulator()
    processes = processes or os.cpu_count() or 1
    with ProcessPoolExecutor(processes, get_context("spawn"), _open_kitchen) as pool:
        episodes = list(
            track(
                pool.map(_replay_one, *zip(*logs, strict=True)),
                "replaying demonstrations",
                total=len(logs.lengths),
                console=Console(stderr=True),
                disable=not progress,
            )
        )
    seen, actions, tasks = zip(*episodes, strict=True)
    return Demonstrations(
        f"kitchen, {len(episodes)} demonstrations",
        np.concatenate(seen),
        np.concatenate(actions),
        logs.lengths,
        tasks,
    )


def completed_share(demonstrations: Demonstrations, logs: Logs) -> tuple[int, int]:
    """How many demonstrations have completed all that they set out to do, and of how many."""
    pairs = zip(logs.wanted, demonstrations.tasks, strict=True)
    return sum(wanted <= done for wanted, done in pairs), len(demonstrations)


_kitchen: Kitchen | None = None
"""Of this process: opening one takes longer than replaying a demonstration."""


def _open_kitchen() -> None:
    global _kitchen
    _kitchen = Kitchen([*TASKS.values()], noise=False, steps=1_000_000)


def _replay_one(start: Array, commands: Array) -> tuple[Array, Array, frozenset[str]]:
    assert _kitchen is not None
    kitchen, done = _kitchen, set[str]()
    kitchen.start(seed=0)
    seen, observations, actions = kitchen.put(start), [], []
    for command in commands:
        action = ((command - kitchen.joints) / kitchen.seconds / FASTEST).clip(-1, 1)
        observations.append(seen)
        actions.append(action.astype(np.float32))
        seen, completed, _ = kitchen.step(action)
        done.update(completed)
    return np.stack(observations), np.stack(actions), frozenset(done)
