"""Prior of tables of version 0.1.0, kept so that saved models answer as they did.

Numbers have a mixture of normals, as now. Categories have one joint normal distribution over
*scores* of their levels: the mean of an indicator given all that is known is the best linear guess
of its probability. New models have a latent tree in its place; this one cannot be fitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.errors import ConfigError
from anyorder.networks.contracts import PriorMessage
from anyorder.priors.contract import Prior, UnitScales
from anyorder.priors.normals import MOST_COLUMNS, NormalPrior, Posterior
from anyorder.variables import Schema, Variable

SUREST, SHARE = 0.01, 0.3
"""Least probability of a level, or this part of its share of the rows if that is less: lines lead
below 0 and above 1."""

NOT_FITTED = "A model of version 0.1.0 cannot be trained further: fit a new one."


class LevelPrior(Prior):
    """Categories given all other columns; numbers have a prior of their own.

    The location of a message is the log-odds of the second of two levels, and the mean score of
    several.

    Args:
        schema: The variables; context is not read.
    """

    place: Tensor
    has_two: Tensor
    scores: Tensor

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        asked = [variable for variable in schema if not variable.context]
        categories = [i for i, variable in enumerate(asked) if variable.kind == "categorical"]
        sizes = [asked[i].num_levels for i in categories]
        place = torch.full((len(asked),), -1)
        place[categories] = torch.arange(len(categories))
        has_two = torch.tensor([variable.num_levels == 2 for variable in asked])
        self.register_buffer("place", place, persistent=False)
        self.register_buffer("has_two", has_two, persistent=False)
        self.register_buffer("scores", torch.zeros(len(categories), max([2, *sizes])))
        columns = Schema(tuple(Variable.continuous(variable.name) for variable in asked))
        self.normal = NormalPrior(columns, most=1)

    def fit(self, *_: Any, **__: Any) -> None:
        """Raises an error: only saved models have this prior."""
        raise ConfigError(NOT_FITTED)

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


class SummedPrior(Prior):
    """Normals for numbers and lines for categories, whose messages add up.

    Args:
        schema: The variables.
        priors: Each fills places of the message that the others leave at 0.
    """

    def __init__(self, schema: Schema, priors: Sequence[Prior]) -> None:
        super().__init__(schema)
        self.parts = nn.ModuleList(priors)
        self.components = max(prior.components for prior in priors)

    @property
    def priors(self) -> list[Any]:
        """The priors, in order."""
        return list(self.parts)

    @property
    def number_scales(self) -> UnitScales | None:
        """Scales of the prior of numbers, if there is one."""
        return next((p.number_scales for p in self.priors if p.number_scales is not None), None)

    def fit(self, *_: Any, **__: Any) -> None:
        """Raises an error: only saved models have this prior."""
        raise ConfigError(NOT_FITTED)

    def along(self, x: Tensor, *, query: Tensor, given: Tensor, rank: Tensor) -> PriorMessage:
        """Message about each variable of a path; see `Prior.along`."""
        parts = [p.along(x, query=query, given=given, rank=rank) for p in self.priors]
        return self._sum(parts)

    def encode(self, x: Tensor, given: Tensor) -> "SummedStates":
        """Encodes the evidence; see `Prior.encode`."""
        return SummedStates([prior.encode(x, given) for prior in self.priors])

    def tell(self, state: "SummedStates", variables: Tensor, values: Tensor) -> "SummedStates":
        """Adds known values; see `Prior.tell`."""
        pairs = zip(self.priors, state.states, strict=True)
        return SummedStates([prior.tell(own, variables, values) for prior, own in pairs])

    def ask(self, state: "SummedStates", variables: Tensor) -> PriorMessage:
        """Message about variables; see `Prior.ask`."""
        pairs = zip(self.priors, state.states, strict=True)
        return self._sum([prior.ask(own, variables) for prior, own in pairs])

    def _sum(self, messages: Sequence[PriorMessage]) -> PriorMessage:
        first, *others = (self._padded(message) for message in messages)
        return first.map(lambda *parts: torch.stack(parts).sum(dim=0), *others)

    def _padded(self, message: PriorMessage) -> PriorMessage:
        more = self.components - message.means.shape[-1]
        weights, means, logs = (nn.functional.pad(part, (0, more)) for part in message.components)
        return replace(message, log_weights=weights, means=means, log_deviations=logs)


@dataclass(frozen=True)
class SummedStates:
    """State of each of several priors."""

    states: list[Any]

    def at(self, rows: Tensor) -> "SummedStates":
        """Selects rows."""
        return SummedStates([state.at(rows) for state in self.states])


def prior_of_0_1(schema: Schema) -> SummedPrior:
    """Returns the prior that a model of these columns had in version 0.1.0."""
    asked = [variable for variable in schema if not variable.context]
    numbers = sum(variable.kind == "continuous" for variable in asked)
    found: list[Prior] = []
    if 2 <= numbers <= MOST_COLUMNS:
        found.append(NormalPrior(schema))
    if 2 <= len(asked) <= MOST_COLUMNS and numbers < len(asked):
        found.append(LevelPrior(schema))
    return SummedPrior(schema, found)
