"""Mixtures of query laws, and functions of whole query laws.

`MixtureQueries` samples one of several laws for each query. `any_queries` is the mixture of
marginals and conditionals that an estimator trains on when nothing is known about its queries.
`renumbered` adapts a law to another numbering of the variables, and `describe_queries` lists the
queries of a law in words.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from anyorder.errors import PROBABILITY_TOLERANCE, ConfigError, check_fraction, check_weights
from anyorder.lattice.masks import (
    CardinalityLaw,
    Fixed,
    FixedCardinality,
    MaskDistribution,
    UniformCardinality,
)
from anyorder.lattice.query_laws import (
    ConditionalQueries,
    MarginalQueries,
    PartialQueries,
    Query,
    QueryLaw,
    QueryList,
    as_query_law,
)
from anyorder.lattice.random_sets import categorical


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

    Args:
        law: Law over the variables in their old numbering.
        numbers: New number of each variable. Exchangeable laws do not depend on it.

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
