"""Canonical orders from data.

Every order is exact in theory, and in practice some are easier to learn: a model decomposes a
question along one of them, and its errors add up along the way. `by_completeness` and
`by_dependence` look at the data alone; `learned_order` asks a model that was trained on random
orders which of them it predicts held-out rows best along, under the questions that will be asked.

The canonical order of a table's columns, where it is not the order of the frame.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import ConfigError, check_count, check_permutation, nearest_or_all
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.lattice.protocols import RemoveGreatest
from anyorder.lattice.query_laws import QueryLaw
from anyorder.tables.fitting import TableData, train
from anyorder.training.settings import TrainingSettings

BINS = 8
"""Cells that each variable is cut into where dependence is measured."""

FEWEST_JUDGED = 4
"""Rows that orders are compared on: half to search on, and two or more for an error."""


def by_completeness(available: Tensor) -> Tensor:
    """The variables that most rows have come first, ties as they stand.

    What is often missing is then seldom conditioned on: fewer paths lead over a gap.

    Args:
        available: What each row has. Shape ``(rows, vars)``.
    """
    return (-available.double().mean(dim=0)).argsort(stable=True)


def by_dependence(x: Tensor, available: Tensor | None = None) -> Tensor:
    """Each variable follows those that tell most about it: first come the best connected.

    A tree grows from the variable with the most information about all others; next is always the
    one that shares most with a variable that is in already.

    Args:
        x: Values. Shape ``(rows, vars)``.
        available: What each row has; all by default. Shape ``(rows, vars)``.
    """
    information = mutual_information(x, available)
    order = [int(information.sum(dim=1).argmax())]
    while len(order) < len(information):
        best = information[order].amax(dim=0)
        best[order] = -torch.inf
        order.append(int(best.argmax()))
    return torch.tensor(order)


def mutual_information(x: Tensor, available: Tensor | None = None) -> Tensor:
    """How many nats variables tell about each other, in pairs, over the rows that have both.

    Values are cut into cells of equal counts; what chance alone would show, half a nat for each
    degree of freedom and row, is taken off. Shape ``(vars, vars)``, zero on the diagonal.
    """
    have = torch.ones_like(x, dtype=torch.bool) if available is None else available
    cells = torch.stack([_cells(x[:, i], have[:, i]) for i in range(x.shape[1])], dim=1)
    found = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for i in range(x.shape[1]):
        for j in range(i):
            both = have[:, i] & have[:, j]
            found[i, j] = found[j, i] = _information(cells[both, i], cells[both, j])
    return found


class LearnedOrder(NamedTuple):
    """An order, and what it gains over the one that the search started from, nats a row."""

    order: Tensor
    gain: Estimate


def learned_order(
    model: AnyOrderModel,
    x: Tensor,
    law: QueryLaw,
    *,
    available: Tensor | None = None,
    start: Tensor | None = None,
    proposals: int = 400,
    generator: torch.Generator | None = None,
) -> LearnedOrder:
    """Moves variables to other places as long as held-out questions get more likely.

    Questions are drawn once, so that orders are compared on the same ones. Half of the rows are
    searched on, the other half say what the search gained: the best of many orders on the rows that
    it was chosen on always looks better than it is.

    Args:
        model: Trained on random orders, so that it can walk any.
        x: Held-out rows. Shape ``(rows, vars)``.
        law: The questions that will be asked.
        available: What each row has; all by default. Shape ``(rows, vars)``.
        start: Where the search starts; the order of the columns by default.
        proposals: How many moves are tried.
        generator: The source of randomness.
    """
    check_count("proposals", proposals)
    n = model.num_variables
    if len(x) < FEWEST_JUDGED:
        raise ConfigError(
            f"An order is learned from {FEWEST_JUDGED} held-out rows or more; got {len(x)}."
        )
    first = torch.arange(n) if start is None else check_permutation("start", start)
    given, query = law.sample(len(x), available=available, generator=generator)
    searched, judged = (slice(place, None, 2) for place in (0, 1))

    def score(order: Tensor, rows: slice) -> Tensor:
        protocol = RemoveGreatest(order)
        return log_prob(model, x[rows], query=query[rows], given=given[rows], protocol=protocol)

    best, logs = first, score(first, searched)
    for _ in range(proposals if n > 1 else 0):
        moved = _moved(best, generator)
        tried = score(moved, searched)
        if tried.mean() > logs.mean():
            best, logs = moved, tried
    return LearnedOrder(best, Estimate(score(best, judged) - score(first, judged)))


def _moved(order: Tensor, generator: torch.Generator | None) -> Tensor:
    """The order with one variable put elsewhere."""
    places = torch.randperm(len(order), generator=generator)[:2].tolist()
    listed = order.tolist()
    listed.insert(places[1], listed.pop(places[0]))
    return torch.tensor(listed)


def _cells(values: Tensor, have: Tensor) -> Tensor:
    """The cell of each value, of at most `BINS` with about equal counts. Shape ``(rows,)``."""
    present = values[have].double()
    if not len(present):
        return torch.zeros_like(values, dtype=torch.long)
    distinct = present.unique()
    if len(distinct) <= BINS:
        return torch.searchsorted(distinct, values.double()).clamp(max=len(distinct) - 1)
    cuts = present.quantile(torch.arange(1, BINS, dtype=torch.float64) / BINS).unique()
    return torch.bucketize(values.double(), cuts, right=True)


def _information(a: Tensor, b: Tensor) -> Tensor:
    """The mutual information of two columns of cells, its bias taken off, not below zero."""
    if not len(a):
        return torch.zeros((), dtype=torch.float64)
    rows, columns = int(a.max()) + 1, int(b.max()) + 1
    joint = torch.bincount(a * columns + b, minlength=rows * columns).double() / len(a)
    joint = joint.view(rows, columns)
    apart = joint.sum(dim=1, keepdim=True) * joint.sum(dim=0, keepdim=True)
    seen = joint > 0
    plain = (joint[seen] * (joint[seen] / apart[seen]).log()).sum()
    freedom = ((joint.sum(dim=1) > 0).sum() - 1) * ((joint.sum(dim=0) > 0).sum() - 1)
    return (plain - freedom / (2 * len(a))).clamp(min=0)


Order = Literal["complete", "dependence", "learned"]

EXPLORED = 0.25
"""The share of the budget that a model of random orders is trained for, to learn one from it."""

COMPARED = 5000
"""Rows that dependence is measured on."""

JUDGED = 512
"""Held-out rows that orders are compared on."""


def is_chosen(order: object, columns: Iterable[str]) -> bool:
    """Whether an order is one of `Order` rather than columns by name; refuses other words."""
    if not isinstance(order, str):
        return False
    known = [*get_args(Order), *columns]
    if order not in known:
        raise ConfigError(
            '`order` must be a list of columns, or "complete", "dependence" or "learned"; got '
            f'"{order}".{nearest_or_all(order, known)}'
        )
    return order in get_args(Order)


def chosen_order(
    kind: Order,
    explorer: Callable[[], AnyOrderModel],
    data: TableData,
    held_out: TableData,
    law: QueryLaw,
    settings: TrainingSettings,
) -> Tensor:
    """A permutation of the columns that can be asked.

    Args:
        kind: "complete", "dependence" or "learned"; see `orders.py`.
        explorer: Makes an untrained model of random orders.
        data: Rows to train on.
        held_out: Rows that were held out.
        law: The questions that will be asked.
        settings: Of the training to come.
    """
    if kind == "complete":
        return by_completeness(~data.missing)
    asked = data.missing.shape[1]
    if kind == "dependence":
        some = torch.randperm(len(data.x), generator=_source(settings))[:COMPARED]
        return by_dependence(data.x[some, :asked], ~data.missing[some])
    judged = held_out if len(held_out.x) else data
    judged = judged.at(judged.asking(law)[:JUDGED])
    if len(judged.x) < FEWEST_JUDGED:
        raise ConfigError(
            f'order="learned" compares orders on {FEWEST_JUDGED} rows or more that have what is '
            f"asked; there are {len(judged.x)}. Name the columns in order, or leave `order` out."
        )
    model = explorer()
    train(model, data, law, settings=share_of(settings, EXPLORED), held_out=held_out)
    available = ~judged.missing if judged.missing.any() else None
    return learned_order(
        model, judged.x, law, available=available, generator=_source(settings)
    ).order


def left_after(order: object, settings: TrainingSettings) -> TrainingSettings:
    """What of a budget is left once an order was chosen: learning one takes its share."""
    learned = isinstance(order, str) and order == "learned"
    return share_of(settings, 1 - EXPLORED) if learned else settings


def share_of(settings: TrainingSettings, share: float) -> TrainingSettings:
    """The same training with a part of its budget."""
    minutes, steps = settings.minutes, settings.steps
    return replace(
        settings,
        minutes=None if minutes is None else share * minutes,
        steps=None if steps is None else max(1, int(share * steps)),
    )


def _source(settings: TrainingSettings) -> torch.Generator:
    return torch.Generator().manual_seed(settings.seed)
