r"""Contract of priors: models fitted in seconds that answer p(x_i | x_e) in closed form.

A prior knows frequencies, relations and clusters from few rows, where a network needs many. The
network is trained beside it, and the heads join its `PriorMessage` with what the network says. With
nothing or one variable known, the answer about a category is the prior's; see
`heads/with_prior.py`.

To add a prior, write a `Prior` with two methods and name it where a model is built:

- `fit` reads the rows once;
- `ask` gives the message of variables given evidence.

The methods `encode`, `tell` and `along` have slow defaults, which call `ask` with all that is known
by then. Override them where there is something faster:

- latent trees: belief propagation along the path; see `latent_tree.py` and `trees.py`;
- normal mixtures: one Cholesky decomposition a path and component; see `normals.py`.

A row must not see itself: priors have read the rows that the network is trained on, and the network
would learn to trust them too much. While ``self.training`` is set, `along` gives the message of a
prior that was fitted without the row, by cross-fitting in folds, or with its own part taken off;
`leaving_out` is for evaluations.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from anyorder.networks.contracts import PathFeatures, PathNetwork, PriorMessage
from anyorder.networks.no_network import NoNetwork
from anyorder.priors.trees import PairCounts
from anyorder.variables import Schema

Units = Callable[[Tensor], Tensor]
"""From normal scores to the units of their columns. Shapes ``(rows, numbers)``."""

POINTS = 257
"""Points of a table. Between two of them a smooth scale is off by some 1e-4 deviations."""

FARTHEST, BEYOND = 8.0, 2.0
"""Greatest normal score of a table, and how far it goes beyond what was seen: a density reaches
there, and lines would lead it far from its units."""

PLAIN = 4.0
"""Deviations within which units are not compressed."""


class UnitScales(nn.Module):
    """Scales of some numbers, from normal scores to units and back.

    Measures that follow from each other do so in their units: a line there is bent in normal
    scores. Where tails are long it is the other way round. A scale is a table of one in terms of
    the other at even steps, piecewise linear between them and beyond. Until `measure` is called,
    units are normal scores.

    Args:
        size: Number of numbers.

    Example:
        >>> scales, scores = UnitScales(1), torch.linspace(0, 4, 50)[:, None]
        >>> scales.measure(scores, torch.ones_like(scores).bool(), lambda z: 7 + z**2)
        >>> torch.allclose(scales.to_scores(scales.to_units(scores)), scores, atol=1e-4)
        True
    """

    start: Tensor
    step: Tensor
    units: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("start", torch.zeros(size))
        self.register_buffer("step", torch.ones(size))
        self.register_buffer("units", torch.arange(float(POINTS)).repeat(size, 1))

    def measure(self, z: Tensor, have: Tensor, units: Units) -> None:
        """Makes the tables, in units of mean 0 and deviation 1 over some rows.

        Numbers that did not vary, or whose units do not rise from point to point, as those of the
        longest tails in single precision, stay normal scores.

        Args:
            z: Normal scores. Shape ``(rows, numbers)``.
            have: False for missing values.
            units: From normal scores to units.
        """
        self.reset()
        low = z.masked_fill(~have, FARTHEST).amin(dim=0).clamp(min=-FARTHEST)
        high = z.masked_fill(~have, -FARTHEST).amax(dim=0).clamp(max=FARTHEST)
        varied = high > low
        low, high = low - BEYOND, high + BEYOND
        part = torch.linspace(0, 1, POINTS, dtype=z.dtype, device=z.device)
        table = units(low + (high - low) * part[:, None]).to(z)
        measured, counts = units(z.masked_fill(~have, 0)).to(z), have.sum(dim=0).clamp(min=1)
        mean = measured.masked_fill(~have, 0).sum(dim=0) / counts
        away = (measured - mean).masked_fill(~have, 0)
        deviation = (away.square().sum(dim=0) / counts).sqrt()
        found = _compressed((table - mean) / deviation).T.to(self.units)
        rises = found.isfinite().all(dim=1) & (found.diff(dim=1) > 0).all(dim=1)
        sound = (rises & varied).nonzero().squeeze(1)
        self.start[sound] = low[sound].to(self.start)
        self.step[sound] = ((high - low)[sound] / (POINTS - 1)).to(self.step)
        self.units[sound] = found[sound]

    def reset(self, keep: Tensor | None = None) -> None:
        """Resets scales to normal scores, except those to `keep`. Shape ``(numbers,)``."""
        plain = UnitScales(len(self.start))
        gone = torch.ones_like(self.start).bool() if keep is None else ~keep
        for name, buffer in self.named_buffers():
            buffer[gone] = plain.get_buffer(name).to(buffer)[gone]

    def at(self, places: Tensor) -> "UnitScales":
        """Selects scales. Shape of `places` ``(some,)``."""
        found = UnitScales(len(places)).to(self.start)
        for name, buffer in found.named_buffers():
            buffer.copy_(self.get_buffer(name)[places])
        return found

    def to_units(self, z: Tensor, places: Tensor | None = None) -> Tensor:
        """Normal scores in units.

        Args:
            z: Shape ``(rows, numbers)``, or any if `places` are given.
            places: Number of each. Shape of `z`.
        """
        return self.measured(z, places)[0]

    def log_slopes(self, z: Tensor) -> Tensor:
        """Log slopes of units in normal scores: what a density changes by. Shape of `z`."""
        return self.measured(z)[1]

    def measured(self, z: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Normal scores in units, and the logs of the slopes there; see `to_units`."""
        places = self._places(z) if places is None else places
        start, step = self.start[places].to(z), self.step[places].to(z)
        steps = (z - start) / step
        below = steps.nan_to_num().floor().clamp(0, POINTS - 2).long()
        left, right = (self.units[places, point].to(z) for point in (below, below + 1))
        return left + (steps - below) * (right - left), ((right - left) / step).log()

    def to_scores(self, units: Tensor, places: Tensor | None = None) -> Tensor:
        """Units as normal scores.

        Args:
            units: Shape ``(..., numbers)``, or ``(..., edges)`` if `places` are given.
            places: Number of each edge. Shape ``(edges,)``.
        """
        start, step, table = self.start, self.step, self.units
        if places is not None:
            start, step, table = start[places], step[places], table[places]
        table, values = table.to(units), units.reshape(-1, len(table)).T.contiguous()
        below = torch.searchsorted(table, values).clamp(1, POINTS - 1) - 1  # (numbers, values)
        left, right = (table.gather(1, point) for point in (below, below + 1))
        steps = below + (values - left) / (right - left)
        scores = start[:, None].to(units) + step[:, None].to(units) * steps
        return scores.T.reshape(units.shape)

    def _places(self, z: Tensor) -> Tensor:
        return torch.arange(len(self.start), device=z.device).expand(z.shape)


def _compressed(units: Tensor) -> Tensor:
    """Compresses units far out to their logarithm: a wrong reading must not decide."""
    beyond = (units.abs() - PLAIN).clamp(min=0)
    return units.sign() * (units.abs() - beyond + beyond.log1p())


@dataclass(frozen=True)
class Evidence:
    """Default state of a prior: all that is known of each row.

    Args:
        x: Values. Shape ``(rows, columns)``.
        given: Which are known. Shape ``(rows, vars)``.
    """

    x: Tensor
    given: Tensor

    def at(self, rows: Tensor) -> "Evidence":
        """Selects rows."""
        return Evidence(self.x[rows], self.given[rows])


class Prior(nn.Module, ABC):
    """p(x_i | x_e) of every variable for any evidence, as messages.

    A state has a method ``at(rows)``, which selects rows. A message is 0 for variables that the
    prior does not model.

    Args:
        schema: The variables; its context is not read.
    """

    components: int = 0
    """Mixture components of the messages about numbers."""

    is_cross_fitted: ClassVar[bool] = False
    """True if it is cross-fitted, so that it can read rows on which a model is evaluated."""

    counts_pairs: bool = False
    """True if beside a network pairs of categories are counted; see `PairCounts`."""

    leaves_out = False

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.schema = schema

    @property
    def number_scales(self) -> UnitScales | None:
        """Scales on which messages about numbers are, one a number; None if it has none."""
        return None

    @abstractmethod
    def fit(
        self,
        x: Tensor,
        have: Tensor,
        weights: Tensor | None = None,
        *,
        units: Units | None = None,
    ) -> None:
        """Fits the prior to rows.

        Args:
            x: Values. Shape ``(rows, columns)``.
            have: False for missing values. Shape ``(rows, vars)``.
            weights: Weights of the rows, in any unit. Shape ``(rows,)``.
            units: From normal scores of the numbers to the units of their columns.
        """

    @abstractmethod
    def ask(self, state: Any, variables: Tensor) -> PriorMessage:
        """Message about variables given the evidence and what was told.

        Args:
            state: From `encode` or `tell`; by default the `Evidence`.
            variables: Shape ``(rows, tokens)``.

        Returns:
            Shape ``(rows, tokens)``.
        """

    def encode(self, x: Tensor, given: Tensor) -> Any:
        """Encodes the evidence; see `PathNetwork.encode`."""
        return Evidence(x, given)

    def tell(self, state: Any, variables: Tensor, values: Tensor) -> Any:
        """Adds known values; see `PathNetwork.tell`."""
        x = state.x.scatter(1, variables, values.to(state.x))
        return Evidence(x, state.given.scatter(1, variables, True))

    def along(self, x: Tensor, *, query: Tensor, given: Tensor, rank: Tensor) -> PriorMessage:
        """Message about each variable of a path given all before it.

        See `PathNetwork.forward` for the arguments.

        Returns:
            Shape ``(batch, vars)``; only those of the query are read.
        """
        rank = rank.expand(query.shape)
        row, target = query.nonzero(as_tuple=True)
        known = given[row] | (query[row] & (rank[row] < rank[row, target, None]))
        found = self.ask(self.encode(x[row], known), target[:, None])

        def placed(part: Tensor) -> Tensor:
            every = part.new_zeros(*query.shape, *part.shape[2:])
            return every.index_put((row, target), part[:, 0])

        return found.map(placed)

    @contextmanager
    def leaving_out(self) -> Iterator[None]:
        """Answers about every row as if it had not read it, for a while, if it is cross-fitted."""
        self.leaves_out = True
        try:
            yield
        finally:
            self.leaves_out = False

    def stand_in(self, completed: Tensor, x: Tensor) -> None:
        """Takes rows whose missing values were imputed for the rows that it has read.

        Args:
            completed: Rows to train on. Shape ``(rows, columns)``.
            x: The same as they were read. Shape ``(rows, columns)``.
        """

    def alone(self) -> PriorMessage:
        """Message about each variable without evidence. Shape ``(vars,)``."""
        device = next(self.buffers()).device
        nothing = torch.zeros(1, self.schema.num_variables, device=device)
        every = torch.arange(self.schema.num_variables, device=device)
        return self.ask(self.encode(nothing, nothing.bool()), every[None])[0]


class StackedPrior(Prior):
    """A prior of all columns, and one of relations between numbers: a message has both.

    Args:
        schema: The variables.
        tree: Says the levels of categories and the density of numbers; see `PriorMessage.states`.
        normals: Says the other parts of the message.
    """

    def __init__(self, schema: Schema, tree: Prior, normals: Prior) -> None:
        super().__init__(schema)
        self.tree, self.normals = tree, normals

    @property
    def components(self) -> int:  # type: ignore[override]
        """Components of the normals."""
        return self.normals.components

    @property
    def counts_pairs(self) -> bool:  # type: ignore[override]
        """Whether the tree does."""
        return self.tree.counts_pairs

    @contextmanager
    def leaving_out(self) -> Iterator[None]:
        """Both leave out; see `Prior.leaving_out`."""
        with self.tree.leaving_out(), self.normals.leaving_out():
            yield

    def stand_in(self, completed: Tensor, x: Tensor) -> None:
        """The tree takes them; see `Prior.stand_in`."""
        self.tree.stand_in(completed, x)

    @property
    def number_scales(self) -> UnitScales | None:
        """Scales of the normals."""
        return self.normals.number_scales

    def fit(
        self,
        x: Tensor,
        have: Tensor,
        weights: Tensor | None = None,
        *,
        units: Units | None = None,
    ) -> None:
        """Fits both; see `Prior.fit`."""
        self.tree.fit(x, have, weights, units=units)
        self.normals.fit(x, have, weights, units=units)

    def ask(self, state: "StackedState", variables: Tensor) -> PriorMessage:
        """Message about variables; see `Prior.ask`."""
        tree = self.tree.ask(state.tree, variables)
        return _stacked(tree, self.normals.ask(state.normals, variables))

    def encode(self, x: Tensor, given: Tensor) -> "StackedState":
        """Encodes the evidence; see `Prior.encode`."""
        return StackedState(self.tree.encode(x, given), self.normals.encode(x, given))

    def tell(self, state: "StackedState", variables: Tensor, values: Tensor) -> "StackedState":
        """Adds known values; see `Prior.tell`."""
        tree = self.tree.tell(state.tree, variables, values)
        return StackedState(tree, self.normals.tell(state.normals, variables, values))

    def along(self, x: Tensor, *, query: Tensor, given: Tensor, rank: Tensor) -> PriorMessage:
        """Message about each variable of a path; see `Prior.along`."""
        tree = self.tree.along(x, query=query, given=given, rank=rank)
        return _stacked(tree, self.normals.along(x, query=query, given=given, rank=rank))


@dataclass(frozen=True)
class StackedState:
    """States of both priors."""

    tree: Any
    normals: Any

    def at(self, rows: Tensor) -> "StackedState":
        """Selects rows."""
        return StackedState(self.tree.at(rows), self.normals.at(rows))


def _stacked(tree: PriorMessage, normals: PriorMessage) -> PriorMessage:
    return replace(normals, levels=tree.levels, states=tree.states)


@dataclass
class StateWithPrior:
    """State of a network and of the prior beside it.

    Args:
        inner: State of the network.
        prior: State of the prior, one row a sample.
        rows: Their places in `prior`. Shape ``(rows,)``.
        known: Number of variables known by now, and of numbers. Shape ``(rows, 2)``.
        first: The first of them, and its value. Shape ``(rows, 2)``.
        samples: Continuations of each row of the batch.
    """

    inner: Any
    prior: Any
    rows: Tensor
    known: Tensor
    first: Tensor
    samples: int = 1

    def expand(self, draws: int) -> "StateWithPrior":
        """See `State.expand`."""
        places = self.rows.repeat_interleave(draws)
        return self._at(self.inner.expand(draws), places, self.samples * draws)

    def select(self, rows: Tensor) -> "StateWithPrior":
        """See `State.select`."""
        places = rows[:, None] * self.samples + self.rows[: self.samples]
        return self._at(self.inner.select(rows), places.flatten(), self.samples)

    def _at(self, inner: Any, places: Tensor, samples: int) -> "StateWithPrior":
        rows = torch.arange(len(places), device=places.device)
        known, first = self.known[places], self.first[places]
        return StateWithPrior(inner, self.prior.at(places), rows, known, first, samples)


MUCH = 1000
"""Number of known variables with which a network counts in full."""


class NetworkWithPrior(PathNetwork[StateWithPrior]):
    """A path network beside a prior: hands on the features of the one and the message of the other.

    Args:
        schema: The variables.
        network: Learns what the prior does not know.
        prior: Fitted before the network is trained.
    """

    has_prior = True

    def __init__(self, schema: Schema, network: PathNetwork[Any], prior: Prior) -> None:
        super().__init__()
        self.schema, self.network, self.prior = schema, network, prior
        self.width, self.asks_many = network.width, network.asks_many
        self.has_context = len(schema) > schema.num_variables
        asked = [variable for variable in schema if not variable.context]
        is_number = torch.tensor([variable.kind == "continuous" for variable in asked])
        self.register_buffer("is_number", is_number, persistent=False)
        # The answers of a prior alone agree with each other; counts of pairs would not.
        alone = isinstance(network, NoNetwork) or self.has_context
        self.pairs = PairCounts(schema) if prior.counts_pairs and not alone else None
        self._remembered: dict[tuple[bytes, ...], PriorMessage] | None = None

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Features and messages of every factor; see `PathNetwork.forward`."""
        path: PathFeatures = self.network(x, query, given, rank)
        message = self._along(x, query, given, rank)[path.row, path.target]
        told = torch.zeros(*query.shape, 2, dtype=torch.long, device=x.device)
        told[path.row, path.step, 0] = 1
        told[path.row, path.step, 1] = self.is_number[path.target].long()
        known = self._counts(given)[:, None] + told.cumsum(dim=1) - told
        when = rank.expand(query.shape).masked_fill(~query, query.shape[1]).masked_fill(given, -1)
        first = _earliest(x, when)[path.row]
        found = self._with_known(message, path.target, known[path.row, path.step], first)
        return path._replace(prior=found)

    def count(self, x: Tensor, have: Tensor, weights: Tensor) -> None:
        """Counts pairs of categories, if the prior lets them be counted; see `PairCounts.fit`."""
        variables = torch.arange(self.schema.num_variables, device=x.device)

        def levels(x: Tensor, given: Tensor) -> Tensor:
            state = self.prior.encode(x, given)
            found = self.prior.ask(state, variables.expand(len(x), -1)).levels
            assert found is not None
            return found

        if self.pairs is not None:
            self.pairs.fit(levels, x, have, weights)

    def encode(self, x: Tensor, given: Tensor) -> StateWithPrior:
        """Encodes the evidence; see `PathNetwork.encode`."""
        rows = torch.arange(len(x), device=x.device)
        states = self.network.encode(x, given), self.prior.encode(x, given)
        first = _earliest(x, (~given).long())
        return StateWithPrior(*states, rows, self._counts(given), first)

    def ask(self, state: StateWithPrior, variables: Tensor) -> Tensor:
        """Features of variables; see `PathNetwork.ask`."""
        return self.network.ask(state.inner, variables)

    def message(self, state: StateWithPrior, variables: Tensor) -> PriorMessage:
        """Message of the prior; see `PathNetwork.message`."""
        variables = variables.expand(len(state.rows), -1)
        message = self.prior.ask(state.prior, variables)
        known, first = (
            part[:, None].expand(*variables.shape, -1) for part in (state.known, state.first)
        )
        return self._with_known(message, variables, known, first)

    def tell(self, state: StateWithPrior, variables: Tensor, values: Tensor) -> StateWithPrior:
        """Continues the path; see `PathNetwork.tell`."""
        state.inner = self.network.tell(state.inner, variables, values)
        state.prior = self.prior.tell(state.prior, variables.expand_as(values), values)
        numbers = self.is_number[variables].expand_as(values).sum(dim=1)
        more = torch.full_like(numbers, values.shape[1])
        first = torch.stack([variables.expand_as(values)[:, 0], values[:, 0].long()], dim=1)
        state.first = state.first.where(state.known[:, :1] > 0, first)
        state.known = state.known + torch.stack([more, numbers], dim=1)
        return state

    @contextmanager
    def remembering(self, messages: dict[tuple[bytes, ...], PriorMessage]) -> Iterator[None]:
        """Keeps messages about paths, for queries that are asked again after some training.

        A prior does not change while the network beside it is trained.
        """
        self._remembered = messages
        try:
            yield
        finally:
            self._remembered = None

    def _along(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PriorMessage:
        if self._remembered is None:
            return self.prior.along(x, query=query, given=given, rank=rank)
        key = tuple(part.cpu().numpy().tobytes() for part in (x, query, given, rank))
        if key not in self._remembered:
            self._remembered[key] = self.prior.along(x, query=query, given=given, rank=rank)
        return self._remembered[key]

    def _counts(self, known: Tensor) -> Tensor:
        """Number of known variables, and of numbers among them. Shape ``(rows, 2)``."""
        return torch.stack([known.sum(dim=1), (known & self.is_number).sum(dim=1)], dim=1)

    def _with_known(
        self, message: PriorMessage, variables: Tensor, counts: Tensor, first: Tensor
    ) -> PriorMessage:
        """Message with the number of known variables; without it where there is no network.

        A number tells more of another than a tree can, and a tree does not read context: then the
        network counts in full.
        """
        known, numbers = counts.unbind(dim=-1)
        if isinstance(self.network, NoNetwork):
            return message
        if self.pairs is not None:
            message = self.pairs.answered(message, variables, known, first)
        is_much = (self.is_number[variables] & (numbers > 0)) | self.has_context
        return replace(message, known=known.masked_fill(is_much, MUCH))


def _earliest(x: Tensor, when: Tensor) -> Tensor:
    """Returns the variable that is known earliest, and its value as a code. Shape ``(rows, 2)``.

    Args:
        x: Values. Shape ``(rows, columns)``.
        when: Turn of each variable. Shape ``(rows, vars)``.
    """
    one = when.argmin(dim=1, keepdim=True)
    return torch.cat([one, x.gather(1, one).long()], dim=1)
