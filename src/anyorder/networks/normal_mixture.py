"""Several normal distributions of numbers, from few rows, with gaps.

One normal knows lines; several know bends, clusters and where numbers scatter more. It is grown:
every normal is split in two along its longest axis, all are fitted anew by expectation
maximisation, and so on as long as rows that were left out become more probable. The covariance of a
part of the rows leans on that of all of them. Gaps are drawn before each halving from what is
believed by then: to count all that they may be, in every round, takes minutes where they are many.

References:
    Dempster, Laird and Rubin (1977), section 4.3: mixtures.
    Celeux and Diebolt (1985): gaps that are drawn.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.networks.normal_moments import (
    bunches,
    conditioned,
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
        rows: That each stands for, with those of the prior. Shape ``(normals,)``.
    """

    log_weights: Tensor
    centers: Tensor
    covariances: Tensor
    rows: Tensor

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
            torch.cat([self.rows / 2] * 2),
        )

    def completed(self, z: Tensor, have: Tensor) -> Tensor:
        """Rows with their gaps drawn, the same every time: rows drawn alone, moved to what is."""
        if have.all():
            return z
        source = torch.Generator().manual_seed(0)
        shares = self.logs(z, have).softmax(dim=1)
        which = shares.cpu().multinomial(1, generator=source).squeeze(1).to(z.device)
        noise = torch.randn(z.shape, dtype=z.dtype, generator=source).to(z.device)
        found = z.clone()
        moments = zip(self.centers, self.covariances, strict=True)
        for number, (center, covariance) in enumerate(moments):
            mine = (which == number).nonzero().squeeze(1)
            alone = center + noise[mine] @ torch.linalg.cholesky(covariance).T
            for part in bunches(len(mine), covariance.numel(), z.device):
                rows, drawn = mine[part], alone[part]
                gain, _, _ = conditioned(covariance, have[rows])
                away = (z[rows] - drawn).masked_fill(~have[rows], 0)
                moved = drawn + (away[:, None] @ gain)[:, 0]
                found[rows] = torch.where(have[rows], z[rows], moved)
        return found


def normal_mixture(
    z: Tensor, have: Tensor, weights: Tensor, *, most: int, log_slopes: Tensor | None = None
) -> tuple[NormalMixture, float]:
    """As many normals as the rows bear out, in doubles, and how probable they make left-out rows.

    Args:
        z: Numbers of about mean 0 and deviation 1; those that are not there are not read.
            Shape ``(rows, numbers)``.
        have: Which are there. Shape ``(rows, numbers)``.
        weights: Of the rows; their unit does not matter. Shape ``(rows,)``.
        most: Of normals.
        log_slopes: Of the scale on which densities are counted, if another. Shape of `z`.
    """
    one = _single(z, have, weights)
    factors = (torch.zeros_like(z) if log_slopes is None else log_slopes).masked_fill(~have, 0)
    factors = factors[weights > 0].sum(dim=1)
    z, have, weights = (part[:READ] for part in used_rows(z, have, weights))
    factors = factors[: len(z)]
    left_out = torch.arange(len(z), device=z.device) % LEFT_OUT == 0

    def grown(few: NormalMixture, rows: Tensor) -> NormalMixture:
        completed = few.completed(z[rows], have[rows])
        return _fitted(few.halved(), one, completed, weights[rows])

    def likelihood(found: NormalMixture) -> float:
        logs = found.logs(z[left_out], have[left_out]).logsumexp(dim=1)
        return float(weights[left_out] @ (logs + factors[left_out]))

    few, best, size = one, likelihood(one), 1
    while 2 * size <= most:
        few = grown(few, ~left_out)
        found = likelihood(few)
        if not found > best:
            break
        best, size = found, 2 * size
    several = one
    while len(several.log_weights) < size:
        several = grown(several, left_out | ~left_out)
    if size > 1 and not have.all():
        several = _fitted(several, one, several.completed(z, have), weights)
    return several, best


def _single(z: Tensor, have: Tensor, weights: Tensor) -> NormalMixture:
    center, covariance, rows = normal_moments(z, have, weights)
    deviation = covariance.diagonal().sqrt()
    covariances = _floored(covariance[None], deviation)
    return NormalMixture(center.new_zeros(1), center[None], covariances, center.new_tensor([rows]))


def _fitted(found: NormalMixture, one: NormalMixture, z: Tensor, weights: Tensor) -> NormalMixture:
    """Expectation maximisation on rows without gaps, from what was found before."""
    everything, there = one.covariances[0], torch.ones_like(z, dtype=torch.bool)
    deviation, prior = everything.diagonal().sqrt(), LEANING * z.shape[1]
    for _ in range(ROUNDS):
        shares = found.logs(z, there).softmax(dim=1) * weights[:, None]
        rows = shares.sum(dim=0)
        centers = shares.T @ z / rows.clamp(min=torch.finfo(rows.dtype).tiny)[:, None]
        scatters = []
        for share, center in zip(shares.T, centers, strict=True):
            away = z - center
            scatters.append((share[:, None] * away).T @ away)
        leaning = torch.stack(scatters) + prior * everything
        covariances = _floored(leaning / (rows + prior)[:, None, None], deviation)
        found = NormalMixture((rows / rows.sum()).log(), centers, covariances, rows + prior)
    return found


def _floored(covariances: Tensor, deviation: Tensor) -> Tensor:
    """With no direction in which next to nothing is unknown, or which single precision loses."""
    sizes, axes = torch.linalg.eigh(covariances / deviation / deviation[:, None])
    lost = 2 * sizes.shape[-1] * torch.finfo(torch.float32).eps * sizes[:, -1:]
    held = (axes * sizes.clamp(min=LEAST).maximum(lost).unsqueeze(-2)) @ axes.mT
    return held * deviation * deviation[:, None]
