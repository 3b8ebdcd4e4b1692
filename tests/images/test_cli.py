"""The verbs for images at their smallest; every mistake gets one sentence."""

import json

import numpy as np
import pytest
from PIL import Image

import anyorder
from anyorder.cli.app import main

TINY = ["--steps", "2", "--layers", "1", "--width", "16", "--heads", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Thirty pictures of 12x10 pixels, a black and white mask, and one with an erased corner."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    (folder / "set").mkdir()
    for number in range(30):
        pixels = rng.integers(0, 256, (12, 10), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "set" / f"{number}.png")
    mask = np.zeros((6, 5), dtype=np.uint8)
    mask[:2] = 255
    Image.fromarray(mask).save(folder / "mask.png")
    erased = np.full((6, 5, 4), 200, dtype=np.uint8)
    erased[:3, :3, 3] = 0
    Image.fromarray(erased).save(folder / "erased.png")
    Image.fromarray(erased[:, :, 0]).save(folder / "plain.png")
    Image.fromarray(mask.astype(np.uint16) * 257).save(folder / "deep.png")
    (folder / "void").mkdir()
    (folder / "points").mkdir()
    for number in range(3):
        Image.new("L", (1, 1), 9 * number).save(folder / "points" / f"{number}.png")
    (folder / "photographs").mkdir()
    for number in range(3):
        Image.new("RGB", (1000, 750)).save(folder / "photographs" / f"{number}.jpg")
    return folder


@pytest.fixture(scope="module")
def run(folder):
    command = ["fit", str(folder / "set"), "--size", "6x5", "--levels", "4", *TINY]
    main([*command, "--out", str(folder / "run"), "--turns"])
    return folder / "run"


def test_fit_says_what_it_read_and_what_to_try(folder, run, capsys):
    main(
        [
            "fit",
            str(folder / "set"),
            "--size",
            "6x5",
            "--levels",
            "4",
            *TINY,
            "--out",
            str(run),
            "--turns",
        ]
    )
    said = capsys.readouterr().err
    assert "6x5 pixels, 1 channel(s) of 4 levels; 24, 3, 3 images" in said
    assert "Already trained (step 2)" in said
    assert f"Saved in {run}." in said
    assert "Held-out images: " in said
    assert "anyorder inpaint" in said
    main(["info", str(run)])
    shown = capsys.readouterr().out
    assert "images" in shown
    assert "6x5x1, height x width x channels" in shown
    main(["info", str(run), "--json"])
    assert json.loads(capsys.readouterr().out)["levels"] == 4


HOLES = {
    "mask": (["plain.png", "--mask", "mask.png"], 10),
    "rectangle": (["plain.png", "--rectangle", "0,1,2,3"], 6),
    "half": (["plain.png", "--half", "left"], 12),
    "pixels": (["plain.png", "--pixels", "0.5"], 15),
    "alpha": (["erased.png"], 9),
    "set": (["set", "--half", "bottom", "--rows", "2"], 15),
}


@pytest.mark.parametrize("name", HOLES)
def test_holes_are_painted(name, folder, run, tmp_path, capsys):
    (file, *options), unknown = HOLES[name]
    words = [str(folder / word) if word.endswith(".png") else word for word in options]
    command = ["inpaint", str(run), str(folder / file), *words, "--n", "2"]
    grid, each = tmp_path / "grid.png", tmp_path / "each"
    main([*command, "--out", str(grid), "--completions", str(each)])
    assert f"Inpainted {unknown} pixels" in capsys.readouterr().err
    count = 2 if name == "set" else 1
    picture = np.array(Image.open(grid))
    assert picture.shape[1] == 4 * 5 * 11 + 3 * 4  # original, known, two completions
    assert (picture == (255, 0, 255)).all(axis=-1).sum() == count * unknown * 11**2
    assert sorted(path.name for path in each.iterdir())[:2] == ["0-0.png", "0-1.png"]
    completed = np.array(Image.open(each / "0-0.png"))
    assert set(np.unique(completed)) <= {0, 85, 170, 255}


def test_samples_have_three_kinds_of_holes(folder, run, tmp_path):
    out = tmp_path / "samples.png"
    words = ["--run", str(run), "--images", str(folder / "set"), "--out", str(out)]
    main(["reproduce", "samples", *words])
    assert np.array(Image.open(out)).shape[1] == 5 * 5 * 11 + 4 * 4  # three completions


def test_images_are_evaluated_and_checked(folder, run, capsys):
    main(["evaluate", str(run), str(folder / "set"), "--rows", "3", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["bits"]["joint"]["n"] == 3
    main(["evaluate", str(run), str(folder / "set"), "--rows", "3"])
    assert "bits a dimension" in capsys.readouterr().out
    main(["check", str(run), str(folder / "set"), "--rows", "3"])
    assert "3 images of its test part" in capsys.readouterr().out
    assert anyorder.load(run).sample(1, random_state=0).shape == (1, 6, 5, 1)


def test_one_image_of_one_pixel_is_evaluated(folder, capsys):
    run, images = str(folder / "point"), str(folder / "points")
    main(["fit", images, *TINY, "--out", run])
    main(["evaluate", run, images])
    shown = capsys.readouterr().out
    assert "bits a dimension" in shown
    assert "nan" not in shown
    with pytest.raises(SystemExit):
        main(["evaluate", run, images, "--report", str(folder / "page.html")])
    streams = capsys.readouterr()
    assert not streams.out, "it is refused before the work"
    assert "`--report` inpaints halves of images" in streams.err


MISTAKES = {
    "no hole": (["inpaint", "RUN", "set", "--out", "grid.png"], "set the hole"),
    "no alpha": (["inpaint", "RUN", "plain.png", "--out", "grid.png"], "alpha channel"),
    "two holes": (
        ["inpaint", "RUN", "plain.png", "--half", "top", "--pixels", "0.5", "--out", "g.png"],
        "`--half` and `--pixels` both define",
    ),
    "size": (["inpaint", "RUN", "set/0.png", "--half", "top", "--out", "g.png"], "must be 6x5"),
    "mask size": (
        ["inpaint", "RUN", "plain.png", "--mask", "set/0.png", "--out", "g.png"],
        "must be as large as the images, 6x5",
    ),
    "rectangle": (
        ["inpaint", "RUN", "plain.png", "--rectangle", "1,2", "--out", "g.png"],
        "four whole numbers",
    ),
    "ending": (["inpaint", "RUN", "plain.png", "--half", "top", "--out", "g.txt"], "must end in"),
    "no picture": (["inpaint", "RUN", "no.png", "--half", "top", "--out", "g.png"], "no file"),
    "not a picture": (
        ["inpaint", "RUN", "run/model.json", "--half", "top", "--out", "g.png"],
        "is not a whole picture",
    ),
    "text": (["inpaint", "shipped", "plain.png", "--half", "top", "--out", "g.png"], "of text"),
    "no run": (["reproduce", "samples", "--images", "digits"], "`--run` must be the folder"),
    "table verb": (["query", "RUN", "--of", "age"], "holds a model of images; this asks for one"),
    "fit size": (["fit", "set", "--size", "big", "--out", "other"], "`--size` must be such as"),
    "photographs": (
        ["fit", "photographs", "--out", "other"],
        "are 2,250,000 variables: more than 4,096, or 65,536 in 4,096 patches",
    ),
    "patches": (
        ["fit", "photographs", "--patch", "5", "--out", "other"],
        "in 30,000 patches: more than",
    ),
    "huge": (["fit", "set", "--size", "100000", "--out", "other"], "smaller (`--size 32`)"),
    "no folder": (
        ["fit", "nowhere", "--as", "image", "--out", "other"],
        '"nowhere" is not there: images are a folder of pictures, or one of digits, cifar10',
    ),
    "no such set": (["evaluate", "RUN", "digit"], 'Did you mean "digits"?'),
    "file": (["evaluate", "RUN", "plain.png"], "is not a folder: images are a folder of"),
    "other set": (
        ["evaluate", "RUN", "digits"],
        "of 8x8 with 1 channel(s) of 17 levels, and the model reads 6x5 with 1 channel(s) of 4",
    ),
    "no data": (["fit", "mnist", "--out", "other"], "environment variable ANYORDER_DATA"),
    "cold": (
        ["inpaint", "RUN", "plain.png", "--half", "top", "--temperature", "0", "--out", "g.png"],
        "`--greedy` takes the most probable level",
    ),
    "empty": (["fit", "void", "--out", "other"], "is a folder without pictures and without"),
    "power": (["fit", "set", "--size", "²", "--out", "other"], "`--size` must be such as"),
    "digits": (["fit", "set", "--size", "9" * 5000, "--out", "other"], "must be such as"),
    "power of a rectangle": (
        ["inpaint", "RUN", "plain.png", "--rectangle", "²,0,1,1", "--out", "g.png"],
        "four whole numbers",
    ),
    "deep mask": (
        ["inpaint", "RUN", "plain.png", "--mask", "deep.png", "--out", "g.png"],
        "must have 8 bits a channel",
    ),
    "nowhere": (["fit", "set", "--out", ""], "it is empty"),
    "half patch": (["fit", "set", "--patch", "1.5", "--out", "other"], "not a whole number"),
    "fit table": (
        ["fit", "set", "--queries", "-> age", "--out", "other"],
        "is for tables, and",
    ),
    "fit text": (["fit", "set", "--length", "5", "--out", "other"], "is for text, and"),
    "text option": (["fit", "pydoc", "--size", "5", "--out", "other"], "is for images, and"),
    "other shapes": (["fit", "set", "--levels", "300", "--out", "other"], "`levels` must be"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_get_one_sentence(name, folder, run, capsys, monkeypatch):
    words, sentence = MISTAKES[name]
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ANYORDER_DATA", raising=False)
    with pytest.raises(SystemExit) as stopped:
        main([str(run) if word == "RUN" else word for word in words])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert sentence in said
