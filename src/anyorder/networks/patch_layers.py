"""Trunk, decoder and key/value caches of `PatchPathTransformer`.

The *trunk* is a two-stream path network whose variables are patches. The *decoder* is a
single-stream path network over the places (pixel and channel) of one patch, conditioned on the
trunk's features of that patch.

Each has a cache for sampling step by step. Rows of a batch leave their patches at different steps,
so a token is stored at the index of its patch, or of its place in the patch, rather than appended;
booleans mark the entries in use.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyorder.networks.cache import Cache, Memory, attend_shared
from anyorder.networks.contracts import samples_of
from anyorder.networks.path_transformer import PathTransformer, SingleStreamPathTransformer, Tokens
from anyorder.networks.paths import pick
from anyorder.variables import Schema, Variable


class DecoderState(NamedTuple):
    """Cache of the decoder: the patch of each sample, and what is known inside it."""

    patch: Tensor  # (batch,)
    values: Tensor  # (batch, size) values of the path
    past: Tensor  # (batch, size) True where a value of the path is known
    last: Tensor  # (batch, 1) last place of the path, `size` if there is none
    condition: Tensor  # (batch, size, width) features of the trunk for each place
    memory: Tensor  # (batch, blocks, 2, heads, 1 + size, head_dim) of the start and the places
    seen: Tensor  # (batch, 1 + size) True for the start, evidence, and the past

    def put(self, samples: Tensor, others: "DecoderState") -> "DecoderState":
        """Returns a copy in which the entries of `samples` are those of `others`."""
        pairs = zip(self, others, strict=True)
        return DecoderState(*(mine.index_copy(0, samples, new) for mine, new in pairs))

    def at(self, samples: Tensor) -> "DecoderState":
        """Returns the entries of `samples`."""
        return DecoderState(*(tensor[samples] for tensor in self))


class FinishedPatches(NamedTuple):
    """Samples that finish their patches, and the tokens of these patches in the trunk."""

    samples: Tensor  # (leaving,)
    tokens: Tensor  # (leaving, blocks, 2, heads, head_dim)


class PendingQuery(NamedTuple):
    """Last query, and the tokens that enter the cache once its value is known."""

    variables: Tensor  # (batch, 1)
    inside: DecoderState  # in the patches of these variables
    left: FinishedPatches | None  # for these patches
    token: Tensor  # (batch, blocks, 2, heads, head_dim) of the decoder


@dataclass
class PatchState:
    """Key/value cache of a batch of paths; all samples of a row share its evidence.

    Values are added in place: ``expand`` a state before you continue it in two ways.
    """

    values: Tensor  # (rows, patches, size) of the evidence
    given: Tensor  # (rows, patches, size)
    evidence: Cache  # of the trunk (rows, heads, evidence, head_dim)
    known: Tensor | None  # (rows, evidence), False on padding; None without padding
    finished: Tensor  # (batch, patches) True for finished patches; the batch is rows * samples
    samples: int = 1
    patches: Tensor | None = None  # of the trunk (batch, blocks, 2, heads, patches, head_dim)
    inside: DecoderState | None = None  # None until a value of the path is known
    query: PendingQuery | None = None

    @property
    def row(self) -> Tensor:
        """Row of each sample. Shape ``(batch,)``."""
        return torch.arange(len(self.finished), device=self.finished.device) // self.samples

    def expand(self, samples: int) -> "PatchState":
        """Returns the state of ``samples`` continuations of each row, neighbours in the batch."""
        every = torch.arange(len(self.finished), device=self.finished.device)
        return self._at(every.repeat_interleave(samples), samples=self.samples * samples)

    def select(self, rows: Tensor) -> "PatchState":
        """Returns the state of some of the rows, with all their samples."""
        return replace(
            self._at(samples_of(rows, self.samples)),
            values=self.values[rows],
            given=self.given[rows],
            evidence=[(keys[rows], values[rows]) for keys, values in self.evidence],
            known=None if self.known is None else self.known[rows],
        )

    def _at(self, batch: Tensor, samples: int | None = None) -> "PatchState":
        return replace(
            self,
            finished=self.finished[batch],
            samples=self.samples if samples is None else samples,
            patches=None if self.patches is None else self.patches[batch],
            inside=None if self.inside is None else self.inside.at(batch),
            query=None,
        )

    def observe(self, places: Tensor, values: Tensor) -> None:
        """Stores the values of the pending query. Shapes ``(batch, 1)``."""
        assert self.query is not None
        if self.query.left is not None:
            self._leave(*self.query.left)
        inside, samples = self.query.inside, torch.arange(len(values), device=values.device)
        inside.memory[samples, :, :, :, 1 + places[:, 0]] = self.query.token
        inside.values.scatter_(1, places, values.to(inside.values.dtype))
        inside.past.scatter_(1, places, True)
        inside.seen.scatter_(1, 1 + places, True)
        self.inside, self.query = inside._replace(last=places), None

    def _leave(self, samples: Tensor, tokens: Tensor) -> None:
        """Stores the tokens of the patches that some samples finish."""
        assert self.inside is not None
        if self.patches is None:
            batch, number = self.finished.shape
            *blocks, head_dim = tokens.shape[1:]
            self.patches = tokens.new_zeros(batch, *blocks, number, head_dim)
        patch = self.inside.patch[samples]
        self.patches[samples, :, :, :, patch] = tokens
        self.finished[samples, patch] = True


class NewTokens:
    """Keys and values of the tokens of a step, before they enter the cache."""

    def __init__(self) -> None:
        self.new: Cache = []

    def append(self, block: int, keys: Tensor, values: Tensor) -> None:
        """See `Memory.append`."""
        assert block == len(self.new)
        self.new.append((keys, values))


class TrunkMemory(NewTokens):
    """Attention of the trunk: to evidence, finished patches and the patch finished now."""

    def __init__(self, state: PatchState) -> None:
        super().__init__()
        self.state = state

    def attend(self, block: int, queries: Tensor, *, new: int, skipped: int = 0) -> Tensor:
        """See `Memory.attend`: a past token and the query attend to the same keys."""
        del skipped
        past = self.new[block] if new else _nothing(queries)
        unseen = None
        if self.state.patches is not None:
            finished = self.state.patches[:, block].unbind(1)
            keys, values = (torch.cat(pair, dim=2) for pair in zip(finished, past, strict=True))
            past = keys, values
            unseen = F.pad(~self.state.finished, (0, new))[:, None, None]
        return attend_shared(
            queries,
            self.state.evidence[block],
            past,
            samples=self.state.samples,
            known=self.state.known,
            unseen=unseen,
        )


class DecoderMemory(NewTokens):
    """Attention of a query inside a patch: to the start, evidence, the past, and itself."""

    def __init__(self, inside: DecoderState, num_queries: int) -> None:
        super().__init__()
        self.memory = inside.memory
        seen = inside.seen[:, None].expand(-1, num_queries, -1)
        itself = torch.eye(num_queries, dtype=torch.bool, device=seen.device)
        self.seen = torch.cat([seen, itself.expand(len(seen), -1, -1)], dim=2)[:, None]

    def attend(self, block: int, queries: Tensor, *, new: int, skipped: int = 0) -> Tensor:
        """See `Memory.attend`."""
        del new, skipped
        pairs = zip(self.memory[:, block].unbind(1), self.new[block], strict=True)
        keys, values = (torch.cat(pair, dim=2) for pair in pairs)
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=self.seen)


def stacked(cache: Cache) -> Tensor:
    """Returns a cache as one tensor ``(batch, blocks, 2, heads, tokens, head_dim)``."""
    return torch.stack([torch.stack(pair, dim=1) for pair in cache], dim=1)


def _nothing(queries: Tensor) -> tuple[Tensor, Tensor]:
    return queries[:, :, :0], queries[:, :, :0]


class PatchTrunk(PathTransformer):
    r"""Features of each patch given evidence and earlier patches; see `PathTransformer`.

    The value of a patch is a vector, not a level: its variable has one level, and the vector is
    added to the token. A row of its ``x`` is that level for each patch, the context, and then the
    vectors of all patches, once as evidence and, if there is a path, once as values of the path. A
    patch that is partly given and partly queried is in both.

    Args:
        context: Context variables.
        patches: Number of patches.
        coordinates: Positions of the patches. Shape ``(patches, axes)``.
        shape: Layers, width, heads and dropout.
    """

    def __init__(
        self,
        context: Sequence[Variable],
        *,
        patches: int,
        coordinates: Sequence[Any],
        **shape: Any,
    ) -> None:
        one_level = (Variable.categorical(f"patch {i}", [0]) for i in range(patches))
        super().__init__(Schema((*one_level, *context)), coordinates=coordinates, **shape)

    def rows(self, context: Tensor, *vectors: Tensor) -> Tensor:
        """Returns the ``x`` of rows whose patches have `vectors` ``(batch, patches, width)``."""
        levels = context.new_zeros(len(context), self.schema.num_variables)
        # At least 32 bits, because a narrower type would round the context.
        wide = torch.promote_types(vectors[0].dtype, torch.float32)
        columns = (levels, context, *(each.flatten(1) for each in vectors))
        return torch.cat([column.to(wide) for column in columns], dim=1)

    def query_features(
        self, memory: Memory, patch: Tensor, left: Tensor, vectors: Tensor
    ) -> Tensor:
        """Returns features of a patch, after the patch finished now if any: ``(batch, width)``.

        Args:
            memory: Cache of the evidence and of the patches finished before.
            patch: Queried patch. Shape ``(batch, 1)``.
            left: Patches finished now, one or none a row. Shape ``(batch, left)``.
            vectors: Values of these patches. Shape ``(batch, left, width)``.
        """
        past = self.embedding.value_tokens(torch.zeros_like(left), left) + vectors
        return self._step(memory, self._tokens(past, left, patch), queried=1)[:, 0]

    def _evidence_tokens(self, x: Tensor, evidence: Tensor) -> Tokens:
        tokens = super()._evidence_tokens(x[:, : len(self.schema)], evidence)
        held = pick(self._vectors(x)[:, 0], evidence).type_as(tokens.hidden)
        hidden = tokens.hidden + nn.functional.pad(held, (0, 0, self._prefix, 0))
        return tokens._replace(hidden=hidden)

    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        tokens, queried = super()._path_tokens(x[:, : len(self.schema)], path)
        held = pick(self._vectors(x)[:, -1], path[:, :-1]).type_as(tokens.hidden)
        hidden = tokens.hidden + nn.functional.pad(held, (0, 0, 0, queried))
        return tokens._replace(hidden=hidden), queried

    def _vectors(self, x: Tensor) -> Tensor:
        """Returns the vectors in ``x``. Shape ``(batch, 1 or 2, patches, width)``."""
        return x[:, len(self.schema) :].unflatten(1, (-1, self.schema.num_variables, self.width))


class PatchDecoder(SingleStreamPathTransformer):
    """Features of the variables of a patch along the path; see `SingleStreamPathTransformer`.

    The trunk's vector of each place, its condition, is added to the token that queries the place. A
    row of its ``x`` is the values of a patch and then these vectors.
    """

    def rows(self, values: Tensor, condition: Tensor) -> Tensor:
        """Returns the ``x`` of patches; `condition` has shape ``(batch, size, width)``."""
        # At least 32 bits, because a narrower type would round the codes of levels.
        wide = torch.promote_types(condition.dtype, torch.float32)
        return torch.cat([values.to(wide), condition.flatten(1).to(wide)], dim=1)

    def read(self, values: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """Returns `memory` and `seen` of a `DecoderState` for the evidence inside patches.

        Args:
            values: Values of the patches. Shape ``(batch, size)``.
            given: Evidence. Shape ``(batch, size)``.
        """
        places = torch.arange(given.shape[1], device=given.device).expand_as(given)
        seen = nn.functional.pad(given, (1, 0), value=True)
        cache = self._evidence_cache(self._evidence_tokens(values, places), seen)
        return stacked(cache), seen

    def query_features(self, inside: DecoderState, places: Tensor) -> tuple[Tensor, Tensor]:
        """Returns features of places, each as the only query, and keys and values of the queries.

        Args:
            inside: State of the patch.
            places: Queried places. Shape ``(batch, queries)``.

        Returns:
            Shapes ``(batch, queries, width)`` and ``(batch, blocks, 2, heads, queries, head_dim)``.
        """
        begins = inside.last == self.no_position
        last = inside.last.masked_fill(begins, 0)
        past = self.embedding.value_tokens(inside.values.gather(1, last), last)
        past = torch.where(begins[..., None], self.embedding.blank, past)
        num_queries = places.shape[1]
        past = past.expand(-1, num_queries, -1)
        tokens = self._tokens(past, inside.last.expand_as(places), places)
        tokens = _conditioned(tokens, inside.condition, places)
        memory = DecoderMemory(inside, num_queries)
        return self._step(memory, tokens, queried=num_queries), stacked(memory.new)

    def _evidence_tokens(self, x: Tensor, evidence: Tensor) -> Tokens:
        return super()._evidence_tokens(x[:, : self.no_position], evidence)

    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        values, condition = x.tensor_split([self.no_position], dim=1)
        tokens, queried = super()._path_tokens(values, path)
        return _conditioned(tokens, condition.unflatten(1, (-1, self.width)), path), queried


def _conditioned(tokens: Tokens, condition: Tensor, places: Tensor) -> Tokens:
    """Adds the condition of the queried places to tokens."""
    added = pick(condition, places).type_as(tokens.hidden)
    return tokens._replace(hidden=tokens.hidden + added)
