"""Data sets of the table benchmarks, as training and test frames.

A folder DIR holds them in the formats of the public archives: `debd/NAME/NAME.train.data` and so
on, `tables/adult-train.csv`, `tables/adult-test.csv` (no header, "?" for missing values),
`tables/diamonds.csv`, `tables/penguins.csv`, `tables/abalone.csv`, `tables/winequality-red.csv` and
`-white.csv` (as the UCI archive has them, with or without a header), and the files of
`anyorder.reproduce.uci_data`. A random tenth is the test set of tables without a public split.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from anyorder.errors import ConfigError, check_choice
from anyorder.reproduce.uci_data import load_uci
from anyorder.tables.files import read_table

BINARY = ("nltcs", "plants", "jester")
MORE_BINARY = ("baudio", "accidents", "dna", "bbc", "moviereview")
MIXED = ("adult", "diamonds")
MORE_MIXED = ("abalone", "wine")
SMALL = ("penguins",)
NUMBERS = ("power", "miniboone", "bsds")
SETS = (*BINARY, *MORE_BINARY, *MIXED, *MORE_MIXED, *SMALL, *NUMBERS)

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
ABALONE = [
    "sex",
    "length",
    "diameter",
    "height",
    "whole_weight",
    "shucked_weight",
    "viscera_weight",
    "shell_weight",
    "rings",
]
WINE = [
    "fixed_acidity",
    "volatile_acidity",
    "citric_acid",
    "residual_sugar",
    "chlorides",
    "free_sulfur_dioxide",
    "total_sulfur_dioxide",
    "density",
    "ph",
    "sulphates",
    "alcohol",
    "quality",
]


class TableSet(NamedTuple):
    """Training and test rows."""

    train: pd.DataFrame
    test: pd.DataFrame


def load_set(data: Path, name: str) -> TableSet:
    """Reads one of `SETS` from the folder of the data."""
    check_choice("sets", name, SETS)
    if name == "adult":
        return TableSet(_adult(data, "train"), _adult(data, "test"))
    if name in ("diamonds", *SMALL):
        return _tenth(read_table(_file(data / "tables" / f"{name}.csv")))
    if name == "abalone":
        return _tenth(_plain(data / "tables" / "abalone.csv", ABALONE))
    if name == "wine":
        return _tenth(_wine(data))
    if name in NUMBERS:
        return _numbers(data, name)
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


def _tenth(frame: pd.DataFrame) -> TableSet:
    test = frame.sample(frac=0.1, random_state=0)
    return TableSet(frame.drop(index=test.index), test)


def _wine(data: Path) -> pd.DataFrame:
    """Reads both kinds as one table with a column of their color."""
    parts = []
    for color in ("red", "white"):
        part = _plain(data / "tables" / f"winequality-{color}.csv", WINE)
        parts.append(part.assign(color=color))
    return pd.concat(parts, ignore_index=True)


def _plain(path: Path, names: list[str]) -> pd.DataFrame:
    """Reads a file with commas or semicolons, with or without a header."""
    with _file(path).open() as lines:
        first = lines.readline()
    separator = ";" if ";" in first else ","
    has_names = not any(_is_number(cell) for cell in first.split(separator))
    return pd.read_csv(path, sep=separator, names=names, skiprows=int(has_names))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(data: Path, name: str) -> TableSet:
    """Reads a UCI data set; its validation rows become training rows."""
    found = load_uci(name, data)
    names = [f"v{i}" for i in range(found.train.shape[1])]
    train = np.concatenate([found.train.numpy(), found.valid.numpy()]).astype(np.float64)
    test = found.test.numpy().astype(np.float64)
    return TableSet(pd.DataFrame(train, columns=names), pd.DataFrame(test, columns=names))


def _file(path: Path) -> Path:
    if not path.exists():
        raise ConfigError(
            f'There is no "{path}". The binary sets are the public "debd" benchmarks, adult, '
            "abalone and wine quality are in the UCI archive, diamonds comes with ggplot2; the "
            "docstring of benchmarks/table_sets.py describes the folder."
        )
    return path
