"""The distributions of the columns of many requests, from one pass of the network."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.conditionals.categorical import Categorical
from anyorder.conditionals.mixed import MixedDistribution
from anyorder.estimators.table_batches import parts
from anyorder.model import AnyOrderModel
from anyorder.serve.curves import Curve, FloatArray, Mixing, curves

KNOTS = 121
"""Of a curve."""


@dataclass(frozen=True)
class Ask:
    """Which columns are asked, given what.

    Args:
        x: Values of the evidence, a row for each draw of it. Shape ``(draws, columns)``.
        known: What is given. Shape ``(vars,)``.
        weights: Of the draws; they sum to one. Shape ``(draws,)``.
        columns: The variables that are asked.
    """

    x: Tensor
    known: Tensor
    weights: Tensor
    columns: Sequence[int]


Found = Curve | FloatArray
"""A curve, or the probabilities of levels."""


@torch.inference_mode()
def distributions(
    model: AnyOrderModel, asks: Sequence[Ask], *, knots: int = KNOTS
) -> list[list[Found]]:
    """What is known about each column of each question, from one pass for all of them."""
    features, variables, owner, weight = _edges(model, asks)
    conditional = model.conditionals(features, variables.to(features.device))
    assert isinstance(conditional, MixedDistribution)
    found: dict[int, Found] = {}
    for places, part in conditional.parts:
        mine = places.cpu()
        owners, own = owner[mine].unique(return_inverse=True)
        mixing = Mixing(own, weight[mine], len(owners))
        answers: Sequence[Found] = (
            list(mixing.mixed(part.log_probs.exp().T.cpu()).T.numpy())
            if isinstance(part, Categorical)
            else curves(part, mixing, knots=knots, device=features.device)
        )
        found |= dict(zip(owners.tolist(), answers, strict=True))
    listed = iter(found[place] for place in range(len(found)))
    return [[next(listed) for _ in ask.columns] for ask in asks]


def _edges(model: AnyOrderModel, asks: Sequence[Ask]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The features of all edges, their variables, the distribution of each, and its weight."""
    x = torch.cat([ask.x.cpu() for ask in asks])
    known = torch.cat([ask.known.cpu().expand(len(ask.x), -1) for ask in asks])
    widest = max(len(ask.columns) for ask in asks)
    targets, rows, places, owner, weight = (
        torch.zeros(len(x), widest, dtype=torch.long),
        [],
        [],
        [],
        [],
    )
    row = number = 0
    for ask in asks:
        draws, width = len(ask.x), len(ask.columns)
        asked = torch.tensor(list(ask.columns), dtype=torch.long)
        targets[row : row + draws, :width] = asked
        rows.append(torch.arange(row, row + draws).repeat_interleave(width))
        places.append(torch.arange(width).repeat(draws))
        owner.append(torch.arange(number, number + width).repeat(draws))
        weight.append(ask.weights.double().cpu().repeat_interleave(width))
        row, number = row + draws, number + width
    row_of, place_of = torch.cat(rows), torch.cat(places)
    x, known = x.to(model.device), known.to(model.device)
    parted = [
        model.features(x[some], known[some], targets[some].to(x.device))
        for some in parts(len(x), x.shape[1] + widest)
    ]
    features = torch.cat(parted)[row_of, place_of]
    return features, targets[row_of, place_of], torch.cat(owner), torch.cat(weight)
