"""FrankaKitchen: a robot arm of nine joints in front of seven things that it can move.

The simulator is the one of gymnasium-robotics; it comes with the extra `robot`. What is seen here
is where everything is, 30 numbers, as in D4RL's kitchen: nine joints, then the things.

Reference: Gupta et al. (2019), Relay Policy Learning; Fu et al. (2020), D4RL.

A toy of the kitchen: the same shapes and no physics, for tests and for a first look.

Nine joints move where they are told. Each of four tasks is done when the joints come near a place
of its own; its thing then moves to its goal. Demonstrations do three of the four, in any order, so
that what to do next is open wherever a task ends.
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
from anyorder.robots.demonstrations import Array, Demonstrations, Step

SCORED = ("microwave", "kettle", "bottom burner", "light switch")
"""The tasks that D4RL's "mixed" set is scored on; each counts one."""

TASKS: Mapping[str, str] = {
    "microwave": "microwave",
    "kettle": "kettle",
    "bottomknob": "bottom burner",
    "topknob": "top burner",
    "switch": "light switch",
    "slide": "slide cabinet",
    "hinge": "hinge cabinet",
}
"""All tasks: what the folders of the demonstrations call them, and what the simulator does."""

JOINTS, POSITIONS, VELOCITIES = 9, 30, 29
"""Of the robot; of everything; and of everything, a turn of the kettle having three."""

SEEN = (*range(9), *range(18, 39))
"""The positions among the simulator's 59 numbers: joints, their velocities, things, theirs."""

EPISODE = 280
"""Steps of an episode, at 12.5 a second."""


class Kitchen:
    """The simulated kitchen.

    Args:
        tasks: What can be completed, each once; the episode is over when all are.
        noise: Whether what is seen is as noisy as the simulator has it by default.
        steps: Of an episode, at most.
        size: Of pictures, height and width; None where none are taken.
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
            # Without a screen; whoever has one may say otherwise.
            os.environ.setdefault("MUJOCO_GL", "egl")
            options |= {"render_mode": "rgb_array", "height": size[0], "width": size[1]}
        self._made = _simulator(**options)

    def start(self, seed: int) -> Array:
        """Begins an episode: everything stands where it always stands, and is seen with noise."""
        seen, _ = self._made.reset(seed=seed)
        return _positions(seen)

    def step(self, action: Array) -> Step:
        """Moves each joint at up to two radians a second for 0.08 seconds."""
        seen, _, ended, cut, info = self._made.step(np.asarray(action, dtype=np.float64))
        completed = tuple(sorted(info["step_task_completions"]))
        return Step(_positions(seen), completed, bool(ended or cut))

    def put(self, positions: Array) -> Array:
        """Puts everything somewhere, at rest, and gives what is seen."""
        kitchen = self._made.unwrapped
        robot = kitchen.robot_env
        robot.set_state(np.asarray(positions, dtype=np.float64), np.zeros(VELOCITIES))
        return _positions(kitchen._get_obs(robot._get_obs()))

    @property
    def joints(self) -> Array:
        """Where the joints are, as the controller takes them."""
        return np.array(self._made.unwrapped.robot_env._last_robot_qpos)

    @property
    def seconds(self) -> float:
        """Of a step."""
        return float(self._made.unwrapped.robot_env.dt)

    def picture(self) -> Any:
        """What it looks like, bytes of shape ``(height, width, 3)``."""
        return self._made.render()

    def close(self) -> None:
        """Lets go of the simulator."""
        self._made.close()


def need_simulator() -> None:
    """Says which extra brings the simulator, where it is not there."""
    for package in ("gymnasium_robotics", "mujoco"):
        if find_spec(package) is None:
            raise ConfigError(
                'The kitchen is simulated by gymnasium-robotics: pip install "anyorder[robot]".'
            )


def _simulator(**options: Any) -> Any:
    """The kitchen of gymnasium-robotics, which warns and prints about others as it is imported."""
    need_simulator()
    with warnings.catch_warnings(), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        import gymnasium
        import gymnasium_robotics

        gymnasium.register_envs(gymnasium_robotics)
        return gymnasium.make("FrankaKitchen-v1", disable_env_checker=True, **options)


def _positions(seen: Mapping[str, Any]) -> Array:
    """A copy: the simulator hands out the same array again and again."""
    return seen["observation"][list(SEEN)].astype(np.float32)


MOVE = 0.16
"""How far an action of 1 moves a joint."""

REACH = 0.35
"""How near the joints must come, as the length of the way that is left."""

NOISE = 0.05
"""Of the demonstrator's hand."""

TOY_EPISODE = 48
"""Steps of an episode."""

HOLDS = 3
"""Tasks of a demonstration."""

_PLACES = np.random.default_rng(6).uniform(-0.8, 0.8, (len(SCORED), JOINTS))
"""Where the joints must be for each task."""


class ToyKitchen:
    """The toy.

    Args:
        steps: Of an episode, at most.
    """

    num_actions = JOINTS

    def __init__(self, *, steps: int = TOY_EPISODE) -> None:
        self.steps = steps
        self._positions = np.zeros(POSITIONS)
        self._left: set[int] = set()
        self._taken = 0

    def start(self, seed: int) -> Array:
        """Begins an episode: the joints are near zero."""
        random = np.random.default_rng(seed)
        self._positions = np.zeros(POSITIONS)
        self._positions[:JOINTS] = random.uniform(-0.05, 0.05, JOINTS)
        self._left, self._taken = set(range(len(SCORED))), 0
        return self._seen()

    def step(self, action: Array) -> Step:
        """Moves the joints, and what they reach."""
        self._positions[:JOINTS] += MOVE * np.asarray(action).clip(-1, 1)
        self._taken += 1
        reached = [task for task in sorted(self._left) if self._way(task) < REACH]
        for task in reached:
            self._left.remove(task)
            self._positions[JOINTS + task] = 1.0
        over = not self._left or self._taken >= self.steps
        return Step(self._seen(), tuple(SCORED[task] for task in reached), over)

    def _way(self, task: int) -> float:
        return float(np.linalg.norm(_PLACES[task] - self._positions[:JOINTS]))

    def _seen(self) -> Array:
        return self._positions.astype(np.float32)


def toy_demonstrations(count: int = 60, *, seed: int = 0) -> Demonstrations:
    """Demonstrations of three tasks of the four each, in random orders."""
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
