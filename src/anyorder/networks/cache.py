"""What a path network remembers between steps: the key/value cache, and attention over it.

Who sees whom along a path, in one pass over all of it.

E (evidence) sees E; U_k (the k-th told value of the path) sees E, U_1..U_k; Q_k (the k-th question)
sees E, U_1..U_{k-1}. (Q_k needs no key of its own to see itself: it is its own residual stream, and
the start token in E is there when it has nothing to look for.)
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class Segment(NamedTuple):
    """The queries of tokens ``start`` .. ``stop`` attend to the keys of tokens 0 .. ``reach``."""

    start: int
    stop: int
    reach: int
    seen: Tensor | None = None  # (queries, keys) or (rows, 1, queries or 1, keys); None is all
    causal: bool = False  # key j is seen by queries j, j + 1, ...; then ``seen`` is None


def path_segments(
    known: Tensor | None, *, evidence: int, told: int, asked: int, device: torch.device
) -> list[Segment]:
    """Who sees whom when tokens are E, then U, then Q, attended in calls of their own.

    One call over all tokens would score every pair and mask most of it away.

    Args:
        known: False where the evidence of a row is padding; None without padding.
            Shape ``(rows, evidence)``.
        evidence: Tokens of E, the start token included.
        told: Tokens of U.
        asked: Tokens of Q: ``told + 1``, or 0 with a single stream.
        device: Where the tokens are.
    """
    keys, tokens = evidence + told, evidence + told + asked
    if evidence == 1:  # the start token alone: squares, for which a causal kernel needs no mask
        segments = [Segment(0, keys, keys, causal=True), Segment(keys, tokens, keys, causal=True)]
        return segments if asked else segments[:1]
    square = torch.ones(told + 1, keys, dtype=torch.bool, device=device)
    told_sees, asked_sees = square[:told].tril(evidence), square.tril(evidence - 1)
    evidence_sees = None
    if known is not None:
        evidence_sees = known[:, None, None]
        always = F.pad(evidence_sees, (0, told), value=True)  # (rows, 1, 1, keys)
        told_sees, asked_sees = told_sees & always, asked_sees & always
    segments = [
        Segment(0, evidence, evidence, evidence_sees),
        Segment(evidence, keys, keys, told_sees),
        Segment(keys, tokens, keys, asked_sees),
    ]
    return [segment for segment in segments if segment.start < segment.stop]


def attend(queries: Tensor, keys: Tensor, values: Tensor, segments: list[Segment]) -> Tensor:
    """Attention by segments, in and out ``(rows, heads, tokens, head_dim)``."""
    origin = segments[0].start
    attended = [
        F.scaled_dot_product_attention(
            queries[:, :, start - origin : stop - origin],
            keys[:, :, :reach],
            values[:, :, :reach],
            attn_mask=seen,
            is_causal=causal,
        ).transpose(1, 2)
        for start, stop, reach, seen, causal in segments
    ]
    # Joined as (rows, tokens, heads, head_dim), the layout that the next projection reads without
    # another copy.
    return torch.cat(attended, dim=1).transpose(1, 2)


Cache = list[tuple[Tensor, Tensor]]  # keys and values, per block


class Memory(Protocol):
    """What the new tokens of a step are added to, and attend to."""

    def append(self, block: int, keys: Tensor, values: Tensor) -> None:
        """Takes the keys and values of new tokens."""
        ...

    def attend(self, block: int, queries: Tensor, *, new: int, skipped: int = 0) -> Tensor:
        """Attention over what is remembered and the `new` tokens; see `PathState.attend`."""
        ...


@dataclass
class PathState:
    """The evidence and what was told of a batch of paths; many draws of a row share its evidence.

    ``tell`` only notes the token (``pending``); the next ``ask`` runs it together with the
    question, so that a step reads the weights once and not twice. Told keys are appended in place,
    into room made for the longest path: do not tell two different things to one state, ``expand``
    it first.

    With several draws a row, evidence is kept once a row, and all draws attend to it in one
    product. With one draw it is copied in front of the told tokens, and attention is one call.
    """

    evidence: Cache  # (rows, heads, evidence, head_dim)
    known: Tensor | None  # (rows, evidence), False on padding; None without padding
    capacity: int  # the most tokens that can be told
    pending_variables: Tensor  # (rows * draws, pending)
    pending_values: Tensor  # (rows * draws, pending)
    draws: int = 1
    told: Cache | None = None  # (rows * draws, heads, in front + capacity, head_dim)
    length: int = 0  # tokens told, without the pending ones
    asked: Tensor | None = (
        None  # (rows * draws, 1) the question whose token is behind the told ones
    )

    @property
    def in_front(self) -> int:
        """Evidence tokens in front of the told ones in their cache."""
        return self.evidence[0][0].shape[2] if self.draws == 1 else 0

    def expand(self, draws: int) -> "PathState":
        """The state of ``draws`` continuations of each row, neighbours in the batch."""
        cut = self.in_front if draws > 1 else 0  # with several draws the evidence stays apart

        def repeat(tensor: Tensor) -> Tensor:
            return tensor.repeat_interleave(draws, dim=0)

        told = self.told and [
            (repeat(keys[:, :, cut:]), repeat(values[:, :, cut:])) for keys, values in self.told
        ]
        return replace(
            self,
            draws=self.draws * draws,
            pending_variables=repeat(self.pending_variables),
            pending_values=repeat(self.pending_values),
            told=told,
            asked=None,
        )

    def select(self, rows: Tensor) -> "PathState":
        """The state of some of the rows, all their draws: drops the rows whose path has ended."""
        draws = torch.arange(self.draws, device=rows.device)
        batch = (rows[:, None] * self.draws + draws).flatten()
        return replace(
            self,
            evidence=[(keys[rows], values[rows]) for keys, values in self.evidence],
            known=None if self.known is None else self.known[rows],
            pending_variables=self.pending_variables[batch],
            pending_values=self.pending_values[batch],
            told=self.told and [(keys[batch], values[batch]) for keys, values in self.told],
            asked=None,
        )

    def append(self, block: int, keys: Tensor, values: Tensor) -> None:
        """Writes behind the told tokens of a block; ``length`` is for the caller to move."""
        if self.told is None:
            self.told = [self._room(pair, len(keys)) for pair in self.evidence]
        start = self.in_front + self.length
        for cache, new in zip(self.told[block], (keys, values), strict=True):
            cache[:, :, start : start + new.shape[2]] = new

    def attend(self, block: int, queries: Tensor, *, new: int, skipped: int = 0) -> Tensor:
        """Attention over the evidence, the told tokens and the ``new`` ones appended after them.

        Args:
            block: Which block's keys and values.
            queries: Of the new tokens, which are causal, and then of questions, which see all.
                Shape ``(batch, heads, tokens, head_dim)``.
            new: How many tokens were appended after ``length``.
            skipped: How many of the new tokens have no query here.
        """
        told = self.length + new
        if told == 0:
            return self._attend_evidence(block, queries)
        later = None  # (tokens, told)
        if skipped < new - 1:
            later = torch.ones(queries.shape[2], told, dtype=torch.bool, device=queries.device)
            later = later.triu(self.length + skipped + 1)
        if self.draws == 1:
            return self._attend_joined(block, queries, told, later)
        return self._attend_apart(block, queries, told, later)

    def _room(self, evidence: tuple[Tensor, Tensor], batch: int) -> tuple[Tensor, Tensor]:
        """Empty caches for a block, with the evidence in front if it is not shared."""
        front = self.in_front
        _, heads, _, head_dim = evidence[0].shape
        keys, values = (
            tensor.new_empty(batch, heads, front + self.capacity, head_dim) for tensor in evidence
        )
        if front:
            keys[:, :, :front], values[:, :, :front] = evidence
        return keys, values

    def _attend_evidence(self, block: int, queries: Tensor) -> Tensor:
        known = None if self.known is None else self.known[:, None, None]
        attended = F.scaled_dot_product_attention(
            _by_row(queries, self.draws), *self.evidence[block], attn_mask=known
        )
        return _by_draw(attended, self.draws)

    def _attend_joined(
        self, block: int, queries: Tensor, told: int, later: Tensor | None
    ) -> Tensor:
        """One draw a row: evidence and told tokens are in one cache."""
        keys, values = (cache[:, :, : self.in_front + told] for cache in self.told[block])
        seen = None if later is None else F.pad(~later, (self.in_front, 0), value=True)
        if self.known is not None:
            known = F.pad(self.known, (0, told), value=True)[:, None, None]
            seen = known if seen is None else known & seen
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)

    def _attend_apart(self, block: int, queries: Tensor, told: int, later: Tensor | None) -> Tensor:
        """Several draws a row: evidence is apart from the told tokens, and shared."""
        keys, values = (cache[:, :, :told] for cache in self.told[block])
        return attend_shared(
            queries,
            self.evidence[block],
            (keys, values),
            draws=self.draws,
            known=self.known,
            unseen=later,
        )


def attend_shared(
    queries: Tensor,
    evidence: tuple[Tensor, Tensor],
    told: tuple[Tensor, Tensor],
    *,
    draws: int,
    known: Tensor | None = None,
    unseen: Tensor | None = None,
) -> Tensor:
    """Attention over evidence that the draws of a row share and told tokens of their own.

    Scores on evidence are ``(rows, heads, draws * tokens, evidence)``: one product a row.

    Args:
        queries: Shape ``(rows * draws, heads, tokens, head_dim)``.
        evidence: Keys and values. Shapes ``(rows, heads, evidence, head_dim)``.
        told: Keys and values. Shapes ``(rows * draws, heads, told, head_dim)``.
        draws: Of a row, neighbours in the batch.
        known: False where evidence is padding. Shape ``(rows, evidence)``.
        unseen: True where a told token is hidden; broadcast to
            ``(rows * draws, heads, tokens, told)``.
    """
    queries = queries * queries.shape[-1] ** -0.5
    scores = _by_row(queries, draws) @ evidence[0].transpose(-1, -2)
    if known is not None:
        scores = scores.masked_fill(~known[:, None, None], -torch.inf)
    told_scores = queries @ told[0].transpose(-1, -2)  # (batch, heads, tokens, told)
    if unseen is not None:
        told_scores = told_scores.masked_fill(unseen, -torch.inf)
    weights = torch.cat([_by_draw(scores, draws), told_scores], dim=-1).softmax(dim=-1)
    evidence_weights, told_weights = weights.tensor_split([evidence[0].shape[2]], dim=-1)
    attended = _by_row(evidence_weights, draws) @ evidence[1]
    return _by_draw(attended, draws) + told_weights @ told[1]


def _by_row(tensor: Tensor, draws: int) -> Tensor:
    """(rows * draws, heads, tokens, n) -> (rows, heads, draws * tokens, n)."""
    return tensor.unflatten(0, (-1, draws)).transpose(1, 2).flatten(2, 3)


def _by_draw(tensor: Tensor, draws: int) -> Tensor:
    """(rows, heads, draws * tokens, n) -> (rows * draws, heads, tokens, n)."""
    return tensor.unflatten(2, (draws, -1)).transpose(1, 2).flatten(0, 1)
