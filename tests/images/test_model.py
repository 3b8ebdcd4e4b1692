"""ImageModel: likelihoods of pixels, painted holes, draws; every mistake gets one sentence."""

import itertools
import math

import numpy as np
import pytest
import torch

from anyorder.domains import load
from anyorder.errors import CheckpointError, ConfigError, QueryError, SchemaError
from anyorder.images.data import ImageRows, Images, Shape, bundled_digits, image_schema, to_x
from anyorder.images.inpainting import half_hole, rectangle_hole
from anyorder.images.model import ImageModel, image_order, image_queries, pixel_coordinates
from anyorder.lattice.masks import UniformCardinality
from anyorder.training.settings import TrainingSettings

SETTINGS = TrainingSettings(steps=3, batch=4, warmup=1)
TINY = {"layers": 1, "width": 16, "heads": 2, "settings": SETTINGS}
SQUARE = np.array(list(itertools.product(range(2), repeat=4)), dtype=np.uint8).reshape(-1, 2, 2, 1)


def squares():
    """All images of 2x2 pixels in black and white."""
    return Images("squares", 2, SQUARE, SQUARE[:4], SQUARE[:4])


@pytest.fixture(scope="module")
def digits():
    return bundled_digits()


@pytest.fixture(scope="module")
def model(digits):
    return ImageModel(**TINY).fit(digits)


@pytest.mark.parametrize("head", ["logits", "logistics"])
@pytest.mark.parametrize(
    "walk", [{"order": "interleaved"}, {"order": "raster"}, {"order": "strided"}, {"patch": 1}]
)
def test_probabilities_of_all_images_sum_to_one(head, walk):
    model = ImageModel(**TINY, head=head, **walk).fit(squares())
    top, left = half_hole((2, 2), "top"), half_hole((2, 2), "left")
    assert np.exp(model.log_prob(SQUARE)).sum() == pytest.approx(1, abs=1e-4)
    given = np.exp(model.log_prob(SQUARE, given=top))  # all below, for each of four tops
    assert given.sum() == pytest.approx(4, abs=1e-3)
    marginal = np.exp(model.log_prob(SQUARE, query=left))
    assert marginal.sum() == pytest.approx(4, abs=1e-3)  # each of four lefts, for four rights
    one = model.log_prob(SQUARE[3, :, :, 0], query=left & ~top, given=top)
    assert isinstance(one, float)
    assert one < 0


def test_holes_are_painted_and_all_else_stays(model, digits):
    hole = rectangle_hole((8, 8), top=2, left=3, height=4, width=2)
    found = model.inpaint(digits.test[:3], hole, n=2, random_state=0)
    assert found.shape == (3, 2, 8, 8, 1)
    assert found.dtype == np.uint8
    assert (found[:, :, ~hole] == digits.test[:3, None][:, :, ~hole]).all()
    assert found.max() < 17
    np.testing.assert_array_equal(found, model.inpaint(digits.test[:3], hole, n=2, random_state=0))
    greedy = model.inpaint(digits.test[0], hole, how="greedy")
    np.testing.assert_array_equal(greedy, model.inpaint(digits.test[0], hole, how="greedy"))
    assert model.sample(2, random_state=1).shape == (2, 8, 8, 1)


def test_what_stands_in_a_hole_is_not_read(model, digits):
    hole = half_hole((8, 8), "bottom")
    other = digits.test[0].copy()
    other[hole] = 16 - other[hole]
    first, second = (
        model.inpaint(image, hole, random_state=0) for image in (digits.test[0], other)
    )
    np.testing.assert_array_equal(first, second)


def test_bits_are_those_of_likelihoods(model, digits):
    found = model.evaluate(digits, rows=8)
    logs = model.log_prob(digits.test[:8])
    assert found["joint"].value == pytest.approx(-logs.mean() / math.log(2) / 64, rel=1e-5)
    assert set(found) == {"joint", "marginal", "conditional"}
    assert model.check(digits, rows=16).rows == 16


def test_answers_survive_saving(model, digits, tmp_path):
    model.save(tmp_path)
    for back in (ImageModel.load(tmp_path), load(tmp_path)):
        np.testing.assert_array_equal(
            back.log_prob(digits.test[:4]), model.log_prob(digits.test[:4])
        )
        assert repr(back) == repr(model)
        assert back.settings == SETTINGS


def test_patches_answer_all_that_pixels_do(digits, tmp_path):
    model = ImageModel(**TINY, patch=4).fit(digits)
    hole = rectangle_hole((8, 8), top=2, left=3, height=4, width=2)  # across patches
    found = model.inpaint(digits.test[:2], hole, n=2, random_state=0)
    assert (found[:, :, ~hole] == digits.test[:2, None][:, :, ~hole]).all()
    assert "patches of 4x4" in repr(model)
    check = model.check(digits, rows=16)
    assert check.path is None  # it cannot walk in any order
    assert check.encoding is not None
    model.save(tmp_path)
    back = load(tmp_path)
    np.testing.assert_array_equal(back.log_prob(digits.test[:4]), model.log_prob(digits.test[:4]))
    with pytest.raises(ConfigError, match="`patch` must divide"):
        ImageModel(**TINY, patch=3).fit(digits)
    with pytest.raises(ConfigError, match="`order` and `patch`"):
        ImageModel(patch=2, order="raster")


def test_a_training_goes_on(digits, tmp_path):
    model = ImageModel(**TINY).fit(digits, folder=tmp_path / "run")
    again = ImageModel(**TINY).fit(digits, folder=tmp_path / "run")
    np.testing.assert_array_equal(again.log_prob(digits.test[:2]), model.log_prob(digits.test[:2]))
    with pytest.raises(CheckpointError, match="holds another run"):
        ImageModel(**{**TINY, "width": 8}).fit(digits, folder=tmp_path / "run")


def test_colours_and_turns(generator):
    rng = np.random.default_rng(0)
    images = Images(
        "noise", 4, *(rng.integers(0, 4, (n, 4, 4, 3), dtype=np.uint8) for n in (9, 4, 4))
    )
    model = ImageModel(**TINY).fit(images, turns=True)
    painted = model.inpaint(images.test[0], half_hole((4, 4), "left"), random_state=0)
    assert painted.shape == (1, 4, 4, 3)
    drawn = ImageRows(images.train, turns=True)
    first, _ = drawn.batch(0, 9, generator=generator)
    sums = to_x(images.train).sum(dim=1).sort().values
    assert torch.equal(first.sum(dim=1).sort().values, sums)  # the same images, turned
    assert not torch.equal(first.sort(dim=0).values, to_x(images.train).sort(dim=0).values)


def test_arrays_are_split(digits):
    array = np.concatenate([digits.train[:30], digits.test[:10]])[..., 0]
    assert ImageModel(**TINY).fit(array).levels_ == 256


def test_orders_and_questions():
    shape = Shape(4, 4, 3)
    for order in ("interleaved", "raster", "strided"):
        assert sorted(image_order(order, shape).tolist()) == list(range(48))
    assert image_order("interleaved", shape)[:3].tolist() == [0, 16, 32]  # red, green, blue
    assert len(pixel_coordinates(shape)) == 48
    assert pixel_coordinates(shape)[17] == (0, 1)
    names = image_schema(shape, 2).names
    assert names[17] == "green_0_1"
    query = image_queries(shape).sample(
        400,
        available=torch.ones(400, 48, dtype=torch.bool),
        generator=torch.Generator().manual_seed(0),
    )
    assert (query.given & query.query).sum() == 0
    assert query.query.any(dim=1).all()


def test_mistakes_get_one_sentence(model, digits, tmp_path):
    hole = half_hole((8, 8), "top")
    sentences = {
        "Images must be 8x8": lambda: model.log_prob(np.zeros((5, 5), dtype=np.uint8)),
        "numbers from 0 to 16": lambda: model.log_prob(np.full((8, 8), 20, dtype=np.uint8)),
        "whole numbers": lambda: model.inpaint(np.zeros((8, 8)), hole),
        r"`hole` must have the shape of the images, \(8, 8\)": lambda: model.inpaint(
            digits.test[0], half_hole((4, 4), "top")
        ),
        "is not fitted yet": lambda: ImageModel().sample(),
        '`order` must be one of "interleaved"': lambda: ImageModel(order="spiral"),
        "`minutes` and `settings` exclude": lambda: ImageModel(minutes=1, settings=SETTINGS),
        "a law over the 64 variables": lambda: ImageModel(
            **TINY, queries=UniformCardinality(10)
        ).fit(digits),
        "whole numbers, the codes": lambda: ImageModel(**TINY).fit(np.zeros((20, 4, 4))),
    }
    for sentence, mistake in sentences.items():
        with pytest.raises((QueryError, SchemaError, ConfigError), match=sentence):
            mistake()
    model.save(tmp_path)
    text = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(text.replace('"domain": "image"', '"domain": "sound"'))
    with pytest.raises(CheckpointError):
        ImageModel.load(tmp_path)
