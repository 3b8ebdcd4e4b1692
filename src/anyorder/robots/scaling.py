"""Between a robot's numbers and a network's: each with mean 0 and deviation 1.

Training rows that steer back: joints seen beside where they were, with the action that mends it.

A policy that imitates leaves the demonstrated states by a little at each step, and has never seen
what to do there. Where an action is a way to go, that is known without asking anybody: an action a
leads joint q to q + reach * a, so a joint that is seen at q + d must go by a - d / reach to come to
the same place.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyorder.errors import CheckpointError, QueryError
from anyorder.robots.demonstrations import Array, Demonstrations, Told
from anyorder.training.batches import Rows
from anyorder.variables import Schema, Variable

LEAST_SPREAD = 0.01
"""A radian, or a metre: what moves less in all demonstrations is noise, and is not blown up."""

FARTHEST = 5.0
"""Deviations from the mean beyond which a network has seen nothing: numbers are cut there."""


@dataclass(frozen=True)
class Scaling:
    """Means and deviations of what is done and of what is seen.

    Rows of `x` hold an action and then the observation that it answers, which is their context.
    """

    action_mean: tuple[float, ...]
    action_spread: tuple[float, ...]
    seen_mean: tuple[float, ...]
    seen_spread: tuple[float, ...]

    @classmethod
    def of(cls, demonstrations: Demonstrations) -> "Scaling":
        """That of some demonstrations."""
        numbers = []
        for part in (demonstrations.actions, demonstrations.observations):
            wide = part.astype(np.float64)
            numbers += [wide.mean(axis=0), np.maximum(wide.std(axis=0), LEAST_SPREAD)]
        return cls(*(tuple(part.tolist()) for part in numbers))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Scaling":
        """Reads what `to_json` gave."""
        try:
            return cls(**{name: tuple(map(float, values)) for name, values in document.items()})
        except (TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"This is not the scaling of a policy ({error!r}).") from error

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {name: list(values) for name, values in asdict(self).items()}

    @property
    def num_actions(self) -> int:
        """Dimensions of an action."""
        return len(self.action_mean)

    @property
    def schema(self) -> Schema:
        """The dimensions of the action, then what is seen, as context."""
        names = [f"action {i}" for i in range(self.num_actions)]
        seen = [f"seen {i}" for i in range(len(self.seen_mean))]
        return Schema(
            (
                *(Variable.continuous(name) for name in names),
                *(Variable.continuous(name, context=True) for name in seen),
            )
        )

    @property
    def log_spread(self) -> Tensor:
        """What a density of actions loses by being scaled, a dimension."""
        return torch.tensor(self.action_spread, dtype=torch.float64).log()

    def rows(self, observations: Array, actions: Array) -> Tensor:
        """Pairs as rows of `x`. Shape ``(steps, dimensions + numbers)``."""
        done = (actions - np.array(self.action_mean)) / np.array(self.action_spread)
        return torch.from_numpy(np.hstack([done, self._seen(observations)]).astype(np.float32))

    def question(self, observation: Array, told: Told | None) -> tuple[Tensor, Tensor]:
        """One row of `x` with what is told, and which dimensions that is."""
        if np.shape(observation) != (len(self.seen_mean),):
            raise QueryError(
                f"`observation` must hold {len(self.seen_mean)} numbers; "
                f"got shape {np.shape(observation)}."
            )
        if not np.isfinite(observation).all():
            raise QueryError("`observation` must hold finite numbers; a sensor may have failed.")
        decided: Any = {} if told is None else told  # what callers pass is checked, not assumed
        if not isinstance(decided, Mapping):
            raise QueryError("`told` must be a dict of dimensions and values, such as {0: 0.25}.")
        row = np.zeros((1, self.num_actions + len(self.seen_mean)), dtype=np.float32)
        given = np.zeros((1, self.num_actions), dtype=np.bool_)
        row[0, self.num_actions :] = self._seen(observation)
        for dimension, value in decided.items():
            if dimension not in range(self.num_actions):
                raise QueryError(
                    f"`told` must name dimensions 0 to {self.num_actions - 1} of the action; "
                    f"got {dimension!r}."
                )
            if not isinstance(value, Real) or not -1 <= float(value) <= 1:
                raise QueryError(
                    f"`told` must hold numbers from -1 to 1; dimension {dimension} got {value!r}."
                )
            mean, spread = self.action_mean[dimension], self.action_spread[dimension]
            row[0, dimension], given[0, dimension] = (float(value) - mean) / spread, True
        return torch.from_numpy(row), torch.from_numpy(given)

    def action(self, x: Tensor, told: Told | None) -> Array:
        """The action of a row of `x`, within [-1, 1]; what was told is as it was told."""
        done = x[: self.num_actions].numpy() * np.array(self.action_spread)
        action = (done + np.array(self.action_mean)).clip(-1, 1).astype(np.float32)
        for dimension, value in (told or {}).items():
            action[dimension] = value
        return action

    def _seen(self, observations: Array) -> Any:
        scaled = (observations - np.array(self.seen_mean)) / np.array(self.seen_spread)
        return scaled.clip(-FARTHEST, FARTHEST)


class SteeredRows(Rows):
    """Rows of `x` whose joints are moved at random, and whose actions make up for it.

    Args:
        x: Actions and what is seen, scaled; the first numbers that are seen are the joints.
        scaling: How they were scaled.
        spread: How far joints are moved, in deviations of each; 0 leaves them.
        reach: How far an action of 1 moves a joint, in its own unit.
        noise: Added to actions, in deviations. Where dimensions all but repeat, as two fingers that
            move as one, a density would grow without end, and its slope drown all others.
        seed: Of the order of the rows.
    """

    def __init__(
        self, x: Tensor, *, scaling: Scaling, spread: float, reach: float, noise: float, seed: int
    ) -> None:
        self.joints, self.spread = scaling.num_actions, spread
        shaken = torch.zeros(x.shape[1])
        shaken[: self.joints] = noise
        super().__init__(x, seed=seed, noise=shaken)
        seen = torch.tensor(scaling.seen_spread[: self.joints])
        self.makes_up = seen / reach / torch.tensor(scaling.action_spread)

    def describe(self) -> dict[str, str | int]:
        """Which rows these are, and how far they are moved."""
        return {**super().describe(), "steering": f"{self.spread:g} {self.makes_up.tolist()}"}

    def batch(
        self, step: int, size: int, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """The rows of a step, moved anew."""
        x, available = super().batch(step, size, generator=generator)
        # A scale for each row: most states are met nearby, some farther off.
        scale = 2 * self.spread * torch.rand(size, 1, generator=generator)
        moved = scale * torch.randn(size, self.joints, generator=generator)
        action, joints, rest = x.tensor_split([self.joints, 2 * self.joints], dim=1)
        # Not cut to [-1, 1]: numbers that are all the same have no density, and `act` cuts anyway.
        mended = action - moved * self.makes_up
        return torch.cat([mended, joints + moved, rest], dim=1), available
