"""The same questions where the variables have other numbers."""

from collections.abc import Sequence

import torch

from anyorder.errors import ConfigError
from anyorder.masks import CardinalityLaw, Fixed, MaskDistribution
from anyorder.query_laws import ConditionalQueries, MarginalQueries, QueryLaw, QueryList
from anyorder.query_mixtures import MixtureQueries


def renumbered(law: QueryLaw, numbers: Sequence[int]) -> QueryLaw:
    """The law of the same questions after variables were numbered anew.

    Args:
        law: Over the variables as they were numbered.
        numbers: The new number of each. Laws that treat all variables alike do not need it.

    Example:
        >>> renumbered(QueryList(3, [([0], [2], 1.0)]), [1, 2, 0]).queries
        [([1], [0], 1.0)]
    """
    if list(numbers) == list(range(law.num_variables)):
        return law
    if isinstance(law, MixtureQueries):
        return MixtureQueries([renumbered(part, numbers) for part in law.laws], law.weights)
    if law.log_asked_sizes(law.num_variables) is not None:  # questions of one size are alike
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
        f"The variables of {law!r} cannot be numbered anew, as another `order` of the columns "
        "needs it. Name the questions, give a QueryList, or bring the columns of the frame into "
        "that order and leave `order` out."
    )
