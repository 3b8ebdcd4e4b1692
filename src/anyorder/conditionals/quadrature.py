"""One-dimensional numerics for distributions on the real line: inverses, means, modes, entropies.

All functions are vectorised over the edges and work in the dtype that they are given.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

BISECTIONS = 64
"""Halvings of a bracket: below the rounding of a double, whatever the bracket."""

NODES = 512
"""Quantiles that stand for a distribution in means, entropies and the search for its mode."""

REFINEMENTS = 24
"""Golden sections of the bracket around the best candidate."""

GOLDEN = (math.sqrt(5) - 1) / 2


def invert(
    increasing: Callable[[Tensor], Tensor], wanted: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """The least argument at which an increasing function reaches `wanted`, by bisection.

    Args:
        increasing: Vectorised over the edges.
        wanted: What it shall reach. Shape ``(...)``.
        low: Where it is at or below that. Shape ``(...)``.
        high: Where it is at or above that. Shape ``(...)``.
    """
    for _ in range(BISECTIONS):
        middle = low + (high - low) / 2
        below = increasing(middle) < wanted
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high


def quantile_nodes(like: Tensor) -> Tensor:
    """The middles of equally probable parts of (0, 1), ascending. Shape ``(nodes,)``."""
    return (torch.arange(NODES, dtype=like.dtype, device=like.device) + 0.5) / NODES


def gauss_legendre(panels: int, order: int, *, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Nodes and weights of a composite rule, float64. Shapes ``(panels * order,)``."""
    places, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(order))
    edges = torch.linspace(low, high, panels + 1, dtype=torch.float64)
    half = (edges[1:] - edges[:-1])[:, None] / 2
    centre = (edges[1:] + edges[:-1])[:, None] / 2
    return (centre + half * places).flatten(), (half * weights).flatten()


def highest(log_density: Callable[[Tensor], Tensor], candidates: Tensor) -> Tensor:
    """Where a density is highest, from sorted candidates ``(count, ...)`` that span its mass.

    The bracket around the best candidate is narrowed by golden sections: a mode between two
    candidates is found, one that is narrower than their distance may be missed.
    """
    best = log_density(candidates).argmax(dim=0, keepdim=True)
    last = len(candidates) - 1
    low = candidates.gather(0, (best - 1).clamp(min=0))[0]
    high = candidates.gather(0, (best + 1).clamp(max=last))[0]
    for _ in range(REFINEMENTS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        is_left = log_density(left) > log_density(right)
        low, high = torch.where(is_left, low, left), torch.where(is_left, right, high)
    return low + (high - low) / 2
