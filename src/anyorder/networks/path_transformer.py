"""Path Transformers: the features of all factors of p(x_u | x_e) in one pass.

A path network is bidirectional over the evidence and causal along the path of the query. It runs in
two ways with the same features: one pass over the whole path (training, likelihood), or step by
step with a key/value cache (sampling; see `cache.py`). Two networks differ in their tokens:

    PathTransformer               two streams (Yang et al., 2019, XLNet): values and queries are
                                  tokens of their own, |E| + 2|U| tokens
    SingleStreamPathTransformer   a token carries a value and the next query, |E| + |U| tokens
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from anyorder.errors import check_choice
from anyorder.networks.blocks import INITIAL_SCALE, Block, Rotary, VariableEmbedding, check_shape
from anyorder.networks.cache import Memory, OnePass, PathState, Segment, path_segments
from anyorder.networks.contracts import PathFeatures, PathNetwork
from anyorder.networks.paths import Bucket, along_paths, evidence_lists, mask_unread, trim
from anyorder.variables import Schema

Positions = Literal["rotary", "both", "absolute"]


class Tokens(NamedTuple):
    """Tokens with the positions of their queries and keys; only the first ones have keys."""

    hidden: Tensor  # (batch, tokens, width)
    query_positions: Tensor  # (batch, tokens) variable whose position rotates the query
    key_positions: Tensor  # (batch, keys) variable whose position rotates the key


class PathStreams(PathNetwork[PathState]):
    """Transformer that is bidirectional over the evidence and causal along the query.

    Args:
        schema: Variables; context comes last.
        layers: Number of blocks.
        width: Size of the features.
        heads: Number of attention heads; must divide ``width``.
        positions: "absolute" adds an embedding of the variable to each token, "rotary" rotates
            queries and keys by the variable's coordinates, "both" does both. Use "absolute" for
            variables without coordinates, such as the columns of a table. Otherwise a path network
            without rotary positions learns marginals quickly and conditionals badly.
        coordinates: Position of each variable, for rotary positions; its index by default.
            Shape ``(vars,)`` or ``(vars, axes)``.
        shared: True lets variables with the same levels share the embeddings of their values.
        dropout: Dropout rate of each branch's output.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        layers: int,
        width: int,
        heads: int,
        positions: Positions = "both",
        coordinates: Sequence[Any] | None = None,
        shared: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_shape(layers, width, heads)
        self.schema = schema
        self.layers, self.width, self.heads = layers, width, heads
        check_choice("positions", positions, get_args(Positions))
        self.positions, self.coordinates = positions, coordinates
        self.shared, self.dropout = shared, dropout
        self.embedding = VariableEmbedding(
            schema, width=width, variables=positions != "rotary", shared=shared
        )
        self.no_position = schema.num_variables  # of tokens that belong to no variable
        self.rotary = None
        if positions != "absolute":
            self.rotary = Rotary(schema.num_variables, coordinates, head_dim=width // heads)
        self.start = nn.Parameter(torch.empty(width).normal_(std=INITIAL_SCALE))
        self.evidence = nn.Parameter(torch.empty(width).normal_(std=INITIAL_SCALE))
        self.blocks = nn.ModuleList(
            Block(width=width, heads=heads, depth=layers, dropout=dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self._add_parts()

    def _add_parts(self) -> None:
        """Adds parameters of a subclass, after those of the shared parts."""

    @abstractmethod
    def _tokens(self, past: Tensor, past_variables: Tensor, query_variables: Tensor) -> Tokens:
        """Returns the tokens of a path from the value tokens before its queries."""

    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        """Returns tokens of paths ``(rows, steps)``, and how many last ones have no keys."""
        before = path[:, :-1]
        past = self.embedding.value_tokens(x.gather(1, before), before)
        return self._tokens(past, before, path), path.shape[1] if self.asks_many else 0

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Returns the features of every factor in one pass; see `PathNetwork.forward`."""
        return along_paths(self._one_pass, x, query=query, given=given, rank=rank, width=self.width)

    def encode(self, x: Tensor, given: Tensor) -> PathState:
        """Encodes the evidence; see `PathNetwork.encode`."""
        x = mask_unread(x, given)
        evidence, num_given = evidence_lists(given)
        evidence, known = trim(evidence, num_given)
        tokens = self._evidence_tokens(x, evidence)
        return PathState(
            evidence=self._evidence_cache(tokens, self._with_prefix(known)),
            known=self._with_prefix(known),
            capacity=given.shape[1] - int(num_given.min()) + 1,
            pending_variables=evidence[:, :0],
            pending_values=x[:, :0],
        )

    def tell(self, state: PathState, variables: Tensor, values: Tensor) -> PathState:
        """Stores known values, in place, for the next `ask`; see `PathNetwork.tell`."""
        variables = variables.expand_as(values)
        state.pending_variables = torch.cat([state.pending_variables, variables], dim=1)
        state.pending_values = torch.cat([state.pending_values, values], dim=1)
        return state

    def _one_pass(self, bucket: Bucket) -> Tensor:
        """Returns the features ``(rows, steps, width)`` of a bucket."""
        evidence = self._evidence_tokens(bucket.x, bucket.evidence)
        path, queried = self._path_tokens(bucket.x, bucket.path)
        tokens = Tokens(*(torch.cat(pair, dim=1) for pair in zip(evidence, path, strict=True)))
        num_evidence, num_keys = evidence.key_positions.shape[1], tokens.key_positions.shape[1]
        segments = path_segments(
            self._with_prefix(bucket.known),
            evidence=num_evidence,
            past=num_keys - num_evidence,
            queried=queried,
            device=bucket.x.device,
        )
        # The last block runs for the last segment only, which alone is read.
        read = tokens.hidden.shape[1] - segments[-1].start
        return self._step(OnePass(segments), tokens, queried=read)[:, -bucket.path.shape[1] :]

    def _step(self, memory: Memory, tokens: Tokens, *, queried: int) -> Tensor:
        """Runs new tokens, gives their keys to `memory`, and returns features of the last ones."""
        rotation = self._rotation(tokens.query_positions)
        key_rotation = self._rotation(tokens.key_positions)
        hidden, new, skipped = tokens.hidden, tokens.key_positions.shape[1], 0
        for index, block in enumerate(self.blocks):
            normed = block.normalise(hidden)
            if new:
                memory.append(index, *block.keys_values(normed[:, :new], key_rotation))
            if block is self.blocks[-1]:
                skipped = hidden.shape[1] - queried
                hidden, normed = hidden[:, skipped:], normed[:, skipped:]
                rotation = None if rotation is None else rotation[:, skipped:]
            queries = block.queries(normed, rotation)
            attended = memory.attend(index, queries, new=new, skipped=skipped)
            hidden = block.update(hidden, attended)
        return self.norm(hidden)

    def _evidence_tokens(self, x: Tensor, evidence: Tensor) -> Tokens:
        """Returns the context, a start token that every query attends to, and the evidence.

        The shape of `evidence` is ``(rows, evidence)``.
        """
        past = self.embedding.value_tokens(x.gather(1, evidence), evidence) + self.evidence
        context, start = self.embedding.context_tokens(x), self.start.expand(len(x), 1, -1)
        variables = nn.functional.pad(evidence, (self._prefix, 0), value=self.no_position)
        return Tokens(torch.cat([context, start, past], dim=1), variables, variables)

    @property
    def _prefix(self) -> int:
        return 1 + self.embedding.context.num_tokens

    def _with_prefix(self, known: Tensor | None) -> Tensor | None:
        """Prepends True for context and start. Shape ``(rows, prefix + evidence)``."""
        return None if known is None else nn.functional.pad(known, (self._prefix, 0), value=True)

    def _rotation(self, variables: Tensor) -> Tensor | None:
        return None if self.rotary is None else self.rotary(variables)

    def _evidence_cache(self, tokens: Tokens, known: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        """Returns keys and values of the evidence, which attends to itself only, of each block."""
        count, seen = tokens.hidden.shape[1], None if known is None else known[:, None, None]
        memory = OnePass([Segment(0, count, count, seen)], keeps=True)
        self._step(memory, tokens, queried=0)
        return memory.cache


class PathTransformer(PathStreams):
    r"""Two-stream path network: every factor of any conditional from |E| + 2|U| tokens.

    Tokens are E (evidence, values), U (query values, in canonical order) and Q (queries: variables
    without values). Attention is causal along the path::

        E attends to E;   U_k to E, U_1..U_k;   Q_k to E, U_1..U_{k-1} and itself;
        no other token attends to Q.

    Query tokens are not cached, so many variables can be queried of one state. No factor conditions
    on the last value of the path, so it has no token in one pass.

    Reference:
        Shih, Sadigh and Ermon (2022), Alg. 1 and 2 in one pass; Yang et al. (2019), XLNet.

    Example:
        >>> from anyorder.variables import Schema, Variable
        >>> schema = Schema(tuple(Variable.categorical(name, [1, 2, 3]) for name in "wxyz"))
        >>> network = PathTransformer(schema, layers=2, width=16, heads=2)
        >>> x, given = torch.tensor([[0, 1, 2, 0]]), torch.tensor([[True, False, False, False]])
        >>> network(x, query=~given, given=given, rank=torch.arange(4)).target
        tensor([1, 2, 3])
        >>> network.ask(network.encode(x, given), torch.tensor([3])).shape
        torch.Size([1, 1, 16])
    """

    def ask(self, state: PathState, variables: Tensor) -> Tensor:
        """Returns features of variables; see `PathNetwork.ask`."""
        past_variables, past_values = state.pending_variables, state.pending_values
        variables = variables.expand(len(past_variables), -1)
        past = self.embedding.value_tokens(past_values, past_variables)
        tokens = self._tokens(past, past_variables, variables)
        features = self._step(state, tokens, queried=variables.shape[1])
        state.length += past_variables.shape[1]
        state.pending_variables, state.pending_values = past_variables[:, :0], past_values[:, :0]
        return features

    def _tokens(self, past: Tensor, past_variables: Tensor, query_variables: Tensor) -> Tokens:
        """Returns U, then Q; only U has keys."""
        hidden = torch.cat([past, self.embedding.query_tokens(query_variables)], dim=1)
        return Tokens(hidden, torch.cat([past_variables, query_variables], dim=1), past_variables)


class SingleStreamPathTransformer(PathStreams):
    r"""Single-stream path network: every factor of any conditional from |E| + |U| tokens.

    Token k of the path carries variable k, its value, and variable k + 1, which it predicts; token
    0 carries the first query only. Its attention query has the position of the predicted variable,
    its key that of its own. It has half the path tokens of two streams, but a query is part of the
    path: if several variables are queried of one state, each is a path of its own.
    """

    asks_many = False

    def _add_parts(self) -> None:
        self.next = None
        if self.positions != "rotary":
            # A table of its own: a sum of two rows of one table would not say which is the query.
            self.next = nn.Embedding(self.embedding.num_variables, self.width)
            nn.init.normal_(self.next.weight, std=INITIAL_SCALE)

    def ask(self, state: PathState, variables: Tensor) -> Tensor:
        """Returns features of variables; see `PathNetwork.ask`."""
        past_variables, past_values = state.pending_variables, state.pending_values
        variables = variables.expand(len(past_variables), -1)
        if variables.shape[1] != 1:
            return self._features_each(state, variables)
        # Token 0, which queries the first variable of the path, is never among the pending ones.
        begins = state.length == 0
        queried = torch.cat([past_variables if begins else past_variables[:, 1:], variables], dim=1)
        past = self.embedding.value_tokens(past_values, past_variables)
        tokens = self._tokens(past, past_variables, queried)
        features = self._step(state, tokens, queried=1)
        # The last token may still query another variable: it stays pending until ``tell``.
        state.length += queried.shape[1] - 1
        state.pending_variables, state.pending_values = past_variables[:, -1:], past_values[:, -1:]
        state.queried = variables
        return features

    def _features_each(self, state: PathState, variables: Tensor) -> Tensor:
        """Returns features of each variable as the only query, by a continuation of its own."""
        number = variables.shape[1]
        alone = self.ask(state.expand(number), variables.reshape(-1, 1))
        return alone.view(len(variables), number, -1)

    def tell(self, state: PathState, variables: Tensor, values: Tensor) -> PathState:
        """Stores known values, in place, for the next `ask`; see `PathNetwork.tell`."""
        variables = variables.expand_as(values)
        if state.queried is not None and torch.equal(state.queried, variables[:, :1]):
            # The value of the last query: its query token is in the cache and stays there.
            state.length += 1
            state.pending_variables, state.pending_values = variables[:, :0], values[:, :0]
        state.queried = None
        return super().tell(state, variables, values)

    def _tokens(self, past: Tensor, past_variables: Tensor, query_variables: Tensor) -> Tokens:
        """Returns past tokens, after token 0 if they begin the path, each with the next query."""
        if past.shape[1] < query_variables.shape[1]:
            past = torch.cat([self.embedding.blank.expand(len(past), 1, -1), past], dim=1)
            past_variables = nn.functional.pad(past_variables, (1, 0), value=self.no_position)
        hidden = past if self.next is None else past + self.next(query_variables)
        return Tokens(hidden, query_variables, past_variables)
