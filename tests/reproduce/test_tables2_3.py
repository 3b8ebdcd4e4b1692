"""Tables 2 and 3 at their smallest: what is trained, measured, printed and refused."""

import json

import numpy as np
import pytest
import torch

from anyorder.cli.app import main
from anyorder.images.data import Images
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.networks.unet import Unet
from anyorder.reproduce import tables2_3 as image_experiment
from anyorder.reproduce.tables2_3 import (
    IMAGE_MODELS,
    SCALES,
    ImageStudy,
    scale_of,
    strided_protocol,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The runs of table3, with its record."""
    folder = tmp_path_factory.mktemp("runs")
    main(["reproduce", "table3", "--out", str(folder), "--record", str(folder / "record.json")])
    return folder


def test_table3_prints_bits_and_differences(folder, capsys):
    main(["reproduce", "table3", "--out", str(folder)])  # all is there: nothing is trained again
    shown = capsys.readouterr().out
    assert "digits, scikit-learn, 64 dimensions" in shown
    assert "mac_strided - ardm" in shown
    assert "Too short to compare" in shown
    record = json.loads((folder / "record.json").read_text())
    assert {row["model"] for row in record["rows"]} == set(IMAGE_MODELS)
    assert {row["metric"] for row in record["rows"]} == {"joint_bits", "marginal_bits"}
    assert record["command"] == "anyorder reproduce table3 --scale tiny --seed 0"
    assert ("mac", "ardm", "joint_bits") in {
        (p["a"], p["b"], p["metric"]) for p in record["paired"]
    }


def test_whole_walks_are_summed():
    study = ImageStudy("digits", scale_of("tiny", "digits"), None)
    model = study.build(IMAGE_MODELS["mac"])
    found = study.measure(model.eval(), seed=0)
    x = torch.from_numpy(study.images.test[:8].reshape(8, -1).astype(np.int64))
    expected = -log_prob(model, x) / (np.log(2) * 64)
    torch.testing.assert_close(found["joint"].rows, expected.double(), atol=1e-5, rtol=0)


def test_long_walks_are_estimated_and_black_and_white_is_in_nats(monkeypatch, tmp_path, capsys):
    rng = np.random.default_rng(0)
    images = Images(
        "noise", 2, *(rng.integers(0, 2, (n, 6, 6, 1), dtype=np.uint8) for n in (9, 4, 4))
    )
    monkeypatch.setattr(image_experiment, "read_images", lambda *_: images)
    monkeypatch.setattr(image_experiment, "WHOLE_PATH", 30)
    monkeypatch.setattr("anyorder.reproduce.tables2_3.WHOLE_PATH", 30)
    options = ["--data", str(tmp_path), "--sets", "binarized_mnist", "--models", "mac", "path"]
    main(["reproduce", "table3", "--out", str(tmp_path), *options])
    shown = capsys.readouterr().out
    assert "nats" in shown
    assert "64 stratified steps" in shown


def test_what_differs_by_data_set():
    assert scale_of("small", "cifar10").size == 8
    assert scale_of("small", "cifar10").turns
    assert scale_of("small", "digits").size is None
    assert scale_of("paper", "imagenet32").settings.steps == 160_000
    assert not scale_of("paper", "imagenet32").turns
    assert strided_protocol(3072).canonical_order[:3].tolist() == [0, 48, 96]
    assert strided_protocol(64).canonical_order[:3].tolist() == [0, 8, 16]


def test_the_paper_scale_is_the_papers(monkeypatch):
    shape = (1, 32, 32, 3)
    images = Images("noise", 256, *(np.zeros(shape, dtype=np.uint8) for _ in range(3)))
    monkeypatch.setattr(image_experiment, "read_images", lambda *_: images)
    study = ImageStudy("cifar10", scale_of("paper", "cifar10"), None)
    sizes = {name: weights(study.build(IMAGE_MODELS[name])) for name in ("mac", "path")}
    assert sizes["mac"] == pytest.approx(141e6, rel=0.05)
    assert sizes["path"] == pytest.approx(141e6, rel=0.05)
    assert SCALES["paper"].settings.clip == 100
    assert len(study.rows().pixels) == 2  # training and validation images


def weights(model: AnyOrderModel) -> int:
    assert isinstance(model.network, Unet) or model.is_one_pass
    return model.num_parameters


MISTAKES = {
    "table2": (["table2"], "`data` must be the folder of imagenet32"),
    "missing": (["table2", "--data", "DIR"], "ImageNet32"),
    "sets": (["table3", "--sets", "cats"], "`sets` must be one of"),
    "cifar10": (["table3", "--sets", "cifar10", "--data", "DIR"], "CIFAR-10"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_missing_is_named(name, tmp_path, capsys):
    words, sentence = MISTAKES[name]
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", *(str(tmp_path) if word == "DIR" else word for word in words)])
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err
