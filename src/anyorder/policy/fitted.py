"""What trained policies share: a model of actions given what is seen, fitted and saved."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from anyorder.checkpoint import SavedModel, load_saved, save_model
from anyorder.conditionals.contracts import Conditionals
from anyorder.data.robot import Array, Demonstrations
from anyorder.errors import CheckpointError, ConfigError
from anyorder.losses import Objective
from anyorder.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.state_mlp import StateMlp
from anyorder.policy.contracts import Told
from anyorder.policy.scaling import Scaling
from anyorder.policy.steering import SteeredRows
from anyorder.protocols import RemoveGreatest, lexicographic
from anyorder.query_laws import QueryLaw
from anyorder.training.fit import Fit, fit
from anyorder.training.settings import TrainingSettings
from anyorder.variables import Schema

POLICY_SETTINGS = TrainingSettings(
    batch=256, steps=12_000, warmup=200, learning_rate=1e-3, ema=0.999
)
"""How policies are trained unless told otherwise: a few minutes of one core."""

SPREAD = 0.1
"""Deviations by which joints are moved in training: two to seven hundredths of a radian."""

REACH = 0.16
"""Radians that an action of 1 moves a joint of the kitchen: two a second, for 0.08 seconds."""

NOISE = 0.1
"""Deviations of an action that are noise: a few thousandths of a radian of motion."""

VALID_ROWS = 2_048
"""Held-out steps that tell how training goes."""


class FittedPolicy(ABC):
    """A policy that was trained on demonstrations.

    Args:
        hidden: Width of the network.
        blocks: Its residual blocks, two layers each.
        spread: How far joints are moved in training, in their deviations, with the action that
            makes up for it; see `SteeredRows`. 0 trains on the demonstrated states alone.
        reach: How far an action of 1 moves a joint, in its own unit.
        settings: How it is trained; `POLICY_SETTINGS` by default.
    """

    domain: ClassVar[str]
    """What the folder of a saved policy says that it is."""

    def __init__(
        self,
        *,
        hidden: int = 256,
        blocks: int = 4,
        spread: float = SPREAD,
        reach: float = REACH,
        settings: TrainingSettings = POLICY_SETTINGS,
    ) -> None:
        self.hidden, self.blocks, self.settings = hidden, blocks, settings
        self.spread, self.reach = spread, reach
        self.model_: AnyOrderModel | None = None
        self.scaling_: Scaling | None = None
        self.fit_: Fit | None = None

    @abstractmethod
    def act(self, observation: Array, told: Told | None = None) -> Array:
        """See `Policy.act`."""

    @abstractmethod
    def _conditionals(self, schema: Schema, width: int) -> Conditionals:
        """The head, for features of a width."""

    @abstractmethod
    def _objective(self, num_actions: int) -> Objective:
        """What training minimises."""

    @abstractmethod
    def _options(self) -> dict[str, Any]:
        """The arguments of the constructor beside the settings, in plain values."""

    def start(self, seed: int) -> None:
        """Nothing is remembered between steps."""
        del seed

    def fit(
        self,
        demonstrations: Demonstrations,
        *,
        valid: Demonstrations | None = None,
        folder: str | Path | None = None,
        progress: bool = False,
    ) -> Self:
        """Trains on demonstrations, from the start.

        Args:
            demonstrations: What to imitate.
            valid: Others, to tell how training goes.
            folder: Where checkpoints go; the same call with the same folder goes on from the last.
            progress: Whether to show a line of progress.
        """
        scaling = Scaling.of(demonstrations)
        model, objective = self._build(scaling), self._objective(scaling.num_actions)
        self.fit_ = fit(
            model,
            self.rows(demonstrations, scaling),
            objective,
            settings=self.settings,
            valid=None if valid is None else _held_out(objective, scaling, valid),
            folder=folder,
            notes=self._notes(scaling),
            progress=progress,
        )
        self.model_, self.scaling_ = model.eval(), scaling
        return self

    def save(self, folder: str | Path) -> None:
        """Saves the policy."""
        model, scaling = self.fitted()
        save_model(folder, model, law=self._law(), notes=self._notes(scaling))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Loads what `save` saved, or the last checkpoint of a training."""
        return cls.from_saved(load_saved(folder), folder)

    @classmethod
    def from_saved(cls, saved: SavedModel, folder: str | Path) -> Self:
        """The policy of what was read from a folder; `folder` is for messages only."""
        notes = saved.notes
        if notes.get("domain") != cls.domain:
            raise CheckpointError(
                f'"{folder}" does not hold a {cls.__name__}, but "{notes.get("domain")}".'
            )
        try:
            loaded = cls(settings=TrainingSettings(**notes["settings"]), **notes["options"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f'"{folder}" was altered, or written by another version ({error!r}).'
            ) from error
        loaded.model_, loaded.scaling_ = saved.model, Scaling.from_json(notes.get("scaling", {}))
        return loaded

    def fitted(self) -> tuple[AnyOrderModel, Scaling]:
        """The model and its scaling, if there are any yet."""
        if self.model_ is None or self.scaling_ is None:
            raise ConfigError(f"This {type(self).__name__} is not fitted: call `fit` first.")
        return self.model_, self.scaling_

    def _law(self) -> QueryLaw | None:
        """The questions that a fitted policy was trained for, if it was trained for any."""
        return None

    def _network(self, schema: Schema) -> MaskedNetwork | PathNetwork[Any]:
        return StateMlp(schema, hidden=self.hidden, blocks=self.blocks)

    def _build(self, scaling: Scaling) -> AnyOrderModel:
        schema = scaling.schema
        with torch.random.fork_rng():
            torch.manual_seed(self.settings.seed)
            network = self._network(schema)
            conditionals = self._conditionals(schema, network.width)
        protocol = RemoveGreatest(lexicographic(scaling.num_actions))
        return AnyOrderModel(schema, network, conditionals, protocol)

    def rows(self, demonstrations: Demonstrations, scaling: Scaling) -> SteeredRows:
        """Steps as training draws them: joints moved, actions that make up for it, and noise."""
        x = scaling.rows(demonstrations.observations, demonstrations.actions)
        return SteeredRows(
            x,
            scaling=scaling,
            spread=self.spread,
            reach=self.reach,
            noise=NOISE,
            seed=self.settings.seed,
        )

    def _notes(self, scaling: Scaling) -> Mapping[str, Any]:
        return {
            "domain": self.domain,
            "options": {
                "hidden": self.hidden,
                "blocks": self.blocks,
                "spread": self.spread,
                "reach": self.reach,
                **self._options(),
            },
            "settings": asdict(self.settings),
            "scaling": scaling.to_json(),
        }


def _held_out(objective: Objective, scaling: Scaling, valid: Demonstrations) -> Any:
    """The loss on steps of other demonstrations, with the same questions every time."""
    every = np.linspace(0, valid.num_steps - 1, min(VALID_ROWS, valid.num_steps)).astype(int)
    x = scaling.rows(valid.observations[every], valid.actions[every])

    def surprise(model: AnyOrderModel) -> float:
        source = torch.Generator().manual_seed(0)
        drawn: tuple[Tensor, ...] = objective.draw(model, len(x), generator=source)
        return float(objective.loss(model, x, drawn).mean())

    return surprise
