"""Walks along paths, one variable after another, for sampling and for evidence by regions.

A step yields the conditional of the next variable of every sample whose path goes on. The caller
chooses values for it, which are evidence for the steps that follow.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from anyorder.heads.distributions import Distribution
from anyorder.inference.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork
from anyorder.networks.paths import path_lists

Step = tuple[Tensor, Tensor, Distribution]
"""Rows of the batch of samples, the next variable of each, and its conditional."""


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
    """Yields the steps of all samples; the caller writes the values that it chose into `filled`.

    Args:
        model: The model.
        filled: Values of the samples, those of a row neighbours. Shape ``(batch * n, columns)``.
        query: Variables to sample. Shape ``(batch, vars)``.
        given: Evidence. Shape ``(batch, vars)``.
        rank: Position of each variable on its row's path. Shape ``(batch, vars)``.
        n: Samples of each row.
        cache: If True, a path network keeps its keys and values between steps.
    """
    steps = _cached_steps if cache and model.is_one_pass else _plain_steps
    return steps(model, filled, query, given, rank, n)


def _paths(query: Tensor, rank: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields, step by step, the rows whose path goes on, and the next variable of each."""
    path, lengths = path_lists(query, rank)
    shortest, longest = (int(number) for number in lengths.aminmax())
    rows = torch.arange(len(path), device=path.device)
    for step in range(longest):
        if step < shortest:  # all of them, without a search that costs more than a small network
            yield rows, path[:, step]
            continue
        going = (lengths > step).nonzero().squeeze(1)
        yield going, path[going, step]


def _samples(rows: Tensor, n: int) -> Tensor:
    """Returns the places of all samples of some rows."""
    if n == 1:
        return rows
    return (rows[:, None] * n + torch.arange(n, device=rows.device)).flatten()


def _for_samples(targets: Tensor, n: int) -> Tensor:
    """Repeats an entry of each row for each of its samples."""
    return targets if n == 1 else targets.repeat_interleave(n)


def _plain_steps(
    model: AnyOrderModel, filled: Tensor, query: Tensor, given: Tensor, rank: Tensor, n: int
) -> Iterator[Step]:
    """Yields steps that are a pass of their own each, over all values chosen before."""
    evidence, ranks = (tensor.repeat_interleave(n, dim=0) for tensor in (given, rank))
    chosen = torch.zeros_like(evidence)
    for rows, targets in _paths(query, rank):
        samples, target = _samples(rows, n), _for_samples(targets, n)
        known = (filled[samples], chosen[samples], evidence[samples], ranks[samples])
        yield samples, target, _next(model, *known, target)
        chosen[samples, target] = True


def _next(
    model: AnyOrderModel, x: Tensor, chosen: Tensor, given: Tensor, rank: Tensor, target: Tensor
) -> Distribution:
    """Returns the conditional of the next variable of each path, without a cache."""
    if isinstance(model.network, MaskedNetwork):
        return model.distribution(model.features(x, given | chosen, target[:, None])[:, 0], target)
    path = model.network(x, chosen.scatter(1, target[:, None], True), given, rank)
    return model.distribution(path.edges[path.target == target[path.row]], target)


def _cached_steps(
    model: AnyOrderModel, filled: Tensor, query: Tensor, given: Tensor, rank: Tensor, n: int
) -> Iterator[Step]:
    """Encodes the evidence once; a step adds the last value to the state, and predicts the next."""
    network = model.network
    assert not isinstance(network, MaskedNetwork)
    state = network.encode(filled[::n], given).expand(n)
    alive = torch.arange(len(query), device=query.device)
    samples = _samples(alive, n)
    last: Tensor | None = None
    for rows, targets in _paths(query, rank):
        target = _for_samples(targets, n)
        if len(rows) < len(alive):
            kept = torch.searchsorted(alive, rows)
            state = state.select(kept)
            last = None if last is None else last[_samples(kept, n)]
            alive, samples = rows, _samples(rows, n)
        if last is not None:
            state = network.tell(state, last[:, None], filled[samples, last][:, None])
        features = model.ask(state, target[:, None])
        yield samples, target, model.distribution(features[:, 0], target)
        last = target
