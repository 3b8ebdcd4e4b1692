"""A random sample of rows that come in parts, in bounded memory."""

import numpy as np
import torch
from torch import Tensor

from anyorder.errors import check_count, check_seed


class RowSample:
    """At most so many rows, each row that came as likely; in random order.

    Every row draws a number, and those with the least numbers are kept: what is kept does not
    depend on how the rows were cut into parts.

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
        self._rows = check_count("rows", rows)
        self._source = np.random.default_rng(check_seed(seed))
        self._keys = torch.zeros(0, dtype=torch.float64)
        self.seen = 0
        """How many rows came."""

    def add(self, x: Tensor, missing: Tensor) -> None:
        """Takes in some more rows: values ``(rows, columns)`` and gaps ``(rows, vars)``."""
        keys, before = torch.from_numpy(self._source.random(len(x))), self.seen
        self.seen += len(x)
        if before:
            keys = torch.cat([self._keys, keys])
            x, missing = torch.cat([self.x, x]), torch.cat([self.missing, missing])
        kept = keys.argsort()[: self._rows]
        self._keys, self.x, self.missing = keys[kept], x[kept], missing[kept]
