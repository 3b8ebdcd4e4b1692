"""Answers that anyone can count: every p(column | one category) beside the shares of rows."""

import numpy as np
import pandas as pd
import pytest
import torch

from anyorder import QueryError, TableModel
from anyorder.diagnostics.check import smallest_noticed
from anyorder.tables.evaluation import Counted, reliability
from benchmarks.counted_answers import errors
from tests.saved_runs.write import people

ROWS = 200


@pytest.fixture(scope="module")
def model():
    return TableModel(max_steps=5, layers=1, width=8, heads=2).fit(people(ROWS))


def test_shares_are_those_of_the_rows_and_probabilities_those_of_the_model(model):
    frame = people(ROWS)
    found = model.check_counts(frame).set_index(["given", "event"])
    nurses = frame[frame["job"] == "nurse"]
    member = found.loc[("job=nurse", "member=True")]
    assert member["rows"] == len(nurses)
    assert member["share"] == pytest.approx(nurses["member"].mean())
    asked = model.conditional("member", given={"job": "nurse"}).probabilities()
    assert member["probability"] == pytest.approx(asked[True], abs=1e-6)
    alone = found.loc[("", "job=clerk")]
    assert alone["rows"] == frame["job"].notna().sum()
    assert alone["share"] == pytest.approx((frame["job"].dropna() == "clerk").mean())
    assert alone["probability"] == pytest.approx(
        model.conditional("job").probabilities()["clerk"], abs=1e-6
    )


def test_numbers_are_compared_at_the_median_of_the_model(model):
    frame = people(ROWS)
    found = model.check_counts(frame).set_index(["given", "event"])
    half = found.loc[("job=nurse", "age below the predicted median")]
    middle = model.conditional("age", given={"job": "nurse"}).median()
    ages = frame.loc[frame["job"] == "nurse", "age"].dropna()
    assert half["probability"] == pytest.approx(0.5, abs=1e-6)
    assert abs(half["share"] - (ages < middle).mean()) <= (ages == middle).mean() + 1 / len(ages)


def test_a_repeated_value_may_be_the_median():
    """A right answer about a column that is mostly zero is not blamed."""
    rng = np.random.default_rng(0)
    spent = np.where(rng.random(2000) < 0.7, 0.0, rng.lognormal(size=2000))
    frame = pd.DataFrame({"spent": spent, "shop": rng.choice(["a", "b"], 2000)})
    found = TableModel(network=None, random_state=0).fit(frame).check_counts(frame)
    zeros = found[found["event"] == "spent below the predicted median"]
    assert len(zeros) == 3
    assert zeros["tie"].between(0.65, 0.75).all()
    negative = zeros["probability"] - zeros["tie"] / 2
    assert negative.between(0, 0.01).all()
    assert zeros["z"].abs().max() < 4


def test_ties_count_half_in_the_error_of_a_share():
    below, tie, rows = 0.2, 0.5, 40
    scores, chances = np.array([1, 0.5, 0]), np.array([below, tie, 1 - below - tie])
    mean = scores @ chances
    counted = Counted("", "a below the predicted median", rows, 0.4, mean, tie)
    assert counted.se == pytest.approx(np.sqrt((scores - mean) ** 2 @ chances / rows))


def test_the_worst_comes_first_and_evidence_of_few_rows_is_left_out(model):
    found = model.check_counts(people(ROWS))
    assert found["z"].abs().is_monotonic_decreasing
    assert found["rows"].min() >= 30
    assert model.check_counts(people(20)).empty


def test_z_counts_standard_errors():
    counted = Counted("", "a=b", rows=100, share=0.4, probability=0.5)
    assert counted.se == pytest.approx(0.05)
    assert counted.z == pytest.approx(2.0)
    assert Counted("", "a=b", rows=10, share=0.0, probability=0.0).z == 0


def test_reliability_of_outcomes_that_follow_the_predictions():
    source = torch.Generator().manual_seed(0)
    predicted = torch.rand(20_000, generator=source)
    happened = torch.rand(20_000, generator=source) < predicted
    found = reliability(predicted, happened)
    assert [one.rows for one in found] == [2000] * 10
    # Ten standard normals: one beyond 4 has a chance of 6e-4.
    assert max(abs(one.predicted - one.share) / one.se for one in found) < 4
    overconfident = reliability(predicted.round(), happened)
    assert overconfident[0].share > 0.1 > overconfident[0].predicted


def test_reliability_of_a_column(model):
    frame = people(ROWS)
    found = model.reliability(frame, "job")
    assert found["rows"].sum() == frame["job"].notna().sum()
    assert set(found["level"]) == {"smith"}  # the rarest
    share = np.average(found["share"], weights=found["rows"])
    assert share == pytest.approx((frame["job"].dropna() == "smith").mean())
    of_nurses = model.reliability(frame, "job", level="nurse")
    share = np.average(of_nurses["share"], weights=of_nurses["rows"])
    assert share == pytest.approx((frame["job"].dropna() == "nurse").mean())


def test_reliability_needs_values_of_a_category(model):
    with pytest.raises(QueryError, match="`X` must have values of"):
        model.reliability(people(ROWS).assign(job=None), "job")
    with pytest.raises(QueryError, match="is no category"):
        model.reliability(people(ROWS), "pay")


def test_tables_with_context_are_not_counted():
    frame = people(60)
    model = TableModel(max_steps=2, layers=1, width=8, heads=2, context=["member"]).fit(frame)
    assert isinstance(model.check_counts(frame), pd.DataFrame)
    assert model.check_counts(frame).empty


def test_the_benchmark_measures_points_and_standard_errors():
    frame = pd.DataFrame(
        {
            "event": ["sex=male", "sex=male", "size below the predicted median"],
            "probability": [0.5, 0.6, 0.5],
            "share": [0.5, 0.5, 0.1],
            "z": [0.0, 2.0, 9.0],
        }
    )
    assert errors(frame) == pytest.approx([10.0, 10 / np.sqrt(2), np.sqrt(2), 40.0, 40.0, 9.0])


def test_a_check_says_what_it_would_have_missed(model):
    check = model.check(people(ROWS))
    told = check.calibration_sentences()[-1]
    assert not check.columns_off()
    fewest = int(min(column.n_effective for column in check.columns()))
    missed = 100 * smallest_noticed(fewest, 0.5, 2 * len(check.columns()))
    assert f"with {fewest:,} cells each, errors below {missed:.1f} percentage points" in told
