"""One pass over the tokens of a path, or one step of it with a cache: the features are the same.

Path networks differ in what their tokens carry, and so in two methods: the tokens of a
whole path and the tokens of a step.

The one-pass network, two streams: what is told and what is asked are tokens of their own.

The one-pass network, one stream: a token carries its value and the question that comes next.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from anyorder.errors import check_choice
from anyorder.networks.blocks import Block, Rotary, check_shape
from anyorder.networks.cache import Memory, PathState, Segment, attend, path_segments
from anyorder.networks.contracts import PathFeatures, PathNetwork
from anyorder.networks.embedding import INITIAL_SCALE, VariableEmbedding
from anyorder.networks.paths import Bucket, along_paths, evidence_lists, read_only, trim
from anyorder.variables import Schema

Positions = Literal["rotary", "both", "absolute"]


class Tokens(NamedTuple):
    """Tokens with the positions they look from and are seen at; the first of them are keys."""

    hidden: Tensor  # (batch, tokens, width)
    looks_from: Tensor  # (batch, tokens) the variable whose position turns the query
    is_at: Tensor  # (batch, keys) the variable whose position turns the key


class PathStreams(PathNetwork[PathState]):
    """A Transformer that is bidirectional over the evidence and causal along the query.

    Args:
        schema: The variables.
        layers: Number of blocks.
        width: Size of the features.
        heads: Attention heads; divides ``width``.
        positions: How a token says which variable it is of: "rotary" by its place relative to
            others, "both" by a vector of its own too, "absolute" by that vector alone: for
            variables without a place, like the columns of a table. Where variables do have places,
            a path network without relative ones learns marginals quickly and conditionals badly.
        coordinates: Where each variable is, for rotary positions; its index by default.
            Shape ``(vars,)`` or ``(vars, axes)``.
        shared: Whether variables with the same levels share the vectors of their values.
        dropout: Share of each branch's output that is dropped in training.
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
        self.nowhere = schema.num_variables  # the position of tokens that are of no variable
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
        """For networks whose tokens need more than the embedding."""

    @abstractmethod
    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        """The tokens of a path after its evidence, and how many of them, the last, have no key.

        Args:
            x: Values. Shape ``(rows, vars)``.
            path: Variables in order. Shape ``(rows, steps)``.
        """

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Features of every factor in one pass; see `PathNetwork.forward`."""
        return along_paths(self._one_pass, x, query=query, given=given, rank=rank, width=self.width)

    def encode(self, x: Tensor, given: Tensor) -> PathState:
        """Encodes the evidence; see `PathNetwork.encode`."""
        x = read_only(x, given)
        evidence, num_given = evidence_lists(given)
        evidence, known = trim(evidence, num_given)
        tokens = self._evidence_tokens(x, evidence)
        return PathState(
            evidence=self._evidence_cache(tokens, self._with_front(known)),
            known=self._with_front(known),
            capacity=given.shape[1] - int(num_given.min()) + 1,
            pending_variables=evidence[:, :0],
            pending_values=x[:, :0],
        )

    def tell(self, state: PathState, variables: Tensor, values: Tensor) -> PathState:
        """Notes known values, in place, for the next `ask`; see `PathNetwork.tell`."""
        variables = variables.expand_as(values)
        state.pending_variables = torch.cat([state.pending_variables, variables], dim=1)
        state.pending_values = torch.cat([state.pending_values, values], dim=1)
        return state

    def _one_pass(self, bucket: Bucket) -> Tensor:
        """Features ``(rows, steps, width)`` of a bucket."""
        evidence = self._evidence_tokens(bucket.x, bucket.evidence)
        path, asked = self._path_tokens(bucket.x, bucket.path)
        tokens = Tokens(*(torch.cat(pair, dim=1) for pair in zip(evidence, path, strict=True)))
        num_evidence, num_keys = evidence.is_at.shape[1], tokens.is_at.shape[1]
        segments = path_segments(
            self._with_front(bucket.known),
            evidence=num_evidence,
            told=num_keys - num_evidence,
            asked=asked,
            device=bucket.x.device,
        )
        return self._run(tokens, segments)[:, -bucket.path.shape[1] :]

    def _run(self, tokens: Tokens, segments: list[Segment]) -> Tensor:
        """All blocks; the last one only for the last segment, which alone is read."""
        hidden = tokens.hidden
        looking, at = self._turn(tokens.looks_from), self._turn(tokens.is_at)
        num_keys = tokens.is_at.shape[1]
        for block in self.blocks:
            normed = block.normalise(hidden)
            keys, values = block.keys_values(normed[:, :num_keys], at)
            if block is self.blocks[-1]:
                segments = segments[-1:]
                hidden, normed, looking = _after(segments[0].start, hidden, normed, looking)
            attended = attend(block.queries(normed, looking), keys, values, segments)
            hidden = block.update(hidden, attended)
        return self.norm(hidden)

    def _step(self, memory: Memory, tokens: Tokens, *, asked: int) -> Tensor:
        """Runs new tokens, adds their keys to memory, returns features of the last ``asked``."""
        hidden = tokens.hidden
        looking, at = self._turn(tokens.looks_from), self._turn(tokens.is_at)
        new, skipped = tokens.is_at.shape[1], 0
        for index, block in enumerate(self.blocks):
            normed = block.normalise(hidden)
            if new:
                memory.append(index, *block.keys_values(normed[:, :new], at))
            if block is self.blocks[-1]:
                skipped = hidden.shape[1] - asked
                hidden, normed, looking = _after(skipped, hidden, normed, looking)
            queries = block.queries(normed, looking)
            attended = memory.attend(index, queries, new=new, skipped=skipped)
            hidden = block.update(hidden, attended)
        return self.norm(hidden)

    def _evidence_tokens(self, x: Tensor, evidence: Tensor) -> Tokens:
        """In front the context and a start token, so that no question is blind; then evidence.

        Shape of `evidence` ``(rows, evidence)``.
        """
        told = self.embedding.told(x.gather(1, evidence), evidence) + self.evidence
        context, start = self.embedding.context_tokens(x), self.start.expand(len(x), 1, -1)
        variables = nn.functional.pad(evidence, (self._front, 0), value=self.nowhere)
        return Tokens(torch.cat([context, start, told], dim=1), variables, variables)

    @property
    def _front(self) -> int:
        return 1 + self.embedding.context.num_tokens

    def _with_front(self, known: Tensor | None) -> Tensor | None:
        """Adds what is in front, which is always known. Shape ``(rows, front + evidence)``."""
        return None if known is None else nn.functional.pad(known, (self._front, 0), value=True)

    def _turn(self, variables: Tensor) -> Tensor | None:
        return None if self.rotary is None else self.rotary(variables)

    def _evidence_cache(self, tokens: Tokens, known: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of the evidence, per block: it sees itself only, they serve any path."""
        hidden, at, cache = tokens.hidden, self._turn(tokens.is_at), []
        num_evidence = hidden.shape[1]
        seen = None if known is None else known[:, None, None]
        for block in self.blocks:
            normed = block.normalise(hidden)
            keys, values = block.keys_values(normed, at)
            cache.append((keys, values))
            if block is not self.blocks[-1]:
                everything = [Segment(0, num_evidence, num_evidence, seen)]
                attended = attend(block.queries(normed, at), keys, values, everything)
                hidden = block.update(hidden, attended)
        return cache


def _after(
    start: int, hidden: Tensor, normed: Tensor, turn: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The tokens from `start` on."""
    return hidden[:, start:], normed[:, start:], None if turn is None else turn[:, start:]


class PathTransformer(PathStreams):
    r"""Every factor of any conditional in one pass over |E| + 2|U| tokens.

    Tokens are E (evidence, values), U (query values, in canonical order) and Q (questions: which
    variable, no value)::

        E sees E;   U_k sees E, U_1..U_k;   Q_k sees E, U_1..U_{k-1} and itself;
        nothing else sees Q.

    Questions are read, not remembered, so many variables can be asked at once. No factor conditions
    on the last value of the path, so it is not told in a fused pass.

    Reference:
        Shih, Sadigh and Ermon (2022), Alg. 1 and 2, without a loop of passes.

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
        """Features of variables; see `PathNetwork.ask`."""
        told_variables, told_values = state.pending_variables, state.pending_values
        variables = variables.expand(len(told_variables), -1)
        told = self.embedding.told(told_values, told_variables)
        tokens = self._tokens(told, told_variables, variables)
        features = self._step(state, tokens, asked=variables.shape[1])
        state.length += told_variables.shape[1]
        state.pending_variables, state.pending_values = told_variables[:, :0], told_values[:, :0]
        return features

    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        before = path[:, :-1]
        told = self.embedding.told(x.gather(1, before), before)
        return self._tokens(told, before, path), path.shape[1]

    def _tokens(self, told: Tensor, told_variables: Tensor, asked_variables: Tensor) -> Tokens:
        """U, then Q; only U has keys."""
        hidden = torch.cat([told, self.embedding.asked(asked_variables)], dim=1)
        return Tokens(hidden, torch.cat([told_variables, asked_variables], dim=1), told_variables)


class SingleStreamPathTransformer(PathStreams):
    r"""Every factor of any conditional in one pass over |E| + |U| tokens.

    Token k of the path carries variable k, its value, and variable k + 1, which it predicts; token
    0 carries the first question only. It looks from the position of what it predicts and is seen at
    its own. Half the tokens of two streams, but a question is part of the path: when several
    variables are asked at once, each is a path of its own.
    """

    asks_many = False

    def _add_parts(self) -> None:
        self.next = None
        if self.positions != "rotary":
            # A table of its own: the sum of two rows of one would not say which is asked.
            self.next = nn.Embedding(self.embedding.num_variables, self.width)
            nn.init.normal_(self.next.weight, std=INITIAL_SCALE)

    def ask(self, state: PathState, variables: Tensor) -> Tensor:
        """Features of variables; see `PathNetwork.ask`."""
        told_variables, told_values = state.pending_variables, state.pending_values
        variables = variables.expand(len(told_variables), -1)
        if variables.shape[1] != 1:
            return self._ask_each(state, variables)
        # Token 0, which asks for the first variable of the path, is never among the pending ones.
        begins = state.length == 0
        asked = torch.cat([told_variables if begins else told_variables[:, 1:], variables], dim=1)
        told = self.embedding.told(told_values, told_variables)
        tokens = self._tokens(told, told_variables, asked)
        features = self._step(state, tokens, asked=1)
        # The last token may still be asked something else: it stays pending until ``tell``.
        state.length += asked.shape[1] - 1
        state.pending_variables, state.pending_values = told_variables[:, -1:], told_values[:, -1:]
        state.asked = variables
        return features

    def _ask_each(self, state: PathState, variables: Tensor) -> Tensor:
        """Each variable as if it were the only one: a continuation of its own from one state."""
        number = variables.shape[1]
        alone = self.ask(state.expand(number), variables.reshape(-1, 1))
        return alone.view(len(variables), number, -1)

    def tell(self, state: PathState, variables: Tensor, values: Tensor) -> PathState:
        """Notes known values, in place, for the next `ask`; see `PathNetwork.tell`."""
        variables = variables.expand_as(values)
        if state.asked is not None and torch.equal(state.asked, variables[:, :1]):
            # The answer to the question: the token that asked it is in the cache, keep it.
            state.length += 1
            state.pending_variables, state.pending_values = variables[:, :0], values[:, :0]
        state.asked = None
        return super().tell(state, variables, values)

    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        before = path[:, :-1]
        told = self.embedding.told(x.gather(1, before), before)
        return self._tokens(told, before, path), 0

    def _tokens(self, told: Tensor, told_variables: Tensor, asked_variables: Tensor) -> Tokens:
        """Told tokens, behind token 0 if they begin the path, each with what comes next."""
        if told.shape[1] < asked_variables.shape[1]:
            told = torch.cat([self.embedding.blank.expand(len(told), 1, -1), told], dim=1)
            told_variables = nn.functional.pad(told_variables, (1, 0), value=self.nowhere)
        hidden = told if self.next is None else told + self.next(asked_variables)
        return Tokens(hidden, asked_variables, told_variables)
