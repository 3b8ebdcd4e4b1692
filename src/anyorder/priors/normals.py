r"""Mixtures of joint normal distributions: the prior of numbers.

They know lines, bends and clusters from few rows, where a network needs many to learn them. All
factors of a normal along a path come from one Cholesky decomposition: with the variables in the
order in which they become known, Sigma = L L', the k-th given those before it has

    mean = mu_k + sum_{j<k} L_kj noise_j,    deviation = L_kk,    noise = L^-1 (x - mu),

and the weight of each normal is that of the mixture times its density of all that is known. So a
number given others has one *component* of each normal: its weight, mean and deviation.

The normals have read the rows that a network is trained on: the network would learn to trust them
too much. So in training the message about a row is that of normals which have not read it, each by
its responsibility for the row: that takes off a multiple of one outer product.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from anyorder.networks.contracts import PriorMessage
from anyorder.priors.contract import Prior, Units, UnitScales
from anyorder.priors.moments import (
    bunches,
    chosen_units,
    conditioned,
    from_factor,
    in_rows,
    log_densities,
)
from anyorder.priors.normal_mixture import normal_mixture
from anyorder.variables import Schema

LEAST = 1e-4
"""Smallest deviation of a number given others, which rounding could make 0."""


@dataclass(frozen=True)
class Posterior:
    """Distribution of the numbers of each row under each normal, given what is known by now.

    Covariances depend on which numbers are known, not on their values: rows that know the same are
    a group and share one. Each number that is told after the evidence takes off the outer product
    of one column: columns are kept in place of a covariance that changes at every step.

    Args:
        logs: Log weight of each normal, up to a constant. Shape ``(normals, rows)``.
        mean: Shape ``(normals, rows, numbers)``.
        group: Group of each row. Shape ``(rows,)``.
        covariance: Given the evidence. Shape ``(normals, sets, numbers, numbers)``.
        evidence: Place of each group in `covariance`. Shape ``(groups,)``.
        columns: Columns that were taken off. Shape ``(normals, groups, told, numbers)``.
        variances: Diagonal of what is left. Shape ``(normals, groups, numbers)``.
    """

    logs: Tensor
    mean: Tensor
    group: Tensor
    covariance: Tensor
    evidence: Tensor
    columns: Tensor
    variances: Tensor

    def at(self, rows: Tensor) -> "Posterior":
        """Selects rows."""
        return replace(
            self, logs=self.logs[:, rows], mean=self.mean[:, rows], group=self.group[rows]
        )

    def told(self, place: Tensor, values: Tensor, counts: Tensor) -> "Posterior":
        """Conditions on one more number of each row.

        Args:
            place: Which number. Shape ``(rows,)``.
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
        rows = torch.arange(len(place), device=place.device)
        error = (values.to(gain.dtype) - self.mean[:, rows, place]).masked_fill(~counts, 0)
        log_density = -0.5 * (error.square() / variance[:, group] + variance[:, group].log())
        return Posterior(
            logs=self.logs + log_density.masked_fill(~counts, 0),
            mean=self.mean + gain[:, group] * error.unsqueeze(-1),
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


FEWEST = 100
"""Fewest rows by which units or normal scores are chosen."""

MANY = 1e9
"""Rows of a normal that is not fitted yet: one more or less does not count."""

FARTHEST = 1e4
"""Bound of a number of which no value was seen: no score is as far out."""

MOST_NORMALS, MOST_ENTRIES = 32, 2**17
"""Largest number of normals, and of entries of their covariances, which are decomposed a row."""

FEW_NORMALS = 4
"""Normals by which units are chosen: to grow all of them for every choice takes minutes."""

NO_WEIGHT = -1e4
"""Log weight of a component that is not there."""

MOST_COLUMNS = 1200
"""Most numbers of a prior: a decomposition of their covariance for each row takes their cube."""

NOTHING = 1e-9
"""Share of its rows that a normal keeps without its only row."""


def most_normals(numbers: int, most: int = MOST_NORMALS) -> int:
    """Number of normals that a prior of so many numbers has room for."""
    return max(1, min(most, MOST_ENTRIES // max(1, numbers**2)))


class NormalPrior(Prior):
    """Mixture of normals over the numbers of a table, in units or normal scores.

    A mean stays within the range of its number in the rows of the fit: lines lead anywhere.

    Args:
        schema: Its continuous variables are the numbers; context is not read.
        most: Largest number of normals.

    Example:
        >>> from anyorder.variables import Variable
        >>> prior = NormalPrior(Schema((Variable.continuous("a"), Variable.continuous("b"))))
        >>> a = torch.randn(1000, generator=torch.Generator().manual_seed(0))
        >>> prior.fit(torch.stack([a, a / 2], dim=1), torch.ones(1000, 2, dtype=torch.bool))
        >>> given = torch.tensor([[True, False]])
        >>> state = prior.encode(torch.tensor([[2.0, 0.0]]), given)
        >>> prior.ask(state, torch.tensor([[1]])).location.round(decimals=2)
        tensor([[1.]])
    """

    scales: UnitScales
    numbers: Tensor
    place: Tensor
    is_number: Tensor
    weights: Tensor
    centers: Tensor
    covariances: Tensor
    rows: Tensor
    pseudo_counts: Tensor
    seen: Tensor

    def __init__(self, schema: Schema, *, most: int = MOST_NORMALS) -> None:
        super().__init__(schema)
        self.most = most
        asked = [variable for variable in schema if not variable.context]
        numbers = [i for i, variable in enumerate(asked) if variable.kind == "continuous"]
        place = torch.zeros(len(asked), dtype=torch.long)
        place[numbers] = torch.arange(len(numbers))
        is_number = torch.zeros(len(asked), dtype=torch.bool)
        is_number[numbers] = True
        self.register_buffer("numbers", torch.tensor(numbers, dtype=torch.long), persistent=False)
        self.register_buffer("place", place, persistent=False)
        self.register_buffer("is_number", is_number, persistent=False)
        size = len(numbers)
        self.scales = UnitScales(size)
        self.components = count = most_normals(size, most)
        # Normals that are not needed have no weight, and are not read.
        self.register_buffer("weights", torch.eye(count)[0])
        self.register_buffer("centers", torch.zeros(count, size))
        self.register_buffer("covariances", torch.eye(size).repeat(count, 1, 1))
        self.register_buffer("rows", torch.full((count,), MANY))
        self.register_buffer("pseudo_counts", torch.zeros(count))
        ends = torch.tensor([-FARTHEST, FARTHEST])
        self.register_buffer("seen", ends[:, None].repeat(1, size))

    @property
    def number_scales(self) -> UnitScales:
        """Scales of the numbers."""
        return self.scales

    def fit(
        self,
        x: Tensor,
        have: Tensor,
        weights: Tensor | None = None,
        *,
        units: Units | None = None,
    ) -> None:
        """Fits the normals to rows; see `Prior.fit` and `normal_mixture`.

        Numbers are taken in their units where that makes left-out rows more probable.
        """
        there = have[:, self.numbers]
        weights = there.new_ones(len(x), dtype=torch.float64) if weights is None else weights
        values = x[:, self.numbers].double()
        self.scales.reset()
        if units is not None and in_rows(weights).sum() >= FEWEST:
            self.scales.measure(values, there & (weights > 0)[:, None], units)
            values = self._measured(values, there, weights)
        found, _ = normal_mixture(values, there, weights, most=self.components)
        gone = ~there | (weights <= 0)[:, None]
        empty = gone.all(dim=0)
        self.seen[0] = values.masked_fill(gone, FARTHEST).amin(0).masked_fill(empty, -FARTHEST)
        self.seen[1] = values.masked_fill(gone, -FARTHEST).amax(0).masked_fill(empty, FARTHEST)
        shares = found.log_weights.exp().float()
        some = shares > 0
        self.weights.zero_()
        for buffer, part in zip(self._parts(), (shares, *found[1:3]), strict=True):
            buffer[: int(some.sum())] = part[some].to(buffer)
        # Training samples any row: each is taken off as one of all, not of those that were read.
        equal = (weights > 0).sum() / max(found.read, 1.0)
        for buffer, part in ((self.rows, found.rows), (self.pseudo_counts, found.pseudo_counts)):
            buffer[: int(some.sum())] = (equal * part)[some].to(buffer)

    def _measured(self, z: Tensor, have: Tensor, weights: Tensor) -> Tensor:
        """All numbers in units, some, or none, by the left-out likelihood of few normals.

        Args:
            z: Normal scores. Shape ``(rows, numbers)``.
            have: False for missing values.
            weights: Weights of the rows. Shape ``(rows,)``.
        """
        units, slopes = self.scales.to_units(z), self.scales.log_slopes(z)
        chosen = chosen_units(z, units, slopes, have, weights)
        choices = [torch.zeros_like(chosen), torch.ones_like(chosen)]
        choices += [chosen] if chosen.any() and not chosen.all() else []

        def nats(choice: Tensor) -> float:
            measured, factors = torch.where(choice, units, z), slopes * choice
            few = min(FEW_NORMALS, len(self.weights))
            return normal_mixture(measured, have, weights, most=few, log_slopes=factors)[1]

        best = max(choices, key=nats)
        self.scales.reset(keep=best)
        return torch.where(best, units, z)

    def along(self, x: Tensor, *, query: Tensor, given: Tensor, rank: Tensor) -> PriorMessage:
        """Message about each variable of a path; see `Prior.along`."""
        rank, normals = rank.expand(given.shape), self._normals()
        parts = [
            self._along(x[rows], query[rows], given[rows], rank[rows], *normals)
            for rows in bunches(len(x), normals[2].numel(), x.device)
        ]

        def placed(*parts: Tensor) -> Tensor:
            every = parts[0].new_zeros(*given.shape, *parts[0].shape[2:])
            every[:, self.numbers] = torch.cat(parts)
            return every

        return parts[0].map(placed, *parts[1:])

    def _along(
        self,
        x: Tensor,
        query: Tensor,
        given: Tensor,
        rank: Tensor,
        log_weights: Tensor,
        centers: Tensor,
        covariances: Tensor,
    ) -> PriorMessage:
        given, query = given[:, self.numbers], query[:, self.numbers]
        behind = torch.iinfo(rank.dtype).max
        when = rank[:, self.numbers].masked_fill(~query, behind).masked_fill(given, -1)
        order = when.argsort(dim=1, stable=True)
        each = order.expand(len(centers), -1, -1)
        away = self._away(x, given | query, centers).gather(2, each)
        middle, spread = centers[:, order], covariances[:, order[:, :, None], order[:, None]]
        logs = log_weights[:, None].expand(-1, len(x))
        if self.training:
            shares = self._shares(x, given | query, log_weights, centers, covariances)
            buffers = self.rows, self.pseudo_counts
            rows, pseudo_counts = (part[: len(centers), None].to(x) for part in buffers)
            others = rows - shares
            logs = logs + (others / rows.clamp(min=NOTHING)).clamp(min=NOTHING).log()
            others = others.clamp(min=1)  # moments need some
            middle, lower, away = unread(middle, spread, away, shares, others, pseudo_counts)
        else:
            lower = torch.linalg.cholesky(spread)
        last = (given | query).sum(dim=1, keepdim=True) - 1
        # Not read, and so need not be finite.
        away = away.scatter(2, last.clamp(min=0).expand(len(centers), -1, -1), 0)
        noise = torch.linalg.solve_triangular(lower, away.unsqueeze(-1), upper=False).squeeze(-1)
        scale = lower.diagonal(dim1=-2, dim2=-1)
        # Without the diagonal: no number has a say in its own mean.
        means = away - scale * noise + middle
        deviations = scale.clamp(min=LEAST)
        log_density = -0.5 * noise.square() - deviations.log()
        # Nor in the weight of a normal.
        before = nn.functional.pad(log_density[..., :-1], (1, 0)).cumsum(dim=-1)
        logs = logs[..., None] + before
        back = order.argsort(dim=1).expand(len(centers), -1, -1)
        deviations = deviations.expand_as(means)
        return self._message(*(part.gather(2, back) for part in (logs, means, deviations)))

    def _shares(
        self, x: Tensor, known: Tensor, log_weights: Tensor, centers: Tensor, covariances: Tensor
    ) -> Tensor:
        """Responsibility of each normal for what is known of a row. Shape ``(normals, rows)``."""
        units = self.scales.to_units(x[:, self.numbers].to(centers))
        pairs = zip(centers, covariances, strict=True)
        logs = torch.stack([log_densities(units, known, *moments) for moments in pairs])
        return (log_weights[:, None] + logs).softmax(dim=0)

    def encode(self, x: Tensor, given: Tensor) -> Posterior:
        """Conditions on the evidence; see `Prior.encode`."""
        known = given[:, self.numbers]
        sets, group = known.unique(dim=0, return_inverse=True)
        log_weights, centers, covariances = self._normals()
        away, mean = self._away(x, known, centers), centers[:, None].repeat(1, len(x), 1)
        logs, left = log_weights[:, None].repeat(1, len(x)), []
        for part in bunches(len(sets), covariances.numel(), x.device):
            gain, covariance, lower = conditioned(covariances, sets[part])
            left.append(covariance)
            mine = ((group >= part[0]) & (group <= part[-1])).nonzero()[:, 0]
            for bunch in bunches(len(mine), covariances.numel(), x.device):
                rows = mine[bunch]
                own = group[rows] - part[0]
                mean[:, rows] += (away[:, rows, None] @ gain[:, own])[:, :, 0]
                logs[:, rows] += from_factor(lower[:, own], away[:, rows])
        covariance = torch.cat(left, dim=1)
        return Posterior(
            logs=logs,
            mean=mean,
            group=group,
            covariance=covariance,
            evidence=torch.arange(len(sets), device=x.device),
            columns=covariance.new_zeros(len(centers), len(sets), 0, centers.shape[1]),
            variances=covariance.diagonal(dim1=-2, dim2=-1),
        )

    def tell(self, state: Posterior, variables: Tensor, values: Tensor) -> Posterior:
        """Conditions on more variables; see `Prior.tell`."""
        for variable, value in zip(variables.unbind(1), values.unbind(1), strict=True):
            place = self.place[variable]
            measured = self.scales.to_units(value.to(state.mean), place)
            state = state.told(place, measured, self.is_number[variable])
        return state

    def ask(self, state: Posterior, variables: Tensor) -> PriorMessage:
        """Message about variables; see `Prior.ask`."""
        place, other = self.place[variables], ~self.is_number[variables]
        rows = torch.arange(len(place), device=place.device)[:, None]
        variances = state.variances[:, state.group[:, None], place]
        deviations = variances.clamp(min=LEAST**2).sqrt()
        means = state.mean[:, rows, place]
        message = self._message(state.logs.unsqueeze(-1), means, deviations, place)
        return message.map(
            lambda part: part.masked_fill(other if part.ndim == 2 else other[..., None], 0)
        )

    def _message(
        self, logs: Tensor, means: Tensor, deviations: Tensor, place: Tensor | slice = slice(None)
    ) -> PriorMessage:
        """Message within the range of the numbers: what a mean is held back widens it.

        No component is wider than without evidence.

        Args:
            logs: Log weights, up to a constant. Shape ``(normals, rows, numbers or 1)``.
            means: Shape ``(normals, rows, numbers)``.
            deviations: Shape ``(normals, rows, numbers)``.
            place: Which numbers of each row; all by default. Shape ``(rows, numbers)``.
        """
        held = means.clamp(*self.seen.to(means)[:, place])
        alone = self.covariances[: len(means)].diagonal(dim1=-2, dim2=-1).sqrt().to(means)
        alone = alone[:, None] if isinstance(place, slice) else alone[:, place]
        back = torch.hypot(deviations, means - held)
        wide = back.minimum(alone).maximum(deviations)
        log_weights = logs.log_softmax(dim=0).expand_as(means)
        mean, variance = _moments(log_weights, held, wide.square())
        absent = self.components - len(means)

        def component(part: Tensor, value: float) -> Tensor:
            return nn.functional.pad(part.movedim(0, -1), (0, absent), value=value).float()

        return PriorMessage(
            mean.float(),
            variance.sqrt().log().float(),
            component(log_weights, NO_WEIGHT),
            component(held, 0),
            component(wide.log(), 0),
        )

    def _normals(self) -> tuple[Tensor, Tensor, Tensor]:
        """Log weights, centers and covariances of the normals that have a weight.

        Doubles where the device has them: differences of covariances lose digits.
        """
        some = int((self.weights > 0).sum())
        kind = torch.float32 if self.centers.device.type == "mps" else torch.float64
        weights, centers, covariances = (part[:some].to(kind) for part in self._parts())
        return weights.log(), centers, covariances

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.weights, self.centers, self.covariances

    def _away(self, x: Tensor, known: Tensor, centers: Tensor) -> Tensor:
        """Known numbers less their means, and 0 for others. Shape ``(normals, rows, numbers)``."""
        away = self.scales.to_units(x[:, self.numbers].to(centers)) - centers[:, None]
        return away.masked_fill(~known, 0)


def unread(
    middle: Tensor,
    spread: Tensor,
    away: Tensor,
    share: Tensor,
    others: Tensor,
    pseudo_counts: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Center, factor of the covariance, and a row less its center, of a fit without the row.

    A row that stands out as none that was read can is left as it is.

    Args:
        middle: The center. Shape ``(normals, rows, numbers)``.
        spread: The covariance. Shape ``(normals, rows, numbers, numbers)``.
        away: The row less its center. Shape of `middle`.
        share: Responsibility for the row. Shape ``(normals, rows)``.
        others: Number of other rows. Shape of `share`.
        pseudo_counts: More rows that the covariance stands for. Shape of `share`, or one that
            expands.
    """
    part = (share / others)[..., None]
    total = (share + others + pseudo_counts)[..., None]
    less = part * (share + others)[..., None] / total
    outer = (less * away).unsqueeze(-1) * away.unsqueeze(-2)
    more = total / (total - share[..., None])
    lower, failed = torch.linalg.cholesky_ex(more[..., None] * (spread - outer))
    stays = (failed > 0)[..., None]
    if stays.any():
        lower = torch.where(stays[..., None], torch.linalg.cholesky(spread), lower)
    moved = (part * away).masked_fill(stays, 0)
    return middle - moved, lower, away + moved


def _moments(log_weights: Tensor, means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of mixtures from those of their components along the first axis."""
    weights = log_weights.exp()
    mean = (weights * means).sum(dim=0)
    return mean, (weights * (variances + (means - mean).square())).sum(dim=0)
