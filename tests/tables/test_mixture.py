"""Mixtures of tables: one law for each question, drawn from as it is evaluated."""

import itertools

import numpy as np
import pandas as pd
import pytest

from anyorder.errors import ConfigError, QueryError
from anyorder.tables.ensemble import TableMixture
from anyorder.tables.model import TableModel

OPTIONS = {"layers": 1, "width": 16, "heads": 2, "max_steps": 30, "learning_rate": 1e-2}
NAMES = ("a", "b", "c")
LEVELS = {"a": ["x", "y"], "b": [False, True], "c": ["p", "q", "r"]}
CELLS = pd.DataFrame(list(itertools.product(*LEVELS.values())), columns=list(NAMES))


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    a = rng.choice(["x", "y"], 300)
    b = (a == "x") ^ (rng.random(300) < 0.2)
    frame = pd.DataFrame({"a": a, "b": b, "c": rng.choice(list("pqr"), 300)})
    frame.loc[b, "c"] = "p"
    orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]]
    return [TableModel(order=o, random_state=i, **OPTIONS).fit(frame) for i, o in enumerate(orders)]


def test_joints_and_marginals_are_plain_averages(models):
    mixture = TableMixture(models)
    for query in (list(NAMES), ["b"], ["a", "c"]):
        each = [np.exp(model.log_prob(CELLS, query=query)) for model in models]
        found = np.exp(mixture.log_prob(CELLS, query=query))
        np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-6)
    assert mixture.score(CELLS) == pytest.approx(mixture.log_prob(CELLS).mean())


def test_evidence_weights_the_models(models):
    mixture = TableMixture(models)
    priors = np.stack([np.exp(model.log_prob(CELLS, query=["a"])) for model in models])
    each = [np.exp(model.log_prob(CELLS, query=["b", "c"], given=["a"])) for model in models]
    found = np.exp(mixture.log_prob(CELLS, query=["b", "c"], given=["a"]))
    expected = (priors / priors.sum(axis=0) * np.stack(each)).sum(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    sums = pd.Series(found).groupby(CELLS["a"]).sum()  # over all b, c
    np.testing.assert_allclose(sums, 1, rtol=1e-5)


def test_draws_follow_the_law(models):
    mixture, draws = TableMixture(models), 6000
    drawn = mixture.sample(draws, given={"a": "x"}, random_state=0)
    assert (drawn["a"] == "x").all()
    assert drawn.dtypes.equals(models[0].sample(1).dtypes)
    cells = CELLS[CELLS["a"] == "x"]
    expected = np.exp(mixture.log_prob(cells, query=["b", "c"], given=["a"]))
    counts = drawn.value_counts(["b", "c"]).reindex(list(cells[["b", "c"]].itertuples(index=False)))
    observed = counts.fillna(0).to_numpy()
    squares = ((observed - draws * expected) ** 2 / (draws * expected)).sum()
    assert squares < 20.5  # chi-square with 5 degrees of freedom: one in a thousand is above
    again = mixture.sample(draws, given={"a": "x"}, random_state=0)
    pd.testing.assert_frame_equal(drawn, again)


def test_rows_with_gaps_and_frames_with_fewer_columns_are_answered(models):
    mixture = TableMixture(models)
    gappy = CELLS.assign(a=[None, "x"] * 6)
    found = mixture.log_prob(gappy, given=["a"])
    whole = mixture.log_prob(gappy[["b", "c"]])
    np.testing.assert_allclose(found[::2], whole[::2], rtol=1e-6)


def test_what_is_no_mixture_is_refused(models):
    with pytest.raises(ConfigError, match="a list of one fitted TableModel or more"):
        TableMixture([])
    for odd in (models[0], None, "ab", [models[0], None]):
        with pytest.raises(ConfigError, match="a list of one fitted TableModel or more; got"):
            TableMixture(odd)
    other = TableModel(**OPTIONS).fit(CELLS[["a", "b"]])
    with pytest.raises(ConfigError, match="the same columns"):
        TableMixture([models[0], other])
    with pytest.raises(QueryError, match="no intervals or lists"):
        TableMixture(models).sample(2, given={"c": ["p", "q"]})


ROWS = pd.DataFrame(
    {
        "x": np.arange(60) / 7,
        "kind": [1, 2, 3] * 20,
        "job": ["nurse", "clerk", "smith"] * 20,
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(60) // 3, unit="D"),
    }
)
QUICK = OPTIONS | {"max_steps": 1, "validation_share": 0.0}


@pytest.mark.parametrize(
    ("options", "change", "words"),
    [
        ({"types": {"kind": "category"}}, {}, r'"kind" is of type number in one and category'),
        ({"types": {"x": "ignore"}}, {}, '"x" is of type number in one and ignored in another'),
        ({"context": ["job"]}, {}, r'"job" is always given \(`context`\) in one of them only'),
        ({}, {"job": ["nurse", "clerk", "cook"] * 20}, "\"job\" has the level .* 'cook' in one"),
        ({}, {"x": np.where(np.arange(60) < 30, 0.0, ROWS["x"])}, '"x" has .* value 0.0 in one'),
        ({"missing_values": ["smith"]}, {}, "the same `missing_values`"),
    ],
)
def test_masses_are_not_mixed_with_densities(options, change, words):
    """The first column that differs is named, and what to do."""
    one = TableModel(**QUICK).fit(ROWS)
    other = TableModel(**QUICK, **options).fit(ROWS.assign(**change))
    for pair in ([one, other], [other, other, one]):
        with pytest.raises(ConfigError, match=words if pair[0] is one else "must"):
            TableMixture(pair)


def test_the_same_columns_of_other_rows_are_mixed():
    """Dates that repeat are the same whatever they are counted from; so are levels in any order."""
    extra = pd.concat([ROWS[:30], ROWS[::-1]]).assign(x=np.linspace(0, 1, 90))
    one, other = (TableModel(**QUICK).fit(rows) for rows in (ROWS, extra))
    origins = [model.table_["day"].measurement.origin for model in (one, other)]
    assert origins[0] != origins[1]
    assert np.isfinite(TableMixture([one, other]).log_prob(ROWS)).all()
