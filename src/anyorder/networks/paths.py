"""From boolean sets to paths: the sequences of a batch, and its buckets of similar length.

The query of a path network is a sequence whose length differs by row: marginalised variables are
not in it at all. `along_paths` splits the rows of a batch into buckets of similar length, runs the
network on each, and returns the features of all edges in order. A batch whose rows have equal
|given| and equal |query| (training samples one cardinality a batch) is one bucket without padding
and without masks.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anyorder.lattice.protocols import edge_places, path_lists
from anyorder.networks.contracts import PathFeatures

BUCKET_COST = 256
"""Fixed cost of one more bucket, in tokens. On one CPU thread 16 to 512 differ by 8% at most, and
padding without a split takes 1.5 to 3 times as long. A GPU favours larger values."""


class Bucket(NamedTuple):
    """Rows of similar length that run together."""

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
    """Runs a path network on rows with different queries.

    `run` maps a bucket to features ``(rows, steps, width)``; those of padding are dropped. The rank
    may be shared by the rows, ``(vars,)``.
    """
    x = mask_unread(x, query | given)
    evidence, num_given = evidence_lists(given)
    path, num_query = path_lists(query, rank)
    start = torch.zeros_like(num_query)  # (batch,) where a row's edges begin among the features
    features, end = [], 0
    for rows in split_rows(num_given, num_query):
        # Padding of the path needs no mask: it comes last, and nothing sees what comes later.
        steps, _ = trim(path[rows], num_query[rows])
        bucket = Bucket(x[rows], *trim(evidence[rows], num_given[rows]), steps)
        features.append(run(bucket).flatten(0, 1))  # (rows * steps, width)
        start[rows] = end + steps.shape[1] * torch.arange(len(rows), device=rows.device)
        end += steps.numel()
    row, step = edge_places(num_query)
    if not features:  # no row has a query
        features = [torch.zeros(0, width, device=x.device, dtype=torch.get_default_dtype())]
    if len(features) == 1 and len(features[0]) == len(row):  # one bucket without padding
        found = features[0]
    else:
        found = torch.cat(features).index_select(0, start[row] + step)
    return PathFeatures(found, row, step, path[row, step])


def mask_unread(x: Tensor, known: Tensor) -> Tensor:
    """Returns `x` with zeros for all values that are neither known nor context.

    These values must not be read, but their places may serve as padding.
    """
    num_context = x.shape[1] - known.shape[1]
    return x.masked_fill(~nn.functional.pad(known, (0, num_context), value=True), 0)


def pick(vectors: Tensor, places: Tensor) -> Tensor:
    """Gathers ``(batch, n, width)`` at ``(batch, m)`` -> ``(batch, m, width)``."""
    return vectors.gather(1, places[..., None].expand(-1, -1, vectors.shape[2]))


def evidence_lists(given: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the given variables first ``(batch, vars)``, and their number ``(batch,)``."""
    return (~given).byte().argsort(dim=1, stable=True), given.sum(1)


def trim(variables: Tensor, length: Tensor) -> tuple[Tensor, Tensor | None]:
    """Cuts lists to the longest one.

    Lists ``(rows, vars)`` are padded at the end.

    Returns:
        The lists, and False on padding, or None without padding. Shapes ``(rows, longest)``.
    """
    shortest, longest = length.aminmax()
    variables = variables[:, :longest]
    if shortest == longest:
        return variables, None
    return variables, torch.arange(int(longest), device=length.device) < length[:, None]


def split_rows(num_given: Tensor, num_query: Tensor) -> list[Tensor]:
    """Splits a batch greedily so that padding and `BUCKET_COST` together are least.

    Returns:
        Indices of the rows of each bucket; rows without a query are in none.
    """
    counts = torch.stack([num_given, num_query]).cpu()  # (2, batch)
    querying = counts[1].nonzero().flatten()
    todo, done = [querying] if len(querying) else [], []
    while todo:
        rows = todo.pop()
        cut = _best_cut(counts[:, rows])
        if cut is None:
            done.append(rows.to(num_given.device))
        else:
            todo += [rows[cut[0]], rows[cut[1]]]
    return done


def _best_cut(counts: Tensor) -> tuple[Tensor, Tensor] | None:
    """Returns the best cut of ``counts (2, rows)`` along |given| or |query|, if one pays."""
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
    """Returns the tokens of a row in two streams; counts are |given| and |query|."""
    return counts[0] + 2 * counts[1]
