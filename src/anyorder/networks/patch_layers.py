"""What a patch network remembers between steps: a memory of patches, and one inside a patch.

Rows of a batch leave their patches at different steps. So a token is kept where its patch, or its
place in the patch, says, and not behind the token of the step before; booleans say what is there.

The trunk of a patch network: a path network whose variables are patches.

The decoder of a patch network: a path network over the places of one patch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyorder.networks.cache import Cache, Memory, attend_shared
from anyorder.networks.path_transformer import PathTransformer, SingleStreamPathTransformer, Tokens
from anyorder.variables import Schema, Variable


class Inside(NamedTuple):
    """Where each draw is inside a patch, and what the decoder knows there."""

    patch: Tensor  # (batch,)
    values: Tensor  # (batch, size) told on the path
    told: Tensor  # (batch, size)
    last: Tensor  # (batch, 1) the place that was told last, `size` if none was
    condition: Tensor  # (batch, size, width) what the trunk says of each place
    memory: Tensor  # (batch, blocks, 2, heads, 1 + size, head_dim) of the start and the places
    seen: Tensor  # (batch, 1 + size) the start, evidence, and what was told

    def put(self, draws: Tensor, others: "Inside") -> "Inside":
        """A copy in which some draws are elsewhere."""
        pairs = zip(self, others, strict=True)
        return Inside(*(mine.index_copy(0, draws, new) for mine, new in pairs))

    def at(self, draws: Tensor) -> "Inside":
        """Some of the draws."""
        return Inside(*(tensor[draws] for tensor in self))


class Left(NamedTuple):
    """Draws that leave their patches, and the tokens of these patches in the trunk."""

    draws: Tensor  # (leaving,)
    tokens: Tensor  # (leaving, blocks, 2, heads, head_dim)


class Question(NamedTuple):
    """The last question, and the tokens that are remembered if its answer is told."""

    variables: Tensor  # (batch, 1)
    inside: Inside  # in the patches of these variables
    left: Left | None  # for these patches
    token: Tensor  # (batch, blocks, 2, heads, head_dim) of the decoder


@dataclass
class PatchState:
    """The evidence and what was told of a batch of paths; many draws of a row share its evidence.

    Answers are told in place: do not tell two different things to one state, ``expand`` it first.
    """

    values: Tensor  # (rows, patches, size) of the evidence
    given: Tensor  # (rows, patches, size)
    evidence: Cache  # of the trunk (rows, heads, evidence, head_dim)
    known: Tensor | None  # (rows, evidence), False on padding; None without padding
    finished: Tensor  # (batch, patches) those that were left; the batch is rows * draws
    draws: int = 1
    patches: Tensor | None = None  # of the trunk (batch, blocks, 2, heads, patches, head_dim)
    inside: Inside | None = None  # None until something is told
    question: Question | None = None

    @property
    def row(self) -> Tensor:
        """The row of each draw. Shape ``(batch,)``."""
        return torch.arange(len(self.finished), device=self.finished.device) // self.draws

    def draws_of(self, rows: Tensor) -> Tensor:
        """Where the draws of some rows are in the batch."""
        draws = torch.arange(self.draws, device=rows.device)
        return (rows[:, None] * self.draws + draws).flatten()

    def expand(self, draws: int) -> "PatchState":
        """The state of ``draws`` continuations of each row, neighbours in the batch."""
        every = torch.arange(len(self.finished), device=self.finished.device)
        return self._draws(every.repeat_interleave(draws), draws=self.draws * draws)

    def select(self, rows: Tensor) -> "PatchState":
        """The state of some of the rows, with all their draws."""
        return replace(
            self._draws(self.draws_of(rows)),
            values=self.values[rows],
            given=self.given[rows],
            evidence=[(keys[rows], values[rows]) for keys, values in self.evidence],
            known=None if self.known is None else self.known[rows],
        )

    def _draws(self, batch: Tensor, draws: int | None = None) -> "PatchState":
        return replace(
            self,
            finished=self.finished[batch],
            draws=self.draws if draws is None else draws,
            patches=None if self.patches is None else self.patches[batch],
            inside=None if self.inside is None else self.inside.at(batch),
            question=None,
        )

    def answer(self, places: Tensor, values: Tensor) -> None:
        """Takes the values that answer the question. Shapes ``(batch, 1)``."""
        assert self.question is not None
        if self.question.left is not None:
            self._leave(*self.question.left)
        inside, draws = self.question.inside, torch.arange(len(values), device=values.device)
        inside.memory[draws, :, :, :, 1 + places[:, 0]] = self.question.token
        inside.values.scatter_(1, places, values.to(inside.values.dtype))
        inside.told.scatter_(1, places, True)
        inside.seen.scatter_(1, 1 + places, True)
        self.inside, self.question = inside._replace(last=places), None

    def _leave(self, draws: Tensor, tokens: Tensor) -> None:
        """Remembers the patches that some draws leave."""
        assert self.inside is not None
        if self.patches is None:
            batch, number = self.finished.shape
            *blocks, head_dim = tokens.shape[1:]
            self.patches = tokens.new_zeros(batch, *blocks, number, head_dim)
        patch = self.inside.patch[draws]
        self.patches[draws, :, :, :, patch] = tokens
        self.finished[draws, patch] = True


class NewTokens:
    """Keys and values of the tokens of a step, which are not remembered yet."""

    def __init__(self) -> None:
        self.new: Cache = []

    def append(self, block: int, keys: Tensor, values: Tensor) -> None:
        """See `Memory.append`."""
        assert block == len(self.new)
        self.new.append((keys, values))


class TrunkMemory(NewTokens):
    """The trunk sees the evidence, the finished patches, and the patch that is left now."""

    def __init__(self, state: PatchState) -> None:
        super().__init__()
        self.state = state

    def attend(self, block: int, queries: Tensor, *, new: int, skipped: int = 0) -> Tensor:
        """See `Memory.attend`: a told token and the question see the same."""
        del skipped
        told = self.new[block] if new else _nothing(queries)
        unseen = None
        if self.state.patches is not None:
            finished = self.state.patches[:, block].unbind(1)
            keys, values = (torch.cat(pair, dim=2) for pair in zip(finished, told, strict=True))
            told = keys, values
            unseen = F.pad(~self.state.finished, (0, new))[:, None, None]
        return attend_shared(
            queries,
            self.state.evidence[block],
            told,
            draws=self.state.draws,
            known=self.state.known,
            unseen=unseen,
        )


class DecoderMemory(NewTokens):
    """A question sees the start, evidence of its patch, what was told there, and itself."""

    def __init__(self, inside: Inside, questions: int) -> None:
        super().__init__()
        self.memory = inside.memory
        seen = inside.seen[:, None].expand(-1, questions, -1)
        itself = torch.eye(questions, dtype=torch.bool, device=seen.device)
        self.seen = torch.cat([seen, itself.expand(len(seen), -1, -1)], dim=2)[:, None]

    def attend(self, block: int, queries: Tensor, *, new: int, skipped: int = 0) -> Tensor:
        """See `Memory.attend`."""
        del new, skipped
        pairs = zip(self.memory[:, block].unbind(1), self.new[block], strict=True)
        keys, values = (torch.cat(pair, dim=2) for pair in pairs)
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=self.seen)


def stacked(cache: Cache) -> Tensor:
    """All blocks as one tensor. Shape ``(batch, blocks, 2, heads, tokens, head_dim)``."""
    return torch.stack([torch.stack(pair, dim=1) for pair in cache], dim=1)


def _nothing(queries: Tensor) -> tuple[Tensor, Tensor]:
    return queries[:, :, :0], queries[:, :, :0]


class PatchTrunk(PathTransformer):
    r"""A question about each patch, given evidence and earlier patches; see `PathTransformer`.

    What a patch holds is a vector, not a level: its variable has one level, and the vector is added
    to the token. A row of its ``x`` is that level for each patch, the context, and then the vectors
    of all patches, once as evidence and, if there is a path, once as they are told on it: a patch
    of which a part is given and a part asked is in both.

    Args:
        context: Context variables.
        patches: How many.
        coordinates: Where they are. Shape ``(patches, axes)``.
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
        """The ``x`` of rows whose patches hold vectors ``(batch, patches, width)``."""
        levels = context.new_zeros(len(context), self.schema.num_variables)
        # Not in a narrower type than 32 bits, which would round the context.
        wide = torch.promote_types(vectors[0].dtype, torch.float32)
        columns = (levels, context, *(each.flatten(1) for each in vectors))
        return torch.cat([column.to(wide) for column in columns], dim=1)

    def question(self, memory: Memory, patch: Tensor, left: Tensor, vectors: Tensor) -> Tensor:
        """Features of a patch after those that are left now, one or none. Shape ``(batch, width)``.

        Args:
            memory: Evidence and the patches that were left before.
            patch: Which patch is asked. Shape ``(batch, 1)``.
            left: Which patches are left. Shape ``(batch, left)``.
            vectors: What they hold. Shape ``(batch, left, width)``.
        """
        told = self.embedding.told(torch.zeros_like(left), left) + vectors
        return self._step(memory, self._tokens(told, left, patch), asked=1)[:, 0]

    def _evidence_tokens(self, x: Tensor, evidence: Tensor) -> Tokens:
        tokens = super()._evidence_tokens(x[:, : len(self.schema)], evidence)
        held = pick(self._vectors(x)[:, 0], evidence).type_as(tokens.hidden)
        hidden = tokens.hidden + nn.functional.pad(held, (0, 0, self._front, 0))
        return tokens._replace(hidden=hidden)

    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        tokens, asked = super()._path_tokens(x[:, : len(self.schema)], path)
        held = pick(self._vectors(x)[:, -1], path[:, :-1]).type_as(tokens.hidden)
        hidden = tokens.hidden + nn.functional.pad(held, (0, 0, 0, asked))
        return tokens._replace(hidden=hidden), asked

    def _vectors(self, x: Tensor) -> Tensor:
        """Shape ``(batch, 1 or 2, patches, width)``."""
        return x[:, len(self.schema) :].unflatten(1, (-1, self.schema.num_variables, self.width))


def pick(vectors: Tensor, places: Tensor) -> Tensor:
    """``(batch, n, width)`` at ``(batch, m)`` -> ``(batch, m, width)``."""
    return vectors.gather(1, places[..., None].expand(-1, -1, vectors.shape[2]))


class PatchDecoder(SingleStreamPathTransformer):
    """Features of the variables of a patch along the path; see `SingleStreamPathTransformer`.

    What the rest of the image says of each place, a vector, is added to the token that asks for it.
    A row of its ``x`` is the values of a patch and then these vectors.
    """

    def rows(self, values: Tensor, condition: Tensor) -> Tensor:
        """The ``x`` of patches with a vector for each place ``(batch, size, width)``."""
        # Not in a narrower type than 32 bits, which would round the codes of levels.
        wide = torch.promote_types(condition.dtype, torch.float32)
        return torch.cat([values.to(wide), condition.flatten(1).to(wide)], dim=1)

    def read(self, values: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """What is remembered of evidence inside patches: `Inside.memory` and `Inside.seen`.

        Args:
            values: Shape ``(batch, size)``.
            given: Shape ``(batch, size)``.
        """
        places = torch.arange(given.shape[1], device=given.device).expand_as(given)
        seen = nn.functional.pad(given, (1, 0), value=True)
        cache = self._evidence_cache(self._evidence_tokens(values, places), seen)
        return stacked(cache), seen

    def answers(self, inside: Inside, places: Tensor) -> tuple[Tensor, Tensor]:
        """Features of places, each as if it alone were asked, and the tokens that ask.

        Args:
            inside: What is known in the patch.
            places: Shape ``(batch, questions)``.

        Returns:
            Shapes ``(batch, questions, width)`` and ``(batch, blocks, 2, heads, questions,
            head_dim)``.
        """
        begins = inside.last == self.nowhere
        last = inside.last.masked_fill(begins, 0)
        told = self.embedding.told(inside.values.gather(1, last), last)
        told = torch.where(begins[..., None], self.embedding.blank, told)
        questions = places.shape[1]
        tokens = self._tokens(told.expand(-1, questions, -1), inside.last.expand_as(places), places)
        tokens = _with(tokens, inside.condition, places)
        memory = DecoderMemory(inside, questions)
        return self._step(memory, tokens, asked=questions), stacked(memory.new)

    def _evidence_tokens(self, x: Tensor, evidence: Tensor) -> Tokens:
        return super()._evidence_tokens(x[:, : self.nowhere], evidence)

    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        values, condition = x.tensor_split([self.nowhere], dim=1)
        tokens, asked = super()._path_tokens(values, path)
        return _with(tokens, condition.unflatten(1, (-1, self.width)), path), asked


def _with(tokens: Tokens, condition: Tensor, places: Tensor) -> Tokens:
    """Tokens with what is said of the places that they ask for."""
    said = pick(condition, places).type_as(tokens.hidden)
    return tokens._replace(hidden=tokens.hidden + said)
