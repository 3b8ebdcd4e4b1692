"""LevelEstimator: what the models of text and of images share.

Their rows hold levels, the characters of a chunk or the pixels of an image, and are never missing.
A domain says how its data become rows and which network reads them.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor

from anyorder.diagnostics.check import Check, check_model
from anyorder.diagnostics.evaluation import Estimate, conditional_bits, joint_bits, marginal_bits
from anyorder.errors import QueryError, check_seed
from anyorder.inference.model import AnyOrderModel
from anyorder.saving.checkpoint import SavedModel, load_saved
from anyorder.training.settings import (
    Device,
    TrainingSettings,
    check_device,
    training_settings,
)


class LevelEstimator(ABC):
    """An estimator of rows of levels."""

    domain: ClassVar[str]
    defaults: ClassVar[TrainingSettings]

    random_state: int | None
    minutes: float | None
    settings: TrainingSettings | None
    progress: bool | None
    device: Device
    model_: AnyOrderModel | None

    def training_settings(self) -> TrainingSettings:
        """Returns the settings that `fit` trains with, all defaults filled in."""
        return training_settings(
            self.defaults,
            random_state=self.random_state,
            minutes=self.minutes,
            settings=self.settings,
            progress=self.progress,
            device=self.device,
        )

    def fitted(self) -> AnyOrderModel:
        """Returns the fitted `AnyOrderModel`; an error if there is none yet."""
        if self.model_ is None:
            raise QueryError("This model is not fitted yet: call `fit` or `load` first.")
        return self.model_

    @classmethod
    def load(cls, folder: str | Path, *, device: Device = None) -> Self:
        """Loads a saved model, or the last checkpoint of a training.

        Args:
            folder: Folder that `save` wrote.
            device: Device to load it to, as for a new model.
        """
        loaded = cls.from_saved(load_saved(folder, device=check_device(device)), folder)
        loaded.device = device
        return loaded

    @classmethod
    @abstractmethod
    def from_saved(cls, saved: SavedModel, folder: str | Path) -> Self:
        """Returns the model of what was read from a folder; `folder` is for messages only."""

    def _bits(self, x: Tensor, random_state: int | None) -> dict[str, Estimate]:
        """Returns the bits of joints, marginals and conditionals of rows."""
        model, seed = self.fitted(), evaluation_seed(random_state)
        return {
            "joint": joint_bits(model, x),
            "marginal": marginal_bits(model, x, seed=seed),
            "conditional": conditional_bits(model, x, seed=seed),
        }

    def _check(self, x: Tensor, random_state: int | None, *, progress: bool) -> Check:
        missing = torch.zeros(x.shape, dtype=torch.bool)
        return check_model(
            self.fitted(), x, missing, seed=evaluation_seed(random_state), progress=progress
        )


def evaluation_seed(random_state: int | None) -> int:
    """Returns the seed of an evaluation; None is 0."""
    return 0 if random_state is None else check_seed(random_state, "random_state")
