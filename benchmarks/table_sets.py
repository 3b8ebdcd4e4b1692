"""The tables that table models are measured on, as training and test frames.

A folder DIR holds them in the formats of the public archives: `debd/NAME/NAME.train.data` and so
on, `tables/adult-train.csv`, `tables/adult-test.csv` (no header, "?" for gaps) and
`tables/diamonds.csv`, of which a random tenth is the test.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from anyorder.data.frames import read_table
from anyorder.errors import ConfigError, check_choice

BINARY = ("nltcs", "plants", "jester")
MORE_BINARY = ("baudio", "accidents", "dna")
MIXED = ("adult", "diamonds")
SETS = (*BINARY, *MORE_BINARY, *MIXED)

ADULT = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
]


class TableSet(NamedTuple):
    """Rows to fit, and rows to be measured on once."""

    train: pd.DataFrame
    test: pd.DataFrame


def load_set(data: Path, name: str) -> TableSet:
    """One of `SETS` from the folder of the data."""
    check_choice("sets", name, SETS)
    if name == "adult":
        return TableSet(_adult(data, "train"), _adult(data, "test"))
    if name == "diamonds":
        frame = read_table(_file(data / "tables" / "diamonds.csv"))
        test = frame.sample(frac=0.1, random_state=0)
        return TableSet(frame.drop(index=test.index), test)
    return TableSet(_binary(data, name, "train"), _binary(data, name, "test"))


def _binary(data: Path, name: str, part: str) -> pd.DataFrame:
    path = _file(data / "debd" / name / f"{name}.{part}.data")
    values = np.loadtxt(path, delimiter=",", dtype=np.int8).astype(bool)
    return pd.DataFrame(values, columns=[f"v{i}" for i in range(values.shape[1])])


def _adult(data: Path, part: str) -> pd.DataFrame:
    path = _file(data / "tables" / f"adult-{part}.csv")
    options: dict[str, Any] = {"names": ADULT, "skipinitialspace": True, "na_values": ["?"]}
    frame = pd.read_csv(path, comment="|", **options)
    frame["income"] = frame.income.str.rstrip(".")
    return frame


def _file(path: Path) -> Path:
    if not path.exists():
        raise ConfigError(
            f'There is no "{path}". The binary sets are the public "debd" benchmarks, adult is in '
            "the UCI archive, diamonds comes with ggplot2 and seaborn."
        )
    return path
