"""Query laws draw what their probabilities say, and refuse what cannot be asked."""

import math

import pytest
import torch

from anyorder import (
    Bernoulli,
    CardinalityLaw,
    ConditionalQueries,
    ConfigError,
    FirstK,
    Fixed,
    FixedCardinality,
    MarginalQueries,
    MaskDistribution,
    MixtureQueries,
    PartialQueries,
    QueryError,
    QueryList,
    Rectangle,
    UniformCardinality,
    any_queries,
)
from anyorder.lattice.enumeration import _all_queries
from anyorder.lattice.query_laws import renumbered
from tests import oracle
from tests.laws import CASES, as_set, assert_drawn_from


@pytest.mark.parametrize("name", CASES)
def test_a_renumbered_law_asks_the_same_questions(name):
    law, numbers = CASES[name].law(4), [2, 0, 3, 1]
    given, asked = _all_queries(4)
    if "rectangle" in name:
        with pytest.raises(ConfigError, match="cannot be renumbered"):
            renumbered(law, numbers)
        return
    moved = [torch.zeros_like(sets) for sets in (given, asked)]
    for old, new in enumerate(numbers):
        moved[0][:, new], moved[1][:, new] = given[:, old], asked[:, old]
    found = renumbered(law, numbers)
    torch.testing.assert_close(found.log_prob(*moved), law.log_prob(given, asked))
    assert found.max_sizes == law.max_sizes
    assert renumbered(law, range(4)) is law


@pytest.mark.parametrize("name", CASES)
def test_probabilities_equal_the_oracle_and_samples_follow_them(name, generator):
    n, case = 4, CASES[name]
    law, table = case.law(n), case.table(n)
    given, asked = _all_queries(n)
    expected = torch.tensor(
        [float(table.get((as_set(g), as_set(q)), 0)) for g, q in zip(given, asked, strict=True)],
        dtype=torch.float64,
    )
    torch.testing.assert_close(law.log_prob(given, asked).exp(), expected)
    drawn = law.sample(20_000, generator=generator)
    assert_drawn_from(_question_codes(drawn), expected)
    assert int(drawn.given.sum(dim=1).max()) <= law.max_sizes[0]
    assert int(drawn.query.sum(dim=1).max()) <= law.max_sizes[1]


@pytest.mark.parametrize("name", CASES)
def test_rows_with_gaps_get_the_restricted_law(name, generator):
    n, case = 4, CASES[name]
    available = torch.tensor([True, False, True, True])
    table = oracle.restrict(case.table(n), as_set(available))
    given, asked = _all_queries(n)
    expected = torch.tensor(
        [float(table.get((as_set(g), as_set(q)), 0)) for g, q in zip(given, asked, strict=True)],
        dtype=torch.float64,
    )
    drawn = case.law(n).sample(20_000, available=available.expand(20_000, -1), generator=generator)
    assert_drawn_from(_question_codes(drawn), expected)


def _question_codes(drawn):
    digits = drawn.query.long() + 2 * drawn.given.long()
    return digits @ (3 ** torch.arange(digits.shape[1]))


def test_any_queries_are_half_marginals_and_half_conditionals():
    law = any_queries(3)
    nothing, everything = torch.zeros(1, 3).bool(), torch.ones(1, 3).bool()
    # the joint is a marginal and a conditional: (1/3 + 1/3) / 2
    assert law.log_prob(nothing, everything).exp().item() == pytest.approx(1 / 3)
    more = any_queries(3, conditional_share=0, whole_share=0.25)  # 3/4 of 1/3 are marginals
    assert more.log_prob(nothing, everything).exp().item() == pytest.approx(1 / 2)


def uniform(n):
    return UniformCardinality(n)


BAD_INPUT = {
    "N = 0": (lambda: uniform(0), "`num_variables` must be a whole number, 1 or more; got 0"),
    "N a float": (lambda: uniform(3.0), "whole number, 1 or more; got 3.0"),
    "N True": (lambda: uniform(True), "whole number, 1 or more; got True"),
    "low": (lambda: UniformCardinality(3, low=4), "`low` must be a whole number, from 0 to 3"),
    "high": (lambda: UniformCardinality(3, high=0), "`high` must be a whole number, from 1 to 3"),
    "size": (lambda: FixedCardinality(3, 5), "`cardinality` must be a whole number, from 0 to 3"),
    "p": (lambda: Bernoulli(3, 1.5), "`p` must be a number between 0 and 1; got 1.5"),
    "p a word": (lambda: Bernoulli(3, "half"), "between 0 and 1; got 'half'"),
    "k": (lambda: FirstK(3, 4), "`k` must be a whole number, from 1 to 3; got 4"),
    "sum": (lambda: CardinalityLaw([0.2, 0.2]), "must sum to 1; it sums to 0.4. Divide it"),
    "negative": (lambda: CardinalityLaw([-0.5, 1.5]), "must not hold negative numbers or NaN"),
    "NaN": (lambda: CardinalityLaw([math.nan, 1]), "must not hold negative numbers or NaN"),
    "words": (lambda: CardinalityLaw(["a"]), "must be a list of numbers; got ['a']"),
    "no sizes": (lambda: CardinalityLaw([]), "must be a list of one number or more"),
    "size 0 only": (lambda: CardinalityLaw([1.0]), "`num_variables` must be a whole number"),
    "no sets": (lambda: Fixed(torch.zeros(0, 3).bool()), "(sets, vars) with a row or more"),
    "fixed sum": (
        lambda: Fixed(torch.ones(2, 3).bool(), [0.5, 0.6]),
        "`probabilities` must sum to 1; it sums to 1.1",
    ),
    "fixed number": (
        lambda: Fixed(torch.ones(2, 3).bool(), [1.0]),
        "`probabilities` must be a list of 2 numbers; got shape (1,)",
    ),
    "height": (lambda: Rectangle(0, 3), "`height` must be a whole number, 1 or more; got 0"),
    "wrong N": (
        lambda: ConditionalQueries(4, UniformCardinality(3)),
        "`given` must be a law over 4 variables; it is over 3",
    ),
    "mixed N": (
        lambda: MixtureQueries([uniform(3), uniform(4)]),
        "over the same variables; they have [3, 4] of them",
    ),
    "no laws": (lambda: MixtureQueries([]), "at least one law; got none"),
    "weights": (lambda: MixtureQueries([uniform(3)], [0]), "not all zero; got [0]"),
    "two weights": (lambda: MixtureQueries([uniform(3)], [1, 1]), "must hold 1 numbers"),
    "weights in a dict": (
        lambda: MixtureQueries({uniform(3): 1.0}),
        "with their shares in `weights`",
    ),
    "not masks": (lambda: MarginalQueries(5), "`masks` must be a MaskDistribution; got int"),
    "given 0": (lambda: ConditionalQueries(5, given=0), "`given` must be a MaskDistribution"),
    "flag": (lambda: Rectangle(2, 3, inside="no"), "`inside` must be True or False; got 'no'"),
    "generator": (lambda: uniform(3).sample(2, generator=42), "must be a torch.Generator; got int"),
    "not a law": (lambda: MixtureQueries(["any"]), "must be a QueryLaw or a MaskDistribution"),
    "no queries": (lambda: QueryList(3, []), "at least one (given, query, weight); got none"),
    "pair": (
        lambda: QueryList(3, [([0], [1])]),
        "must be a list of triples (given, query, weight)",
    ),
    "asks nothing": (lambda: QueryList(3, [([0], [], 1)]), "query at least one variable"),
    "variable 3": (
        lambda: QueryList(3, [([], [3], 1)]),
        "`query` must be a whole number, from 0 to 2; got 3",
    ),
    "batch": (lambda: uniform(3).sample(0), "`batch` must be a whole number, 1 or more; got 0"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_laws_are_refused_in_a_sentence(name):
    build, sentence = BAD_INPUT[name]
    with pytest.raises(ConfigError) as caught:
        build()
    assert sentence in str(caught.value)


ONES, NONE = torch.ones(2, 3).bool(), torch.zeros(2, 3).bool()
BAD_QUERIES = {
    "both": (lambda: QueryList(3, [([0, 1], [1], 1)]), "variable 1 of row 0 is in both"),
    "both in log_prob": (
        lambda: MarginalQueries(uniform(3)).log_prob(ONES, ONES),
        "`given` and `query` must not share a variable",
    ),
    "dtype": (lambda: uniform(3).log_prob(torch.ones(2, 3)), "got torch.float32"),
    "a list": (lambda: uniform(3).log_prob([[True]]), "must be a boolean tensor"),
    "width": (lambda: uniform(4).log_prob(ONES), "must have shape (batch, 4), one column a"),
    "rank": (lambda: uniform(3).log_prob(ONES[0]), "got (3,)"),
    "rows": (
        lambda: MarginalQueries(uniform(3)).log_prob(NONE[:1], ONES),
        "must have one shape; got (1, 3) and (2, 3)",
    ),
    "no variable": (
        lambda: uniform(3).sample(2, available=NONE),
        "row 0 has none. Drop it",
    ),
    "available": (
        lambda: uniform(3).sample(3, available=ONES),
        "`available` must have shape (3, 3)",
    ),
    "unknown": (
        lambda: _Sampler(3).log_prob(ONES),
        "_Sampler can be sampled but its probabilities are unknown",
    ),
}


class _Sampler(MaskDistribution):
    """A law of a user's own, known as a sampler only."""

    def __init__(self, n):
        self.num_variables = n

    def _sample(self, batch, device, generator):
        return torch.rand(batch, self.num_variables, device=device, generator=generator) < 0.5


@pytest.mark.parametrize("name", BAD_QUERIES)
def test_bad_questions_are_refused_in_a_sentence(name):
    build, sentence = BAD_QUERIES[name]
    with pytest.raises(QueryError) as caught:
        build()
    assert sentence in str(caught.value)


@pytest.mark.parametrize("n", [3, 5])
def test_partial_questions_restricted_are_partial_questions(n):
    for a in range(1, n + 1):
        some, sizes = frozenset(range(a)), [0.0] * (a + 1)
        assert oracle.restrict(oracle.partials(n), some) == oracle.partials(a)
        for (_, query), mass in oracle.partials(n).items():
            sizes[len(query & some)] += float(mass)
        found = PartialQueries(n).log_query_sizes(a).exp()
        torch.testing.assert_close(found, torch.tensor(sizes).double(), rtol=1e-6, atol=1e-7)
    assert PartialQueries(2000).log_query_sizes(1000).exp().sum() == pytest.approx(1)
