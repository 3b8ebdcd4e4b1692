"""A joint normal distribution of numbers: the mean and deviation of each given any others.

It knows linear relations exactly from few rows, where a network needs many to learn them. All
factors along a path come from one Cholesky decomposition: with the variables in the order in which
they become known, Sigma = L L', the factor of the k-th has the mean of what L's row makes of those
before it, and the deviation L_kk.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder.networks.normal_moments import bunches, conditioned, normal_moments
from anyorder.variables import Schema

LEAST = 1e-4
"""Of the eigenvalues of the correlations: no number is taken for known from the others."""

FARTHEST = 1e4
"""No score is as far out: the bounds of a number of which nothing was seen."""


@dataclass(frozen=True)
class Belief:
    """What is believed of the numbers of each row, given what is known by now.

    Covariances depend on what is known, not on its values: rows that know the same share one.

    Args:
        mean: Shape ``(rows, numbers)``.
        covariance: Shape ``(groups, numbers, numbers)``.
        group: Which covariance is a row's. Shape ``(rows,)``.
    """

    mean: Tensor
    covariance: Tensor
    group: Tensor

    def at(self, rows: Tensor) -> "Belief":
        """That of some rows."""
        return Belief(self.mean[rows], self.covariance, self.group[rows])

    def told(self, place: Tensor, values: Tensor, counts: Tensor) -> "Belief":
        """After one number of each row became known.

        Args:
            place: Which. Shape ``(rows,)``.
            values: Shape ``(rows,)``.
            counts: False where nothing became known. Shape ``(rows,)``.
        """
        size = self.mean.shape[1] + 1
        key = self.group * size + place.masked_fill(~counts, size - 1)
        keys, group = key.unique(return_inverse=True)
        before, told = self.covariance[keys // size], keys % size
        is_told, told = told < size - 1, told.clamp(max=size - 2)
        one = torch.arange(len(keys), device=keys.device)
        column = before[one, :, told]  # (groups, numbers)
        gain = column / column[one, told, None].clamp(min=LEAST**2) * is_told[:, None]
        row = torch.arange(len(place), device=place.device)
        surprise = (values.to(gain.dtype) - self.mean[row, place]).masked_fill(~counts, 0)
        mean = self.mean + gain[group] * surprise[:, None]
        return Belief(mean, before - gain[:, :, None] * column[:, None], group)


class NormalGuide(nn.Module):
    """The mean and deviation of numbers given others; nothing of other variables.

    A mean stays where its number was in the rows that were learnt from: lines lead anywhere.

    Args:
        schema: Its continuous variables are the numbers; context is not read.

    Example:
        >>> from anyorder.variables import Variable
        >>> guide = NormalGuide(Schema((Variable.continuous("a"), Variable.continuous("b"))))
        >>> a = torch.randn(1000, generator=torch.Generator().manual_seed(0))
        >>> guide.learn(torch.stack([a, a / 2], dim=1), torch.ones(1000, 2, dtype=torch.bool))
        >>> known = torch.tensor([[True, False]])
        >>> belief = guide.believe(torch.tensor([[2.0, 0.0]]), known)
        >>> belief.mean.round(decimals=2)
        tensor([[2., 1.]], dtype=torch.float64)
    """

    numbers: Tensor
    place: Tensor
    is_number: Tensor
    center: Tensor
    covariance: Tensor
    seen: Tensor

    def __init__(self, schema: Schema) -> None:
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
        self.register_buffer("center", torch.zeros(len(numbers)))
        self.register_buffer("covariance", torch.eye(len(numbers)))
        ends = torch.tensor([-FARTHEST, FARTHEST])
        self.register_buffer("seen", ends[:, None].repeat(1, len(numbers)))

    def learn(self, x: Tensor, have: Tensor, weights: Tensor | None = None) -> None:
        """Reads means and covariances off rows; see `normal_moments`.

        Args:
            x: Values. Shape ``(rows, columns)``.
            have: Which are there. Shape ``(rows, vars)``.
            weights: Of the rows. Shape ``(rows,)``.
        """
        there = have[:, self.numbers]
        weights = there.new_ones(len(x), dtype=torch.float64) if weights is None else weights
        values = x[:, self.numbers].double()
        center, covariance = normal_moments(values, there, weights)
        deviation = covariance.diagonal().sqrt()
        size, axes = torch.linalg.eigh(covariance / deviation / deviation[:, None])
        correlation = (axes * size.clamp(min=LEAST)) @ axes.T
        gone = ~there | (weights <= 0)[:, None]
        empty = gone.all(dim=0)
        self.seen[0] = values.masked_fill(gone, FARTHEST).amin(0).masked_fill(empty, -FARTHEST)
        self.seen[1] = values.masked_fill(gone, -FARTHEST).amax(0).masked_fill(empty, FARTHEST)
        self.center.copy_(center)
        self.covariance.copy_(correlation * deviation * deviation[:, None])

    def along(
        self, x: Tensor, *, query: Tensor, given: Tensor, rank: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The mean and log deviation of each variable of a path, given all before it.

        They are 0 for what is no number. See `PathNetwork.forward` for the arguments.

        Returns:
            Two of shape ``(batch, vars)``.
        """
        rank = rank.expand(given.shape)
        found = torch.zeros(2, *given.shape, dtype=torch.float32, device=x.device)
        for rows in bunches(len(x), len(self.numbers), x.device):
            part = self._along(x[rows], query[rows], given[rows], rank[rows])
            found[:, rows[:, None], self.numbers] = part.float()
        return found[0], found[1]

    def _along(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> Tensor:
        given, query = given[:, self.numbers], query[:, self.numbers]
        behind = torch.iinfo(rank.dtype).max
        when = rank[:, self.numbers].masked_fill(~query, behind).masked_fill(given, -1)
        order = when.argsort(dim=1, stable=True)
        covariance = self._doubled(self.covariance)[order[:, :, None], order[:, None]]
        lower = torch.linalg.cholesky(covariance)
        away = self._away(x, given | query).gather(1, order)
        last = (given | query).sum(dim=1, keepdim=True) - 1
        away = away.scatter(1, last.clamp(min=0), 0)  # not read, and so need not be finite
        noise = torch.linalg.solve_triangular(lower, away.unsqueeze(-1), upper=False)
        # Without the diagonal: no number has a say in its own mean.
        mean = (lower.tril(-1) @ noise).squeeze(-1) + self._doubled(self.center)[order]
        back = order.argsort(dim=1)
        variance = lower.diagonal(dim1=1, dim2=2).square()
        return torch.stack(self._held(mean.gather(1, back), variance.gather(1, back)))

    def believe(self, x: Tensor, given: Tensor) -> Belief:
        """What is believed once the evidence is known; see `PathNetwork.encode`."""
        known = given[:, self.numbers]
        sets, group = known.unique(dim=0, return_inverse=True)
        away, mean = self._away(x, known), self._doubled(self.center).repeat(len(x), 1)
        left = []
        for part in bunches(len(sets), sets.shape[1], x.device):
            gain, covariance = conditioned(self._doubled(self.covariance), sets[part])
            left.append(covariance)
            mine = ((group >= part[0]) & (group <= part[-1])).nonzero()[:, 0]
            for bunch in bunches(len(mine), sets.shape[1], x.device):
                rows = mine[bunch]
                mean[rows] += (away[rows, None] @ gain[group[rows] - part[0]])[:, 0]
        return Belief(mean, torch.cat(left), group)

    def tell(self, belief: Belief, variables: Tensor, values: Tensor) -> Belief:
        """After some variables became known; see `PathNetwork.tell`."""
        for variable, value in zip(variables.unbind(1), values.unbind(1), strict=True):
            belief = belief.told(self.place[variable], value, self.is_number[variable])
        return belief

    def ask(self, belief: Belief, variables: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and log deviation of variables, two of shape ``(batch, tokens)``."""
        place, is_number = self.place[variables], self.is_number[variables]
        variance = belief.covariance.diagonal(dim1=1, dim2=2)[belief.group].clamp(min=LEAST**2)
        found = (part.gather(1, place).float() for part in self._held(belief.mean, variance))
        mean, log_deviation = (part.masked_fill(~is_number, 0) for part in found)
        return mean, log_deviation

    def _held(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Means where numbers were seen, and log deviations: what a mean is held back counts."""
        held = mean.clamp(*self.seen.to(mean))
        return held, 0.5 * (variance + (mean - held).square()).log()

    def _away(self, x: Tensor, known: Tensor) -> Tensor:
        """Known numbers less their means, and 0 for others."""
        away = self._doubled(x[:, self.numbers]) - self._doubled(self.center)
        return away.masked_fill(~known, 0)

    def _doubled(self, tensor: Tensor) -> Tensor:
        """Doubles where the device has them: differences of covariances lose digits."""
        return tensor.float() if tensor.device.type == "mps" else tensor.double()
