"""What normal distributions of numbers say of each row, as more and more of it becomes known."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

LEAST = 1e-4
"""Of the deviations of numbers given others, which rounding could make nothing."""


@dataclass(frozen=True)
class Belief:
    """What is believed of the numbers of each row, given what is known by now.

    Covariances depend on what is known, not on its values: rows that know the same are a group and
    share one. What is told after the evidence takes off the outer product of one column a time, so
    columns are kept in place of a covariance that is changed at every step.

    Args:
        logs: Of the weight of each normal, up to a constant. Shape ``(normals, rows)``.
        mean: Shape ``(normals, rows, numbers)``.
        group: Of each row. Shape ``(rows,)``.
        covariance: Given the evidence. Shape ``(normals, sets, numbers, numbers)``.
        evidence: Which of these is a group's. Shape ``(groups,)``.
        columns: That were taken off it. Shape ``(normals, groups, told, numbers)``.
        variances: What is left on the diagonal. Shape ``(normals, groups, numbers)``.
    """

    logs: Tensor
    mean: Tensor
    group: Tensor
    covariance: Tensor
    evidence: Tensor
    columns: Tensor
    variances: Tensor

    @property
    def rows(self) -> Tensor:
        """Their numbers."""
        return torch.arange(len(self.group), device=self.group.device)

    def at(self, rows: Tensor) -> "Belief":
        """That of some rows."""
        return replace(
            self, logs=self.logs[:, rows], mean=self.mean[:, rows], group=self.group[rows]
        )

    def told(self, place: Tensor, values: Tensor, counts: Tensor) -> "Belief":
        """After one number of each row became known.

        Args:
            place: Which. Shape ``(rows,)``.
            values: Shape ``(rows,)``.
            counts: False where nothing became known. Shape ``(rows,)``.
        """
        size = self.mean.shape[2] + 1
        key = self.group * size + place.masked_fill(~counts, size - 1)
        keys, group = key.unique(return_inverse=True)
        parent, told = keys // size, keys % size
        is_told, told = told < size - 1, told.clamp(max=size - 2)
        column, columns = self._column(parent, told)
        here = told.expand(len(column), -1).unsqueeze(-1)
        variance = column.gather(2, here).squeeze(-1).clamp(min=LEAST**2)
        taken = column * (is_told / variance.sqrt()).unsqueeze(-1)
        gain = taken / variance.sqrt().unsqueeze(-1)
        surprise = values.to(gain.dtype) - self.mean[:, self.rows, place]
        surprise = surprise.masked_fill(~counts, 0)
        likely = -0.5 * (surprise.square() / variance[:, group] + variance[:, group].log())
        return Belief(
            logs=self.logs + likely.masked_fill(~counts, 0),
            mean=self.mean + gain[:, group] * surprise.unsqueeze(-1),
            group=group,
            covariance=self.covariance,
            evidence=self.evidence[parent],
            columns=torch.cat([columns, taken.unsqueeze(2)], dim=2),
            variances=self.variances[:, parent] - taken.square(),
        )

    def _column(self, groups: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """One column of the covariance of each of some groups, and those taken off before."""
        given = self.covariance[:, self.evidence[groups], :, places].movedim(0, 1)
        every = torch.arange(len(self.evidence), device=groups.device)
        # They are many, and most steps leave the groups as they are.
        before = self.columns if torch.equal(groups, every) else self.columns[:, groups]
        here = places[:, None, None].expand(*before.shape[:3], 1)
        taken = (before.gather(3, here).mT @ before).squeeze(2)
        return given - taken, before  # (normals, groups, numbers)
