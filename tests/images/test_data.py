"""Images are rows of levels and come back whole; smaller, coarser and turned ones say so."""

import itertools

import numpy as np
import pytest
import torch

from anyorder import ConfigError, Schema, SchemaError, channel_interleaved, raster
from anyorder.images.data import (
    Images,
    Shape,
    bundled_digits,
    check_size,
    from_array,
    from_x,
    image_schema,
    quantised,
    random_parts,
    shrunk,
    to_x,
    turned,
)


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (20, 4, 6, 3), dtype=np.uint8)


def symmetries(picture):
    """The eight pictures that turning and flipping makes of a square one."""
    flipped = [picture, picture[:, ::-1]]
    return [np.rot90(one, quarters) for one in flipped for quarters in range(4)]


def test_rows_go_channel_by_channel_and_come_back(pixels):
    x = to_x(pixels)
    assert (x.shape, x.dtype) == ((20, 72), torch.long)
    assert x[3, 2 * 24 + 1 * 6 + 5] == pixels[3, 1, 5, 2]
    assert torch.equal(x[:, raster(4, 6, 3)], x)
    by_pixel = x[:, channel_interleaved(4, 6, 3)].reshape(20, 4, 6, 3)
    assert (by_pixel.numpy() == pixels).all()
    back = from_x(x, (4, 6, 3))
    assert back.dtype == np.uint8
    assert (back == pixels).all()


def test_the_schema_names_channel_row_and_column():
    schema = image_schema(Shape(4, 6, 3), levels=256)
    assert schema.num_variables == Shape(4, 6, 3).num_variables == 72
    assert schema.index("blue_1_5") == 2 * 24 + 1 * 6 + 5
    assert schema["red_0_0"].levels == tuple(range(256))
    assert image_schema((2, 2, 1), levels=2).names == (
        "grey_0_0", "grey_0_1", "grey_1_0", "grey_1_1",
    )  # fmt: skip


def test_the_pixels_of_a_schema_share_their_levels():
    # Checked and kept one by one, the levels of 256x256 pixels took half a minute and 100 MB.
    schema = image_schema((32, 32, 3), levels=256)
    assert len({id(variable.levels) for variable in schema}) == 1
    assert Schema.from_json(schema.to_json()) == schema


def test_an_array_is_split_at_random_and_always_alike(pixels):
    images = from_array(pixels, name="noise")
    assert (images.name, images.levels, images.shape) == ("noise", 256, (4, 6, 3))
    assert [len(part) for part in (images.train, images.valid, images.test)] == [16, 2, 2]
    parts = np.concatenate([images.train, images.valid, images.test])
    assert sorted(map(bytes, parts)) == sorted(map(bytes, pixels))
    assert not (parts == pixels).all()
    assert (from_array(pixels).test == images.test).all()
    assert from_array(pixels[..., 0] > 99, levels=2).shape == (4, 6, 1)


def test_every_part_has_an_image():
    assert [len(part) for part in random_parts(3)] == [1, 1, 1]
    assert [len(part) for part in random_parts(25, 2)] == [23, 2]
    with pytest.raises(SchemaError, match="must be 3 images at least, one a part; got 2"):
        random_parts(2)


def test_digits_need_no_file():
    images = bundled_digits()
    assert (images.name, images.levels) == ("digits, scikit-learn", 17)
    assert images.shape == (8, 8, 1)
    assert [len(part) for part in (images.train, images.valid, images.test)] == [1439, 179, 179]
    assert int(images.train.max()) == 16
    assert (bundled_digits().test == images.test).all()


def test_odd_arrays_are_refused_in_a_sentence(pixels):
    with pytest.raises(SchemaError, match=r"got float64. Shades from 0 to 1 become 256 levels"):
        from_array(pixels / 255)
    with pytest.raises(SchemaError, match="must hold numbers from 0 to 15; got 255"):
        from_array(pixels, levels=16)
    with pytest.raises(SchemaError, match="from 0 to 255; got -1"):
        from_array(pixels.astype(int) - 1)
    with pytest.raises(SchemaError, match=r"1 to 4 channels, as the last axis; got shape \(20, 3"):
        from_array(pixels.transpose(0, 3, 1, 2))
    with pytest.raises(SchemaError, match=r"with an image or more; got shape \(0, 4, 6, 3\)"):
        from_array(pixels[:0])
    with pytest.raises(ConfigError, match="`levels` must be a whole number, from 2 to 256"):
        from_array(pixels, levels=300)
    with pytest.raises(SchemaError, match="must have a training image"):
        Images("none", 256, pixels[:0], pixels, pixels)
    with pytest.raises(SchemaError, match=r"one shape; got \(4, 4, 3\) and \(4, 6, 3\)"):
        Images("two", 256, pixels, pixels[:, :, :4], pixels)
    with pytest.raises(SchemaError, match="of 9 levels must hold numbers from 0 to 8; got 255"):
        Images("coarse", 9, pixels, pixels, pixels)
    with pytest.raises(SchemaError, match=r"array of uint8 .* got Tensor"):
        to_x(torch.zeros(2, 4, 6, 3))
    with pytest.raises(SchemaError, match=r"shape \(count, 72\).* got \(20, 24\)"):
        from_x(to_x(pixels[..., :1]), (4, 6, 3))
    with pytest.raises(SchemaError, match=r"whole numbers, the codes of levels; got float32"):
        from_x(to_x(pixels).float(), (4, 6, 3))
    with pytest.raises(ConfigError, match=r"or height and width; got \(1, 2, 3\)"):
        check_size((1, 2, 3))


def test_shrinking_is_the_mean_of_blocks(pixels, monkeypatch):
    monkeypatch.setattr("anyorder.images.data.AT_ONCE", 7)
    images = from_array(pixels)
    small = shrunk(images, (2, 3))
    assert small.name == "array, 2x3"
    for image, row, column in itertools.product(range(16), range(2), range(3)):
        block = images.train[image, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        mean = block.mean(axis=(0, 1))
        assert (small.train[image, row, column] == np.floor(mean + 0.5)).all()
    assert shrunk(images, (4, 6)) is images
    with pytest.raises(ConfigError, match=r"must divide 4x6; got 3x3\. Take 2x3\."):
        shrunk(images, 3)


def test_levels_are_bins_of_one_width():
    every = np.arange(256, dtype=np.uint8).reshape(4, 8, 8, 1)
    images = Images("all", 256, every, every, every, is_public_test=True)
    coarse = quantised(images, 16)
    assert (coarse.name, coarse.levels, coarse.is_public_test) == ("all, 16 levels", 16, False)
    assert (coarse.train == every // 16).all()
    assert (quantised(images, 2).test == (every >= 128)).all()
    assert quantised(bundled_digits(), 3).train.max() == 2
    assert quantised(images, 256) is images
    with pytest.raises(ConfigError, match="from 2 to 16; got 17"):
        quantised(coarse, 17)


def test_turning_keeps_each_image_itself(generator):
    square = np.random.default_rng(1).integers(0, 256, (800, 3, 3, 2), dtype=np.uint8)
    before = square.copy()
    found = turned(square, generator=generator)
    assert (square == before).all()
    assert len(np.unique(found.reshape(800, -1), axis=0)) == 800
    which = [
        [bytes(np.ascontiguousarray(one)) for one in symmetries(picture)].index(bytes(turn))
        for picture, turn in zip(square, found, strict=True)
    ]
    # Each of the eight has an expected count of 100 with deviation 9.4.
    assert min(which.count(one) for one in range(8)) > 60


def test_turning_is_reproducible_and_can_be_less(pixels):
    def again(**options):
        return turned(pixels, generator=torch.Generator().manual_seed(3), **options)

    flipped = again(rotations=False)
    assert (flipped == again(rotations=False)).all()
    is_flipped = (flipped != pixels).any(axis=(1, 2, 3))
    assert 0 < is_flipped.sum() < 20
    assert (flipped[is_flipped] == pixels[is_flipped][:, :, ::-1]).all()
    with pytest.raises(ConfigError, match=r"must be square to be turned.* got 4x6"):
        again()
    with pytest.raises(ConfigError, match=r"`generator` must be a torch\.Generator; got int"):
        turned(pixels, generator=3)
