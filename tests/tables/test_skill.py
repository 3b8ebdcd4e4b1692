"""The skill in each column, against one cell after another."""

import numpy as np
import pandas as pd
import pytest

from anyorder.tables.model import TableModel

TINY = {"layers": 1, "width": 16, "heads": 2, "dropout": 0.0, "learning_rate": 1e-2}


def rows(count, seed):
    rng = np.random.default_rng(seed)
    size = rng.normal(50, 10, count)
    frame = pd.DataFrame({"size": size, "mass": 3 * size + rng.normal(0, 3, count)})
    frame["kind"] = np.where(size > 50, "large", "small")
    frame["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.rint(size), "D")
    frame.loc[::7, "mass"] = np.nan
    return frame


@pytest.fixture(scope="module")
def model():
    return TableModel(**TINY, max_steps=150, random_state=0).fit(rows(400, 0))


def test_skill_is_that_of_one_cell_after_another(model):
    frame = rows(12, 1)
    found = model.skill(frame)
    assert found.index.tolist() == list(frame.columns)
    for name in frame.columns:
        errors = []
        for _, row in frame[frame[name].notna()].iterrows():
            given = row.drop(name).dropna().to_dict()
            answer = model.conditional(name, given=given)
            if name == "kind":
                errors.append(float(answer.mode() != row[name]))
            else:
                apart = abs(answer.quantile(0.5) - row[name])
                errors.append(apart / pd.Timedelta("1s") if name == "day" else apart)
        truth = frame[name].dropna()
        if name == "kind":
            alone = 1 - truth.value_counts(normalize=True).max()
        else:
            alone = (truth - truth.median()).abs().mean()
            alone = alone / pd.Timedelta("1s") if name == "day" else alone
        one = found.loc[name]
        assert one["cells"] == len(truth)
        # An answer in whole days is rounded, a median here is not.
        close = 86400 / 2 if name == "day" else 1e-3
        assert one["error"] == pytest.approx(np.mean(errors), abs=close)
        assert one["alone"] == pytest.approx(alone, rel=1e-5)
        assert one["gain"] == pytest.approx(1 - one["error"] / one["alone"])
    assert found["unit"].tolist() == ["distance", "distance", "wrong", "seconds"]


def test_a_column_that_others_tell_of_gains(model):
    found = model.skill(rows(300, 2))
    assert (found["gain"] > 0.3).all()
    assert (found["se"] < 0.1).all()


def test_skill_of_what_cannot_be_missed(model):
    frame = rows(5, 3).assign(kind="large", mass=np.nan)
    found = model.skill(frame)
    assert "mass" not in found.index
    assert found.loc["kind", "alone"] == 0
    assert pd.isna(found.loc["kind", "gain"])
