"""FrankaKitchen: the simulator, its demonstrations from files, and a toy version.

A robot arm of nine joints has seven objects to move.

`Kitchen` is the simulator of gymnasium-robotics, which comes with the extra `robot`. Observations
are 30 positions, as in D4RL's kitchen: nine joints, then the objects.

`ToyKitchen` has the same shapes and no physics, for tests and for a first look. Each of four tasks
is completed when the joints come near a point of its own. Demonstrations complete three of the
four, in random order, so that the next task is uncertain whenever one ends.

Reference: Gupta et al. (2019), Relay Policy Learning; Fu et al. (2020), D4RL.

`load_kitchen` reads demonstrations from files: D4RL's, Minari's, and recorded logs. D4RL's and
Minari's files hold observations and actions. Logs hold recorded positions and the joint targets of
the operator's controller; they are replayed in the simulator, which gives exact pairs of
observation and action. There the same targets meet the simulated joints, so the action is a_t =
(target_t - joints_t) / seconds / 2, within [-1, 1]. (Actions from differences of the recorded
joints fail most tasks.)
"""

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from anyorder.errors import ConfigError, SchemaError
from anyorder.robots.episodes import UNREADABLE, Array, Demonstrations, Step

SCORED = ("microwave", "kettle", "bottom burner", "light switch")
"""Tasks that D4RL's "mixed" data set is scored on; each counts one."""

TASKS: Mapping[str, str] = {
    "microwave": "microwave",
    "kettle": "kettle",
    "bottomknob": "bottom burner",
    "topknob": "top burner",
    "switch": "light switch",
    "slide": "slide cabinet",
    "hinge": "hinge cabinet",
}
"""Names of all tasks: in the folders of the demonstrations, and in the simulator."""

JOINTS, POSITIONS, VELOCITIES = 9, 30, 29
"""Numbers of joints, of positions, and of velocities: the kettle's rotation has only three."""

SEEN = (*range(9), *range(18, 39))
"""Positions among the simulator's 59 numbers: joints, their velocities, objects, theirs."""

EPISODE = 280
"""Steps of an episode, at 12.5 Hz."""


class Kitchen:
    """Simulated kitchen.

    Args:
        tasks: Tasks, each of which counts once; the episode ends when all are completed.
        noise: Adds the simulator's default noise to observations.
        steps: Largest number of steps of an episode.
        size: Height and width of rendered images; None disables rendering.
    """

    num_actions = JOINTS

    def __init__(
        self,
        tasks: Sequence[str] = SCORED,
        *,
        noise: bool = True,
        steps: int = EPISODE,
        size: tuple[int, int] | None = None,
    ) -> None:
        options: dict[str, Any] = {"tasks_to_complete": list(tasks), "max_episode_steps": steps}
        if not noise:
            options |= {"robot_noise_ratio": 0.0, "object_noise_ratio": 0.0}
        if size is not None:
            # Works without a display; users with one can set it otherwise.
            os.environ.setdefault("MUJOCO_GL", "egl")
            options |= {"render_mode": "rgb_array", "height": size[0], "width": size[1]}
        self._made = _simulator(**options)

    def start(self, seed: int) -> Array:
        """Begins an episode from the fixed start, and returns the noisy observation."""
        seen, _ = self._made.reset(seed=seed)
        return _positions(seen)

    def step(self, action: Array) -> Step:
        """Moves each joint at up to 2 rad/s for 0.08 s."""
        seen, _, ended, cut, info = self._made.step(np.asarray(action, dtype=np.float64))
        completed = tuple(sorted(info["step_task_completions"]))
        return Step(_positions(seen), completed, bool(ended or cut))

    def put(self, positions: Array) -> Array:
        """Sets all positions, at rest, and returns the observation."""
        kitchen = self._made.unwrapped
        robot = kitchen.robot_env
        robot.set_state(np.asarray(positions, dtype=np.float64), np.zeros(VELOCITIES))
        return _positions(kitchen._get_obs(robot._get_obs()))

    @property
    def joints(self) -> Array:
        """Joint positions, as the controller reads them."""
        return np.array(self._made.unwrapped.robot_env._last_robot_qpos)

    @property
    def seconds(self) -> float:
        """Duration of a step."""
        return float(self._made.unwrapped.robot_env.dt)

    def picture(self) -> Any:
        """Renders an image: bytes of shape ``(height, width, 3)``."""
        return self._made.render()

    def close(self) -> None:
        """Closes the simulator."""
        self._made.close()


def need_simulator() -> None:
    """Raises with the extra to install if the simulator is missing."""
    for package in ("gymnasium_robotics", "mujoco"):
        if find_spec(package) is None:
            raise ConfigError(
                'The kitchen is simulated by gymnasium-robotics: pip install "anyorder[robot]".'
            )


def _simulator(**options: Any) -> Any:
    """Makes the simulator, without the warnings of importing gymnasium-robotics."""
    need_simulator()
    with warnings.catch_warnings(), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        import gymnasium
        import gymnasium_robotics

        gymnasium.register_envs(gymnasium_robotics)
        return gymnasium.make("FrankaKitchen-v1", disable_env_checker=True, **options)


def _positions(seen: Mapping[str, Any]) -> Array:
    """Returns a copy of the positions: the simulator reuses its array."""
    return seen["observation"][list(SEEN)].astype(np.float32)


MOVE = 0.16
"""Distance that an action of 1 moves a joint."""

REACH = 0.35
"""Distance of the joints from the point of a task below which it is completed."""

NOISE = 0.05
"""Standard deviation of the noise on demonstrated actions."""

TOY_EPISODE = 48
"""Steps of an episode of the toy."""

HOLDS = 3
"""Number of tasks of a demonstration."""

_PLACES = np.random.default_rng(6).uniform(-0.8, 0.8, (len(SCORED), JOINTS))
"""Point of each task in the space of the joints."""


class ToyKitchen:
    """Toy kitchen: nine joints that move by the action, and four tasks."""

    num_actions = JOINTS

    def __init__(self) -> None:
        self._positions = np.zeros(POSITIONS)
        self._left: set[int] = set()
        self._taken = 0

    def start(self, seed: int) -> Array:
        """Begins an episode with all joints near zero."""
        random = np.random.default_rng(seed)
        self._positions = np.zeros(POSITIONS)
        self._positions[:JOINTS] = random.uniform(-0.05, 0.05, JOINTS)
        self._left, self._taken = set(range(len(SCORED))), 0
        return self._seen()

    def step(self, action: Array) -> Step:
        """Moves the joints, and completes the tasks that they reach."""
        self._positions[:JOINTS] += MOVE * np.asarray(action).clip(-1, 1)
        self._taken += 1
        reached = [task for task in sorted(self._left) if self._distance(task) < REACH]
        for task in reached:
            self._left.remove(task)
            self._positions[JOINTS + task] = 1.0
        over = not self._left or self._taken >= TOY_EPISODE
        return Step(self._seen(), tuple(SCORED[task] for task in reached), over)

    def _distance(self, task: int) -> float:
        return float(np.linalg.norm(_PLACES[task] - self._positions[:JOINTS]))

    def _seen(self) -> Array:
        return self._positions.astype(np.float32)


def toy_demonstrations(count: int = 60, *, seed: int = 0) -> Demonstrations:
    """Makes demonstrations of three of the four tasks each, in random orders."""
    random = np.random.default_rng(seed)
    episodes = [
        _demonstrated(random.permutation(len(SCORED))[:HOLDS].tolist(), number, random)
        for number in range(count)
    ]
    return _demonstrations("toy kitchen", episodes)


def _demonstrated(
    wanted: Sequence[int], seed: int, random: np.random.Generator
) -> tuple[Array, Array, frozenset[str]]:
    toy, done = ToyKitchen(), set[str]()
    observations: list[Array] = []
    actions: list[Array] = []
    seen = toy.start(seed)
    for task in wanted:
        while SCORED[task] not in done and len(actions) < TOY_EPISODE:
            way = _PLACES[task] - seen[:JOINTS]
            hand = way / MOVE / 2 + random.normal(0, NOISE, JOINTS)
            actions.append(hand.clip(-1, 1).astype(np.float32))
            observations.append(seen)
            seen, completed, _ = toy.step(actions[-1])
            done.update(completed)
    return np.stack(observations), np.stack(actions), frozenset(done)


LOGS = "kitchen/demos.npz"
D4RL = ("kitchen-mixed-v0.hdf5", "kitchen/kitchen-mixed-v0.hdf5")
MINARI = ("mixed-v2", "kitchen/mixed-v2", "D4RL/kitchen/mixed-v2")
"""Places of the logs, and of the "mixed" data sets, in a folder of data."""


def load_kitchen(
    place: str | Path,
    cache: str | Path,
    *,
    progress: bool = False,
) -> Demonstrations:
    """Reads demonstrations of the kitchen from a file or a folder.

    Args:
        place: File of logs (demos.npz), D4RL's kitchen-mixed-v0.hdf5 or Minari's main_data.hdf5; or
            a folder with one of them, where logs come first.
        cache: Folder of replayed demonstrations.
        progress: Shows a progress bar of the replay on standard error.
    """
    path = Path(place).expanduser()
    if (path / LOGS).exists() or path.suffix == ".npz":
        return replayed(read_logs(path), cache, progress=progress)
    if path.name == "main_data.hdf5" or (path / "data" / "main_data.hdf5").exists():
        return read_minari(path)
    if path.suffix in (".hdf5", ".h5"):
        return read_d4rl(path)
    for name in D4RL:
        if (path / name).exists():
            return read_d4rl(path / name)
    for name in MINARI:
        if (path / name / "data" / "main_data.hdf5").exists():
            return read_minari(path / name)
    raise ConfigError(
        f'There are no demonstrations of the kitchen in "{path}": put {LOGS}, D4RL\'s '
        f"{D4RL[0]}, or Minari's {MINARI[-1]} there."
    )


ARCHIVE = "https://github.com/google-research/relay-policy-learning"

FASTEST = 2.0
"""Joint velocity of an action of 1, in radians per second."""

VERSION = 1
"""Version of the replay; incremented when its numbers change, so that old caches are not read."""


@dataclass(frozen=True)
class Logs:
    """Recorded demonstrations, at 12.5 Hz.

    Args:
        positions: Positions of nine joints and of the objects. Shape ``(steps, 30)``.
        commands: Target positions of the joints. Shape ``(steps, 9)``.
        lengths: Number of steps of each demonstration.
        wanted: Four tasks that each demonstration was asked to complete.
    """

    positions: Array
    commands: Array
    lengths: tuple[int, ...]
    wanted: tuple[frozenset[str], ...]

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Yields the first positions and the commands of each demonstration."""
        ends = np.cumsum(self.lengths)
        for length, end in zip(self.lengths, ends, strict=True):
            yield self.positions[end - length], self.commands[end - length : end]

    def digest(self) -> str:
        """Returns a hash of everything that a replay depends on."""
        found = hashlib.sha256(f"{VERSION} {self.lengths}".encode())
        for part in (self.positions, self.commands):
            found.update(np.ascontiguousarray(part).tobytes())
        return found.hexdigest()


def read_logs(path: str | Path) -> Logs:
    """Reads the logs of a folder or a .npz file, with arrays qpos, ctrl, lengths and task."""
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
    """Returns the demonstrations of logs, from `cache` if they were replayed before."""
    file = Path(cache) / f"kitchen-{logs.digest()[:16]}.npz"
    if file.exists():
        return Demonstrations.load(file)
    found = replay(logs, processes=processes, progress=progress)
    found.save(file)
    return found


def replay(logs: Logs, *, processes: int | None = None, progress: bool = False) -> Demonstrations:
    """Replays all demonstrations in the simulator; see the module's docstring."""
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
    return _demonstrations(f"kitchen, {len(episodes)} demonstrations", episodes)


def _demonstrations(
    name: str, episodes: Iterable[tuple[Array, Array, frozenset[str]]]
) -> Demonstrations:
    """Joins episodes: observations, actions and completed tasks of each."""
    seen, actions, tasks = zip(*episodes, strict=True)
    lengths = tuple(len(one) for one in actions)
    return Demonstrations(name, np.concatenate(seen), np.concatenate(actions), lengths, tasks)


def completed_share(demonstrations: Demonstrations, logs: Logs) -> tuple[int, int]:
    """Returns how many demonstrations have completed all their tasks, and the total."""
    pairs = zip(logs.wanted, demonstrations.tasks, strict=True)
    return sum(wanted <= done for wanted, done in pairs), len(demonstrations)


_kitchen: Kitchen | None = None
"""Opened once in each process: opening takes longer than replaying a demonstration."""


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


NEAR = 0.3
"""Distance of an object from its goal below which a task is completed."""

GOALS: Mapping[str, tuple[int, tuple[float, ...]]] = {
    "bottom burner": (11, (-0.88, -0.01)),
    "top burner": (15, (-0.92, -0.01)),
    "light switch": (17, (-0.69, -0.05)),
    "slide cabinet": (19, (0.37,)),
    "hinge cabinet": (20, (0.0, 1.45)),
    "microwave": (22, (-0.75,)),
    "kettle": (23, (-0.23, 0.75, 1.62, 0.99, 0.0, 0.0, -0.06)),
}
"""First coordinate of each object among the positions, and its goal."""

D4RL_SEEN = 60
"""Size of an observation in D4RL's files: the positions, and the goals."""


def read_d4rl(file: str | Path) -> Demonstrations:
    """Reads kitchen-mixed-v0.hdf5, or another kitchen file of D4RL."""
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
    """Reads a kitchen data set of Minari, a folder such as D4RL/kitchen/mixed-v2."""
    h5py, place = _h5py(), Path(folder)
    file = place if place.is_file() else place / "data" / "main_data.hdf5"
    episodes = []
    with _opened(h5py, file) as opened:
        for name in sorted(opened, key=lambda name: int(name.rpartition("_")[2])):
            actions = np.asarray(opened[name]["actions"])
            seen = opened[name]["observations"]
            seen = np.asarray(seen if isinstance(seen, h5py.Dataset) else seen["observation"])
            # The last observation follows the last action.
            episodes.append((seen[: len(actions), list(SEEN)].astype(np.float32), actions))
    return _joined(f"Minari {file.parent.parent.name}", episodes)


def completed_tasks(positions: Array) -> frozenset[str]:
    """Returns the tasks that are completed at any step. `positions` is ``(steps, 30)``."""
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
    if any(one.ndim != 2 or one.shape[1] != JOINTS for _, one in some):
        raise SchemaError(f"{name}: actions must have {JOINTS} dimensions.")
    clipped = ((seen, one.astype(np.float32).clip(-1, 1)) for seen, one in some)
    return _demonstrations(name, ((s, a, completed_tasks(s)) for s, a in clipped))


def _h5py() -> Any:
    if find_spec("h5py") is None:
        raise ConfigError('This is an HDF5 file, which needs h5py: pip install "anyorder[uci]".')
    import h5py

    return h5py


@contextmanager
def _opened(h5py: Any, path: Path) -> Iterator[Any]:
    """Opens an HDF5 file; errors name the file."""
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
