"""What a policy promises: an action for what is seen, and for what has been decided of it."""

from collections.abc import Mapping
from typing import Protocol

from anyorder.data.robot import Array

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
