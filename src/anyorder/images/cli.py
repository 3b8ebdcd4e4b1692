"""Commands for images: fit and inpaint."""

from pathlib import Path
from typing import Any

import torch

from anyorder.cli.console import check_target, note, shell
from anyorder.cli.levels import check_temperature, level_flags, level_settings, note_fitted
from anyorder.cli.options import FitOptions
from anyorder.cli.resume import fit_in_folder
from anyorder.diagnostics.evaluation import conditional_bits
from anyorder.domains import read_run
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


def fit_images(file: str, shared: FitOptions, own: Any) -> None:
    """Fits images with the flags of `ImageFitOptions`, and saves the model."""
    sizes = shared.sizes() if own.patch is None else {**shared.sizes(), "patch": own.patch}
    model = ImageModel(settings=level_settings(IMAGE_SETTINGS, shared), **sizes)
    if Path(file).is_dir():  # photographs would fill the memory before the model sees them
        shape_of_all = folder_shape(file, size=None if own.size is None else read_size(own.size))
        check_affordable(shape_of_all, model.patch)
    images = read_images(file, size=own.size, levels=own.levels)
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
        size = f"{shape.height}x{shape.width}"
        return {"--size": size, "--levels": levels, "--patch": one.patch, **level_flags(one)}

    done = fit_in_folder(
        model,
        images,
        shared,
        file=file,
        name=file,
        flags=flags,
        other_data=lambda _: f'it is of other pictures than "{file}"',
        turns=bool(own.turns),
    )
    if is_first_process():
        bits = conditional_bits(model.fitted(), to_x(images.valid[:VALID_ROWS]))
        held_out = f"Held-out images: {bits} bits for each pixel and channel of a random half"
        name = file if not Path(file).is_dir() else "PICTURE.png"
        example = shell(
            "anyorder", "inpaint", shared.out, name, "--half", "bottom", "--out", "grid.png"
        )
        note_fitted(images.name, shared.out, done, held_out, example)


def inpaint_image(run: Path, file: str, options: Any) -> None:
    """Inpaints the holes of pictures, with `InpaintOptions`; see `anyorder inpaint --help`."""
    check_count("n", options.n)
    check_seed(options.seed)
    check_temperature(options.temperature, "level")
    if options.out.suffix.lower() not in ENDINGS:
        raise ConfigError(f'`--out` must end in {", ".join(ENDINGS)}; got "{options.out}".')
    check_target(options.out, file, options.mask)
    model = read_run(run, "image")
    originals = _pictures(model, file, rows=options.rows, resize=options.resize)
    hole = _hole(file, originals.shape[1:3], options)
    painted = model.inpaint(
        originals,
        hole,
        n=1 if options.greedy else options.n,
        how="greedy" if options.greedy else "sample",
        temperature=options.temperature,
        random_state=options.seed,
    )
    grid = picture_grid(originals, hole, painted, levels=model.levels_)
    write_image(options.out, with_titles(grid, columns=2 + painted.shape[1]))
    note(f"Inpainted {int(hole.sum()):,} pixels of {len(originals)} image(s): {options.out}")
    if options.completions is not None:
        _write_each(options.completions, painted, model.levels_)


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


def _hole(file: str, size: tuple[int, int], options: Any) -> Hole:
    """Returns the hole that the flags define; without any, the transparent pixels."""
    flags = ("mask", "rectangle", "half", "pixels")
    chosen = [f"--{name}" for name in flags if getattr(options, name) is not None]
    if len(chosen) > 1:
        raise ConfigError(f"`{chosen[0]}` and `{chosen[1]}` both define the hole: drop one.")
    if options.mask is not None:
        return picture_hole(options.mask, size)
    if options.rectangle is not None:
        top, left, height, width = _numbers(options.rectangle)
        return rectangle_hole(size, top=top, left=left, height=height, width=width)
    if options.half is not None:
        return half_hole(size, options.half)
    if options.pixels is not None:
        generator = torch.Generator().manual_seed(options.seed)
        return random_hole(size, options.pixels, generator=generator)
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
