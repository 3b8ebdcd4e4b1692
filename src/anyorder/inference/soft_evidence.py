"""Evidence that is not a value: an interval, or a set of levels.

p(x_u | x_e, x_s in R) is a mixture of p(x_u | x_e, x_s) over the values of s in R. These are
drawn one after another along the canonical path, each from its conditional *cut to its region*, and
a draw is weighted by the probabilities that were cut down to: importance sampling whose proposal
already lies in the region. With one such variable all weights are alike and the draws are exact;
with more, the spread of the weights is the error, told by the effective sample size.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.errors import QueryError, check_count
from anyorder.heads.distributions import DRAWN_EDGE, Distribution
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import answering, checked_question
from anyorder.inference.walks import walk
from anyorder.lattice.random_sets import uniform


@dataclass(frozen=True)
class Interval:
    """All values from `low` to `high`, ends included."""

    low: float
    high: float


@dataclass(frozen=True)
class Levels:
    """Some codes of a categorical variable."""

    codes: tuple[int, ...]


@dataclass(frozen=True)
class SoftEvidence:
    """Weighted draws that stand for the evidence.

    Args:
        x: The given values and the drawn ones. Shape ``(n, columns)``.
        known: Which variables of `x` are evidence now. Shape ``(vars,)``.
        log_weights: Shape ``(n,)``.
        is_drawn: False where there are no regions, and so no draws.
    """

    x: Tensor
    known: Tensor
    log_weights: Tensor
    is_drawn: bool = True

    @property
    def weights(self) -> Tensor:
        """Weights that sum to one. Shape ``(n,)``."""
        return self.log_weights.softmax(dim=0)

    @property
    def effective_sample_size(self) -> float:
        """As many equally weighted draws would be as good; infinite where nothing was drawn."""
        if not self.is_drawn:
            return math.inf
        return 1 / float(self.weights.square().sum())

    @property
    def log_probability(self) -> float:
        """The log of an unbiased estimate of the probability of the regions, given the values."""
        return float(self.log_weights.logsumexp(dim=0)) - math.log(len(self.log_weights))

    def resampled(self, number: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Which draws stand for so many equally weighted ones: each as often as its weight says.

        With equal weights, the first ones, each once. Shape ``(number,)``.
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
    """Draws the variables of regions from the model, cut to their regions.

    Args:
        model: The model.
        x: Values; only those that are given are read. Shape ``(1, columns)``.
        given: What is known exactly. Shape ``(vars,)``.
        regions: Where other variables lie, by the number of the variable.
        n: How many draws.
        generator: The source of randomness.
    """
    check_count("n", n)
    asked = torch.zeros(1, model.num_variables, dtype=torch.bool)
    asked[0, list(regions)] = True
    x, query, evidence = checked_question(model, x, asked, given, reads_query=False)
    rank = model.protocol.rank(query, generator=generator)
    filled = x.repeat_interleave(n, dim=0)
    log_weights = torch.zeros(n, dtype=torch.float64, device=x.device)
    with torch.inference_mode():
        for rows, targets, conditional in walk(
            model, filled, query=query, given=evidence, rank=rank, n=n
        ):
            region = regions[int(targets[0])]  # one row: all draws are at the same variable
            values, log_mass = _cut(conditional, region, n, x.device, generator)
            filled[rows, targets] = values.to(filled.dtype)
            log_weights += log_mass
    if not log_weights.isfinite().any():
        raise QueryError(
            "The evidence has no probability under the model: widen an interval or a set."
        )
    known = (query | evidence)[0]
    return SoftEvidence(filled.clone(), known, log_weights.clone(), is_drawn=bool(regions))


def _cut(
    conditional: Distribution,
    region: Interval | Levels,
    n: int,
    device: torch.device,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """Draws from a conditional cut to a region, and the log of the probability of the region."""
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
    # Just below the lower end, so that an atom on it is inside; in doubles, because what is far out
    # has little probability.
    below = torch.nextafter(low, torch.tensor(-torch.inf, device=device))
    first, last = (conditional.cdf(end.double().expand(n)).double() for end in (below, high))
    inside = (first + u * (last - first)).clamp(DRAWN_EDGE, 1 - DRAWN_EDGE)
    values = conditional.icdf(inside).to(torch.float32).clamp(low, high)
    return values, (last - first).clamp(min=0).log()
