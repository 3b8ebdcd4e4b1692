"""A random sample of rows that come in parts, in bounded memory."""

import numpy as np
import torch
from torch import Tensor

from anyorder.errors import check_count, check_seed


class Sampling:
    """Which rows are kept: at most so many, each that came as likely; in random order.

    Every row draws a number, and those with the least numbers are kept: what is kept does not
    depend on how the rows were cut into parts.

    Args:
        rows: How many.
        seed: The same gives the same rows.
    """

    def __init__(self, rows: int, *, seed: int) -> None:
        self._rows = check_count("rows", rows)
        self._source = np.random.default_rng(check_seed(seed))
        self._keys = torch.zeros(0, dtype=torch.float64)
        self.seen = 0
        """How many rows came."""

    def keep(self, count: int) -> Tensor:
        """So many rows come: the places to keep among those that were kept, then the new ones."""
        self.seen += count
        keys = torch.cat([self._keys, torch.from_numpy(self._source.random(count))])
        kept = keys.argsort()[: self._rows]
        self._keys = keys[kept]
        return kept


class RowSample:
    """The values and gaps of rows that a `Sampling` keeps.

    Args:
        rows: How many.
        seed: The same gives the same rows.

    Example:
        >>> sample = RowSample(2, seed=0)
        >>> sample.add(torch.arange(6).view(3, 2), torch.zeros(3, 2, dtype=torch.bool))
        >>> sample.seen, sample.x.tolist()
        (3, [[4, 5], [2, 3]])
    """

    x: Tensor
    missing: Tensor

    def __init__(self, rows: int, *, seed: int) -> None:
        self._sampling = Sampling(rows, seed=seed)

    @property
    def seen(self) -> int:
        """How many rows came."""
        return self._sampling.seen

    def add(self, x: Tensor, missing: Tensor) -> None:
        """Takes in some more rows: values ``(rows, columns)`` and gaps ``(rows, vars)``."""
        if self.seen:
            both = torch.cat([self.x, x]), torch.cat([self.missing, missing])
        else:
            both = x, missing
        kept = self._sampling.keep(len(x))
        self.x, self.missing = both[0][kept], both[1][kept]
