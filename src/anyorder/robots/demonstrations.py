"""Demonstrations of a robot: what it saw and what it did, step by step, and how they are split.

Steps of one demonstration are alike, so that splits are by demonstration: a step whose neighbour
was trained on is no test.

What a policy promises: an action for what is seen, and for what has been decided of it.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from anyorder.errors import ConfigError, SchemaError, check_fraction

Array = NDArray[np.float32]

UNREADABLE = (KeyError, EOFError, IndexError, TypeError, ValueError, BadZipFile, zlib.error)
"""What files of arrays set off that were cut off, altered, or are of something else."""

FORMAT = 1
"""Of the files that `Demonstrations.save` writes; raised when an old one could be misread."""


class Step(NamedTuple):
    """What an environment answers to an action."""

    observation: Array
    completed: tuple[str, ...]
    """The tasks that this very step has completed."""
    is_over: bool


class Environment(Protocol):
    """Where a policy acts: the kitchen, the toy of it, or a robot of your own."""

    num_actions: int
    """Dimensions of an action; each lies in [-1, 1]."""

    def start(self, seed: int) -> Array:
        """Begins an episode, all chance in which comes from the seed, and gives what is seen."""
        ...

    def step(self, action: Array) -> Step:
        """Acts once."""
        ...


@dataclass(frozen=True)
class Demonstrations:
    """Episodes of somebody who knows what to do.

    Args:
        name: What to call them in tables.
        observations: What was seen before each action. Shape ``(steps, numbers)``.
        actions: Each in [-1, 1]. Shape ``(steps, dimensions)``.
        lengths: Steps of each demonstration; they add up to all steps.
        tasks: What each demonstration has completed.
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
            raise SchemaError("Every demonstration must have a step at least; some have none.")
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
        """Steps of all demonstrations."""
        return len(self.observations)

    def chosen(self, which: Iterable[int]) -> "Demonstrations":
        """Some of the demonstrations, in the order in which they are named."""
        numbers = [int(one) for one in which]
        if not numbers:
            raise ConfigError("No demonstration is left: there must be one at least.")
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
        """Leaves out demonstrations that complete all of `tasks`, as D4RL's "mixed" set does.

        Who learns from the rest and completes all of them has put pieces together.
        """
        every = frozenset(tasks)
        return self.chosen(i for i, done in enumerate(self.tasks) if not every <= done)

    def without(self, task: str) -> "Demonstrations":
        """Leaves out demonstrations that complete a task: who learns from the rest wants others."""
        return self.chosen(i for i, done in enumerate(self.tasks) if task not in done)

    def split(self, *, held_out: float = 0.1, seed: int = 0) -> "SplitDemonstrations":
        """Training, validation and test demonstrations; the latter two a share of all each."""
        check_fraction("held_out", held_out)
        order = np.random.default_rng(seed).permutation(len(self))
        each = max(1, round(held_out * len(self)))
        if len(self) < 2 * each + 1:
            raise ConfigError(f"{len(self)} demonstrations are too few to hold out twice {each}.")
        parts = order[2 * each :], order[:each], order[each : 2 * each]
        return SplitDemonstrations(*(self.chosen(part) for part in parts))

    def save(self, path: Path) -> None:
        """Writes them to one file, whole or not at all."""
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
        """Reads what `save` wrote."""
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
    """Demonstrations, split."""

    train: Demonstrations
    valid: Demonstrations
    test: Demonstrations


Told = Mapping[int, float]
"""Dimensions of an action that somebody else has decided, and their values in [-1, 1]."""


class Policy(Protocol):
    """Who acts: a trained model, a joystick, a script.

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
        """Begins an episode: all chance in it comes from the seed, and nothing is remembered."""
        ...

    def act(self, observation: Array, told: Told | None = None) -> Array:
        """The action, each of whose dimensions lies in [-1, 1].

        Args:
            observation: What is seen. Shape ``(numbers,)``.
            told: What is decided already; the action has these values.
        """
        ...
