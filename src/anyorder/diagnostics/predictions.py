"""Predictions of single cells, with little or much of the row given, for their calibration.

What evidence is worth: how surprising a cell is, by how much of the rest of its row is given.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate
from anyorder.diagnostics.gaps import has_mass, one_of, without
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import answering, log_prob
from anyorder.lattice.random_sets import subsets, uniform
from anyorder.variables import Kind

SHARES = {
    "nothing": 0.0,
    "a quarter": 0.25,
    "half": 0.5,
    "three quarters": 0.75,
    "all but one": 1.0,
}
"""How much of the other cells of a row is given."""


class Predictions(NamedTuple):
    """What was said of a cell a row, and what it was. Shapes ``(rows,)``."""

    pit: Tensor
    """The probability of less than the true value; spread evenly over the step of a mass."""
    confidence: Tensor
    """The probability of the most probable level; of numbers, NaN."""
    hit: Tensor
    """Whether that level is the true one; of numbers, False."""
    variable: Tensor
    """Which variable it was."""
    row: Tensor
    """In which row."""


@answering
def predictions(
    model: AnyOrderModel,
    x: Tensor,
    have: Tensor,
    *,
    kind: Kind,
    share: float,
    along_path: bool = False,
    generator: torch.Generator | None = None,
) -> Predictions:
    """Predicts one cell of a kind in each row that has one, given some other cells.

    Args:
        model: The model.
        x: Values. Shape ``(rows, columns)``.
        have: What the rows have, a variable or more. Shape ``(rows, vars)``.
        kind: "categorical" or "continuous".
        share: How much is given of all cells but one.
        along_path: Whether all that comes before the cell on the path of the rest is known too: a
            model that was trained on paths alone is never asked otherwise.
        generator: The source of randomness: of what is given, of the cell, and of PITs at steps.
    """
    sizes = ((have.sum(dim=1) - 1) * share).round().long()
    given = subsets(sizes, have, generator=generator)
    kinds = [v.kind == kind for v in model.schema.variables[: model.num_variables]]
    asked = have & ~given & torch.tensor(kinds, device=have.device)
    rows = asked.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        empty = torch.zeros(0, dtype=torch.float64)
        return Predictions(empty, empty, empty.bool(), empty.long(), empty.long())
    target = one_of(asked[rows], generator=generator)
    x, given = x[rows], given[rows]
    if along_path:
        rest = have[rows] & ~given
        rank = model.protocol.rank(rest, generator=generator)
        given = given | (rest & (rank < rank.gather(1, target[:, None])))
    found = _predicted(model, x, given, target, generator)
    return Predictions(*found, target.cpu(), rows.cpu())


def _predicted(
    model: AnyOrderModel,
    x: Tensor,
    given: Tensor,
    target: Tensor,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """PITs, confidences and hits of one variable a row. Shapes ``(rows,)``."""
    conditional = model.predict(x, given, target[:, None])
    value = x.gather(1, target[:, None])
    mass = conditional.log_prob(value).double().exp()
    is_mass = has_mass(model, x).gather(1, target[:, None])
    spread = uniform(value.shape, device=x.device, generator=generator)
    pit = conditional.cdf(value).double() - torch.where(is_mass, spread * mass, 0.0)
    confidence, hit = torch.full_like(pit, torch.nan), torch.zeros_like(is_mass)
    if model.schema.variables[int(target[0])].kind == "categorical":
        top = conditional.mode()
        confidence, hit = conditional.log_prob(top).double().exp(), top == value
    return pit[:, 0].clamp(0, 1).cpu(), confidence[:, 0].clamp(max=1).cpu(), hit[:, 0].cpu()


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
