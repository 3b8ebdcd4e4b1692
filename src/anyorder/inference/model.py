"""One model: variables, a network, conditionals on top of it, and the protocol that walks.

Which of the two kinds of network it holds is hidden here: `factors` gives the log probability of
every edge on the path of every row's question, in one pass or in as many as it takes.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anyorder.errors import ConfigError
from anyorder.heads.distributions import Conditionals, Distribution
from anyorder.lattice.protocols import DecompositionProtocol
from anyorder.networks.contracts import Features, MaskedNetwork, PathNetwork
from anyorder.networks.paths import alike, edge_places, path_lists
from anyorder.variables import Schema

GPU_ROWS = 256
"""Rows of a pass while answering on a GPU: keeps memory flat, and the GPU busy."""

CPU_ACTIVATIONS = 1_200_000
"""Numbers of the residual stream of a pass on a CPU: more do not stay in its cache."""


class Factors(NamedTuple):
    """The factors of the questions of a batch, in order of row and then of step."""

    log_prob: Tensor  # (edges,) log p(x_target | all before it)
    row: Tensor  # (edges,) the row of the batch
    step: Tensor  # (edges,) how many query variables are known before
    target: Tensor  # (edges,) the variable that is predicted

    def totals(self, rows: int) -> Tensor:
        """The log-likelihood of each row, in doubles because thousands of terms are added."""
        total = torch.zeros(rows, dtype=torch.float64, device=self.log_prob.device)
        return total.index_add_(0, self.row, self.log_prob.double())


class AnyOrderModel(nn.Module):
    """A model that answers p(x_query | x_given) for any two sets of its variables.

    Args:
        schema: The variables.
        network: Masked or path.
        conditionals: From the features of edges and their variables to distributions.
        protocol: How questions are taken apart.
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
        """N: how many variables can be asked."""
        return self.schema.num_variables

    @property
    def num_parameters(self) -> int:
        """How many numbers were trained."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.parameters()).device

    @property
    def is_one_pass(self) -> bool:
        """Whether a question takes one pass, rather than one for each variable asked."""
        return isinstance(self.network, PathNetwork)

    @property
    def rows_at_once(self) -> int:
        """How many rows a pass has while answering, unless told otherwise."""
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
        """The log probabilities of all edges on the paths of the questions (Alg. 2 of the paper).

        Args:
            x: Values. Shape ``(batch, vars)``.
            query: Shape ``(batch, vars)``.
            given: Shape ``(batch, vars)``.
            rank: The place of each variable on its row's path. Shape ``(batch, vars)``.
            max_batch: Rows of a pass; `rows_at_once` by default.
        """
        network, max_batch = self.network, max_batch or self.rows_at_once
        if isinstance(network, MaskedNetwork):
            return self._walk(x, query, given, rank, max_batch)
        parts = []
        for rows in alike(query, given).split(max_batch):  # little is padded
            path = network(x[rows], query[rows], given[rows], rank[rows])
            row, target = rows[path.row], path.target
            log_prob = self.distribution(path.edges, target).log_prob(x[row, target])
            parts.append((log_prob, row, path.step, target))
        found = [torch.cat(column) for column in zip(*parts, strict=True)]
        order = found[1].argsort(stable=True)
        return Factors(*(column[order] for column in found))

    def predict(self, x: Tensor, observed: Tensor, targets: Tensor) -> Distribution:
        """The conditionals p(x_i | x_observed) of some variables of each row.

        Args:
            x: Values; those that are not observed are not read. Shape ``(batch, vars)``.
            observed: Shape ``(batch, vars)``.
            targets: Which variables. Shape ``(batch, targets)``.

        Returns:
            A distribution an entry of `targets`.
        """
        return self.distribution(self.features(x, observed, targets), targets)

    def distribution(self, features: Features, variables: Tensor) -> Distribution:
        """The conditionals of edges, from their features.

        Args:
            features: From `features`, `ask`, or the edges of a path. Shape ``(..., width)``.
            variables: The variable of each edge. Shape ``(...)``.
        """
        found: Distribution = features.read_by(self.conditionals, variables)
        return found

    def features(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Features:
        """Features that the conditionals of `predict` are read from; of all variables by default.

        Shape ``(batch, targets, width)``.
        """
        if isinstance(self.network, MaskedNetwork):
            return Features(self.network(x, observed, targets))
        if targets is None:
            targets = torch.arange(self.num_variables, device=x.device).expand(len(x), -1)
        return self.ask(self.network.encode(x, observed), targets)

    def ask(self, state: Any, variables: Tensor) -> Features:
        """Features of variables from the state of a path network; see `PathNetwork.ask`."""
        network = self.network
        assert isinstance(network, PathNetwork)
        return Features(network.ask(state, variables), network.message(state, variables))

    def _walk(
        self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor, max_batch: int
    ) -> Factors:
        """One pass an edge: the steps of all walks are the rows of batches."""
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
        """Log probabilities of variables at chosen steps of walks; a pass for each step.

        Args:
            x: Values. Shape ``(batch, vars)``.
            query: Shape ``(batch, vars)``.
            given: Shape ``(batch, vars)``.
            rank: The place of each variable on its row's path. Shape ``(batch, vars)``.
            edges: Rows ``(edges,)``, how many steps of their paths are known ``(edges,)``, and the
                variables that are asked there ``(edges, targets)``.
            max_batch: Rows of a pass; `rows_at_once` by default.

        Returns:
            Shape ``(edges, targets)``.
        """
        row, step, target = edges
        at_once = max_batch or self.rows_at_once
        parts = [torch.zeros(target[:0].shape, device=x.device)]
        for start in range(0, len(row), at_once):
            part = slice(start, start + at_once)
            rows, asked = row[part], target[part]
            observed = given[rows] | (query[rows] & (rank[rows] < step[part, None]))
            features, flat = self.features(x[rows], observed, asked), asked.flatten()
            law = self.distribution(features.map(lambda part: part.flatten(0, 1)), flat)
            log_prob = law.log_prob(x[rows[:, None], asked].flatten())
            parts.append(log_prob.view_as(asked))
        return torch.cat(parts)
