"""The laws of questions in words."""

from collections.abc import Sequence

from anyorder.masks import MaskDistribution, UniformCardinality
from anyorder.query_laws import (
    ConditionalQueries,
    MarginalQueries,
    PartialQueries,
    QueryLaw,
    QueryList,
    as_query_law,
)
from anyorder.query_mixtures import MixtureQueries

MOST_LISTED = 10
"""So many questions of a list are spelt out."""


def question_words(law: QueryLaw | MaskDistribution | None, names: Sequence[str]) -> list[str]:
    """The questions of a law, one line for each of its parts.

    Example:
        >>> question_words(QueryList(2, [([0], [1], 1.0)]), ["age", "income"])
        ['QueryList: age -> income (100%)']
    """
    if law is None:
        return []
    found = as_query_law(law)
    if isinstance(found, MixtureQueries):
        parts = zip(found.weights.tolist(), found.laws, strict=True)
        return [
            f"{weight:.0%} {line}" for weight, part in parts for line in question_words(part, names)
        ]
    if isinstance(found, MarginalQueries):
        return [f"MarginalQueries: {_sets(found.masks)}, with nothing given"]
    if isinstance(found, ConditionalQueries):
        return [f"ConditionalQueries: all the rest, given {_sets(found.given)}"]
    if isinstance(found, PartialQueries):
        return [f"PartialQueries: some of the {len(names)} variables, given some, the rest unknown"]
    if isinstance(found, QueryList):
        return _listed(found, names)
    return [repr(found)]


def _listed(law: QueryList, names: Sequence[str]) -> list[str]:
    lines = []
    for given, query, weight in law.queries[:MOST_LISTED]:
        known, asked = (", ".join(names[place] for place in part) for part in (given, query))
        lines.append(f"QueryList: {known} -> {asked} ({weight:.0%})".replace(":  ->", ": ->"))
    left = len(law.queries) - MOST_LISTED
    return lines if left <= 0 else [*lines, f"QueryList: and {left} more"]


def _sets(masks: MaskDistribution) -> str:
    if isinstance(masks, UniformCardinality):
        total = masks.num_variables
        return f"{masks.low} to {masks.high} of the {total} variables, each number as often"
    return repr(masks)
