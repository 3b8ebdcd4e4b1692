"""Behavioural cloning: the mean action for what is seen, blind to what an operator does."""

from typing import Any, ClassVar

import torch

from anyorder.conditionals.contracts import Conditionals
from anyorder.conditionals.heads import MeanConditionals
from anyorder.data.robot import Array
from anyorder.losses import BlindLoss, Objective
from anyorder.policy.contracts import Told
from anyorder.policy.fitted import FittedPolicy
from anyorder.variables import Schema


class CloningPolicy(FittedPolicy):
    """A perceptron that is never shown an action, trained by least squares.

    What it is told it does, and the rest of its action is what it would have been anyway.

    Example:
        >>> from anyorder.data.robot_toy import toy_demonstrations
        >>> from anyorder.training.settings import TrainingSettings
        >>> demonstrations = toy_demonstrations(8)
        >>> settings = TrainingSettings(batch=16, steps=4, warmup=1)
        >>> policy = CloningPolicy(hidden=16, blocks=1, settings=settings).fit(demonstrations)
        >>> policy.act(demonstrations.observations[0]).shape
        (9,)
    """

    domain: ClassVar[str] = "cloning policy"

    @torch.inference_mode()
    def act(self, observation: Array, told: Told | None = None) -> Array:
        """The mean action; see `Policy.act`."""
        model, scaling = self.fitted()
        x, _ = scaling.question(observation, None)
        every = torch.arange(scaling.num_actions)[None]
        nothing = torch.zeros_like(every, dtype=torch.bool)
        return scaling.action(model.predict(x, nothing, every).mean()[0], told)

    def _conditionals(self, schema: Schema, width: int) -> Conditionals:
        return MeanConditionals(schema, width=width)

    def _objective(self, num_actions: int) -> Objective:
        del num_actions
        return BlindLoss()

    def _options(self) -> dict[str, Any]:
        return {}
