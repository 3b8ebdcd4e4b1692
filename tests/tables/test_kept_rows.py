"""Counts beside answers: the training rows that match the evidence, counted by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from anyorder import ConfigError, TableModel
from anyorder.cli.app import main
from anyorder.serve.app import create_app
from anyorder.tables import engine
from tests.saved_runs.write import people
from tests.serve.conftest import client, serving

ROWS = 200
SIZES = {"layers": 1, "width": 8, "heads": 2, "max_steps": 5}
FRAME = people(ROWS)


@pytest.fixture(scope="module")
def model():
    return TableModel(**SIZES).fit(FRAME)


EVIDENCE = [
    ({}, FRAME["age"] == FRAME["age"]),
    ({"job": "nurse"}, FRAME["job"] == "nurse"),
    ({"job": ["nurse", "clerk"]}, FRAME["job"].isin(["nurse", "clerk"])),
    ({"hours": 40.0}, FRAME["hours"] == 40),
    ({"hours": (20.0, 40.0)}, FRAME["hours"].between(20, 40)),
    ({"hours": (40.5, None)}, FRAME["hours"] >= 40.5),
    ({"pay": (None, 2000.0), "member": True}, (FRAME["pay"] <= 2000) & FRAME["member"]),
    ({"job": "smith", "hours": (None, 40.0)}, (FRAME["job"] == "smith") & (FRAME["hours"] <= 40)),
    ({"since": ("2016-01-01", "2018-12-31")}, FRAME["since"].between("2016-01-01", "2018-12-31")),
    ({"since": "2016-05-01"}, FRAME["since"] == "2016-05-01"),
    ({"pay": FRAME["pay"].dropna().iloc[3]}, FRAME["pay"] == FRAME["pay"].dropna().iloc[3]),
    ({"job": "nurse", "pay": 2000.001}, FRAME["pay"] == 2000.001),
    ({"job": None, "member": False}, ~FRAME["member"]),
]


@pytest.mark.parametrize("number", range(len(EVIDENCE)))
def test_counts_are_those_of_the_frame(model, number):
    given, matches = EVIDENCE[number]
    if not given:
        matches = pd.Series(True, index=FRAME.index)
    for name, found in model.conditionals(given=given).items():
        cells = FRAME.loc[matches, name].dropna()
        assert found.count.rows == len(cells)
        answer = found.to_dict()
        assert answer["rows"] == len(cells)
        if name not in ("job", "member"):
            assert "shares" not in answer
        elif len(cells):
            shares = cells.value_counts(normalize=True)
            expected = [shares.get(level, 0.0) for level in answer["levels"]]
            assert answer["shares"] == pytest.approx(expected)
            assert found.shares().to_dict() == pytest.approx(
                {level: shares.get(level, 0.0) for level in found.column.levels}
            )
        else:
            assert answer["shares"] is None is found.shares()


def test_an_interval_may_end_at_any_value_of_the_table():
    source = np.random.default_rng(0)
    frame = pd.DataFrame({"x": source.lognormal(3, 2, ROWS), "y": source.integers(0, 2, ROWS)})
    model = TableModel(**SIZES).fit(frame)
    values = np.sort(frame["x"].to_numpy())
    for low, high in ((0, 17), (17, 60), (60, 199)):
        found = model.conditional("y", given={"x": (values[low], values[high])})
        assert found.count.rows == high - low + 1


def test_weighted_rows_have_weighted_shares():
    weights = np.where(FRAME["member"], 3.0, 1.0)
    weights[:10] = 0
    model = TableModel(**SIZES).fit(FRAME, sample_weight=weights)
    found = model.conditional("member", given={"job": "clerk"})
    clerks = (FRAME["job"] == "clerk") & (weights > 0)
    assert found.count.rows == clerks.sum()
    share = weights[clerks & FRAME["member"]].sum() / weights[clerks].sum()
    assert found.shares()[True] == pytest.approx(share)


def test_context_has_to_match_too():
    model = TableModel(**SIZES, context=["job"]).fit(FRAME)
    for job, matches in (("nurse", FRAME["job"] == "nurse"), (None, FRAME["job"].isna())):
        found = model.conditional("member", given={"job": job})
        assert found.count.rows == matches.sum()


def test_saved_rows_are_counted_and_every_door_says_it(model, tmp_path, capsys):
    model.save(tmp_path)
    given = {"job": "nurse", "hours": (None, 40.0)}
    expected = model.conditional("member", given=given).to_dict()
    assert TableModel.load(tmp_path).conditional("member", given=given).to_dict() == expected
    main(["query", str(tmp_path), "--of", "member", "--given", "job=nurse,hours=..40"])
    shown = capsys.readouterr()
    assert f"match the evidence and have a value: {expected['rows']}." in shown.err
    assert "share of rows" in shown.out
    assert f"{expected['shares'][0]:.1%}" in shown.out
    main(["query", str(tmp_path), "--of", "member", "--given", "job=nurse", "--json"])
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])["columns"]
    with serving(create_app(model)) as (address, _), client(address) as asking:
        request = {"given": {"job": "nurse"}, "columns": ["member"]}
        answer = asking.post("/v1/conditionals", json=request).json()["columns"]
    for found in (printed["member"], answer["member"]):
        assert found["rows"] == (FRAME["job"] == "nurse").sum()
        assert found["shares"] == pytest.approx(
            model.conditional("member", given={"job": "nurse"}).to_dict()["shares"]
        )


def test_rows_are_not_kept_where_they_are_too_many_or_unwanted(tmp_path, monkeypatch, capsys):
    alone = TableModel(**SIZES, keep_rows=False).fit(FRAME)
    monkeypatch.setattr(engine, "MOST_CELLS", FRAME.size - 1)
    large = TableModel(**SIZES).fit(FRAME)
    for model in (alone, large):
        model.save(tmp_path)
        for found in (model, TableModel.load(tmp_path)):
            answer = found.conditional("job").to_dict()
            assert (answer["rows"], answer["shares"]) == (None, None)
            assert found.conditional("pay").to_dict()["rows"] is None
    main(["query", str(tmp_path), "--of", "job"])
    shown = capsys.readouterr()
    assert "Training rows are not counted" in shown.err
    assert "share of rows" not in shown.out
    with pytest.raises(ConfigError, match="`keep_rows` must be True or False"):
        TableModel(**SIZES, keep_rows="no").fit(FRAME)


@pytest.mark.parametrize("flag", [[], ["--forget-rows"]])
def test_the_command_line_keeps_rows_unless_told_not_to(tmp_path, flag):
    FRAME.to_csv(tmp_path / "people.csv", index=False)
    size = ["--steps", "1", "--layers", "1", "--width", "8"]
    main(["fit", str(tmp_path / "people.csv"), "--out", str(tmp_path / "run"), *size, *flag])
    found = TableModel.load(tmp_path / "run").conditional("job", given={"member": True})
    expected = FRAME.loc[FRAME["member"], "job"].notna().sum()
    assert found.to_dict()["rows"] == (None if flag else expected)
