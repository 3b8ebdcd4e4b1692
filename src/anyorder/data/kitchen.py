"""FrankaKitchen: a robot arm of nine joints in front of seven things that it can move.

The simulator is the one of gymnasium-robotics; it comes with the extra `robot`. What is seen here
is where everything is, 30 numbers, as in D4RL's kitchen: nine joints, then the things.

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

from anyorder.data.robot import Array, Step
from anyorder.errors import ConfigError

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
