"""The public tables are prepared as MAF does, and say what they are."""

from dataclasses import replace

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from anyorder import ConfigError, SchemaError
from anyorder.reproduce.uci_data import UCI, bundled_numbers, found_uci, load_uci

ROWS = 1000


@pytest.fixture
def random():
    return np.random.default_rng(0)


def save(folder, name, data):
    (folder / name).parent.mkdir(exist_ok=True, parents=True)
    np.save(folder / name, data)


def power(random, *, whole_minutes=False):
    data = random.normal(size=(ROWS, 8))
    time = random.integers(0, 1440, ROWS)
    data[:, 7] = time if whole_minutes else time + random.random(ROWS)
    return data


def test_power_has_six_columns_with_the_noise_of_maf(tmp_path, random):
    raw = power(random)
    save(tmp_path, "power/data.npy", raw)
    found = load_uci("power", tmp_path)
    assert found.name == "power, own file of 1,000 rows"
    assert not found.is_public_test
    assert [part.shape for part in (found.train, found.valid, found.test)] == [
        (810, 6), (90, 6), (100, 6),
    ]  # fmt: skip
    # The same, step by step: shuffle, then the noise of voltage, of power and of three meters.
    source = np.random.RandomState(42)
    source.shuffle(raw)
    data = raw[:, [0, 2, 4, 5, 6, 7]]
    voltage, active = 0.01 * source.rand(ROWS), 0.001 * source.rand(ROWS)
    data = data + np.column_stack([active, voltage, source.rand(ROWS, 3), np.zeros(ROWS)])
    expected = (data - data[:900].mean(axis=0)) / data[:900].std(axis=0)
    both = torch.cat([found.train, found.valid, found.test])
    torch.testing.assert_close(both, torch.from_numpy(expected.astype(np.float32)))


def test_whole_minutes_get_their_random_part(tmp_path, random):
    save(tmp_path, "power/data.npy", power(random, whole_minutes=True))
    found = load_uci("power", tmp_path)
    assert len(found.train[:, 5].unique()) > 0.99 * len(found.train)


def test_the_public_number_of_rows_has_the_public_name(tmp_path, random, monkeypatch):
    monkeypatch.setitem(UCI, "power", replace(UCI["power"], rows=ROWS))
    save(tmp_path, "data/power/data.npy", power(random))  # as the archive unpacks
    found = load_uci("power", tmp_path)
    assert (found.name, found.is_public_test) == ("power", True)


def sensors(random):
    """Time, two doses, and three sensors of which the first two are nearly one."""
    first = random.normal(size=ROWS)
    columns = [np.arange(ROWS), random.random(ROWS), random.random(ROWS)]
    columns += [first, first + 0.01 * random.normal(size=ROWS), random.normal(size=ROWS)]
    return np.column_stack(columns)


def test_gas_drops_times_doses_and_sensors_that_are_alike(tmp_path, random):
    data = sensors(random)
    (tmp_path / "gas").mkdir()
    names = ["Time", "Meth", "Eth", "s1", "s2", "s3"]
    pd.DataFrame(data, columns=names).to_csv(tmp_path / "gas" / "ethylene_CO.csv", index=False)
    found = load_uci("gas", tmp_path)
    kept = data[:, 4:]  # the first of those that are alike goes
    expected = (kept - kept.mean(axis=0)) / kept.std(axis=0, ddof=1)
    both = torch.cat([found.train, found.valid, found.test])
    torch.testing.assert_close(both, torch.from_numpy(expected.astype(np.float32)))


def test_gas_as_an_array_and_as_raw_text(tmp_path, random):
    data = np.column_stack([sensors(random), random.normal(size=(ROWS, 13))])
    save(tmp_path / "a", "gas/ethylene_CO.npy", data)
    assert load_uci("gas", tmp_path / "a").train.shape == (810, 15)
    (tmp_path / "b" / "gas").mkdir(parents=True)
    np.savetxt(tmp_path / "b" / "gas" / "ethylene_CO.txt", data, header="Time (seconds), CO, ...")
    found = load_uci("gas", tmp_path / "b")
    assert found.name == "gas, own file of 250 rows"  # a quarter, as MAF keeps
    assert found.train.shape[1] == 15


def test_a_pickle_is_never_opened(tmp_path):
    (tmp_path / "gas").mkdir()
    (tmp_path / "gas" / "ethylene_CO.pickle").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(ConfigError, match=r"a pickle can run any code.*to_csv.*ethylene_CO.txt"):
        load_uci("gas", tmp_path)
    save(tmp_path, "power/data.npy", np.array([{}], dtype=object))
    with pytest.raises(SchemaError, match="not an array of numbers"):
        load_uci("power", tmp_path)


def test_hepmass_keeps_signals_and_columns_that_do_not_repeat(tmp_path, random):
    (tmp_path / "hepmass").mkdir()
    frames = {}
    for part, rows in (("train", 400), ("test", 100)):
        data = random.normal(size=(rows, 3))
        data[:, 1] = data[:, 1].round().clip(-1, 1)  # its least value stands often
        label = np.arange(rows) % 2
        extra = [np.zeros(rows)] if part == "test" else []
        frames[part] = np.column_stack([label, data, *extra])
        frame = pd.DataFrame(frames[part])
        frame.to_csv(tmp_path / "hepmass" / f"1000_{part}.csv", index=False)
    found = load_uci("hepmass", tmp_path)
    train, test = (frames[part][1::2][:, [1, 3]] for part in ("train", "test"))
    expected = (test - train.mean(axis=0)) / train.std(axis=0, ddof=1)
    torch.testing.assert_close(found.test, torch.from_numpy(expected.astype(np.float32)))
    assert (len(found.train), len(found.valid)) == (180, 20)


def test_miniboone_as_an_array_and_as_raw_text(tmp_path, random):
    signals = random.normal(size=(ROWS, 4))
    save(tmp_path / "a", "miniboone/data.npy", signals)
    raw = np.column_stack([signals, np.zeros(ROWS)])  # one feature repeats
    outlier, noise = np.full((1, 5), -999.0), np.full((30, 5), 7.0)
    (tmp_path / "b" / "miniboone").mkdir(parents=True)
    np.savetxt(
        tmp_path / "b" / "miniboone" / "MiniBooNE_PID.txt",
        np.concatenate([outlier, raw, noise]),
        header=f"{ROWS + 1} 30",
        comments=" ",
        fmt="%.17g",
    )
    a, b = (load_uci("miniboone", tmp_path / place) for place in "ab")
    assert a.name == b.name == "miniboone, own file of 1,000 rows"
    torch.testing.assert_close(a.test, b.test)
    torch.testing.assert_close(torch.cat([a.train, a.valid]).mean(dim=0), torch.zeros(4))


def test_miniboone_without_its_training_rows_trains_on_the_validation_rows(tmp_path, random):
    valid, test = random.normal(size=(200, 4)), random.normal(size=(50, 4))
    save(tmp_path, "miniboone/val.npy", valid)
    save(tmp_path, "miniboone/test.npy", test)
    found = load_uci("miniboone", tmp_path)
    assert found.name == "miniboone, trained on its 200 validation rows"
    assert (len(found.train), len(found.valid)) == (180, 20)
    torch.testing.assert_close(found.test, torch.from_numpy(test.astype(np.float32)))
    rows = torch.cat([found.train, found.valid]).sort(dim=0).values
    torch.testing.assert_close(rows, torch.from_numpy(valid.astype(np.float32)).sort(dim=0).values)


def test_bsds_is_read_as_it_is(tmp_path, random):
    (tmp_path / "BSDS300").mkdir()
    sizes = {"train": 30, "validation": 10, "test": 5}
    parts = {name: random.normal(size=(rows, 63)) for name, rows in sizes.items()}
    with h5py.File(tmp_path / "BSDS300" / "BSDS300.hdf5", "w") as file:
        for name, part in parts.items():
            file[name] = part
    found = load_uci("bsds", tmp_path)
    assert found.name == "bsds, own file of 45 rows"
    torch.testing.assert_close(found.valid, torch.from_numpy(parts["validation"]).float())


def test_bsds_without_h5py_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "BSDS300").mkdir()
    (tmp_path / "BSDS300" / "BSDS300.hdf5").touch()
    monkeypatch.setattr("anyorder.reproduce.uci_data.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r'needs h5py: pip install "anyorder\[uci\]"'):
        load_uci("bsds", tmp_path)
    assert found_uci(tmp_path) == ["bsds"]


@pytest.mark.parametrize("dataset", UCI)
def test_what_is_missing_is_named_with_its_archive(dataset, tmp_path):
    assert found_uci(tmp_path) == []
    with pytest.raises(ConfigError, match=rf"no {dataset} in .* put .*zenodo.org/record/1161203"):
        load_uci(dataset, tmp_path)


def test_an_odd_name_and_an_odd_file(tmp_path):
    with pytest.raises(ConfigError, match='Did you mean "power"'):
        load_uci("powr", tmp_path)
    save(tmp_path, "power/data.npy", np.zeros((10, 3)))
    with pytest.raises(SchemaError, match=r"rows of 8 numbers; its shape is \(10, 3\)"):
        load_uci("power", tmp_path)


def test_a_small_table_needs_no_file():
    found = bundled_numbers()
    assert found.name == "breast cancer (scikit-learn)"
    assert found.train.shape[1] == found.test.shape[1] == 30
    assert len(found.train) + len(found.valid) + len(found.test) == 569
