r"""Speculative sampling: samples of a path network in fewer passes, with exactly the same law.

One pass queries all remaining variables, each given only the values known so far: independent
drafts y_k ~ q_k. A second, causal pass over the drafts gives the conditionals p_k of the model.
Drafts are accepted in order while r < p_k(y_k) / q_k(y_k), r uniform; the first rejected one is
sampled again from (p_k - q_k)+, renormalised. The result has the law of ordinary sampling, one
variable after another (Leviathan et al., 2023). The first draft of a round is always accepted,
because nothing was drafted before it. So a round of two passes yields at least two variables, and
there are never more passes than variables. Rows with different numbers of queried variables are
sampled in groups.

All rows of a batch advance together, by the least number that any row accepts. Which drafts of a
row are kept then depends on other rows, but not on later drafts of its own, so its law is the same.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyorder.errors import ConfigError
from anyorder.heads.distributions import Distribution
from anyorder.heads.energy import EnergyConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import answering, checked_query
from anyorder.lattice.masks import uniform
from anyorder.lattice.protocols import path_lists
from anyorder.networks.contracts import MaskedNetwork, PathNetwork

MAX_TRIES = 1000
"""Rejections after which p and q count as equal up to rounding, so any sample of p will do."""


class Speculation(NamedTuple):
    """Samples, and the number of passes they took."""

    x: Tensor  # (batch, vars), the query filled in
    passes: int  # of the network, summed over groups of rows with queries of one size


@answering
def speculative_sample(
    model: AnyOrderModel,
    x: Tensor,
    *,
    query: Tensor | None = None,
    given: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Speculation:
    """Samples x_query from p(x_query | x_given) in at most as many passes as variables.

    Args:
        model: Model with a path network.
        x: Values; only given ones are read. Shape ``(batch, vars)``.
        query: Variables to sample; all that are not given by default.
        given: Evidence; nothing by default.
        generator: Source of randomness.

    Reference:
        Leviathan, Kalman and Matias (2023), Fast Inference from Transformers via Speculative
        Decoding.
    """
    if isinstance(model.network, MaskedNetwork):
        raise ConfigError("Speculation needs a path network; this model's network is masked.")
    if any(isinstance(part, EnergyConditionals) for part in model.conditionals.modules()):
        raise ConfigError("Speculation needs samples of an exact density; energies are tabulated.")
    x, query, given = checked_query(model, x, query, given, reads_query=False)
    rank = model.protocol.rank(query, generator=generator)
    filled, passes = x.clone(), 0
    num_queried = query.sum(dim=1)
    for length in num_queried.unique().tolist():
        rows = (num_queried == length).nonzero().squeeze(1)
        if length:
            group = (filled[rows], query[rows], given[rows], rank[rows])
            filled[rows], spent = _sample_group(model, model.network, *group, length, generator)
            passes += spent
    return Speculation(filled, passes)


def _sample_group(
    model: AnyOrderModel,
    network: PathNetwork[Any],
    x: Tensor,
    query: Tensor,
    given: Tensor,
    rank: Tensor,
    length: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, int]:
    """Samples rows whose queries all have `length` variables; returns them and the passes."""
    path = path_lists(query, rank)[0][:, :length]
    state = network.encode(x, given)
    known = passes = 0
    while known < length:
        left = path[:, known:]
        draft_features = model.ask(state, left)
        draft = model.distribution(draft_features, left)
        values = draft.sample(generator=generator).to(x.dtype)
        passes, kept = passes + 1, left.shape[1]
        if kept > 1:
            edges = network(x.scatter(1, left, values), query, given, rank).edges
            places = torch.arange(len(x) * length, device=x.device).view(len(x), length)
            causal = edges[places[:, known:]]
            log_ratio = model.distribution(causal, left).log_prob(values) - draft.log_prob(values)
            streak = _streak(log_ratio, generator)
            kept, passes = min(int(streak.min()) + 1, kept), passes + 1
            rejected = (streak < kept).nonzero().squeeze(1)
            # Rows that reject sample from the remainder; others keep their draft.
            last = left[rejected, kept - 1]
            p = model.distribution(causal[rejected, kept - 1], last)
            q = model.distribution(draft_features[rejected, kept - 1], last)
            values[rejected, kept - 1] = _remainder(p, q, generator).to(x.dtype)
        x = x.scatter(1, left[:, :kept], values[:, :kept])
        state = network.tell(state, left[:, :kept], values[:, :kept])
        known += kept
    return x, passes


def _streak(log_ratio: Tensor, generator: torch.Generator | None) -> Tensor:
    """Returns the number of drafts accepted before the first rejection. Shape ``(rows,)``."""
    chance = uniform(log_ratio.shape, device=log_ratio.device, generator=generator)
    accepted = chance.log() < log_ratio
    accepted[:, 0] = True  # both passes have the same inputs and differ by rounding only
    return accepted.int().cumprod(dim=1).sum(dim=1)


def _remainder(p: Distribution, q: Distribution, generator: torch.Generator | None) -> Tensor:
    """Samples (p - q)+, renormalised, by rejection: from p, accepted with 1 - q / p."""
    found = p.sample(generator=generator)
    pending = torch.ones_like(found, dtype=torch.bool)
    for _ in range(MAX_TRIES):
        chance = uniform(found.shape, device=found.device, generator=generator)
        pending &= chance.log() < q.log_prob(found) - p.log_prob(found)
        if not pending.any():
            break
        found = torch.where(pending, p.sample(generator=generator), found)
    return found
