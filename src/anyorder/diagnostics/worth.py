"""What evidence is worth: how surprising a cell is, by how much of the rest of its row is given."""

import torch
from torch import Tensor

from anyorder.diagnostics.drawn_sets import one_of, without
from anyorder.diagnostics.predictions import SHARES
from anyorder.evaluation import Estimate
from anyorder.model import AnyOrderModel
from anyorder.queries import answering, log_prob
from anyorder.random_sets import uniform


@answering
def surprise_by_evidence(
    model: AnyOrderModel, x: Tensor, missing: Tensor, *, generator: torch.Generator | None = None
) -> dict[str, Estimate]:
    """-log p(x_i | x_e) of one cell i a row, in nats, by how much e holds of the other cells.

    The cells are the same for all amounts of evidence, and more evidence includes the less: what
    falls from one amount to the next is what the cells in between tell.

    Args:
        model: The model.
        x: Values. Shape ``(rows, columns)``.
        missing: Their gaps; rows without any value are left out. Shape ``(rows, vars)``.
        generator: The source of randomness: of the cell, and of the order in which others are told.

    Returns:
        An estimate for each of `SHARES`.
    """
    rows = (~missing).any(dim=1)
    x, have = x[rows], ~missing[rows]
    target = one_of(have, generator=generator)
    others, query = without(have, target), torch.zeros_like(have).scatter(1, target[:, None], True)
    keys = uniform(others.shape, device=x.device, generator=generator).masked_fill(~others, 2.0)
    turn = keys.argsort(dim=1).argsort(dim=1)  # when each of the others is told
    found = {}
    for name, share in SHARES.items():
        count = (others.sum(dim=1, keepdim=True) * share).round()
        logs = log_prob(model, x, query=query, given=others & (turn < count))
        found[name] = Estimate(-logs.cpu())
    return found
