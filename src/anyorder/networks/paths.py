"""From boolean sets to paths: which tokens a row has, in which order, and which rows run together.

A query of a path network is a sequence of its own length for every row: absent variables are not in
it at all. Rows of one batch are therefore split into buckets of similar
length. A batch whose rows all have the same |given| and the same |query| (training draws one
cardinality a batch) is one bucket without padding and without row masks.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anyorder.networks.contracts import PathFeatures

# What one more bucket costs in fixed work, in tokens: a split that saves less does not pay.
# Measured on one CPU thread: 16 to 512 are within 8% of each other, padding without a split takes
# 1.5 to 3 times as long. A GPU, idle between small kernels, will want more.
BUCKET_COST = 256


class Bucket(NamedTuple):
    """Rows that run together."""

    x: Tensor  # (rows, vars)
    evidence: Tensor  # (rows, evidence) variables, padded at the end
    known: Tensor | None  # (rows, evidence), False on padding; None without padding
    path: Tensor  # (rows, steps) variables in order, padded at the end


def along_paths(
    run: Callable[[Bucket], Tensor],
    x: Tensor,
    *,
    query: Tensor,
    given: Tensor,
    rank: Tensor,
    width: int,
) -> PathFeatures:
    """Runs a one-pass network on rows with different queries.

    Args:
        run: From a bucket to features ``(rows, steps, width)``; those of padding are dropped.
        x: Values. Shape ``(batch, vars)``.
        query: Variables whose factors are wanted. Shape ``(batch, vars)``.
        given: Variables they are conditioned on. Shape ``(batch, vars)``.
        rank: The query of a row is walked from its least rank up.
            Shape ``(vars,)`` or ``(batch, vars)``.
        width: Size of the features.
    """
    x = read_only(x, query | given)
    evidence, num_given = evidence_lists(given)
    path, num_query = path_lists(query, rank)
    start = torch.zeros_like(num_query)  # (batch,) where a row's edges begin among the features
    features, end = [], 0
    for rows in split_rows(num_given, num_query):
        bucket = _bucket(x[rows], evidence[rows], num_given[rows], path[rows], num_query[rows])
        features.append(run(bucket).flatten(0, 1))  # (rows * steps, width)
        steps = bucket.path.shape[1]
        start[rows] = end + steps * torch.arange(len(rows), device=rows.device)
        end += steps * len(rows)
    row, step = edge_places(num_query)
    if not features:  # no row has a query
        features = [torch.zeros(0, width, device=x.device, dtype=torch.get_default_dtype())]
    return PathFeatures(_gather(features, start[row] + step), row, step, path[row, step])


def read_only(x: Tensor, known: Tensor) -> Tensor:
    """Values with all but the known ones and the context, which comes last, set to zero.

    They are not read, but may stand in for padding.
    """
    num_context = x.shape[1] - known.shape[1]
    return x.masked_fill(~nn.functional.pad(known, (0, num_context), value=True), 0)


def evidence_lists(given: Tensor) -> tuple[Tensor, Tensor]:
    """The given variables of each row first ``(batch, vars)``, and how many ``(batch,)``."""
    return (~given).byte().argsort(dim=1, stable=True), given.sum(1)


def path_lists(query: Tensor, rank: Tensor) -> tuple[Tensor, Tensor]:
    """The query variables of each row first, by rank ``(batch, vars)``; how many ``(batch,)``."""
    behind = torch.iinfo(rank.dtype).max
    return rank.expand_as(query).masked_fill(~query, behind).argsort(dim=1), query.sum(1)


def trim(variables: Tensor, length: Tensor) -> tuple[Tensor, Tensor | None]:
    """Cuts lists to the longest and says what is padding, if anything is.

    Args:
        variables: Variables of each row first. Shape ``(rows, vars)``.
        length: How many. Shape ``(rows,)``.

    Returns:
        The lists and what is no padding, None if nothing is. Shapes ``(rows, longest)``.
    """
    shortest, longest = length.aminmax()
    variables = variables[:, :longest]
    if shortest == longest:
        return variables, None
    return variables, torch.arange(int(longest), device=length.device) < length[:, None]


def split_rows(num_given: Tensor, num_query: Tensor) -> list[Tensor]:
    """Splits a batch so that padding and the number of buckets together cost least, greedily.

    Returns:
        Indices of the rows of each bucket; rows without a query are in none.
    """
    counts = torch.stack([num_given, num_query]).cpu()  # (2, batch)
    asking = counts[1].nonzero().flatten()
    todo, done = [asking] if len(asking) else [], []
    while todo:
        rows = todo.pop()
        cut = _best_cut(counts[:, rows])
        if cut is None:
            done.append(rows.to(num_given.device))
        else:
            todo += [rows[cut[0]], rows[cut[1]]]
    return done


def _best_cut(counts: Tensor) -> tuple[Tensor, Tensor] | None:
    """The best cut of ``counts (2, rows)``, along |given| or |query|, or None if no cut pays."""
    shortest, longest = counts.aminmax(dim=1)
    if torch.equal(shortest, longest):
        return None
    best, cut = counts.shape[1] * _tokens(longest) - BUCKET_COST, None
    for count in counts:
        order = count.argsort()
        ordered = counts[:, order]
        left = ordered.cummax(dim=1).values[:, :-1]  # longest of each left part
        right = ordered.flip(1).cummax(dim=1).values.flip(1)[:, 1:]
        size = torch.arange(1, counts.shape[1])
        cost = size * _tokens(left) + (counts.shape[1] - size) * _tokens(right)
        if cost.min() < best:
            best, place = cost.min(dim=0)
            cut = (order[: place + 1], order[place + 1 :])
    return cut


def _tokens(counts: Tensor) -> Tensor:
    """Tokens of a row of |given| = counts[0] and |query| = counts[1], two streams."""
    return counts[0] + 2 * counts[1]


def alike(query: Tensor, given: Tensor) -> Tensor:
    """Rows in an order in which questions of the same sizes are neighbours. Shape ``(batch,)``."""
    return (query.sum(dim=1) * (given.shape[1] + 1) + given.sum(dim=1)).argsort(stable=True)


def edge_places(num_query: Tensor) -> tuple[Tensor, Tensor]:
    """Row and step of every edge, in order. Shapes ``(edges,)``."""
    row = torch.arange(len(num_query), device=num_query.device).repeat_interleave(num_query)
    first = num_query.cumsum(0) - num_query
    return row, torch.arange(len(row), device=row.device) - first[row]


def _gather(features: list[Tensor], index: Tensor) -> Tensor:
    """The features of the edges, in their order, without padding."""
    if len(features) == 1 and len(features[0]) == len(index):
        return features[0]  # one bucket, no padding: in order already
    return torch.cat(features).index_select(0, index)


def _bucket(
    x: Tensor, evidence: Tensor, num_given: Tensor, path: Tensor, num_query: Tensor
) -> Bucket:
    evidence, known = trim(evidence, num_given)
    # Padding of the path needs no mask: it comes last, and nothing sees what comes later.
    return Bucket(x, evidence, known, trim(path, num_query)[0])
