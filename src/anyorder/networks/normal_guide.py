"""A joint normal distribution of numbers: the mean and deviation of each given any others.

It knows linear relations exactly from few rows, where a network needs many to learn them. All
factors along a path come from one Cholesky decomposition: with the variables in the order in which
they become known, Sigma = L L', the factor of the k-th has the mean of what L's row makes of those
before it, and the deviation L_kk.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder.variables import Schema

LEAST = 1e-4
"""Of the eigenvalues of the correlations: no number is taken for known from the others."""

ENTRIES = 2**22
"""Of covariances that are decomposed at a time: 32 megabytes."""


@dataclass(frozen=True)
class Belief:
    """What is believed of the numbers of each row, given what is known by now.

    Args:
        mean: Shape ``(rows, numbers)``.
        covariance: Shape ``(rows, numbers, numbers)``.
    """

    mean: Tensor
    covariance: Tensor

    def at(self, rows: Tensor) -> "Belief":
        """That of some rows."""
        return Belief(self.mean[rows], self.covariance[rows])

    def told(self, place: Tensor, values: Tensor, counts: Tensor) -> "Belief":
        """After one number of each row became known.

        Args:
            place: Which. Shape ``(rows,)``.
            values: Shape ``(rows,)``.
            counts: False where nothing became known. Shape ``(rows,)``.
        """
        row = torch.arange(len(place), device=place.device)
        column = self.covariance[row, :, place]
        gain = column / column[row, place, None].clamp(min=LEAST**2) * counts[:, None]
        surprise = values.to(gain.dtype) - self.mean[row, place]
        return Belief(
            self.mean + gain * surprise.masked_fill(~counts, 0)[:, None],
            self.covariance - gain[:, :, None] * column[:, None],
        )


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
        ends = torch.tensor([-torch.inf, torch.inf])
        self.register_buffer("seen", ends[:, None].repeat(1, len(numbers)))

    def learn(self, x: Tensor, have: Tensor, weights: Tensor | None = None) -> None:
        """Reads means and covariances off rows, each from those that have both numbers.

        Args:
            x: Values. Shape ``(rows, columns)``.
            have: Which are there. Shape ``(rows, vars)``.
            weights: Of the rows. Shape ``(rows,)``.
        """
        there = have[:, self.numbers].double()
        if weights is not None:
            there = there * weights.double().clamp(min=0).sqrt()[:, None]
        values = x[:, self.numbers].double().masked_fill(there == 0, 0)
        center = (there.square() * values).sum(0) / there.square().sum(0).clamp(min=1e-9)
        away = (values - center) * there
        covariance = away.T @ away / (there.T @ there).clamp(min=1e-9)
        deviation = covariance.diagonal().clamp(min=LEAST).sqrt()
        correlation = covariance / deviation / deviation[:, None]
        # Of pairs of columns that rarely meet it need not be one: the nearest that is.
        size, axes = torch.linalg.eigh(correlation)
        correlation = (axes * size.clamp(min=LEAST)) @ axes.T
        gone, inf = there == 0, torch.inf
        empty = gone.all(dim=0)
        self.seen[0] = values.masked_fill(gone, inf).amin(0).masked_fill(empty, -inf)
        self.seen[1] = values.masked_fill(gone, -inf).amax(0).masked_fill(empty, inf)
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
        if len(self.numbers):
            at_once = max(1, ENTRIES // len(self.numbers) ** 2)
            for rows in torch.arange(len(x), device=x.device).split(at_once):
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
        noise = torch.linalg.solve_triangular(lower, away.unsqueeze(-1), upper=False)
        # Without the diagonal: no number has a say in its own mean.
        mean = (lower.tril(-1) @ noise).squeeze(-1) + self._doubled(self.center)[order]
        log_deviation = lower.diagonal(dim1=1, dim2=2).log()
        back = order.argsort(dim=1)
        mean = mean.gather(1, back).clamp(*self.seen.to(mean))
        return torch.stack([mean, log_deviation.gather(1, back)])

    def believe(self, x: Tensor, given: Tensor) -> Belief:
        """What is believed once the evidence is known; see `PathNetwork.encode`."""
        known, covariance = given[:, self.numbers], self._doubled(self.covariance)
        cross = covariance * known[:, :, None]  # (batch, known numbers, numbers)
        unknown = torch.diag_embed(
            (~known).to(covariance)
        )  # what is not known has a row of its own
        gain = torch.cholesky_solve(cross, torch.linalg.cholesky(cross * known[:, None] + unknown))
        mean = self._doubled(self.center) + (self._away(x, known)[:, None] @ gain)[:, 0]
        return Belief(mean, covariance - cross.mT @ gain)

    def tell(self, belief: Belief, variables: Tensor, values: Tensor) -> Belief:
        """After some variables became known; see `PathNetwork.tell`."""
        for variable, value in zip(variables.unbind(1), values.unbind(1), strict=True):
            belief = belief.told(self.place[variable], value, self.is_number[variable])
        return belief

    def ask(self, belief: Belief, variables: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and log deviation of variables, two of shape ``(batch, tokens)``."""
        place, is_number = self.place[variables], self.is_number[variables]
        variance = belief.covariance.diagonal(dim1=1, dim2=2).gather(1, place)
        log_deviation = 0.5 * variance.clamp(min=LEAST**2).log()
        mean = belief.mean.clamp(*self.seen.to(belief.mean)).gather(1, place)
        found = (mean.float(), log_deviation.float())
        return found[0].masked_fill(~is_number, 0), found[1].masked_fill(~is_number, 0)

    def _away(self, x: Tensor, known: Tensor) -> Tensor:
        """Known numbers less their means, and 0 for others."""
        away = self._doubled(x[:, self.numbers]) - self._doubled(self.center)
        return away.masked_fill(~known, 0)

    def _doubled(self, tensor: Tensor) -> Tensor:
        """Doubles where the device has them: differences of covariances lose digits."""
        return tensor.float() if tensor.device.type == "mps" else tensor.double()
