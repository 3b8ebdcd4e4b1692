"""Evaluation: negative log-likelihoods in bits per variable, with standard errors, row by row.

Joint and marginal bits are per variable of the *model*, as in the paper: -log2 p(x) / N and
-E log2 p(x_S) / N with S ~ M. Conditional bits are per *queried* variable. The published runs
estimate both from one random edge a row; here whole paths are summed.

`RowSample` keeps a random sample of the rows of a large file to evaluate on, in bounded memory.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anyorder.errors import check_count, check_seed
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.lattice.masks import Bernoulli, subsets
from anyorder.lattice.query_laws import ConditionalQueries, Query


@dataclass(frozen=True, repr=False)
class Estimate:
    """A mean over rows, with its standard error; keeps the rows for paired comparisons."""

    rows: Tensor

    @property
    def value(self) -> float:
        """The mean."""
        return float(self.rows.mean())

    @property
    def se(self) -> float:
        """The standard error of the mean."""
        return float(self.rows.std() / len(self.rows) ** 0.5) if len(self.rows) > 1 else math.nan

    def minus(self, other: "Estimate") -> "Estimate":
        """Returns the paired difference, row by row."""
        return Estimate(self.rows - other.rows)

    def __str__(self) -> str:
        return self._shown(4)

    def __repr__(self) -> str:
        return self._shown(2)

    def _shown(self, digits: int) -> str:
        value = f"{self.value:.{digits}f}"
        # A single row has no standard error.
        return value if math.isnan(self.se) else f"{value} ± {self.se:.{digits}f}"


def joint_bits(model: AnyOrderModel, x: Tensor, **options: object) -> Estimate:
    """Returns the bits per variable of the joint, -log2 p(x) / N."""
    logs = log_prob(model, x, **options)  # type: ignore[arg-type]
    return Estimate(-logs.cpu() / (math.log(2) * model.num_variables))


def marginal_bits(model: AnyOrderModel, x: Tensor, *, seed: int = 0, **options: object) -> Estimate:
    """Returns the bits per variable of marginals, -log2 p(x_S) / N, S ~ `UniformCardinality`.

    Each row has one set S. The sets depend on `seed` and the number of rows only, so that models
    can be compared in pairs.
    """
    query = marginal_questions(model.num_variables, len(x), seed=seed).query
    logs = log_prob(model, x, query=query, **options)  # type: ignore[arg-type]
    return Estimate(-logs.cpu() / (math.log(2) * model.num_variables))


def conditional_bits(
    model: AnyOrderModel, x: Tensor, *, seed: int = 0, **options: object
) -> Estimate:
    """Returns the bits per queried variable, -log2 p(x_u | x_e) / |u|, with a random half given."""
    given, query = half_given(model.num_variables, len(x), seed=seed)
    logs = log_prob(model, x, query=query, given=given, **options)  # type: ignore[arg-type]
    return Estimate(-logs.cpu() / (math.log(2) * query.sum(dim=1)))


def marginal_questions(num_variables: int, rows: int, *, seed: int) -> Query:
    """Samples sets S ~ `UniformCardinality`, with stratified sizes.

    Row r has the size at the (r + u) / rows quantile, u uniform: an unbiased sample of sizes with
    less variance than independent ones. (Standard errors treat them as independent, and are
    therefore conservative.)
    """
    generator = torch.Generator().manual_seed(check_seed(seed))
    quantiles = (
        torch.randperm(rows, generator=generator) + torch.rand(rows, generator=generator)
    ) / rows
    sizes = 1 + (quantiles * num_variables).long().clamp(max=num_variables - 1)
    everything = torch.ones(rows, num_variables, dtype=torch.bool)
    query = subsets(sizes, everything, generator=generator)
    return Query(torch.zeros_like(query), query)


def half_given(num_variables: int, rows: int, *, seed: int) -> Query:
    """Samples queries: each variable is given with probability 1/2; the rest, never none, is u."""
    law = ConditionalQueries(num_variables, Bernoulli(num_variables, 0.5))
    everything = torch.ones(rows, num_variables, dtype=torch.bool)
    generator = torch.Generator().manual_seed(check_seed(seed))
    return law.sample(rows, available=everything, generator=generator)


class Sampling:
    """A uniform sample without replacement from a stream of rows, in random order.

    Every row gets a random key, and the rows with the least keys are kept: the sample does not
    depend on how the stream is divided into parts.

    Args:
        rows: Number of rows to keep, at most.
        seed: Seed of the sample.
    """

    def __init__(self, rows: int, *, seed: int) -> None:
        self._rows = check_count("rows", rows)
        self._source = np.random.default_rng(check_seed(seed))
        self._keys = torch.zeros(0, dtype=torch.float64)
        self.seen = 0
        """Number of rows so far."""

    def keep(self, count: int) -> Tensor:
        """Takes `count` new rows; returns the indices to keep among the kept rows, then the new."""
        self.seen += count
        keys = torch.cat([self._keys, torch.from_numpy(self._source.random(count))])
        kept = keys.argsort()[: self._rows]
        self._keys = keys[kept]
        return kept


class RowSample:
    """Values and missing values of the rows that a `Sampling` keeps.

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
        """Number of rows so far."""
        return self._sampling.seen

    def add(self, x: Tensor, missing: Tensor) -> None:
        """Adds rows: values ``(rows, columns)`` and missing values ``(rows, vars)``."""
        if self.seen:
            both = torch.cat([self.x, x]), torch.cat([self.missing, missing])
        else:
            both = x, missing
        kept = self._sampling.keep(len(x))
        self.x, self.missing = both[0][kept], both[1][kept]
