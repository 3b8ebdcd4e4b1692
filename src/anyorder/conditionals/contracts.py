"""What conditionals promise: from the features of edges to distributions, whatever their kind."""

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn


class Distribution(Protocol):
    """One distribution of one variable an edge; all results have the shape of the edges."""

    def log_prob(self, values: Tensor) -> Tensor:
        """The log probability (or density) of values."""
        ...

    def cdf(self, values: Tensor) -> Tensor:
        """The probability of at most `values`."""
        ...

    def icdf(self, probability: Tensor) -> Tensor:
        """The least value whose CDF reaches a probability."""
        ...

    def mean(self) -> Tensor:
        """The expectation; of codes, for categorical variables."""
        ...

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """A draw."""
        ...

    def mode(self) -> Tensor:
        """The most probable value."""
        ...

    def entropy(self) -> Tensor:
        """In nats."""
        ...

    def tempered(self, temperature: float, top_k: int | None = None) -> "Distribution":
        """Sharper or flatter, and without all but the most probable values."""
        ...


class Conditionals(nn.Module, ABC):
    """Turns the features of edges into the distributions of their variables."""

    width: int

    @abstractmethod
    def forward(self, features: Tensor, variables: Tensor) -> Distribution:
        """The conditionals of edges.

        Args:
            features: Shape ``(..., width)``.
            variables: The variable of each edge. Shape ``(...)``.
        """
