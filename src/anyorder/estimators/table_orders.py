"""The canonical order of a table's columns, where it is not the order of the frame."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from anyorder.errors import ConfigError, nearest_or_all
from anyorder.estimators.table_fitting import TableData, train
from anyorder.model import AnyOrderModel
from anyorder.orders import FEWEST_JUDGED, by_completeness, by_dependence, learned_order
from anyorder.query_laws import QueryLaw
from anyorder.training.settings import TrainingSettings

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
