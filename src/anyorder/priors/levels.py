"""One joint normal distribution over the scores of levels: the prior of categories.

Each level of a category gets a number, its *score*, so that one normal distribution holds all
columns. The mean of an indicator given all that is known is the best linear guess of its
probability: a regression on the known columns, for every set of them, from one covariance.

Any two scores serve two levels. Several levels get those that correlate best with the other
columns: the greatest sum of squared correlations with numbers and with indicators of other
categories (each by its share of its category), which a singular value decomposition finds.

Reference: Gifi (1990), Nonlinear Multivariate Analysis: quantified levels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from anyorder.networks.contracts import PriorMessage
from anyorder.priors.contract import Prior, SummedPrior
from anyorder.priors.normals import NormalPrior, Posterior
from anyorder.priors.scales import Units
from anyorder.variables import Schema, Variable

READ, CELLS = 20_000, 2**23
"""Largest number of rows and cells that are read."""

FACETS = 64
"""Most levels of a category by which others are scored; of more, each has few rows."""

LEAST = 1e-6
"""Smallest deviation of scores: one level has none."""

PSEUDO_COUNTS = 5.0
"""Rows without any relation beside those of each level: few rows tell little."""


def level_scores(
    codes: Tensor,
    numbers: Tensor,
    have: Tensor,
    weights: Tensor | None = None,
    *,
    sizes: Sequence[int],
) -> Tensor:
    """Scores of the levels of categories, of mean 0 and deviation 1 over the rows, in doubles.

    Args:
        codes: Codes of the levels. Shape ``(rows, categories)``.
        numbers: Normal scores. Shape ``(rows, numbers)``.
        have: False for missing values, of the codes and then of the numbers.
        weights: Weights of the rows, in any unit. Shape ``(rows,)``.
        sizes: Number of levels of each category.

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
    """Share of each level, with half a row more than there are: none is impossible."""
    counts = torch.full((size,), 0.5, dtype=torch.float64, device=codes.device)
    counts.index_add_(0, codes[have], weights[have])
    return counts / counts.sum()


def _facets(
    codes: Tensor, numbers: Tensor, have: Tensor, weights: Tensor, shares: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Columns that levels are scored by, times the weights of the rows; these; their categories.

    Numbers have category -1. An indicator is divided by the root of its share, so that all of a
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
    """Scores of levels that the means of all else follow best; any, if nothing does.

    Args:
        sums: Sums of all else over the rows of each level. Shape ``(levels, facets)``.
        counted: Rows that have it.
        share: Share of each level.
    """
    mean = sums.sum(dim=0) / counted.sum(dim=0).clamp(min=LEAST)
    means = (sums - mean * counted) / (counted + PSEUDO_COUNTS)
    root = share.sqrt()[:, None]
    weighed = means * root
    weighed = weighed - root * (root.T @ weighed)  # one score for all levels tells nothing
    if not (weighed.abs() > LEAST).any():
        return torch.arange(len(share)).to(share)
    left = torch.linalg.svd(weighed, full_matrices=False)[0]
    return left[:, 0] / share.sqrt()


SUREST, SHARE = 0.01, 0.3
"""Least probability of a level, or this part of its share of the rows if that is less: lines lead
below 0 and above 1."""


class LevelPrior(Prior):
    """Categories given all other columns; numbers have a prior of their own.

    The location of a message is the log-odds of the second of two levels, and the mean score of
    several.

    Args:
        schema: The variables; context is not read.

    Example:
        >>> prior = LevelPrior(Schema(tuple(Variable.categorical(n, ["no", "yes"]) for n in "ab")))
        >>> x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]).repeat(500, 1)
        >>> prior.fit(x, torch.ones_like(x, dtype=torch.bool))
        >>> state = prior.encode(x[:1], torch.tensor([[True, False]]))
        >>> prior.ask(state, torch.tensor([[1]])).location.sigmoid().round(decimals=2)
        tensor([[0.5000]])
    """

    categories: Tensor
    place: Tensor
    has_two: Tensor
    scores: Tensor

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
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
        self.normal = NormalPrior(columns, most=1)

    def fit(
        self,
        x: Tensor,
        have: Tensor,
        weights: Tensor | None = None,
        *,
        units: Units | None = None,  # noqa: ARG002
    ) -> None:
        """Scores the levels and fits the normal; see `Prior.fit`. Numbers stay normal scores."""
        is_number = self.place < 0
        numbers, own = x[:, : len(is_number)][:, is_number], x[:, self.categories].long()
        there = torch.cat([have[:, self.categories], have[:, is_number]], dim=1)
        found = level_scores(own, numbers, there, weights, sizes=self.sizes)
        self.scores[:, : found.shape[1]] = found
        self.normal.fit(self._as_numbers(x), have, weights)

    def along(self, x: Tensor, *, query: Tensor, given: Tensor, rank: Tensor) -> PriorMessage:
        """Message about each variable of a path; see `Prior.along`."""
        found = self.normal.along(self._as_numbers(x), query=query, given=given, rank=rank)
        return self._of_levels(found, torch.arange(given.shape[1], device=x.device))

    def encode(self, x: Tensor, given: Tensor) -> Posterior:
        """Conditions on the evidence; see `Prior.encode`."""
        return self.normal.encode(self._as_numbers(x), given)

    def tell(self, state: Posterior, variables: Tensor, values: Tensor) -> Posterior:
        """Conditions on more variables; see `Prior.tell`."""
        return self.normal.tell(state, variables, self._numbered(variables, values))

    def ask(self, state: Posterior, variables: Tensor) -> PriorMessage:
        """Message about variables; see `Prior.ask`."""
        return self._of_levels(self.normal.ask(state, variables), variables)

    def _of_levels(self, message: PriorMessage, variables: Tensor) -> PriorMessage:
        """The message about levels from that about their scores."""
        mean = message.location
        low, high = self.scores[self.place[variables], :2].unbind(dim=-1)
        usual, guess = -low / (high - low), (mean - low) / (high - low)
        least, most = SHARE * usual, 1 - SHARE * (1 - usual)
        share = guess.clamp(min=least.clamp(max=SUREST), max=most.clamp(min=1 - SUREST))
        location = torch.where(self.has_two[variables], share.logit(), mean)
        is_number = self.place[variables] < 0
        moments = (part.masked_fill(is_number, 0) for part in (location, message.log_scale))
        return PriorMessage(*moments, *(part[..., :0] for part in message.components))

    def _as_numbers(self, x: Tensor) -> Tensor:
        x = x[:, : len(self.place)]
        return self._numbered(torch.arange(len(self.place), device=x.device), x)

    def _numbered(self, variables: Tensor, values: Tensor) -> Tensor:
        """Values with levels as their scores; a missing value may have any code."""
        codes = values.long().clamp(0, self.scores.shape[1] - 1)
        levels = self.scores[self.place[variables], codes]
        return torch.where(self.place[variables] < 0, values.to(levels.dtype), levels)


MOST_COLUMNS = 1200
"""Most columns of a prior: a decomposition of their covariance for each row takes their cube."""


def default_prior(schema: Schema) -> SummedPrior | None:
    """Prior of a table: of numbers, if there are several; of categories beside any other column."""
    asked = [variable for variable in schema if not variable.context]
    numbers = sum(variable.kind == "continuous" for variable in asked)
    found: list[Prior] = []
    if 2 <= numbers <= MOST_COLUMNS:
        found.append(NormalPrior(schema))
    if 2 <= len(asked) <= MOST_COLUMNS and numbers < len(asked):
        found.append(LevelPrior(schema))
    return SummedPrior(schema, found) if found else None
