"""Several workers write what one process writes, even if one of them dies."""

import os
import signal

import distributed
import numpy as np
import pandas as pd
import pytest

import anyorder
from anyorder.cli.app import main
from anyorder.errors import ConfigError
from anyorder.tables import cli as table
from anyorder.tables.scoring import Completion, Scoring, in_order, parts, worker_pool

ROWS = 600


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run, and a table with gaps as a .csv and as a .parquet file."""
    place = tmp_path_factory.mktemp("scale")
    rng = np.random.default_rng(0)
    age = rng.integers(18, 80, ROWS)
    income = np.exp(9 + age / 40 + rng.normal(0, 0.3, ROWS)).round(2)
    frame = pd.DataFrame({"age": age, "income": income, "job": rng.choice(["a", "b"], ROWS)})
    model = anyorder.TableModel(layers=1, width=16, heads=2, max_steps=5).fit(frame)
    model.save(place / "run")
    gappy = frame.astype({"age": "float64"}).mask(rng.random(frame.shape) < 0.3)
    gappy.loc[0, "age"] = 41.0  # a file whose first row is empty has one row less
    gappy.to_csv(place / "gaps.csv", index=False)
    gappy.to_parquet(place / "gaps.parquet")
    return place


@pytest.fixture(scope="module")
def cluster():
    options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(n_workers=2, processes=True, **options) as local:
        yield local


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_two_workers_write_what_one_process_writes(folder, cluster, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(table, "ROWS_AT_ONCE", 100)
    address = cluster.scheduler_address
    for verb, options in (("score", []), ("impute", ["--seed", "3"])):
        command = [verb, str(folder / "run"), str(folder / f"gaps.{kind}"), *options]
        alone, together = (tmp_path / f"{name}.{kind}" for name in ("alone", "together"))
        main([*command, "--out", str(alone)])
        main([*command, "--out", str(together), "--cluster", address])
        read = pd.read_csv if kind == "csv" else pd.read_parquet
        pd.testing.assert_frame_equal(read(alone), read(together))
    assert len(read(alone)) == ROWS


def test_scores_are_those_of_the_model(folder, tmp_path):
    gaps, out = folder / "gaps.parquet", tmp_path / "scores.parquet"
    main(["score", str(folder / "run"), str(gaps), "--given", "age", "--out", str(out)])
    found = pd.read_parquet(out)
    own = anyorder.load(folder / "run").log_prob(pd.read_parquet(gaps), given="age")
    np.testing.assert_allclose(found["log_prob"], own, rtol=1e-5, atol=1e-5)
    assert found["row"].tolist() == list(range(ROWS))


def test_a_worker_that_dies_is_made_up_for(folder, cluster):
    run = str(folder / "run")
    model = anyorder.load(run)
    for work in (Scoring(run, None, None), Completion(run, 1, "sample")):
        read = list(parts(model.table_, folder / "gaps.csv", rows=50, seed=1))
        expected = [work(part) for part in read]
        with distributed.Client(cluster) as client:
            results = in_order(client, work, read, ahead=6)
            found = [next(results)]
            victim = next(iter(client.run(os.getpid).values()))
            os.kill(victim, signal.SIGKILL)
            found += list(results)
        for one, other in zip(expected, found, strict=True):
            one, other = (part if isinstance(part, tuple) else (part, 0) for part in (one, other))
            pd.testing.assert_frame_equal(one[0], other[0])
            assert one[1] == other[1]


def test_mistakes_come_back_as_sentences(folder, cluster, tmp_path, capsys):
    (tmp_path / "odd.csv").write_text("age,job\n41,pilot\n")
    command = ["impute", str(folder / "run"), str(tmp_path / "odd.csv"), "--out", "x.csv"]
    with pytest.raises(SystemExit):
        main([*command, "--cluster", cluster.scheduler_address])
    assert "levels seen in training; got 'pilot'" in capsys.readouterr().err
    with (
        pytest.raises(ConfigError, match="`workers` must be a whole number"),
        worker_pool(workers=0),
    ):
        pass


def test_without_the_extra_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with (
        pytest.raises(ConfigError, match=r"pip install \"anyorder\[scale\]\""),
        worker_pool(workers=2),
    ):
        pass


@pytest.mark.parametrize("address", ["garbage", "foo://x", "tcp://127.0.0.1:1"])
def test_a_cluster_that_is_not_there_is_one_sentence(address, monkeypatch):
    monkeypatch.setattr("anyorder.tables.scoring.PATIENCE", 0.2)
    with (
        pytest.raises(ConfigError, match="address of a Dask scheduler that runs; got"),
        worker_pool(cluster=address),
    ):
        pass
