"""The canonical order of a table's columns, where it is not the order of the frame."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from anyorder.estimators.table_fitting import TableData, train
from anyorder.model import AnyOrderModel
from anyorder.orders import by_completeness, by_dependence, learned_order
from anyorder.query_laws import QueryLaw
from anyorder.training.settings import TrainingSettings

Order = Literal["complete", "dependence", "learned"]

EXPLORED = 0.25
"""The share of the budget that a model of random orders is trained for, to learn one from it."""

COMPARED = 5000
"""Rows that dependence is measured on."""

JUDGED = 512
"""Held-out rows that orders are compared on."""


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
    model = explorer()
    train(model, data, law, settings=share_of(settings, EXPLORED), held_out=held_out)
    judged = held_out if len(held_out.x) else data
    judged = judged.at(judged.asking(law)[:JUDGED])
    available = ~judged.missing if judged.missing.any() else None
    return learned_order(
        model, judged.x, law, available=available, generator=_source(settings)
    ).order


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
