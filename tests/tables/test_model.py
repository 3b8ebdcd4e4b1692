"""TableModel: likelihoods in the units of the columns, draws, gaps, frames as people have them."""

import contextlib
import copy
import json
import math
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from anyorder.errors import (
    AnyOrderError,
    AnyOrderWarning,
    CheckpointError,
    ConfigError,
    QueryError,
    SchemaError,
)
from anyorder.heads.mixed import MixedConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.lattice.masks import UniformCardinality
from anyorder.lattice.protocols import RemoveGreatest
from anyorder.lattice.query_laws import QueryList
from anyorder.networks.path_perceptron import PathPerceptron
from anyorder.priors.contract import NetworkWithPrior, StackedPrior
from anyorder.priors.latent_tree import LatentTree
from anyorder.priors.normals import NormalPrior
from anyorder.saving.checkpoint import SavedModel
from anyorder.tables import fitting as table_fitting
from anyorder.tables.ensemble import TableMixture, members_of
from anyorder.tables.fitting import LEAST_SINGLE, VALID_ROWS, TableData, single_columns, surprise_of
from anyorder.tables.model import TableModel
from anyorder.tables.schema import TableSchema
from anyorder.variables import Schema, Variable

TINY = {"layers": 1, "width": 16, "heads": 2, "dropout": 0.0, "learning_rate": 1e-2}
QUICK = TableModel(**TINY, max_steps=3)


def people(rows=400, seed=0):
    """Age, income that grows with it, hours with spikes, a job that follows income, a birthday."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, rows)
    income = np.exp(9 + age / 40 + rng.normal(0, 0.3, rows)).round(2)
    hours = np.where(rng.random(rows) < 0.6, 40.0, rng.normal(30, 8, rows).round(3))
    job = np.where(income > np.median(income), "nurse", "clerk")
    born = pd.Timestamp("2026-01-01") - pd.to_timedelta(age * 365, unit="D")
    frame = pd.DataFrame(
        {"age": age, "income": income, "hours": hours, "job": pd.Categorical(job), "born": born}
    )
    frame["member"] = rng.random(rows) < 0.3
    return frame


@pytest.fixture(scope="module")
def frame():
    gappy = people()
    gappy.loc[gappy.index % 7 == 0, "hours"] = np.nan
    gappy.loc[gappy.index % 11 == 0, "job"] = np.nan
    return gappy


@pytest.fixture(scope="module")
def model(frame):
    return TableModel(**TINY, max_steps=200).fit(frame)


def test_columns_are_taken_for_what_they_are(model):
    kinds = {line.column: line.kind for line in model.table_.summary()}
    assert kinds == {
        "age": "number",
        "income": "number",
        "hours": "number",
        "job": "category",
        "born": "date and time",
        "member": "boolean",
    }


def test_densities_are_in_the_units_of_the_column(model):
    income = model.conditional("income", given={"age": 50})
    grid = np.geomspace(10, 1e7, 20_001)
    assert np.trapezoid(income.pdf(grid), grid) == pytest.approx(1, abs=2e-3)
    below = np.trapezoid(income.pdf(grid[grid < 30_000]), grid[grid < 30_000])
    assert income.cdf(30_000) == pytest.approx(below, abs=2e-3)
    assert income.cdf(income.quantile(0.3)) == pytest.approx(0.3, abs=1e-3)


@pytest.mark.parametrize("value", ["1990", ("1990-02", None), (None, "1990")])
def test_a_year_is_no_date(model, value):
    """It would be read as its first day."""
    with pytest.raises(QueryError, match=r'whole date for "born"; got .1990.*an interval, '):
        model.conditional("age", given={"born": value})
    model.conditional("age", given={"born": ("1990-01-01", "1990-12-31")})


def test_a_drawn_density_of_dates_has_a_unit_and_short_dates(model):
    axes = Figure().subplots()
    model.conditional("born").plot(axes)
    assert axes.get_ylabel() == "density a year"
    assert axes.get_ylim()[1] > 1e-4  # and not that of seconds
    assert isinstance(axes.xaxis.get_major_formatter(), ConciseDateFormatter)


def test_a_density_of_a_rescaled_column_is_rescaled(frame, model):
    cents = frame.assign(income=frame.income * 100)
    other = TableModel(**TINY, max_steps=200).fit(cents)
    # The same codes, hence the same training; the density is that of a hundredth of the unit.
    shift = model.log_prob(frame, query="income") - other.log_prob(cents, query="income")
    np.testing.assert_allclose(shift, math.log(100), atol=1e-3)


def test_atoms_have_probability_and_the_rest_a_density(model):
    hours = model.conditional("hours")
    grid = np.linspace(-60, 120, 40_001) + 1e-4
    mass = np.trapezoid(hours.pdf(grid), grid)
    assert hours.pdf(40.0) == pytest.approx(1 - mass, abs=2e-3)
    assert hours.pdf(40.0) == pytest.approx(0.6, abs=0.15)
    assert hours.mode() == 40.0
    assert hours.quantile(0.9) == 40.0


def test_probabilities_of_levels_sum_to_one(model, frame):
    job = model.conditional("job", given={"income": 50_000.0}).probabilities()
    assert job.sum() == pytest.approx(1, abs=1e-5)
    assert list(job.index) == ["clerk", "nurse"]
    proba = model.predict_proba(frame, target="job")
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-5)


def test_questions_on_frames_follow_the_rules(model, frame):
    whole = model.log_prob(frame)
    row = frame.iloc[[0]]  # hours and job are gaps here
    named = model.log_prob(row, query=["age", "income", "born", "member"])
    assert whole[0] == pytest.approx(named[0], abs=1e-4)
    # A frame may lack what is not used; a gap in a given column is not given in that row.
    assert model.log_prob(row[["age", "income"]], query="income", given="age").shape == (1,)
    unknown = model.log_prob(row, query="income", given=["age", "job"])
    assert unknown[0] == pytest.approx(
        model.log_prob(row, query="income", given="age")[0], abs=1e-4
    )
    with pytest.raises(QueryError, match='Row 0 has no value of "job"'):
        model.log_prob(row, query="job")
    with pytest.raises(QueryError, match='"age" is both queried and given'):
        model.log_prob(row, query="age", given="age")
    with pytest.raises(QueryError, match=r'got "agee"\. Did you mean "age"'):
        model.log_prob(row, query="income", given="agee")
    assert model.score(frame) == pytest.approx(whole.mean())


def test_samples_look_like_the_frame(model, frame):
    drawn = model.sample(50, random_state=0)
    assert list(drawn.columns) == list(frame.columns)
    assert drawn.dtypes.to_dict() == frame.dtypes.to_dict()
    assert drawn.notna().all().all()
    pd.testing.assert_frame_equal(drawn, model.sample(50, random_state=0))
    given = model.sample(20, given={"age": 30, "job": "clerk"}, random_state=0)
    assert set(given.age) == {30}
    assert set(given.job) == {"clerk"}


def test_intervals_and_sets_are_kept(model):
    region = {"age": (30, 40), "job": ["clerk"], "income": (None, 40_000)}
    drawn = model.sample(200, given=region, random_state=0)
    assert drawn.age.between(30, 40).all()
    assert (drawn.income <= 40_000).all()
    assert set(drawn.job) == {"clerk"}
    assert 100 < drawn.attrs["effective_sample_size"] <= 1024
    hours = model.conditional("hours", given={"age": (30, 40)})
    assert 500 < hours.effective_sample_size <= 1024
    low, high = hours.interval(0.8)
    assert hours.cdf(low) <= 0.11
    assert hours.cdf(high) >= 0.89


def test_one_soft_column_is_the_average_over_it(model):
    exact = [
        model.conditional("income", given={"job": level}).cdf(30_000)
        for level in ("clerk", "nurse")
    ]
    weight = model.conditional("job").probabilities()
    mixed = model.conditional("income", given={"job": ["clerk", "nurse"]}).cdf(30_000)
    truth = float((weight.to_numpy() * np.array(exact)[:, 0]).sum())
    assert mixed[0] == pytest.approx(truth, abs=3 * 0.5 / 1024**0.5)


def test_gaps_are_filled_and_all_else_stays(model, frame):
    filled = model.impute(frame, random_state=0)
    assert filled.notna().all().all()
    assert filled.dtypes.to_dict() == frame.dtypes.to_dict()
    there = frame.notna()
    pd.testing.assert_frame_equal(filled.where(there), frame.where(there))
    many = model.impute(frame, draws=3, random_state=0)
    assert many.index.names == ["draw", "row"]
    assert len(many) == 3 * len(frame)
    for how in ("mean", "mode"):
        best = model.impute(frame, how=how)
        assert best.notna().all().all()
        pd.testing.assert_frame_equal(best, model.impute(frame, how=how))
    missing_column = model.impute(frame.drop(columns="income"), random_state=0)
    assert missing_column.income.gt(0).all()


def test_predictions_come_from_what_a_row_has(model, frame):
    known = frame[frame.job.notna()]
    right = (model.predict(known, target="job") == known.job).mean()
    assert right > 0.8
    income = model.predict(frame, target="income")
    assert np.corrcoef(np.log(income), np.log(frame.income))[0, 1] > 0.6
    with pytest.raises(QueryError, match="`target` must name"):
        model.predict(frame)
    with pytest.raises(QueryError, match="is no category"):
        model.predict_proba(frame, target="income")


def test_what_is_odd_is_surprising(model, frame):
    odd = frame.copy()
    odd.loc[5, "income"] = 5e6
    surprise = model.outliers(odd)
    assert surprise.income.idxmax() == 5
    assert surprise.row.rank(ascending=False)[5] <= 3
    assert surprise.hours.isna().equals(odd.hours.isna())


def test_what_tells_about_a_column_comes_first(model):
    gain = model.information_gain("job")
    assert gain.idxmax() in ("income", "age", "born")
    assert "job" not in gain.index
    assert model.information_gain("job", given={"income": 9e4}).idxmax() != "income"


def test_privacy_tells_copies_from_draws(model, frame):
    others = people(400, seed=1)
    copies = model.privacy(frame, frame, others)
    assert copies.copies == 1
    assert copies.closer_to_train > 0.95
    fresh = model.privacy(people(400, seed=2), people(400, seed=3), others)
    assert abs(fresh.closer_to_train - 0.5) < 4 * fresh.se


def test_answers_survive_a_new_process(model, frame, tmp_path):
    model.save(tmp_path / "run")
    frame.to_pickle(tmp_path / "frame.pkl")
    code = (
        "import sys, numpy as np, pandas as pd\n"
        "from anyorder.tables.model import TableModel\n"
        "model = TableModel.load(sys.argv[1] + '/run')\n"
        "frame = pd.read_pickle(sys.argv[1] + '/frame.pkl')\n"
        "np.save(sys.argv[1] + '/logs.npy', model.log_prob(frame))\n"
        "model.sample(5, random_state=1).to_pickle(sys.argv[1] + '/drawn.pkl')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "logs.npy"), model.log_prob(frame))
    drawn = pd.read_pickle(tmp_path / "drawn.pkl")
    pd.testing.assert_frame_equal(drawn, model.sample(5, random_state=1))


def test_scikit_learn_can_clone_and_chain(frame):
    model = TableModel(**TINY, max_steps=2, queries=[(["age"], ["income"], 1.0)])
    assert clone(model).get_params() == model.get_params()
    pipeline = make_pipeline(FunctionTransformer(lambda f: f.drop(columns="born")), clone(QUICK))
    assert pipeline.fit_transform(frame).notna().all().all()


def test_a_target_given_apart_is_predicted(frame):
    known = frame[frame.job.notna()]
    model = clone(QUICK).fit(known[["age", "income"]], known.job)
    assert set(model.predict(known[["age"]])) <= {"nurse", "clerk"}
    assert math.isfinite(model.score(known[["age", "income"]], known.job))


def test_arrays_have_columns_too():
    x = np.random.default_rng(0).normal(size=(50, 3))
    model = clone(QUICK).fit(x)
    assert model.n_features_in_ == 3
    assert model.score_samples(x).shape == (50,)


def test_context_is_given_and_never_asked(frame):
    model = TableModel(**TINY, max_steps=5, context=["job", "hours"]).fit(frame)
    assert sorted(model.table_.names) == ["age", "born", "income", "member"]
    drawn = model.sample(4, given={"job": "clerk", "hours": 40.0}, random_state=0)
    assert set(drawn.job) == {"clerk"}
    with pytest.raises(QueryError, match='must hold "hours", which is context'):
        model.sample(1, given={"job": "clerk"})
    with pytest.raises(QueryError, match='"job" is context'):
        model.log_prob(frame, query="job")


def test_order_and_law_are_the_users(frame):
    law = UniformCardinality(6)
    model = TableModel(**TINY, max_steps=2, order=["member", "born"], queries=law).fit(frame)
    assert model.table_.names[:2] == ("member", "born")
    listed = [(["age"], ["income"], 3.0), ([], ["age", "job"], 1.0)]
    model = TableModel(**TINY, max_steps=2, queries=listed).fit(frame)
    assert model.queries_.weights.tolist() == [0.75, 0.25]
    with pytest.raises(ConfigError, match="law over the 6 columns"):
        TableModel(**TINY, queries=UniformCardinality(4)).fit(frame)
    with pytest.raises(QueryError, match='got "agee"'):
        TableModel(**TINY, queries=[(["agee"], ["income"], 1.0)]).fit(frame)


def test_weights_count():
    coin = pd.DataFrame({"side": ["heads", "tails"] * 200})
    weight = np.where(coin.side == "heads", 9.0, 1.0)
    model = TableModel(**TINY, max_steps=150).fit(coin, sample_weight=weight)
    assert model.conditional("side").probabilities()["heads"] == pytest.approx(0.9, abs=0.04)
    with pytest.raises(ConfigError, match="`sample_weight` must hold 400 finite numbers"):
        model.fit(coin, sample_weight=[1.0])


def test_a_warm_start_goes_on():
    coin = pd.DataFrame({"side": ["heads"] * 300 + ["tails"] * 100})
    model = TableModel(**TINY, max_steps=60, warm_start=True).fit(coin)
    first = abs(model.conditional("side").probabilities()["heads"] - 0.75)
    for _ in range(3):
        model.fit(coin)
    assert abs(model.conditional("side").probabilities()["heads"] - 0.75) < max(first, 0.02)


def gappy_pairs(seed: int) -> pd.DataFrame:
    """x2 is x1 in 0.9 of all rows. It is seen in 0.9 of those of "no", in 0.1 of those of "yes"."""
    rng = np.random.default_rng(seed)
    x1 = rng.random(4000) < 0.5
    x2 = np.where(rng.random(4000) < 0.9, x1, ~x1)
    seen = rng.random(4000) < np.where(x1, 0.1, 0.9)
    return pd.DataFrame({"x1": np.where(x1, "yes", "no"), "x2": np.where(seen, x2, None)})


def yes_of(model: TableModel) -> list[float]:
    """p(x2), p(x2 | x1 = "no") and p(x2 | x1 = "yes")."""
    given = [{}, {"x1": "no"}, {"x1": "yes"}]
    return [model.conditional("x2", given=each).probabilities()[True] for each in given]


@pytest.mark.parametrize("seed", range(5))
def test_gaps_that_depend_on_what_is_seen(seed):
    """Shares of complete rows with x1 are right; the marginal is a mean of these, over all x1."""
    frame = gappy_pairs(seed)
    shares = frame.dropna().groupby("x1")["x2"].mean().astype(float)
    marginal = float(shares @ frame["x1"].value_counts(normalize=True)[shares.index])
    model = TableModel(missing="mar", network=None, random_state=seed).fit(frame)
    assert yes_of(model) == pytest.approx([marginal, *shares], abs=0.02)


def test_a_network_keeps_what_complete_rows_say():
    frame = gappy_pairs(0)
    options = {"missing": "mar", "random_state": 0}
    alone = TableModel(network=None, **options).fit(frame)
    model = TableModel(**{**TINY, **options, "max_steps": 30}).fit(frame)
    assert yes_of(model) == pytest.approx(yes_of(alone), abs=1e-4)
    ignoring = TableModel(network=None).fit(frame)  # takes gaps to be random
    assert ignoring.conditional("x2").probabilities()[True] == pytest.approx(0.18, abs=0.02)


HARDY = {
    "one row": pd.DataFrame({"a": [1.5], "b": ["x"]}),
    "one column": pd.DataFrame({"a": np.arange(30.0)}),
    "constants": pd.DataFrame({"a": [3] * 20, "b": ["x"] * 20, "c": range(20)}),
    "an empty column": pd.DataFrame({"a": [None] * 20, "b": range(20)}),
    "many levels": pd.DataFrame({"a": [f"level {i}" for i in range(10_000)], "b": [1, 2] * 5000}),
    "huge and tiny": pd.DataFrame(
        {"a": [1e300, 1e-300, -1e300, 0.0] * 10, "b": [1e-300, 2e-300] * 20}
    ),
    "wide": pd.DataFrame(np.random.default_rng(0).normal(size=(20, 300))).add_prefix("c"),
}


@pytest.mark.parametrize("name", HARDY)
def test_hardy(name):
    frame = HARDY[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TableModel(**TINY, max_steps=2).fit(frame)
        assert np.isfinite(model.log_prob(frame.head(50))).all()
        drawn = model.sample(3, random_state=0)
    assert list(drawn.columns) == list(frame.columns)
    numbers = drawn.select_dtypes("number").to_numpy(dtype=float)
    assert np.isfinite(numbers[:, ~np.isnan(numbers).all(axis=0)]).all()


REFUSED = {
    "no rows": (pd.DataFrame({"a": []}), "row"),
    "no columns": (pd.DataFrame(index=range(3)), "column"),
    "nothing but gaps": (pd.DataFrame({"a": [None, None]}), "can be queried"),
    "infinity": (pd.DataFrame({"a": [1.0, math.inf, 2.0]}), "must hold finite numbers"),
    "words among numbers": (pd.DataFrame({"a": [1, 2, 3, "x"] * 9}), "missing_values"),
    "twice the same name": (pd.DataFrame([[1, 2]], columns=["a", "a"]), '"a"'),
    "a number": (3, "int"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_fitted_gets_one_sentence(name):
    table, words = REFUSED[name]
    with pytest.raises(SchemaError, match=words) as error:
        clone(QUICK).fit(table)
    assert "\n" not in str(error.value)


def test_numbers_where_training_had_none_are_doubted(model):
    assert model.table_["age"].span == (18, 79)
    with pytest.warns(AnyOrderWarning, match='"age" was 18 to 79 in training: given 80'):
        model.conditional("income", given={"age": 80})
    with pytest.warns(AnyOrderWarning, match='"age" was whole in training') as caught:
        model.sample(2, given={"age": 40.5}, random_state=0)
    assert caught[0].filename == __file__
    model.conditional(
        "income", given={"age": 79, "hours": None, "job": "nurse"}
    )  # warns of nothing


def test_questions_that_were_not_trained_are_doubted(frame):
    asked = [(["age"], ["income", "job"], 1.0), (["hours"], ["age"], 1.0), ([], ["born"], 0.0)]
    frame = frame.dropna()
    model = clone(QUICK).set_params(queries=asked).fit(frame)
    model.conditional("income", given={"age": 40})
    model.conditional("job", given={"age": 40, "income": 20_000})  # an edge of the first question
    model.log_prob(frame, query=["income", "job"], given=["age"])
    model.predict(frame[["hours"]], target="age")
    for doubtful in (
        lambda: model.conditional("job", given={"age": 40}),
        lambda: model.conditional("born"),
        lambda: model.log_prob(frame, query=["income"], given=["job"]),
        lambda: model.sample(2, given={"age": 40}),
        lambda: model.predict(frame, target="age"),
    ):
        with pytest.warns(AnyOrderWarning, match="trained for other queries"):
            doubtful()


def test_classes_are_the_levels_of_the_target(frame, model):
    told = clone(QUICK).fit(frame.drop(columns="job"), frame["job"])
    assert list(told.classes_) == list(told.predict_proba(frame).columns)
    assert not hasattr(model, "classes_")
    assert not hasattr(TableModel(), "classes_")


def test_a_conditional_says_what_it_is_in_a_line(model):
    assert repr(model.conditional("job")).startswith("Conditional(job: ")
    assert re.fullmatch(
        r"Conditional\(age: median \d+, 90% in \d+ to \d+\)", repr(model.conditional("age"))
    )


def test_small_tables_ask_more_for_single_columns():
    assert single_columns(300 * 8) > 0.4
    assert single_columns(100_000) == LEAST_SINGLE


def test_the_training_stops_by_the_questions_that_are_asked():
    data = TableData(torch.randn(100, 3), torch.rand(100, 3) < 0.3)
    law = QueryList(3, [([0], [2], 1.0)])
    asked = []

    class Asked(AnyOrderModel):
        def factors(self, x, *, query, given, rank, max_batch=None):
            asked.append((query, given))
            return super().factors(x, query=query, given=given, rank=rank, max_batch=max_batch)

    schema = Schema(tuple(Variable.continuous(name) for name in "abc"))
    network = PathPerceptron(schema, units=4)
    model = Asked(schema, network, MixedConditionals(schema, width=8), RemoveGreatest([0, 1, 2]))
    surprise_of(data, law)(model)
    ((query, given),) = asked
    assert (query == torch.tensor([False, False, True])).all()
    assert (given.sum(dim=0)[[1, 2]] == 0).all()
    assert given[:, 0].any()
    assert len(query) >= VALID_ROWS / 2


@pytest.mark.parametrize("order", ["complete", "dependence", "learned"])
def test_orders_are_chosen_from_the_rows(order, frame, tmp_path):
    model = clone(QUICK).set_params(order=order).fit(frame, folder=tmp_path)
    assert sorted(model.table_.names) == sorted(frame.columns)
    assert list(model.table_.decode(model.table_.encode(frame)[0]).columns) == list(frame.columns)
    assert np.isfinite(model.log_prob(frame)).all()
    if order == "complete":  # what has gaps comes last
        assert model.table_.names[-2:] == ("job", "hours")
    names = json.loads((tmp_path / "order.json").read_text())
    assert names == list(model.table_.names)
    # The same call goes on with the order that was found.
    again = clone(QUICK).set_params(order=order).fit(frame, folder=tmp_path)
    assert again.table_.names == model.table_.names


def test_a_column_may_be_named_alone_to_come_first(frame):
    assert clone(QUICK).set_params(order="job").fit(frame).table_.names[0] == "job"
    listed = np.array(["job", "age"])
    assert clone(QUICK).set_params(order=listed).fit(frame).table_.names[:2] == ("job", "age")


def test_orders_that_are_none_are_refused(frame):
    with pytest.raises(ConfigError, match=r'or "learned"; got "lerned"[.] Did you mean'):
        clone(QUICK).set_params(order="lerned").fit(frame)
    with pytest.raises(ConfigError, match=r"compares orders on 4 rows or more .* there are 3"):
        clone(QUICK).set_params(order="learned").fit(frame[:3])


def test_arrays_have_the_columns_that_were_fitted(frame):
    numbers = frame[["age", "income"]]
    model = clone(QUICK).fit(numbers, frame.member)
    expected = model.predict_proba(numbers)
    assert model.predict_proba(numbers.to_numpy()).equals(expected)
    np.testing.assert_allclose(
        model.log_prob(numbers.assign(member=frame.member).to_numpy()),
        model.log_prob(numbers.assign(member=frame.member)),
    )
    with pytest.raises(SchemaError, match="must have the 2 columns that were fitted; it has 4"):
        model.predict(np.zeros((5, 4)))


def test_rows_without_a_column_of_the_model_are_refused(frame):
    model = clone(QUICK).fit(frame[["age", "income"]])
    asks = (model.log_prob, model.impute, model.outliers, model.skill, model.check)
    for ask in (*asks, TableMixture([model]).log_prob):
        with pytest.raises(SchemaError, match='a column of the model; it has "Age" and others'):
            ask(frame.rename(columns=str.title))


def test_names_that_are_numbers_are_asked_by_them():
    model = clone(QUICK).fit(pd.DataFrame({0: [1.5, 2.5, 3.0, 4.1], 1: list("abab")}))
    assert model.conditional(1, given={"0": 2.0}).probabilities().sum() == pytest.approx(1)
    drawn = model.sample(9, random_state=0)
    assert clone(model).set_params(order=[1]).fit(drawn).table_.names == ("1", "0")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"members": 3}, {"members": 1}),
        ({"members": 3}, {"members": 2}),
        ({"members": 1}, {"members": 2}),
        ({"missing": "mar"}, {"missing": "mcar"}),
        ({"missing": "mcar"}, {"missing": "mar"}),
        ({"missing": "mar", "members": 2}, {"missing": "mar"}),
    ],
)
def test_another_training_is_not_written_over(frame, tmp_path, first, second):
    quick = clone(QUICK).set_params(max_steps=1)
    quick.set_params(**first).fit(frame, folder=tmp_path)
    with pytest.raises(CheckpointError, match="holds another run"):
        clone(quick).set_params(members=1, missing="mcar").set_params(**second).fit(
            frame, folder=tmp_path
        )


def test_members_are_averaged_at_every_edge(frame, tmp_path):
    several = clone(QUICK).set_params(members=3).fit(frame, folder=tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").glob("member-*")) == [
        "member-0",
        "member-1",
        "member-2",
    ]
    parts = [copy.copy(several) for _ in range(3)]
    for part, member in zip(parts, members_of(several.model_), strict=True):
        part.model_ = member.eval()
    for name in ("age", "income", "hours", "job"):  # numbers with and without atoms, a category
        rows = frame[frame[name].notna()].head(20)
        each = [part.log_prob(rows, query=name, given=["member"]) for part in parts]
        together = several.log_prob(rows, query=name, given=["member"])
        np.testing.assert_allclose(together, np.log(np.mean(np.exp(each), axis=0)), rtol=1e-4)
    given = {"member": True}
    shares = [part.conditional("hours", given=given).cdf([20.0, 40.0]) for part in parts]
    found = several.conditional("hours", given=given)
    np.testing.assert_allclose(found.cdf([20.0, 40.0]), np.mean(shares, axis=0), rtol=1e-4)
    assert found.cdf(found.median() + 0.0005) >= 0.5 - 1e-6  # it is rounded
    assert len(several.sample(5, random_state=0)) == 5
    assert several.impute(frame, random_state=0).notna().all().all()
    several.save(tmp_path / "saved")
    back = TableModel.load(tmp_path / "saved")
    np.testing.assert_array_equal(back.log_prob(frame), several.log_prob(frame))
    again = several.set_params(warm_start=True).fit(frame)
    assert len(members_of(again.model_)) == 3


def test_what_has_no_average_is_refused(frame):
    with pytest.raises(ConfigError, match='network="path"'):
        clone(QUICK).set_params(members=2, network="mlp").fit(frame)
    with pytest.raises(ConfigError, match='head="mixture"'):
        clone(QUICK).set_params(members=2, head="spline").fit(frame)


ODD_OPTIONS = {
    "clock": ("sundial", "clock"),
    "queries": (None, "list of (given, query, weight)"),
    "patience": ("x", "`patience` must be a whole number"),
    "max_steps": (0, "`max_steps` must be a whole number"),
    "context": (5, '`context` must name columns; got "5"'),
    "types": (3, "`types` must be a dictionary"),
}


@pytest.mark.parametrize("name", ODD_OPTIONS)
def test_odd_options_get_one_sentence(name, frame):
    value, words = ODD_OPTIONS[name]
    with pytest.raises(AnyOrderError) as error:
        clone(QUICK).set_params(**{name: value}).fit(frame)
    assert words in str(error.value)


def test_questions_in_odd_shapes_get_one_sentence(model, frame):
    age = model.conditional("age")
    with pytest.raises(QueryError, match="`share` must be a number between 0 and 1"):
        age.quantile([[0.1, 0.2]])
    with pytest.raises(QueryError, match="`share` must be a number between 0 and 1"):
        age.quantile("half")
    with pytest.raises(QueryError, match="an array of 2 dimensions"):
        age.pdf([[30.0]])
    with pytest.raises(QueryError, match='`column` must name columns of the model; got "None"'):
        model.conditional(None)
    with pytest.raises(QueryError, match='`query` must name columns of the model; got "jib"'):
        model.log_prob(frame, query="jib")
    with_context = clone(QUICK).set_params(context=["job"]).fit(frame)
    with pytest.raises(QueryError, match='`given` must hold "job", which is context'):
        with_context.sample(2)


def test_a_file_where_a_folder_should_be_gets_one_sentence(model, frame, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("")
    with pytest.raises(CheckpointError, match="cannot be made"):
        model.save(taken)
    with pytest.raises(CheckpointError, match="cannot be made"):
        clone(QUICK).fit(frame, folder=taken)


def changed(notes, path, value):
    """A copy of notes with one value changed, or deleted."""
    found = copy.deepcopy(notes)
    inner = found
    for part in path[:-1]:
        inner = inner[part]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return found


def places_in(notes, path=()):
    yield path
    parts = notes.items() if isinstance(notes, dict) else enumerate(notes[:2])
    for key, value in parts:
        if isinstance(value, dict | list):
            yield from places_in(value, (*path, key))
        else:
            yield (*path, key)


def test_no_altered_note_of_a_column_is_an_error_of_ours(model, frame):
    notes = json.loads(json.dumps({**model._notes(model.table_, model.target_, model.trained_on_)}))
    for path in places_in(notes["table"], ("table",)):
        for value in (None, "x", -1, 1e30, [], {"a": 1}):
            saved = SavedModel(model.model_, model.queries_, changed(notes, path, value), "0", {})
            with contextlib.suppress(AnyOrderError):
                loaded = TableModel.from_saved(saved, "a folder")
                loaded.sample(2, random_state=0)
                loaded.impute(frame[:3], random_state=0)


def test_an_altered_note_is_refused(model, tmp_path):
    notes = {"domain": "table", "options": {"x": 1}}
    saved = SavedModel(model.model_, model.queries_, notes, "0", {})
    with pytest.raises(CheckpointError, match="was altered"):
        TableModel.from_saved(saved, tmp_path)


def test_a_level_that_was_never_seen_is_refused(model):
    with pytest.raises(QueryError, match=r'"job" must hold levels.*Did you mean "nurse"'):
        model.conditional("income", given={"job": "nurs"})
    with pytest.raises(QueryError, match="interval"):
        model.conditional("job", given={"income": [1.0, 2.0]})
    with pytest.raises(QueryError, match="must ascend"):
        model.sample(1, given={"age": (40, 30)})
    with pytest.raises(QueryError, match="`given` must be a dictionary"):
        model.sample(1, given=["age"])
    with pytest.raises(QueryError, match="is not fitted yet"):
        TableModel().sample(1)


def column(rows):
    finite = st.floats(-1e6, 1e6, allow_subnormal=False)
    kinds = [
        st.lists(finite, min_size=rows, max_size=rows),
        st.lists(st.integers(-5, 5), min_size=rows, max_size=rows),
        st.lists(st.sampled_from(["a", "b", "c"]), min_size=rows, max_size=rows),
        st.lists(st.booleans(), min_size=rows, max_size=rows),
        st.lists(st.one_of(st.none(), finite), min_size=rows, max_size=rows),
    ]
    return st.one_of(kinds)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(2, 12).flatmap(lambda n: st.lists(column(n), min_size=1, max_size=5)))
def test_any_table_can_be_fitted_saved_and_asked(tmp_path_factory, columns):
    frame = pd.DataFrame({f"c{i}": values for i, values in enumerate(columns)})
    folder = tmp_path_factory.mktemp("run")
    if frame.isna().all().all():
        with pytest.raises(SchemaError, match="can be queried"):
            clone(QUICK).fit(frame)
        return
    model = TableModel(layers=1, width=8, heads=2, max_steps=2).fit(frame)
    model.save(folder)
    loaded = TableModel.load(folder)
    some = frame[frame.notna().any(axis=1)]
    np.testing.assert_array_equal(loaded.log_prob(some), model.log_prob(some))
    assert np.isfinite(model.log_prob(some)).all()
    kept = [name for name in frame if name in model.table_.names]
    assert loaded.impute(frame, random_state=0)[kept].notna().all().all()
    assert torch.equal(
        *(torch.tensor(m.outliers(some).to_numpy()).nan_to_num() for m in (model, loaded))
    )


def test_what_fails_leaves_the_model_that_was_there(frame):
    model = clone(QUICK)
    with pytest.raises(ConfigError, match="sample_weight"):
        model.fit(frame, sample_weight=[1.0])
    with pytest.raises(QueryError, match="is not fitted yet"):
        model.log_prob(frame)
    before = model.fit(frame).log_prob(frame)
    with pytest.raises(SchemaError, match="`y` must hold one value"):
        model.fit(frame, [1, 2])
    with pytest.raises(SchemaError, match='`y` is called "age"'):
        model.fit(frame, frame.age)
    np.testing.assert_array_equal(model.log_prob(frame), before)


def test_rows_that_lack_what_is_asked_are_left_out(frame):
    model = TableModel(**TINY, max_steps=3, queries=[(["age"], ["job"], 1.0)]).fit(frame)
    assert model.conditional("job", given={"age": 40}).probabilities().sum() == pytest.approx(1)


def test_options_may_be_numpys_and_names_alone(frame):
    options = {"random_state": np.int64(1), "width": np.int64(8), "learning_rate": np.float32(1e-3)}
    model = TableModel(layers=1, heads=2, max_steps=2, context="member", **options).fit(frame)
    assert "member" not in model.table_.names
    assert model.log_prob(frame, query=frame.columns[:1]).shape == (len(frame),)


def test_odd_names_and_levels():
    odd = pd.DataFrame({"row": [1.0, 2.0, 3.5] * 8, 0: pd.Categorical([3, 5, 9] * 8)})
    model = clone(QUICK).fit(odd)
    assert list(model.outliers(odd).columns) == ["row_", "row", "0"]
    odd.loc[0, 0] = None
    assert model.impute(odd, random_state=0)["0"].notna().all()
    assert set(model.predict(odd, target=0)) <= {3, 5, 9}
    with pytest.raises(QueryError, match="must hold levels"):
        model.sample(2, given={"0": [None]})
    drawn = model.sample(2, given={"row": 2.1}, random_state=0)
    assert drawn.row.tolist() == [2.1, 2.1]


def test_known_cells_stay_as_they_were_whatever_the_column_held_in_training():
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 60), "D")
    train = pd.DataFrame({"n": rng.integers(0, 9, 60), "day": days, "y": rng.normal(size=60)})
    train["single"] = train["y"].astype("float32")
    model = TableModel(layers=1, width=16, heads=2, max_steps=2).fit(train)
    asked = pd.DataFrame(
        {
            "n": [2.6, 1e300, np.nan, 3.0],
            "day": ["2020-02-03 04:05:06", "2020-02-03", None, "2021-01-01"],
            "single": [0.1, np.nan, 2.0, 3.0],
        }
    )
    for how in ("sample", "mean"):
        filled = model.impute(asked, how=how, random_state=0)
        assert filled["n"].tolist()[:2] == [2.6, 1e300]
        assert filled["single"].tolist()[0] == 0.1
        assert str(filled["day"].iloc[0]) == "2020-02-03 04:05:06"
        assert filled.notna().all().all()
        assert filled["day"].dtype == train["day"].dtype
    whole = model.impute(asked.iloc[2:], random_state=0)
    assert whole["n"].dtype == train["n"].dtype, "only what must change its dtype does"


def test_linear_relations_are_known_from_few_rows(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(400, 3))
    frame = pd.DataFrame({"a": a[:, 0], "b": a[:, 1], "c": a.sum(axis=1) / 10 + a[:, 0]})
    train, test = frame[:200], frame[200:]
    guided, bare = (clone(QUICK).set_params(prior=prior).fit(train) for prior in (True, False))
    gain = guided.log_prob(test) - bare.log_prob(test)
    assert gain.mean() > 1
    assert isinstance(guided.model_.network, NetworkWithPrior)
    assert not isinstance(bare.model_.network, NetworkWithPrior)
    guided.save(tmp_path)
    np.testing.assert_array_equal(TableModel.load(tmp_path).log_prob(test), guided.log_prob(test))
    guide = guided.model_.network.prior.normals
    covariances = guide.covariances.clone()
    guided.set_params(warm_start=True).fit(train * 2)  # what was learnt is learnt about that guide
    assert torch.equal(guide.covariances, covariances)
    assert guided.table_["a"].seen[1] > train["a"].max()  # guesses may lie where new rows were


def test_one_number_has_a_tree_and_several_have_normals_beside_it():
    frame = pd.DataFrame({"a": [1, 2, 3] * 20, "b": ["x", "y"] * 30, "c": range(60)})
    alone = clone(QUICK).fit(frame[["a", "b"]]).model_.network.prior
    several = clone(QUICK).fit(frame).model_.network.prior
    assert isinstance(alone, LatentTree)
    assert isinstance(several, StackedPrior)
    assert isinstance(several.tree, LatentTree)
    assert isinstance(several.normals, NormalPrior)
    with pytest.raises(ConfigError, match="`prior` must be True or False"):
        clone(QUICK).set_params(prior="yes").fit(frame)


@pytest.mark.parametrize("minutes", [math.nan, math.inf, "7", 0])
def test_minutes_are_checked_before_members_are_counted(minutes):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"]})
    with pytest.raises(ConfigError, match="`minutes` must be a number, above 0 and finite"):
        TableModel(minutes=minutes).fit(frame)


def test_copies_and_outliers_leave_a_guide_definite():
    """Temperatures in three units, and two impossible readings: a normal of their own was flat."""
    rng = np.random.default_rng(4)
    celsius, broken = rng.normal(10, 5, 20_000), rng.choice(20_000, 2, replace=False)
    frame = pd.DataFrame({"c": celsius, "f": 1.8 * celsius + 32, "k": celsius + 273.15})
    frame.iloc[broken] = [[1e30] * 3, [-2e30] * 3]
    table = TableSchema.infer(frame)
    data = table_fitting.TableData(*table.encode(frame))
    data = data.at(table_fitting.split(len(frame), 0.1, 0)[0])
    model = table_fitting.build(table.schema, QUICK._shape(3), 0)
    table_fitting.fit_prior([model], data)
    covariances = model.network.prior.normals.covariances.double()
    assert torch.linalg.cholesky(covariances).isfinite().all()


def test_a_column_that_no_row_to_train_on_has_is_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200), "c": np.nan})
    held_out = table_fitting.split(200, QUICK.validation_share, 0)[1]
    frame.loc[held_out[:6].tolist(), "c"] = rng.normal(size=6)
    model = clone(QUICK).fit(frame)
    model.save(tmp_path)
    np.testing.assert_array_equal(TableModel.load(tmp_path).log_prob(frame), model.log_prob(frame))


def test_members_read_the_rows_for_their_guides_once(monkeypatch):
    read, fit = [], NormalPrior.fit
    monkeypatch.setattr(
        NormalPrior, "fit", lambda *a, **options: read.append(len(a[1])) or fit(*a, **options)
    )
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=list("abc"))
    model = clone(QUICK).set_params(members=3).fit(frame)
    assert len(read) == 1
    first, *others = (member.network.prior.normals for member in members_of(model.model_))
    assert not torch.equal(first.covariances[0], torch.eye(3))
    assert all(torch.equal(first.covariances, other.covariances) for other in others)


def test_weights_of_held_out_rows_alone_train_nothing():
    rows = people(100)
    _, held_out = table_fitting.split(100, QUICK.validation_share, 0)
    weights = np.zeros(100)
    weights[held_out.numpy()] = 1.0
    with pytest.raises(ConfigError, match="leave"):
        clone(QUICK).set_params(random_state=0).fit(rows, sample_weight=weights)


def test_the_network_follows_from_the_number_of_columns():
    def network(columns: int, **options):
        frame = pd.DataFrame({f"c{i}": [0, 1] * 4 for i in range(columns)})
        model = TableModel(**options, types={"c0": "category"}, max_steps=1, prior=False).fit(frame)
        return type(model.model_.network).__name__

    assert network(3) == "PathPerceptron"
    assert network(3, network="path") == "PathTransformer"
    most = table_fitting.MOST_FOR_PERCEPTRON
    assert table_fitting.network_for(most) == "perceptron"
    assert table_fitting.network_for(most + 1) == "path"
