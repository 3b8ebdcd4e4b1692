"""What estimators share: the parameters of tables, and `LevelEstimator`, for text and images.

The rows of text and of images hold levels, the characters of a chunk or the pixels of an image, and
are never missing. A domain says how its data become rows and which network reads them.
"""

import inspect
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from anyorder.diagnostics.check import Check, check_model
from anyorder.diagnostics.evaluation import Estimate, conditional_bits, joint_bits, marginal_bits
from anyorder.errors import (
    ConfigError,
    Device,
    QueryError,
    check_device,
    check_seed,
    nearest_or_all,
)
from anyorder.inference.model import AnyOrderModel
from anyorder.saving.checkpoint import SavedModel, load_saved
from anyorder.training.settings import TrainingSettings, training_settings


class Parameters:
    """The parameters of an estimator, as scikit-learn reads and sets them, without importing it.

    They are the arguments of the constructor, which stores them as they are given.
    """

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        arguments = inspect.signature(cls).parameters.values()
        return {each.name: each.default for each in arguments}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the parameters by name; `deep` makes no difference."""
        del deep
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Sets parameters by name."""
        known = self._defaults()
        for name, value in params.items():
            if name not in known:
                raise ConfigError(
                    f'`set_params` must name parameters of {type(self).__name__}; got "{name}".'
                    f"{nearest_or_all(name, known)}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(self._defaults()[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags, TransformerTags

        tags = Tags(None, TargetTags(required=False), transformer_tags=TransformerTags())
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


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
        return training_settings(self.defaults, self)

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
