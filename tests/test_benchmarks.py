"""The benchmarks measure what they say, at a size that takes no time."""

import json

import torch

from anyorder import RemoveGreatest, UniformCardinality, lexicographic
from anyorder.enumeration import all_sets, edge_law, node_law, set_index
from benchmarks import queries
from benchmarks.mask_sampling import measure, papers_way


def test_mask_sampling_compares_the_same_law(generator):
    masks = torch.cat([papers_way(200, 4, generator) for _ in range(20)])
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
