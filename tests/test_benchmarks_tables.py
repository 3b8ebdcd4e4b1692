"""Our table model beside others: the measures, the tasks, and a run with a made-up rival."""

import json
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from anyorder import ConfigError
from anyorder.heads.mixture import Mixture
from anyorder.tables.model import TableModel
from benchmarks import rival_environments, tables
from benchmarks.cell_likelihood import Cells, cell_log_prob, log_mass, log_normal_mass
from benchmarks.rival_environments import Rival, RivalError, environment, run_worker
from benchmarks.rivals.task import Answers, Column, Task, read_answers
from benchmarks.table_scores import (
    IMPOSSIBLE,
    best_guesses,
    crps,
    imputation,
    likelihood,
    ratio,
    root,
    rounded,
)
from benchmarks.table_sets import TableSet, load_set
from benchmarks.table_task import cell_width, table_task

STEPS = [1.0, 0.5, None, None]


@pytest.fixture(scope="module")
def frame():
    """A whole number with a spike, a coarse one, one that is not rounded, and a category."""
    rng = np.random.default_rng(0)
    size = 120
    whole = np.where(rng.random(size) < 0.3, 0, rng.integers(0, 400, size))
    coarse = np.round(rng.normal(size=size) * 2 + whole / 100) / 2
    return pd.DataFrame(
        {
            "whole": whole,
            "coarse": coarse,
            "real": rng.normal(size=size),
            "kind": np.where(coarse + rng.normal(size=size) > 1, "a", "b"),
        }
    )


@pytest.fixture(scope="module")
def model(frame):
    return TableModel(max_steps=20, layers=1, width=16, heads=2).fit(frame)


def slow_log_prob(model, row, name, known):
    """One cell, by the conditional that users have."""
    conditional = model.conditional(name, given={other: row[other] for other in known})
    step = STEPS[list(row.index).index(name)]
    if name == "kind":
        return np.log(conditional.probabilities()[row[name]])
    if step is None:
        return np.log(conditional.pdf([row[name]])[0])
    below, above = conditional.cdf([row[name] - step / 2, row[name] + step / 2])
    return np.log(above - below)


@pytest.mark.parametrize("name", ["whole", "coarse", "real", "kind"])
@pytest.mark.parametrize("known", [(), ("coarse",), ("whole", "kind"), ("real", "kind", "coarse")])
def test_cells_are_differences_of_cdfs(model, frame, name, known):
    rows, known = frame.iloc[:12], [other for other in known if other != name]
    given = sets(frame, known, rows)
    found = cell_log_prob(model, rows, query=sets(frame, [name], rows), given=given, steps=STEPS)
    slow = [slow_log_prob(model, row, name, known) for _, row in rows.iterrows()]
    # The slow way subtracts float32 CDFs: 1e-7 of cells that hold some thousandths.
    np.testing.assert_allclose(found.numpy(), slow, atol=2e-3)


def test_members_are_averaged_cell_by_cell(frame):
    options = {"max_steps": 5, "layers": 1, "width": 16, "heads": 2}
    model = TableModel(members=2, **options).fit(frame)
    rows, query = frame.iloc[:12], sets(frame, ["coarse"], frame.iloc[:12])
    found = cell_log_prob(model, rows, query=query, given=torch.zeros_like(query), steps=STEPS)
    slow = [slow_log_prob(model, row, "coarse", []) for _, row in rows.iterrows()]
    np.testing.assert_allclose(found.numpy(), slow, atol=2e-3)


def sets(frame, names, rows):
    return torch.tensor([[column in names for column in frame.columns]] * len(rows))


def test_along_a_path_logarithms_are_added(model, frame):
    rows, nothing = frame.iloc[:20], sets(frame, [], frame.iloc[:20])
    ask = partial(cell_log_prob, model, given=nothing, steps=STEPS)
    both = [
        ask(rows.assign(kind=level), query=sets(frame, ["whole", "kind"], rows)) for level in "ab"
    ]
    first = ask(rows, query=sets(frame, ["whole"], rows))
    torch.testing.assert_close(torch.stack(both).logsumexp(0), first, atol=1e-5, rtol=0)
    smooth = ask(rows, query=sets(frame, ["real", "kind"], rows))
    expected = model.log_prob(rows, query=["real", "kind"])
    np.testing.assert_allclose(smooth.numpy(), expected, atol=1e-4)


def test_cells_of_a_column_add_up_to_one(model, frame):
    values = np.arange(-3000, 6000)
    rows = frame.iloc[[0] * len(values)].assign(whole=values)
    query = torch.tensor([True, False, False, False]).expand(len(rows), -1)
    logs = cell_log_prob(model, rows, query=query, given=torch.zeros_like(query), steps=STEPS)
    assert float(logs.exp().sum()) == pytest.approx(1, abs=1e-3)  # heavy tails go on


def test_normal_masses_keep_their_digits_in_both_tails():
    low = torch.tensor([-0.5, 8.0, -9.0, 30.0], dtype=torch.float64)
    found = log_normal_mass(low, low + 1)
    assert float(found[0]) == pytest.approx(np.log(0.3829249225480262))
    assert float(found[1]) == pytest.approx(np.log(norm.sf(8) - norm.sf(9)))
    torch.testing.assert_close(found[1], found[2])
    assert found.isfinite().all()


def test_without_a_step_the_density_is_in_the_units_of_the_column():
    normal = Mixture(*torch.zeros(3, 1, 1, dtype=torch.float64))
    nothing = torch.full((1,), torch.nan, dtype=torch.float64)
    value, slope = torch.tensor([[0.3], [0.7]], dtype=torch.float64)
    cells = Cells(value, nothing, nothing, slope)
    expected = -0.5 * 0.09 - 0.5 * np.log(2 * np.pi) + 0.7
    assert float(log_mass(normal, cells)) == pytest.approx(expected)


def test_a_cell_holds_all_atoms_between_its_ends(model, frame):
    rows, query = frame.iloc[:12], sets(frame, ["whole"], frame.iloc[:12])
    wide = [7.0, *STEPS[1:]]  # several atoms in each
    found = cell_log_prob(model, rows, query=query, given=torch.zeros_like(query), steps=wide)
    below, above = (
        model.conditional("whole", given={}).cdf(rows["whole"].to_numpy() + side)
        for side in (-3.5, 3.5)
    )
    np.testing.assert_allclose(found.numpy(), np.log(above - below), atol=2e-3)


def test_what_comes_back_again_and_again_has_cells():
    rng = np.random.default_rng(0)
    real = pd.Series(rng.normal(size=500))
    assert cell_width(real, "nothing comes back") is None
    assert cell_width(real.where(real.index > 20, -1.5), "one value does") == 0.001
    tenths = real.round(1).where(real.index > 20, real)
    assert cell_width(tenths, "most are tenths") == 0.1
    assert cell_width(real.round(2), "all are hundredths") == 0.01
    assert cell_width(pd.Series([np.pi] * 50), "nothing else") is None
    zeros = pd.Series(np.r_[np.zeros(480), rng.normal(size=20)])
    assert cell_width(zeros, "zeros are multiples of anything") == 0.001
    heavy = pd.Series(np.r_[np.zeros(30), rng.pareto(0.3, 470)])
    assert cell_width(heavy, "a long tail has no say") < 1


def test_tables_in_one_piece_are_split(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "abalone.csv").write_text("M,0.4,0.3,0.1,0.5,0.2,0.1,0.15,15\n" * 20)
    wine = "7.4,0.7,0,1.9,0.076,11,34,0.9978,3.51,0.56,9.4,5\n"
    (folder / "winequality-red.csv").write_text(wine * 10)
    header = ";".join(f'"c{i}"' for i in range(12)) + "\n"
    (folder / "winequality-white.csv").write_text(header + wine.replace(",", ";") * 10)
    abalone, both = load_set(tmp_path, "abalone"), load_set(tmp_path, "wine")
    assert (len(abalone.train), len(abalone.test)) == (18, 2)
    assert both.train.columns[-1] == "color"
    assert set(both.train.color) == {"red", "white"}
    assert both.train.quality.eq(5).all()


@pytest.fixture
def task(frame):
    table = TableSet(frame.iloc[:80], pd.concat([frame.iloc[80:], frame[:1].assign(kind="new")]))
    return table_task(table, rows=30, train_rows=60, draws=4)


def test_a_task_fixes_rows_masks_and_measures(task, frame):
    assert [column.step for column in task.task.columns] == [1.0, 0.1, None, None]
    assert task.task.columns[3] == Column("kind", "category", levels=2)
    assert (task.task.train.shape, task.task.test.shape) == ((60, 4), (30, 4))
    assert task.dropped == 1  # a level that no row to fit has
    assert task.levels == {"kind": ["a", "b"]}
    assert 0.15 < task.holes.mean() < 0.45  # 120 cells at 0.3: three standard errors
    np.testing.assert_array_equal(task.gappy.isna().to_numpy(), task.holes)
    np.testing.assert_array_equal(task.codes(task.test), task.task.test)
    assert task.test.whole.tolist() == frame.whole.iloc[80:110].tolist()


def test_a_task_goes_to_a_folder_and_back(task, tmp_path):
    task.task.save(tmp_path)
    found = Task.load(tmp_path)
    for kept, read in zip(task.task, found, strict=True):
        np.testing.assert_array_equal(kept, read)


def test_answers_that_are_there_are_read(tmp_path):
    answers = Answers(tmp_path)
    assert answers.time("joint", lambda: [1.0, 2.0]) == [1.0, 2.0]
    answers.time("other", lambda: None)
    (tmp_path / "half.npy").write_bytes(b"half")
    found, seconds = read_answers(tmp_path)
    assert found.keys() == {"joint"}
    assert seconds.keys() == {"joint", "other"}
    assert read_answers(tmp_path / "nowhere") == ({}, {})


def test_draws_that_a_stopped_worker_has_made_count(tmp_path):
    made = [np.full((2, 3), value) for value in (0.0, 1.0, 2.0)]
    waiting = iter(made)
    with pytest.raises(StopIteration):
        Answers(tmp_path).draw(4, lambda: next(waiting))
    np.testing.assert_array_equal(read_answers(tmp_path)[0]["draws"], np.stack(made))


def test_one_draw_alone_is_none(tmp_path):
    Answers(tmp_path).draw(1, lambda: np.zeros((2, 3)))
    assert read_answers(tmp_path)[0] == {}


def test_nothing_costs_more_than_what_is_impossible():
    found, lost = likelihood(np.array([-1.0, -np.inf, np.nan, -2000.0, -744.0]))
    assert lost == 3
    expected = [-1.0, IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE, -744.0]
    np.testing.assert_array_equal(found.rows.numpy(), expected)


def test_means_and_roots_over_holes_have_their_standard_errors():
    rng = np.random.default_rng(0)
    values, holes = rng.exponential(size=4000), rng.random(4000) < 0.3
    mean, rms = ratio(values, holes), root(values, holes)
    inside = values[holes]
    assert mean.value == pytest.approx(inside.mean())
    assert mean.se == pytest.approx(inside.std() / len(inside) ** 0.5, rel=1e-2)
    assert rms.value == pytest.approx(inside.mean() ** 0.5)
    assert rms.se == pytest.approx(mean.se / (2 * rms.value))
    assert root(np.zeros(3), np.ones(3, dtype=bool)).value == 0


def test_crps_is_its_formula():
    rng = np.random.default_rng(0)
    draws, truth = rng.normal(size=(5, 3)).round(1), rng.normal(size=3)
    pairs = [(i, j) for i in range(5) for j in range(5) if i != j]
    apart = np.mean([np.abs(draws[i] - draws[j]) for i, j in pairs], axis=0)
    expected = np.abs(draws - truth).mean(axis=0) - apart / 2
    np.testing.assert_allclose(crps(draws, truth, is_category=False), expected)
    levels, level = rng.integers(0, 3, (5, 3)).astype(float), np.array([0.0, 1.0, 2.0])
    apart = np.mean([levels[i] != levels[j] for i, j in pairs], axis=0)
    expected = (levels != level).mean(axis=0) - apart / 2
    np.testing.assert_allclose(crps(levels, level, is_category=True), expected)


def test_best_guesses_are_means_and_majorities():
    columns = [Column("n", "number"), Column("c", "category", levels=3)]
    draws = np.array([[[1.0, 2]], [[2.0, 2]], [[6.0, 0]]])
    np.testing.assert_array_equal(best_guesses(columns, draws), [[3.0, 2.0]])


def test_draws_are_rounded_as_their_columns_are(task):
    columns = [Column("tens", "number", 10.0), Column("tenths", "number", 0.1)]
    columns += [Column("real", "number"), Column("kind", "category", levels=2)]
    found = rounded(columns, np.array([[[17.0, 1.6789, 0.123, 1.0]]]))
    np.testing.assert_array_equal(found, [[[20.0, 1.7, 0.123, 1.0]]])
    noise = np.array([0.04, 0.004, 0.0, 0.0])  # inside of the cells
    truth = task.task.test
    scores = imputation(task, {"draws": np.stack([truth - noise, truth, truth + 2 * noise])})
    assert scores["crps"].value == 0
    assert scores["nrmse"].value > 0  # best guesses are means, and not rounded


def test_imputation_scores_holes_only(task):
    truth = task.task.test
    perfect = imputation(task, {"point": truth, "draws": np.stack([truth] * 3)})
    assert all(score.value == 0 for score in perfect.values())
    assert {"nrmse", "nrmse/whole", "error_rate/kind", "crps/real", "category_crps"} <= set(perfect)
    far = np.where(task.holes, truth + np.nanstd(task.task.train, axis=0), truth + 1e6)
    found = imputation(task, {"point": far})
    assert found["nrmse"].value == pytest.approx(1)
    assert found["nrmse/whole"].value == pytest.approx(1)
    assert found["error_rate"].value == 1
    assert "crps" not in found


FAKE = Rival("tests.fake_rival", None)


def worked(task, first_column, folder):
    """The error of a rival that does as the name of the first column says."""
    columns = [Column(first_column, "number"), *task.task.columns[1:]]
    task.task._replace(columns=columns).save(folder)
    with pytest.raises(RivalError) as raised:
        run_worker(FAKE, environment(FAKE, folder), folder, minutes=1 / 60)
    assert "draws" in read_answers(folder)[0]  # what was answered before is kept
    return str(raised.value)


def test_a_worker_that_fails_says_so(task, tmp_path):
    assert worked(task, "fail", tmp_path) == "Nothing works here."


def test_a_worker_has_so_much_of_the_processor(task, tmp_path):
    assert worked(task, "spin", tmp_path) == "stopped after 0.0166667 minutes"


def test_a_worker_that_waits_is_stopped_too(tmp_path, monkeypatch):
    monkeypatch.setattr(rival_environments, "PATIENCE", 1e-9)
    with pytest.raises(RivalError, match="stopped after 3 minutes"):
        run_worker(FAKE, environment(FAKE, tmp_path), tmp_path, minutes=3)


def test_environments_are_made_once(monkeypatch, tmp_path):
    commands = []

    def run(command):
        commands.append(command[1:4])
        (tmp_path / "thing-1").mkdir(exist_ok=True)

    monkeypatch.setattr(rival_environments, "_run", run)
    rival = Rival("benchmarks.rivals.thing", ("thing==1",), unwanted=("torchaudio",))
    python = environment(rival, tmp_path)
    assert python.is_relative_to(tmp_path / "thing-1")
    assert [command[1] for command in commands] == ["venv", "pip", "pip"]
    assert environment(rival, tmp_path) == python
    assert len(commands) == 3


def test_the_default_folder_is_under_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert rival_environments.default_folder() == tmp_path / "anyorder" / "rivals"


def test_models_are_compared_in_one_run(frame, monkeypatch, capsys, tmp_path):
    quick = partial(TableModel, max_steps=3, layers=1, width=8, heads=2)
    monkeypatch.setattr(tables, "TableModel", quick)
    broken = Rival("tests.fake_rival", (str(tmp_path / "no-such-package"),))
    monkeypatch.setattr(tables, "RIVALS", {"fake": FAKE, "broken": broken})

    def install(rival, _):
        if rival is broken:
            raise RivalError("no such package")
        return sys.executable

    monkeypatch.setattr(tables, "environment", install)
    table = TableSet(frame.iloc[:80], frame.iloc[80:])
    monkeypatch.setattr(tables, "load_set", lambda *_: table)
    run = partial(tables.measure, data=tmp_path, sets=["wine"], rows=20, draws=3, minutes=1)
    record = tmp_path / "record.json"
    run(json=True, record=record)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found == json.loads(record.read_text())
    rows = {(row["model"], row["metric"]): row for row in found["rows"]}
    for metric in ("joint_nats", "conditional_nats", "nrmse", "error_rate", "crps", "crps/whole"):
        row = rows["TableModel", metric]
        assert np.isfinite(row["value"])
        assert row["n"] == 20
    assert rows["TableModel", "joint_impossible_rows"]["value"] == 0
    assert rows["TableModel", "fit_seconds"]["value"] > 0
    assert rows["fake", "joint_impossible_rows"]["value"] == 10
    assert rows["fake", "joint_nats"]["value"] == pytest.approx((IMPOSSIBLE - 3) / 2)
    assert rows["fake", "draws_empty_cells"]["value"] > 0
    assert rows["fake", "draws_changed_cells"]["value"] > 0  # it moves known numbers too
    assert rows["TableModel", "draws_changed_cells"]["value"] == 0
    assert rows["TableModel", "point_changed_cells"]["value"] == 0
    assert ("fake", "conditional_nats") not in rows
    assert not any(model == "broken" for model, _ in rows)
    pairs = {(pair["a"], pair["b"], pair["metric"]) for pair in found["paired"]}
    assert ("TableModel", "fake", "joint_nats") in pairs
    assert ("TableModel", "fake", "nrmse") in pairs
    settings = found["settings"]
    assert settings["not_measured"]["wine"] == {"broken": "cannot be installed: no such package"}
    assert settings["measures"]["wine"] == {
        "whole": "cell of 1", "coarse": "cell of 0.1", "real": "density", "kind": "probability",
    }  # fmt: skip
    run(rivals=["fake"], variants=["ten_seconds", "joint_alone"], record=record)
    assert "ours minus it" in capsys.readouterr().out
    again = json.loads(record.read_text())
    assert "--variants ten_seconds joint_alone" in again["command"]
    pairs = {(p["b"], p["metric"]): p["difference"] for p in again["paired"]}
    assert pairs["joint_alone", "joint_nats"] != 0  # it was trained for something else
    assert pairs["ten_seconds", "joint_nats"] == 0  # three steps take less


def test_rivals_are_listed(tmp_path):
    with pytest.raises(ConfigError, match="`rivals` must be one of"):
        tables.measure(data=tmp_path, rivals=["excel"])
    with pytest.raises(ConfigError, match="`variants` must be one of"):
        tables.measure(data=tmp_path, variants=["twice"])
    with pytest.raises(ConfigError, match="`timeout` must be"):
        tables.measure(data=tmp_path, timeout=0)
