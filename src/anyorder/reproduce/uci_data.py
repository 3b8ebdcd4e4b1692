"""Five UCI data sets on which density estimators are compared, as MAF prepares them.

The files are those of Papamakarios et al. (2017), whose columns, noise, scales and splits all later
papers share. Other files are read the same way, and their names in tables say so.

Reference: Papamakarios, Pavlakou and Murray (2017), Masked Autoregressive Flow, appendix D.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.errors import ConfigError, SchemaError, check_choice

ARCHIVE = "https://zenodo.org/record/1161203"

Array = NDArray[np.float64]
Parts = tuple[Array, Array, Array]
"""Training, validation and test rows."""

HELD_OUT = 0.1
"""Share of the test rows; and of the remaining rows, that of the validation rows."""

MAF_SEED = 42
"""Seed of the order and the noise of MAF's power, with numpy's legacy generator."""

ALIKE = 0.98
"""Correlation above which one of two gas sensors is dropped."""

FEW_REPEATS = 5
"""Largest number of repeats of the minimum of a continuous feature."""

GAS_TIMES_AND_DOSES = ("Time", "Meth", "Eth")
"""First columns of MAF's gas table, before the sensor readings."""

GAS_SHARE = 4
"""MAF keeps a random quarter of the rows of gas."""

OUTLIER = -100.0
"""Lowest first feature of a measured signal event of miniboone."""

MINIBOONE_TEST = 3_648
"""Number of test rows of the public miniboone."""


@dataclass(frozen=True)
class Numbers:
    """Training, validation and test rows of a data set of numbers.

    The name tells if the file is not the public one; `is_public_test` is True for the test rows of
    published results. Shapes ``(rows, columns)``.
    """

    name: str
    train: Tensor
    valid: Tensor
    test: Tensor
    is_public_test: bool = False


def load_uci(dataset: str, folder: str | Path) -> Numbers:
    """Reads one of `UCI` from the folder into which MAF's archive was unpacked."""
    check_choice("dataset", dataset, UCI)
    place = _place(dataset, Path(folder))
    if dataset == "miniboone" and not _has_train(place):
        return _miniboone_without_train(place)
    parts = UCI[dataset].read(place)
    rows = sum(map(len, parts))
    is_public = rows == UCI[dataset].rows and not _is_raw_gas(place)
    name = dataset if is_public else f"{dataset}, own file of {rows:,} rows"
    return _numbers(name, parts, is_public_test=is_public)


def found_uci(folder: str | Path) -> list[str]:
    """Returns the names of the data sets that a folder holds."""
    return [name for name in UCI if _folder(name, Path(folder)) is not None]


def bundled_numbers() -> Numbers:
    """Returns a small table that ships with scikit-learn: 30 measurements of 569 tumours."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer().data
    order = np.random.default_rng(0).permutation(len(data))
    return _numbers("breast cancer (scikit-learn)", _standardised(_split(data[order])))


@dataclass(frozen=True)
class Source:
    """Folder of a data set in the archive, alternative files, number of rows, and reader."""

    folder: str
    files: tuple[str, ...]
    rows: int
    read: Callable[[Path], Parts]


def _place(dataset: str, folder: Path) -> Path:
    """Returns the folder of a data set, or raises with the files that it needs."""
    found = _folder(dataset, folder)
    if found is not None:
        return found
    source = UCI[dataset]
    if (folder / "gas" / "ethylene_CO.pickle").exists() and dataset == "gas":
        raise ConfigError(
            f'"{folder / "gas" / "ethylene_CO.pickle"}" is not read, because opening a pickle can '
            "run any code. Export it where you trust it, with "
            'pandas.read_pickle("ethylene_CO.pickle").to_csv("ethylene_CO.csv", index=False), or '
            "put ethylene_CO.txt of the UCI archive beside it."
        )
    files = " or ".join(f"{source.folder}/{name}" for name in source.files)
    raise ConfigError(
        f'There is no {dataset} in "{folder}": put {files} there. '
        f"It comes from {ARCHIVE} (data.tar.gz)."
    )


def _folder(dataset: str, folder: Path) -> Path | None:
    source = UCI[dataset]
    for place in (folder / source.folder, folder / "data" / source.folder):
        if any((place / name).exists() for name in source.files):
            return place
    return None


def _has_train(place: Path) -> bool:
    return any((place / name).exists() for name in ("data.npy", "MiniBooNE_PID.txt"))


def _is_raw_gas(place: Path) -> bool:
    """Returns True if only the raw file of gas is there, of which MAF sampled a quarter."""
    exports = ("ethylene_CO.csv", "ethylene_CO.npy")
    is_there = (place / "ethylene_CO.txt").exists()
    return is_there and not any((place / name).exists() for name in exports)


def _power(place: Path) -> Parts:
    """Reads household power: six of eight columns, with noise of the width of the last digit."""
    random = np.random.RandomState(MAF_SEED)  # the legacy generator, which gives MAF's numbers
    data = _table(place / "data.npy", columns=8).copy()
    random.shuffle(data)
    data = np.delete(data, [1, 3], axis=1)  # reactive power, and the intensity that power gives
    voltage, power = 0.01 * random.rand(len(data)), 0.001 * random.rand(len(data))
    meters, time = random.rand(len(data), 3), data[:, 5]
    if (time == np.rint(time)).all():  # MAF's file already has a random fraction of a minute
        time = time + random.rand(len(data))
    noisy = [data[:, 0] + power, data[:, 1] + voltage, *(data[:, 2:5] + meters).T, time]
    return _standardised(_split(np.column_stack(noisy)))


def _gas(place: Path) -> Parts:
    """Reads gas sensors, without those that are nearly equal."""
    data = _gas_sensors(place)
    while (alike := (np.corrcoef(data.T) > ALIKE).sum(axis=1) > 1).any():
        data = np.delete(data, int(alike.argmax()), axis=1)
    return _split((data - data.mean(axis=0)) / data.std(axis=0, ddof=1))


def _gas_sensors(place: Path) -> Array:
    if (place / "ethylene_CO.csv").exists():
        frame = pd.read_csv(place / "ethylene_CO.csv")
        others = [*GAS_TIMES_AND_DOSES, "Unnamed: 0"]  # the last: an exported index
        return frame.drop(columns=others, errors="ignore").to_numpy(np.float64)
    if (place / "ethylene_CO.npy").exists():
        return _table(place / "ethylene_CO.npy", columns=19)[:, len(GAS_TIMES_AND_DOSES) :]
    file = place / "ethylene_CO.txt"
    raw = pd.read_csv(file, sep=r"\s+", skiprows=1, header=None).to_numpy(np.float64)
    # The quarter that MAF sampled is not known; this one is sampled the same way.
    kept = np.random.default_rng(0).permutation(len(raw))[: len(raw) // GAS_SHARE]
    return raw[kept, len(GAS_TIMES_AND_DOSES) :]


def _hepmass(place: Path) -> Parts:
    """Reads the signal collisions, without features that repeat."""
    train, test = (_hepmass_signals(place / f"1000_{part}.csv") for part in ("train", "test"))
    test = test[:, : train.shape[1]]  # the public test file has one column too many
    mean, scale = train.mean(axis=0), train.std(axis=0, ddof=1)
    train, test = (train - mean) / scale, (test - mean) / scale
    kept = _continuous(train)
    held_out = int(HELD_OUT * len(train))
    return train[:-held_out, kept], train[-held_out:, kept], test[:, kept]


def _hepmass_signals(file: Path) -> Array:
    data = pd.read_csv(file, index_col=False).to_numpy(np.float64)
    return data[data[:, 0] == 1, 1:]


def _miniboone(place: Path) -> Parts:
    """Reads the signal neutrino events, without features that repeat."""
    if (place / "data.npy").exists():
        return _standardised(_split(_table(place / "data.npy")))
    file = place / "MiniBooNE_PID.txt"
    with file.open() as lines:
        signals = int(next(lines).split()[0])
    raw = pd.read_csv(file, sep=r"\s+", skiprows=1, header=None, nrows=signals)
    data = raw.to_numpy(np.float64)
    data = data[data[:, 0] >= OUTLIER]
    return _standardised(_split(data[:, _continuous(data)]))


def _miniboone_without_train(place: Path) -> Numbers:
    """Reads the public test rows, and the public validation rows for training."""
    seen, test = (_table(place / f"{part}.npy") for part in ("val", "test"))
    order, held_out = np.random.default_rng(0).permutation(len(seen)), int(HELD_OUT * len(seen))
    name = f"miniboone, trained on its {len(seen):,} validation rows"
    parts = (seen[order[held_out:]], seen[order[:held_out]], test)
    return _numbers(name, parts, is_public_test=len(test) == MINIBOONE_TEST)


def _bsds(place: Path) -> Parts:
    """Reads centred patches of grey photographs, without the last pixel; not standardised."""
    if find_spec("h5py") is None:
        raise ConfigError('bsds is an HDF5 file, which needs h5py: pip install "anyorder[uci]".')
    import h5py

    with h5py.File(place / "BSDS300.hdf5", "r") as file:
        train, valid, test = (np.asarray(file[part]) for part in ("train", "validation", "test"))
    return train, valid, test


def _numbers(name: str, parts: Parts, *, is_public_test: bool = False) -> Numbers:
    train, valid, test = (torch.from_numpy(part.astype(np.float32)) for part in parts)
    return Numbers(name, train, valid, test, is_public_test)


def _table(file: Path, *, columns: int | None = None) -> Array:
    try:
        data = np.load(file, allow_pickle=False).astype(np.float64)
    except ValueError as error:
        raise SchemaError(f'"{file}" is not an array of numbers as numpy saves it.') from error
    if data.ndim != 2 or columns not in (None, data.shape[1]):
        wanted = "rows of numbers" if columns is None else f"rows of {columns} numbers"
        raise SchemaError(f'"{file}" must hold {wanted}; its shape is {data.shape}.')
    return data


def _continuous(data: Array) -> list[int]:
    """Returns the columns that MAF treats as continuous: their minimum is rare."""
    repeats = (data == data.min(axis=0)).sum(axis=0)
    return [int(column) for column in np.flatnonzero(repeats <= FEW_REPEATS)]


def _split(data: Array) -> Parts:
    """Splits off the last tenth for test, and the last tenth of the rest for validation."""
    test = int(HELD_OUT * len(data))
    valid = int(HELD_OUT * (len(data) - test))
    train = len(data) - test - valid
    return data[:train], data[train : train + valid], data[train + valid :]


def _standardised(parts: Parts) -> Parts:
    """Standardises by the mean and the deviation of the training and validation rows."""
    train, valid, test = parts
    seen = np.concatenate([train, valid])
    mean, scale = seen.mean(axis=0), seen.std(axis=0)
    return (train - mean) / scale, (valid - mean) / scale, (test - mean) / scale


UCI: Mapping[str, Source] = {
    "power": Source("power", ("data.npy",), 2_049_280, _power),
    "gas": Source(
        "gas", ("ethylene_CO.csv", "ethylene_CO.npy", "ethylene_CO.txt"), 1_052_065, _gas
    ),
    "hepmass": Source("hepmass", ("1000_train.csv",), 525_123, _hepmass),
    "miniboone": Source(
        "miniboone", ("data.npy", "MiniBooNE_PID.txt", "test.npy"), 36_488, _miniboone
    ),
    "bsds": Source("BSDS300", ("BSDS300.hdf5",), 1_300_000, _bsds),
}
"""Data sets of MAF; `rows` counts the public training, validation and test rows."""
