"""Batches: the rows and queries of a step, as a function of the seed and the step alone.

A resumed run therefore sees the batches of an undisturbed one. Several processes agree on a batch
without communication: each samples all of it and keeps its own rows.

`Rows` serves a table in memory, epoch by epoch: every row once before any row twice. `RowPrint`
recognises the rows that a model was trained on, without keeping any of them.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from anyorder.errors import ConfigError
from anyorder.inference.model import AnyOrderModel
from anyorder.lattice.masks import categorical
from anyorder.training.distributed import Team
from anyorder.training.losses import Objective
from anyorder.training.settings import TrainingSettings

BYTES = 8
"""Bytes of the hash of a row, and of the sum of hashes."""


class Rows:
    """Rows of a tensor in random order, reshuffled every epoch.

    Args:
        x: Values. Shape ``(rows, columns)``.
        available: True for the variables that each row has, ``(rows, vars)``; None for all of them.
        weights: Weights of the rows, ``(rows,)``. With weights, rows are sampled in proportion to
            them, with replacement.
        seed: Seed of the shuffles.
        noise: Standard deviation of normal noise that is added to every sampled row; one number,
            or one a column. It keeps densities from growing without bound on repeated values.
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
        """Returns what identifies the rows: their number, and a hash of them and their noise."""
        digest = hashlib.sha256()
        noise = self.noise if self.noise.any() else None
        for part in (self.x, self.available, self.weights, noise):
            if part is not None:
                digest.update(np.ascontiguousarray(part.numpy()).data)
        return {"rows": len(self.x), "seed": self.seed, "sha256": digest.hexdigest()}

    def batch(
        self, step: int, size: int, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the rows of a step, and which variables each of them has."""
        index = self._index(step, size, generator)
        x = self.x[index]
        if self.noise.any():
            x = x + self.noise * torch.randn(x.shape, generator=generator)
        return x, None if self.available is None else self.available[index]

    def _index(self, step: int, size: int, generator: torch.Generator) -> Tensor:
        if self.weights is not None:
            return categorical(self.weights.double(), size, generator=generator)
        epoch, start = divmod(step * size, len(self.x))
        found: list[Tensor] = []
        while size:
            part = self._order(epoch)[start : start + size]
            found.append(part)
            size, epoch, start = size - len(part), epoch + 1, 0
        return torch.cat(found)

    def _shuffle(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        return torch.randperm(len(self.x), generator=generator)


@dataclass
class RowPrint:
    """A fingerprint of encoded rows: the same for the same rows, in any order and file format.

    It is a sum of hashes, so rows can come in chunks. A subset of the rows has another fingerprint.

    Example:
        >>> x, nothing = torch.eye(3), torch.zeros(3, 3, dtype=torch.bool)
        >>> one, other = RowPrint(), RowPrint()
        >>> one.add(x, nothing)
        >>> other.add(x[1:], nothing[1:]), one == other
        (None, False)
        >>> other.add(x[:1], nothing[:1]), one == other
        (None, True)
    """

    rows: int = 0
    total: int = 0

    def add(self, x: Tensor, missing: Tensor) -> None:
        """Adds rows: codes ``(rows, columns)`` and missing values ``(rows, vars)``."""
        self.rows += len(x)
        for code, gone in zip(x.cpu().numpy(), missing.cpu().numpy(), strict=True):
            digest = hashlib.blake2b(code.tobytes() + gone.tobytes(), digest_size=BYTES).digest()
            self.total = (self.total + int.from_bytes(digest, "big")) % 2 ** (8 * BYTES)

    def to_json(self) -> dict[str, int | str]:
        """Returns plain values, for the notes of a model."""
        return {"rows": self.rows, "print": f"{self.total:0{2 * BYTES}x}"}


MicroBatch = tuple[Tensor, tuple[Tensor, ...]]
"""Values, and what the objective sampled for them."""


class TrainingData(Protocol):
    """A source of rows to train on.

    It may have a method `describe() -> dict` that identifies the rows in plain values: a run is
    then resumed on the same rows only.
    """

    def batch(
        self, step: int, size: int, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the rows of a step, on the CPU, as a function of these arguments alone.

        Args:
            step: Number of the step, from 0.
            size: Number of rows.
            generator: Source of randomness, seeded for this step.

        Returns:
            Values ``(size, vars)``, and booleans of the same shape, True where a row has a value;
            None in their place if nothing is missing.
        """
        ...


def micro_batches(
    model: AnyOrderModel,
    data: TrainingData,
    objective: Objective,
    *,
    settings: TrainingSettings,
    team: Team,
    step: int,
    share: float,
) -> Iterator[MicroBatch]:
    """Yields the rows of this process in each micro-batch of a step, and the queries on them.

    The queries depend on the share of the training that is done, if the objective changes with it.
    """
    x, available = _rows(data, settings, step, len(model.schema))
    generator = step_generator(settings.seed, step, "questions")
    size, micro = settings.batch // settings.draws, settings.batch // settings.accumulate
    mine = team.rows(micro)
    for first in range(0, settings.batch, size):
        have = None if available is None else available[first : first + size]
        drawn = objective.after(share).draw(model, size, available=have, generator=generator)
        for start in range(0, size, micro):
            rows = slice(start + mine.start, start + mine.stop)
            values = _moved(x[first : first + size][rows], team.device)
            yield values, tuple(_moved(part[rows], team.device) for part in drawn)


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns a tensor on a device; to a GPU it is copied from pinned memory, without waiting."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _rows(
    data: TrainingData, settings: TrainingSettings, step: int, num_variables: int
) -> tuple[Tensor, Tensor | None]:
    generator = step_generator(settings.seed, step, "rows")
    x, available = data.batch(step, settings.batch, generator=generator)
    if x.shape != (settings.batch, num_variables):
        raise ConfigError(
            f"`data` must give {settings.batch} rows of {num_variables} variables a step; "
            f"got shape {tuple(x.shape)}."
        )
    return x, available


def check_rows(settings: TrainingSettings, team: Team) -> None:
    """Refuses a batch that leaves a process without a row."""
    if settings.batch // settings.accumulate < team.size:
        raise ConfigError(
            f"`batch` must hold a row for each of {settings.accumulate} micro-batches in each of "
            f"{team.size} processes; got {settings.batch}."
        )


def step_generator(seed: int, step: int, purpose: str) -> torch.Generator:
    """Returns a generator for one purpose in one step."""
    return torch.Generator().manual_seed(_step_seed(seed, step, purpose))


@contextmanager
def scoped_seed(seed: int, step: int, purpose: str, *, device: torch.device) -> Iterator[None]:
    """Seeds the global generators for a block, and restores their state after it.

    Dropout takes no generator: this makes it a function of the step.
    """
    number = _step_seed(seed, step, purpose)
    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device.index] if on_cuda else []):
        torch.default_generator.manual_seed(number)
        if on_cuda:
            torch.cuda.default_generators[device.index].manual_seed(number)
        yield


def _step_seed(seed: int, step: int, purpose: str) -> int:
    """Returns a hash of the arguments: neighbouring seeds and steps have nothing in common."""
    digest = hashlib.sha256(f"{seed}/{step}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
