"""The model: variables, a network, conditionals on top of it, and a decomposition protocol.

It hides which of the two kinds of network it holds: `factors` returns the log probability of every
edge on the path of every row's query, in one pass or in as many as it takes.

`walk` goes along the paths one variable after another, for sampling and for evidence by regions. A
step yields the conditional of the next variable of every sample whose path goes on. The caller
chooses values for it, which are evidence for the steps that follow.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anyorder.errors import ConfigError
from anyorder.heads.distributions import Conditionals, Distribution
from anyorder.lattice.protocols import DecompositionProtocol, alike, edge_places, path_lists
from anyorder.networks.contracts import Features, MaskedNetwork, PathNetwork, samples_of
from anyorder.variables import Schema

GPU_ROWS = 256
"""Rows of a pass in inference on a GPU: keeps memory flat, and the GPU busy."""

CPU_ACTIVATIONS = 1_200_000
"""Numbers in the residual stream of a pass on a CPU: more do not stay in its cache."""


class Factors(NamedTuple):
    """The factors of the queries of a batch, in order of row and then of step."""

    log_prob: Tensor  # (edges,) log p(x_target | all before it)
    row: Tensor  # (edges,) the row of the batch
    step: Tensor  # (edges,) number of query variables before it on the path
    target: Tensor  # (edges,) the variable that is predicted

    def totals(self, rows: int) -> Tensor:
        """Returns the log-likelihood of each row, in doubles: thousands of terms are added."""
        total = torch.zeros(rows, dtype=torch.float64, device=self.log_prob.device)
        return total.index_add_(0, self.row, self.log_prob.double())


class AnyOrderModel(nn.Module):
    """A model that answers p(x_query | x_given) for any two sets of its variables.

    Args:
        schema: The variables.
        network: Masked or path network.
        conditionals: Head, from the features of edges and their variables to distributions.
        protocol: Decomposition of a query into a path.
    """

    def __init__(
        self,
        schema: Schema,
        network: MaskedNetwork | PathNetwork[Any],
        conditionals: Conditionals,
        protocol: DecompositionProtocol,
    ) -> None:
        super().__init__()
        if not isinstance(network, MaskedNetwork | PathNetwork):
            raise ConfigError(
                f"`network` must be a MaskedNetwork or a PathNetwork; got {type(network).__name__}."
            )
        for name, part in (("network", network), ("conditionals", conditionals)):
            if getattr(part, "schema", schema) != schema:
                raise ConfigError(f"`{name}` was built for other variables than `schema` has.")
        if getattr(network, "width", None) != getattr(conditionals, "width", network.width):
            raise ConfigError(
                f"`network` and `conditionals` must have one width; got {network.width} and "
                f"{conditionals.width}."
            )
        if getattr(network, "has_prior", False) != getattr(conditionals, "has_prior", False):
            raise ConfigError(
                "`network` and `conditionals` must both have a prior, or neither: give the "
                "conditionals `components=prior.components`, or join the network with a prior."
            )
        ranked = getattr(protocol, "num_variables", None)
        if ranked not in (None, schema.num_variables):
            raise ConfigError(
                f"The protocol must rank the {schema.num_variables} variables of the schema; "
                f"it ranks {ranked}."
            )
        self.schema = schema
        self.network = network
        self.conditionals = conditionals
        self.protocol = protocol

    @property
    def num_variables(self) -> int:
        """N, the number of variables that can be queried."""
        return self.schema.num_variables

    @property
    def num_parameters(self) -> int:
        """Number of trained parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(self.parameters()).device

    @property
    def is_one_pass(self) -> bool:
        """True if a query takes one pass, rather than one for each variable queried."""
        return isinstance(self.network, PathNetwork)

    @property
    def rows_at_once(self) -> int:
        """Default number of rows of a pass in inference."""
        if self.device.type != "cpu":
            return GPU_ROWS
        return max(1, CPU_ACTIVATIONS // (self.network.width * self.num_variables))

    def factors(
        self,
        x: Tensor,
        *,
        query: Tensor,
        given: Tensor,
        rank: Tensor,
        max_batch: int | None = None,
    ) -> Factors:
        """Returns the log probabilities of all edges on the paths of queries (Alg. 2 of the paper).

        Args:
            x: Values. Shape ``(batch, vars)``.
            query: Shape ``(batch, vars)``.
            given: Shape ``(batch, vars)``.
            rank: Position of each variable on its row's path. Shape ``(batch, vars)``.
            max_batch: Rows of a pass; `rows_at_once` by default.
        """
        network, max_batch = self.network, max_batch or self.rows_at_once
        if isinstance(network, MaskedNetwork):
            return self._walk(x, query, given, rank, max_batch)
        parts = []
        for rows in alike(query, given).split(max_batch):  # little is padded
            path = network(x[rows], query[rows], given[rows], rank[rows])
            row, target = rows[path.row], path.target
            log_prob = self.log_prob(path.edges, target, x[row, target])
            parts.append((log_prob, row, path.step, target))
        found = [torch.cat(column) for column in zip(*parts, strict=True)]
        order = found[1].argsort(stable=True)
        return Factors(*(column[order] for column in found))

    def predict(self, x: Tensor, observed: Tensor, targets: Tensor) -> Distribution:
        """Returns the conditionals p(x_i | x_observed) of some variables of each row.

        Args:
            x: Values; those that are not observed are not read. Shape ``(batch, vars)``.
            observed: Shape ``(batch, vars)``.
            targets: Variables to predict. Shape ``(batch, targets)``.

        Returns:
            A distribution for each entry of `targets`.
        """
        return self.distribution(self.features(x, observed, targets), targets)

    def distribution(self, features: Features, variables: Tensor) -> Distribution:
        """Returns the conditionals of edges, from their features.

        Args:
            features: Features from `features`, `ask`, or a path. Shape ``(..., width)``.
            variables: Variable of each edge. Shape ``(...)``.
        """
        found: Distribution = features.read_by(self.conditionals, variables)
        return found

    def log_prob(self, features: Features, variables: Tensor, values: Tensor) -> Tensor:
        """Returns the log-likelihood of a value of each edge; see `distribution`."""
        head = partial(self.conditionals.log_prob, values=values)
        found: Tensor = features.read_by(head, variables)
        return found

    def features(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Features:
        """Returns the inputs of the conditionals of `predict`; of all variables by default.

        Shape ``(batch, targets, width)``.
        """
        if isinstance(self.network, MaskedNetwork):
            return Features(self.network(x, observed, targets))
        if targets is None:
            targets = torch.arange(self.num_variables, device=x.device).expand(len(x), -1)
        return self.ask(self.network.encode(x, observed), targets)

    def ask(self, state: Any, variables: Tensor) -> Features:
        """Returns features of variables from the state of a path network; see `PathNetwork.ask`."""
        network = self.network
        assert isinstance(network, PathNetwork)
        return Features(network.ask(state, variables), network.message(state, variables))

    def _walk(
        self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor, max_batch: int
    ) -> Factors:
        """Evaluates each edge in a pass of its own; the steps of all paths are batched."""
        path, num_asked = path_lists(query, rank)
        row, step = edge_places(num_asked)
        target = path[row, step]
        edges = row, step, target[:, None]
        log_prob = self.at_steps(x, query, given, rank, edges, max_batch=max_batch)[:, 0]
        return Factors(log_prob, row, step, target)

    def at_steps(
        self,
        x: Tensor,
        query: Tensor,
        given: Tensor,
        rank: Tensor,
        edges: tuple[Tensor, Tensor, Tensor],
        *,
        max_batch: int | None = None,
    ) -> Tensor:
        """Returns log probabilities of variables at chosen steps of paths; a pass for each step.

        Args:
            x: Values. Shape ``(batch, vars)``.
            query: Shape ``(batch, vars)``.
            given: Shape ``(batch, vars)``.
            rank: Position of each variable on its row's path. Shape ``(batch, vars)``.
            edges: Rows ``(edges,)``, numbers of observed steps of their paths ``(edges,)``, and the
                variables to predict there ``(edges, targets)``.
            max_batch: Rows of a pass; `rows_at_once` by default.

        Returns:
            Shape ``(edges, targets)``.
        """
        row, step, target = edges
        at_once = max_batch or self.rows_at_once
        parts = [torch.zeros(target[:0].shape, device=x.device)]
        for start in range(0, len(row), at_once):
            part = slice(start, start + at_once)
            rows, targets = row[part], target[part]
            observed = given[rows] | (query[rows] & (rank[rows] < step[part, None]))
            features, flat = self.features(x[rows], observed, targets), targets.flatten()
            law = self.distribution(features.map(lambda part: part.flatten(0, 1)), flat)
            log_prob = law.log_prob(x[rows[:, None], targets].flatten())
            parts.append(log_prob.view_as(targets))
        return torch.cat(parts)


Step = tuple[Tensor, Tensor, Distribution]
"""Rows of the batch of samples, the next variable of each, and its conditional."""


def walk(
    model: AnyOrderModel,
    filled: Tensor,
    *,
    query: Tensor,
    given: Tensor,
    rank: Tensor,
    n: int = 1,
    cache: bool = True,
) -> Iterator[Step]:
    """Yields the steps of all samples; the caller writes the values that it chose into `filled`.

    Args:
        model: The model.
        filled: Values of the samples, those of a row neighbours. Shape ``(batch * n, columns)``.
        query: Variables to sample. Shape ``(batch, vars)``.
        given: Evidence. Shape ``(batch, vars)``.
        rank: Position of each variable on its row's path. Shape ``(batch, vars)``.
        n: Samples of each row.
        cache: If True, a path network keeps its keys and values between steps.
    """
    steps = _cached_steps if cache and model.is_one_pass else _plain_steps
    return steps(model, filled, query, given, rank, n)


def _paths(query: Tensor, rank: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields, step by step, the rows whose path goes on, and the next variable of each."""
    path, lengths = path_lists(query, rank)
    shortest, longest = (int(number) for number in lengths.aminmax())
    rows = torch.arange(len(path), device=path.device)
    for step in range(longest):
        if step < shortest:  # all of them, without a search that costs more than a small network
            yield rows, path[:, step]
            continue
        going = (lengths > step).nonzero().squeeze(1)
        yield going, path[going, step]


def _for_samples(targets: Tensor, n: int) -> Tensor:
    """Repeats an entry of each row for each of its samples."""
    return targets if n == 1 else targets.repeat_interleave(n)


def _plain_steps(
    model: AnyOrderModel, filled: Tensor, query: Tensor, given: Tensor, rank: Tensor, n: int
) -> Iterator[Step]:
    """Yields steps that are a pass of their own each, over all values chosen before."""
    evidence, ranks = (tensor.repeat_interleave(n, dim=0) for tensor in (given, rank))
    chosen = torch.zeros_like(evidence)
    for rows, targets in _paths(query, rank):
        samples, target = samples_of(rows, n), _for_samples(targets, n)
        known = (filled[samples], chosen[samples], evidence[samples], ranks[samples])
        yield samples, target, _next(model, *known, target)
        chosen[samples, target] = True


def _next(
    model: AnyOrderModel, x: Tensor, chosen: Tensor, given: Tensor, rank: Tensor, target: Tensor
) -> Distribution:
    """Returns the conditional of the next variable of each path, without a cache."""
    if isinstance(model.network, MaskedNetwork):
        return model.distribution(model.features(x, given | chosen, target[:, None])[:, 0], target)
    path = model.network(x, chosen.scatter(1, target[:, None], True), given, rank)
    return model.distribution(path.edges[path.target == target[path.row]], target)


def _cached_steps(
    model: AnyOrderModel, filled: Tensor, query: Tensor, given: Tensor, rank: Tensor, n: int
) -> Iterator[Step]:
    """Encodes the evidence once; a step adds the last value to the state, and predicts the next."""
    network = model.network
    assert not isinstance(network, MaskedNetwork)
    state = network.encode(filled[::n], given).expand(n)
    alive = torch.arange(len(query), device=query.device)
    samples = samples_of(alive, n)
    last: Tensor | None = None
    for rows, targets in _paths(query, rank):
        target = _for_samples(targets, n)
        if len(rows) < len(alive):
            kept = torch.searchsorted(alive, rows)
            state = state.select(kept)
            last = None if last is None else last[samples_of(kept, n)]
            alive, samples = rows, samples_of(rows, n)
        if last is not None:
            state = network.tell(state, last[:, None], filled[samples, last][:, None])
        features = model.ask(state, target[:, None])
        yield samples, target, model.distribution(features[:, 0], target)
        last = target
