"""Query laws: distributions over queries p(x_query | x_given).

The paper's mask distribution M is the case of marginals, where nothing is given. Training on the
edges that a query law induces on the lattice is the paper's insight (B), section 3.2: spend
capacity on the conditionals that inference will evaluate.

    MarginalQueries      given nothing, S is queried                 S ~ M
    ConditionalQueries   e is given, all the rest is queried         e ~ a mask distribution
    PartialQueries       some given, some queried, some marginalised
    QueryList            a list of queries with weights
    MixtureQueries       one of several laws for each query

`any_queries` is the mixture that an estimator trains on when nothing is known about its queries.
`renumbered` adapts a law to another numbering of the variables, and `describe_queries` lists the
queries of a law in words. A law is *exchangeable* if queries with equal numbers
of given and of queried variables are equally likely; such laws have closed forms.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.errors import (
    PROBABILITY_TOLERANCE,
    ConfigError,
    check_available,
    check_count,
    check_disjoint,
    check_fraction,
    check_sets,
    check_weights,
)
from anyorder.lattice.masks import (
    CardinalityLaw,
    Fixed,
    FixedCardinality,
    MaskDistribution,
    UniformCardinality,
    categorical,
    log_binomial,
    rejection_sample,
    source_device,
    subsets,
    uniform,
)


class Query(NamedTuple):
    """Batch of queries: two disjoint sets a row, booleans of shape ``(batch, vars)``."""

    given: Tensor
    query: Tensor


class QueryLaw(ABC):
    """Law over (given, query). A subclass implements `max_sizes`, `_sample` and `_log_prob`."""

    num_variables: int

    @property
    @abstractmethod
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""

    queries_rest: bool = False
    """True if every query is of all variables not given; False if nothing is given."""

    gives_part: bool = False
    """True if some variables are marginalised: a query of c variables has g given ones with
    probability proportional to 1 / (g + c + 1)."""

    @property
    def size_law(self) -> CardinalityLaw | None:
        """Law of the sampled set if it is exchangeable, else None.

        The sampled set is the queried one, or the given one if `queries_rest`.
        """
        return None

    @property
    def listed(self) -> tuple[Query, Tensor] | None:
        """Queries and probabilities of a law with finitely many listed queries, else None."""
        return None

    def log_query_sizes(self, num_available: int) -> Tensor | None:
        """Returns the law of the number of queried variables of an exchangeable law, else None.

        Args:
            num_available: Number a of variables that queries are restricted to.

        Returns:
            Log probabilities of the sizes 0..a, shape ``(a + 1,)``.
        """
        if self.size_law is None:
            return None
        sizes = self.size_law.log_restricted(num_available)
        return sizes.flip(0) if self.queries_rest else sizes

    def sample(
        self,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Query:
        """Samples queries, one a row.

        Args:
            batch: Number of queries.
            available: Variables that each row has, booleans of shape ``(batch, vars)``. Both sets
                are intersected with them, given that the query is not empty then.
            generator: Source of randomness.
        """
        check_count("batch", batch)
        if available is None:
            return self._sample(batch, source_device(generator), generator)
        have = check_available(available, self.num_variables, batch)
        device = have.device

        def sample(rows: Tensor) -> tuple[Tensor, ...]:
            given, query = self._sample(len(rows), device, generator)
            return given & have[rows], query & have[rows]

        def accept(_: Tensor, sampled: tuple[Tensor, ...]) -> Tensor:
            return sampled[1].any(dim=1)

        return Query(*rejection_sample(sample, accept, batch, device=device))

    def log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        """Returns the log probability of each query, float64 of shape ``(batch,)``."""
        check_sets("given", given, self.num_variables)
        check_sets("query", query, self.num_variables)
        check_disjoint(given, query)
        return self._log_prob(given, query)

    @abstractmethod
    def _sample(
        self, batch: int, device: torch.device, generator: torch.Generator | None
    ) -> Query: ...

    @abstractmethod
    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor: ...


class MarginalQueries(QueryLaw):
    """Marginals p(x_S) with S from a mask distribution: nothing is given.

    Args:
        masks: Law of S.
    """

    def __init__(self, masks: MaskDistribution) -> None:
        self.masks = _check_masks("masks", masks)
        self.num_variables = masks.num_variables

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        return 0, self.masks.max_cardinality

    @property
    def size_law(self) -> CardinalityLaw | None:
        """Law of S if it is exchangeable, else None."""
        return self.masks if isinstance(self.masks, CardinalityLaw) else None

    @property
    def listed(self) -> tuple[Query, Tensor] | None:
        """Queries and probabilities if S is one of a list of sets, else None."""
        if not isinstance(self.masks, Fixed):
            return None
        return Query(torch.zeros_like(self.masks.sets), self.masks.sets), self.masks.probabilities

    def _sample(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        query = self.masks._sample(batch, device, generator)
        return Query(torch.zeros_like(query), query)

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        return self.masks._log_prob(query).masked_fill(given.any(dim=1), -math.inf)

    def __repr__(self) -> str:
        return f"MarginalQueries({self.masks!r})"


class ConditionalQueries(QueryLaw):
    """Conditionals p(x_rest | x_given): all variables not given are queried.

    Args:
        num_variables: N.
        given: Law of the given set; by default its size is uniform on 0..N-1.
    """

    queries_rest = True

    def __init__(self, num_variables: int, given: MaskDistribution | None = None) -> None:
        self.num_variables = check_count("num_variables", num_variables)
        anything = UniformCardinality(num_variables, low=0, high=num_variables - 1)
        self.given = anything if given is None else _check_masks("given", given)
        if self.given.num_variables != num_variables:
            raise ConfigError(
                f"`given` must be a law over {num_variables} variables; "
                f"it is over {self.given.num_variables}."
            )

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        return self.given.max_cardinality, self.num_variables - self.given.min_cardinality

    @property
    def size_law(self) -> CardinalityLaw | None:
        """Law of the given set if it is exchangeable, else None."""
        return self.given if isinstance(self.given, CardinalityLaw) else None

    @property
    def listed(self) -> tuple[Query, Tensor] | None:
        """Queries and probabilities if the given set is one of a list, else None."""
        if not isinstance(self.given, Fixed):
            return None
        return Query(self.given.sets, ~self.given.sets), self.given.probabilities

    def _sample(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        given = self.given._sample(batch, device, generator)
        return Query(given, ~given)

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        complete = (given | query).all(dim=1)
        return self.given._log_prob(given).masked_fill(~complete, -math.inf)

    def __repr__(self) -> str:
        return f"ConditionalQueries({self.num_variables}, given={self.given!r})"


class PartialQueries(QueryLaw):
    r"""Conditionals p(x_query | x_given) with the rest marginalised.

    The number s of given and queried variables is uniform on 0..N, and the number of queried ones
    among them uniform on 0..s, given that it is not 0. So P(s) is proportional to s / (s + 1).
    Restricted to a available variables it is the same law with a in place of N.

    Args:
        num_variables: N.
    """

    gives_part = True

    def __init__(self, num_variables: int) -> None:
        self.num_variables = check_count("num_variables", num_variables)

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        return self.num_variables - 1, self.num_variables

    def log_query_sizes(self, num_available: int) -> Tensor:
        """Returns log P(c): P(c > 0) is proportional to the sum over s >= c of 1 / (s + 1)."""
        n, a = self.num_variables, num_available
        sizes = torch.arange(1, a + 1, dtype=torch.float64)
        tails = (1 / (sizes + 1)).flip(0).cumsum(0).flip(0) / (a + 1)
        nonempty = _partial_sizes(n).sum() / (n + 1)  # P(c > 0) before the condition
        return torch.cat([(1 - tails.sum() / nonempty).clamp(min=0)[None], tails / nonempty]).log()

    def _sample(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        everything = torch.ones(batch, self.num_variables, dtype=torch.bool, device=device)
        weights = _partial_sizes(self.num_variables).to(device)
        sizes = 1 + categorical(weights, batch, generator=generator)
        both = subsets(sizes, everything, generator=generator)
        queried = uniform((batch,), device=device, generator=generator) * sizes
        query = subsets(1 + queried.long(), both, generator=generator)
        return Query(both & ~query, query)

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        queried = query.sum(dim=1).double()
        size = queried + given.sum(dim=1)
        logs = -(size + 1).log() - _partial_sizes(self.num_variables).sum().log()
        logs = logs - log_binomial(self.num_variables, size) - log_binomial(size, queried)
        return torch.where(queried > 0, logs, -math.inf)

    def __repr__(self) -> str:
        return f"PartialQueries({self.num_variables})"


class QueryList(QueryLaw):
    """Listed queries with their weights, for inference that is known in advance.

    Args:
        num_variables: N.
        queries: Triples (given, query, weight); a set is a list of indices of variables.

    Example:
        >>> law = QueryList(3, [([0], [2], 3.0), ([], [0, 1], 1.0)])
        >>> law.weights.tolist()
        [0.75, 0.25]
    """

    def __init__(
        self, num_variables: int, queries: Iterable[tuple[Iterable[int], Iterable[int], float]]
    ) -> None:
        self.num_variables = check_count("num_variables", num_variables)
        try:
            triples = [(tuple(given), tuple(query), weight) for given, query, weight in queries]
        except (TypeError, ValueError):
            raise ConfigError(
                "`queries` must be a list of triples (given, query, weight), the first two lists "
                f"of variables; got {queries!r}."
            ) from None
        if not triples:
            raise ConfigError("`queries` must hold at least one (given, query, weight); got none.")
        given, query, weights = zip(*triples, strict=True)
        self.given = torch.stack([_members("given", members, num_variables) for members in given])
        self.query = torch.stack([_members("query", members, num_variables) for members in query])
        check_disjoint(self.given, self.query)
        if not self.query.any(dim=1).all():
            raise ConfigError("Every query of `queries` must query at least one variable.")
        self.weights = check_weights("weights", weights, size=len(triples))

    @property
    def listed(self) -> tuple[Query, Tensor] | None:
        """Queries and their probabilities."""
        return Query(self.given, self.query), self.weights

    @property
    def queries(self) -> list[tuple[list[int], list[int], float]]:
        """Triples (given, query, weight) with weights that sum to 1."""
        sets = zip(self.given, self.query, self.weights.tolist(), strict=True)
        return [
            (g.nonzero().flatten().tolist(), q.nonzero().flatten().tolist(), w) for g, q, w in sets
        ]

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        possible = self.weights > 0
        given, query = self.given[possible], self.query[possible]
        return int(given.sum(dim=1).max()), int(query.sum(dim=1).max())

    def _sample(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        choice = categorical(self.weights.to(device), batch, generator=generator)
        return Query(self.given.to(device)[choice], self.query.to(device)[choice])

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        rows = torch.cat([given, query], dim=1)[:, None]
        listed = torch.cat([self.given, self.query], dim=1).to(rows.device)
        return ((rows == listed).all(dim=2) * self.weights.to(rows.device)).sum(dim=1).log()

    def __repr__(self) -> str:
        return f"QueryList({self.num_variables}, {len(self.weights)} queries)"


def as_query_law(law: QueryLaw | MaskDistribution) -> QueryLaw:
    """Returns a query law as it is, and a mask distribution as the law of its marginals."""
    if isinstance(law, QueryLaw):
        return law
    if isinstance(law, MaskDistribution):
        return MarginalQueries(law)
    raise ConfigError(
        f"A query law must be a QueryLaw or a MaskDistribution; got {type(law).__name__}."
    )


def _partial_sizes(n: int) -> Tensor:
    """Returns the odds s / (s + 1) of the sizes s = 1..n. Shape ``(n,)``."""
    sizes = torch.arange(1, n + 1, dtype=torch.float64)
    return sizes / (sizes + 1)


def _check_masks(name: str, masks: object) -> MaskDistribution:
    if not isinstance(masks, MaskDistribution):
        raise ConfigError(f"`{name}` must be a MaskDistribution; got {type(masks).__name__}.")
    return masks


def _members(name: str, members: Iterable[int], num_variables: int) -> Tensor:
    row = torch.zeros(num_variables, dtype=torch.bool)
    for member in members:
        row[check_count(name, member, low=0, high=num_variables - 1)] = True
    return row


class MixtureQueries(QueryLaw):
    """Mixture of query laws: one of them is sampled for each query.

    Args:
        laws: Components, over the same variables.
        weights: Weights of the components, equal by default. They need not sum to 1.
    """

    def __init__(
        self,
        laws: Iterable[QueryLaw | MaskDistribution],
        weights: Sequence[float] | Tensor | None = None,
    ) -> None:
        if isinstance(laws, QueryLaw | MaskDistribution | Mapping):
            raise ConfigError("`laws` must be a list of laws, with their shares in `weights`.")
        parts = [as_query_law(law) for law in laws or ()]
        if not parts:
            raise ConfigError("`laws` must hold at least one law; got none.")
        sizes = sorted({law.num_variables for law in parts})
        if len(sizes) > 1:
            raise ConfigError(f"`laws` must be over the same variables; they have {sizes} of them.")
        shares = check_weights(
            "weights", [1.0] * len(parts) if weights is None else weights, size=len(parts)
        )
        self.num_variables = parts[0].num_variables
        self.laws, self.weights = _flattened(parts, shares)

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        parts = zip(self.laws, self.weights.tolist(), strict=True)
        given, query = zip(*(law.max_sizes for law, weight in parts if weight > 0), strict=True)
        return max(given), max(query)

    def _sample(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        choice = categorical(self.weights.to(device), batch, generator=generator)
        sampled = Query(
            *(torch.zeros(batch, self.num_variables, dtype=torch.bool, device=device) for _ in "gq")
        )
        for k, law in enumerate(self.laws):
            rows = (choice == k).nonzero().squeeze(1)
            if len(rows):
                part = law._sample(len(rows), device, generator)
                sampled.given[rows], sampled.query[rows] = part
        return sampled

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        logs = torch.stack([law._log_prob(given, query) for law in self.laws])
        return torch.logsumexp(logs + self.weights.log().to(logs.device)[:, None], dim=0)

    def __repr__(self) -> str:
        return f"MixtureQueries({list(self.laws)!r}, weights={self.weights.tolist()})"


def any_queries(
    num_variables: int,
    *,
    conditional_share: float = 0.5,
    partial_share: float = 0.0,
    whole_share: float = 0.0,
) -> MixtureQueries:
    """Returns a mixture of marginals and conditionals of all sizes, for queries not known yet.

    Args:
        num_variables: N.
        conditional_share: Weight of conditionals that query all the rest (`ConditionalQueries`).
        partial_share: Weight of conditionals that marginalise some variables (`PartialQueries`).
        whole_share: Weight of the joint p(x). What is left is for marginals of uniform size.
    """
    n = num_variables
    shares = [
        check_fraction("conditional_share", conditional_share),
        check_fraction("partial_share", partial_share),
        check_fraction("whole_share", whole_share),
    ]
    if sum(shares) > 1 + PROBABILITY_TOLERANCE:
        raise ConfigError(
            "`conditional_share`, `partial_share` and `whole_share` must sum to 1 or less; "
            f"got {', '.join(map(str, shares))}."
        )
    laws = [
        as_query_law(UniformCardinality(n)),
        ConditionalQueries(n),
        PartialQueries(n),
        as_query_law(FixedCardinality(n, n)),
    ]
    parts = zip(laws, [max(0.0, 1 - sum(shares)), *shares], strict=True)
    kept = [(law, share) for law, share in parts if share > 0]
    return MixtureQueries([law for law, _ in kept], [share for _, share in kept])


def _flattened(laws: list[QueryLaw], shares: Tensor) -> tuple[tuple[QueryLaw, ...], Tensor]:
    """Returns the components of nested mixtures, with products of weights."""
    flat: list[tuple[QueryLaw, float]] = []
    for law, share in zip(laws, shares.tolist(), strict=True):
        if isinstance(law, MixtureQueries):
            parts = zip(law.laws, law.weights.tolist(), strict=True)
            flat += [(part, share * weight) for part, weight in parts]
        else:
            flat.append((law, share))
    return tuple(law for law, _ in flat), torch.tensor([w for _, w in flat], dtype=torch.float64)


def renumbered(law: QueryLaw, numbers: Sequence[int]) -> QueryLaw:
    """Returns the law of the same queries under another numbering of the variables.

    `numbers` has the new number of each variable; exchangeable laws do not depend on it.

    Example:
        >>> renumbered(QueryList(3, [([0], [2], 1.0)]), [1, 2, 0]).queries
        [([1], [0], 1.0)]
    """
    if list(numbers) == list(range(law.num_variables)):
        return law
    if isinstance(law, MixtureQueries):
        return MixtureQueries([renumbered(part, numbers) for part in law.laws], law.weights)
    if law.log_query_sizes(law.num_variables) is not None:  # exchangeable
        return law
    if isinstance(law, MarginalQueries):
        return MarginalQueries(_renumbered_masks(law.masks, numbers))
    if isinstance(law, ConditionalQueries):
        return ConditionalQueries(law.num_variables, _renumbered_masks(law.given, numbers))
    if isinstance(law, QueryList):
        triples = (
            ([numbers[i] for i in given], [numbers[i] for i in query], weight)
            for given, query, weight in law.queries
        )
        return QueryList(law.num_variables, triples)
    raise _refusal(law)


def _renumbered_masks(masks: MaskDistribution, numbers: Sequence[int]) -> MaskDistribution:
    if isinstance(masks, CardinalityLaw):
        return masks
    if not isinstance(masks, Fixed):
        raise _refusal(masks)
    sets = torch.empty_like(masks.sets)
    sets[:, list(numbers)] = masks.sets
    return Fixed(sets, masks.probabilities)


def _refusal(law: QueryLaw | MaskDistribution) -> ConfigError:
    return ConfigError(
        f"The variables of {law!r} cannot be renumbered, as another `order` of the columns "
        "needs it. Name the queries, give a QueryList, or bring the columns of the frame into "
        "that order and leave `order` out."
    )


MOST_LISTED = 10
"""Largest number of queries of a list that `describe_queries` spells out."""


def describe_queries(law: QueryLaw | MaskDistribution | None, names: Sequence[str]) -> list[str]:
    """Returns the queries of a law in words, one line for each component.

    Example:
        >>> describe_queries(QueryList(2, [([0], [1], 1.0)]), ["age", "income"])
        ['QueryList: age -> income (100%)']
    """
    if law is None:
        return []
    found = as_query_law(law)
    if isinstance(found, MixtureQueries):
        parts = zip(found.weights.tolist(), found.laws, strict=True)
        return [
            f"{weight:.0%} {line}"
            for weight, part in parts
            for line in describe_queries(part, names)
        ]
    if isinstance(found, MarginalQueries):
        return [f"MarginalQueries: {_sets(found.masks)}, with nothing given"]
    if isinstance(found, ConditionalQueries):
        return [f"ConditionalQueries: all the rest, given {_sets(found.given)}"]
    if isinstance(found, PartialQueries):
        return [
            f"PartialQueries: some of the {len(names)} variables, given some, the rest marginalised"
        ]
    if isinstance(found, QueryList):
        return _describe_list(found, names)
    return [repr(found)]


def _describe_list(law: QueryList, names: Sequence[str]) -> list[str]:
    lines = []
    for given, query, weight in law.queries[:MOST_LISTED]:
        left, right = (", ".join(names[place] for place in part) for part in (given, query))
        lines.append(f"QueryList: {left} -> {right} ({weight:.0%})".replace(":  ->", ": ->"))
    more = len(law.queries) - MOST_LISTED
    return lines if more <= 0 else [*lines, f"QueryList: and {more} more"]


def _sets(masks: MaskDistribution) -> str:
    if isinstance(masks, UniformCardinality):
        total = masks.num_variables
        if masks.low == masks.high:
            return f"{masks.low} of the {total} variables"
        return f"{masks.low} to {masks.high} of the {total} variables, every size equally likely"
    return repr(masks)
