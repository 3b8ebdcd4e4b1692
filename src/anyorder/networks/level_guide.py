"""What a joint normal distribution of all columns says of categories.

Levels stand for numbers, and numbers as they are. The mean of an indicator, given all that is
known, is the best linear guess of its probability: what a regression on the known columns would
say, for every set of known columns from one covariance.
"""

import torch
from torch import Tensor, nn

from anyorder.networks.belief import Belief
from anyorder.networks.level_scores import level_scores
from anyorder.networks.normal_guide import NormalGuide
from anyorder.networks.unit_scales import Units
from anyorder.variables import Schema, Variable

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
