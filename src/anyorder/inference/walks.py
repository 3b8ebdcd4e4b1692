"""Walking along paths, one variable after another: what drawing, and evidence by regions, do.

A step gives the conditional of the next variable of every draw whose path goes on; the values that
are chosen for it are seen by the steps that follow.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from anyorder.heads.distributions import Distribution
from anyorder.inference.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork
from anyorder.networks.paths import path_lists

Step = tuple[Tensor, Tensor, Distribution]
"""Rows of the batch of draws, the variable that each draws next, and its conditional."""


def walk(
    model: AnyOrderModel,
    filled: Tensor,
    *,
    query: Tensor,
    given: Tensor,
    rank: Tensor,
    n: int = 1,
    cache: bool = True,
) -> Iterator[Step]:
    """The steps of all draws; whoever takes one writes the values that it chose into `filled`.

    Args:
        model: The model.
        filled: Values of the draws, those of a row neighbours. Shape ``(batch * n, columns)``.
        query: What is drawn. Shape ``(batch, vars)``.
        given: What is known. Shape ``(batch, vars)``.
        rank: The place of each variable on its row's path. Shape ``(batch, vars)``.
        n: Draws a row.
        cache: Whether a path network keeps its keys and values between steps.
    """
    steps = _cached_steps if cache and model.is_one_pass else _plain_steps
    return steps(model, filled, query, given, rank, n)


def _paths(query: Tensor, rank: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Step by step: the rows whose path goes on, and the next variable of each."""
    path, num_asked = path_lists(query, rank)
    shortest, longest = (int(number) for number in num_asked.aminmax())
    rows = torch.arange(len(path), device=path.device)
    for step in range(longest):
        if step < shortest:  # all of them, without a search that costs more than a small network
            yield rows, path[:, step]
            continue
        going = (num_asked > step).nonzero().squeeze(1)
        yield going, path[going, step]


def _draws(rows: Tensor, n: int) -> Tensor:
    """The places of all draws of some rows."""
    if n == 1:
        return rows
    return (rows[:, None] * n + torch.arange(n, device=rows.device)).flatten()


def _for_draws(targets: Tensor, n: int) -> Tensor:
    """What all draws of each row have in common, for each of them."""
    return targets if n == 1 else targets.repeat_interleave(n)


def _plain_steps(
    model: AnyOrderModel, filled: Tensor, query: Tensor, given: Tensor, rank: Tensor, n: int
) -> Iterator[Step]:
    """Each step is a pass of its own, over all that is known by then."""
    evidence, ranks = (tensor.repeat_interleave(n, dim=0) for tensor in (given, rank))
    told = torch.zeros_like(evidence)
    for rows, targets in _paths(query, rank):
        draws, wanted = _draws(rows, n), _for_draws(targets, n)
        known = (filled[draws], told[draws], evidence[draws], ranks[draws])
        yield draws, wanted, _next(model, *known, wanted)
        told[draws, wanted] = True


def _next(
    model: AnyOrderModel, x: Tensor, told: Tensor, given: Tensor, rank: Tensor, wanted: Tensor
) -> Distribution:
    """The conditional of the next variable of each path, without a cache."""
    if isinstance(model.network, MaskedNetwork):
        return model.distribution(model.features(x, given | told, wanted[:, None])[:, 0], wanted)
    path = model.network(x, told.scatter(1, wanted[:, None], True), given, rank)
    return model.distribution(path.edges[path.target == wanted[path.row]], wanted)


def _cached_steps(
    model: AnyOrderModel, filled: Tensor, query: Tensor, given: Tensor, rank: Tensor, n: int
) -> Iterator[Step]:
    """The evidence is encoded once; a step tells the last draw and asks the next variable."""
    network = model.network
    assert not isinstance(network, MaskedNetwork)
    state = network.encode(filled[::n], given).expand(n)
    alive = torch.arange(len(query), device=query.device)
    draws = _draws(alive, n)
    told: Tensor | None = None
    for rows, targets in _paths(query, rank):
        wanted = _for_draws(targets, n)
        if len(rows) < len(alive):
            kept = torch.searchsorted(alive, rows)
            state = state.select(kept)
            told = None if told is None else told[_draws(kept, n)]
            alive, draws = rows, _draws(rows, n)
        if told is not None:
            state = network.tell(state, told[:, None], filled[draws, told][:, None])
        features = model.ask(state, wanted[:, None])
        yield draws, wanted, model.distribution(features[:, 0], wanted)
        told = wanted
