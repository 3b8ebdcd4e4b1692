"""Commands for images: fit, inpaint, evaluate."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from anyorder.cli.console import check_target, note, print_json, shell, show
from anyorder.cli.options import EvaluateOptions, FitOptions
from anyorder.cli.resume import explaining_mismatch, overwriting, size_flags, training_flags
from anyorder.cli.runs import finished_step, note_fitted, read_run
from anyorder.diagnostics.consistency import estimate_json
from anyorder.diagnostics.evaluation import conditional_bits
from anyorder.errors import ConfigError, QueryError, check_count, check_seed, nearest
from anyorder.images.data import MAX_LEVELS, Images, Pixels, coarser, quantised, shrunk, to_x
from anyorder.images.files import (
    ENDINGS,
    folder_shape,
    load_image_folder,
    picture_files,
    read_image,
    write_image,
)
from anyorder.images.inpainting import (
    Hole,
    alpha_hole,
    half_hole,
    picture_grid,
    picture_hole,
    random_hole,
    rectangle_hole,
    shades,
    with_titles,
)
from anyorder.images.model import IMAGE_SETTINGS, VALID_ROWS, ImageModel, check_affordable
from anyorder.images.public_sets import BUNDLED, READERS, load_images
from anyorder.training.settings import is_first_process

ROWS = 6
"""Default number of test images to inpaint, where a set is named in place of a file."""

PARTS = 3
"""Least number of images of a set: one each for training, validation and test."""


def is_images(file: str) -> bool:
    """Returns whether a name is that of a set of images, or of a folder with a picture in it."""
    folder = Path(file)
    if folder.is_dir():
        return any(picture_files(folder))
    return file == BUNDLED or file in READERS


def read_images(file: str, *, size: str | None = None, levels: int | None = None) -> Images:
    """Reads what a user typed: a folder of pictures, or the name of a public set."""
    pixels = None if size is None else read_size(size)
    if not Path(file).is_dir():
        return load_images(_public(file), size=pixels, levels=levels)
    images = load_image_folder(file, size=pixels)
    return images if levels is None else quantised(images, levels)


def _public(file: str) -> str:
    """Returns the name of a public set; the error says that a folder would do too."""
    names = [BUNDLED, *READERS]
    if file not in names:
        there = "is not a folder" if Path(file).exists() else "is not there"
        raise ConfigError(
            f'"{file}" {there}: images are a folder of pictures, or one of {", ".join(names)}.'
            f"{nearest(file, names)}"
        )
    return file


def read_size(size: str) -> tuple[int, int]:
    """Reads height and width from "16" or "16x24".

    Example:
        >>> read_size("16"), read_size("16x24")
        ((16, 16), (16, 24))
    """
    parts = size.lower().split("x")
    if len(parts) > 2 or not all(map(_is_whole, parts)):
        raise ConfigError(
            f'`--size` must be such as "16" or "16x24" (height x width); got "{size}".'
        )
    numbers = [check_count("size", int(part)) for part in parts]
    return numbers[0], numbers[-1]


def fit_images(
    file: str,
    shared: FitOptions,
    *,
    size: str | None,
    levels: int | None,
    turns: bool | None,
    patch: int | None,
) -> None:
    """Fits images and saves the model; see `anyorder fit --help`."""
    out, minutes, steps = shared.out, shared.minutes, shared.steps
    budget = IMAGE_SETTINGS.minutes if minutes is None and steps is None else minutes
    settings = replace(IMAGE_SETTINGS, minutes=budget, steps=steps, seed=check_seed(shared.seed))
    sizes = shared.sizes() if patch is None else {**shared.sizes(), "patch": patch}
    model = ImageModel(settings=settings, **sizes)
    if Path(file).is_dir():  # photographs would fill the memory before the model sees them
        shape_of_all = folder_shape(file, size=None if size is None else read_size(size))
        check_affordable(shape_of_all, model.patch)
    images, training = read_images(file, size=size, levels=levels), out / "training"
    if is_first_process():
        height, width, channels = images.shape
        parts = ", ".join(f"{len(p):,}" for p in (images.train, images.valid, images.test))
        note(
            f'"{images.name}": {height}x{width} pixels, {channels} channel(s) of {images.levels} '
            f"levels; {parts} images to train, validate and test"
        )

    def flags(one: ImageModel) -> dict[str, Any]:
        is_new = one is model
        shape = images.shape if is_new else one.fitted_shape()
        levels = images.levels if is_new else one.levels_
        own = {"--size": f"{shape.height}x{shape.width}", "--levels": levels, "--patch": one.patch}
        return {**own, **size_flags(one), **training_flags(one.training_settings())}

    def other_data(_: ImageModel) -> str:
        return f'it is of other pictures than "{file}"'

    room = overwriting(out, overwrite=shared.overwrite, file=file)
    with room, explaining_mismatch(out, model, file=file, flags=flags, other_data=other_data):
        done = finished_step(training)
        model.progress = done is None
        model.fit(images, turns=bool(turns), folder=training)
        if is_first_process():
            model.save(out)
    if is_first_process():
        bits = conditional_bits(model.fitted(), to_x(images.valid[:VALID_ROWS]))
        held_out = f"Held-out images: {bits} bits for each pixel and channel of a random half"
        note_fitted(images.name, out, done, held_out)
        name = file if not Path(file).is_dir() else "PICTURE.png"
        note(
            f"  {shell('anyorder', 'inpaint', out, name, '--half', 'bottom', '--out', 'grid.png')}"
        )


def inpaint_image(
    run: Path,
    file: str,
    *,
    mask: Path | None,
    rectangle: str | None,
    half: str | None,
    pixels: float | None,
    n: int,
    rows: int,
    greedy: bool,
    temperature: float,
    resize: bool,
    out: Path,
    completions: Path | None,
    seed: int,
) -> None:
    """Inpaints the holes of pictures; see `anyorder inpaint --help`."""
    check_count("n", n)
    check_seed(seed)
    if not 0 < temperature < math.inf:
        raise ConfigError(
            f"`--temperature` must be above 0 and finite; got {temperature:g}. `--greedy` takes "
            "the most probable level at each step."
        )
    if out.suffix.lower() not in ENDINGS:
        raise ConfigError(f'`--out` must end in {", ".join(ENDINGS)}; got "{out}".')
    check_target(out, file, mask)
    model = read_run(run, "image")
    originals = _pictures(model, file, rows=rows, resize=resize)
    size = originals.shape[1:3]
    given = {"--mask": mask, "--rectangle": rectangle, "--half": half, "--pixels": pixels}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) > 1:
        raise ConfigError(f"`{chosen[0]}` and `{chosen[1]}` both define the hole: drop one.")
    hole = _hole(file, size, mask=mask, rectangle=rectangle, half=half, pixels=pixels, seed=seed)
    painted = model.inpaint(
        originals,
        hole,
        n=1 if greedy else n,
        how="greedy" if greedy else "sample",
        temperature=temperature,
        random_state=seed,
    )
    grid = picture_grid(originals, hole, painted, levels=model.levels_)
    write_image(out, with_titles(grid, columns=2 + painted.shape[1]))
    note(f"Inpainted {int(hole.sum()):,} pixels of {len(originals)} image(s): {out}")
    if completions is not None:
        _write_each(completions, painted, model.levels_)


def evaluate_images(model: ImageModel, file: str, options: EvaluateOptions) -> None:
    """Prints the bits of images under a model; see `anyorder evaluate --help`."""
    images = images_for(model, file)
    rows = 256 if options.rows is None else options.rows
    found = model.evaluate(images, rows=rows, random_state=check_seed(options.seed))
    if options.json:
        bits = {name: estimate_json(estimate) for name, estimate in found.items()}
        print_json({"data": images.name, "bits": bits})
        return
    questions = {
        "joint": "joint: all pixels and channels",
        "marginal": "marginal: a random set of them, divided by all",
        "conditional": "conditional: a random half given the other, divided by those queried",
    }
    show(
        ["query", "bits a dimension", "images"],
        [[questions[name], str(bits), str(len(bits.rows))] for name, bits in found.items()],
        title=f"{images.name}: its test part; less is better",
        numbers=["bits a dimension", "images"],
    )


def images_for(model: ImageModel, file: str) -> Images:
    """Reads images in the size, channels and levels of a model."""
    assert model.shape_ is not None
    height, width, channels = model.shape_
    if Path(file).is_dir():
        images = load_image_folder(file, size=(height, width), channels=channels)
    else:
        images = load_images(_public(file))
        full, levels = images.shape, images.levels
        smaller = full.height % height == 0 and full.width % width == 0
        if not smaller or full.channels != channels or levels < model.levels_:
            raise QueryError(
                f'"{file}" does not fit the model: its images are of {full.height}x{full.width} '
                f"with {full.channels} channel(s) of {levels} levels, and the model reads {height}x"
                f"{width} with {channels} channel(s) of {model.levels_} levels."
            )
        images = shrunk(images, (height, width))
    return quantised(images, model.levels_)


def _pictures(model: ImageModel, file: str, *, rows: int, resize: bool) -> Pixels:
    """Reads one picture, or the first test images of a set."""
    assert model.shape_ is not None
    height, width, channels = model.shape_
    if Path(file).is_dir():
        _check_folder(Path(file))
    if is_images(file):
        return images_for(model, file).test[: check_count("rows", rows)]
    size = (height, width) if resize else None
    picture = read_image(file, size=size, channels=channels)
    if picture.shape[:2] != (height, width):
        raise QueryError(
            f'"{file}" must be {height}x{width} (height x width), like the images of the model; it '
            f"is {picture.shape[0]}x{picture.shape[1]}. `--resize` crops and resizes it."
        )
    return coarser(picture, MAX_LEVELS, model.levels_)[None]


def _check_folder(folder: Path) -> None:
    """Refuses a folder in place of a picture, where it is too small to be a set of images."""
    found = sorted(picture_files(folder))
    if not found:
        raise ConfigError(
            f'"{folder}" is a folder without pictures ({", ".join(ENDINGS)}): give a picture, or a '
            "folder of pictures."
        )
    if len(found) < PARTS:
        raise ConfigError(
            f'"{folder}" is a folder of {len(found)} picture(s), too few for a set of images with '
            f'a test part: give one picture, such as "{found[0]}".'
        )


def _hole(
    file: str,
    size: tuple[int, int],
    *,
    mask: Path | None,
    rectangle: str | None,
    half: str | None,
    pixels: float | None,
    seed: int,
) -> Hole:
    """Returns the hole that the flags define; without any, the transparent pixels."""
    if mask is not None:
        return picture_hole(mask, size)
    if rectangle is not None:
        top, left, height, width = _numbers(rectangle)
        return rectangle_hole(size, top=top, left=left, height=height, width=width)
    if half is not None:
        return half_hole(size, half)
    if pixels is not None:
        return random_hole(size, pixels, generator=torch.Generator().manual_seed(seed))
    if is_images(file):
        many = f'"{file}" is a folder of pictures: set' if Path(file).is_dir() else "Set"
        raise ConfigError(f"{many} the hole with `--half`, `--rectangle`, `--pixels` or `--mask`.")
    return alpha_hole(file, size)


def _numbers(rectangle: str) -> list[int]:
    parts = rectangle.split(",")
    if len(parts) != 4 or not all(map(_is_whole, parts)):
        raise ConfigError(
            '`--rectangle` must be four whole numbers, "top,left,height,width", such as "2,2,4,4"; '
            f'got "{rectangle}".'
        )
    return [int(part) for part in parts]


def _is_whole(word: str) -> bool:
    """Returns whether `int` reads it: "²" is a digit and no decimal; no size has more than nine."""
    return word.strip().isdecimal() and len(word.strip()) <= 9


def _write_each(folder: Path, painted: Pixels, levels: int) -> None:
    for number, samples in enumerate(painted):
        for place, picture in enumerate(samples):
            write_image(folder / f"{number}-{place}.png", shades(picture, levels))
    note(f"Wrote {painted.shape[0] * painted.shape[1]:,} completions: {folder}")
