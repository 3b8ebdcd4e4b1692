"""What to measure next: the expected information about a target, of all columns at once."""

import numpy as np
import torch

from anyorder.estimators.table_questions import Evidence
from anyorder.model import AnyOrderModel
from anyorder.queries import GAIN_NODES
from anyorder.serve.conditionals import Ask, Found, distributions
from anyorder.serve.curves import Curve, FloatArray

MOST_LEVELS = 32
"""Levels of a category that are supposed, the most probable."""

ALONE = torch.ones(1, dtype=torch.float64)


def information_gains(model: AnyOrderModel, evidence: Evidence, target: int) -> dict[int, float]:
    """How many nats learning each unknown variable is expected to tell about `target`.

    As `queries.information_gain`, in two passes for all candidates together, and with entropies
    that are read from curves.
    """
    others = [
        place
        for place in range(model.num_variables)
        if place != target and not evidence.given[place]
    ]
    if not others:
        return {}
    first = Ask(evidence.x, evidence.given, ALONE, [target, *others])
    ((before, *found),) = distributions(model, [first])
    asks, weights, owner = [], [], []
    for place, now in zip(others, found, strict=True):
        values, shares = _supposed(now)
        known = evidence.given.clone()
        known[place] = True
        for value in values:
            x = evidence.x.clone()
            x[0, place] = float(value)
            asks.append(Ask(x, known, ALONE, [target]))
        weights.extend(shares.tolist())
        owner.extend([place] * len(values))
    gains = dict.fromkeys(others, entropy(before))
    for place, weight, (after,) in zip(owner, weights, distributions(model, asks), strict=True):
        gains[place] -= weight * entropy(after)
    return gains


def entropy(found: Found) -> float:
    """In nats; numbers in normal scores."""
    if isinstance(found, Curve):
        return found.entropy()
    likely = found[found > 0]
    return float(-(likely * np.log(likely)).sum())


def _supposed(found: Found) -> tuple[FloatArray, FloatArray]:
    """Values that stand for what a variable may be, and their weights."""
    if isinstance(found, Curve):
        shares = (np.arange(GAIN_NODES) + 0.5) / GAIN_NODES
        return found.quantiles(shares), np.full(GAIN_NODES, 1 / GAIN_NODES)
    likely = np.argsort(-found)[:MOST_LEVELS]
    likely = likely[found[likely] > 0]
    return likely.astype(np.float64), found[likely] / found[likely].sum()
