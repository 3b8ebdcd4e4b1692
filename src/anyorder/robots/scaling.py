"""Rows of a policy's model: standardised actions and observations, and their augmentation.

A policy that imitates drifts from the demonstrated states, and was not trained on the states that
it reaches. Where an action is a displacement, the correction is known: an action a moves joint q to
q + reach * a, so from q + d the action a - d / reach leads to the same position. `SteeredRows`
trains on such perturbed joints and corrected actions.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyorder.errors import CheckpointError, QueryError
from anyorder.robots.episodes import Array, Demonstrations, Told
from anyorder.training.batches import Rows
from anyorder.variables import Schema, Variable

LEAST_SPREAD = 0.01
"""Smallest scale, in radians or metres: smaller motions are noise and are not amplified."""

FARTHEST = 5.0
"""Largest standardised observation, in deviations; larger ones are clipped."""


@dataclass(frozen=True)
class Scaling:
    """Means and standard deviations of actions and observations.

    Rows of `x` hold an action and then the observation before it, which is their context.
    """

    action_mean: tuple[float, ...]
    action_spread: tuple[float, ...]
    seen_mean: tuple[float, ...]
    seen_spread: tuple[float, ...]

    @classmethod
    def of(cls, demonstrations: Demonstrations) -> "Scaling":
        """Returns the scaling of demonstrations."""
        numbers = []
        for part in (demonstrations.actions, demonstrations.observations):
            wide = part.astype(np.float64)
            numbers += [wide.mean(axis=0), np.maximum(wide.std(axis=0), LEAST_SPREAD)]
        return cls(*(tuple(part.tolist()) for part in numbers))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Scaling":
        """Reads a document of `to_json`."""
        try:
            return cls(**{name: tuple(map(float, values)) for name, values in document.items()})
        except (TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"This is not the scaling of a policy ({error!r}).") from error

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as plain lists."""
        return {name: list(values) for name, values in asdict(self).items()}

    @property
    def num_actions(self) -> int:
        """Number of dimensions of an action."""
        return len(self.action_mean)

    @property
    def schema(self) -> Schema:
        """Variables: the dimensions of the action, then the observation as context."""
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
        """Log scale of each dimension, to be subtracted from log densities of scaled actions."""
        return torch.tensor(self.action_spread, dtype=torch.float64).log()

    def rows(self, observations: Array, actions: Array) -> Tensor:
        """Returns standardised rows of `x`. Shape ``(steps, dimensions + numbers)``."""
        done = (actions - np.array(self.action_mean)) / np.array(self.action_spread)
        return torch.from_numpy(np.hstack([done, self._seen(observations)]).astype(np.float32))

    def question(self, observation: Array, told: Told | None) -> tuple[Tensor, Tensor]:
        """Returns one row of `x` with the given dimensions, and the mask of these."""
        if np.shape(observation) != (len(self.seen_mean),):
            raise QueryError(
                f"`observation` must hold {len(self.seen_mean)} numbers; "
                f"got shape {np.shape(observation)}."
            )
        if not np.isfinite(observation).all():
            raise QueryError("`observation` must hold finite numbers; a sensor may have failed.")
        decided: Any = {} if told is None else told  # untyped callers may pass anything
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
        """Returns the action of a row of `x`, within [-1, 1]; given dimensions are exact."""
        done = x[: self.num_actions].numpy() * np.array(self.action_spread)
        action = (done + np.array(self.action_mean)).clip(-1, 1).astype(np.float32)
        for dimension, value in (told or {}).items():
            action[dimension] = value
        return action

    def _seen(self, observations: Array) -> Any:
        scaled = (observations - np.array(self.seen_mean)) / np.array(self.seen_spread)
        return scaled.clip(-FARTHEST, FARTHEST)


class SteeredRows(Rows):
    """Rows of `x` with randomly perturbed joints and corrected actions.

    Args:
        x: Standardised actions and observations; observations begin with the joints.
        scaling: Scaling of `x`.
        spread: Scale of the perturbations, in deviations of each joint; 0 disables them.
        reach: Distance that an action of 1 moves a joint, in the unit of the joint.
        noise: Standard deviation of the noise on actions, in deviations. Without it, densities of
            nearly equal dimensions, such as two fingers that move as one, would diverge.
        seed: Seed of the order of the rows.
    """

    def __init__(
        self, x: Tensor, *, scaling: Scaling, spread: float, reach: float, noise: float, seed: int
    ) -> None:
        self.joints, self.spread = scaling.num_actions, spread
        scales = torch.zeros(x.shape[1])
        scales[: self.joints] = noise
        super().__init__(x, seed=seed, noise=scales)
        seen = torch.tensor(scaling.seen_spread[: self.joints])
        self.correction = seen / reach / torch.tensor(scaling.action_spread)

    def describe(self) -> dict[str, str | int]:
        """Returns the identity of the rows and of their perturbations."""
        return {**super().describe(), "steering": f"{self.spread:g} {self.correction.tolist()}"}

    def batch(
        self, step: int, size: int, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the rows of a step, with fresh perturbations."""
        x, available = super().batch(step, size, generator=generator)
        # Each row has a random scale: most perturbations are small, some large.
        scale = 2 * self.spread * torch.rand(size, 1, generator=generator)
        shift = scale * torch.randn(size, self.joints, generator=generator)
        action, joints, rest = x.tensor_split([self.joints, 2 * self.joints], dim=1)
        # Not clipped to [-1, 1]: repeated values have no density, and `act` clips anyway.
        corrected = action - shift * self.correction
        return torch.cat([corrected, joints + shift, rest], dim=1), available
