"""Whether draws are copies: distances from samples to rows that were trained on, and to others."""

from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.variables import Schema

ROWS_AT_ONCE = 256
"""Samples whose distances to all records are in memory together."""

FARTHEST = 4.0
"""Normal scores further apart than this count as this far, so that no one column decides."""

GROUPS = 20
"""Of records, whose spread gives the standard error."""

Encoded = tuple[Tensor, Tensor]
"""Values ``(rows, columns)`` and gaps ``(rows, vars)``."""


@dataclass(frozen=True)
class PrivacyCheck:
    """How near samples come to records.

    Attributes:
        closer_to_train: Share of samples whose nearest record was trained on, not held out, among
            equally many of both; ties count half. About 0.5 for a model that has learnt the
            distribution, not the rows. It says little where few of the trained rows are compared.
        se: The standard error of that share, from groups of records.
        copies: Share of samples that equal a trained row in all columns.
        held_out_copies: Share of samples that equal a held-out row: what chance alone gives, if
            there are as many held-out rows as trained ones.
    """

    closer_to_train: float
    se: float
    copies: float
    held_out_copies: float


def nearest_records(
    schema: Schema,
    samples: Encoded,
    train: Encoded,
    held_out: Encoded,
    *,
    generator: torch.Generator | None = None,
) -> PrivacyCheck:
    """Compares the distances of samples to equally many trained and held-out rows.

    The distance of two rows is the sum over columns of the difference of normal scores, and of 1
    for categories that differ; a gap is like another level of a category.
    """
    count = min(len(train[0]), len(held_out[0]))
    ours, others = (_some(part, count, generator) for part in (train, held_out))
    groups = [_closer(schema, samples, _group(ours, k), _group(others, k)) for k in range(GROUPS)]
    shares = torch.stack(groups)[: min(GROUPS, count)]
    whole = _closer(schema, samples, ours, others)
    return PrivacyCheck(
        closer_to_train=float(whole),
        se=float(shares.std() / len(shares) ** 0.5) if len(shares) > 1 else float("nan"),
        copies=float((_nearest(schema, samples, train) == 0).double().mean()),
        held_out_copies=float((_nearest(schema, samples, held_out) == 0).double().mean()),
    )


def _some(records: Encoded, count: int, generator: torch.Generator | None) -> Encoded:
    chosen = torch.randperm(len(records[0]), generator=generator)[:count]
    return records[0][chosen], records[1][chosen]


def _group(records: Encoded, number: int) -> Encoded:
    """Every so many-th record: samples share their nearest records, so groups of these vary."""
    return records[0][number::GROUPS], records[1][number::GROUPS]


def _closer(schema: Schema, samples: Encoded, train: Encoded, held_out: Encoded) -> Tensor:
    """The share of samples that are nearer to the first records than to the second."""
    if not len(train[0]):
        return torch.tensor(torch.nan, dtype=torch.float64)
    to_train, to_others = (_nearest(schema, samples, part) for part in (train, held_out))
    nearer = (to_train < to_others).double() + 0.5 * (to_train == to_others).double()
    return nearer.mean()


def _nearest(schema: Schema, samples: Encoded, records: Encoded) -> Tensor:
    """The distance of each sample to its nearest record. Shape ``(samples,)``."""
    found = []
    for x, missing in zip(*(part.split(ROWS_AT_ONCE) for part in samples), strict=True):
        total = torch.zeros(len(x), len(records[0]))
        for place in range(schema.num_variables):
            apart = (x[:, place, None] - records[0][None, :, place]).abs()
            if schema.variables[place].kind == "categorical":
                apart = (apart > 0).float()
            gap, other_gap = missing[:, place, None], records[1][None, :, place]
            apart = apart.clamp(max=FARTHEST).masked_fill(gap & other_gap, 0.0)
            total += apart.masked_fill(gap ^ other_gap, 1.0)
        found.append(total.amin(dim=1))
    return torch.cat(found)
