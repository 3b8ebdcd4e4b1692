"""Primitives that sample random sets, a row of booleans each.

Bernoulli sets, uniform subsets of a given size, categorical and Beta variables, and rejection
sampling by rows. All laws of this package are choices of probabilities, sizes or conditions for
these functions, which are the only ones that sample sets.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from anyorder.errors import ConfigError, QueryError, check_generator, check_seed

BERNOULLI_BITS = 32
"""Random bits of a Bernoulli variable: probabilities are rounded to multiples of 2^-32."""

MAX_CATEGORIES = 2**24
"""Largest number of weights that `torch.multinomial` takes."""

MAX_REJECTIONS = 10_000
"""Rejected samples of one row after which the condition counts as impossible."""


def seeded(random_state: int | None) -> torch.Generator | None:
    """Returns the generator of a seed; None stands for torch's global state."""
    if random_state is None:
        return None
    return torch.Generator().manual_seed(check_seed(random_state, "random_state"))


def uniform(
    shape: Sequence[int], *, device: torch.device, generator: torch.Generator | None = None
) -> Tensor:
    """Samples uniform float64 numbers on the generator's device and moves them to `device`."""
    source = device if generator is None else generator.device
    return torch.rand(shape, dtype=torch.float64, device=source, generator=generator).to(device)


def bernoulli_sets(
    probability: Tensor, num: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""Samples `num` Bernoulli variables a row, each True with probability ``probability[b]``.

    Each compares 32 random bits with the probability, so a 64-bit random word serves two of them:
    finer and faster than one float32 each, which has 24 random bits.

    Returns:
        Booleans of shape ``(batch, num)``.
    """
    batch, half = len(probability), 2 ** (BERNOULLI_BITS - 1)
    words = torch.empty(-(-batch * num // 2), dtype=torch.int64, device=probability.device)
    words.random_(-(2**63), None, generator=generator)
    digits = words.view(torch.int32)[: batch * num].view(
        batch, num
    )  # signed: from -half to half - 1
    threshold = (probability.double() * 2 * half - half).round().clamp(max=half - 1)
    return digits < threshold.to(torch.int32)[:, None]


def subsets(sizes: Tensor, within: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Samples uniform subsets: row b holds ``sizes[b]`` members of the set ``within[b]``.

    Returns:
        Booleans of shape ``(batch, vars)``.
    """
    # Doubles, because among 3072 floats of a row two are equal one time in four.
    keys = uniform(within.shape, device=within.device, generator=generator)
    shuffled = keys.masked_fill_(~within, 2.0).argsort(dim=1)
    place = torch.arange(within.shape[1], device=within.device)
    return torch.empty_like(within).scatter_(1, shuffled, place < sizes[:, None])


def categorical(weights: Tensor, batch: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Samples `batch` indices with probability proportional to the vector `weights`."""
    if len(weights) > MAX_CATEGORIES:
        raise ConfigError(
            f"At most {MAX_CATEGORIES:,} sizes or sets can be sampled from; got {len(weights):,}."
        )
    return torch.multinomial(weights, batch, replacement=True, generator=generator)


def categorical_by_row(table: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Samples one index a row, with probability proportional to that row of `table (batch, n)`."""
    return torch.multinomial(table, 1, replacement=True, generator=generator).squeeze(1)


def beta(first: Tensor, second: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    r"""Samples Beta(first, second) for small whole parameters of shape ``(batch,)``.

    The a-th smallest of a + b - 1 uniform numbers has the law Beta(a, b).
    """
    number = first + second - 1
    width = int(number.max())
    points = uniform((len(first), width), device=first.device, generator=generator)
    beyond = torch.arange(width, device=first.device) >= number[:, None]
    ordered = points.masked_fill_(beyond, 2.0).sort(dim=1).values
    return ordered.gather(1, first[:, None] - 1).squeeze(1)


def rejection_sample(
    sample: Callable[[Tensor], tuple[Tensor, ...]],
    accept: Callable[[Tensor, tuple[Tensor, ...]], Tensor],
    batch: int,
    *,
    device: torch.device,
) -> tuple[Tensor, ...]:
    """Samples each row again until it is accepted: rejection sampling by rows.

    Args:
        sample: Maps indices of rows to one sample of each: a tuple of tensors.
        accept: Maps those indices and that sample to booleans, one a row.
        batch: Number of rows.
        device: Device of the rows.

    Returns:
        The accepted samples, a tuple of tensors with `batch` rows.
    """
    pending = torch.arange(batch, device=device)
    result: tuple[Tensor, ...] = ()
    for _ in range(MAX_REJECTIONS):
        sampled = sample(pending)
        if not result:
            result = tuple(part.clone() for part in sampled)
        accepted = accept(pending, sampled)
        for part, fresh in zip(result, sampled, strict=True):
            part[pending[accepted]] = fresh[accepted]
        pending = pending[~accepted]
        if not len(pending):
            return result
    raise QueryError(
        f"No query was accepted for row {int(pending[0])} in {MAX_REJECTIONS} samples: either the "
        "law never queries the row's available variables, or its sets are far smaller than its "
        "`max_cardinality` says. Drop such rows, or declare a smaller `max_cardinality`."
    )


def source_device(generator: torch.Generator | None, *tensors: Tensor | None) -> torch.device:
    """Returns the device of the first tensor, else of the generator, else the CPU."""
    check_generator(generator)
    for tensor in tensors:
        if tensor is not None:
            return tensor.device
    return torch.device("cpu") if generator is None else generator.device
