"""Fit of a mixture of normal distributions to few rows, with missing values.

One normal knows lines; several know bends, clusters and where numbers scatter more. The mixture is
grown: every normal is split in two along its longest axis, all are fitted anew by expectation
maximisation, and so on as long as left-out rows become more probable. The covariance of each normal
is shrunk towards the shape of that of all rows, at its own size: a part that scatters little must
not be taken for one that scatters as much as all. Missing values are sampled before each split from
the mixture so far: their full expectation in every round takes minutes where they are many.

References:
    Dempster, Laird and Rubin (1977), section 4.3: mixtures.
    Celeux and Diebolt (1985): stochastic EM, which samples missing values.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.priors.moments import bunches, conditioned, log_densities, normal_moments, used_rows

READ, READ_AT_LAST = 20_000, 50_000
"""Most rows by which normals are grown, and by which they are fitted at last."""

ENTRIES = 2**18
"""Entries of noise that are computed at a time: they stay in a processor's cache."""

ROUNDS = 15
"""Rounds of expectation maximisation after each split."""

LEFT_OUT, FEWEST = 4, 40
"""One row of so many is left out to see when to stop, and the fewest rows for that."""

PRIOR_STRENGTH = 0.5
"""Pseudo-counts of the covariance of all rows in that of each normal, a number."""

APART = 0.5
"""Distance of the halves of a normal from its center, in deviations along its longest axis."""

LEAST = 1e-6
"""Least eigenvalue of covariances, in deviations: no number is known from the rest."""


class NormalMixture(NamedTuple):
    """A mixture of normals.

    Args:
        log_weights: Shape ``(normals,)``.
        centers: Shape ``(normals, numbers)``.
        covariances: Shape ``(normals, numbers, numbers)``.
        rows: Rows behind the center of each. Shape ``(normals,)``.
        pseudo_counts: More rows behind its covariance. Shape ``(normals,)``.
        read: Rows that were read, for all normals.
    """

    log_weights: Tensor
    centers: Tensor
    covariances: Tensor
    rows: Tensor
    pseudo_counts: Tensor
    read: float

    def logs(self, z: Tensor, have: Tensor) -> Tensor:
        """Log of weight times density of each normal, but for tau. Shape ``(rows, normals)``."""
        pairs = zip(self.centers, self.covariances, strict=True)
        each = [log_densities(z, have, *moments) for moments in pairs]
        return torch.stack(each, dim=1) + self.log_weights

    def halved(self) -> "NormalMixture":
        """Splits each normal along its longest axis."""
        sizes, axes = torch.linalg.eigh(self.covariances)
        step = APART * sizes[:, -1:].clamp(min=0).sqrt() * axes[:, :, -1]
        return NormalMixture(
            torch.cat([self.log_weights] * 2) - math.log(2),
            torch.cat([self.centers - step, self.centers + step]),
            torch.cat([self.covariances] * 2),
            torch.cat([self.rows / 2] * 2),
            torch.cat([self.pseudo_counts] * 2),
            self.read,
        )

    def completed(self, z: Tensor, have: Tensor) -> Tensor:
        """Samples missing values, the same every time: whole rows, moved to what is known."""
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
                rows, sampled = mine[part], alone[part]
                gain, _, _ = conditioned(covariance, have[rows])
                away = (z[rows] - sampled).masked_fill(~have[rows], 0)
                moved = sampled + (away[:, None] @ gain)[:, 0]
                found[rows] = torch.where(have[rows], z[rows], moved)
        return found


def normal_mixture(
    z: Tensor, have: Tensor, weights: Tensor, *, most: int, log_slopes: Tensor | None = None
) -> tuple[NormalMixture, float]:
    """Fits as many normals as raise the left-out likelihood; gives them, in doubles, and that.

    Args:
        z: Numbers of about mean 0 and deviation 1; missing ones are not read.
            Shape ``(rows, numbers)``.
        have: False for missing values. Shape ``(rows, numbers)``.
        weights: Weights of the rows, in any unit. Shape ``(rows,)``.
        most: Largest number of normals.
        log_slopes: Log slopes of the scale on which densities are counted. Shape of `z`.
    """
    one = _single(z, have, weights)
    factors = (torch.zeros_like(z) if log_slopes is None else log_slopes).masked_fill(~have, 0)
    factors = factors[weights > 0].sum(dim=1)
    every = [part[:READ_AT_LAST] for part in used_rows(z, have, weights)]
    z, have, weights = (part[:READ] for part in every)
    factors = factors[: len(z)]
    left_out = torch.arange(len(z), device=z.device) % LEFT_OUT == 0

    def likelihood(found: NormalMixture) -> float:
        logs = found.logs(z[left_out], have[left_out]).logsumexp(dim=1)
        return float(weights[left_out] @ (logs + factors[left_out]))

    is_compared = most > 1 or log_slopes is not None
    if len(z) < FEWEST or not is_compared:
        return one, likelihood(one)
    kept = [part[~left_out] for part in (z, have, weights)]
    few = begun = _single(*kept)
    best = likelihood(begun)
    while 2 * len(few.log_weights) <= most:
        more = _fitted(few.halved(), begun, few.completed(*kept[:2]), kept[2])
        found = likelihood(more)
        if not found > best:
            break
        few, best = more, found
    if few is begun:
        return one, best
    z, have, weights = every  # now with the rows that were left out
    return _fitted(few, one, few.completed(z, have), weights), best


def _single(z: Tensor, have: Tensor, weights: Tensor) -> NormalMixture:
    (center, covariance), read, prior = normal_moments(z, have, weights)
    deviation = covariance.diagonal().sqrt()
    covariances = floored(covariance[None], deviation)
    nothing = center.new_zeros(1)
    return NormalMixture(nothing, center[None], covariances, nothing + read + prior, nothing, read)


def _fitted(found: NormalMixture, one: NormalMixture, z: Tensor, weights: Tensor) -> NormalMixture:
    """Expectation maximisation on complete rows, from a mixture that was found before."""
    everything, size = one.covariances[0], z.shape[1]
    deviation, prior = everything.diagonal().sqrt(), PRIOR_STRENGTH * size
    precision = torch.linalg.inv(everything)
    for _ in range(ROUNDS):
        rows, sums, squares = _sums(found, z, weights)
        centers = sums / rows.clamp(min=torch.finfo(rows.dtype).tiny)[:, None]
        scatters = squares - sums[:, :, None] * centers[:, None]
        # How much each scatters relative to all, with one row more that scatters as much; at most
        # as much: a few rows that break a law would be taken for ones that follow none.
        beside = ((scatters * precision).sum(dim=(1, 2)) / size + 1) / (rows + 1)
        beside = beside.clamp(max=1)
        shrunk = scatters + prior * beside[:, None, None] * everything
        covariances = floored(shrunk / (rows + prior)[:, None, None], deviation)
        logs = (rows / rows.sum()).log()
        priors, read = torch.full_like(rows, prior), float(rows.sum())
        found = NormalMixture(logs, centers, covariances, rows, priors, read)
    return found


def _sums(found: NormalMixture, z: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of rows, numbers and their products by the responsibility of each normal.

    Shapes ``(normals,)``, ``(normals, numbers)`` and ``(normals, numbers, numbers)``.
    """
    count, size = found.centers.shape
    one = torch.eye(size, dtype=z.dtype, device=z.device).expand(count, -1, -1)
    inverse = torch.linalg.solve_triangular(
        torch.linalg.cholesky(found.covariances), one, upper=False
    )
    middles = inverse @ found.centers[:, :, None]  # (normals, numbers, 1)
    logs = found.log_weights + inverse.diagonal(dim1=1, dim2=2).log().sum(dim=1)
    rows, sums, squares = (
        z.new_zeros(count),
        z.new_zeros(count, size),
        z.new_zeros(count * size, size),
    )
    for part in torch.arange(len(z), device=z.device).split(max(1, ENTRIES // (count * size))):
        own = z[part]
        noise = (own @ inverse.flatten(0, 1).T).unflatten(1, (count, size)) - middles[:, :, 0]
        shares = (logs - 0.5 * noise.square().sum(dim=2)).softmax(dim=1) * weights[part, None]
        rows += shares.sum(dim=0)
        sums += shares.T @ own
        squares += (shares[:, :, None] * own[:, None]).flatten(1).T @ own
    return rows, sums, squares.unflatten(0, (count, size))


def floored(covariances: Tensor, deviation: Tensor) -> Tensor:
    """Raises eigenvalues that are next to nothing, or that single precision loses."""
    sizes, axes = torch.linalg.eigh(covariances / deviation / deviation[:, None])
    lost = 2 * sizes.shape[-1] * torch.finfo(torch.float32).eps * sizes[:, -1:]
    held = (axes * sizes.clamp(min=LEAST).maximum(lost).unsqueeze(-2)) @ axes.mT
    return held * deviation * deviation[:, None]
