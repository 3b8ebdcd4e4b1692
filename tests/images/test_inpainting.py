"""Holes are aligned over channels, checked for their size, and visible in a grid."""

import numpy as np
import pytest
import torch
from PIL import Image

from anyorder import ConfigError, QueryError, Rectangle, SchemaError
from anyorder.images.data import from_x, to_x
from anyorder.images.files import read_image, write_image
from anyorder.images.inpainting import (
    UNKNOWN,
    alpha_hole,
    half_hole,
    hole_query,
    picture_grid,
    picture_hole,
    random_hole,
    rectangle_hole,
    with_titles,
)


def test_a_rectangle_is_one_of_the_law_of_rectangles():
    hole = rectangle_hole((4, 6), top=1, left=2, height=2, width=3)
    assert hole.sum() == 6
    assert hole[1:3, 2:5].all()
    given, query = hole_query(hole, (4, 6, 3))
    assert Rectangle(4, 6, 3).log_prob(query[None]).isfinite().all()
    assert Rectangle(4, 6, 3, inside=False).log_prob(given[None]).isfinite().all()


def test_a_hole_asks_about_the_same_pixels_of_every_channel():
    hole = rectangle_hole((4, 6), top=0, left=0, height=1, width=2)
    given, query = hole_query(hole, (4, 6, 3))
    assert (given.shape, given.dtype) == ((72,), torch.bool)
    assert torch.equal(given, ~query)
    pixels = from_x(query.long()[None], (4, 6, 3))
    assert (pixels[0] == hole[:, :, None]).all()
    assert torch.equal(to_x(pixels)[0].bool(), query)


def test_halves_leave_the_middle():
    assert half_hole((2, 5), "left").tolist() == [[True, True, False, False, False]] * 2
    assert half_hole((2, 5), "right").tolist() == [[False, False, False, True, True]] * 2
    assert half_hole(3, "top").tolist() == [[True] * 3, [False] * 3, [False] * 3]
    assert (half_hole(4, "bottom") == ~half_hole(4, "top")).all()


def test_random_pixels_are_a_share_and_reproducible(generator):
    hole = random_hole((10, 10), 0.3, generator=generator)
    assert hole.sum() == 30
    assert (random_hole((10, 10), 0.3, generator=generator) != hole).any()
    same = random_hole((10, 10), 0.3, generator=torch.Generator().manual_seed(20221128))
    assert (same == hole).all()


def test_erased_pixels_and_white_pixels_of_a_file(tmp_path):
    hole = rectangle_hole((4, 6), top=1, left=1, height=2, width=2)
    erased = np.full((4, 6, 4), 200, dtype=np.uint8)
    erased[hole, 3] = 0
    Image.fromarray(erased).save(tmp_path / "erased.png")
    assert (alpha_hole(tmp_path / "erased.png", (4, 6)) == hole).all()
    assert read_image(tmp_path / "erased.png").shape == (4, 6, 3)
    write_image(tmp_path / "white.png", np.where(hole, 250, 3).astype(np.uint8)[:, :, None])
    assert (picture_hole(tmp_path / "white.png", (4, 6)) == hole).all()
    with pytest.raises(SchemaError, match=r"as the images, 6x4 \(height x width\); it is 4x6"):
        picture_hole(tmp_path / "white.png", (6, 4))
    with pytest.raises(SchemaError, match=r"as large as the images, 8x8 .*it is 4x6"):
        alpha_hole(tmp_path / "erased.png", 8)
    with pytest.raises(SchemaError, match="must have an alpha channel"):
        alpha_hole(tmp_path / "white.png", (4, 6))
    Image.fromarray(np.where(hole, 65_000, 300).astype(np.uint16)).save(tmp_path / "deep.png")
    for read in (picture_hole, alpha_hole):
        with pytest.raises(SchemaError, match=r'deep.png" must have 8 bits a channel'):
            read(tmp_path / "deep.png", (4, 6))
    with pytest.raises(ConfigError, match="There is no file"):
        picture_hole(tmp_path / "none.png", 4)


def test_odd_holes_are_refused(generator):
    with pytest.raises(ConfigError, match=r"which is 4x6 .*ends before row 5 and column 2"):
        rectangle_hole((4, 6), top=2, left=0, height=3, width=2)
    with pytest.raises(ConfigError, match='Did you mean "left"'):
        half_hole(4, "lefft")
    with pytest.raises(ConfigError, match="`share` must be a number between 0 and 1"):
        random_hole(4, 1.5, generator=generator)
    with pytest.raises(QueryError, match="must have an unknown pixel"):
        hole_query(random_hole(4, 0, generator=generator), (4, 4, 1))
    with pytest.raises(QueryError, match=r"shape of the images, \(8, 8\); got \(4, 4\)"):
        hole_query(half_hole(4, "left"), (8, 8, 1))
    with pytest.raises(
        QueryError, match="`hole` must be an array of booleans, one a pixel; got int64"
    ):
        hole_query(np.ones((4, 4), dtype=np.int64), (4, 4, 1))


def test_a_grid_shows_original_hole_and_completions(tmp_path, monkeypatch):
    monkeypatch.setattr("anyorder.images.inpainting.GAP", 1)
    originals = np.array([0, 16, 8, 4], dtype=np.uint8).reshape(2, 1, 2, 1)
    completions = np.stack([originals, 16 - originals, originals], axis=1)
    hole = np.array([[False, True]])
    picture = picture_grid(originals, hole, completions, levels=17, scale=3)
    assert picture.shape == (3 + 1 + 3, 5 * 6 + 4, 3)
    corners = picture[::4, ::7]  # the first pixel of each image
    assert corners[:, :, 0].tolist() == [[0, 0, 0, 255, 0], [128, 128, 128, 128, 128]]
    assert (picture[4:, 7 + 3 : 7 + 6] == UNKNOWN).all()
    assert (picture[:3, 3:6] == 255).all()
    assert (picture[3] == 255).all()
    assert (picture[:, 6] == 255).all()
    write_image(tmp_path / "grid.png", picture)
    assert (read_image(tmp_path / "grid.png") == picture).all()


def test_titles_stand_above_their_columns():
    pixels = np.zeros((1, 8, 8, 1), dtype=np.uint8)
    hole = np.zeros((8, 8), dtype=bool)
    grid = picture_grid(pixels, hole, pixels[:, None], levels=17)
    found = with_titles(grid, columns=3)
    above = found.shape[0] - grid.shape[0]
    assert (found[above:, : grid.shape[1]] == grid).all()
    for column in range(3):
        assert (found[:above, column * 68 : column * 68 + 40] < 128).any()
    narrow = picture_grid(pixels, hole, pixels[:, None], levels=17, scale=2)
    assert with_titles(narrow, columns=3) is narrow  # they would run into each other


def test_a_grid_of_colours_has_a_hole_for_each_image(generator):
    pixels = np.random.default_rng(0).integers(0, 255, (3, 32, 32, 3), dtype=np.uint8)
    holes = np.stack([random_hole(32, 0.5, generator=generator) for _ in pixels])
    picture = picture_grid(pixels, holes, pixels[:, None])
    assert picture.shape == (3 * 64 + 8, 3 * 64 + 8, 3)  # an image of 32 is shown at twice its size
    for row, (image, hole) in enumerate(zip(pixels, holes, strict=True)):
        top = 68 * row
        assert (picture[top : top + 64 : 2, :64:2] == image).all()
        shown = picture[top : top + 64 : 2, 68:132:2]
        assert (shown[~hole] == image[~hole]).all()
        assert (shown[hole] == UNKNOWN).all()


def test_odd_grids_are_refused():
    pixels = np.zeros((2, 4, 4, 1), dtype=np.uint8)
    hole = half_hole(4, "left")
    with pytest.raises(SchemaError, match=r"booleans of shape \(4, 4\) or \(2, 4, 4\)"):
        picture_grid(pixels, hole[:2], pixels[:, None])
    with pytest.raises(SchemaError, match=r"\(count, samples, .* got \(2, 4, 4, 1\)"):
        picture_grid(pixels, hole, pixels)
    with pytest.raises(SchemaError, match="1 or 3 channels to be shown"):
        picture_grid(pixels.repeat(2, axis=3), hole, pixels[:, None].repeat(2, axis=4))
    with pytest.raises(ConfigError, match="`scale` must be a whole number"):
        picture_grid(pixels, hole, pixels[:, None], scale=1.5)
