"""The query laws that the tests run over, each beside its oracle."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import torch
from scipy.stats import chisquare
from torch import Tensor

from anyorder import (
    Bernoulli,
    CardinalityLaw,
    ConditionalQueries,
    FirstK,
    Fixed,
    FixedCardinality,
    MarginalQueries,
    MixtureQueries,
    PartialQueries,
    QueryLaw,
    QueryList,
    Rectangle,
    UniformCardinality,
    any_queries,
)
from tests import oracle

SIGNIFICANCE = 1e-4
"""A right sampler fails a test with this probability, once and for all: the seeds are fixed."""

RARE = 5


@dataclass(frozen=True)
class Case:
    """A law over N variables, and the same as a table of fractions."""

    law: Callable[[int], QueryLaw]
    table: Callable[[int], dict[oracle.Question, Fraction]]


def _uniform(n: int) -> dict[oracle.Question, Fraction]:
    return oracle.marginals(oracle.cardinality_law(n, oracle.uniform_sizes(1, n)))


def _conditional(n: int) -> dict[oracle.Question, Fraction]:
    return oracle.conditionals(n, oracle.cardinality_law(n, oracle.uniform_sizes(0, n - 1)))


def _bernoulli(n: int, p: Fraction) -> dict[oracle.Set, Fraction]:
    return oracle.cardinality_law(n, oracle.bernoulli_sizes(n, p))


def _listed(n: int) -> dict[oracle.Question, Fraction]:
    return {
        (frozenset({0}), frozenset({n - 1, 1})): Fraction(3, 5),
        (frozenset(), frozenset({0, 2})): Fraction(1, 5),
        (frozenset(range(1, n)), frozenset({0})): Fraction(1, 5),
    }


QUARTER, HALF = Fraction(1, 4), Fraction(1, 2)

SIZED = {
    "uniform": Case(lambda n: MarginalQueries(UniformCardinality(n)), _uniform),
    "uniform_from_0": Case(
        lambda n: MarginalQueries(UniformCardinality(n, low=0)),
        lambda n: oracle.marginals(oracle.cardinality_law(n, oracle.uniform_sizes(0, n))),
    ),
    "some_sizes": Case(
        lambda n: MarginalQueries(UniformCardinality(n, low=2, high=n - 1)),
        lambda n: oracle.marginals(oracle.cardinality_law(n, oracle.uniform_sizes(2, n - 1))),
    ),
    "fixed_size": Case(
        lambda n: MarginalQueries(FixedCardinality(n, 2)),
        lambda n: oracle.marginals(oracle.cardinality_law(n, {2: Fraction(1)})),
    ),
    "table_of_sizes": Case(
        lambda n: MarginalQueries(CardinalityLaw([0, 0.25] + [0.0] * (n - 2) + [0.75])),
        lambda n: oracle.marginals(oracle.cardinality_law(n, {1: QUARTER, n: 3 * QUARTER})),
    ),
    "bernoulli": Case(
        lambda n: MarginalQueries(Bernoulli(n, 0.25)),
        lambda n: oracle.marginals(_bernoulli(n, QUARTER)),
    ),
    "conditional": Case(ConditionalQueries, _conditional),
    "conditional_bernoulli": Case(
        lambda n: ConditionalQueries(n, Bernoulli(n, 0.5)),
        lambda n: oracle.conditionals(n, _bernoulli(n, HALF)),
    ),
    "mixture": Case(  # shares whose logarithms float32 would round
        lambda n: MixtureQueries([UniformCardinality(n), ConditionalQueries(n)], [1, 9]),
        lambda n: oracle.mixture(
            [(Fraction(1, 10), _uniform(n)), (Fraction(9, 10), _conditional(n))]
        ),
    ),
    "mixture_of_mixtures": Case(
        lambda n: MixtureQueries([any_queries(n), FixedCardinality(n, 2)], [3, 1]),
        lambda n: oracle.mixture(
            [
                (3 * QUARTER / 2, _uniform(n)),
                (3 * QUARTER / 2, _conditional(n)),
                (QUARTER, oracle.marginals(oracle.cardinality_law(n, {2: Fraction(1)}))),
            ]
        ),
    ),
    "mixture_with_table": Case(
        lambda n: MixtureQueries([Bernoulli(n, 0.25), ConditionalQueries(n)]),
        lambda n: oracle.mixture(
            [(HALF, oracle.marginals(_bernoulli(n, QUARTER))), (HALF, _conditional(n))]
        ),
    ),
}
"""Laws whose questions of one size are alike: their edge weights have closed forms."""

SAMPLED = {
    "first_k": Case(
        lambda n: MarginalQueries(FirstK(n, 3)),
        lambda _: {(frozenset(), frozenset(range(3))): Fraction(1)},
    ),
    "fixed": Case(
        lambda n: MarginalQueries(
            Fixed(torch.stack([torch.arange(n) < 1, torch.arange(n) != 1]), [0.25, 0.75])
        ),
        lambda n: {
            (frozenset(), frozenset({0})): QUARTER,
            (frozenset(), frozenset(range(n)) - {1}): 3 * QUARTER,
        },
    ),
    "list": Case(
        lambda n: QueryList(
            n, [([0], [n - 1, 1], 3), ([], [0, 2], 1), (list(range(1, n)), [0], 1)]
        ),
        _listed,
    ),
    "partial": Case(PartialQueries, oracle.partials),
    "mixture_with_partial": Case(
        lambda n: any_queries(n, conditional_share=0.25, partial_share=0.5),
        lambda n: oracle.mixture(
            [(QUARTER, _uniform(n)), (QUARTER, _conditional(n)), (HALF, oracle.partials(n))]
        ),
    ),
    "rectangle": Case(
        lambda n: MarginalQueries(Rectangle(1, n)),
        lambda n: oracle.marginals(rectangles(1, n)),
    ),
    "around_a_rectangle": Case(
        lambda n: ConditionalQueries(n, Rectangle(1, n, inside=False)),
        lambda n: {(frozenset(range(n)) - s, s): mass for s, mass in rectangles(1, n).items()},
    ),
    "conditional_fixed": Case(
        lambda n: ConditionalQueries(n, Fixed(torch.eye(n, dtype=torch.bool)[:2])),
        lambda n: oracle.conditionals(n, {frozenset({0}): HALF, frozenset({1}): HALF}),
    ),
    "mixture_with_list": Case(
        lambda n: MixtureQueries([FirstK(n, 3), ConditionalQueries(n)], [1, 3]),
        lambda n: oracle.mixture(
            [
                (QUARTER, {(frozenset(), frozenset(range(3))): Fraction(1)}),
                (3 * QUARTER, _conditional(n)),
            ]
        ),
    ),
}
"""Laws that the library knows only as samplers."""

CASES = SIZED | SAMPLED


def rectangles(height: int, width: int) -> dict[oracle.Set, Fraction]:
    """Every rectangle of a one-channel image, equally likely."""
    found = [
        frozenset(y * width + x for y in range(top, bottom) for x in range(left, right))
        for top in range(height)
        for bottom in range(top + 1, height + 1)
        for left in range(width)
        for right in range(left + 1, width + 1)
    ]
    return {s: Fraction(1, len(found)) for s in found}


def as_set(row: Tensor) -> oracle.Set:
    return frozenset(row.nonzero().flatten().tolist())


def as_row(members: oracle.Set, n: int) -> Tensor:
    row = torch.zeros(n, dtype=torch.bool)
    row[list(members)] = True
    return row


def assert_drawn_from(codes: Tensor, law: Tensor) -> None:
    """Asserts by chi-square that `codes` are draws from `law`, and that none is impossible.

    Outcomes that are expected fewer than five times are counted together, as the test asks for.
    """
    counts = torch.bincount(codes, minlength=len(law)).double()
    expected = law * len(codes)
    assert counts[law == 0].sum() == 0, "an impossible outcome was drawn"
    rare = expected < RARE
    observed = torch.cat([counts[~rare], counts[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    assert (~rare).sum() > 1 or (law == 1).any(), "the chi-square test needs more draws"
    seen = expected > 0
    if seen.sum() > 1:
        scaled = expected[seen] * len(codes) / expected[seen].sum()  # laws come rounded
        assert chisquare(observed[seen], scaled).pvalue > SIGNIFICANCE
