"""Table 7 shows the exact laws, the simulation and the paper's numbers, and keeps a record."""

import json

import pytest
import torch

from anyorder.cli.app import main
from anyorder.reproduce import table7
from anyorder.reproduce.record import Paired, Record, Row
from anyorder.reproduce.study import equal_steps, kept_steps
from anyorder.reproduce.table7 import COLUMNS, PAPER_ROWS, _plug_in_entropy, _rows

# counts per million, to the nearest: M, RND path, MAC path, MAC path + CR, conditional path + CR
EXACT = {
    "011111111110": (1263, 220, 631, 1852, 751),
    "100000000000": (6944, 14606, 76389, 40741, 1638),
    "100000000101": (379, 481, 0, 0, 73),
    "100000001000": (1263, 2024, 526, 421, 246),
    "111111111110": (6944, 579, 6944, 22222, 108108),
}


@pytest.fixture(scope="module")
def laws():
    generator = torch.Generator().manual_seed(0)
    exact = {name: column.exact() for name, column in COLUMNS.items()}
    return exact, {name: c.simulated(20_000, generator) for name, c in COLUMNS.items()}


def test_rows_and_entropies(laws):
    found = {(r.dataset, r.model, r.metric): r.value for r in _rows(*laws, 20_000)}
    names = ("M", "rnd_path", "mac_path", "mac_path_cr", "cond_path_cr")
    for mask, counts in EXACT.items():
        assert tuple(round(found[mask, name, "exact_per_million"]) for name in names) == counts
    assert {name: round(found["N=12", name, "entropy_exact_nats"], 3) for name in COLUMNS} == {
        "M": 7.212,
        "rnd_path": 5.745,
        "mac_path": 4.439,
        "mac_path_cr": 5.521,
        "rnd_edge": 6.691,
        "mac_edge": 4.738,
        "mac_edge_cr": 5.343,
        "cond_path_cr": 5.378,
    }


@pytest.mark.parametrize("name", COLUMNS)
def test_the_simulation_agrees_with_enumeration(name, laws):
    exact, simulated = (law[name] for law in laws)
    standard_error = (exact * (1 - exact) / 20_000).sqrt()
    # Among 4096 masks chance makes the largest of these about 4 (more for masks seen once or
    # twice).
    frequent = exact > 10 / 20_000
    assert ((simulated - exact) / standard_error)[frequent].abs().max() < 5
    value, se = _plug_in_entropy(simulated, 20_000)
    # The correction of the entropy's bias is of first order: allow as much again.
    bias = (simulated > 0).sum() / 40_000
    assert abs(value - torch.special.entr(exact).sum()) < 4 * se + bias


def test_the_table_fits_a_terminal(capsys):
    table7.table7(samples=2_000)
    shown = capsys.readouterr().out
    assert all(mask in shown for mask in PAPER_ROWS)
    assert all(number in shown for number in ("76,389", "108,108", "12,821", "7.212", "5.378"))
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_the_record_holds_command_commit_and_rows(tmp_path, capsys):
    path = tmp_path / "new" / "table7.json"
    table7.table7(samples=2_000, seed=3, json=True, record=path)
    capsys.readouterr()
    record = json.loads(path.read_text())
    assert record["command"] == "anyorder reproduce table7 --samples 2000 --seed 3"
    assert set(record) == {
        "command", "commit", "dirty", "settings", "versions", "rows", "paired"
    }  # fmt: skip
    row = next(
        r for r in record["rows"] if r["metric"] == "entropy_exact_nats" and r["model"] == "M"
    )
    assert round(row["value"], 3) == 7.212
    assert record["versions"]["torch"]


def test_a_record_of_code_outside_git_has_no_commit(monkeypatch, tmp_path):
    monkeypatch.setattr("anyorder.reproduce.record.SOURCE", tmp_path)
    record = Record("c", {}, [Row("d", "m", "x", 1.0)], [Paired("d", "a", "b", "x", 0.5, 0.1)])
    document = record.to_json()
    assert (document["commit"], document["dirty"]) == (None, None)
    assert document["paired"] == [
        {"dataset": "d", "a": "a", "b": "b", "metric": "x", "difference": 0.5, "se": 0.1}
    ]


def test_models_get_steps_for_equal_time(monkeypatch):
    monkeypatch.setattr("anyorder.reproduce.study.ROUNDS", 10)
    turns = []

    def timer(name, seconds):
        def step(turn):
            turns.append(name)
            return seconds * (0.5 if turn % 2 else 1.5)  # questions differ

        return step

    timers = {"quick": timer("quick", 0.1), "slow": timer("slow", 0.3)}
    steps = equal_steps(timers, minutes=1)
    assert steps == {"quick": 600, "slow": 200}
    assert turns[2:] == ["quick", "slow"] * 10  # in turns, after one of each that is not counted


def test_steps_are_kept_for_the_same_experiment_only(tmp_path):
    path = tmp_path / "new" / "steps.json"
    assert kept_steps(path, {"width": 8}, lambda: {"mac": 7}) == {"mac": 7}
    assert kept_steps(path, {"width": 8}, lambda: {"mac": 9}) == {"mac": 7}
    assert kept_steps(path, {"width": 16}, lambda: {"mac": 9}) == {"mac": 9}


def test_a_budget_in_minutes_becomes_steps(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("anyorder.reproduce.study.ROUNDS", 1)
    command = ["reproduce", "table1", "--models", "mac", "--minutes", "0.002"]
    main([*command, "--out", str(tmp_path), "--json"])
    settings = json.loads(capsys.readouterr().out.splitlines()[-1])["settings"]
    metrics = (tmp_path / "tiny" / "mac" / "metrics.jsonl").read_text().splitlines()
    assert settings["steps"]["mac"] == json.loads(metrics[-1])["step"]
