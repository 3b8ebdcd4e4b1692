"""Random sets of variables, a row of booleans each: coins, subsets of a given size, redraws.

These are the only places where sets are drawn; every law above is a choice of probabilities, sizes
or conditions for them.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from anyorder.errors import ConfigError, QueryError, check_seed

COIN_BITS = 32
"""Random bits a coin looks at: its probability is rounded to a multiple of 2^-32."""

MAX_CATEGORIES = 2**24
"""As many weights as torch draws from."""

MAX_REDRAWS = 10_000
"""After so many rejected draws of one row, the condition is taken to be impossible."""


def seeded(random_state: int | None) -> torch.Generator | None:
    """Returns the generator of a seed; None leaves it to torch's own state."""
    if random_state is None:
        return None
    return torch.Generator().manual_seed(check_seed(random_state, "random_state"))


def uniform(
    shape: Sequence[int], *, device: torch.device, generator: torch.Generator | None = None
) -> Tensor:
    """Uniform numbers, float64: drawn where the generator is, given where they are wanted."""
    source = device if generator is None else generator.device
    return torch.rand(shape, dtype=torch.float64, device=source, generator=generator).to(device)


def coins(probability: Tensor, num: int, *, generator: torch.Generator | None = None) -> Tensor:
    r"""Independent coins: row b holds `num` of them, each True with probability ``probability[b]``.

    A coin compares 32 random bits with its probability, so a 64-bit random word serves two coins:
    finer and faster than one float32 a coin, which has 24 bits.

    Args:
        probability: Shape ``(batch,)``.
        num: Coins a row.
        generator: The source of randomness.

    Returns:
        Booleans of shape ``(batch, num)``.
    """
    batch, half = len(probability), 2 ** (COIN_BITS - 1)
    words = torch.empty(-(-batch * num // 2), dtype=torch.int64, device=probability.device)
    words.random_(-(2**63), None, generator=generator)
    digits = words.view(torch.int32)[: batch * num].view(
        batch, num
    )  # signed: from -half to half - 1
    threshold = (probability.double() * 2 * half - half).round().clamp(max=half - 1)
    return digits < threshold.to(torch.int32)[:, None]


def subsets(sizes: Tensor, within: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Uniformly random subsets: row b holds ``sizes[b]`` members of the set ``within[b]``.

    Args:
        sizes: Whole numbers of shape ``(batch,)``, none larger than its row's set.
        within: Booleans of shape ``(batch, vars)``.
        generator: The source of randomness.
    """
    # Doubles, because among 3072 floats of a row two are equal one time in four.
    keys = uniform(within.shape, device=within.device, generator=generator)
    shuffled = keys.masked_fill_(~within, 2.0).argsort(dim=1)
    place = torch.arange(within.shape[1], device=within.device)
    return torch.empty_like(within).scatter_(1, shuffled, place < sizes[:, None])


def draws(weights: Tensor, batch: int, *, generator: torch.Generator | None = None) -> Tensor:
    """`batch` indices of one vector of `weights`, with probability proportional to them."""
    if len(weights) > MAX_CATEGORIES:
        raise ConfigError(
            f"At most {MAX_CATEGORIES:,} sizes or sets can be drawn from; got {len(weights):,}."
        )
    return torch.multinomial(weights, batch, replacement=True, generator=generator)


def categories(table: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """One index a row of `table (batch, n)`, with probability proportional to its weight there."""
    return torch.multinomial(table, 1, replacement=True, generator=generator).squeeze(1)


def beta(first: Tensor, second: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    r"""Beta(first, second) draws for small whole parameters, a row each.

    The a-th smallest of a + b - 1 uniform numbers has the law Beta(a, b).
    """
    number = first + second - 1
    width = int(number.max())
    points = uniform((len(first), width), device=first.device, generator=generator)
    beyond = torch.arange(width, device=first.device) >= number[:, None]
    ordered = points.masked_fill_(beyond, 2.0).sort(dim=1).values
    return ordered.gather(1, first[:, None] - 1).squeeze(1)


def redraw(
    draw: Callable[[Tensor], tuple[Tensor, ...]],
    accept: Callable[[Tensor, tuple[Tensor, ...]], Tensor],
    batch: int,
    *,
    device: torch.device,
) -> tuple[Tensor, ...]:
    """Rejection sampling by rows: draws each row again until it is accepted.

    Args:
        draw: From the indices of the rows wanted to one fresh draw of each: a tuple of tensors.
        accept: From those indices and that draw to a boolean a row.
        batch: How many rows.
        device: Where the rows are.
    """
    pending = torch.arange(batch, device=device)
    result: tuple[Tensor, ...] = ()
    for _ in range(MAX_REDRAWS):
        drawn = draw(pending)
        if not result:
            result = tuple(part.clone() for part in drawn)
        accepted = accept(pending, drawn)
        for part, fresh in zip(result, drawn, strict=True):
            part[pending[accepted]] = fresh[accepted]
        pending = pending[~accepted]
        if not len(pending):
            return result
    raise QueryError(
        f"No query was accepted for row {int(pending[0])} in {MAX_REDRAWS} draws: either the law "
        "never asks about the row's available variables, or its sets are far smaller than its "
        "`max_cardinality` says. Drop such rows, or declare a smaller `max_cardinality`."
    )


def source_device(generator: torch.Generator | None, *tensors: Tensor | None) -> torch.device:
    """Where to draw: beside the first tensor, else where the generator is, else the CPU."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ConfigError(
            f"`generator` must be a torch.Generator; got {type(generator).__name__}. Make one with "
            "torch.Generator().manual_seed(0)."
        )
    for tensor in tensors:
        if tensor is not None:
            return tensor.device
    return torch.device("cpu") if generator is None else generator.device
