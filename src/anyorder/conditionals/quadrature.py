"""One-dimensional numerics for distributions on the real line: inverses, means, modes, entropies.

All functions are vectorised over the edges and work in the dtype that they are given.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

BISECTIONS = 64
"""Halvings of a bracket: below the rounding of a double, whatever the bracket."""

NODES = 512
"""Quantiles that stand for a distribution in its entropy and the search for its mode."""

MEAN_DEPTH = 24
"""The outermost cells of a mean have this probability, as a power of one half."""

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


def mean_rule(cells: int = 128) -> tuple[Tensor, Tensor]:
    """Probabilities whose quantiles have the mean of a distribution, and their weights, float64.

    Cells of equal probability, and at both ends ever smaller ones, each half of the one before:
    the mean of a skewed column is in its tail.

    Args:
        cells: Of equal probability, a power of two; fewer do where many distributions are mixed.
    """
    tail = 2.0 ** -torch.arange(MEAN_DEPTH, int(math.log2(cells)), -1, dtype=torch.float64)
    bulk = torch.arange(1, cells, dtype=torch.float64) / cells
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    edges = torch.cat([ends[:1], tail, bulk, 1 - tail.flip(0), ends[1:]])
    return (edges[1:] + edges[:-1]) / 2, edges.diff()


def highest(log_density: Callable[[Tensor], Tensor], candidates: Tensor) -> Tensor:
    """Where a density is highest, from sorted candidates ``(count, ...)`` that span its mass.

    The bracket around the best candidate is narrowed by golden sections: a mode between two
    candidates is found, one that is narrower than their distance may be missed.
    """
    heights = log_density(candidates)
    best = heights.argmax(dim=0, keepdim=True)
    last = len(candidates) - 1
    low = candidates.gather(0, (best - 1).clamp(min=0))[0]
    high = candidates.gather(0, (best + 1).clamp(max=last))[0]
    for _ in range(REFINEMENTS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        is_left = log_density(left) > log_density(right)
        low, high = torch.where(is_left, low, left), torch.where(is_left, right, high)
    refined, found = low + (high - low) / 2, candidates.gather(0, best)[0]
    return torch.where(log_density(refined) > heights.gather(0, best)[0], refined, found)
