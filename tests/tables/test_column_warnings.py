"""Columns that would ruin a model get one sentence each, and others none."""

import shlex

import numpy as np
import pandas as pd
import pytest

from anyorder.tables.advice import column_warnings, remedy
from anyorder.tables.questions import read_types
from anyorder.tables.schema import TableSchema

ROWS = 200
DAYS = pd.date_range("2024-01-01", periods=ROWS)
DOUBTED = {
    "id": ([f"k{i}" for i in range(ROWS)], "differs in every row: leave it out with --types c"),
    "nearly an id": ([f"k{max(i, 9)}" for i in range(ROWS)], "differs in nearly every row"),
    "running number": (range(5, 5 + ROWS), "numbers the rows"),
    "short years": (DAYS.strftime("%d.%m.%y"), "looks like dates (01.01.24)"),
    "no order": (DAYS.strftime("%d.%m/%Y"), "write them as 2024-12-31"),
    "days or months": (
        [f"{1 + i % 12:02d}/{1 + i % 11:02d}/2024" for i in range(ROWS)],
        "give --types c=dmy if the day comes first, --types c=mdy if the month does",
    ),
    "decimal commas": ([f"17{i % 10},{i % 7}" for i in range(ROWS)], "numbers with commas (170,0)"),
    "thousands": ([f"{1 + i % 50},500" for i in range(ROWS)], "thousands without a comma"),
    "nearly empty": ([1.5, 2.5, 3.5] + [None] * (ROWS - 3), "is observed in 3 of 200 rows"),
    "constant text": (["Earth"] * ROWS, "is Earth wherever it is observed"),
    "constant number": ([7] * ROWS, "is 7 wherever it is observed"),
    "constant flag": ([True] * (ROWS - 1) + [None], "is True wherever it is observed"),
    "rare levels": ([f"k{i // 2}" for i in range(ROWS)], "has 100 levels in 200 rows"),
}


def found(frame):
    return [warning.sentence for warning in column_warnings(frame, TableSchema.infer(frame))]


@pytest.mark.parametrize("name", DOUBTED)
def test_what_is_doubted(name):
    values, sentence = DOUBTED[name]
    (warning,) = found(pd.DataFrame({"c": list(values), "other": np.arange(ROWS) % 3}))
    assert warning.startswith('"c" ')
    assert sentence in warning


def test_few_rows_and_a_name_with_a_space():
    rows, key = found(pd.DataFrame({"Kunden ID": [f"k{i}" for i in range(20)]}))
    assert rows.startswith("20 rows are too few")
    assert key.endswith('--types "Kunden ID=ignore"')


def test_ordinary_columns_are_not_doubted():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "mass": rng.normal(size=ROWS),
            "count": rng.integers(0, 10**6, ROWS),
            "year": 2007 + np.arange(ROWS) % 3,
            "island": rng.choice(["Biscoe", "Dream", None], ROWS),
            "country": [f"country {i % 40}" for i in range(ROWS)],
            "flag": rng.random(ROWS) < 0.5,
            "day": DAYS,
            "sparse": [1.5, 2.5, None, None] * (ROWS // 4),
        }
    )
    assert found(frame) == []
    penguins = pytest.importorskip("palmerpenguins").load_penguins()
    assert found(penguins) == []


def test_the_way_out_is_one_flag_that_can_be_typed():
    frame = pd.DataFrame({"Kunden ID": [f"k{i}" for i in range(60)], "zip": ["a", "b", "c"] * 20})
    frame = frame.assign(planet="Earth", key=[f"x{i // 2}" for i in range(60)])
    declared = {"zip": "category"}
    said = remedy(list(column_warnings(frame, TableSchema.infer(frame, types=declared))), declared)
    flag = "'zip=category,\"Kunden ID\"=ignore,planet=ignore'"
    assert said == (
        f"To leave them out, press Ctrl-C, and give the same command with --types {flag} "
        "--overwrite"
    )
    assert read_types(shlex.split(flag)[0]) == {
        "zip": "category",
        "Kunden ID": "ignore",
        "planet": "ignore",
    }
    assert (
        remedy(list(column_warnings(frame[["zip"]], TableSchema.infer(frame[["zip"]]))), {}) is None
    )
