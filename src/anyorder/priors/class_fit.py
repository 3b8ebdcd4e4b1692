"""Fit of latent classes by expectation maximisation; see `latent_classes.py` for the model.

Every class is split in two at random, all are fitted anew, and so on: 1, 2, 4, ... classes. Each
has some rows more that are as all rows are, and the covariance of each is shrunk towards the shape
of that of all rows. Joint numbers with missing values are filled by their expectations, a set of
missing values at a time.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anyorder.priors.latent import UNSEEN, Cells, by_category
from anyorder.priors.moments import conditioned
from anyorder.priors.normal_mixture import floored
from anyorder.priors.normals import LEAST

READ, READ_CELLS = 20_000, 2**22
"""Most rows that are read, and most pairs of row and level; frequencies and means are of all."""

ROUNDS, AT_LAST = 6, 12
"""Rounds of expectation maximisation after each split, and with all classes."""

ATOM_COUNTS = 100.0
"""More pseudo-counts of atoms, which are moved to where the class has its own."""

APART = 0.5
"""Deviation of the logarithms, and of centers in deviations, by which halves of a class differ."""

NARROWEST = 0.02
"""Least deviation of a number in a class, in deviations of all rows."""


class Classes(NamedTuple):
    """Parameters of the classes, in doubles.

    Args:
        logs: Log share of each class. Shape ``(classes,)``.
        tables: Log probability of each level; 0 for "missing". Shape ``(levels + 1, classes)``.
        centers: Means of the numbers. Shape ``(classes, numbers)``.
        variances: Shape ``(classes, numbers)``.
        covariances: Covariances of the joint numbers. Shape ``(classes, joint, joint)``.
    """

    logs: Tensor
    tables: Tensor
    centers: Tensor
    variances: Tensor
    covariances: Tensor


class Layout(NamedTuple):
    """Places of the columns in the tables and among the numbers.

    Args:
        category: Category of each level. Shape ``(levels,)``.
        atoms: Value of each level that is an atom, else NaN. Shape ``(levels,)``.
        joint: Places of the numbers that are joint given the class.
        alone: Places of the numbers that are independent given the class.
    """

    category: Tensor
    atoms: Tensor
    joint: Tensor
    alone: Tensor


class ClassFit:
    """Expectation maximisation on some rows; see `Classes`.

    Args:
        cells: The rows.
        layout: Which column is what.
        more: Pseudo-counts of each class.
    """

    def __init__(self, cells: Cells, layout: Layout, more: float) -> None:
        self.layout, self.more, levels = layout, more, len(layout.category)
        weights = cells.weights[:, None].expand(cells.places.shape).flatten()
        seen = cells.places.flatten().bincount(weights, minlength=levels + 1)[:-1]
        self.cells = cells
        self.shares = (seen + UNSEEN) / by_category(
            seen + UNSEEN, self.layout.category
        )  # (levels,)
        rows = cells.weights @ cells.there.double()
        self.mean = cells.weights @ cells.z / rows.clamp(min=LEAST)
        away = (cells.z - self.mean).masked_fill(~cells.there, 0)
        self.variance = (cells.weights @ away.square() + 1) / (rows + 1)
        self.cells = cells.at(slice(min(READ, READ_CELLS // max(1, levels))))
        self.hits = _hits(self.cells.places, levels)
        self.covariance, self.patterns = self._joint_moments()

    def grown(self) -> Iterator[Classes]:
        """1, 2, 4, ... classes, each from the halves of those before."""
        found = self._updated(torch.ones(len(self.cells.z), 1).to(self.cells.z), None)
        source = torch.Generator().manual_seed(0)
        while True:
            yield found
            found = self._halved(found, source)
            for _ in range(ROUNDS):
                found = self.improved(found)

    def improved(self, found: Classes) -> Classes:
        """One round."""
        return self._updated(self.logs(found).softmax(dim=1), found)

    def logs(self, found: Classes) -> Tensor:
        """Log density of each row with each class, up to a constant. Shape ``(rows, classes)``."""
        z, there, layout = self.cells.z, self.cells.there.double(), self.layout
        logs = self.hits @ found.tables[:-1].float() + found.logs.float()
        if not z.shape[1]:
            return logs
        logs = logs.double()
        inverse, centers = 1 / found.variances[:, layout.alone], found.centers[:, layout.alone]
        own = z[:, layout.alone]
        logs -= 0.5 * (own.square() @ inverse.T - 2 * own @ (centers * inverse).T)
        constant = centers.square() * inverse - inverse.log()
        logs -= 0.5 * there[:, layout.alone] @ constant.T
        for rows, known in self.patterns:
            block = found.covariances[:, known[:, None], known]
            lower = torch.linalg.cholesky(block)
            middle = found.centers[:, layout.joint[known]]
            away = z[rows[:, None], layout.joint[known]] - middle[:, None]  # (classes, rows, known)
            noise = torch.linalg.solve_triangular(lower, away.mT, upper=False)
            log_det = lower.diagonal(dim1=1, dim2=2).log().sum(dim=1)
            logs[rows] -= (0.5 * noise.square().sum(dim=1) + log_det[:, None]).T
        return logs

    def _updated(self, shares: Tensor, before: Classes | None) -> Classes:
        """Classes from the responsibility of each for each row. Shape ``(rows, classes)``."""
        cells, layout = self.cells, self.layout
        shares = shares * cells.weights[:, None].to(shares)
        rows, more = shares.double().sum(dim=0), self.more
        logs = ((rows + more) / (rows + more).sum()).log()
        counts = (self.hits.T @ shares.float()).double()
        tables = counts + self._beside(counts)
        tables = nn.functional.pad(
            (tables / by_category(tables, self.layout.category)).log(), (0, 0, 0, 1)
        )
        if not cells.z.shape[1]:
            nothing = cells.z.new_zeros(len(rows), 0)
            return Classes(logs, tables, nothing, nothing, cells.z.new_zeros(len(rows), 0, 0))
        shares = shares.double()
        there = shares.T @ cells.there.double() + more
        centers = (shares.T @ cells.z + more * self.mean) / there
        squares = shares.T @ cells.z.square()
        squares = squares + more * (self.variance + self.mean.square())
        variances = (squares / there - centers.square()).maximum(NARROWEST**2 * self.variance)
        joint = cells.z.new_zeros(len(rows), 0, 0)
        if len(layout.joint):
            middles, joint = self._joint(shares, rows, before)
            centers[:, layout.joint] = middles
            variances[:, layout.joint] = joint.diagonal(dim1=1, dim2=2)
        return Classes(logs, tables, centers, variances, joint)

    def _beside(self, counts: Tensor) -> Tensor:
        """Pseudo-counts of each level with each class. Shape ``(levels, classes)``.

        Those of atoms are as all rows are, but moved to where the class has its own: many atoms
        have few rows each, and near ones are alike.

        Args:
            counts: Rows of each level with each class.
        """
        is_atom, beside = ~self.layout.atoms.isnan(), self.shares[:, None].expand(counts.shape)
        if not is_atom.any():
            return self.more * beside
        values, atom = self.layout.atoms.nan_to_num()[:, None], is_atom[:, None].double()
        mine = (counts + self.more * beside) * atom
        rows = by_category(mine, self.layout.category).clamp(min=LEAST)
        mean = by_category(mine * values, self.layout.category) / rows
        usual = by_category(beside * atom * (values - mean).square(), self.layout.category)
        spread = by_category(mine * (values - mean).square(), self.layout.category) + usual
        variance = (spread / (rows + 1)).clamp(min=LEAST)
        tilted = beside * atom * (-0.5 * (values - mean).square() / variance).exp()
        total = by_category(tilted, self.layout.category).clamp(min=torch.finfo(tilted.dtype).tiny)
        tilted = tilted / total * by_category(beside * atom, self.layout.category)
        moved = torch.where(is_atom[:, None], tilted, beside)
        has_atoms = by_category(atom.expand(counts.shape), self.layout.category) > 0
        return torch.where(has_atoms, self.more + ATOM_COUNTS, self.more) * (
            0.9 * moved + 0.1 * beside
        )

    def _joint(self, shares: Tensor, rows: Tensor, before: Classes | None) -> tuple[Tensor, Tensor]:
        """Centers and covariances of the joint numbers, shrunk to the shape of all rows.

        A covariance is shrunk to that of all rows at its own size: a class that scatters little
        must not be taken for one that scatters as much as all.
        """
        sums, squares = self._sums(shares, before)
        size, more = sums.shape[1], self.more
        joint = self.mean[self.layout.joint]
        centers = (sums + more * joint) / (rows + more)[:, None]
        scatters = (
            squares - sums[:, :, None] * centers[:, None] - centers[:, :, None] * (sums[:, None])
        )
        scatters = scatters + rows[:, None, None] * centers[:, :, None] * centers[:, None]
        precision = torch.linalg.inv(self.covariance)
        beside = ((scatters * precision).sum(dim=(1, 2)) / size + 1) / (rows + 1)
        prior = 0.5 * size + 1
        shrunk = scatters + prior * beside.clamp(max=1)[:, None, None] * self.covariance
        deviation = self.covariance.diagonal().sqrt()
        return centers, floored(shrunk / (rows + prior)[:, None, None], deviation)

    def _sums(self, shares: Tensor, before: Classes | None) -> tuple[Tensor, Tensor]:
        """Sums of the joint numbers and their products, missing ones by their expectations."""
        joint, count = self.layout.joint, shares.shape[1]
        sums = shares.new_zeros(count, len(joint))
        squares = shares.new_zeros(count, len(joint), len(joint))
        for rows, known in self.patterns:
            own, mine = self.cells.z[rows][:, joint], shares[rows].T  # (rows, joint), (classes, ..)
            if len(known) == len(joint):
                sums += mine @ own
                squares += (mine[:, :, None] * own).mT @ own
                continue
            center = self.mean[joint].expand(count, -1)
            covariance = self.covariance.expand(count, -1, -1)
            if before is not None:
                center, covariance = before.centers[:, joint], before.covariances
            mask = torch.zeros(1, len(joint), dtype=torch.bool, device=own.device)
            mask[0, known] = True
            gain, left, _ = conditioned(covariance, mask)
            away = (own - center[:, None]).masked_fill(~mask, 0)
            filled = center[:, None] + away @ gain[:, 0]  # (classes, rows, joint)
            sums += (mine[:, :, None] * filled).sum(dim=1)
            squares += (mine[:, :, None] * filled).mT @ filled
            squares += mine.sum(dim=1)[:, None, None] * left[:, 0]
        return sums, squares

    def _joint_moments(self) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Covariance of the joint numbers over all rows; rows with the same of them, and which."""
        cells, joint = self.cells, self.layout.joint
        if not len(joint):
            return cells.z.new_zeros(0, 0), []
        away = (cells.z - self.mean)[:, joint].masked_fill(~cells.there[:, joint], 0)
        covariance = (cells.weights[:, None] * away).T @ away
        covariance.diagonal().add_(1 + 0.1 * len(joint))
        pairs = (cells.weights[:, None] * cells.there[:, joint]).T @ cells.there[:, joint].double()
        covariance = covariance / (pairs + 1 + 0.1 * len(joint))
        covariance = floored(covariance[None], covariance.diagonal().sqrt())[0]
        sets, which = cells.there[:, joint].unique(dim=0, return_inverse=True)
        patterns = [
            ((which == number).nonzero()[:, 0], known.nonzero()[:, 0])
            for number, known in enumerate(sets)
        ]
        return covariance, [pair for pair in patterns if len(pair[1])]

    def _halved(self, found: Classes, source: torch.Generator) -> Classes:
        """Two classes of each, apart at random: no row has a say in how."""

        def noise(part: Tensor) -> Tensor:
            return APART * torch.randn(part.shape, generator=source).to(part)

        tables = found.tables.repeat(1, 2)
        tables[:-1] += noise(tables[:-1])
        tables[:-1] -= by_category(tables[:-1].exp(), self.layout.category).log()
        logs, centers, variances, covariances = (
            part.repeat(2, *[1] * (part.ndim - 1))
            for part in (found.logs, found.centers, found.variances, found.covariances)
        )
        centers = centers + noise(centers) * variances.sqrt()
        return Classes(logs.log_softmax(dim=0), tables, centers, variances, covariances)


def _hits(places: Tensor, levels: int) -> Tensor:
    """Indicator of each level. Shape ``(rows, levels)``."""
    hits = torch.zeros(len(places), levels + 1, device=places.device)
    return hits.scatter_(1, places, 1)[:, :-1].contiguous()
