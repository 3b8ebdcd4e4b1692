"""Canonical orders of the columns of a table, chosen from data.

Every order is exact in theory; in practice some are easier to learn. A model decomposes a query
along its order, and its errors add up on the way. `by_completeness` and `by_dependence` use the
data alone. `learned_order` uses a model that was trained on random orders: it searches for the
order with the best held-out likelihood under the query law. `chosen_order` is the entry point.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeGuard, get_args

import torch
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import ConfigError, check_count, check_permutation, nearest_or_all
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.lattice.protocols import RemoveGreatest
from anyorder.lattice.query_laws import QueryLaw
from anyorder.priors.tree_fit import chow_liu, dependence, preorder
from anyorder.tables.fitting import TableData, train
from anyorder.training.settings import TrainingSettings, leaving
from anyorder.variables import Schema

Order = Literal["complete", "dependence", "learned"]

FEWEST_JUDGED = 4
"""Least number of rows that orders are compared on: half for the search, two for its error."""

EXPLORED = 0.25
"""Fraction of the budget for a model of random orders, from which an order is learned."""

COMPARED = 20_000
"""Greatest number of rows for the estimate of mutual information."""

JUDGED = 512
"""Greatest number of held-out rows that orders are compared on."""


def is_chosen(order: str, columns: Iterable[str]) -> TypeGuard[Order]:
    """Tests for one of `Order` rather than the name of a column; refuses unknown words."""
    known = [*get_args(Order), *columns]
    if order not in known:
        raise ConfigError(
            '`order` must be a list of columns, or "complete", "dependence" or "learned"; got '
            f'"{order}".{nearest_or_all(order, known)}'
        )
    return order in get_args(Order)


def chosen_order(
    kind: Order,
    schema: Schema,
    explorer: Callable[[], AnyOrderModel],
    data: TableData,
    held_out: TableData,
    law: QueryLaw,
    settings: TrainingSettings,
    *,
    spent: float = 0.0,
) -> Tensor:
    """Returns a permutation of the columns that can be queried.

    `explorer` returns an untrained model of random orders; `settings` are those of the training to
    come, `spent` the seconds that were spent before.
    """
    if kind == "complete":
        return by_completeness(~data.missing)
    num_variables = data.missing.shape[1]
    if kind == "dependence":
        some = torch.randperm(len(data.x), generator=_source(settings))[:COMPARED]
        levels = [variable.num_levels for variable in schema][:num_variables]
        return by_dependence(data.x[some, :num_variables], ~data.missing[some], levels)
    judged = held_out if len(held_out.x) else data
    judged = judged.at(judged.asking(law)[:JUDGED])
    if len(judged.x) < FEWEST_JUDGED:
        raise ConfigError(
            f'order="learned" compares orders on {FEWEST_JUDGED} rows or more that have the '
            f"queried values; there are {len(judged.x)}. Name the columns in order, or leave "
            "`order` out."
        )
    model = explorer()
    own, before = share_of(settings, EXPLORED), leaving(settings, spent, EXPLORED)
    train(model, data, law, settings=own, held_out=held_out, spent=before)
    available = ~judged.missing if judged.missing.any() else None
    return learned_order(
        model, judged.x, law, available=available, generator=_source(settings)
    ).order


def share_of(settings: TrainingSettings, share: float) -> TrainingSettings:
    """Returns the settings with a fraction of the steps; a clock tells what is left of minutes."""
    steps = settings.steps
    return replace(settings, steps=None if steps is None else max(1, int(share * steps)))


def _source(settings: TrainingSettings) -> torch.Generator:
    return torch.Generator().manual_seed(settings.seed)


def by_completeness(available: Tensor) -> Tensor:
    """Returns the order of increasing missingness; ties keep their order.

    Variables that are often missing are then seldom conditioned on.

    Args:
        available: Variables that each row has. Shape ``(rows, vars)``.
    """
    return (-available.double().mean(dim=0)).argsort(stable=True)


def by_dependence(x: Tensor, available: Tensor, levels: Sequence[int]) -> Tensor:
    """Returns an order in which each variable follows those with most information about it.

    It goes down the tree of Chow and Liu, a branch after another; see `tree_fit.py`.

    Args:
        x: Values. Shape ``(rows, vars)``.
        available: Variables that each row has. Shape ``(rows, vars)``.
        levels: Number of levels of each category; 0 for a number.
    """
    information = dependence(x, available, levels)
    return torch.tensor(preorder(chow_liu(information), information))


class LearnedOrder(NamedTuple):
    """An order, and its gain over the start of the search, in nats a row."""

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
    """Searches for an order by local moves that increase the likelihood of held-out queries.

    Queries are sampled once, so that orders are compared on the same ones. The search uses half of
    the rows, and the other half estimate its gain: on the rows that an order was chosen on, its
    likelihood is biased upwards.

    Args:
        model: Model that was trained on random orders, so that it can walk any.
        x: Held-out rows. Shape ``(rows, vars)``.
        law: Law of the queries that the model is for.
        available: Variables that each row has; all by default. Shape ``(rows, vars)``.
        start: Start of the search; the order of the columns by default.
        proposals: Number of moves to try.
        generator: Source of randomness.
    """
    check_count("proposals", proposals)
    n = model.num_variables
    if len(x) < FEWEST_JUDGED:
        raise ConfigError(
            f"An order is learned from {FEWEST_JUDGED} held-out rows or more; got {len(x)}."
        )
    first = torch.arange(n) if start is None else check_permutation("start", start)
    given, query = law.sample(len(x), available=available, generator=generator)
    searched, judged = (slice(start, None, 2) for start in (0, 1))

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
    """Returns the order with one variable moved."""
    places = torch.randperm(len(order), generator=generator)[:2].tolist()
    listed = order.tolist()
    listed.insert(places[1], listed.pop(places[0]))
    return torch.tensor(listed)
