"""Error bars: the spread of the ensemble members, each asked alone."""

import copy
import json

import numpy as np
import pytest

from anyorder import TableModel
from anyorder.cli.app import main
from anyorder.tables.ensemble import members_of
from tests.saved_runs.write import people

SIZES = {"layers": 1, "width": 8, "heads": 2, "learning_rate": 0.02}
GIVEN = {"member": True, "pay": 2000.0, "hours": 40.0}


@pytest.fixture(scope="module")
def model():
    return TableModel(**SIZES, max_steps=30, members=3).fit(people(150))


def alone(model):
    """The members as models of their own."""
    found = []
    for part in members_of(model.model_):
        one = copy.copy(model)
        one.model_ = part.eval()
        found.append(one)
    return found


def error(values):
    return np.std(values, axis=0, ddof=1) / np.sqrt(len(values))


@pytest.mark.parametrize("given", [GIVEN, {"member": True, "hours": (30.0, 50.0)}, {}])
def test_the_error_is_the_spread_of_the_members(model, given):
    found = model.conditionals(["job", "age", "since"], given=given, random_state=0)
    asked = [one.conditionals([*found], given=given, random_state=0) for one in alone(model)]
    if not any(isinstance(value, tuple) for value in given.values()):  # members sample apart
        jobs = [one["job"].probabilities().to_numpy() for one in asked]
        assert found["job"].standard_error().to_numpy() == pytest.approx(error(jobs), abs=1e-7)
        assert found["job"].probabilities().to_numpy() == pytest.approx(np.mean(jobs, 0), abs=1e-6)
        for name in ("age", "since"):
            means = [one[name].to_dict()["positions"]["mean"] for one in asked]
            assert found[name].standard_error() == pytest.approx(
                error(means), rel=0.02, abs=1e-5 * abs(means[0])
            )
    for name, one in found.items():
        answer = one.to_dict()
        if name == "job":
            errors = one.standard_error()
            assert answer["standard_errors"] == [errors[level] for level in answer["levels"]]
        else:
            assert answer["standard_error"] == pytest.approx(one.standard_error(), rel=1e-6)
            assert one.standard_error() >= 0


def test_a_batch_has_the_errors_of_each_question(model):
    together = model.conditionals(given=GIVEN)
    for name, one in together.items():
        key = "standard_errors" if name in ("job", "member") else "standard_error"
        own = model.conditional(name, given=GIVEN).to_dict()[key]
        assert own == pytest.approx(one.to_dict()[key], rel=1e-5, abs=1e-7)


def test_a_single_model_has_no_error(tmp_path, capsys):
    model = TableModel(**SIZES, max_steps=2).fit(people(60))
    assert model.conditional("job").standard_error() is None
    assert model.conditional("age").standard_error() is None
    model.save(tmp_path)
    main(["query", str(tmp_path), "--of", "job,age"])
    assert "standard error" not in capsys.readouterr().out


def test_the_command_line_shows_errors(model, tmp_path, capsys):
    model.save(tmp_path)
    main(["query", str(tmp_path), "--of", "job,age,since", "--given", "member=true"])
    shown = capsys.readouterr().out
    assert shown.count("standard error") == 3
    found = model.conditional("job", given={"member": True})
    assert f"{found.standard_error().max():.1%}" in shown
    main(["query", str(tmp_path), "--of", "job", "--given", "member=true", "--json"])
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])["columns"]["job"]
    assert printed["standard_errors"] == pytest.approx(found.to_dict()["standard_errors"], abs=1e-7)
