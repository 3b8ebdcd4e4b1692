"""Mask distributions M: laws over the sets S of variables whose marginals p(x_S) are queried.

A mask distribution states which marginals matter at inference (Shih, Sadigh and Ermon 2022,
Definition 2). Laws under which all sets of one size are equally likely (exchangeable laws) are
*cardinality laws*: the probabilities of the sizes describe them, and the training law that they
induce has closed forms. Any other law needs only a method that samples it.

The functions at the end, from `uniform` on, are the only ones in this package that sample sets:
Bernoulli sets, uniform subsets of a given size, and rejection sampling by rows. All laws are
choices of probabilities, sizes or conditions for them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from anyorder.errors import (
    ConfigError,
    QueryError,
    check_available,
    check_count,
    check_flag,
    check_fraction,
    check_generator,
    check_probabilities,
    check_sets,
)


class MaskDistribution(ABC):
    """Law M over sets S of `num_variables` variables. A subclass implements `_sample`."""

    num_variables: int

    @property
    def max_cardinality(self) -> int:
        """Largest size with positive probability."""
        return self.num_variables

    @property
    def min_cardinality(self) -> int:
        """Smallest size with positive probability."""
        return 0

    def sample(
        self,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Samples sets, one a row.

        Args:
            batch: Number of sets.
            available: Variables that each row has, booleans of shape ``(batch, vars)``. The law is
                then that of S intersected with them, given that this is not empty.
            generator: Source of randomness.

        Returns:
            Booleans of shape ``(batch, vars)``, True = in the set.
        """
        check_count("batch", batch)
        if available is None:
            return self._sample(batch, source_device(generator), generator)
        source_device(generator)  # checks it
        have = check_available(available, self.num_variables, batch)
        return self._sample_within(have, generator)

    def log_prob(self, observed: Tensor) -> Tensor:
        """Returns the log probability of each set, float64 of shape ``(batch,)``."""
        return self._log_prob(check_sets("observed", observed, self.num_variables))

    def _sample_within(self, available: Tensor, generator: torch.Generator | None) -> Tensor:
        """Samples S intersected with each row's available variables, given that it is not empty."""
        (sets,) = rejection_sample(
            lambda rows: (self._sample(len(rows), available.device, generator) & available[rows],),
            lambda _, sampled: sampled[0].any(dim=1),
            len(available),
            device=available.device,
        )
        return sets

    @abstractmethod
    def _sample(
        self, batch: int, device: torch.device, generator: torch.Generator | None
    ) -> Tensor: ...

    def _log_prob(self, observed: Tensor) -> Tensor:
        del observed
        raise QueryError(f"{type(self).__name__} can be sampled but its probabilities are unknown.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_variables})"


class CardinalityLaw(MaskDistribution):
    """Size c of a given law, then a uniform set of that size.

    Args:
        probabilities: Probability of each size 0..N. Shape ``(N + 1,)``.

    Example:
        >>> law = CardinalityLaw([0.0, 0.5, 0.5])
        >>> law.log_prob(torch.tensor([[True, False], [True, True]])).exp()
        tensor([0.2500, 0.5000], dtype=torch.float64)
    """

    def __init__(self, probabilities: Sequence[float] | Tensor) -> None:
        self.probabilities = check_probabilities("probabilities", probabilities)
        self.num_variables = check_count("num_variables", len(self.probabilities) - 1)
        self._restricted: dict[int, Tensor] = {self.num_variables: self.probabilities}

    @property
    def max_cardinality(self) -> int:
        """Largest size with positive probability."""
        return int(self.probabilities.nonzero().max())

    @property
    def min_cardinality(self) -> int:
        """Smallest size with positive probability."""
        return int(self.probabilities.nonzero().min())

    def log_restricted(self, num_available: int) -> Tensor:
        """Returns the logarithms of `restricted`."""
        return self.restricted(num_available).log()

    def restricted(self, num_available: int) -> Tensor:
        """Returns the law of the size of S inside a of the variables. Shape ``(a + 1,)``.

        Dropping one variable removes a member with probability k/a, so the law for a - 1 variables
        follows from that for a by a sum of positive terms. Here a is `num_available`.
        """
        # From the nearest larger number that is known, so that a batch of rows shares the work.
        check_count("num_available", num_available, low=0, high=self.num_variables)
        start = min(known for known in list(self._restricted) if known >= num_available)
        sizes = self._restricted[start]
        for a in range(start, num_available, -1):
            k = torch.arange(a + 1, dtype=torch.float64)
            stays, leaves = sizes * (a - k) / a, sizes * k / a
            sizes = stays[:-1] + leaves[1:]
        self._restricted[num_available] = sizes
        return sizes.clone()

    def _sample_within(self, available: Tensor, generator: torch.Generator | None) -> Tensor:
        table = self.restricted_table(available.sum(dim=1))
        table[:, 0] = 0
        sizes = categorical_by_row(check_nonempty(table), generator=generator)
        return subsets(sizes, available, generator=generator)

    def restricted_table(self, num_available: Tensor) -> Tensor:
        """Returns `restricted` for each row of `num_available (batch,)`: ``(batch, N + 1)``."""
        table = torch.zeros(len(num_available), self.num_variables + 1, dtype=torch.float64)
        counts = num_available.cpu()
        for a in sorted(set(counts.tolist()), reverse=True):
            table[counts == a, : a + 1] = self.restricted(a)
        return table.to(num_available.device)

    def _sample(
        self, batch: int, device: torch.device, generator: torch.Generator | None
    ) -> Tensor:
        sizes = categorical(self.probabilities.to(device), batch, generator=generator)
        everything = torch.ones(batch, self.num_variables, dtype=torch.bool, device=device)
        return subsets(sizes, everything, generator=generator)

    def _log_prob(self, observed: Tensor) -> Tensor:
        sizes = observed.sum(dim=1).double()
        logs = self.probabilities.log().to(observed.device)[sizes.long()]
        return logs - log_binomial(float(self.num_variables), sizes)


class UniformCardinality(CardinalityLaw):
    r"""Uniform size, then a uniform set of that size: the paper's :math:`M_{card}`.

    Args:
        num_variables: N.
        low: Smallest size.
        high: Largest size; N by default.
    """

    def __init__(self, num_variables: int, low: int = 1, high: int | None = None) -> None:
        check_count("num_variables", num_variables)
        self.low = check_count("low", low, low=0, high=num_variables)
        self.high = check_count(
            "high", num_variables if high is None else high, low=self.low, high=num_variables
        )
        probabilities = torch.zeros(num_variables + 1, dtype=torch.float64)
        probabilities[self.low : self.high + 1] = 1 / (self.high - self.low + 1)
        super().__init__(probabilities)

    def restricted(self, num_available: int) -> Tensor:
        """Returns the law of sizes among fewer variables, in closed form for (nearly) all sizes."""
        n, a = (
            self.num_variables,
            check_count("num_available", num_available, low=0, high=self.num_variables),
        )
        if self.low > 1 or self.high < n - 1 or a == n:
            return super().restricted(a)
        sizes = torch.full((a + 1,), (n + 1) / (a + 1), dtype=torch.float64)
        if self.low == 1:  # the empty set of 0..N is left out, wherever it fell
            sizes[0] -= 1
        if self.high == n - 1:
            sizes[a] -= 1
        return sizes / (self.high - self.low + 1)

    def __repr__(self) -> str:
        return f"UniformCardinality({self.num_variables}, low={self.low}, high={self.high})"


class FixedCardinality(UniformCardinality):
    """Sets of exactly `cardinality` variables, uniformly.

    Args:
        num_variables: N.
        cardinality: Size of every set.
    """

    def __init__(self, num_variables: int, cardinality: int) -> None:
        check_count("num_variables", num_variables)
        self.cardinality = check_count("cardinality", cardinality, low=0, high=num_variables)
        super().__init__(num_variables, low=cardinality, high=cardinality)


class Bernoulli(CardinalityLaw):
    """Each variable is in the set with probability `p`, independently. The empty set is possible.

    Args:
        num_variables: N.
        p: Inclusion probability of each variable.
    """

    def __init__(self, num_variables: int, p: float) -> None:
        check_count("num_variables", num_variables)
        self.p = check_fraction("p", p)
        sizes = _log_binomial_law(num_variables, self.p).exp()
        super().__init__(sizes / sizes.sum())

    def log_restricted(self, num_available: int) -> Tensor:
        """Returns the logarithms of `restricted`, also where the probabilities underflow."""
        return _log_binomial_law(num_available, self.p)

    def __repr__(self) -> str:
        return f"Bernoulli({self.num_variables}, p={self.p})"


class Fixed(MaskDistribution):
    """One of a list of sets.

    Args:
        sets: Booleans of shape ``(sets, vars)``.
        probabilities: Probability of each set; equal by default.
    """

    def __init__(
        self,
        sets: Tensor | Sequence[Sequence[bool]],
        probabilities: Sequence[float] | Tensor | None = None,
    ) -> None:
        rows = torch.as_tensor(sets).clone()
        if rows.ndim != 2 or 0 in rows.shape:
            raise ConfigError("`sets` must be a boolean tensor (sets, vars) with a row or more.")
        self.num_variables = rows.shape[1]
        self.sets = check_sets("sets", rows, self.num_variables)
        equal = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)
        self.probabilities = check_probabilities(
            "probabilities", equal if probabilities is None else probabilities, size=len(rows)
        )

    @property
    def max_cardinality(self) -> int:
        """Largest size with positive probability."""
        return int(self.sets[self.probabilities > 0].sum(dim=1).max())

    @property
    def min_cardinality(self) -> int:
        """Smallest size with positive probability."""
        return int(self.sets[self.probabilities > 0].sum(dim=1).min())

    def _sample(
        self, batch: int, device: torch.device, generator: torch.Generator | None
    ) -> Tensor:
        choice = categorical(self.probabilities.to(device), batch, generator=generator)
        return self.sets.to(device)[choice]

    def _log_prob(self, observed: Tensor) -> Tensor:
        equal = (observed[:, None] == self.sets.to(observed.device)).all(dim=2)  # (batch, sets)
        return (equal * self.probabilities.to(observed.device)).sum(dim=1).log()


class FirstK(Fixed):
    """Set of the first `k` variables: the marginals of the paper's Table 4.

    Args:
        num_variables: N.
        k: Size of the set.
    """

    def __init__(self, num_variables: int, k: int) -> None:
        check_count("num_variables", num_variables)
        self.k = check_count("k", k, high=num_variables)
        super().__init__(torch.arange(num_variables)[None] < self.k)

    def __repr__(self) -> str:
        return f"FirstK({self.num_variables}, k={self.k})"


class Rectangle(MaskDistribution):
    """Pixels of a rectangle, in all channels; every rectangle of the image is equally likely.

    Variables are numbered channel by channel, each row by row (as in the binary files of CIFAR-10).

    Args:
        height: Height of the image.
        width: Width of the image.
        channels: Number of channels of the image.
        inside: False for the pixels around the rectangle, the evidence of inpainting.
    """

    def __init__(self, height: int, width: int, channels: int = 1, *, inside: bool = True) -> None:
        self.height = check_count("height", height)
        self.width = check_count("width", width)
        self.channels = check_count("channels", channels)
        self.inside = check_flag("inside", inside)
        self.num_variables = height * width * channels

    def _sample(
        self, batch: int, device: torch.device, generator: torch.Generator | None
    ) -> Tensor:
        rows = _intervals(batch, self.height, device, generator)
        columns = _intervals(batch, self.width, device, generator)
        picture = rows[:, None, :, None] & columns[:, None, None, :]  # (batch, 1, height, width)
        sets = picture.expand(-1, self.channels, -1, -1).reshape(batch, -1)
        return sets if self.inside else ~sets

    def _log_prob(self, observed: Tensor) -> Tensor:
        sets = observed if self.inside else ~observed
        picture = sets.view(-1, self.channels, self.height, self.width)
        plane = picture[:, 0]
        rows, columns = plane.any(dim=2), plane.any(dim=1)
        spanned = rows[:, :, None] & columns[:, None, :]
        same = (picture == spanned[:, None]).flatten(1).all(dim=1)
        possible = same & _is_interval(rows) & _is_interval(columns)
        rectangles = math.comb(self.height + 1, 2) * math.comb(self.width + 1, 2)
        never = torch.full((len(sets),), -math.inf, dtype=torch.float64, device=sets.device)
        return never.masked_fill(possible, -math.log(rectangles))

    def __repr__(self) -> str:
        return f"Rectangle({self.height}, {self.width}, {self.channels}, inside={self.inside})"


def log_binomial(n: Tensor | float, k: Tensor) -> Tensor:
    """Returns the logarithm of "n choose k", for `k` (and `n`) in float64."""
    whole = torch.as_tensor(n, dtype=torch.float64, device=k.device)
    return torch.lgamma(whole + 1) - torch.lgamma(k + 1) - torch.lgamma(whole - k + 1)


def _log_binomial_law(n: int, p: float) -> Tensor:
    """Returns the log probability of each number of successes 0..n of n trials."""
    k, chance = torch.arange(n + 1, dtype=torch.float64), torch.tensor(p, dtype=torch.float64)
    # xlogy, because 0 * log(0) is 0 here
    return torch.xlogy(k, chance) + torch.xlogy(n - k, 1 - chance) + log_binomial(float(n), k)


def check_nonempty(table: Tensor) -> Tensor:
    """Refuses a table of masses ``(batch, sizes)`` that leaves a row no query."""
    if not (table.sum(dim=1) > 0).all():
        raise QueryError(
            "The query law never queries a variable of some row: give it larger queries."
        )
    return table


def _intervals(
    batch: int, length: int, device: torch.device, generator: torch.Generator | None
) -> Tensor:
    """Samples non-empty intervals of 0..length-1 uniformly, booleans ``(batch, length)``."""
    # Two of the length + 1 borders of cells bound an interval, and each pair bounds another one.
    borders = torch.ones(batch, length + 1, dtype=torch.bool, device=device)
    two = torch.full((batch,), 2, device=device)
    bounds = subsets(two, borders, generator=generator)
    return bounds.cumsum(dim=1)[:, :-1] == 1


def _is_interval(members: Tensor) -> Tensor:
    """True for each row of `members` that is one unbroken, non-empty run of True."""
    padded = torch.nn.functional.pad(members.to(torch.int8), (1, 1))
    return (padded.diff(dim=1) == 1).sum(dim=1) == 1


BERNOULLI_BITS = 32
"""Random bits of a Bernoulli variable: probabilities are rounded to multiples of 2^-32."""

MAX_CATEGORIES = 2**24
"""Largest number of weights that `torch.multinomial` takes."""

MAX_REJECTIONS = 10_000
"""Rejected samples of one row after which the condition counts as impossible."""


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
