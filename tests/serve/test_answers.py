"""The API answers what the library answers."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

from anyorder.inference.univariates import Edges
from anyorder.tables import engine
from anyorder.tables.model import TableModel
from anyorder.tables.routes import ConditionalsRequest, TableAnswering
from tests.serve.conftest import people

GIVEN = {"age": 41, "job": "nurse"}


def test_the_model_is_described(table):
    found = table.get("/v1/model").json()
    assert found["domain"] == "table"
    assert (found["name"], found["run"]) == ("people", "runs/people")
    columns = {column["name"]: column for column in found["columns"]}
    assert list(columns) == list(people().columns)
    assert columns["job"]["levels"] == ["clerk", "nurse"]
    assert columns["age"]["step"] == 1
    low, high = columns["income"]["typical"]
    assert columns["income"]["low"] <= low < high <= columns["income"]["high"]


def test_conditionals_are_those_of_the_library(table, table_model):
    answer = table.post("/v1/conditionals", json={"given": GIVEN}).json()
    assert set(answer["columns"]) == {"income", "hours", "born", "member"}
    for name, found in answer["columns"].items():
        own = table_model.conditional(name, given=GIVEN)
        if found["type"] == "boolean":
            own = [own.probabilities().to_dict()[level] for level in found["levels"]]
            np.testing.assert_allclose(found["probabilities"], own, atol=1e-5)
            continue
        if name == "born":
            assert abs(pd.Timestamp(found["median"]) - own.median()) < pd.Timedelta(days=30)
            assert abs(found["positions"]["median"] - own.median().timestamp()) < 30 * 86_400
            continue
        spread = float(np.ptp(people()[name]))
        np.testing.assert_allclose(found["interval_90"], own.interval(0.9), atol=1e-6 * spread)
        np.testing.assert_allclose(found["median"], own.median(), atol=1e-6 * spread)
        np.testing.assert_allclose(found["mean"], own.mean(), atol=1e-6 * spread)


def test_densities_and_repeated_values_make_up_one(table):
    answer = table.post("/v1/conditionals", json={"given": GIVEN}).json()
    for found in answer["columns"].values():
        if found["type"] == "boolean":
            assert math.isclose(sum(found["probabilities"]), 1, abs_tol=1e-4)
            continue
        density = found["density"]
        values, heights = np.array(density["positions"]), np.array(density["heights"])
        assert (np.diff(values) > 0).all()
        area = np.trapezoid(heights, values)
        assert math.isclose(area, density["probability"], abs_tol=0.03)
        whole = density["probability"] + sum(found["repeated"]["probabilities"])
        assert math.isclose(whole, 1, abs_tol=0.02)  # the rare ones are not listed


def test_a_spike_is_a_repeated_value(table, table_model):
    found = table.post("/v1/conditionals", json={"columns": ["hours"]}).json()["columns"]["hours"]
    at = found["repeated"]["values"].index(40.0)
    own = table_model.conditional("hours").pdf([40.0])[0]
    assert math.isclose(found["repeated"]["probabilities"][at], own, rel_tol=1e-3)


def test_intervals_and_sets_are_evidence(table, table_model):
    given = {"age": {"low": 30, "high": 45}, "job": ["nurse", "clerk"]}
    answer = table.post("/v1/conditionals", json={"given": given, "columns": ["income"]}).json()
    own = table_model.conditional("income", given={"age": (30, 45), "job": ["nurse", "clerk"]})
    # 64 draws here, 1024 there: a standard error of an eighth of the spread between draws
    low, high = own.interval(0.9)
    assert abs(answer["columns"]["income"]["median"] - own.median()) < 0.25 * (high - low)
    assert 1 < answer["effective_sample_size"] <= 64
    open_end = {"age": {"low": 30, "high": None}}
    assert table.post("/v1/conditionals", json={"given": open_end}).status_code == 200


def test_a_value_outside_training_is_answered_with_a_doubt(table):
    answer = table.post("/v1/conditionals", json={"given": {"age": 300}, "columns": ["job"]})
    assert "the model extrapolates" in answer.json()["warnings"][0]


def test_a_batch_has_the_answers_of_its_questions(table):
    questions = [{"given": {"age": age}, "columns": ["income"]} for age in range(20, 70, 5)]
    questions.append({"given": {"age": {"low": 20, "high": 30}}})
    many = table.post("/v1/conditionals/batch", json={"questions": questions}).json()["answers"]
    for question, answer in zip(questions, many, strict=True):
        alone = table.post("/v1/conditionals", json=question).json()
        for name, found in answer["columns"].items():
            np.testing.assert_allclose(
                flat(found), flat(alone["columns"][name]), rtol=1e-3, atol=1e-4
            )


def flat(found):
    """The numbers of an answer about a column, without those that are of no weight."""
    if "probabilities" in found:
        return found["probabilities"]
    return [*found["positions"].values(), found["density"]["probability"], found["entropy"]]


def test_one_pass_answers_many_questions(table_model, monkeypatch):
    answering = TableAnswering(table_model)
    passes = []
    features = table_model.model_.features
    monkeypatch.setattr(
        table_model.model_, "features", lambda x, *sets: passes.append(len(x)) or features(x, *sets)
    )
    questions = [
        ConditionalsRequest(given={"age": 20 + i % 50, "job": "nurse"}) for i in range(100)
    ]
    assert len(answering.conditionals(questions)) == 100
    assert passes == [50]  # distinct evidence sets


def test_a_wrong_question_leaves_the_others_of_its_batch_alone(table_model):
    answering = TableAnswering(table_model)
    good, bad, also = answering.conditionals(
        [
            ConditionalsRequest(given={"age": 41}),
            ConditionalsRequest(given={"agee": 41}),
            ConditionalsRequest(given={"age": 50}),
        ]
    )
    assert set(good["columns"]) == set(also["columns"])
    assert 'Did you mean "age"?' in str(bad)


OTHERS = {"members": {"members": 2}, "spline": {"head": "spline"}, "mlp": {"network": "mlp"}}


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_and_heads_answer_too(name):
    model = TableModel(layers=1, width=16, heads=2, max_steps=2, **OTHERS[name])
    model.fit(people(60)[["age", "income"]])
    (found,) = TableAnswering(model).conditionals([ConditionalsRequest(given={"age": 41})])
    own = model.conditional("income", given={"age": 41})
    low, high = own.interval(0.9)
    assert abs(found["columns"]["income"]["median"] - own.median()) < 0.01 * (high - low)


def test_a_narrow_curve_is_found(table_model):
    x = table_model.table_.encode(people(1))[0]
    known = torch.arange(6) != 1
    evidence = engine.Evidence(x, known, {})
    known = evidence.sampled(table_model.model_, 1, None)
    ((features,),) = engine.answer(table_model.model_, [engine.Question(known, [1], evidence)])
    ((_, curve),) = Edges.of([features], [1], [known.weights]).groups(table_model.model_)
    _, reached = curve.knots
    assert float(reached[0, 0]) < 1e-4  # what may be beyond the ends
    assert math.isclose(reached[-1, 0] * curve.share[0] + curve.masses.sum(), 1, abs_tol=1e-4)
    quantiles = curve.quantiles(torch.tensor([0.1, 0.5, 0.9]))[:, 0]
    assert (quantiles.diff() >= 0).all()


def test_log_prob_is_that_of_the_library(table, table_model):
    frame = people(7, seed=3).assign(job=["nurse", None, "clerk", "nurse", "nurse", None, "clerk"])
    rows = json.loads(frame.to_json(orient="records", date_format="iso"))
    answer = table.post("/v1/log_prob", json={"rows": rows}).json()["log_prob"]
    np.testing.assert_allclose(answer, table_model.log_prob(frame), rtol=1e-4, atol=1e-3)
    question = {"rows": rows, "query": ["income"], "given": ["age", "job"]}
    answer = table.post("/v1/log_prob", json=question).json()["log_prob"]
    own = table_model.log_prob(frame, query="income", given=["age", "job"])
    np.testing.assert_allclose(answer, own, rtol=1e-4, atol=1e-3)


def test_draws_and_completions_are_those_of_the_library(table, table_model):
    answer = table.post("/v1/sample", json={"given": GIVEN, "n": 4, "seed": 3}).json()
    own = table_model.sample(4, given=GIVEN, random_state=3)
    assert [row["income"] for row in answer["rows"]] == own["income"].tolist()
    assert [row["born"][:10] for row in answer["rows"]] == own["born"].astype(str).tolist()
    rows = [{"age": 41, "job": None}, {"income": 30_000.0}]
    answer = table.post("/v1/impute", json={"rows": rows, "draws": 3, "seed": 1}).json()["draws"]
    own = table_model.impute(pd.DataFrame(rows), draws=3, random_state=1)
    assert [[row["age"] for row in draw] for draw in answer] == [
        own.loc[i]["age"].tolist() for i in range(3)
    ]
    assert answer[2][1]["income"] == 30_000.0
    guess = table.post("/v1/impute", json={"rows": rows, "how": "mode"}).json()["draws"]
    assert guess[0][1]["job"] in ("nurse", "clerk")


def test_long_tables_are_completed_in_parts(table):
    rows = [{"age": 20 + i % 50} for i in range(300)]
    answer = table.post("/v1/impute", json={"rows": rows, "seed": 0}).json()["draws"]
    assert [row["age"] for row in answer[0]] == [row["age"] for row in rows]


def test_gains_are_those_of_the_library(table, table_model):
    answer = table.post("/v1/information_gain", json={"target": "job", "given": {"age": 41}})
    own = table_model.information_gain("job", given={"age": 41})
    assert next(iter(answer.json()["gains"])) == own.index[0]
    for name, gain in answer.json()["gains"].items():
        assert math.isclose(gain, max(own[name], 0.0), abs_tol=5e-3)


def test_gains_are_never_negative_and_columns_of_one_value_have_none():
    frame = people(80).assign(country="DE", year=2025)
    frame = frame[["job", "country", "year", "member"]]
    model = TableModel(layers=1, width=8, heads=2, max_steps=5).fit(frame)
    (found,) = TableAnswering(model).gains([("job", {})])
    assert set(found["gains"]) == {"member"}
    assert found["gains"]["member"] >= 0


def test_outliers_are_those_of_the_library(table, table_model):
    rows = [{"age": 41, "income": 31_000.0}, {"job": "clerk"}]
    answer = table.post("/v1/outliers", json={"rows": rows}).json()
    own = table_model.outliers(pd.DataFrame(rows))
    np.testing.assert_allclose(answer["rows"], own["row"], rtol=1e-4)
    assert answer["cells"][1]["age"] is None
    assert math.isclose(answer["cells"][0]["income"], own["income"][0], rel_tol=1e-4)


def test_a_common_record_surprises_less_than_a_rare_one(table):
    # the usual income of that age, against that of a rich pensioner
    common = table.post("/v1/surprise", json={"given": {"age": 40, "income": 22_000}}).json()
    rare = table.post("/v1/surprise", json={"given": {"age": 19, "income": 90_000}}).json()
    assert common["nats"] < rare["nats"]
    assert common["rank"] < rare["rank"] <= 1
    whole = table.post("/v1/surprise", json={"given": {"age": {"low": 18, "high": 79}}}).json()
    assert whole["rank"] is None
    assert whole["nats"] < 0.2  # nearly certain
    assert table.post("/v1/surprise", json={"given": {}}).json()["nats"] == 0


def test_context_must_be_told():
    model = TableModel(layers=1, width=16, heads=2, max_steps=2, context=["job"]).fit(people(60))
    answering = TableAnswering(model)
    found, missing = answering.conditionals(
        [
            ConditionalsRequest(given={"job": "nurse", "age": 41}),
            ConditionalsRequest(given={"age": 41}),
        ]
    )
    assert "income" in found["columns"]
    assert "job" not in found["columns"]
    assert "which is context" in str(missing)
    (surprise,) = answering.surprise([{"job": "nurse", "age": 41}])
    assert surprise["rank"] is None


def test_text_is_filled_and_judged(text, text_model):
    answer = text.post("/v1/infill", json={"text": "th_ st_tement", "n": 3, "seed": 0}).json()
    assert answer["fills"] == text_model.infill("th_ st_tement", n=3, random_state=0)
    many = {"texts": ["th_ statement", "a_"], "seed": 0}
    assert len(text.post("/v1/infill/batch", json=many).json()["fills"]) == 2
    greedy = {"text": "th_ st_tement", "n": 1, "greedy": True}
    own = text_model.infill("th_ st_tement", how="greedy")
    assert text.post("/v1/infill", json=greedy).json()["fills"] == own
    found = text.post("/v1/positions", json={"text": "th_ statement"}).json()
    assert found["positions"][2]["hole"]
    assert next(iter(found["positions"][2]["likely"])) == "e"
    own = text_model.log_prob("th_ statement")
    assert math.isclose(found["log_prob"], own, rel_tol=1e-4)
    known = [position["probability"] for position in found["positions"] if not position["hole"]]
    assert math.isclose(sum(map(math.log, known)), own, rel_tol=1e-3)
    texts = {"texts": ["the statement"], "given": ["the st_______"]}
    own = text_model.log_prob("the statement", given="the st_______")
    assert math.isclose(text.post("/v1/log_prob", json=texts).json()["log_prob"][0], own)


def test_images_are_painted(image, image_model):
    about = image.get("/v1/model").json()
    assert (about["height"], about["width"], about["channels"]) == (4, 6, 1)
    pixels = np.zeros((4, 6), dtype=np.int64)
    hole = np.zeros((4, 6), dtype=bool)
    hole[2:] = True
    request = {"image": pixels.ravel().tolist(), "hole": hole.ravel().tolist(), "n": 2, "seed": 5}
    answer = image.post("/v1/inpaint", json=request).json()["images"]
    own = image_model.inpaint(pixels, hole, n=2, random_state=5)
    assert answer == own.reshape(2, -1).tolist()
    request = {"images": [pixels.ravel().tolist()], "hole": hole.ravel().tolist()}
    found = image.post("/v1/log_prob", json=request).json()["log_prob"]
    own = image_model.log_prob(pixels, query=hole, given=~hole)
    np.testing.assert_allclose(found, [own], rtol=1e-5)
    assert len(image.post("/v1/sample", json={"n": 2, "seed": 1}).json()["images"][0]) == 24


@pytest.mark.parametrize("path", ["/", "/page/style.css", "/page/table.js", "/page/icon.svg"])
def test_the_page_is_there(table, path):
    answer = table.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
