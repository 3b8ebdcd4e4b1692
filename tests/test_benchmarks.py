"""The benchmarks measure what they say, at a size that takes no time."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from anyorder import ConfigError, RemoveGreatest, UniformCardinality, lexicographic
from anyorder.lattice.enumeration import all_sets, edge_law, node_law, set_index
from anyorder.reproduce.record import Paired, Record, Row
from anyorder.reproduce.table7 import papers_sampler
from anyorder.tables.ensemble import TableMixture
from anyorder.tables.model import TableModel
from benchmarks import (
    images,
    large_fit,
    queries,
    robot,
    serve,
    table_networks,
    table_variants,
    tables_default,
    tables_speed,
)
from benchmarks.mask_sampling import measure
from benchmarks.table_sets import load_set
from experiments import (
    calibration,
    contest_picture,
    query_law_matrix,
    records,
    table_orders,
    table_results,
    text_orders,
    variants,
)
from experiments import (
    tables as result_tables,
)


def test_mask_sampling_compares_the_same_law(generator):
    masks = torch.cat([papers_sampler(200, 4, generator) for _ in range(20)])
    nodes = node_law(
        edge_law(UniformCardinality(4), RemoveGreatest(lexicographic(4)), reweight=True)
    )
    shares = torch.bincount(set_index(masks), minlength=len(all_sets(4))) / len(masks)
    # 4000 draws: a share's standard error is at most 0.008, and its bias is below that
    torch.testing.assert_close(shares.double(), nodes, atol=0.035, rtol=0)


def test_mask_sampling_reports_its_keys():
    result = measure(8, 40, rounds=2, seed=0)
    assert {"speedup", "memory_ratio", "over_floor"} <= set(result)
    assert result["speedup"] > 1
    assert result["memory_ratio"] > 1


def test_decisions_of_policies_are_timed(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(robot, "DECISIONS", 2)
    small = robot.policies
    monkeypatch.setattr(robot, "policies", lambda p, _: small(p, {"hidden": 8, "blocks": 1}))
    robot.main(rounds=2, json=True, record=tmp_path / "robot.json")
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {
        f"{prefix}{name}"
        for prefix in ("", "paper_")
        for name in ("fill", "full", "masked", "cloning", "fill_ratio", "masked_ratio")
    }
    assert found["full"] > found["cloning"] > 0
    assert len(json.loads((tmp_path / "robot.json").read_text())["rows"]) == len(found)


def test_images_measure_every_ratio_they_name(monkeypatch, capsys, tmp_path):
    shapes = {
        "PATH": {"layers": 1, "width": 16, "heads": 2},
        "UNET": {"down": 1, "middle": 1, "width": 16},
        "SIDE": 8,
    }
    for name, value in shapes.items():
        monkeypatch.setattr(images, name, value)
    record = tmp_path / "images.json"
    images.main(rounds=2, json=True, record=record)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(found[name] > 0 for name in images.BENCHMARKS)
    assert found["log_prob_vs_loop"] > 1
    assert json.loads(record.read_text())["settings"]["side"] == 8


def test_serve_loads_a_server_and_reports_its_keys(monkeypatch, capsys, tmp_path):
    tiny = partial(serve.fitted, layers=1, width=16, heads=2)
    monkeypatch.setattr(serve, "fitted", tiny)
    serve.main(clients=3, seconds=0.6, json=True, record=tmp_path / "serve.json")
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"p50_ms", "p50_ms_3", "p99_ms_3", "requests_per_s", "rss_growth"} <= set(found)
    assert found["errors"] == 0
    assert found["p50_ms"] > 0
    assert 0.5 < found["rss_growth"] < 2
    assert len(json.loads((tmp_path / "serve.json").read_text())["rows"]) == len(found)


def test_queries_measure_every_ratio_they_name(monkeypatch, capsys, tmp_path):
    for name, value in {"LAYERS": 1, "WIDTH": 16, "HEADS": 2, "N": 70, "ROWS": 2}.items():
        monkeypatch.setattr(queries, name, value)
    record = tmp_path / "queries.json"
    queries.main(rounds=2, json=True, record=record)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(queries.BENCHMARKS) <= set(found)
    assert all(found[name] > 0 for name in queries.BENCHMARKS)
    assert found["log_prob_vs_loop"] > 1
    assert json.loads(record.read_text())["settings"]["N"] == 70


def test_growth_is_written_and_drawn(monkeypatch, tmp_path):
    for name, value in {"LAYERS": 1, "WIDTH": 16, "HEADS": 2}.items():
        monkeypatch.setattr(queries, name, value)
    queries.growth(out=tmp_path / "growth.png", lengths=[4, 8])
    lines = (tmp_path / "growth.csv").read_text().splitlines()
    assert lines[0] == "network,N,seconds,peak_bytes"
    assert len(lines) == 5
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


QUICK = partial(TableModel, max_steps=2, layers=1, width=8, heads=2)


@pytest.fixture
def data(tmp_path):
    """Small made-up tables in the formats of the archives."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "debd" / "nltcs"
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        np.savetxt(folder / f"nltcs.{part}.data", rng.integers(0, 2, (60, 3)), "%d", ",")
    (tmp_path / "tables").mkdir()
    row = "{0}, Private, {0}, HS-grad, {0}, Wed, {2}, Own, White, Male, {0}, {0}, {0}, Cuba, {1}\n"
    for part, end in (("train", ""), ("test", ".")):
        lines = [row.format(i, ("<=50K", ">50K")[i % 2] + end, "?x"[i % 2]) for i in range(60)]
        (tmp_path / "tables" / f"adult-{part}.csv").write_text("".join(lines))
    return tmp_path


def test_default_tables_are_scored_beside_others(data, monkeypatch, capsys):
    monkeypatch.setattr(tables_default, "TableModel", QUICK)
    record = data / "record.json"
    tables_default.measure(data=data, sets=["nltcs", "adult"], json=True, record=record)
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    found = {(r["dataset"], r["model"], r["metric"]) for r in rows}
    assert ("nltcs", "TableModel", "joint_nats") in found
    assert ("nltcs", "TabularARGN", "joint_nats") in found
    assert ("adult", "HistGradientBoosting", "income_log_loss") in found
    with pytest.raises(ConfigError, match="diamonds"):
        tables_default.measure(data=data, sets=["diamonds"])
    with pytest.raises(ConfigError, match="`sets` must be one of"):
        tables_default.measure(data=data, sets=["iris"])


VARIANTS = {
    "networks": (table_networks, ("perceptron", "path", "path_one_stream", "mlp")),
    "orders": (
        table_orders,
        ("natural", "complete", "dependence", "learned", "learned_on_top", "mixture", "members"),
    ),
    "laws": (query_law_matrix, ("any", "joint", "marginal", "conditional", "partial", "last")),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_are_compared_row_by_row(name, data, monkeypatch, capsys):
    module, variants = VARIANTS[name]
    monkeypatch.setattr(table_variants, "TableModel", QUICK)
    module.measure(data=data, sets=["adult"], rows=20)
    assert "minus the first" in capsys.readouterr().out
    module.measure(data=data, sets=["adult"], rows=20, json=True)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(variants) <= {row["model"] for row in found["rows"]}
    assert all(row["n"] == 20 for row in found["rows"])
    pairs = {(pair["a"], pair["b"], pair["metric"]) for pair in found["paired"]}
    assert (variants[-1], variants[0], "conditional_nats") in pairs
    module.measure(data=data, sets=["adult"], rows=20, only=[*variants[1:3]], json=True)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {row["model"] for row in found["rows"]} == {*variants[1:3]}
    assert f"--only {variants[1]} {variants[2]} --minutes 2 --rows 20" in found["command"]
    with pytest.raises(ConfigError, match="`only` must be one of"):
        module.measure(data=data, sets=["adult"], only=["none"])


def test_questions_do_not_depend_on_the_order_of_the_model(data, monkeypatch):
    monkeypatch.setattr(table_variants, "TableModel", QUICK)
    asked = []

    def kept(model, x, query, given):
        asked.append((model.schema.names, query, given))
        return torch.zeros(len(x))

    monkeypatch.setattr(table_variants, "row_log_prob", kept)
    table = load_set(data, "adult")
    for order in (None, list(table.train.columns)[::-1]):
        table_variants.scores(table, {"order": order}, table_networks.questions, 1, 20)
    for (names, query, given), (other, query_, given_) in zip(asked[:2], asked[2:], strict=True):
        place = torch.tensor([other.index(name) for name in names])
        assert torch.equal(query, query_[:, place])
        assert torch.equal(given, given_[:, place])


def test_a_mixture_of_variants_is_the_mixture_of_tables(data):
    table = load_set(data, "adult")
    columns = list(table.train.columns)
    models = [QUICK(order=order).fit(table.train) for order in (None, columns[::-1])]
    test = table.test.dropna().iloc[:5]
    given = torch.tensor([name in ("age", "sex") for name in columns]).expand(5, -1)
    both, one = (
        table_variants._mixed(chosen, test, columns, ~given, given)
        for chosen in (models, models[:1])
    )
    whole = TableMixture(models).log_prob(test, given=["age", "sex"])
    part = models[0].log_prob(test, given=["age", "sex"])
    np.testing.assert_allclose(both - one, whole - part, atol=1e-4)  # the units are the same


def test_table_speeds_are_measured(monkeypatch, capsys):
    monkeypatch.setattr(tables_speed, "TableModel", QUICK)
    monkeypatch.setattr(tables_speed, "CHUNK", 64)
    few = {name: partial(getattr(tables_speed, name), 40) for name in ("binary", "mixed")}
    for name, make in few.items():
        monkeypatch.setattr(tables_speed, name, lambda _, make=make: make())
    tables_speed.measure(rounds=1, parquet_rows=150, json=True)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["cells_per_second_binary"] > 0
    assert found["conditional_vs_energy"] > 0
    assert found["parquet_peak_megabytes"] > 10


def test_the_memory_of_a_large_fit_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(large_fit, "TableModel", lambda **_: QUICK())
    monkeypatch.setattr(large_fit, "CHUNK", 64)
    large_fit.measure(rows=150, columns=3, json=True)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["rows"] == 150
    assert found["peak_megabytes"] >= found["before_megabytes"] > 10


def test_calibration_is_measured_by_how_much_is_given(data, monkeypatch, capsys):
    monkeypatch.setattr(calibration, "TableModel", QUICK)
    calibration.measure(data=data, sets=["adult"], rows=30, json=True)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    shares = [row for row in found["rows"] if row["metric"] == "coverage_90"]
    assert {"nothing", "half", "three quarters"} <= {row["model"] for row in shares}
    assert all(0 <= row["value"] <= 1 for row in shares)
    assert {"path", "ratio"} <= {r["model"] for r in found["rows"] if r["metric"] == "gap_nats"}
    calibration.measure(data=data, sets=["adult"], rows=30)
    assert "coverage_90" in capsys.readouterr().out


def test_variants_become_tables_and_pictures(data, monkeypatch, tmp_path):
    monkeypatch.setattr(table_variants, "TableModel", QUICK)
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    for module, name in ((query_law_matrix, "query_laws"), (table_orders, "table_orders")):
        options = {"rows": 20, "only": ["any", "joint"] if name == "query_laws" else None}
        module.measure(data=data, sets=["adult"], record=tmp_path / f"{name}.adult.json", **options)
    text = tmp_path / "text8"
    text.write_text("the cat sat on the mat " * 200)
    text_orders.measure(
        data=text, length=6, steps=4, rows=8, record=tmp_path / "text_orders.text8.json"
    )
    names = {row["model"] for row in variants.records("text_orders")[0]["rows"]}
    assert {"along", "strided_2", "learned", "learned_blind", "random_0"} <= names
    lines = variants.variant_table("query_laws").splitlines()
    assert lines[0].startswith("| adult | joint | marginal |")
    assert lines[3].count("±") == 5  # joint, as differences from any
    assert "experiments.query_law_matrix" in lines[-1]
    monkeypatch.setattr(variants, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    variants.main()
    assert all((tmp_path / "docs" / name).stat().st_size for name in variants.PICTURES.values())


def test_contests_become_tables(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    rows = [
        Row("wine", "TableModel", "joint_nats", -9.0, 0.25, 4),
        Row("wine", "TableModel", "fit_seconds", 1234.5),
        Row("wine", "forest", "joint_nats", -10.0, 0.5, 4),
    ]
    paired = [Paired("wine", "TableModel", "forest", "joint_nats", 1.0, 0.125)]
    settings = {"not_measured": {"wine": {"trees": "stopped after 8 minutes"}}}
    Record("contest", settings, rows, paired).save(tmp_path / "tables.wine.json")
    _, _, ours, theirs, *rest = table_results.contest().splitlines()
    assert "Not all was measured: `trees` stopped after 8 minutes." in rest
    assert ours == "| `TableModel` | -9.000 ± 0.250 | 1,234 |"
    assert theirs == "| `forest` | -10.000 (+1.000 ± 0.125) |  |"


def test_contests_are_summed_up_by_the_best_rivals(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    values = {"TableModel": -9.0, "one_minute": -9.5, "joint_alone": -8.5, "spflow": -10.0}
    values["gaussian_mixture"] = -9.25
    rows = [Row("wine", model, "joint_nats", value, 0.25, 4) for model, value in values.items()]
    paired = [
        Paired("wine", a, b, metric, values[a] - values[b], 0.125)
        for a in ("TableModel", "one_minute", "joint_alone")
        for b in values
        for metric in ("joint_nats", "conditional_nats")
    ]
    rows += [Row("wine", "TableModel", "nrmse", 0.5, 0.01, 4), Row("wine", "spflow", "nrmse", 0.4)]
    paired.append(Paired("wine", "TableModel", "spflow", "nrmse", 0.1, 0.02))
    seconds = {"TableModel": 420, "one_minute": 70, "gaussian_mixture": 2, "spflow": 9}
    rows += [Row("wine", model, "fit_seconds", value) for model, value in seconds.items()]
    Record("contest", {}, rows, paired).save(tmp_path / "tables.wine.json")
    line = table_results.contest_summary().splitlines()[-1]
    better, worse = "+0.250 ± 0.125, Gaussian mixture", "+0.100 ± 0.020, SPFlow"
    assert line == f"| wine | -9.000 ({better}) | 0.500 ({worse}) | 420 (Gaussian mixture: 2) |"
    assert [match.gain for match in table_results.matches()] == [2.0, pytest.approx(-5.0)]
    assert "-9.500 (-0.250" in table_results.contest_one_minute()
    monkeypatch.setattr(contest_picture, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    contest_picture.main()
    assert (tmp_path / "docs" / "rivals.png").stat().st_size
    left, right = contest_picture.draw().axes
    assert left.containers[0].lines[0].get_xdata().tolist() == [0.25]
    assert right.containers[0].lines[0].get_xdata().tolist() == [pytest.approx(-25.0)]
    cost = table_results.any_order_cost().splitlines()[-1]
    assert cost.startswith("| wine | -9.000 ± 0.250 | -8.500 ± 0.250 | -0.500 ± 0.125 |")


def test_calibration_becomes_a_table(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    rows = [
        Row("adult", "half", "coverage_90", 0.91, 0.01, 9),
        Row("adult", "half", "off", 0.02, n=9),
    ]
    Record("calibration", {}, rows).save(tmp_path / "calibration.json")
    title, _, covered, off, *_ = table_results.calibration().splitlines()
    assert "half given" in title
    assert "0.910 ± 0.010" in covered
    assert off.endswith("| 0.020 |")


def test_images_become_a_table(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    rows = [Row("digits", model, "joint_bits", 2.5, 0.01, 9) for model in ("ardm", "mac")]
    paired = [Paired("digits", "mac", "ardm", "joint_bits", -0.0625, 0.005)]
    settings = {"digits": {"rows": 9, "settings": {"minutes": 20}}}
    Record("reproduce table3", settings, rows, paired).save(tmp_path / "table3.small.json")
    found = result_tables.table3()
    assert "| digits: joint | 2.500 ± 0.010 | 2.500 ± 0.010 |" in found
    assert "| digits: joint | -0.062 ± 0.005 |" in found
    assert "9 test images, 20 minutes of one core each. From `reproduce table3`" in found
    Record("reproduce table3", settings, rows, paired).save(tmp_path / "table3.mnist.json")
    nats = result_tables.table3_mnist()  # a bit of each of 784 pixels is 543.43 nats
    assert "| digits: joint | -1358.57 ± 5.43 | -1358.57 ± 5.43 |" in nats
    assert "| digits: joint | +33.96 ± 2.72 |" in nats
