"""Several normal distributions of numbers, from few rows, with gaps.

One normal knows lines; several know bends, clusters and where numbers scatter more. It is grown:
every normal is split in two along its longest axis, all are fitted anew by expectation
maximisation, and so on as long as rows that were left out become more probable. The covariance of a
part of the rows leans on that of all of them.

Reference: Dempster, Laird and Rubin (1977), sections 4.1 and 4.3.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.networks.normal_moments import (
    filled_rows,
    log_densities,
    normal_moments,
    used_rows,
)

READ = 20_000
"""Rows that are read, of as many as there are."""

ROUNDS = 15
"""Of expectation maximisation, after each split."""

LEFT_OUT = 4
"""One row of so many is left out to see when to stop."""

LEANING = 0.5
"""Rows that the covariance of all counts for in each, as a share of the numbers."""

APART = 0.5
"""How far the halves of a normal begin from its middle, in deviations along its longest axis."""

LEAST = 1e-4
"""Of the eigenvalues of covariances, in deviations: no number is taken for known from the rest."""


class NormalMixture(NamedTuple):
    """Some normals.

    Args:
        log_weights: Shape ``(normals,)``.
        centers: Shape ``(normals, numbers)``.
        covariances: Shape ``(normals, numbers, numbers)``.
    """

    log_weights: Tensor
    centers: Tensor
    covariances: Tensor

    def logs(self, z: Tensor, have: Tensor) -> Tensor:
        """Of each normal's weight times its density, but for tau. Shape ``(rows, normals)``."""
        pairs = zip(self.centers, self.covariances, strict=True)
        each = [log_densities(z, have, *moments) for moments in pairs]
        return torch.stack(each, dim=1) + self.log_weights

    def halved(self) -> "NormalMixture":
        """Each split along its longest axis."""
        sizes, axes = torch.linalg.eigh(self.covariances)
        step = APART * sizes[:, -1:].clamp(min=0).sqrt() * axes[:, :, -1]
        return NormalMixture(
            torch.cat([self.log_weights] * 2) - math.log(2),
            torch.cat([self.centers - step, self.centers + step]),
            torch.cat([self.covariances] * 2),
        )


def normal_mixture(z: Tensor, have: Tensor, weights: Tensor, *, most: int) -> NormalMixture:
    """As many normals as the rows bear out, in doubles.

    Args:
        z: Normal scores; those that are not there are not read. Shape ``(rows, numbers)``.
        have: Which are there. Shape ``(rows, numbers)``.
        weights: Of the rows; their unit does not matter. Shape ``(rows,)``.
        most: Of normals.
    """
    one = _single(z, have, weights)
    rows = used_rows(z[:READ], have[:READ], weights[:READ])
    left_out = torch.arange(len(rows[0]), device=z.device) % LEFT_OUT == 0
    z, have, weights = (part[left_out] for part in rows)

    def likelihood(found: NormalMixture) -> float:
        return float(weights @ found.logs(z, have).logsumexp(dim=1))

    fewer, best, size = one, likelihood(one), 1
    while 2 * size <= most:
        fewer = _grown(fewer, one, *(part[~left_out] for part in rows))
        found = likelihood(fewer)
        if not found > best:
            break
        best, size = found, 2 * size
    grown = one
    while len(grown.log_weights) < size:
        grown = _grown(grown, one, *rows)
    return grown


def _single(z: Tensor, have: Tensor, weights: Tensor) -> NormalMixture:
    center, covariance = normal_moments(z, have, weights)
    deviation = covariance.diagonal().sqrt()
    zero = torch.zeros(1, dtype=center.dtype, device=center.device)
    return NormalMixture(zero, center[None], _floored(covariance[None], deviation))


def _grown(
    few: NormalMixture, one: NormalMixture, z: Tensor, have: Tensor, weights: Tensor
) -> NormalMixture:
    """Twice as many, fitted to the rows."""
    found, everything = few.halved(), one.covariances[0]
    deviation, prior = everything.diagonal().sqrt(), LEANING * z.shape[1]
    for _ in range(ROUNDS):
        shares = found.logs(z, have).softmax(dim=1) * weights[:, None]
        rows = shares.sum(dim=0)
        centers, covariances = [], []
        for share, size, *moments in zip(shares.T, rows, *found[1:], strict=True):
            filled, left = filled_rows(z, have, share, *moments)
            center = share @ filled / size.clamp(min=torch.finfo(size.dtype).tiny)
            away = filled - center
            scatter = (share[:, None] * away).T @ away + left + prior * everything
            centers.append(center)
            covariances.append(scatter / (size + prior))
        found = NormalMixture(
            (rows / rows.sum()).log(),
            torch.stack(centers),
            _floored(torch.stack(covariances), deviation),
        )
    return found


def _floored(covariances: Tensor, deviation: Tensor) -> Tensor:
    """With no direction in which next to nothing is unknown."""
    sizes, axes = torch.linalg.eigh(covariances / deviation / deviation[:, None])
    held = (axes * sizes.clamp(min=LEAST).unsqueeze(-2)) @ axes.mT
    return held * deviation * deviation[:, None]
