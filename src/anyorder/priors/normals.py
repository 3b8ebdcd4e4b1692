"""Some joint normal distributions of numbers: the mean and deviation of each given any others.

They know lines, bends and clusters from few rows, where a network needs many to learn them. All
factors of a normal along a path come from one Cholesky decomposition: with the variables in the
order in which they become known, Sigma = L L', the factor of the k-th has the mean of what L's row
makes of those before it, and the deviation L_kk. What has become known before says how much each
normal counts. So a number given others has a *bell* of each normal: its share, mean and deviation.

Normals have read the rows that a network is trained on, and know them better than others: the
network would learn to believe them too much. So along the paths of training each is asked what it
would say had it not read its part of the row, which takes off a multiple of one outer product.

What normal distributions of numbers say of each row, as more and more of it becomes known.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from anyorder.priors.moments import bunches, conditioned, from_factor, in_rows, log_densities
from anyorder.priors.normal_mixture import normal_mixture
from anyorder.priors.scales import Units, UnitScales, chosen_units
from anyorder.variables import Schema

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


FEWEST = 100
"""Rows that can tell whether units are better than normal scores."""

MANY = 1e9
"""Rows of which one more or less does not count: those of a normal that has read none."""

FARTHEST = 1e4
"""No score is as far out: the bounds of a number of which nothing was seen."""

MOST_NORMALS, MOST_ENTRIES = 32, 2**17
"""Normals at most, and entries of their covariances: all are decomposed for every row."""

FEW_NORMALS = 4
"""Of which units are chosen by: to grow all of them for every choice takes minutes."""

NO_SHARE = -1e4
"""The log share of a bell that is not there."""

NOTHING = 1e-9
"""What is left of a normal without the only row that it was of."""


def most_normals(numbers: int, most: int = MOST_NORMALS) -> int:
    """Normals that a guide of so many numbers has room for."""
    return max(1, min(most, MOST_ENTRIES // max(1, numbers**2)))


class NormalGuide(nn.Module):
    """What numbers are given others, in units; nothing of other variables.

    A mean stays where its number was in the rows that were learnt from: lines lead anywhere.

    Args:
        schema: Its continuous variables are the numbers; context is not read.
        most: Normals at most.

    Example:
        >>> from anyorder.variables import Variable
        >>> guide = NormalGuide(Schema((Variable.continuous("a"), Variable.continuous("b"))))
        >>> a = torch.randn(1000, generator=torch.Generator().manual_seed(0))
        >>> guide.learn(torch.stack([a, a / 2], dim=1), torch.ones(1000, 2, dtype=torch.bool))
        >>> known = torch.tensor([[True, False]])
        >>> belief = guide.believe(torch.tensor([[2.0, 0.0]]), known)
        >>> mean, log_deviation, *bells = guide.ask(belief, torch.tensor([[1]])).unbind(dim=-1)
        >>> mean.round(decimals=2)
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
    leaning: Tensor
    seen: Tensor

    def __init__(self, schema: Schema, *, most: int = MOST_NORMALS) -> None:
        super().__init__()
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
        most = most_normals(size, most)
        # What is not needed has no weight, and is not looked at.
        self.register_buffer("weights", torch.eye(most)[0])
        self.register_buffer("centers", torch.zeros(most, size))
        self.register_buffer("covariances", torch.eye(size).repeat(most, 1, 1))
        self.register_buffer("rows", torch.full((most,), MANY))
        self.register_buffer("leaning", torch.zeros(most))
        ends = torch.tensor([-FARTHEST, FARTHEST])
        self.register_buffer("seen", ends[:, None].repeat(1, size))

    def learn(
        self,
        x: Tensor,
        have: Tensor,
        weights: Tensor | None = None,
        units: Units | None = None,
    ) -> None:
        """Reads the normals off rows; see `normal_mixture`.

        Args:
            x: Values. Shape ``(rows, columns)``.
            have: Which are there. Shape ``(rows, vars)``.
            weights: Of the rows. Shape ``(rows,)``.
            units: What the numbers are in the units of their columns; normals are of these where
                that makes left-out rows more probable.
        """
        there = have[:, self.numbers]
        weights = there.new_ones(len(x), dtype=torch.float64) if weights is None else weights
        values = x[:, self.numbers].double()
        most = len(self.weights)
        self.scales.reset()
        if units is not None and in_rows(weights).sum() >= FEWEST:
            self.scales.measure(values, there & (weights > 0)[:, None], units)
            values = self._measured(values, there, weights)
        found, _ = normal_mixture(values, there, weights, most=most)
        gone = ~there | (weights <= 0)[:, None]
        empty = gone.all(dim=0)
        self.seen[0] = values.masked_fill(gone, FARTHEST).amin(0).masked_fill(empty, -FARTHEST)
        self.seen[1] = values.masked_fill(gone, -FARTHEST).amax(0).masked_fill(empty, FARTHEST)
        shares = found.log_weights.exp().float()
        some = shares > 0
        self.weights.zero_()
        for buffer, part in zip(self._parts(), (shares, *found[1:3]), strict=True):
            buffer[: int(some.sum())] = part[some].to(buffer)
        # Training draws any row: each is forgotten as one of all, not of those that were read.
        equal = (weights > 0).sum() / max(found.read, 1.0)
        for buffer, part in ((self.rows, found.rows), (self.leaning, found.leaning)):
            buffer[: int(some.sum())] = (equal * part)[some].to(buffer)

    def _measured(self, z: Tensor, have: Tensor, weights: Tensor) -> Tensor:
        """All numbers in units, some, or none, by how probable few normals make left-out rows.

        Args:
            z: Normal scores. Shape ``(rows, numbers)``.
            have: Which are there.
            weights: Of the rows. Shape ``(rows,)``.
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

    @property
    def says(self) -> int:
        """Numbers that it says of a variable; see `ask`."""
        return 2 + 3 * len(self.weights)

    def alone(self) -> Tensor:
        """The bells of each number without evidence. Shape ``(numbers, 3 * normals)``."""
        nothing = torch.zeros(1, len(self.place), device=self.place.device)
        belief = self.believe(nothing, nothing.bool())
        return self.ask(belief, self.numbers[None])[0, :, 2:]

    def along(self, x: Tensor, *, query: Tensor, given: Tensor, rank: Tensor) -> Tensor:
        """What is said of each variable of a path, given all before it; see `ask`.

        See `PathNetwork.forward` for the arguments.

        Returns:
            Shape ``(batch, vars, says)``.
        """
        rank = rank.expand(given.shape)
        normals = self._normals()
        found = torch.zeros(*given.shape, self.says, dtype=torch.float32, device=x.device)
        for rows in bunches(len(x), normals[2].numel(), x.device):
            part = self._along(x[rows], query[rows], given[rows], rank[rows], *normals)
            found[rows[:, None], self.numbers] = part
        return found

    def _along(
        self,
        x: Tensor,
        query: Tensor,
        given: Tensor,
        rank: Tensor,
        log_weights: Tensor,
        centers: Tensor,
        covariances: Tensor,
    ) -> Tensor:
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
            rows, leaning = (b[: len(centers), None].to(x) for b in (self.rows, self.leaning))
            others = rows - shares
            logs = logs + (others / rows.clamp(min=NOTHING)).clamp(min=NOTHING).log()
            others = others.clamp(min=1)  # moments need some
            middle, lower, away = unread(middle, spread, away, shares, others, leaning)
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
        likely = -0.5 * noise.square() - deviations.log()
        # Nor in how much a normal counts.
        before = nn.functional.pad(likely[..., :-1], (1, 0)).cumsum(dim=-1)
        logs = logs[..., None] + before
        back = order.argsort(dim=1).expand(len(centers), -1, -1)
        deviations = deviations.expand_as(means)
        return self._said(*(part.gather(2, back) for part in (logs, means, deviations)))

    def _shares(
        self, x: Tensor, known: Tensor, log_weights: Tensor, centers: Tensor, covariances: Tensor
    ) -> Tensor:
        """How much of each row is of each normal, by what is known. Shape ``(normals, rows)``."""
        units = self.scales.to_units(x[:, self.numbers].to(centers))
        pairs = zip(centers, covariances, strict=True)
        logs = torch.stack([log_densities(units, known, *moments) for moments in pairs])
        return (log_weights[:, None] + logs).softmax(dim=0)

    def believe(self, x: Tensor, given: Tensor) -> Belief:
        """What is believed once the evidence is known; see `PathNetwork.encode`."""
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
        return Belief(
            logs=logs,
            mean=mean,
            group=group,
            covariance=covariance,
            evidence=torch.arange(len(sets), device=x.device),
            columns=covariance.new_zeros(len(centers), len(sets), 0, centers.shape[1]),
            variances=covariance.diagonal(dim1=-2, dim2=-1),
        )

    def tell(self, belief: Belief, variables: Tensor, values: Tensor) -> Belief:
        """After some variables became known; see `PathNetwork.tell`."""
        for variable, value in zip(variables.unbind(1), values.unbind(1), strict=True):
            place = self.place[variable]
            measured = self.scales.to_units(value.to(belief.mean), place)
            belief = belief.told(place, measured, self.is_number[variable])
        return belief

    def ask(self, belief: Belief, variables: Tensor) -> Tensor:
        """Mean and log deviation of variables; log shares, means, log deviations of their bells.

        All are 0 for what is no number.

        Returns:
            Shape ``(batch, tokens, says)``.
        """
        place, is_number = self.place[variables], self.is_number[variables]
        deviations = belief.variances[:, belief.group].clamp(min=LEAST**2).sqrt()
        said = self._said(belief.logs.unsqueeze(-1), belief.mean, deviations)
        asked = said.gather(1, place.unsqueeze(-1).expand(-1, -1, self.says))
        return asked.masked_fill(~is_number.unsqueeze(-1), 0)

    def _said(self, logs: Tensor, means: Tensor, deviations: Tensor) -> Tensor:
        """Moments and bells, held where numbers were seen: what a mean is held back widens it.

        No bell is wider than without evidence.

        Args:
            logs: Of the shares of bells, up to a constant. Shape ``(normals, rows, numbers or 1)``.
            means: Shape ``(normals, rows, numbers)``.
            deviations: Shape ``(normals, rows, numbers)``.
        """
        held = means.clamp(*self.seen.to(means))
        alone = self.covariances[: len(means)].diagonal(dim1=-2, dim2=-1).sqrt().to(means)
        back = torch.hypot(deviations, means - held)
        wide = back.minimum(alone[:, None]).maximum(deviations)
        log_shares = logs.log_softmax(dim=0).expand_as(means)
        mean, variance = _moments(log_shares, held, wide.square())
        bells = torch.stack([log_shares, held, wide.log()])  # (3, normals, rows, numbers)
        empty = bells.new_tensor([NO_SHARE, 0, 0])[:, None, None, None]
        absent = empty.expand(-1, len(self.weights) - len(means), *means.shape[1:])
        every = torch.cat([bells, absent], dim=1).flatten(0, 1)
        moments = torch.stack([mean, variance.sqrt().log()])
        return torch.cat([moments, every]).permute(1, 2, 0).float()

    def _normals(self) -> tuple[Tensor, Tensor, Tensor]:
        """Those that have a weight.

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
    middle: Tensor, spread: Tensor, away: Tensor, share: Tensor, others: Tensor, leaning: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Center, factor of the covariance, and a row less its center, had the row not been read.

    A row that stands out as none that was read can is left where it is.

    Args:
        middle: The center. Shape ``(normals, rows, numbers)``.
        spread: The covariance. Shape ``(normals, rows, numbers, numbers)``.
        away: The row less its center. Shape of `middle`.
        share: How much of the row was read. Shape ``(normals, rows)``.
        others: How many rows else. Shape of `share`.
        leaning: More rows that the covariance stands for. Shape of `share`, or one that expands.
    """
    part = (share / others)[..., None]
    total = (share + others + leaning)[..., None]
    less = part * (share + others)[..., None] / total
    outer = (less * away).unsqueeze(-1) * away.unsqueeze(-2)
    more = total / (total - share[..., None])
    lower, failed = torch.linalg.cholesky_ex(more[..., None] * (spread - outer))
    stays = (failed > 0)[..., None]
    if stays.any():
        lower = torch.where(stays[..., None], torch.linalg.cholesky(spread), lower)
    moved = (part * away).masked_fill(stays, 0)
    return middle - moved, lower, away + moved


def _moments(log_shares: Tensor, means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Of mixtures, from those of their parts along the first axis."""
    shares = log_shares.exp()
    mean = (shares * means).sum(dim=0)
    return mean, (shares * (variances + (means - mean).square())).sum(dim=0)
