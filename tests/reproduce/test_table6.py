"""Table 6 at its smallest, on the toy of the kitchen."""

import json
import re

import pytest
import torch

from anyorder.cli.app import main
from anyorder.reproduce.record import TOO_SHORT
from anyorder.reproduce.robot_models import ROWS, SCALES, TRAINED
from anyorder.reproduce.table6 import Crossed
from anyorder.robots import kitchen
from anyorder.robots.kitchen import toy_demonstrations
from experiments import tables


def test_the_table_at_its_smallest(tmp_path, capsys, monkeypatch):
    record, out = tmp_path / "table6.json", ["--out", str(tmp_path / "runs")]
    main(["reproduce", "table6", *out, "--record", str(record), "--json"])
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    rewards = {row["model"]: row for row in document["rows"] if row["metric"] == "reward"}
    assert set(rewards) == set(ROWS)
    scale = SCALES["tiny"]
    assert {row["n"] for row in rewards.values()} == {scale.episodes * len(scale.operated)}
    by_seed = {row["n"] for row in document["rows"] if row["metric"] == "reward_by_seed"}
    assert by_seed == {scale.seeds}
    metrics = {row["metric"] for row in document["rows"] if row["model"] == "mac"}
    assert {"conditional_nats", "whole_nats", "coverage_half_given"} <= metrics
    assert "coverage_nothing_given_by_seed" in metrics
    pairs = {(pair["a"], pair["b"], pair["metric"]) for pair in document["paired"]}
    assert ("mac_fill", "bc_fill", "reward_by_seed") in pairs
    assert {("mac", "uniform", m) for m in ("conditional_nats", "whole_nats_by_seed")} <= pairs
    assert document["command"] == "anyorder reproduce table6 --scale tiny --seed 0"
    assert json.loads(record.read_text())["rows"] == document["rows"]

    monkeypatch.setattr(tables, "record", lambda _: document)
    lines = tables.table6().splitlines()
    starts = tuple(f"| `{name}`: " for name in ROWS)
    assert sum(line.startswith(starts) for line in lines) == len(ROWS)
    assert any(line.startswith("| `mac_fill` - `bc_fill` | ") for line in lines)
    assert any(line.startswith("| half given | ") for line in lines)

    trained = tmp_path / "runs" / "tiny" / "mac-0" / "metrics.jsonl"
    before = trained.stat().st_mtime_ns
    main(["reproduce", "table6", *out])
    assert trained.stat().st_mtime_ns == before
    shown = capsys.readouterr().out
    assert TOO_SHORT in shown
    assert "2.000 ± 0.050" in shown  # the paper's
    assert all(row.meaning in shown for row in ROWS.values())


def test_trainings_that_are_asked_the_same_are_not_counted_twice():
    """As many copies of a training as one likes do not make its error over demonstrations less."""
    scores = torch.randn(1, 40, generator=torch.Generator().manual_seed(0)).double()
    once, often = Crossed(scores), Crossed(scores.expand(9, -1))
    assert often.by_test.se == pytest.approx(once.by_test.se)
    assert len(often.by_test.rows) == 40
    assert often.by_seed.se == pytest.approx(0, abs=1e-12)
    # What every training gains alike, whatever the demonstration, has no error at all.
    gained = often.minus(Crossed(scores.expand(9, -1) - 0.5))
    assert gained.named("nats")["nats"].value == pytest.approx(0.5)
    assert all(one.se == pytest.approx(0, abs=1e-12) for one in gained.named("nats").values())


MISTAKES = {
    "no data": (["--scale", "small"], "`data` must be the folder of the demonstrations"),
    "none there": (["--data", "."], "put kitchen/demos.npz"),
    "no such row": (["--models", "mac_fil"], 'Did you mean "mac_fill"?'),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_get_one_sentence(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kitchen, "find_spec", lambda _: True)
    options, sentence = MISTAKES[name]
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "table6", *options])
    streams = capsys.readouterr()
    assert stopped.value.code == 2
    assert sentence in streams.err
    assert streams.err.count("\n") == 1


def test_without_the_simulator_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kitchen, "find_spec", lambda _: None)
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "table6", "--scale", "small", "--data", "."])
    assert stopped.value.code == 2
    assert 'pip install "anyorder[robot]"' in capsys.readouterr().err


def test_the_help_lists_the_rows(capsys):
    main(["reproduce", "table6", "--help"])
    assert set(ROWS) <= set(re.findall(r"\w+", capsys.readouterr().out))


def test_every_row_needs_what_is_trained():
    assert {need for row in ROWS.values() for need in row.needs} <= set(TRAINED)
    train = toy_demonstrations(12)
    unwanted = {name: one.unwanted for name, one in TRAINED.items() if one.unwanted}
    for name, task in unwanted.items():
        assert not any(task in done for done in TRAINED[name].demonstrations(train).tasks)
    assert unwanted.keys() == {"bc_willed"}
    for scale in SCALES.values():
        assert all(len(set(operated)) == 4 for operated in scale.operated)
