"""Shared autonomy: an operator decides some dimensions of each action, an assistant the others."""

from collections.abc import Sequence

from anyorder.data.robot import Array
from anyorder.errors import ConfigError
from anyorder.policy.contracts import Policy, Told


class SharedAutonomy:
    """Two policies as one (section 5 of the paper, on FrankaKitchen).

    Args:
        operator: Whose action counts in the `operated` dimensions.
        assistant: Is told those, and decides the others.
        operated: Dimensions of the action.
        tells: Whether the assistant gets to know what the operator decided. Without that it is the
            paper's baseline: two policies that each believe to be alone.
    """

    def __init__(
        self,
        operator: Policy,
        assistant: Policy,
        operated: Sequence[int],
        *,
        tells: bool = True,
    ) -> None:
        self.operator, self.assistant, self.tells = operator, assistant, tells
        self.operated = tuple(operated)
        if len(set(self.operated)) < len(self.operated) or any(i < 0 for i in self.operated):
            raise ConfigError(
                f"`operated` must name dimensions of the action, each once; got {operated!r}."
            )

    def start(self, seed: int) -> None:
        """Begins an episode for both."""
        self.operator.start(seed)
        self.assistant.start(seed)

    def act(self, observation: Array, told: Told | None = None) -> Array:
        """The operator's dimensions, completed by the assistant; what is told overrides both."""
        wanted = self.operator.act(observation, told)
        decided = {**{i: float(wanted[i]) for i in self.operated}, **(told or {})}
        action = self.assistant.act(observation, decided if self.tells else told)
        for dimension, value in decided.items():
            action[dimension] = value
        return action
