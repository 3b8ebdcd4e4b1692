"""Seconds until a fit reaches a reference: the benchmark at its smallest."""

import json

import numpy as np
import pandas as pd
import pytest

from anyorder.errors import ConfigError
from benchmarks import fit_speed
from benchmarks.fit_speed import Reference, measure, reference
from benchmarks.table_sets import TableSet


@pytest.fixture
def tiny(monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(0, 2, 60) > 0, "b": rng.integers(0, 3, 60).astype(str)})
    monkeypatch.setattr(fit_speed, "load_set", lambda *_: TableSet(frame[:50], frame[50:]))

    class Small(fit_speed.TableModel):
        def fit(self, frame):
            self.set_params(max_steps=2, minutes=None, layers=1, width=8)
            return super().fit(frame)

    monkeypatch.setattr(fit_speed, "TableModel", Small)


def found(capsys):
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    return {(row["model"], row["metric"]): row["value"] for row in rows}


@pytest.mark.usefixtures("tiny")
def test_the_first_budget_that_reaches_the_reference_counts(monkeypatch, tmp_path, capsys):
    easy = Reference({"joint": -99.0, "conditional": -99.0}, "abc", 10, 50)
    monkeypatch.setattr(fit_speed, "reference", lambda _: easy)
    measure(data=tmp_path, sets=["penguins"], budgets=[2.0, 1.0], json=True)
    values = found(capsys)
    assert values["reaches the reference", "seconds"] == values["1s", "seconds"]
    assert ("2s", "seconds") not in values
    assert values["default", "joint_nats"] < 0


@pytest.mark.usefixtures("tiny")
def test_a_reference_that_is_not_reached_has_no_seconds(monkeypatch, tmp_path, capsys):
    hard = Reference({"joint": 0.0, "conditional": 0.0}, "abc", 10, 50)
    monkeypatch.setattr(fit_speed, "reference", lambda _: hard)
    measure(data=tmp_path, sets=["penguins"], budgets=[1.0], json=True)
    assert ("reaches the reference", "seconds") not in found(capsys)


@pytest.mark.usefixtures("tiny")
def test_without_a_record_the_longest_budget_is_the_reference(tmp_path, capsys):
    measure(data=tmp_path, sets=["penguins"], budgets=[1.0, 2.0], json=True)
    assert ("2s", "joint_nats") in found(capsys)


def test_references_are_those_of_the_records():
    known = reference("abalone")
    assert known.rows == 500
    assert known.nats["joint"] == pytest.approx(-40.459, abs=1e-3)
    assert reference("penguins") is None


def test_unknown_sets_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="`sets`"):
        measure(data=tmp_path, sets=["pengins"])
