"""What a table model refuses, and says so: other columns, weights and names that are none."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from anyorder import AnyOrderError, CheckpointError, ConfigError, QueryError, Rows, TableModel

SAVED = Path(__file__).parents[1] / "saved_runs" / "0.1.0"


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame({"age": [41.0, 30, 22, 58] * 8, "job": ["nurse", "clerk"] * 16})


@pytest.fixture(scope="module")
def model(frame):
    return TableModel(max_steps=2, layers=1, width=8, heads=2).fit(frame)


def test_a_warm_start_with_other_columns(frame):
    warm = TableModel(max_steps=2, layers=1, width=8, heads=2, warm_start=True).fit(frame)
    with pytest.raises(ConfigError, match="columns"):
        warm.fit(frame.rename(columns={"age": "years"}))


def test_weights_that_are_no_numbers(frame):
    with pytest.raises(AnyOrderError, match="sample_weight"):
        TableModel(max_steps=2).fit(frame, sample_weight=["heavy"] * len(frame))


def test_names_that_are_no_list(model, frame):
    with pytest.raises(QueryError):
        model.log_prob(frame, query=5)


def test_a_folder_of_another_domain():
    with pytest.raises(CheckpointError, match="table"):
        TableModel.load(SAVED / "text")


def test_training_on_no_rows():
    with pytest.raises(ConfigError, match="row"):
        Rows(torch.zeros(0, 2))
