"""FrankaKitchen, a robot arm of nine joints with seven objects to move; and a toy version.

`Kitchen` is the simulator of gymnasium-robotics, which comes with the extra `robot`. Observations
are 30 positions, as in D4RL's kitchen: nine joints, then the objects.

`ToyKitchen` has the same shapes and no physics, for tests and for a first look. Each of four tasks
is completed when the joints come near a point of its own. Demonstrations complete three of the
four, in random order, so that the next task is uncertain whenever one ends.

Reference: Gupta et al. (2019), Relay Policy Learning; Fu et al. (2020), D4RL.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from typing import Any

import numpy as np

from anyorder.errors import ConfigError
from anyorder.robots.episodes import Array, Demonstrations, Step

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
    """Toy kitchen: nine joints that move by the action, and four tasks.

    Args:
        steps: Largest number of steps of an episode.
    """

    num_actions = JOINTS

    def __init__(self, *, steps: int = TOY_EPISODE) -> None:
        self.steps = steps
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
        over = not self._left or self._taken >= self.steps
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
    seen, actions, tasks = zip(*episodes, strict=True)
    return Demonstrations(
        "toy kitchen",
        np.concatenate(seen),
        np.concatenate(actions),
        tuple(len(one) for one in actions),
        tasks,
    )


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
