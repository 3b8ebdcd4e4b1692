"""CIFAR-10 and ImageNet32 are read from what their archives hold, and no pickle is ever run."""

import io
import pickle
import struct
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anyorder import ConfigError, SchemaError
from anyorder.images.archives import pickled_bytes
from anyorder.images.public_sets import CIFAR10, load_cifar10, load_imagenet32, load_images

BATCH = 10


def rows(seed, count=BATCH):
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def as_images(data):
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def binary(data):
    """A batch of the binary version of CIFAR-10."""
    return np.concatenate([np.full((len(data), 1), 7, dtype=np.uint8), data], axis=1).tobytes()


def python2_pickle(data):
    """The bytes that Python 2 and the numpy of then wrote for {"data": data, "labels": [7]}."""
    size, width = data.shape
    return b"".join(
        [
            b"\x80\x02}q\x00(U\x04dataq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02",
            b"cnumpy\nndarray\nq\x03K\x00\x85U\x01b\x87Rq\x04(K\x01J",
            struct.pack("<i", size) + b"J" + struct.pack("<i", width) + b"\x86",
            b"cnumpy\ndtype\nq\x05U\x02u1K\x00K\x01\x87Rq\x06(K\x03U\x01|NNNJ\xff\xff\xff\xff",
            b"J\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", data.size) + data.tobytes(),
            b"tbU\x06labelsq\x07]q\x08K\x07au.",
        ]
    )


def tar(file, entries):
    with tarfile.open(file, "w:gz") as archive:
        for name, raw in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))


def archive_zip(file, entries):
    with zipfile.ZipFile(file, "w") as archive:
        for name, raw in entries.items():
            archive.writestr(name, raw)


def png(data, size=(32, 32)):
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(as_images(data[None])[0])).resize(size).save(file, "PNG")
    return file.getvalue()


def npz(data):
    file = io.BytesIO()
    np.savez(file, data=data, labels=np.ones(len(data)), mean=data.mean(axis=0))
    return file.getvalue()


def put(folder, entries):
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in entries.items():
        (folder / name).write_bytes(raw)


BINARY = {f"data_batch_{i}.bin": binary(rows(i)) for i in (2, 1)} | {
    "test_batch.bin": binary(rows(9))
}
PYTHON = {f"data_batch_{i}": python2_pickle(rows(i)) for i in (2, 1)} | {
    "test_batch": python2_pickle(rows(9)),
    "batches.meta": b"not read",
}


def check_cifar10(images):
    assert images.name == "CIFAR-10, 20 of 50,000 training images, 10 of 10,000 test images"
    assert (images.levels, images.shape, images.is_public_test) == (256, (32, 32, 3), False)
    both = np.concatenate([rows(1), rows(2)])
    assert (images.train == as_images(both[:18])).all()
    assert (images.valid == as_images(both[18:])).all()
    assert (images.test == as_images(rows(9))).all()


def test_cifar10_binary_by_folder_and_by_archive(tmp_path):
    put(tmp_path / "a" / "cifar-10-batches-bin", BINARY)
    check_cifar10(load_cifar10(tmp_path / "a"))
    check_cifar10(load_cifar10(tmp_path / "a" / "cifar-10-batches-bin"))
    (tmp_path / "b").mkdir()
    shadows = {f"cifar-10-batches-bin/._{name}": b"" for name in BINARY}  # as a Mac adds them
    file = tmp_path / "b" / "cifar-10-binary.tar.gz"
    tar(file, {f"cifar-10-batches-bin/{name}": raw for name, raw in BINARY.items()} | shadows)
    check_cifar10(load_cifar10(file))
    check_cifar10(load_images("cifar10", tmp_path / "b"))


def test_cifar10_python_by_folder_and_by_archive(tmp_path):
    found = pickle.loads(PYTHON["test_batch"], encoding="bytes")  # it is what it says it is
    assert (found[b"data"] == rows(9)).all()
    put(tmp_path / "a" / "cifar-10-batches-py", PYTHON)
    check_cifar10(load_cifar10(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    file = tmp_path / "b" / "cifar-10-python.tar.gz"
    tar(file, {f"cifar-10-batches-py/{name}": raw for name, raw in PYTHON.items()})
    check_cifar10(load_cifar10(tmp_path / "b"))


def test_the_whole_of_cifar10_is_called_so(tmp_path, monkeypatch):
    monkeypatch.setattr("anyorder.images.public_sets.CIFAR10", replace(CIFAR10, train=20, test=10))
    put(tmp_path, BINARY)
    images = load_cifar10(tmp_path)
    assert (images.name, images.is_public_test) == ("CIFAR-10", True)
    small = load_images("cifar10", tmp_path, size=8, levels=4)
    assert (small.name, small.shape, small.is_public_test) == (
        "CIFAR-10, 8x8, 4 levels", (8, 8, 3), False,
    )  # fmt: skip


def test_odd_files_of_cifar10_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no CIFAR-10 in .*put cifar-10-binary.*kriz/cifar.html"):
        load_cifar10(tmp_path)
    put(tmp_path / "cut", BINARY | {"data_batch_1.bin": BINARY["data_batch_1.bin"][:-1]})
    with pytest.raises(SchemaError, match=r'"data_batch_1.bin" is cut off.*it has 30,729 bytes'):
        load_cifar10(tmp_path / "cut")
    put(tmp_path / "other", BINARY | {"test_batch.bin": b"\xff" * 3073})
    with pytest.raises(SchemaError, match="a class from 0 to 9"):
        load_cifar10(tmp_path / "other")
    put(tmp_path / "few", {"test_batch": PYTHON["test_batch"]})
    with pytest.raises(
        SchemaError, match=r"must hold test_batch and data_batch_1 .*has test_batch"
    ):
        load_cifar10(tmp_path / "few")
    put(tmp_path / "wide", PYTHON | {"data_batch_1": python2_pickle(rows(1)[:, :1024])})
    with pytest.raises(SchemaError, match=r'"data_batch_1" must hold rows of 3072 bytes.*\(10, 10'):
        load_cifar10(tmp_path / "wide")


def test_cut_archives_are_refused(tmp_path):
    whole = tmp_path / "whole.tar.gz"
    tar(whole, BINARY)
    for share in (0.3, 0.9):
        part = tmp_path / "part.tar.gz"
        part.write_bytes(whole.read_bytes()[: int(share * whole.stat().st_size)])
        with pytest.raises(SchemaError, match=r'part.tar.gz" is cut off or damaged'):
            load_cifar10(part)
    (tmp_path / "page.tar.gz").write_text("<html>404</html>")
    with pytest.raises(SchemaError, match="must be a folder, a zip or a tar archive"):
        load_cifar10(tmp_path / "page.tar.gz")


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pickled_arrays_of_python_3(protocol, order):
    raw = pickle.dumps({"data": np.array(rows(0), order=order), "mean": np.ones(3)}, protocol)
    assert (pickled_bytes(raw, "data", file="batch") == rows(0)).all()


class Touch:
    """What pickles to an order to make a file."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_is_never_run(protocol, tmp_path):
    marker = tmp_path / "was_run"
    raw = pickle.dumps({"data": rows(0), "more": Touch(marker)}, protocol)
    if protocol in (2, 3, 4):  # the others hold no bytes as numpy writes them for these
        assert (pickled_bytes(raw, "data", file="batch") == rows(0)).all()
    else:
        with pytest.raises(SchemaError, match=r'"batch" is a pickle, but not of a dict'):
            pickled_bytes(raw, "data", file="batch")
    assert not marker.exists()
    pickle.loads(raw)
    assert marker.exists(), "opened as pickles are, it would have run"


HOSTILE = {
    "call": b"cos\nsystem\n(S'exit 1'\ntR.",
    "instance": b"(S'exit 1'\nios\nsystem\n.",
    "evaluation": b"cbuiltins\neval\n(S'1'\ntR.",
    "attribute": b"cnumpy\nndarray.__class__\n(S'x'\ntR.",
    "other function of numpy": b"cnumpy.core.multiarray\nscalar\n.",
    "name by path": b"\x80\x04\x8c\x05numpy\x8c\x0cf2py.os.name\x93.",
    "extension": b"\x80\x02\x82\x01.",
    "outside object": b"Pname\n.",
    "state of a stand-in": b"cnumpy\nndarray\n}S'__init__'\nNsb.",
    "slots of a stand-in": b"cnumpy\nndarray\n(N}S'__init__'\nNstb.",
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_refused_and_change_nothing(raw):
    with pytest.raises(SchemaError, match='"batch" is'):
        pickled_bytes(raw, "data", file="batch")
    assert (pickled_bytes(python2_pickle(rows(0)), "data", file="batch") == rows(0)).all()


@pytest.mark.parametrize(
    "content",
    [
        {"data": rows(0).astype(np.int64)},
        {"data": [1, 2]},
        {"pixels": rows(0)},
        [rows(0)],
        {"data": np.dtype("u1")},
    ],
)
def test_a_pickle_without_the_array_is_refused(content):
    with pytest.raises(SchemaError, match='dict with an array of bytes called "data"'):
        pickled_bytes(pickle.dumps(content, 2), "data", file="batch")


def test_a_cut_pickle_is_refused():
    raw = python2_pickle(rows(0))
    for length in (0, 1, 50, 200, len(raw) - 1):
        with pytest.raises(SchemaError, match='"batch" is cut off or is no pickled batch'):
            pickled_bytes(raw[:length], "data", file="batch")
    short = raw.replace(struct.pack("<i", BATCH), struct.pack("<i", BATCH + 1), 1)
    with pytest.raises(SchemaError, match="array of bytes"):
        pickled_bytes(short, "data", file="batch")


def check_newer(images, count=30):
    assert images.name.startswith("ImageNet32, newer version (Chrabaszcz et al.), ")
    assert f"{count} of 1,281,167 training images" in images.name
    both = np.concatenate([rows(1), rows(2), rows(10)])
    assert (np.concatenate([images.train, images.valid]) == as_images(both)).all()
    assert (images.test == as_images(rows(9))).all()


@pytest.mark.parametrize("write", [python2_pickle, npz], ids=["pickles", "npz"])
def test_the_newer_imagenet32(tmp_path, write):
    ending = ".npz" if write is npz else ""
    train = {f"train_data_batch_{i}{ending}": write(rows(i)) for i in (10, 1, 2)}
    valid = {f"val_data{ending}": write(rows(9))}
    put(tmp_path / "one", train | valid)
    check_newer(load_imagenet32(tmp_path / "one"))
    put(tmp_path / "two" / "Imagenet32_train", train)
    put(tmp_path / "two" / "Imagenet32_val", valid)
    check_newer(load_images("imagenet32", tmp_path / "two"))
    (tmp_path / "zip").mkdir()
    npz_ending = "_npz" if write is npz else ""
    archive_zip(tmp_path / "zip" / f"Imagenet32_train{npz_ending}.zip", train)
    archive_zip(tmp_path / "zip" / f"Imagenet32_val{npz_ending}.zip", valid)
    check_newer(load_imagenet32(tmp_path / "zip"))


def test_the_older_imagenet32(tmp_path):
    train = {f"{i:07}.png": png(row) for i, row in enumerate(rows(1))}
    valid = {f"{i:07}.png": png(row) for i, row in enumerate(rows(9))}
    put(tmp_path / "folders" / "train_32x32", train | {"index.html": b""})
    put(tmp_path / "folders" / "valid_32x32", valid)
    (tmp_path / "archives").mkdir()
    backwards = dict(reversed(train.items()))
    archive_zip(
        tmp_path / "archives" / "train_32x32.zip",
        {f"train_32x32/{name}": raw for name, raw in backwards.items()},
    )
    tar(tmp_path / "archives" / "valid_32x32.tar.gz", valid)
    a, b = (load_imagenet32(tmp_path / place) for place in ("folders", "archives"))
    assert a.name.startswith("ImageNet32, older version (van den Oord et al.), 10 of 1,281,149")
    assert (a.train == b.train).all()
    assert (a.test == b.test).all()
    seen = np.concatenate([a.train, a.valid])
    assert sorted(map(bytes, seen)) == sorted(
        bytes(np.ascontiguousarray(one)) for one in as_images(rows(1))
    )


def test_odd_files_of_imagenet32_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"put Imagenet32_train.zip .*or, for the older version"):
        load_imagenet32(tmp_path)
    both = {"train_data_batch_1": python2_pickle(rows(1)), "val_data": python2_pickle(rows(9))}
    put(tmp_path / "two", both)
    put(tmp_path / "two" / "train_32x32", {"1.png": png(rows(1)[0])})
    put(tmp_path / "two" / "valid_32x32", {"1.png": png(rows(1)[0])})
    with pytest.raises(ConfigError, match="one version of ImageNet32, and it holds both"):
        load_imagenet32(tmp_path / "two")
    put(tmp_path / "wide" / "train_32x32", {"1.png": png(rows(1)[0], size=(64, 32))})
    put(tmp_path / "wide" / "valid_32x32", {"1.png": png(rows(1)[0])})
    with pytest.raises(SchemaError, match=r'"1.png" must be 32x32; it is 32x64'):
        load_imagenet32(tmp_path / "wide")
    put(tmp_path / "wide" / "train_32x32", {"1.png": png(rows(1)[0])[:200]})
    with pytest.raises(SchemaError, match=r'"1.png" is not a whole picture'):
        load_imagenet32(tmp_path / "wide")
    put(tmp_path / "npz", {"train_data_batch_1.npz": npz(rows(1))[:500], "val_data.npz": b""})
    with pytest.raises(
        SchemaError, match=r'"train_data_batch_1.npz" is cut off, encrypted or holds no'
    ):
        load_imagenet32(tmp_path / "npz")
    put(tmp_path / "npz", {"train_data_batch_1.npz": npz(rows(1) / 255)})
    with pytest.raises(SchemaError, match="must be of uint8; it is of float64"):
        load_imagenet32(tmp_path / "npz")
    put(tmp_path / "none", {"val_data": b""})
    put(tmp_path / "none" / "Imagenet32_train", {"labels": b""})
    with pytest.raises(SchemaError, match="must hold files called train_data_batch"):
        load_imagenet32(tmp_path / "none")


def flagged(raw, *, flag=0, method=None):
    """A zip whose entries are said to be encrypted, or compressed in some other way."""
    raw = bytearray(raw)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = raw.find(mark)
        while start >= 0:
            raw[start + place] |= flag
            if method is not None:
                raw[start + place + 2] = method
            start = raw.find(mark, start + 4)
    return bytes(raw)


@pytest.mark.parametrize(
    ("change", "says"),
    [({"flag": 1}, "is encrypted. Unpack it"), ({"method": 99}, "compression method is not")],
)
def test_a_zip_that_cannot_be_unpacked_is_named(change, says, tmp_path):
    file = tmp_path / "cifar-10-python.tar.gz"
    archive_zip(file, PYTHON)
    file.write_bytes(flagged(file.read_bytes(), **change))
    with pytest.raises(SchemaError, match=rf"cifar-10-python.tar.gz.*{says}"):
        load_cifar10(tmp_path)


def forged(header):
    """An npz that promises an array and does not hold it."""
    file = io.BytesIO()
    text = header.encode()
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.npy", array)
    return file.getvalue()


def npy(data):
    file = io.BytesIO()
    np.save(file, data)
    return file.getvalue()


SHAPE = "{'descr': '|u1', 'fortran_order': False, 'shape': (%s, 3072)}\n"
ODD_NPZ = {
    "encrypted": flagged(npz(rows(0)), flag=1),
    "method": flagged(npz(rows(0)), method=99),
    "npy": npy(rows(0)),
    "huge": forged(SHAPE % 10**12),
    "negative": forged(SHAPE % -1),
    "brackets": forged("(" * 300),
}


@pytest.mark.parametrize("name", ODD_NPZ)
def test_an_odd_npz_is_named(name, tmp_path):
    put(tmp_path, {"train_data_batch_1.npz": ODD_NPZ[name], "val_data.npz": npz(rows(1))})
    with pytest.raises(SchemaError, match=r'"train_data_batch_1.npz" is cut off, encrypted or'):
        load_imagenet32(tmp_path)


def nested(depth):
    """A dict whose key is tuples in tuples, each twice: a hash of 2^depth steps."""
    pairs = b"".join(b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(depth))
    return b"\x80\x02})" + pairs + b"K\x01s."


BOMBS = {
    "key": nested(100),
    "keys": nested(100).replace(b"})", b"}()").replace(b"s.", b"u."),
    "dict": nested(100).replace(b"})", b"()").replace(b"s.", b"d."),
    "set": b"\x80\x04\x8f()\x90.",
    "memo": b"\x80\x02Nr\xff\xff\xff\x0f.",  # place 268,435,455 of the memo
    "function": b"\x80\x02c_codecs\nencode\n}b.",
    "bytes": b"\x80\x05\x96\xff\xff\xff\xff\x0f\x00\x00\x00a.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_small_pickles_that_ask_for_much_are_refused_at_once(name):
    with pytest.raises(SchemaError, match=r'^"batch" is (a pickle, but not|cut off)'):
        pickled_bytes(BOMBS[name], "data", file="batch")
