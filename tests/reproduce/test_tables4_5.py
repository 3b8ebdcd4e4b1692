"""Tables 4 and 5 at their smallest, and in the units of the data."""

import json
import pickle
import re

import numpy as np
import pytest
import torch

from anyorder.cli.app import main
from anyorder.reproduce.record import TOO_SHORT
from anyorder.reproduce.study import _timed_as
from anyorder.reproduce.table1_figure3 import SCALES, TextStudy, evaluate
from anyorder.reproduce.tables4_5 import (
    MILLISECONDS,
    RECIPES,
    TINY,
    UCI_MODELS,
    UciStudy,
    conditionals,
    marginals,
    scale_of,
)
from anyorder.reproduce.tables4_5 import PRINTED_CONDITIONALS as PRINTED5
from anyorder.reproduce.tables4_5 import PRINTED_MARGINALS as PRINTED4
from anyorder.reproduce.uci_data import UCI, Numbers, bundled_numbers
from experiments import tables


def last_json(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_both_tables_at_their_smallest(tmp_path, capsys):
    record, out = tmp_path / "table4.json", ["--out", str(tmp_path)]
    main(["reproduce", "table4", *out, "--record", str(record), "--json"])
    document = last_json(capsys)
    assert {row["model"] for row in document["rows"]} == set(UCI_MODELS)
    assert {row["metric"] for row in document["rows"]} == {
        "first_3_nats", "first_5_nats", "first_10_nats",
        "any_3_nats", "any_5_nats", "any_10_nats", "milliseconds",
    }  # fmt: skip
    assert {row["dataset"] for row in document["rows"]} == {"breast cancer (scikit-learn)"}
    assert document["command"] == "anyorder reproduce table4 --scale tiny --seed 0"
    pairs = {(pair["a"], pair["b"]) for pair in document["paired"]}
    assert {("mac", "ace"), ("path", "mac"), ("mac_mixture", "mac")} <= pairs
    assert "milliseconds" not in {pair["metric"] for pair in document["paired"]}
    assert json.loads(record.read_text())["rows"] == document["rows"]

    trained = tmp_path / "tiny" / "bundled" / "path" / "metrics.jsonl"
    before = trained.read_text()
    main(["reproduce", "table5", *out])  # with the models of table4
    assert trained.read_text() == before
    shown, told = capsys.readouterr()
    assert "Without --data, breast cancer (scikit-learn) replaces the data sets" in told
    assert "conditional" in shown
    assert TOO_SHORT in shown
    assert all(entry.meaning in shown for entry in UCI_MODELS.values())
    assert "paper" not in shown  # nothing is printed there of this table


def test_a_record_becomes_a_table_of_the_documents(monkeypatch):
    rows = [
        {"dataset": "power", "model": model, "metric": metric, "value": 1.25, "se": 0.5}
        for metric in ("first_3_nats", "milliseconds")
        for model in ("mac", "path")
    ]
    pair = {"dataset": "power", "a": "path", "b": "mac", "metric": "first_3_nats"}
    record = {
        "command": "anyorder reproduce table4",
        "commit": "0123456789abcdef",
        "settings": {"power": {"rows": 128, "settings": {"minutes": 5}}},
        "rows": rows,
        "paired": [{**pair, "difference": 0.5, "se": 0.25}],
    }
    monkeypatch.setattr(tables, "record", lambda _: record)
    assert tables.table4().splitlines() == [
        "| | `mac` | `path` |",
        "|---|---|---|",
        "| power: first 3 | 1.25 ± 0.50 | 1.25 ± 0.50 |",
        "| power: ms per row | 1.25 ± 0.50 | 1.25 ± 0.50 |",
        "",
        "| paired difference | `path` - `mac` |",
        "|---|---|",
        "| power: first 3 | +0.50 ± 0.25 |",
        "",
        "Nats, more is better; 128 test rows, 5 minutes of one core each. "
        "From `anyorder reproduce table4` at commit `012345678`.",
    ]


def test_a_public_data_set_has_the_settings_of_ace_and_its_printed_numbers(
    tmp_path, capsys, monkeypatch
):
    rows = np.random.default_rng(0).normal(size=(300, 8))
    (tmp_path / "power").mkdir()
    np.save(tmp_path / "power" / "data.npy", rows)
    command = ["reproduce", "table5", "--data", str(tmp_path), "--models", "mac_mixture", "path"]
    main([*command, "--out", str(tmp_path / "own"), "--json"])
    document = last_json(capsys)
    assert document["command"] == (
        "anyorder reproduce table5 --scale tiny --data DIR --seed 0 --models mac_mixture path"
    )
    assert document["settings"]["power"]["data"]["name"] == "power, own file of 300 rows"
    assert [pair["a"] for pair in document["paired"]] == ["path"]

    whole = Numbers("power", *(torch.randn(40, 6) for _ in range(3)), is_public_test=True)
    monkeypatch.setattr("anyorder.reproduce.tables4_5.read_numbers", lambda *_: whole)
    main([*command, "--out", str(tmp_path / "public"), "--sets", "power"])
    shown = capsys.readouterr().out
    assert "0.65" in shown  # MAC's
    assert max(len(line) for line in shown.splitlines()) <= 120


MISTAKES = {
    "no folder": (["--sets", "power"], "`data` must be the folder into which"),
    "no data for the paper's scale": (["--scale", "paper"], "zenodo.org/record/1161203"),
    "no such set": (["--data", ".", "--sets", "powr"], 'Did you mean "power"?'),
    "not there": (["--data", ".", "--sets", "hepmass"], "put hepmass/1000_train.csv there"),
    "none there": (["--data", "."], "none of power, gas, hepmass, miniboone, bsds"),
    "no such model": (["--models", "mack"], 'Did you mean "mac"?'),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_get_one_sentence(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options, sentence = MISTAKES[name]
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "table4", *options])
    streams = capsys.readouterr()
    assert stopped.value.code == 2
    assert sentence in streams.err
    assert streams.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["table4", "table5"])
def test_the_help_lists_the_models(verb, capsys):
    main(["reproduce", verb, "--help"])
    words = set(re.findall(r"\w+", capsys.readouterr().out))
    assert set(UCI_MODELS) <= words


def test_likelihoods_are_in_the_units_of_the_data(monkeypatch):
    study = UciStudy(None, TINY, None, conditionals)
    model = study.build(UCI_MODELS["mac_mixture"]).eval()
    found = study.measure(model, 0)
    plain, factor = bundled_numbers(), 10.0
    parts = [factor * part for part in (plain.train, plain.valid, plain.test)]
    larger = Numbers("ten times as large", *parts)
    monkeypatch.setattr("anyorder.reproduce.tables4_5.read_numbers", lambda *_: larger)
    (metric,) = set(found) - {MILLISECONDS}
    asked = conditionals(30, TINY.rows, 0)[metric].query.sum(dim=1)
    expected = found[metric].rows - asked * np.log(factor)
    torch.testing.assert_close(study.measure(model, 0)[metric].rows, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "study",
    [UciStudy(None, TINY, None, conditionals), TextStudy(SCALES["tiny"], None, evaluate)],
    ids=["tables", "text"],
)
def test_studies_can_be_sent_to_other_processes(study):
    rows = study.rows().describe()
    sent = pickle.dumps(study)
    assert len(sent) < 10_000  # without the data
    assert pickle.loads(sent) == study
    assert pickle.loads(sent).rows().describe() == rows


def test_models_whose_steps_cost_the_same_are_timed_once():
    text = {_timed_as(name, entry) for name, entry in TextStudy.catalogue.items()}
    assert {"mac", "path", "left_to_right"} <= text
    assert not {"ardm", "a_only", "mac_exact"} & text
    assert all(_timed_as(name, entry) == name for name, entry in UCI_MODELS.items())


def test_held_out_surprise_is_repeatable_and_leaves_energies_exact():
    study, entry = UciStudy(None, TINY, None, conditionals), UCI_MODELS["mac"]
    model = study.build(entry).eval()
    values = []
    for _ in range(2):
        torch.manual_seed(0)  # training seeds the importance samples
        values.append(study.held_out(entry)(model))
    assert values[0] == values[1]
    assert not model.conditionals.training


def test_questions_have_the_sizes_of_the_paper():
    found = marginals(8, 5, 0)
    assert {name: int(q.query.sum()) for name, q in found.items()} == {
        "first_3_nats": 15, "first_5_nats": 25, "first_8_nats": 40,
        "any_3_nats": 15, "any_5_nats": 25,
    }  # fmt: skip
    assert found["first_3_nats"].query[:, :3].all()
    assert not any(question.given.any() for question in found.values())
    given, query = conditionals(8, 5, 0)["conditional_nats"]
    assert torch.equal(given, ~query)


def test_the_papers_scale_is_that_of_ace():
    scale = scale_of("paper", "bsds")
    assert (scale.hidden, scale.energy_hidden, scale.features) == (1024, 128, 64)
    power, small = scale_of("paper", "power"), scale_of("small", "power")
    settings = power.settings
    assert (settings.batch, settings.learning_rate, settings.steps) == (512, 1e-4, 1_600_000)
    assert (power.noise, power.dropout, power.hidden) == (0.005, 0.2, 512)
    assert (small.noise, small.settings.minutes) == (power.noise, 5)
    assert set(RECIPES) == set(UCI) == set(PRINTED4) == set(PRINTED5)


def test_models_that_are_compared_differ_in_their_head_only():
    study = UciStudy(None, TINY, None, conditionals)
    sizes = {
        name: sum(p.numel() for p in study.build(entry).network.parameters())
        for name, entry in UCI_MODELS.items()
    }
    assert sizes["ace"] == sizes["mac"] == sizes["mac_mixture"]


@pytest.mark.parametrize("dataset", UCI)
def test_printed_numbers_are_those_of_questions(dataset):
    columns = {"power": 6, "gas": 8, "hepmass": 21, "miniboone": 43, "bsds": 63}[dataset]
    for asked, printed in ((marginals, PRINTED4), (conditionals, PRINTED5)):
        metrics = set(asked(columns, 2, 0))
        assert all(set(numbers) <= metrics for numbers in printed[dataset].values())
