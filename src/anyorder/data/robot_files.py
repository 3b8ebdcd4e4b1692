"""Demonstrations of the kitchen from files: D4RL's, Minari's, and our own of recorded positions.

D4RL's and Minari's hold observations and actions. The recorded positions must be replayed in the
simulator first (`robot_replay.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.data.kitchen import JOINTS, POSITIONS, SEEN
from anyorder.data.robot import UNREADABLE, Array, Demonstrations
from anyorder.errors import ConfigError, SchemaError

NEAR = 0.3
"""A task is done when its thing is this near to its goal."""

GOALS: Mapping[str, tuple[int, tuple[float, ...]]] = {
    "bottom burner": (11, (-0.88, -0.01)),
    "top burner": (15, (-0.92, -0.01)),
    "light switch": (17, (-0.69, -0.05)),
    "slide cabinet": (19, (0.37,)),
    "hinge cabinet": (20, (0.0, 1.45)),
    "microwave": (22, (-0.75,)),
    "kettle": (23, (-0.23, 0.75, 1.62, 0.99, 0.0, 0.0, -0.06)),
}
"""The first coordinate of each thing among the positions, and where the thing should be."""

D4RL_SEEN = 60
"""Numbers of an observation in D4RL's files: the positions, and where things should be."""


def read_d4rl(file: str | Path) -> Demonstrations:
    """Reads kitchen-mixed-v0.hdf5, or another of D4RL's kitchen files."""
    h5py, path = _h5py(), Path(file)
    with _opened(h5py, path) as opened:
        seen, actions, ends = (
            np.asarray(opened[key]) for key in ("observations", "actions", "terminals")
        )
        if "timeouts" in opened:
            ends = ends.astype(bool) | np.asarray(opened["timeouts"]).astype(bool)
    if seen.ndim != 2 or seen.shape[1] != D4RL_SEEN:
        raise SchemaError(
            f'"{path}" must hold observations of {D4RL_SEEN} numbers; its shape is {seen.shape}.'
        )
    if ends.shape != (len(seen),):
        raise SchemaError(
            f'"{path}" must say of each of {len(seen)} steps whether it is the last; its shape is '
            f"{ends.shape}."
        )
    bounds = np.flatnonzero(ends.astype(bool)) + 1
    bounds = np.unique([0, *bounds, len(seen)])
    positions = seen[:, :POSITIONS].astype(np.float32)
    return _joined(
        f"D4RL {path.stem}",
        ((positions[a:b], actions[a:b]) for a, b in pairwise(bounds)),
    )


def read_minari(folder: str | Path) -> Demonstrations:
    """Reads one of Minari's kitchen sets: a folder such as D4RL/kitchen/mixed-v2."""
    h5py, place = _h5py(), Path(folder)
    file = place if place.is_file() else place / "data" / "main_data.hdf5"
    episodes = []
    with _opened(h5py, file) as opened:
        for name in sorted(opened, key=lambda name: int(name.rpartition("_")[2])):
            actions = np.asarray(opened[name]["actions"])
            seen = opened[name]["observations"]
            seen = np.asarray(seen if isinstance(seen, h5py.Dataset) else seen["observation"])
            # The last observation is what the last action led to.
            episodes.append((seen[: len(actions), list(SEEN)].astype(np.float32), actions))
    return _joined(f"Minari {file.parent.parent.name}", episodes)


def completed_tasks(positions: Array) -> frozenset[str]:
    """The tasks that are done at any of some steps. `positions` has shape ``(steps, 30)``."""
    done = set()
    for task, (first, goal) in GOALS.items():
        away = positions[:, first : first + len(goal)] - np.array(goal)
        if (np.linalg.norm(away, axis=1) < NEAR).any():
            done.add(task)
    return frozenset(done)


def _joined(name: str, episodes: Iterable[tuple[Array, Any]]) -> Demonstrations:
    some = [(s, a) for s, a in episodes if len(a)]
    if not some:
        raise SchemaError(f"{name}: there is no step of any demonstration.")
    seen, actions = zip(*some, strict=True)
    if any(one.ndim != 2 or one.shape[1] != JOINTS for one in actions):
        raise SchemaError(f"{name}: actions must have {JOINTS} dimensions.")
    return Demonstrations(
        name,
        np.concatenate(seen),
        np.concatenate(actions).astype(np.float32).clip(-1, 1),
        tuple(len(one) for one in actions),
        tuple(completed_tasks(one) for one in seen),
    )


def _h5py() -> Any:
    if find_spec("h5py") is None:
        raise ConfigError('This is an HDF5 file, which needs h5py: pip install "anyorder[uci]".')
    import h5py

    return h5py


@contextmanager
def _opened(h5py: Any, path: Path) -> Iterator[Any]:
    """An HDF5 file, whose name is told with all that is wrong in it."""
    if not path.exists():
        raise ConfigError(
            f"There is no \"{path}\". D4RL's file is kitchen-mixed-v0.hdf5; Minari's comes with "
            "`minari download D4RL/kitchen/mixed-v2`, into ~/.minari/datasets."
        )
    try:
        with h5py.File(path, "r") as opened:
            yield opened
    except OSError as error:
        raise SchemaError(f'"{path}" is not an HDF5 file ({error}).') from error
    except UNREADABLE as error:
        raise SchemaError(
            f'"{path}" does not hold demonstrations as D4RL or Minari do ({error}).'
        ) from error
