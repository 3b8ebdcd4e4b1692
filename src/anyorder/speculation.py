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

from anyorder.conditionals.categorical import Categorical
from anyorder.errors import ConfigError
from anyorder.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.paths import path_lists
from anyorder.queries import answering, checked_question
from anyorder.random_sets import uniform


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
        model: A model with a two-stream path network.
        x: Values; only those that are given are read. Shape ``(batch, vars)``.
        query: What is drawn; all that is not given by default.
        given: What is known; nothing by default.
        generator: The source of randomness.
    """
    if isinstance(model.network, MaskedNetwork):
        raise ConfigError("Speculation needs a path network; this model's network is masked.")
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
        draft = model.conditionals(network.ask(state, left), left)
        values = draft.sample(generator=generator).to(x.dtype)
        passes, kept = passes + 1, left.shape[1]
        if kept > 1:
            features = network(x.scatter(1, left, values), query, given, rank).features
            causal = model.conditionals(features.view(len(x), length, -1)[:, known:], left)
            values, kept = _accept(draft, causal, values, generator)
            passes += 1
        x = x.scatter(1, left[:, :kept], values[:, :kept])
        state = network.tell(state, left[:, :kept], values[:, :kept])
        known += kept
    return x, passes


def _accept(
    draft: Categorical, causal: Categorical, values: Tensor, generator: torch.Generator | None
) -> tuple[Tensor, int]:
    """The values of a round, and how many of them all rows keep."""
    chance = uniform(values.shape, device=values.device, generator=generator)
    accepted = chance.log() < causal.log_prob(values) - draft.log_prob(values)
    accepted[:, 0] = True  # both passes saw the same; they differ by rounding only
    streak = accepted.int().cumprod(dim=1).sum(dim=1)  # (rows,) drafts before the first refusal
    least = int(streak.min())
    if least == values.shape[1]:
        return values, least
    # Rows that refuse here draw anew from what the draft left out; the others keep their draft.
    p, q = causal.log_probs[:, least].exp(), draft.log_probs[:, least].exp()
    left = (p - q).clamp(min=0)
    left = torch.where(left.any(dim=1, keepdim=True), left, p)  # p and q agree to rounding
    remainder = Categorical(left.log())
    anew = remainder.sample(generator=generator).to(values.dtype)
    values[:, least] = torch.where(streak == least, anew, values[:, least])
    return values, least + 1
