"""A law by numbers means the columns of the frame, whatever the order of the model is."""

import warnings

import numpy as np
import pandas as pd
import pytest

from anyorder.errors import AnyOrderWarning, ConfigError
from anyorder.lattice.masks import (
    FirstK,
    Fixed,
    MaskDistribution,
    Rectangle,
    UniformCardinality,
)
from anyorder.lattice.query_laws import ConditionalQueries, MixtureQueries, QueryList
from anyorder.tables.model import TableModel

TINY = {"layers": 1, "width": 16, "heads": 2, "dropout": 0.0, "random_state": 0}
FROM_A_TO_C = QueryList(3, [([0], [2], 1.0)])
ORDERS = {"dependence": "dependence", "complete": "complete", "learned": "learned", "own": ["c"]}


def frame(rows=300, seed=0):
    """b and c are near, a is far, with gaps in a and some in b: every search moves columns."""
    rng = np.random.default_rng(seed)
    c = rng.normal(size=rows)
    b = c + 0.1 * rng.normal(size=rows)
    a = b + rng.normal(size=rows)
    a[rng.random(rows) < 0.3], b[rng.random(rows) < 0.1] = np.nan, np.nan
    return pd.DataFrame({"a": a, "region": rng.choice([*"xy"], rows), "b": b, "c": c})


def fitted(queries, order, rows=None, steps=5):
    options = TINY | {"context": ["region"], "max_steps": steps}
    rows = frame() if rows is None else rows
    return TableModel(queries=queries, order=order, **options).fit(rows)


def named(model):
    """The questions of a model by the names of their columns."""
    names = model.table_.names
    return [
        ([names[i] for i in given], [names[i] for i in query], weight)
        for given, query, weight in model.queries_.queries
    ]


@pytest.mark.parametrize("order", ORDERS)
def test_numbers_are_those_of_the_frame(order):
    model = fitted(FROM_A_TO_C, ORDERS[order])
    assert order == "learned" or model.table_.names != ("a", "b", "c")
    assert named(model) == [(["a"], ["c"], 1.0)]
    by_name = fitted([(["a"], ["c"], 1.0)], ORDERS[order])
    question = {"query": "c", "given": ["a", "region"]}
    np.testing.assert_equal(
        model.log_prob(frame(), **question), by_name.log_prob(frame(), **question)
    )


def test_a_model_along_another_order_learns_the_question_that_was_numbered():
    model = fitted(FROM_A_TO_C, "dependence", steps=200)
    assert model.table_.names[0] != "a"
    rows = frame(2000, seed=1).dropna()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as that this was never asked in training
        said = model.log_prob(rows, query="c", given=["a", "region"]).mean()
    # The entropy of c is 1.07 nats given a, and 1.42 without it.
    assert 1.0 < -said < 1.3
    with pytest.warns(AnyOrderWarning, match="trained for other queries"):
        model.log_prob(rows, query="a", given=["c", "region"])


def test_laws_that_hold_numbers_follow_and_the_others_stay():
    sets = Fixed([[True, False, False], [True, True, False]])
    parts = [FROM_A_TO_C, UniformCardinality(3), sets, ConditionalQueries(3, FirstK(3, k=1))]
    model = fitted(MixtureQueries(parts, [1, 1, 2, 4]), ["c", "b", "a"])
    first, second, third, fourth = model.queries_.laws
    assert first.queries == [([2], [0], 1.0)]
    assert second.masks is parts[1]
    assert third.masks.sets.tolist() == [[False, False, True], [False, True, True]]
    assert fourth.given.sets.tolist() == [[False, False, True]]
    assert model.queries_.weights.tolist() == [0.125, 0.125, 0.25, 0.5]


class Singletons(MaskDistribution):
    """A law of a user's own, of which nothing is known."""

    num_variables = 3

    def _sample(self, *_):
        raise AssertionError("never drawn from")


@pytest.mark.parametrize("law", [Singletons(), Rectangle(1, 3)], ids=repr)
def test_what_cannot_be_numbered_anew_is_refused_before_anything_is_searched(law, monkeypatch):
    def search(*_):
        raise AssertionError("never searched")

    monkeypatch.setattr("anyorder.tables.model.chosen_order", search)
    for order in ("learned", ["c"]):
        with pytest.raises(ConfigError, match=r"cannot be renumbered.*Name the queries"):
            fitted(law, order)
    if isinstance(law, Rectangle):
        assert fitted(law, None, frame().dropna()).queries_.masks is law


def test_a_question_does_not_ask_for_what_is_given():
    with pytest.raises(ConfigError, match='"a" is both: drop it from one'):
        fitted([(["a", "b"], ["a"], 1.0)], None)
