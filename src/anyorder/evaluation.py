"""How good a model is: bits for each variable, with standard errors, row by row.

Joint and marginal figures are for each variable of the *model*, as in the paper: -log2 p(x) / N and
-E log2 p(x_S) / N with S ~ M. Conditional figures are for each variable *asked*. The published runs
estimate both from one random edge a row; here whole paths are summed.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.errors import check_seed
from anyorder.masks import Bernoulli
from anyorder.model import AnyOrderModel
from anyorder.queries import log_prob
from anyorder.query_laws import ConditionalQueries, Query
from anyorder.random_sets import subsets


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
        """The paired difference, row by row."""
        return Estimate(self.rows - other.rows)

    def __str__(self) -> str:
        return self._shown(4)

    def __repr__(self) -> str:
        return self._shown(2)

    def _shown(self, digits: int) -> str:
        value = f"{self.value:.{digits}f}"
        # A single row has no error to tell.
        return value if math.isnan(self.se) else f"{value} ± {self.se:.{digits}f}"


def joint_bits(model: AnyOrderModel, x: Tensor, **options: object) -> Estimate:
    """Bits for each variable of the joint, -log2 p(x) / N."""
    logs = log_prob(model, x, **options)  # type: ignore[arg-type]
    return Estimate(-logs.cpu() / (math.log(2) * model.num_variables))


def marginal_bits(model: AnyOrderModel, x: Tensor, *, seed: int = 0, **options: object) -> Estimate:
    """Bits for each variable of marginals, -log2 p(x_S) / N, one S ~ `UniformCardinality` a row.

    The sets depend on `seed` and the number of rows only, so that models can be compared in pairs.
    """
    query = marginal_questions(model.num_variables, len(x), seed=seed).query
    logs = log_prob(model, x, query=query, **options)  # type: ignore[arg-type]
    return Estimate(-logs.cpu() / (math.log(2) * model.num_variables))


def conditional_bits(
    model: AnyOrderModel, x: Tensor, *, seed: int = 0, **options: object
) -> Estimate:
    """Bits for each variable asked, -log2 p(x_u | x_e) / |u|, with a random half given."""
    given, query = half_given(model.num_variables, len(x), seed=seed)
    logs = log_prob(model, x, query=query, given=given, **options)  # type: ignore[arg-type]
    return Estimate(-logs.cpu() / (math.log(2) * query.sum(dim=1)))


def marginal_questions(num_variables: int, rows: int, *, seed: int) -> Query:
    """Sets S ~ `UniformCardinality`, with sizes spread evenly over the rows.

    Row r has the size at the (r + u) / rows quantile, u uniform: an unbiased sample of sizes with
    less noise than independent ones. (Standard errors treat them as independent: they are too large
    rather than too small.)
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
    """Each variable is given with probability 1/2, the rest is asked; never nothing."""
    law = ConditionalQueries(num_variables, Bernoulli(num_variables, 0.5))
    everything = torch.ones(rows, num_variables, dtype=torch.bool)
    generator = torch.Generator().manual_seed(check_seed(seed))
    return law.sample(rows, available=everything, generator=generator)
