"""Rows of a table in memory, as training draws them: all of them once before any of them twice."""

import hashlib
from functools import lru_cache

import torch
from torch import Tensor

from anyorder.errors import ConfigError
from anyorder.random_sets import draws


class Rows:
    """Rows in a random order, a new one each time round.

    Args:
        x: Values. Shape ``(rows, columns)``.
        available: Which variables each row has, ``(rows, vars)``; None where all have all.
        weights: How much each row counts, ``(rows,)``; alike by default. Rows are then drawn with
            these odds, again and again.
        seed: Of the orders.
        noise: The scale of normal noise that is added to what is drawn, anew each time; one number,
            or one a column. It keeps densities from growing without end on values that repeat.
    """

    def __init__(
        self,
        x: Tensor,
        *,
        available: Tensor | None = None,
        weights: Tensor | None = None,
        seed: int = 0,
        noise: float | Tensor = 0.0,
    ) -> None:
        if not len(x):
            raise ConfigError("There must be a row to train on; got none.")
        self.x, self.available, self.weights, self.seed = x, available, weights, seed
        self.noise = torch.as_tensor(noise)
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def __len__(self) -> int:
        return len(self.x)

    def describe(self) -> dict[str, str | int]:
        """Which rows these are: how many, and a hash of them and of their noise."""
        digest = hashlib.sha256()
        noise = self.noise if self.noise.any() else None
        for part in (self.x, self.available, self.weights, noise):
            if part is not None:
                digest.update(part.numpy().tobytes())
        return {"rows": len(self.x), "seed": self.seed, "sha256": digest.hexdigest()}

    def batch(
        self, step: int, size: int, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """The rows of a step, and what each of them has."""
        index = self._index(step, size, generator)
        x = self.x[index]
        if self.noise.any():
            x = x + self.noise * torch.randn(x.shape, generator=generator)
        return x, None if self.available is None else self.available[index]

    def _index(self, step: int, size: int, generator: torch.Generator) -> Tensor:
        if self.weights is not None:
            return draws(self.weights.double(), size, generator=generator)
        rounds, places = divmod(step * size, len(self.x))
        found: list[Tensor] = []
        while size:
            part = self._order(rounds)[places : places + size]
            found.append(part)
            size, rounds, places = size - len(part), rounds + 1, 0
        return torch.cat(found)

    def _shuffle(self, rounds: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + rounds)
        return torch.randperm(len(self.x), generator=generator)
