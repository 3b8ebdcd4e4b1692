"""Mixtures of query laws, and the one for people who may ask anything."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from anyorder.errors import PROBABILITY_TOLERANCE, ConfigError, check_fraction, check_weights
from anyorder.masks import FixedCardinality, MaskDistribution, UniformCardinality
from anyorder.query_laws import ConditionalQueries, PartialQueries, Query, QueryLaw, as_query_law
from anyorder.random_sets import draws


class MixtureQueries(QueryLaw):
    """One of several laws, chosen with fixed probabilities for each question.

    Args:
        laws: The laws, over the same variables.
        weights: Their shares; equal by default. They need not sum to 1.
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

    def _draw(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        choice = draws(self.weights.to(device), batch, generator=generator)
        drawn = Query(
            *(torch.zeros(batch, self.num_variables, dtype=torch.bool, device=device) for _ in "gq")
        )
        for k, law in enumerate(self.laws):
            rows = (choice == k).nonzero().squeeze(1)
            if len(rows):
                part = law._draw(len(rows), device, generator)
                drawn.given[rows], drawn.query[rows] = part
        return drawn

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
    """The law for people who may ask anything: marginals and conditionals, of any size.

    Args:
        num_variables: N.
        conditional_share: How many of the questions are conditionals that ask all the rest.
        partial_share: How many are conditionals that leave some variables unknown.
        whole_share: How many are of all variables; marginals of any size are what is left.
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
    """A mixture of mixtures is a mixture: its parts have products for shares."""
    flat: list[tuple[QueryLaw, float]] = []
    for law, share in zip(laws, shares.tolist(), strict=True):
        if isinstance(law, MixtureQueries):
            parts = zip(law.laws, law.weights.tolist(), strict=True)
            flat += [(part, share * weight) for part, weight in parts]
        else:
            flat.append((law, share))
    return tuple(law for law, _ in flat), torch.tensor([w for _, w in flat], dtype=torch.float64)
