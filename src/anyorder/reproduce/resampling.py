"""The paper's own way of drawing training masks, to be measured against the exact one."""

import torch
from torch import Tensor

POOL = 100
"""The appendix draws this many masks for each one that it keeps."""


def papers_way(batch: int, num_variables: int, generator: torch.Generator) -> Tensor:
    """Appendix B of the paper, step by step, at its cost.

    Args:
        batch: How many masks.
        num_variables: N.
        generator: The source of randomness.

    Returns:
        Shape ``(batch, num_variables)``.
    """
    pool, n = POOL * batch, num_variables
    # S ~ M: a random permutation of each row by sorting, its first c places; c uniform on 1..n
    shuffled = torch.rand(pool, n, generator=generator).argsort(dim=1)
    size = torch.randint(1, n + 1, (pool, 1), generator=generator)
    members = shuffled < size
    # t uniform on 0..c-1; keep the t smallest members, found by sorting members to the front
    steps = (torch.arange(n).expand(pool, n) < size).float()
    t = torch.multinomial(steps, 1, generator=generator)
    front = members.long().sort(dim=1, descending=True, stable=True).indices
    kept = front.argsort(dim=1) < t
    # resample by 1 + |e|
    chosen = torch.multinomial((t + 1.0).squeeze(1), batch, generator=generator)
    return kept[chosen]
