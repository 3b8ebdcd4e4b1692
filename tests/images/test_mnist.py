"""MNIST is read in both of its forms, and what only looks like it is not called so."""

import gzip
import hashlib
import struct
from dataclasses import replace

import numpy as np
import pytest

from anyorder import ConfigError, SchemaError
from anyorder.images.public_sets import (
    MNIST,
    load_binarized_mnist,
    load_images,
    load_mnist,
    read_amat,
    read_idx,
)


def digits(seed, count):
    return np.random.default_rng(seed).integers(0, 256, (count, 28, 28), dtype=np.uint8)


def idx(pixels, magic=2051):
    return struct.pack(">4I", magic, *pixels.shape) + pixels.tobytes()


def put(folder, name, raw):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(raw)


@pytest.mark.parametrize("place", ["", "MNIST/raw", "mnist"])
def test_mnist_compressed_or_not(tmp_path, place, monkeypatch):
    test = idx(digits(2, 6))
    monkeypatch.setattr("anyorder.images.public_sets.TEST_SHA256", hashlib.sha256(test).hexdigest())
    put(tmp_path / place, "train-images-idx3-ubyte.gz", gzip.compress(idx(digits(1, 12))))
    put(tmp_path / place, "t10k-images-idx3-ubyte", test)
    images = load_images("mnist", tmp_path)
    assert images.name == "MNIST, 12 of 60,000 training images, 6 of 10,000 test images"
    assert (images.levels, images.shape) == (256, (28, 28, 1))
    assert (images.train[..., 0] == digits(1, 12)[:10]).all()
    assert (images.valid[..., 0] == digits(1, 12)[10:]).all()
    assert (images.test[..., 0] == digits(2, 6)).all()


def test_other_images_in_its_files_are_not_called_mnist(tmp_path, monkeypatch):
    monkeypatch.setattr("anyorder.images.public_sets.MNIST", replace(MNIST, test=6))
    put(tmp_path, "train-images.idx3-ubyte", idx(digits(1, 12)))
    put(tmp_path, "t10k-images.idx3-ubyte", idx(digits(2, 6)))
    images = load_mnist(tmp_path)
    assert images.name == "images in MNIST's format, 12 to train on"
    assert not images.is_public_test


def test_odd_idx_files_are_refused(tmp_path):
    whole = idx(digits(1, 5))
    put(tmp_path, "labels", idx(digits(1, 5), magic=2049))
    put(tmp_path, "short", b"\0\0")
    put(tmp_path, "cut", whole[:-1])
    put(tmp_path, "cut.gz", gzip.compress(whole)[:-100])
    put(tmp_path, "empty", idx(digits(1, 0)))
    for name in ("labels", "short"):
        with pytest.raises(SchemaError, match=r"not an idx file .*begin with the number 2051"):
            read_idx(tmp_path / name)
    with pytest.raises(SchemaError, match="must hold 5 images of 28x28, and has 3,919 bytes"):
        read_idx(tmp_path / "cut")
    with pytest.raises(SchemaError, match=r'cut.gz" is cut off or damaged'):
        read_idx(tmp_path / "cut.gz")
    with pytest.raises(SchemaError, match="must hold 0 images"):
        read_idx(tmp_path / "empty")
    with pytest.raises(ConfigError, match=r"no MNIST in .*put train-images"):
        load_mnist(tmp_path)


def amat(pixels, ending="\n"):
    lines = (" ".join(map(str, row)) for row in pixels.reshape(len(pixels), -1))
    return "".join(line + ending for line in lines).encode()


def test_binarized_mnist_has_its_own_parts(tmp_path):
    parts = {part: digits(i, 3 + i) // 128 for i, part in enumerate(("train", "valid", "test"))}
    for part, pixels in parts.items():
        put(tmp_path, f"binarized_mnist_{part}.amat", amat(pixels, " \r\n"))
    images = load_images("binarized_mnist", tmp_path)
    assert images.name.startswith("binarized MNIST, 7 of 60,000 training images")
    assert images.levels == 2
    for part in ("train", "valid"):
        assert (getattr(images, part)[..., 0] == parts[part]).all()


def test_test_images_of_binarized_mnist_are_shuffled_always_alike(tmp_path):
    counted = np.zeros((30, 28, 28), dtype=np.uint8)
    counted[np.arange(30), 0, np.arange(30) % 28] = 1  # as sorted as the public file
    for part in ("train", "valid", "test"):
        put(tmp_path, f"binarized_mnist_{part}.amat", amat(counted))
    first, second = (load_images("binarized_mnist", tmp_path).test[..., 0] for _ in range(2))
    assert (first == second).all()
    assert not (first == counted).all()
    assert sorted(map(bytes, first)) == sorted(map(bytes, counted))


def test_odd_amat_files_are_refused(tmp_path):
    whole = amat(digits(0, 3) // 128)
    odd = {
        "cut": (whole[:-9], 3), "grey": (amat(digits(0, 1)), 1), "real": (b"0.5 " * 784, 1),
        "blank": (whole + b"\n", 4),
    }  # fmt: skip
    for name, (raw, line) in odd.items():
        put(tmp_path, name, raw)
        with pytest.raises(SchemaError, match=f"784 zeros and ones; line {line} does not"):
            read_amat(tmp_path / name)
    with pytest.raises(ConfigError, match=r"no binarized MNIST in .*larocheh"):
        load_binarized_mnist(tmp_path)
