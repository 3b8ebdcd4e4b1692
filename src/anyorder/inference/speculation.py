r"""Lossless speculation: draws of a path network in fewer passes, with exactly the same law.

One pass asks all remaining variables at once, each given only what is known so far: independent
drafts y_k ~ q_k. A second, causal pass over the drafts gives what the model really says of each,
p_k. Drafts are accepted in order while r < p_k(y_k) / q_k(y_k), r uniform; the first one that is
not is drawn again from (p_k - q_k)+, renormalised. What comes out has the law of drawing one
variable after another. The first draft of a round is certain, because nothing was drafted before
it, so a round of two passes yields at least two variables, and passes never exceed variables. (Rows
that ask different numbers of variables are drawn in groups, one after another.)

All rows of a batch advance together, by the least that any of them accepts: which drafts of a row
are kept then depends on other rows, but not on later drafts of its own, so its law is the same.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyorder.errors import ConfigError
from anyorder.heads.distributions import Distribution
from anyorder.heads.energy import EnergyConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import answering, checked_question
from anyorder.lattice.random_sets import uniform
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.paths import path_lists

MAX_TRIES = 1000
"""After so many draws p and q are taken to agree to rounding: any draw of p will do."""


class Speculation(NamedTuple):
    """Draws, and what they cost."""

    x: Tensor  # (batch, vars), the query filled in
    passes: int  # of the network, over all groups of rows that ask equally many variables


@answering
def speculative_sample(
    model: AnyOrderModel,
    x: Tensor,
    *,
    query: Tensor | None = None,
    given: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Speculation:
    """Draws x_query from p(x_query | x_given) in at most as many passes as variables.

    Args:
        model: A model with a path network.
        x: Values; only those that are given are read. Shape ``(batch, vars)``.
        query: What is drawn; all that is not given by default.
        given: What is known; nothing by default.
        generator: The source of randomness.
    """
    if isinstance(model.network, MaskedNetwork):
        raise ConfigError("Speculation needs a path network; this model's network is masked.")
    if any(isinstance(part, EnergyConditionals) for part in model.conditionals.modules()):
        raise ConfigError("Speculation needs draws of an exact density; energies are tabulated.")
    x, query, given = checked_question(model, x, query, given, reads_query=False)
    rank = model.protocol.rank(query, generator=generator)
    filled, passes = x.clone(), 0
    num_asked = query.sum(dim=1)
    for length in num_asked.unique().tolist():
        rows = (num_asked == length).nonzero().squeeze(1)
        if length:
            group = (filled[rows], query[rows], given[rows], rank[rows])
            filled[rows], spent = _draw_group(model, model.network, *group, length, generator)
            passes += spent
    return Speculation(filled, passes)


def _draw_group(
    model: AnyOrderModel,
    network: PathNetwork[Any],
    x: Tensor,
    query: Tensor,
    given: Tensor,
    rank: Tensor,
    length: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, int]:
    """Rows that all ask `length` variables."""
    path = path_lists(query, rank)[0][:, :length]
    state = network.encode(x, given)
    known = passes = 0
    while known < length:
        left = path[:, known:]
        guesses = model.ask(state, left)
        draft = model.distribution(guesses, left)
        values = draft.sample(generator=generator).to(x.dtype)
        passes, kept = passes + 1, left.shape[1]
        if kept > 1:
            edges = network(x.scatter(1, left, values), query, given, rank).edges
            places = torch.arange(len(x) * length, device=x.device).view(len(x), length)
            causal = edges[places[:, known:]]
            log_ratio = model.distribution(causal, left).log_prob(values) - draft.log_prob(values)
            streak = _streak(log_ratio, generator)
            kept, passes = min(int(streak.min()) + 1, kept), passes + 1
            refused = (streak < kept).nonzero().squeeze(1)
            # Rows that refuse draw anew from what the draft left out; others keep their draft.
            last = left[refused, kept - 1]
            p = model.distribution(causal[refused, kept - 1], last)
            q = model.distribution(guesses[refused, kept - 1], last)
            values[refused, kept - 1] = _remainder(p, q, generator).to(x.dtype)
        x = x.scatter(1, left[:, :kept], values[:, :kept])
        state = network.tell(state, left[:, :kept], values[:, :kept])
        known += kept
    return x, passes


def _streak(log_ratio: Tensor, generator: torch.Generator | None) -> Tensor:
    """How many drafts of each row are accepted before its first refusal. Shape ``(rows,)``."""
    chance = uniform(log_ratio.shape, device=log_ratio.device, generator=generator)
    accepted = chance.log() < log_ratio
    accepted[:, 0] = True  # both passes saw the same; they differ by rounding only
    return accepted.int().cumprod(dim=1).sum(dim=1)


def _remainder(p: Distribution, q: Distribution, generator: torch.Generator | None) -> Tensor:
    """Draws from (p - q)+, divided by its sum: from p, until one is kept with 1 - q / p."""
    found = p.sample(generator=generator)
    pending = torch.ones_like(found, dtype=torch.bool)
    for _ in range(MAX_TRIES):
        chance = uniform(found.shape, device=found.device, generator=generator)
        pending &= chance.log() < q.log_prob(found) - p.log_prob(found)
        if not pending.any():
            break
        found = torch.where(pending, p.sample(generator=generator), found)
    return found
