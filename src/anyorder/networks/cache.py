"""Attention of path networks: the masks of one pass, and the key/value cache of single steps.

The tokens of a query p(x_U | x_E) are E (evidence), U (values of the path) and Q (queries: a
variable without a value). Both ways of running a network use the same attention pattern:

    E attends to E
    U_k, the k-th value of the path, attends to E, U_1..U_k
    Q_k, the k-th query, attends to E, U_1..U_{k-1}

No token attends to Q: a query token reads itself from its own residual stream, and the start token
in E is there for queries without evidence. `path_segments` is the pattern for one pass over the
whole path. `PathState` is the cache for one step after another: keys and values of E, computed once
a row and shared by all samples of that row, and those of U, the *past* of each sample.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from anyorder.networks.contracts import samples_of


class Segment(NamedTuple):
    """Attention of the queries ``start`` .. ``stop`` to the keys 0 .. ``reach``."""

    start: int
    stop: int
    reach: int
    seen: Tensor | None = None  # mask (queries, keys) or (rows, 1, queries or 1, keys); None is all
    causal: bool = False  # query j attends to keys 0..j; then ``seen`` is None


def path_segments(
    known: Tensor | None, *, evidence: int, past: int, queried: int, device: torch.device
) -> list[Segment]:
    """Returns the attention pattern of E, then U, then Q, as one attention call each.

    One call over all tokens would compute the scores of all pairs and mask most of them.

    Args:
        known: False on padding of the evidence; None without padding. Shape ``(rows, evidence)``.
        evidence: Number of tokens of E, the start token included.
        past: Number of tokens of U.
        queried: Number of tokens of Q: ``past + 1``, or 0 with a single stream.
        device: Device of the tokens.
    """
    keys, tokens = evidence + past, evidence + past + queried
    if evidence == 1:  # the start token alone: squares, for which a causal kernel needs no mask
        segments = [Segment(0, keys, keys, causal=True), Segment(keys, tokens, keys, causal=True)]
        return segments if queried else segments[:1]
    square = torch.ones(past + 1, keys, dtype=torch.bool, device=device)
    past_sees, query_sees = square[:past].tril(evidence), square.tril(evidence - 1)
    evidence_sees = None
    if known is not None:
        evidence_sees = known[:, None, None]
        always = F.pad(evidence_sees, (0, past), value=True)  # (rows, 1, 1, keys)
        past_sees, query_sees = past_sees & always, query_sees & always
    segments = [
        Segment(0, evidence, evidence, evidence_sees),
        Segment(evidence, keys, keys, past_sees),
        Segment(keys, tokens, keys, query_sees),
    ]
    return [segment for segment in segments if segment.start < segment.stop]


def attend(queries: Tensor, keys: Tensor, values: Tensor, segments: list[Segment]) -> Tensor:
    """Returns attention by segments, in and out ``(rows, heads, tokens, head_dim)``."""
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
    # Joined as (rows, tokens, heads, head_dim), which the next projection reads without a copy.
    return torch.cat(attended, dim=1).transpose(1, 2)


Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each block."""


class Memory(Protocol):
    """Key/value cache that the new tokens of a step are appended to and attend to."""

    def append(self, block: int, keys: Tensor, values: Tensor) -> None:
        """Appends the keys and values of new tokens of a block."""
        ...

    def attend(self, block: int, queries: Tensor, *, new: int, skipped: int = 0) -> Tensor:
        """Returns attention over the cache and the `new` tokens; see `PathState.attend`."""
        ...


class OnePass:
    """Attention of one pass by segments; its last block runs for the last segment only.

    Args:
        segments: The attention pattern.
        keeps: Whether the keys and values of all blocks are kept in `cache`.
    """

    def __init__(self, segments: list[Segment], *, keeps: bool = False) -> None:
        self.segments, self.keeps = segments, keeps
        self.cache: Cache = []

    def append(self, block: int, keys: Tensor, values: Tensor) -> None:
        """See `Memory.append`."""
        del block
        self.cache = [*(self.cache if self.keeps else ()), (keys, values)]

    def attend(self, block: int, queries: Tensor, *, new: int, skipped: int = 0) -> Tensor:
        """See `Memory.attend`."""
        del block, new
        return attend(queries, *self.cache[-1], self.segments[-1:] if skipped else self.segments)


@dataclass
class PathState:
    """Key/value cache of a batch of paths; all samples of a row share its evidence.

    ``tell`` only stores the token (``pending``); the next ``ask`` runs it together with its query
    token, so that a step reads the weights once and not twice. Keys of the past are appended in
    place, into memory allocated for the longest path: ``expand`` a state before you continue it in
    two ways.

    With several samples a row, the evidence is stored once a row, and all samples attend to it in
    one product. With one sample a row it is copied in front of the past, and attention is one call.
    """

    evidence: Cache  # (rows, heads, evidence, head_dim)
    known: Tensor | None  # (rows, evidence), False on padding; None without padding
    capacity: int  # largest number of past tokens
    pending_variables: Tensor  # (rows * samples, pending)
    pending_values: Tensor  # (rows * samples, pending)
    samples: int = 1
    past: Cache | None = None  # (rows * samples, heads, prefix + capacity, head_dim)
    length: int = 0  # number of past tokens, without the pending ones
    queried: Tensor | None = None
    """Variable of the query token behind the past, in a single stream. ``(rows * samples, 1)``."""

    @property
    def prefix(self) -> int:
        """Number of evidence tokens in front of the past ones in their cache."""
        return self.evidence[0][0].shape[2] if self.samples == 1 else 0

    def expand(self, samples: int) -> "PathState":
        """Returns the state of ``samples`` continuations of each row, neighbours in the batch."""
        cut = self.prefix if samples > 1 else 0  # several samples share the evidence

        def repeat(tensor: Tensor) -> Tensor:
            return tensor.repeat_interleave(samples, dim=0)

        past = self.past and [
            (repeat(keys[:, :, cut:]), repeat(values[:, :, cut:])) for keys, values in self.past
        ]
        return replace(
            self,
            samples=self.samples * samples,
            pending_variables=repeat(self.pending_variables),
            pending_values=repeat(self.pending_values),
            past=past,
            queried=None,
        )

    def select(self, rows: Tensor) -> "PathState":
        """Returns the state of some of the rows, with all their samples."""
        batch = samples_of(rows, self.samples)
        return replace(
            self,
            evidence=[(keys[rows], values[rows]) for keys, values in self.evidence],
            known=None if self.known is None else self.known[rows],
            pending_variables=self.pending_variables[batch],
            pending_values=self.pending_values[batch],
            past=self.past and [(keys[batch], values[batch]) for keys, values in self.past],
            queried=None,
        )

    def append(self, block: int, keys: Tensor, values: Tensor) -> None:
        """Appends to the past of a block; the caller increases ``length`` after all blocks."""
        if self.past is None:
            self.past = [self._allocate(pair, len(keys)) for pair in self.evidence]
        start = self.prefix + self.length
        for cache, new in zip(self.past[block], (keys, values), strict=True):
            cache[:, :, start : start + new.shape[2]] = new

    def attend(self, block: int, queries: Tensor, *, new: int, skipped: int = 0) -> Tensor:
        """Returns attention over the evidence, the past and the ``new`` tokens appended to it.

        Args:
            block: Index of the block.
            queries: Queries of the new tokens, which are causal, and then of query tokens, which
                attend to all. Shape ``(batch, heads, tokens, head_dim)``.
            new: Number of tokens appended after ``length``.
            skipped: Number of new tokens without a query here.
        """
        past = self.length + new
        if past == 0:
            return self._attend_evidence(block, queries)
        later = None  # (tokens, past)
        if skipped < new - 1:
            later = torch.ones(queries.shape[2], past, dtype=torch.bool, device=queries.device)
            later = later.triu(self.length + skipped + 1)
        if self.samples == 1:
            return self._attend_joined(block, queries, past, later)
        keys, values = (cache[:, :, :past] for cache in self.past[block])
        return attend_shared(
            queries,
            self.evidence[block],
            (keys, values),
            samples=self.samples,
            known=self.known,
            unseen=later,
        )

    def _allocate(self, evidence: tuple[Tensor, Tensor], batch: int) -> tuple[Tensor, Tensor]:
        """Returns an empty cache of a block, with the evidence in front if it is not shared."""
        front = self.prefix
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
            _by_row(queries, self.samples), *self.evidence[block], attn_mask=known
        )
        return _by_sample(attended, self.samples)

    def _attend_joined(
        self, block: int, queries: Tensor, past: int, later: Tensor | None
    ) -> Tensor:
        """Attends with one sample a row: evidence and past are in one cache."""
        keys, values = (cache[:, :, : self.prefix + past] for cache in self.past[block])
        seen = None if later is None else F.pad(~later, (self.prefix, 0), value=True)
        if self.known is not None:
            known = F.pad(self.known, (0, past), value=True)[:, None, None]
            seen = known if seen is None else known & seen
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)


def attend_shared(
    queries: Tensor,
    evidence: tuple[Tensor, Tensor],
    past: tuple[Tensor, Tensor],
    *,
    samples: int,
    known: Tensor | None = None,
    unseen: Tensor | None = None,
) -> Tensor:
    """Returns attention over evidence shared by the samples of a row and over their own past.

    Scores of the evidence are ``(rows, heads, samples * tokens, evidence)``: one product a row.

    Args:
        queries: Shape ``(rows * samples, heads, tokens, head_dim)``.
        evidence: Keys and values. Shapes ``(rows, heads, evidence, head_dim)``.
        past: Keys and values. Shapes ``(rows * samples, heads, past, head_dim)``.
        samples: Number of samples of a row, neighbours in the batch.
        known: False on padding of the evidence. Shape ``(rows, evidence)``.
        unseen: True where a past token is masked; broadcast to
            ``(rows * samples, heads, tokens, past)``.
    """
    queries = queries * queries.shape[-1] ** -0.5
    scores = _by_row(queries, samples) @ evidence[0].transpose(-1, -2)
    if known is not None:
        scores = scores.masked_fill(~known[:, None, None], -torch.inf)
    past_scores = queries @ past[0].transpose(-1, -2)  # (batch, heads, tokens, past)
    if unseen is not None:
        past_scores = past_scores.masked_fill(unseen, -torch.inf)
    weights = torch.cat([_by_sample(scores, samples), past_scores], dim=-1).softmax(dim=-1)
    evidence_weights, past_weights = weights.tensor_split([evidence[0].shape[2]], dim=-1)
    attended = _by_row(evidence_weights, samples) @ evidence[1]
    return _by_sample(attended, samples) + past_weights @ past[1]


def _by_row(tensor: Tensor, samples: int) -> Tensor:
    """Reshapes (rows * samples, heads, tokens, n) -> (rows, heads, samples * tokens, n)."""
    return tensor.unflatten(0, (-1, samples)).transpose(1, 2).flatten(2, 3)


def _by_sample(tensor: Tensor, samples: int) -> Tensor:
    """Reshapes (rows, heads, samples * tokens, n) -> (rows * samples, heads, tokens, n)."""
    return tensor.unflatten(2, (samples, -1)).transpose(1, 2).flatten(0, 1)
