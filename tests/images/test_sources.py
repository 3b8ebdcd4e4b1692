"""Sets of images by name: from a folder, from the environment, or from a package."""

import pytest

from anyorder import ConfigError
from anyorder.images.public_sets import load_images


def test_a_set_by_name_needs_its_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("ANYORDER_DATA", raising=False)
    with pytest.raises(ConfigError, match='Did you mean "cifar10"'):
        load_images("cifar")
    with pytest.raises(ConfigError, match=r"variable ANYORDER_DATA \(in Python, also by `fol"):
        load_images("mnist")
    monkeypatch.setenv("ANYORDER_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no MNIST in .*put train-images-idx3-ubyte.gz .*ossci"):
        load_images("mnist")
    small = load_images("digits", size=4, levels=4)
    assert (small.name, small.shape) == ("digits, scikit-learn, 4x4, 4 levels", (4, 4, 1))
