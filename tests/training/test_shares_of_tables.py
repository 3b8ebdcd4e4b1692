"""Two processes with eight rows of a mixed table each: every weight has a gradient in every step.

DDP waits for the gradient of each weight. Eight rows need not query every kind of column.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from anyorder import TableModel, TrainingSettings
from anyorder.saving.checkpoint import load_model

STEPS, ROWS = 20, 16
QUERIES = [([], "kind", 1), (["kind"], "word", 1), (["word", "size"], "hours", 1), ([], "size", 1)]
"""One column at a time: of eight rows none asks for a certain one in every tenth step."""

SETTINGS = TrainingSettings(steps=STEPS, batch=ROWS, warmup=2)
OPTIONS = {
    "perceptron": {"network": "perceptron", "layers": 1, "width": 8},
    "path": {"network": "path", "layers": 1, "width": 16, "heads": 2},
    "spline": {"network": "perceptron", "layers": 1, "width": 8, "head": "spline"},
    "energy": {"network": "perceptron", "layers": 1, "width": 8, "head": "energy"},
    "plain": {"network": "perceptron", "layers": 1, "width": 8, "prior": False},
}


def table(rows=96):
    """One column of each kind, so that a head has one column, and many gaps."""
    source = np.random.default_rng(5)
    kind = source.integers(0, 3, rows)
    frame = pd.DataFrame({"kind": np.array(["a", "b", "c"])[kind]})
    frame["word"] = [f"w{number}" for number in source.integers(0, 20, rows)]
    frame["hours"] = np.where(source.random(rows) < 0.6, 40.0, source.normal(30, 8, rows).round(3))
    frame["size"] = kind + source.normal(0, 1, rows)
    return frame.mask(source.random(frame.shape) < 0.3)


def fitted(name):
    options = {**OPTIONS[name], "dropout": 0.0, "validation_share": 0.0, "queries": QUERIES}
    return TableModel(**options, settings=SETTINGS).fit(table())


def one_thread():
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """All kinds of models, each trained by two processes under torchrun."""
    folder = tmp_path_factory.mktemp("together")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "tests.training.test_shares_of_tables", str(folder)]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, cwd=root, env=one_thread(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return folder


@pytest.mark.parametrize("name", OPTIONS)
def test_two_processes_of_eight_rows_train_a_mixed_table_like_one(together, name):
    two = load_model(together / name)
    if name == "energy":  # its importance samples are drawn in each process by itself
        return
    alone = fitted(name).model_
    for (place, one), other in zip(alone.named_parameters(), two.parameters(), strict=True):
        assert torch.allclose(one, other, atol=2e-3), place


if __name__ == "__main__":
    for name in OPTIONS:
        model = fitted(name)
        if os.environ["RANK"] == "0":
            model.save(Path(sys.argv[1]) / name)
