"""How well each column is guessed from the rest of its row, beside one guess for all rows.

Likelihoods say which of two models is better; this says whether one is of use at all. A model that
was trained too short can be calibrated, and still know nothing of how columns hang together.

Whether rows are those that a model was trained on, told without keeping any of them.

Whether draws are copies: distances from samples to rows that were trained on, and to others.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from anyorder.inference.model import AnyOrderModel
from anyorder.tables.columns import NumberColumn
from anyorder.tables.engine import central_codes
from anyorder.tables.parsing import FloatArray
from anyorder.tables.schema import TableSchema
from anyorder.variables import Schema

SEEN = "These rows were trained on: expect better numbers than on new ones."
"""What to say of them."""

BYTES = 8
"""Of the hash of a row, and of their sum."""


@dataclass
class RowPrint:
    """A fingerprint of encoded rows: the same for the same rows, in any order and file format.

    It is the sum of hashes, so rows can come in parts. A part of the rows has another print.

    Example:
        >>> import torch
        >>> x, nothing = torch.eye(3), torch.zeros(3, 3, dtype=torch.bool)
        >>> one, other = RowPrint(), RowPrint()
        >>> one.add(x, nothing)
        >>> other.add(x[1:], nothing[1:]), one == other
        (None, False)
        >>> other.add(x[:1], nothing[:1]), one == other
        (None, True)
    """

    rows: int = 0
    total: int = 0

    def add(self, x: Tensor, missing: Tensor) -> None:
        """Takes in some more rows: codes ``(rows, columns)`` and gaps ``(rows, vars)``."""
        self.rows += len(x)
        for code, gone in zip(x.cpu().numpy(), missing.cpu().numpy(), strict=True):
            digest = blake2b(code.tobytes() + gone.tobytes(), digest_size=BYTES).digest()
            self.total = (self.total + int.from_bytes(digest, "big")) % 2 ** (8 * BYTES)

    def to_json(self) -> dict[str, int | str]:
        """Plain values, for the notes of a model."""
        return {"rows": self.rows, "print": f"{self.total:0{2 * BYTES}x}"}


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


GUESSED_ROWS = 1000
"""Rows of which each cell is guessed: enough for a percent."""

SPANS = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0}

Unit = Literal["distance", "seconds", "wrong"]
"""What errors are: mean distances, of times in seconds; or shares of wrong guesses."""


@dataclass(frozen=True)
class Skill:
    """How well one column is guessed.

    Args:
        column: Its name.
        unit: What its errors are.
        cells: How many were guessed.
        error: Of the median, or the most probable level, given all else that a row has.
        alone: Of the guess that suits these cells best if it is to be the same for all.
        se: The standard error of `gain`.
    """

    column: str
    unit: Unit
    cells: int
    error: float
    alone: float
    se: float | None

    @property
    def gain(self) -> float | None:
        """The share of the error that the rest of a row saves; None where there is none to save."""
        return 1 - self.error / self.alone if self.alone else None

    @property
    def words(self) -> tuple[str, str, str]:
        """The two errors and the gain, for people."""
        gain = "" if self.gain is None else f"{self.gain:.0%}"
        spread = "" if self.se is None else f" ± {self.se:.0%}"
        return self._told(self.error), self._told(self.alone), gain + spread

    def _told(self, error: float) -> str:
        if self.unit == "wrong":
            return f"{1 - error:.1%} right"
        if self.unit == "distance":
            return f"off by {float(f'{error:.3g}'):,.10g}"
        name, seconds = next((s for s in SPANS.items() if error >= s[1]), ("seconds", 1.0))
        return f"off by {error / seconds:.3g} {name}"

    def to_json(self) -> dict[str, float | int | str | None]:
        """Plain values."""
        numbers = {"error": self.error, "alone": self.alone, "gain": self.gain, "se": self.se}
        return {"unit": self.unit, "cells": self.cells, **numbers}


HEADINGS = ("column", "cells", "from the rest of its row", "one guess for all rows", "better by")
"""Of a table of `Skill.words`."""


def column_skill(
    model: AnyOrderModel, table: TableSchema, x: Tensor, missing: Tensor
) -> list[Skill]:
    """The skill in each column of which some rows have a value."""
    found = []
    for place, column in enumerate(table.query):
        rows = (~missing[:, place]).nonzero().squeeze(1)
        if not len(rows):
            continue
        known = ~missing[rows]
        known[:, place] = False
        guesses = central_codes(model, x[rows], known, place)
        truth = x[rows, place].double().numpy()
        unit: Unit = "wrong"
        if isinstance(column, NumberColumn):
            unit = "distance" if column.kind == "number" else "seconds"
            truth = column.numbers(truth)
            errors = np.abs(column.numbers(guesses) - truth)
            alone = np.abs(np.median(truth) - truth)
        else:
            levels, counts = np.unique(truth, return_counts=True)
            errors = (guesses != truth).astype(float)
            alone = (levels[counts.argmax()] != truth).astype(float)
        found.append(_skill(column.name, unit, errors, alone))
    return found


def _skill(name: str, unit: Unit, errors: FloatArray, alone: FloatArray) -> Skill:
    """The means, and the error of their ratio by its linear part."""
    # In units of the greatest, so that squares and sums of great numbers do not overflow.
    most = max(float(errors.max()), float(alone.max())) or 1.0
    errors, alone = errors / most, alone / most
    error, base, cells = float(errors.mean()), float(alone.mean()), len(errors)
    se = None
    if base and cells > 1:
        apart = errors - error / base * alone
        se = float(apart.std(ddof=1) / np.sqrt(cells) / base)
    return Skill(name, unit, cells, most * error, most * base, se)
