"""Orders: the same likelihood along other paths than the model's own.

The chain rule gives a set of c variables c! paths. A model whose conditionals agree with each
other has one likelihood along all of them; a trained one has not (Limitations of the paper). This
library walks the canonical path, so that every question has one answer; how far the others are from
it tells how far the conditionals agree.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anyorder.diagnostics.drawn_sets import several
from anyorder.diagnostics.gaps import Gap, estimate_json, nats, verdict
from anyorder.evaluation import Estimate
from anyorder.model import AnyOrderModel
from anyorder.protocols import RemoveRandom
from anyorder.queries import answering, log_prob


@answering
def path_differences(
    model: AnyOrderModel, x: Tensor, have: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """The log of p(x_S) along a random order minus the same along the model's own path.

    Args:
        model: The model.
        x: Values. Shape ``(rows, columns)``.
        have: What the rows have, two variables or more. Shape ``(rows, vars)``.
        generator: The source of randomness: of S, a set of two or more, and of the order.

    Returns:
        Shape ``(rows,)``.
    """
    query = several(have, least=2, generator=generator)
    own, other = order_log_probs(model, x, query, orders=1, generator=generator)
    return other - own


@answering
def order_log_probs(
    model: AnyOrderModel,
    x: Tensor,
    query: Tensor,
    *,
    orders: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The log of p(x_query) along the model's own path, then along random orders.

    Returns:
        Shape ``(1 + orders, rows)``.
    """
    protocols = [model.protocol] + [RemoveRandom()] * orders
    walks = [log_prob(model, x, query=query, protocol=p, generator=generator) for p in protocols]
    return torch.stack(walks)


@dataclass(frozen=True)
class PathGap(Gap):
    """A random set of each row, along a random order against the model's own path."""

    @property
    def sentence(self) -> str:
        """What it means."""
        words = verdict(
            self.size.value,
            "orders hardly matter",
            "orders matter a little",
            "orders matter, so compare only likelihoods that were walked along the same one",
        )
        return f"Asked in another order, the same likelihood changes by {self}: {words}."


@dataclass(frozen=True)
class OrderSpread:
    """The likelihoods of whole rows along several orders.

    Args:
        log_probs: Along the model's own path, then along random orders. Shape ``(orders, rows)``.
    """

    log_probs: Tensor

    @property
    def spread(self) -> Estimate:
        """The standard deviation over the random orders of a row, in nats."""
        return Estimate(self.log_probs[1:].std(dim=0))

    @property
    def mixture_gain(self) -> Estimate:
        """What the mean of the likelihoods of all these paths has over the model's own, in nats."""
        mixture = self.log_probs.logsumexp(dim=0) - math.log(len(self.log_probs))
        return Estimate(mixture - self.log_probs[0])

    @property
    def sentence(self) -> str:
        """What it means."""
        orders, gain = len(self.log_probs), self.mixture_gain
        found = (
            f"Over {orders - 1} random orders the log-likelihood of a whole row varies by "
            f"{nats(self.spread)} nats (standard deviation), and a mixture of {orders} paths would "
        )
        if gain.value > max(0.01, 2 * gain.se):
            gained = f"gain {nats(gain)} nats over the one that is walked"
            return f"{found}{gained}, at {orders} times the cost."
        if gain.value < -max(0.01, 2 * gain.se):
            lost = Estimate(-gain.rows)
            return found + f"lose {nats(lost)} nats against the one that is walked: keep to it."
        return found + "gain nothing."

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "orders": len(self.log_probs) - 1,
            "spread": estimate_json(self.spread),
            "mixture_gain": estimate_json(self.mixture_gain),
        }
