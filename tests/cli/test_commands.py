"""The verbs for text, and the text experiments at their smallest."""

import importlib
import json
import re
import shlex

import pytest
import torch

from anyorder.cli.app import main
from anyorder.cli.app import run as run_app
from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import ConfigError
from anyorder.lattice.enumeration import edge_law, node_law
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.reproduce.record import TOO_SHORT
from anyorder.reproduce.study import read_estimates, run_jobs, write_estimates
from anyorder.reproduce.table1_figure3 import (
    CATALOGUE,
    FIGURE3,
    SCALES,
    TABLE1,
    LastEdges,
    TextStudy,
    evaluate,
)
from anyorder.training.settings import TrainingSettings
from experiments import tables

FIT = ["fit", "pydoc", "--length", "16", "--layers", "1", "--width", "16", "--heads", "2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "pydoc"
    main([*FIT, "--steps", "3", "--out", str(out)])
    return out


def last_json(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_infill_prints_fills(run, capsys):
    main(["infill", str(run), "th_ st_te", "--n", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in lines] == ["th", "th"]
    main(["infill", str(run), "th_ st_te", "--n", "2", "--json"])
    assert last_json(capsys)["fills"] == lines


def test_evaluate_prints_bits(run, capsys, tmp_path):
    main(["evaluate", str(run), "pydoc", "--rows", "8", "--json"])
    bits = last_json(capsys)["bits"]
    assert set(bits) == {"joint", "marginal", "conditional"}
    assert bits["joint"]["n"] == 8
    (tmp_path / "own.txt").write_text("some words of my own " * 40)
    main(["evaluate", str(run), str(tmp_path / "own.txt"), "--rows", "2"])
    assert "own.txt" in capsys.readouterr().out


def test_check_takes_text_too(run, capsys):
    main(["check", str(run), "pydoc", "--rows", "6"])
    shown = capsys.readouterr()
    assert (
        "pydoc, 6 chunks of its test part: consistency, the same likelihood computed in two ways"
        in shown.out
    )
    assert "- Categories: the most probable level is said to be right in" in shown.out
    assert not shown.err
    main(["check", str(run), "pydoc", "--rows", "6", "--json"])
    found = last_json(capsys)
    assert found["rows"] == found["path"]["size"]["n"] == 6
    assert not found["numbers"]


def test_a_fit_that_is_done_says_so(run, capsys):
    main([*FIT, "--steps", "3", "--out", str(run)])
    said = capsys.readouterr().err
    assert 'Already trained (step 3): "pydoc topics".' in said
    assert "rows/s" not in said


def test_a_fit_ends_with_a_command_that_works(tmp_path, capsys):
    (tmp_path / "book.txt").write_text('Don\'t panic, $HOME is "there"!\n' * 60)
    fit = ["fit", str(tmp_path / "book.txt"), *FIT[2:], "--steps", "1"]
    main([*fit, "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert said.startswith("book.txt: read as a text of 1,860 characters")
    assert f'Fitted "book.txt". Saved in {tmp_path / "run"}.' in said
    assert re.search(r"Held-out text: \d+\.\d+ ± \d+\.\d+ bits", said)
    command = shlex.split(said.splitlines()[-1])
    assert command[:2] == ["anyorder", "infill"]
    words = command[-1].split()
    known = {word[: len(word) // 2] for word in ["Don't", "panic,", "$HOME", "is", '"there"!']}
    assert all(word.split("_")[0] in known for word in words if "_" in word)
    main(command[1:])
    assert len(capsys.readouterr().out.rstrip("\n")) == len(command[-1])


def test_json_keeps_letters_as_they_are(tmp_path, capsys):
    (tmp_path / "book.txt").write_text("énéènàé çùê " * 60, encoding="utf-8")
    main(["fit", str(tmp_path / "book.txt"), *FIT[2:], "--steps", "1", "--out", str(tmp_path)])
    main(["infill", str(tmp_path), "éné_n", "--json"])
    assert '"text": "éné_n"' in capsys.readouterr().out


BAD_COMMANDS = {
    "no file": (["fit", "nofile.txt", "--out", "x"], 'There is no file "nofile.txt"'),
    "no run": (["infill", "norun", "a_"], '"norun" holds no checkpoint'),
    "greedy and hot": (
        ["infill", "shipped", "a_", "--greedy", "--temperature", "0.5"],
        "`--greedy` samples nothing, so `--temperature` has no use",
    ),
    "greedy and many": (["infill", "shipped", "a_", "--greedy", "--n", "3"], "so `--n` has no use"),
    "cold": (["infill", "shipped", "a_", "--temperature", "0"], "got 0. `--greedy` takes"),
    "capitals": (["infill", "shipped", "A_"], "write it in lower case"),
    "no out": (["fit", "pydoc"], "--out"),
    "scale": (["reproduce", "table1", "--scale", "huge"], "huge"),
    "model": (["reproduce", "table1", "--models", "mack"], 'Did you mean "mac"?'),
    "no text8": (["reproduce", "table1", "--data", "."], "There is no text8 in"),
}


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_mistakes_get_one_sentence(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, sentence = BAD_COMMANDS[name]
    with pytest.raises(SystemExit) as stopped:
        main(command)
    streams = capsys.readouterr()
    assert stopped.value.code == 2
    assert sentence in streams.err
    assert streams.err.count("\n") == 1


def test_table1_at_its_smallest(tmp_path, capsys):
    record = tmp_path / "table1.json"
    command = ["reproduce", "table1", "--out", str(tmp_path), "--record", str(record)]
    main([*command, "--json"])
    document = last_json(capsys)
    assert {row["model"] for row in document["rows"]} == set(TABLE1)
    random_orders = {row["metric"] for row in document["rows"] if row["model"] == "path_rnd"}
    assert {"joint_elbo_8_bits", "joint_mixture_32_bits"} <= random_orders
    assert document["command"] == "anyorder reproduce table1 --scale tiny --seed 0"
    values = {row["metric"]: row["value"] for row in document["rows"] if row["model"] == "path_rnd"}
    # Over the same orders: a mixture beats the mean of logarithms, and more orders help it.
    assert values["joint_mixture_32_bits"] < values["joint_elbo_32_bits"]
    assert values["joint_elbo_1_bits"] == pytest.approx(values["joint_mixture_1_bits"])
    pairs = {(pair["a"], pair["b"]) for pair in document["paired"]}
    assert ("path_mix", "mac") in pairs
    assert json.loads(record.read_text())["rows"] == document["rows"]
    main(command)  # all is done already: only shown
    shown = capsys.readouterr().out
    assert "mac - ardm" in shown
    assert "path_one_stream - left_to_right" in shown  # the longest name, whole
    assert all(f"{name} " in shown and entry.meaning in shown for name, entry in TABLE1.items())
    assert "* not trained on conditional queries" in shown
    assert TOO_SHORT in shown
    main([*command[:-2], "--models", "mac", "ardm"])
    shown = capsys.readouterr().out
    assert "left_to_right" not in shown
    assert "*" not in shown


def test_figure3_at_its_smallest(tmp_path, capsys):
    main(["reproduce", "figure3", "--out", str(tmp_path)])
    assert "mac_exact" in capsys.readouterr().out
    curves = (tmp_path / "tiny" / "figure3.csv").read_text().splitlines()
    assert curves[0] == "law,step,marginal_bits"
    assert {line.split(",")[0] for line in curves[1:]} == set(FIGURE3)
    assert (tmp_path / "tiny" / "figure3.png").read_bytes().startswith(b"\x89PNG")


def test_figure3_without_matplotlib_says_how_to_get_a_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("anyorder.reproduce.table1_figure3.find_spec", lambda _: None)
    main(["reproduce", "figure3", "--out", str(tmp_path), "--models", "a_only", "b_cr"])
    shown = capsys.readouterr().out
    assert 'No plot: pip install "anyorder[plot]"' in shown
    assert FIGURE3["a_only"].meaning in shown
    assert not (tmp_path / "tiny" / "figure3.png").exists()


@pytest.mark.parametrize(("verb", "entries"), [("table1", TABLE1), ("figure3", FIGURE3)])
def test_the_help_lists_the_models(verb, entries, capsys):
    main(["reproduce", verb, "--help"])
    words = set(re.findall(r"\w+", capsys.readouterr().out))
    assert set(entries) <= words


@pytest.mark.parametrize(
    ("name", "work"), [("shipped_text_model", "TextModel"), ("tables", "filled")]
)
def test_the_help_of_an_experiment_does_nothing_else(name, work, capsys, monkeypatch):
    module = importlib.import_module(f"experiments.{name}")
    monkeypatch.setattr(module, work, None)  # what it would need to begin
    run_app(module.app, ["--help"])
    assert "--" in capsys.readouterr().out


def test_the_shipped_weights_are_overwritten_on_demand_only(tmp_path, monkeypatch, capsys):
    from experiments import shipped_text_model

    monkeypatch.setattr(shipped_text_model, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr(
        shipped_text_model, "SETTINGS", TrainingSettings(steps=1, batch=2, warmup=1)
    )
    command = ["--out", str(tmp_path / "run")]
    run_app(shipped_text_model.app, command)
    assert "joint: " in capsys.readouterr().out
    assert not (tmp_path / "shipped").exists()
    run_app(shipped_text_model.app, [*command, "--save"])
    assert (tmp_path / "shipped" / "model.json").exists()


def test_stale_tables_are_told(tmp_path, monkeypatch, capsys):
    stale = tmp_path / "STALE.md"
    stale.write_text("<!-- table: table7 -->\nold\n<!-- end -->\n")
    monkeypatch.setattr(tables, "DOCUMENTS", [stale])
    with pytest.raises(SystemExit) as stopped:
        run_app(tables.app, ["--check"])
    assert stopped.value.code == 2
    assert "STALE.md: run `make tables`" in capsys.readouterr().err
    assert "old" in stale.read_text()
    run_app(tables.app, [])
    assert "w-MAC, path" in stale.read_text()


def test_models_that_are_compared_have_as_many_parameters():
    study = TextStudy(SCALES["small"], None, evaluate)
    sizes = [study.build(entry).num_parameters for entry in CATALOGUE.values()]
    assert max(sizes) / min(sizes) < 1.001


def test_the_papers_scale_has_its_parameters():
    model = TextStudy(SCALES["paper"], None, evaluate).build(TABLE1["mac"])
    assert 84e6 < model.num_parameters < 87e6


def test_last_edges_are_the_ablation_of_insight_b(generator):
    law, protocol = LastEdges(range(3)), RemoveGreatest(lexicographic(3))
    masks = node_law(edge_law(law, protocol))
    # S is uniform by size; without its greatest element it is {} (singletons), {0}, {1} or {0, 1}
    expected = torch.tensor([3, 2, 1, 3, 0, 0, 0, 0]).double() / 9
    torch.testing.assert_close(masks, expected)
    query = law.sample(50, generator=generator).query
    assert (query.sum(dim=1) == 1).all()


def _job(name, folder):
    (folder / "trace").write_text(name)
    return {"bits": Estimate(torch.tensor([1.0, 2.0, 4.0]))}


def test_jobs_that_are_done_are_not_done_again(tmp_path, capfd):
    about = {"seed": 1, "data": "x"}
    first = run_jobs(_job, ["a"], tmp_path, identity=about)
    capfd.readouterr()
    (tmp_path / "a" / "trace").unlink()
    both = run_jobs(_job, ["a", "b"], tmp_path, identity=about, at_once=2)
    assert not (tmp_path / "a" / "trace").exists()
    assert (tmp_path / "b" / "trace").read_text() == "b"
    assert capfd.readouterr().err.splitlines() == ["b: training", "b: done"]
    assert torch.equal(first.estimates["a"]["bits"].rows, both.estimates["b"]["bits"].rows)
    assert set(both.source) == {"commit", "dirty"}


ALTERED = {
    "no source": {"source": None},
    "strings": {"estimates": {"bits": ["a", "b"]}},
    "ragged": {"estimates": {"bits": [[1.0], [2.0, 3.0]]}},
    "list": {"estimates": [1.0]},
    "commit": {"source": {"dirty": False}},
}


@pytest.mark.parametrize("name", ALTERED)
def test_altered_results_are_named(name, tmp_path):
    run_jobs(_job, ["a"], tmp_path, identity={"seed": 1})
    path = tmp_path / "a" / "evaluation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | ALTERED[name]))
    with pytest.raises(ConfigError, match=r'evaluation.json" is damaged or was altered: delete'):
        run_jobs(_job, ["a"], tmp_path, identity={"seed": 1})


def test_results_that_depend_on_more_are_of_another_experiment(tmp_path):
    run_jobs(_job, ["a"], tmp_path, identity={"seed": 1, "extra": 2})
    with pytest.raises(ConfigError, match="another experiment: `extra` differs"):
        run_jobs(_job, ["a"], tmp_path, identity={"seed": 1})


def test_results_of_other_settings_are_not_passed_off(tmp_path, capsys):
    command = ["reproduce", "table1", "--models", "mac", "--out", str(tmp_path)]
    main(command)
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--seed", "5"])
    assert stopped.value.code == 2
    assert "holds results of another experiment: `seed` differs" in capsys.readouterr().err


def test_estimates_round_trip(tmp_path):
    estimate = Estimate(torch.tensor([0.1, 0.2], dtype=torch.float64))
    write_estimates(tmp_path / "e.json", {"x": estimate}, identity={}, source={})
    found = read_estimates(json.loads((tmp_path / "e.json").read_text()))
    assert torch.equal(found["x"].rows, estimate.rows)
