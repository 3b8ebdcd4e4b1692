"""Episodes of a robot: environment and policy, rollouts, and demonstrations.

A `Policy` acts in an `Environment`; `rollout` runs one episode, `rollouts` several.
`Demonstrations` are recorded episodes, step by step. They are split by demonstration:
neighbouring steps are alike, so a step whose neighbour was trained on tests nothing.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from anyorder.errors import ConfigError, SchemaError, check_fraction

Array = NDArray[np.float32]


class Step(NamedTuple):
    """Observation after an action, completed tasks, and the end of the episode."""

    observation: Array
    completed: tuple[str, ...]
    """Tasks that this step has completed."""
    is_over: bool


class Environment(Protocol):
    """Environment of a policy: the kitchen, the toy kitchen, or a robot of your own."""

    num_actions: int
    """Number of dimensions of an action; each lies in [-1, 1]."""

    def start(self, seed: int) -> Array:
        """Begins an episode, all of whose randomness comes from `seed`; returns the observation."""
        ...

    def step(self, action: Array) -> Step:
        """Executes an action."""
        ...


Told = Mapping[int, float]
"""Given dimensions of an action, decided by someone else, and their values in [-1, 1]."""


class Policy(Protocol):
    """Anything that acts: a trained model, a joystick, a script.

    Example:
        >>> import numpy as np
        >>> class Still:  # an operator of your own: two methods, nothing to inherit
        ...     def start(self, seed):
        ...         pass
        ...
        ...     def act(self, observation, told=None):
        ...         action = np.zeros(9, dtype=np.float32)
        ...         for dimension, value in (told or {}).items():
        ...             action[dimension] = value
        ...         return action
        >>> float(Still().act(np.zeros(30), told={2: 0.5})[2])
        0.5
    """

    def start(self, seed: int) -> None:
        """Begins an episode: resets all state, and seeds all randomness."""
        ...

    def act(self, observation: Array, told: Told | None = None) -> Array:
        """Returns the action, each of whose dimensions lies in [-1, 1].

        Args:
            observation: Observation before the action. Shape ``(numbers,)``.
            told: Given dimensions; the action has these values.
        """
        ...


@dataclass(frozen=True)
class Episode:
    """Result of an episode.

    Completed tasks come with their step, in order.
    """

    seed: int
    completed: tuple[tuple[str, int], ...]
    steps: int

    @property
    def reward(self) -> int:
        """Number of completed tasks."""
        return len(self.completed)


def rollout(policy: Policy, environment: Environment, seed: int) -> Episode:
    """Runs one episode, from its start to its end."""
    policy.start(seed)
    seen, completed, steps, is_over = environment.start(seed), [], 0, False
    while not is_over:
        seen, done, is_over = environment.step(policy.act(seen))
        completed += [(task, steps) for task in done]
        steps += 1
    return Episode(seed, tuple(completed), steps)


def rollouts(
    turns: Sequence[tuple[Policy, int]], environment: Callable[[], Environment]
) -> list[Episode]:
    """Runs an episode for each policy and seed, in their order.

    Policies with the same seeds can be compared by paired differences.
    """
    here = environment()
    return [rollout(policy, here, seed) for policy, seed in turns]


UNREADABLE = (KeyError, EOFError, IndexError, TypeError, ValueError, BadZipFile, zlib.error)
"""Errors of reading array files that are truncated, altered, or of another format."""

FORMAT = 1
"""Version of the files of `Demonstrations.save`; incremented when old ones could be misread."""


@dataclass(frozen=True)
class Demonstrations:
    """Recorded episodes of an expert.

    Args:
        name: Name in tables.
        observations: Observation before each action. Shape ``(steps, numbers)``.
        actions: Actions, each in [-1, 1]. Shape ``(steps, dimensions)``.
        lengths: Number of steps of each demonstration; they add up to all steps.
        tasks: Completed tasks of each demonstration.
    """

    name: str
    observations: Array
    actions: Array
    lengths: tuple[int, ...]
    tasks: tuple[frozenset[str], ...]

    def __post_init__(self) -> None:
        steps = len(self.observations)
        if not steps or self.observations.ndim != 2 or self.actions.ndim != 2:
            raise SchemaError(
                "Demonstrations must hold rows of observations and of actions; got shapes "
                f"{self.observations.shape} and {self.actions.shape}."
            )
        if len(self.actions) != steps or sum(self.lengths) != steps:
            raise SchemaError(
                f"{steps} observations must have as many actions, and lengths that add up to them; "
                f"got {len(self.actions)} actions and lengths that add up to {sum(self.lengths)}."
            )
        if any(length < 1 for length in self.lengths):
            raise SchemaError("Every demonstration must have at least one step; some have none.")
        if len(self.tasks) != len(self.lengths):
            raise SchemaError(
                f"Each of {len(self.lengths)} demonstrations must have its set of tasks; "
                f"got {len(self.tasks)} sets."
            )
        if not (np.isfinite(self.observations).all() and np.isfinite(self.actions).all()):
            raise SchemaError("Observations and actions must be finite numbers; some are not.")

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_steps(self) -> int:
        """Number of steps of all demonstrations."""
        return len(self.observations)

    def chosen(self, which: Iterable[int]) -> "Demonstrations":
        """Returns some of the demonstrations, in the order of their numbers."""
        numbers = [int(one) for one in which]
        if not numbers:
            raise ConfigError("No demonstration is left: there must be at least one.")
        ends = np.cumsum(self.lengths)
        steps = np.concatenate([np.arange(ends[i] - self.lengths[i], ends[i]) for i in numbers])
        return Demonstrations(
            self.name,
            self.observations[steps],
            self.actions[steps],
            tuple(self.lengths[i] for i in numbers),
            tuple(self.tasks[i] for i in numbers),
        )

    def without_all_of(self, tasks: Iterable[str]) -> "Demonstrations":
        """Drops demonstrations that complete all of `tasks`, as D4RL's "mixed" set does.

        A policy that is trained on the rest and completes all tasks has combined demonstrations.
        """
        every = frozenset(tasks)
        return self.chosen(i for i, done in enumerate(self.tasks) if not every <= done)

    def without(self, task: str) -> "Demonstrations":
        """Drops demonstrations that complete a task: a policy trained on the rest avoids it."""
        return self.chosen(i for i, done in enumerate(self.tasks) if task not in done)

    def split(self, *, held_out: float = 0.1, seed: int = 0) -> "SplitDemonstrations":
        """Splits into training, validation and test; the latter two each a share `held_out`."""
        check_fraction("held_out", held_out)
        order = np.random.default_rng(seed).permutation(len(self))
        each = max(1, round(held_out * len(self)))
        if len(self) < 2 * each + 1:
            raise ConfigError(f"{len(self)} demonstrations are too few to hold out twice {each}.")
        parts = order[2 * each :], order[:each], order[each : 2 * each]
        return SplitDemonstrations(*(self.chosen(part) for part in parts))

    def save(self, path: Path) -> None:
        """Writes the demonstrations to one file, atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name}.tmp.npz")
        np.savez_compressed(
            aside,
            format=np.array(FORMAT),
            name=np.array(self.name),
            observations=self.observations,
            actions=self.actions,
            lengths=np.array(self.lengths),
            tasks=np.array(["|".join(sorted(done)) for done in self.tasks]),
        )
        aside.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> "Demonstrations":
        """Reads a file of `save`."""
        try:
            with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                if int(file["format"]) != FORMAT:
                    raise SchemaError(f'"{path}" is of another version: delete it.')
                return cls(
                    str(file["name"]),
                    file["observations"],
                    file["actions"],
                    tuple(int(length) for length in file["lengths"]),
                    tuple(frozenset(filter(None, str(t).split("|"))) for t in file["tasks"]),
                )
        except UNREADABLE as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError(f'"{path}" holds no demonstrations ({error!r}).') from error


class SplitDemonstrations(NamedTuple):
    """Training, validation and test demonstrations."""

    train: Demonstrations
    valid: Demonstrations
    test: Demonstrations
