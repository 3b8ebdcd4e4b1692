"""Contracts of networks. There are two, and a model hides which one it holds.

A *masked* network reads an observed set and returns features for every variable: a query of |u|
variables takes |u| passes. A *path* network is causal along the path of a query, so one pass
returns the features of all its factors; or it walks the path step by step with a cache.
`EnsembleNetwork` is several path networks as one, with concatenated features.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from anyorder.variables import Schema


class MaskedNetwork(nn.Module, ABC):
    """Features of variables given an observed set."""

    width: int

    @abstractmethod
    def forward(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Tensor:
        """Returns features from which the conditionals read p(x_i | x_observed).

        Args:
            x: Values; those that are not observed are not read. Shape ``(batch, vars)``.
            observed: True for observed variables. Shape ``(batch, vars)``.
            targets: Variables to predict, ``(batch, targets)``; all by default.

        Returns:
            Shape ``(batch, vars, width)`` or ``(batch, targets, width)``.
        """


@dataclass(frozen=True)
class PriorMessage:
    r"""Summary of p(x_i | x_e) under a prior, one an edge; see `Prior`.

    A latent tree says the log probability of each level, and of a number the density given the
    states, a mixture of normal scores. Joint normals say the moments of a number and its density,
    sum_k w_k N(mean_k, deviation_k^2), on their own scale. All are 0 for a variable that the prior
    does not model.

    Args:
        location: Mean; of a category of version 0.1.0 log-odds. Shape ``(...)``.
        log_scale: Log standard deviation. Shape ``(...)``.
        log_weights: log w_k of the mixture components. Shape ``(..., components)``.
        means: Shape ``(..., components)``.
        log_deviations: Shape ``(..., components)``.
        levels: Log probability of each level, or of being elsewhere and of each atom, padded by a
            large negative number; None if the prior has none. Shape ``(..., most levels)``.
        states: Log weight, mean and log deviation of a number in each state of a tree; None if the
            prior has none. Shape ``(..., 3, states)``.
        known: Number of known variables by which a network's share grows; `NetworkWithPrior`
            counts them. None without a network. Shape ``(...)``.
    """

    location: Tensor
    log_scale: Tensor
    log_weights: Tensor
    means: Tensor
    log_deviations: Tensor
    levels: Tensor | None = None
    states: Tensor | None = None
    known: Tensor | None = None

    @property
    def components(self) -> tuple[Tensor, Tensor, Tensor]:
        """Log weights, means and log deviations of the mixture components."""
        return self.log_weights, self.means, self.log_deviations

    def map(self, change: Callable[..., Tensor], *others: "PriorMessage") -> "PriorMessage":
        """Changes every tensor, or joins it with those of other messages that have it."""
        every = ([getattr(m, field.name) for m in (self, *others)] for field in fields(self))
        found = ([part for part in parts if part is not None] for parts in every)
        return PriorMessage(*(change(*parts) if parts else None for parts in found))  # type: ignore[arg-type]

    def __getitem__(self, places: Any) -> "PriorMessage":
        """Selects edges."""
        return self.map(lambda part: part[places])


@dataclass(frozen=True)
class Features:
    """Inputs of a head: a network's features of edges, and beside them a prior's message.

    Args:
        own: Shape ``(..., width)``.
        prior: Message of the same edges; None without a prior.
    """

    own: Tensor
    prior: PriorMessage | None = None

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.own.device

    def __len__(self) -> int:
        """Size of the first axis."""
        return len(self.own)

    def map(self, change: Callable[..., Tensor], *others: "Features") -> "Features":
        """Changes every tensor, or joins it with those of others."""
        priors = [other.prior for other in others if other.prior is not None]
        prior = None if self.prior is None else self.prior.map(change, *priors)
        return Features(change(self.own, *(other.own for other in others)), prior)

    def __getitem__(self, places: Any) -> "Features":
        """Selects edges."""
        return self.map(lambda part: part[places])

    def read_by(self, head: Callable[..., Any], variables: Tensor) -> Any:
        """Distributions by a head; only heads beside a prior take its message."""
        beside = () if self.prior is None else (self.prior,)
        return head(self.own, variables, *beside)

    @staticmethod
    def cat(parts: "Sequence[Features]") -> "Features":
        """Concatenates along the first axis."""
        return parts[0].map(lambda *tensors: torch.cat(tensors), *parts[1:])


class PathFeatures(NamedTuple):
    """Features along the paths of a batch, one an edge: a factor p(x_target | all before it).

    The edges are flat, in order of row and then of step, and there is none for padding: rows of
    different length waste nothing in the conditionals either (for text the logits cost more memory
    than the features), a conditional receives (features, target) whatever the batch looked like,
    and the log-likelihood of the rows is one ``index_add``.
    """

    features: Tensor  # (edges, width)
    row: Tensor  # (edges,) the row of the batch
    step: Tensor  # (edges,) number of query variables before it on the path, 0 .. |query| - 1
    target: Tensor  # (edges,) the variable that is predicted
    prior: PriorMessage | None = None  # of the edges

    @property
    def edges(self) -> Features:
        """Inputs of the heads."""
        return Features(self.features, self.prior)


class State(Protocol):
    """Memory of a path network for a batch of paths."""

    def expand(self, draws: int) -> Self:
        """Returns the state of `draws` samples of each row, neighbours in the batch."""
        ...

    def select(self, rows: Tensor) -> Self:
        """Returns the state of some of the rows, with all their samples."""
        ...


def samples_of(rows: Tensor, samples: int) -> Tensor:
    """Returns the places of all samples of some rows, neighbours in the batch."""
    if samples == 1:
        return rows
    return (rows[:, None] * samples + torch.arange(samples, device=rows.device)).flatten()


@dataclass
class RowState:
    """A state whose tensors have a row for each sample, and no more parts."""

    samples: int = field(default=1, kw_only=True)
    """Number of samples of each row, neighbours in the batch."""

    def expand(self, draws: int) -> Self:
        """See `State.expand`."""
        return self._each(lambda part: part.repeat_interleave(draws, dim=0), self.samples * draws)

    def select(self, rows: Tensor) -> Self:
        """See `State.select`."""
        places = samples_of(rows, self.samples)
        return self._each(lambda part: part[places], self.samples)

    def _each(self, change: Callable[[Tensor], Tensor], samples: int) -> Self:
        parts = {k: change(part) for k, part in vars(self).items() if isinstance(part, Tensor)}
        return type(self)(**parts, samples=samples)


StateT = TypeVar("StateT", bound=State)


class PathNetwork(nn.Module, ABC, Generic[StateT]):
    """Features of all factors of a query in one pass, or one by one with a cache."""

    width: int

    has_prior: ClassVar[bool] = False
    """True if a prior's message comes with the features."""

    walks_any_order: ClassVar[bool] = True
    """True if a path may take its variables in any order."""

    asks_many: bool = True
    """True if one state predicts many variables for little more than the cost of one."""

    @abstractmethod
    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Returns features of every factor of p(x_query | x_given): the paper's Alg. 1 in one pass.

        Args:
            x: Values; those in neither set, and the last of the path, are not read.
                Shape ``(batch, vars)``.
            query: True for the variables of the query. Shape ``(batch, vars)``.
            given: True for the variables of the evidence. Shape ``(batch, vars)``.
            rank: Ranks of the variables; the path takes the query from its least rank up.
                Shape ``(vars,)`` or ``(batch, vars)``.
        """

    @abstractmethod
    def encode(self, x: Tensor, given: Tensor) -> StateT:
        """Encodes the evidence, once for all queries and samples.

        Args:
            x: Values; those that are not given are not read. Shape ``(batch, vars)``.
            given: Shape ``(batch, vars)``.
        """

    @abstractmethod
    def ask(self, state: StateT, variables: Tensor) -> Tensor:
        """Returns features of variables, given the evidence and the values of the path so far.

        Args:
            state: State from ``encode`` or ``tell``.
            variables: Variables to predict. Shape ``(tokens,)``, the same for the batch, or
                ``(batch, tokens)``.

        Returns:
            Shape ``(batch, tokens, width)``.
        """

    def message(self, state: StateT, variables: Tensor) -> PriorMessage | None:
        """Returns the message of a prior about the same variables, if the network has one."""
        del state, variables
        return None

    @abstractmethod
    def tell(self, state: StateT, variables: Tensor, values: Tensor) -> StateT:
        """Extends the path by variables and their values, in place.

        Args:
            state: State from ``encode`` or an earlier ``tell``.
            variables: Variables in path order. Shape ``(tokens,)`` or ``(batch, tokens)``.
            values: Shape ``(batch, tokens)``.
        """


@dataclass
class EnsembleState:
    """States of the ensemble members."""

    members: list[Any]

    def expand(self, draws: int) -> "EnsembleState":
        """See `State.expand`."""
        return EnsembleState([member.expand(draws) for member in self.members])

    def select(self, rows: Tensor) -> "EnsembleState":
        """See `State.select`."""
        return EnsembleState([member.select(rows) for member in self.members])


class EnsembleNetwork(PathNetwork[EnsembleState]):
    """Concatenates the features of the ensemble members; `AveragedConditionals` reads them.

    Args:
        schema: The variables.
        members: Networks that were trained apart.
    """

    def __init__(self, schema: Schema, members: Sequence[PathNetwork[Any]]) -> None:
        super().__init__()
        self.schema = schema
        self.parts = nn.ModuleList(members)
        self.width = sum(member.width for member in members)

    @property
    def members(self) -> list[Any]:
        """The ensemble members, in order."""
        return list(self.parts)

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Returns features of every factor; see `PathNetwork.forward`."""
        paths = [member(x, query, given, rank) for member in self.members]
        return paths[0]._replace(features=torch.cat([path.features for path in paths], dim=-1))

    def encode(self, x: Tensor, given: Tensor) -> EnsembleState:
        """Encodes the evidence; see `PathNetwork.encode`."""
        return EnsembleState([member.encode(x, given) for member in self.members])

    def ask(self, state: EnsembleState, variables: Tensor) -> Tensor:
        """Returns features of variables; see `PathNetwork.ask`."""
        pairs = zip(self.members, state.members, strict=True)
        return torch.cat([member.ask(own, variables) for member, own in pairs], dim=-1)

    def tell(self, state: EnsembleState, variables: Tensor, values: Tensor) -> EnsembleState:
        """Extends the path; see `PathNetwork.tell`."""
        pairs = zip(self.members, state.members, strict=True)
        return EnsembleState([member.tell(own, variables, values) for member, own in pairs])
