"""Soft evidence: variables known to lie in a region, an interval or a set of levels.

p(x_u | x_e, x_s in R) is a mixture of p(x_u | x_e, x_s) over the values of x_s in R. These are
sampled one after another along the canonical path, each from its conditional *truncated to its
region*, and a sample is weighted by the product of the regions' probabilities: importance sampling
whose proposal lies in R. With one such variable all weights are equal and the samples are exact.
With more, the effective sample size measures the error.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.errors import QueryError, check_count
from anyorder.heads.distributions import DRAWN_EDGE, Distribution
from anyorder.inference.model import AnyOrderModel, walk
from anyorder.inference.queries import answering, checked_query
from anyorder.lattice.random_sets import uniform


@dataclass(frozen=True)
class Interval:
    """Region of a continuous variable: `low` to `high`, ends included."""

    low: float
    high: float


@dataclass(frozen=True)
class Levels:
    """Region of a categorical variable: the codes of some levels."""

    codes: tuple[int, ...]


@dataclass(frozen=True)
class SoftEvidence:
    """Weighted samples of the variables with regions, beside the given values.

    Args:
        x: Given and sampled values. Shape ``(n, columns)``.
        known: Variables that are evidence in `x`, given or sampled. Shape ``(vars,)``.
        log_weights: Log importance weights. Shape ``(n,)``.
        is_drawn: False if there are no regions, and hence nothing was sampled.
    """

    x: Tensor
    known: Tensor
    log_weights: Tensor
    is_drawn: bool = True

    @property
    def weights(self) -> Tensor:
        """Importance weights that sum to one. Shape ``(n,)``."""
        return self.log_weights.softmax(dim=0)

    @property
    def effective_sample_size(self) -> float:
        """Effective number of samples, 1 / sum of squared weights; infinite if none were needed."""
        if not self.is_drawn:
            return math.inf
        return 1 / float(self.weights.square().sum())

    @property
    def log_probability(self) -> float:
        """Log of an unbiased estimate of the probability of the regions given the evidence."""
        return float(self.log_weights.logsumexp(dim=0)) - math.log(len(self.log_weights))

    def resampled(self, number: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Returns indices of `number` equally weighted samples, by systematic resampling.

        With equal weights, these are the first samples, each once. Shape ``(number,)``.
        """
        if number <= len(self.x) and float(self.log_weights.max() - self.log_weights.min()) < 1e-6:
            return torch.arange(number)
        first = uniform((1,), device=self.x.device, generator=generator)
        points = (torch.arange(number, device=self.x.device) + first) / number
        chosen = torch.searchsorted(self.weights.cumsum(dim=0), points).clamp(max=len(self.x) - 1)
        return chosen[uniform((number,), device=chosen.device, generator=generator).argsort()]


@answering
def soft_evidence(
    model: AnyOrderModel,
    x: Tensor,
    *,
    given: Tensor,
    regions: Mapping[int, Interval | Levels],
    n: int,
    generator: torch.Generator | None = None,
) -> SoftEvidence:
    """Samples the variables with regions from the model, truncated to their regions.

    Args:
        model: The model.
        x: Values; only given ones are read. Shape ``(1, columns)``.
        given: Evidence known exactly. Shape ``(vars,)``.
        regions: Regions of other variables, by the number of the variable.
        n: Number of samples.
        generator: Source of randomness.
    """
    check_count("n", n)
    soft = torch.zeros(1, model.num_variables, dtype=torch.bool)
    soft[0, list(regions)] = True
    x, query, evidence = checked_query(model, x, soft, given, reads_query=False)
    rank = model.protocol.rank(query, generator=generator)
    filled = x.repeat_interleave(n, dim=0)
    log_weights = torch.zeros(n, dtype=torch.float64, device=x.device)
    with torch.inference_mode():
        for rows, targets, conditional in walk(
            model, filled, query=query, given=evidence, rank=rank, n=n
        ):
            region = regions[int(targets[0])]  # one row: all samples are at the same variable
            values, log_mass = _truncated(conditional, region, n, x.device, generator)
            filled[rows, targets] = values.to(filled.dtype)
            log_weights += log_mass
    if not log_weights.isfinite().any():
        raise QueryError(
            "The evidence has no probability under the model: widen an interval or a set."
        )
    known = (query | evidence)[0]
    return SoftEvidence(filled.clone(), known, log_weights.clone(), is_drawn=bool(regions))


def _truncated(
    conditional: Distribution,
    region: Interval | Levels,
    n: int,
    device: torch.device,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """Samples a conditional truncated to a region; returns values and log P(region)."""
    u = uniform((n,), device=device, generator=generator)
    if isinstance(region, Levels):
        codes = torch.tensor(region.codes, device=device)
        masses = torch.stack(
            [conditional.log_prob(code.expand(n)).double().exp() for code in codes], dim=1
        )
        below = masses.cumsum(dim=1)
        chosen = (below < (u * below[:, -1])[:, None]).sum(dim=1).clamp(max=len(codes) - 1)
        return codes[chosen], below[:, -1].log()
    low, high = (
        torch.tensor(end, dtype=torch.float32, device=device) for end in (region.low, region.high)
    )
    # Just below the lower end, so that an atom on it is inside; in doubles, because the tails have
    # little probability.
    below = torch.nextafter(low, torch.tensor(-torch.inf, device=device))
    first, last = (conditional.cdf(end.double().expand(n)).double() for end in (below, high))
    inside = (first + u * (last - first)).clamp(DRAWN_EDGE, 1 - DRAWN_EDGE)
    values = conditional.icdf(inside).to(torch.float32).clamp(low, high)
    return values, (last - first).clamp(min=0).log()
