"""Training rows kept as codes: answers are put beside counts of the rows that match the evidence.

A row matches if it has every given value, and a value in every interval and set of levels. The
share of matching rows with a level is what the model's probability should be close to, as far as
there are enough of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.errors import SchemaError
from anyorder.inference.queries import Interval
from anyorder.tables.columns import CategoryColumn, Column
from anyorder.tables.engine import Evidence
from anyorder.tables.parsing import FloatArray

MOST_CELLS = 4_000_000
"""Cells that are kept at most: 16 MB, and milliseconds a question. Rows of larger tables are not
kept, and their answers are not counted."""


@dataclass(frozen=True)
class Count:
    """Training rows that match some evidence and have a value of the queried column.

    Attributes:
        rows: Number of rows.
        shares: Share of each level among them, weighted as in training; None for a number, and
            where there are no rows.
    """

    rows: int
    shares: FloatArray | None


@dataclass(frozen=True)
class KeptRows:
    """Codes of the rows that a model was fitted to, held-out rows among them.

    Args:
        codes: Codes of each column, NaN where a value is missing. Shape ``(columns, rows)``.
        weights: Weights of the rows. Shape ``(rows,)``, float64.
    """

    codes: Tensor
    weights: Tensor

    @classmethod
    def of(cls, x: Tensor, missing: Tensor, weights: Tensor | None) -> "KeptRows | None":
        """Returns rows of positive weight, or None if they are too many to keep.

        Args:
            x: Values. Shape ``(rows, columns)``.
            missing: Missing values. Shape ``(rows, vars)``.
            weights: Weights of the rows; None for equal ones.
        """
        if x.numel() > MOST_CELLS:
            return None
        weights = torch.ones(len(x), dtype=torch.float64) if weights is None else weights
        codes = x.clone()
        codes[:, : missing.shape[1]].masked_fill_(missing, torch.nan)
        return cls(codes[weights > 0].T.contiguous(), weights[weights > 0])

    @classmethod
    def loaded(cls, tensors: Mapping[str, Tensor], columns: int) -> "KeptRows | None":
        """Returns the rows that `tensors` saved, or None if there are none."""
        if not tensors:
            return None
        found = cls(**tensors)
        if found.codes.shape != (columns, len(found.weights)):
            raise SchemaError("its rows are not those of its columns")
        return found

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Tensors to save."""
        return {"codes": self.codes, "weights": self.weights}

    def counts(
        self, evidence: Evidence, variables: Sequence[int], columns: Sequence[Column]
    ) -> list[Count]:
        """Returns the matching rows that have a value of each variable.

        Args:
            evidence: Evidence.
            variables: Numbers of the queried variables.
            columns: Columns of all variables.
        """
        matching = self._matching(evidence)
        return [
            self._count(self.codes[place, matching], matching, columns[place])
            for place in variables
        ]

    def _matching(self, evidence: Evidence) -> Tensor:
        """Returns the numbers of the rows that match."""
        found = torch.ones(self.codes.shape[1], dtype=torch.bool)
        context = range(len(evidence.given), len(self.codes))
        for place in (*evidence.given.nonzero().flatten().tolist(), *context):
            found &= self.codes[place] == evidence.x[0, place]
        for place, region in evidence.regions.items():
            own = self.codes[place]
            if isinstance(region, Interval):
                # Rounded to float32, the code of an end itself may be the next one outside.
                ends = torch.tensor([region.low, region.high], dtype=own.dtype)
                low, high = ends.nextafter(torch.tensor([-torch.inf, torch.inf]))
                found &= (own >= low) & (own <= high)
            else:
                found &= torch.isin(own, torch.tensor(region.codes, dtype=own.dtype))
        return found.nonzero().squeeze(1)

    def _count(self, codes: Tensor, matching: Tensor, column: Column) -> Count:
        there = ~codes.isnan()
        rows = int(there.sum())
        if not rows or not isinstance(column, CategoryColumn):
            return Count(rows, None)
        weights = self.weights[matching[there]]
        sums = torch.bincount(codes[there].long(), weights, minlength=len(column.levels))
        return Count(rows, (sums / weights.sum()).numpy())
