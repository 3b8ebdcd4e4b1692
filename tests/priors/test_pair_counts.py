"""Counts of pairs: the formula by loops, and the answers that a model gives with one category."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from anyorder import Schema, Variable
from anyorder.priors.trees import MOST_COUNTED, SHARE_ROUNDS, STRENGTHS, PairCounts
from anyorder.tables.model import TableModel

SIZES = (2, 3)
SCHEMA = Schema(
    (
        Variable.categorical("a", range(SIZES[0])),
        Variable.continuous("n"),
        Variable.categorical("b", range(SIZES[1])),
    )
)
PLACES = {"a": 0, "b": 2}


def rows(seed=0, count=60):
    random = np.random.default_rng(seed)
    a = random.integers(0, 2, count)
    b = np.where(random.random(count) < 0.7, a, random.integers(0, 3, count))
    x = torch.tensor(np.stack([a, random.normal(size=count), b], axis=1)).float()
    return x, torch.tensor(random.random((count, 3)) < 0.8), torch.tensor(random.random(count))


def prior(x, given):
    """Says .7, .3 and .5, .3, .2, whatever is known."""
    said = torch.full((len(x), 3, 3), -1e4)
    said[:, 0, :2] = torch.tensor([0.7, 0.3]).log()
    said[:, 2] = torch.tensor([0.5, 0.3, 0.2]).log()
    assert given.sum(dim=1).eq(1).all()
    return said


def by_loops(x, have, weights, known, target):
    """p(target | known) of every level of known, as the docstring says."""
    said = {0: [0.7, 0.3], 2: [0.5, 0.3, 0.2]}[target]
    counts = []
    for b in range({0: 2, 2: 3}[known]):
        both = have[:, known] & have[:, target] & (x[:, known] == b)
        counts.append([float(weights[both & (x[:, target] == a)].sum()) for a in range(len(said))])
    strengths = [float(m) for m in STRENGTHS]

    def likelihood(row, m):
        parts = (
            math.lgamma(n + m * p) - math.lgamma(m * p) for n, p in zip(row, said, strict=True)
        )
        return math.exp(sum(parts) + math.lgamma(m) - math.lgamma(sum(row) + m))

    shares = [1.0] * len(strengths)
    for _ in range(SHARE_ROUNDS + 1):
        weighed = [
            [s * likelihood(row, m) for s, m in zip(shares, strengths, strict=True)]
            for row in counts
        ]
        weighed = [[w / sum(each) for w in each] for each in weighed]
        shares = [sum(each[i] for each in weighed) for i in range(len(strengths))]
    return [
        [
            sum(w * (n + m * p) / (sum(row) + m) for w, m in zip(each, strengths, strict=True))
            for n, p in zip(row, said, strict=True)
        ]
        for row, each in zip(counts, weighed, strict=True)
    ]


@pytest.mark.parametrize(("known", "target"), [("a", "b"), ("b", "a")])
def test_the_formula(known, target):
    x, have, weights = rows()
    pairs = PairCounts(SCHEMA)
    pairs.fit(prior, x, have, weights.double())
    start = {"a": 0, "b": 2}
    sizes = dict(zip("ab", SIZES, strict=True))
    found = pairs.table[start[known] : start[known] + sizes[known]].exp()
    found = found[:, start[target] : start[target] + sizes[target]]
    expected = by_loops(x, have, weights, PLACES[known], PLACES[target])
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(sizes[known]))


def frame(count=3000):
    """c repeats a where b is "x" only: what a tree of pairs is wrong about."""
    random = np.random.default_rng(0)
    a, b = random.choice(list("pq"), count), random.choice(list("xyz"), count, p=[0.1, 0.3, 0.6])
    c = np.where(b == "x", a, random.choice(list("pq"), count))
    return pd.DataFrame({"a": a, "b": b, "c": c, "n": random.normal(size=count)})


def test_answers_with_one_category_are_counts():
    table = frame()
    model = TableModel(layers=1, width=8, max_steps=3).fit(table)
    for known, target in (("a", "c"), ("c", "a"), ("b", "a"), ("a", "b")):
        for level, part in table.groupby(known):
            share = part[target].value_counts(normalize=True)
            answer = model.conditional(target, given={known: level}).probabilities()
            error = (share * (1 - share) / len(part)) ** 0.5
            assert ((answer[share.index] - share).abs() < 1.5 * error).all()


def test_a_path_goes_by_them_too():
    model = TableModel(layers=1, width=8, max_steps=3).fit(frame())
    row = pd.DataFrame({"a": ["p"], "c": ["q"]})
    both = model.log_prob(row, query=["a", "c"])[0]
    first = math.log(model.conditional("a").probabilities()["p"])
    then = math.log(model.conditional("c", given={"a": "p"}).probabilities()["q"])
    assert both == pytest.approx(first + then, abs=1e-4)


def test_a_prior_alone_and_gaps_that_depend_on_others_are_not_counted():
    table = frame(200)
    for options in ({"network": None}, {"missing": "mar", "max_steps": 2}):
        assert TableModel(**options).fit(table).model_.network.pairs is None


def test_too_many_levels_are_not_counted():
    wide = Schema(tuple(Variable.categorical(name, range(MOST_COUNTED // 2 + 1)) for name in "ab"))
    assert not len(PairCounts(wide).table)
