"""Pictures in files are read as they are, or made alike where that is asked for."""

import numpy as np
import pytest
from PIL import Image

from anyorder import ConfigError, SchemaError
from anyorder.images.files import ENDINGS, load_image_folder, read_image, write_image


def picture(seed, height=6, width=8, channels=3):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def fill(folder, seeds, **options):
    for seed in seeds:
        write_image(folder / f"{seed:03}.png", picture(seed, **options))


def test_a_picture_comes_back(tmp_path):
    for channels in (1, 3):
        write_image(tmp_path / "new" / "a.png", picture(0, channels=channels))
        assert (read_image(tmp_path / "new" / "a.png") == picture(0, channels=channels)).all()
    assert read_image(tmp_path / "new" / "a.png", channels=1).shape == (6, 8, 1)


def test_a_folder_is_split_always_alike(tmp_path):
    fill(tmp_path / "cats", range(10))
    fill(tmp_path / "dogs", range(10, 20))
    (tmp_path / "cats" / "._000.png").write_bytes(b"the shadow that a Mac leaves")
    (tmp_path / "notes.txt").touch()
    images = load_image_folder(tmp_path)
    assert (images.name, images.levels, images.shape) == (tmp_path.name, 256, (6, 8, 3))
    assert [len(part) for part in (images.train, images.valid, images.test)] == [16, 2, 2]
    everything = np.concatenate([images.train, images.valid, images.test])
    assert sorted(map(bytes, everything)) == sorted(bytes(picture(seed)) for seed in range(20))
    assert (load_image_folder(tmp_path).test == images.test).all()


def test_the_parts_of_a_folder_are_kept(tmp_path):
    fill(tmp_path / "train", range(20))
    fill(tmp_path / "test", range(20, 23))
    images = load_image_folder(tmp_path)
    assert [len(part) for part in (images.train, images.valid)] == [18, 2]
    assert (images.test == np.stack([picture(seed) for seed in range(20, 23)])).all()
    fill(tmp_path / "val", [30])
    images = load_image_folder(tmp_path)
    assert (len(images.train), len(images.valid)) == (20, 1)
    assert (images.valid[0] == picture(30)).all()


def test_pictures_are_cropped_in_the_middle_and_averaged(tmp_path):
    wide = picture(0, height=4, width=12)
    write_image(tmp_path / "wide.png", wide)
    found = read_image(tmp_path / "wide.png", size=2)
    blocks = wide[:, 4:8].reshape(2, 2, 2, 2, 3).mean(axis=(1, 3))
    assert np.abs(found - blocks).max() <= 1  # rounding
    assert read_image(tmp_path / "wide.png", size=(3, 5), channels=1).shape == (3, 5, 1)


def test_pictures_of_many_kinds_become_alike(tmp_path):
    fill(tmp_path, range(3))
    Image.fromarray(picture(3)).save(tmp_path / "photo.JPG")
    Image.fromarray(picture(4, channels=4)).save(tmp_path / "erased.png")
    Image.fromarray(picture(5)).quantize(7).save(tmp_path / "palette.png")
    write_image(tmp_path / "grey.png", picture(6, height=20, width=9, channels=1))
    images = load_image_folder(tmp_path, size=4, channels=3)
    assert len(images.train) + len(images.valid) + len(images.test) == 7
    assert images.shape == (4, 4, 3)
    with pytest.raises(
        SchemaError, match=r'grey.png" is 20x9 of one channel and .*`--size`.*grey or'
    ):
        load_image_folder(tmp_path)
    with pytest.raises(SchemaError, match=r"3 channels\. Save all in grey or all in colours"):
        load_image_folder(tmp_path, size=4)


def test_a_picture_is_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its side
    Image.fromarray(picture(0)).save(tmp_path / "side.png", exif=exif)
    assert (read_image(tmp_path / "side.png") == np.rot90(picture(0), -1)).all()


def test_odd_pictures_are_refused_in_a_sentence(tmp_path, monkeypatch):
    fill(tmp_path, [0])
    whole = (tmp_path / "000.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[:-60])
    (tmp_path / "page.png").write_text("<html>")
    Image.fromarray(np.zeros((4, 4), dtype=np.uint16)).save(tmp_path / "deep.png")
    for name in ("cut.png", "page.png"):
        with pytest.raises(SchemaError, match=f'{name}" is not a whole picture'):
            read_image(tmp_path / name)
    with pytest.raises(SchemaError, match="must have 8 bits a channel"):
        read_image(tmp_path / "deep.png")
    with pytest.raises(ConfigError, match="There is no file"):
        read_image(tmp_path / "none.png")
    with pytest.raises(ConfigError, match=r"`channels` must be 1 \(grey\) or 3 \(colours\); got 4"):
        read_image(tmp_path / "000.png", channels=4)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30)
    with pytest.raises(SchemaError, match=r"not a whole picture .*exceeds limit"):
        read_image(tmp_path / "000.png")


@pytest.mark.parametrize("kind", ["EPS", "GIF", "TIFF", "PPM"])
def test_only_promised_formats_are_decoded_whatever_the_ending(kind, tmp_path, monkeypatch):
    def started(*_, **__):
        raise AssertionError("Ghostscript was started")

    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", started)
    Image.fromarray(picture(0)).save(tmp_path / "a.png", format=kind)
    with pytest.raises(SchemaError, match=r'a.png" is not a whole picture'):
        read_image(tmp_path / "a.png")


@pytest.mark.parametrize("ending", ENDINGS)
def test_promised_formats_are_decoded(ending, tmp_path):
    write_image(tmp_path / f"a{ending}", picture(0))
    assert read_image(tmp_path / f"a{ending}").shape == (6, 8, 3)


def test_what_is_hidden_or_is_no_file_is_left_out(tmp_path):
    fill(tmp_path / ".pictures", range(4))  # what was asked for may be hidden itself
    for name in (".thumbs/a.png", ".a.png"):
        (tmp_path / ".pictures" / name).parent.mkdir(exist_ok=True)
        (tmp_path / ".pictures" / name).write_bytes(b"junk")
    (tmp_path / ".pictures" / "sub.png").mkdir()
    assert len(load_image_folder(tmp_path / ".pictures").train) == 2
    (tmp_path / ".pictures" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(ConfigError, match=r'gone.png" is a link to a file that is gone'):
        load_image_folder(tmp_path / ".pictures")


def test_odd_folders_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="There is no folder"):
        load_image_folder(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"no pictures in .*: put .png, .jpg"):
        load_image_folder(tmp_path)
    fill(tmp_path, range(2))
    with pytest.raises(SchemaError, match="must be 3 images at least"):
        load_image_folder(tmp_path)


def test_odd_names_and_shapes_are_not_written(tmp_path):
    with pytest.raises(ConfigError, match=r'must end in .png, .*; got "a.txt"'):
        write_image(tmp_path / "a.txt", picture(0))
    with pytest.raises(SchemaError, match=r"1 or 3\); got uint8 of shape \(6, 8, 2\)"):
        write_image(tmp_path / "a.png", picture(0, channels=2))


@pytest.mark.parametrize(("name", "longest"), [("a.webp", 16_383), ("a.jpg", 65_500)])
def test_pictures_that_a_format_cannot_hold_are_not_written(name, longest, tmp_path):
    write_image(tmp_path / name, np.zeros((1, longest, 1), dtype=np.uint8))
    (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=rf"holds {longest:,} pixels a side at most: write a .pn"):
        write_image(tmp_path / name, np.zeros((longest + 1, 1, 1), dtype=np.uint8))
    assert not list(tmp_path.iterdir())


def test_without_pillow_it_says_what_to_install(tmp_path, monkeypatch):
    fill(tmp_path, [0])
    monkeypatch.setattr("anyorder.images.files.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r'need Pillow: pip install "anyorder\[image\]"'):
        read_image(tmp_path / "000.png")
