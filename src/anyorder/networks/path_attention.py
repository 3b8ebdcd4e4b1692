"""Who sees whom along a path, in one pass over all of it.

E (evidence) sees E; U_k (the k-th told value of the path) sees E, U_1..U_k; Q_k (the k-th question)
sees E, U_1..U_{k-1}. (Q_k needs no key of its own to see itself: it is its own residual stream, and
the start token in E is there when it has nothing to look for.)
"""

from typing import NamedTuple

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
