"""What a joint normal distribution of all columns says of categories.

Levels stand for numbers, and numbers as they are. The mean of an indicator, given all that is
known, is the best linear guess of its probability: what a regression on the known columns would
say, for every set of known columns from one covariance.

Each level of a category as a number, so that a normal distribution can have it beside others.

Of two levels all numbers say the same. Several levels get those that go along best with the other
columns: of all ways to number them, the one that tells most of numbers and of levels of other
categories, by the sum of squared correlations (of levels each by its share of a category's), which
a singular value decomposition finds.

Reference: Gifi (1990), Nonlinear Multivariate Analysis: levels that are quantified.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from anyorder.priors.normals import Belief, NormalGuide
from anyorder.priors.scales import Units
from anyorder.variables import Schema, Variable

READ, CELLS = 20_000, 2**23
"""Rows and cells that are read, of as many as there are."""

FACETS = 64
"""Levels of a category by which others are numbered; of more, each has few rows to tell of."""

LEAST = 1e-6
"""Of the deviation of numbers: of one level there is none."""

DOUBT = 5.0
"""Rows without any relation beside those of each level: of few rows little is known."""


def level_scores(
    codes: Tensor,
    numbers: Tensor,
    have: Tensor,
    weights: Tensor | None = None,
    *,
    sizes: Sequence[int],
) -> Tensor:
    """Numbers for the levels of categories, of mean 0 and deviation 1 over the rows, in doubles.

    Args:
        codes: Of the levels. Shape ``(rows, categories)``.
        numbers: Normal scores. Shape ``(rows, numbers)``.
        have: Which are there, of the codes and then of the numbers.
        weights: Of the rows; their unit does not matter. Shape ``(rows,)``.
        sizes: How many levels each category has.

    Returns:
        Shape ``(categories, most levels)``; 0 for levels that a category does not have.

    Example:
        >>> codes, number = torch.tensor([[0, 1, 2, 0]]), torch.tensor([[1.0, -3.0, 1.0, 1.0]])
        >>> here = torch.ones(4, 2, dtype=torch.bool)
        >>> level_scores(codes.T, number.T, here, sizes=[3]).abs().argmax(dim=1)
        tensor([1])
    """
    weights = torch.ones(len(codes), device=codes.device) if weights is None else weights
    most = CELLS // max(1, numbers.shape[1] + sum(size for size in sizes if size <= FACETS))
    used = (weights > 0).nonzero().squeeze(1)[: min(READ, most)]
    codes, numbers, have, weights = codes[used], numbers[used], have[used], weights[used].double()
    if len(used):
        weights = weights / weights.max()
        weights = weights * (weights.sum() / weights.square().sum())  # as many as they are worth
    shares = [_shares(codes[:, i], have[:, i], weights, size) for i, size in enumerate(sizes)]
    facets, counted, owner = _facets(codes, numbers, have, weights, shares)
    found = torch.zeros(len(sizes), max(sizes, default=0), dtype=torch.float64).to(codes.device)
    for place, share in enumerate(shares):
        scores = torch.arange(len(share)).to(share)
        if len(share) > 2:
            rows, empty = have[:, place], facets.new_zeros(len(share), facets.shape[1])
            sums = empty.index_add(0, codes[rows, place], facets[rows])
            total = empty.index_add(0, codes[rows, place], counted[rows])
            others = owner != place
            scores = _followed(sums[:, others], total[:, others], share)
        away = scores - share @ scores
        found[place, : len(share)] = away / (share @ away.square()).sqrt().clamp(min=LEAST)
    return found


def _shares(codes: Tensor, have: Tensor, weights: Tensor, size: int) -> Tensor:
    """Of each level, half a row more than there are: none is impossible."""
    counts = torch.full((size,), 0.5, dtype=torch.float64, device=codes.device)
    counts.index_add_(0, codes[have], weights[have])
    return counts / counts.sum()


def _facets(
    codes: Tensor, numbers: Tensor, have: Tensor, weights: Tensor, shares: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """What categories are numbered by, times the weights of its rows; these; whose levels it is.

    Numbers are nobody's. An indicator is divided by the root of its share, so that all of a
    category count alike.
    """
    there = have[:, len(shares) :]
    count = (weights @ there.double()).clamp(min=LEAST)
    away = numbers.double().masked_fill(~there, 0)
    away = (away - weights @ away / count).masked_fill(~there, 0)
    facets = [away / (weights @ away.square() / count).sqrt().clamp(min=LEAST)]
    counted, owner = [there], [-1] * numbers.shape[1]
    for place, share in enumerate(shares):
        if len(share) <= FACETS:
            hit = codes[:, place, None] == torch.arange(len(share), device=codes.device)
            mine = have[:, place, None].expand(hit.shape)
            facets.append(((hit.double() - share) / share.sqrt()).masked_fill(~mine, 0))
            counted.append(mine)
            owner += [place] * len(share)
    rows = weights[:, None]
    whose = torch.tensor(owner, device=codes.device)
    return torch.cat(facets, dim=1) * rows, torch.cat(counted, dim=1) * rows, whose


def _followed(sums: Tensor, counted: Tensor, share: Tensor) -> Tensor:
    """Of numbers for levels those that the means of all else follow best; any, if nothing does.

    Args:
        sums: Of all else over the rows of each level. Shape ``(levels, facets)``.
        counted: Rows that have it.
        share: Of each level.
    """
    mean = sums.sum(dim=0) / counted.sum(dim=0).clamp(min=LEAST)
    means = (sums - mean * counted) / (counted + DOUBT)
    root = share.sqrt()[:, None]
    weighed = means * root
    weighed = weighed - root * (root.T @ weighed)  # one number for all levels says nothing
    if not (weighed.abs() > LEAST).any():
        return torch.arange(len(share)).to(share)
    left = torch.linalg.svd(weighed, full_matrices=False)[0]
    return left[:, 0] / share.sqrt()


SUREST, SHARE = 0.01, 0.3
"""No level is less probable by the guide, or than this part of its share of the rows: lines lead
below 0 and above 1."""


class LevelGuide(nn.Module):
    """What categories are given other columns; nothing of numbers, which have a guide of their own.

    Args:
        schema: The variables; context is not read.

    Example:
        >>> guide = LevelGuide(Schema(tuple(Variable.categorical(n, ["no", "yes"]) for n in "ab")))
        >>> x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]).repeat(500, 1)
        >>> guide.learn(x, torch.ones_like(x, dtype=torch.bool))
        >>> belief = guide.believe(x[:1], torch.tensor([[True, False]]))
        >>> logit, log_deviation = guide.ask(belief, torch.tensor([[1]])).unbind(dim=-1)
        >>> logit.sigmoid().round(decimals=2)
        tensor([[0.5000]])
    """

    says = 2
    categories: Tensor
    place: Tensor
    has_two: Tensor
    scores: Tensor

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        asked = [variable for variable in schema if not variable.context]
        categories = [i for i, variable in enumerate(asked) if variable.kind == "categorical"]
        self.sizes = [asked[i].num_levels for i in categories]
        place = torch.full((len(asked),), -1)
        place[categories] = torch.arange(len(categories))
        has_two = torch.tensor([variable.num_levels == 2 for variable in asked])
        self.register_buffer("categories", torch.tensor(categories), persistent=False)
        self.register_buffer("place", place, persistent=False)
        self.register_buffer("has_two", has_two, persistent=False)
        self.register_buffer("scores", torch.zeros(len(categories), max([2, *self.sizes])))
        columns = Schema(tuple(Variable.continuous(variable.name) for variable in asked))
        self.normal = NormalGuide(columns, most=1)

    def learn(
        self,
        x: Tensor,
        have: Tensor,
        weights: Tensor | None = None,
        units: Units | None = None,  # noqa: ARG002
    ) -> None:
        """Numbers the levels, and reads the normal off rows; see `NormalGuide.learn`.

        Numbers stay normal scores, whatever their units are.
        """
        is_number = self.place < 0
        numbers, own = x[:, : len(is_number)][:, is_number], x[:, self.categories].long()
        there = torch.cat([have[:, self.categories], have[:, is_number]], dim=1)
        found = level_scores(own, numbers, there, weights, sizes=self.sizes)
        self.scores[:, : found.shape[1]] = found
        self.normal.learn(self._as_numbers(x), have, weights)

    def along(self, x: Tensor, *, query: Tensor, given: Tensor, rank: Tensor) -> Tensor:
        """What is said of each variable of a path, given all before it; see `ask`.

        See `PathNetwork.forward` for the arguments.

        Returns:
            Shape ``(batch, vars, says)``.
        """
        said = self.normal.along(self._as_numbers(x), query=query, given=given, rank=rank)
        return self._of_levels(said, torch.arange(given.shape[1], device=x.device))

    def believe(self, x: Tensor, given: Tensor) -> Belief:
        """What is believed once the evidence is known; see `PathNetwork.encode`."""
        return self.normal.believe(self._as_numbers(x), given)

    def tell(self, belief: Belief, variables: Tensor, values: Tensor) -> Belief:
        """After some variables became known; see `PathNetwork.tell`."""
        return self.normal.tell(belief, variables, self._numbered(variables, values))

    def ask(self, belief: Belief, variables: Tensor) -> Tensor:
        """Of a category with two levels the logit of the second, of others the mean number.

        Beside it the log deviation of the number. Both are 0 for what is no category.

        Returns:
            Shape ``(batch, tokens, says)``.
        """
        return self._of_levels(self.normal.ask(belief, variables), variables)

    def _of_levels(self, moments: Tensor, variables: Tensor) -> Tensor:
        mean, log_deviation = moments[..., 0], moments[..., 1]
        low, high = self.scores[self.place[variables], :2].unbind(dim=-1)
        usual, guess = -low / (high - low), (mean - low) / (high - low)
        least, most = SHARE * usual, 1 - SHARE * (1 - usual)
        share = guess.clamp(min=least.clamp(max=SUREST), max=most.clamp(min=1 - SUREST))
        said = torch.where(self.has_two[variables], share.logit(), mean)
        is_number = self.place[variables] < 0
        found = torch.stack([said, log_deviation], dim=-1)
        return found.masked_fill(is_number.unsqueeze(-1), 0)

    def _as_numbers(self, x: Tensor) -> Tensor:
        x = x[:, : len(self.place)]
        return self._numbered(torch.arange(len(self.place), device=x.device), x)

    def _numbered(self, variables: Tensor, values: Tensor) -> Tensor:
        """Values with levels as their numbers; what is missing may have any code."""
        codes = values.long().clamp(0, self.scores.shape[1] - 1)
        levels = self.scores[self.place[variables], codes]
        return torch.where(self.place[variables] < 0, values.to(levels.dtype), levels)
