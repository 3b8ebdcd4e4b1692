"""Predictions of single cells, by the fraction of the rest of the row that is given.

`predictions` collects what calibration needs; `surprise_by_evidence` measures how much the negative
log-likelihood of a cell falls as more of its row is given.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate
from anyorder.diagnostics.gaps import has_mass, random_members, without
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
"""Fractions of the other cells of a row that are given."""


class Predictions(NamedTuple):
    """Predictions of one cell a row, beside its true value. Shapes ``(rows,)``."""

    pit: Tensor
    """Probability of less than the true value; uniform over the step of a probability mass."""
    confidence: Tensor
    """Probability of the most probable level; NaN for numbers."""
    hit: Tensor
    """True where that level is the true one; False for numbers."""
    variable: Tensor
    """Index of the variable."""
    row: Tensor
    """Index of the row."""


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
        have: Variables that the rows have, one or more. Shape ``(rows, vars)``.
        kind: "categorical" or "continuous".
        share: Fraction of the other cells that is given.
        along_path: True gives all that comes before the cell on the path of the rest too: a model
            that was trained on paths alone has learned no other conditionals.
        generator: Source of randomness for the evidence, the cell, and PITs at steps.
    """
    sizes = ((have.sum(dim=1) - 1) * share).round().long()
    given = subsets(sizes, have, generator=generator)
    kinds = [v.kind == kind for v in model.schema.variables[: model.num_variables]]
    candidates = have & ~given & torch.tensor(kinds, device=have.device)
    rows = candidates.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        empty = torch.zeros(0, dtype=torch.float64)
        return Predictions(empty, empty, empty.bool(), empty.long(), empty.long())
    target = random_members(candidates[rows], generator=generator)
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
    """Returns PITs, confidences and hits of one variable a row. Shapes ``(rows,)``."""
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
    """Returns -log p(x_i | x_e) of one cell i a row, in nats, for each fraction of `SHARES`.

    The cells are the same for all fractions, and the evidence is nested: the decrease from one
    fraction to the next is the information in the cells that were added.

    Args:
        model: The model.
        x: Values. Shape ``(rows, columns)``.
        missing: Missing values; rows without any value are left out. Shape ``(rows, vars)``.
        generator: Source of randomness for the cell, and for the order in which evidence is added.
    """
    rows = (~missing).any(dim=1)
    x, have = x[rows], ~missing[rows]
    target = random_members(have, generator=generator)
    others, query = without(have, target), torch.zeros_like(have).scatter(1, target[:, None], True)
    keys = uniform(others.shape, device=x.device, generator=generator).masked_fill(~others, 2.0)
    turn = keys.argsort(dim=1).argsort(dim=1)  # the order in which the others are added
    found = {}
    for name, share in SHARES.items():
        count = (others.sum(dim=1, keepdim=True) * share).round()
        logs = log_prob(model, x, query=query, given=others & (turn < count))
        found[name] = Estimate(-logs.cpu())
    return found
