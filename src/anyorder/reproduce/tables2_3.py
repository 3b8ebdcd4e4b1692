"""Tables 2 and 3 of the paper: images, in bits per dimension.

Both tables compare the models of `IMAGE_MODELS`. An `ImageStudy` builds, trains and measures them
on one data set, at the size of a `SCALES` entry.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt, log
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate, marginal_questions
from anyorder.errors import ConfigError, check_choice
from anyorder.images.data import ImageRows, Images, image_schema, to_x
from anyorder.images.model import image_network, image_order
from anyorder.images.public_sets import BUNDLED, READERS, load_images
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import stratified_log_prob
from anyorder.lattice.masks import UniformCardinality
from anyorder.lattice.protocols import (
    DecompositionProtocol,
    RemoveGreatest,
    RemoveRandom,
    strided,
)
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.unet import Unet
from anyorder.reproduce.options import ImagesOptions
from anyorder.reproduce.record import (
    Entry,
    Paired,
    cell,
    difference_table,
    mac_protocol,
    report_table,
)
from anyorder.reproduce.study import Outcome, SetsTable, Study
from anyorder.training.loop import Validation
from anyorder.training.losses import ArdmLoss, MacLoss, PathLoss
from anyorder.training.settings import TrainingSettings
from anyorder.variables import Schema

PUBLISHED_STRIDES = {3072: 48}
"""Stride of the published commands, by N; the paper's text says 32."""


def strided_protocol(n: int) -> DecompositionProtocol:
    """Returns the protocol of MAC in a strided order, with a stride of about the root of N."""
    return RemoveGreatest(strided(n, PUBLISHED_STRIDES.get(n, max(2, isqrt(n)))))


IMAGE_MODELS: Mapping[str, Entry] = {
    "ardm": Entry(
        "ARDM: the paper's U-Net, trained on uniform masks, queried in random orders",
        "masked", lambda _: ArdmLoss(), lambda _: RemoveRandom(),
    ),
    "mac": Entry(
        "MAC: the same, trained on the masks of its queries (D^CR), in channel-row-column order",
        "masked", lambda n: MacLoss(UniformCardinality(n)), mac_protocol,
    ),
    "mac_strided": Entry(
        "MAC in a strided order, as the published command",
        "masked", lambda n: MacLoss(UniformCardinality(n)), strided_protocol,
    ),
    "path": Entry(
        "path network with a token for each pixel, marginal queries",
        "path", lambda n: PathLoss(UniformCardinality(n)), mac_protocol,
    ),
    # The order is patch by patch; the study sets it, because it knows the shape of the images.
    "path_patches": Entry(
        "path network with a token and a decoder for each patch, marginal queries",
        "patches", lambda n: PathLoss(UniformCardinality(n)), mac_protocol,
    ),
}  # fmt: skip


VALID_ROWS, VALID_STEPS = 32, 32
"""Images and path steps of the estimate of held-out bits during training."""

WHOLE_PATH, SOME_STEPS = 784, 64
"""Paths of at most 784 steps (28x28 pixels) are summed, which has less noise for its time than a
few steps of more images. Likelihoods of longer paths are estimated from 64 stratified steps."""

PATCH, SMALL_PATCH, SMALL_IMAGE = 4, 2, 8
"""Side of patches; smaller for images of at most `SMALL_IMAGE` rows."""


@dataclass(frozen=True)
class ImageScale:
    """Sizes of the models, the training and the test of an experiment.

    `down` blocks and `channels` are those of the U-Net; `layers`, `width` and `heads` those of path
    networks. CIFAR-10 is downscaled to `size`, and augmented with `turns`; with `joins_valid`, the
    validation images are trained on too, as in the published runs.
    """

    down: int
    channels: int
    layers: int
    width: int
    heads: int
    rows: int
    settings: TrainingSettings
    size: int | None = 8
    turns: bool = True
    joins_valid: bool = False
    checkpointing: bool = False


SCALES: Mapping[str, ImageScale] = {
    "tiny": ImageScale(
        down=1, channels=16, layers=1, width=16, heads=2, rows=8,
        settings=TrainingSettings(batch=8, steps=4, warmup=1, learning_rate=3e-3),
    ),
    "small": ImageScale(
        down=3, channels=64, layers=4, width=128, heads=4, rows=128,
        settings=TrainingSettings(
            batch=16, minutes=12, warmup=100, learning_rate=1e-3,
            evaluate_every=500, patience=6, checkpoint_minutes=2,
        ),
    ),
    "paper": ImageScale(
        down=32, channels=256, layers=24, width=704, heads=11, rows=10_000,
        size=None, joins_valid=True, checkpointing=True,
        settings=TrainingSettings(
            batch=128, steps=470_000, warmup=0, learning_rate=1e-4, schedule="constant",
            betas=(0.9, 0.999), weight_decay=0.0, clip=100.0, evaluate_every=5_000,
        ),
    ),
}  # fmt: skip
"""At scale small, models overfit in minutes, so training stops early by the validation loss. At
scale paper, training takes 1200 epochs of CIFAR-10, and path networks have as many parameters."""

MNIST_CHANNELS, MNIST_MINUTES = 16, 30
"""For images of 28x28 on a laptop: fewer channels and more time, for thousands of steps."""

IMAGENET_STEPS = 160_000
"""Sixteen epochs of ImageNet32."""


def scale_of(name: str, dataset: str) -> ImageScale:
    """Returns a scale by its name, adjusted to the data set."""
    scale = SCALES[name]
    if dataset != "cifar10":
        scale = replace(scale, size=None, turns=False)
    if "mnist" in dataset and name == "small":
        longer = replace(scale.settings, minutes=MNIST_MINUTES)
        scale = replace(scale, channels=MNIST_CHANNELS, settings=longer)
    if dataset == "imagenet32" and scale.settings.steps and name == "paper":
        scale = replace(scale, settings=replace(scale.settings, steps=IMAGENET_STEPS))
    return scale


@dataclass(frozen=True)
class ImageStudy(Study):
    """Builds, trains and measures models of one image data set."""

    dataset: str
    scale: ImageScale
    data: Path | None

    catalogue: ClassVar[Mapping[str, Entry]] = IMAGE_MODELS
    unit: ClassVar[str | None] = "bits"

    @property
    def images(self) -> Images:
        """Images of the data set."""
        return read_images(self.dataset, self.data, self.scale.size)

    @property
    def data_name(self) -> str:
        """Name of the data set in tables."""
        return self.images.name

    @property
    def num_variables(self) -> int:
        """Number of variables: one for each pixel and channel."""
        return self.images.shape.num_variables

    @property
    def schema(self) -> Schema:
        """Variables of an image."""
        return image_schema(self.images.shape, self.images.levels)

    def network(self, entry: Entry, schema: Schema) -> MaskedNetwork | PathNetwork[Any]:
        """Returns a U-Net or a path network."""
        shape, scale = self.images.shape, self.scale
        if entry.network == "masked":
            return Unet(
                schema,
                image_shape=tuple(shape),
                down=scale.down,
                width=scale.channels,
                checkpointing=scale.checkpointing,
            )
        sizes = {"layers": scale.layers, "width": scale.width, "heads": scale.heads}
        return image_network(schema, shape, patch=self._patch(entry), **sizes)

    def _patch(self, entry: Entry) -> int | None:
        """Returns the side of the patches; None for networks without patches."""
        if entry.network != "patches":
            return None
        return SMALL_PATCH if self.images.shape.height <= SMALL_IMAGE else PATCH

    def protocol(self, entry: Entry) -> DecompositionProtocol:
        """Returns the protocol of a model, patch by patch for networks with patches."""
        patch = self._patch(entry)
        if patch is None:
            return super().protocol(entry)
        return RemoveGreatest(image_order("interleaved", self.images.shape, patch=patch))

    def rows(self) -> ImageRows:
        """Returns the training images, with augmentation if the scale says so."""
        images, parts = self.images, [self.images.train]
        if self.scale.joins_valid:
            parts.append(images.valid)
        return ImageRows(np.concatenate(parts), turns=self.scale.turns)

    def held_out(self, entry: Entry) -> Validation:
        """Returns the marginal bits, estimated from a few steps of each path."""
        del entry
        x = to_x(self.images.valid[:VALID_ROWS])
        return lambda model: _marginal(model, x, VALID_STEPS, seed=0).value

    def measure(self, model: AnyOrderModel, seed: int) -> dict[str, Estimate]:
        """Returns joint and marginal bits per dimension of test images."""
        x = to_x(self.images.test[: self.scale.rows])
        steps = self.num_variables if self.num_variables <= WHOLE_PATH else SOME_STEPS
        everything = torch.ones_like(x, dtype=torch.bool)
        return {
            "joint": _bits(model, x, everything, steps, seed),
            "marginal": _marginal(model, x, steps, seed=seed),
        }


def _marginal(model: AnyOrderModel, x: Tensor, steps: int, *, seed: int) -> Estimate:
    query = marginal_questions(model.num_variables, len(x), seed=seed).query
    return _bits(model, x, query, steps, seed)


def _bits(model: AnyOrderModel, x: Tensor, query: Tensor, steps: int, seed: int) -> Estimate:
    """Returns bits per dimension, from all steps of the paths or from stratified ones."""
    generator = torch.Generator().manual_seed(seed)
    logs = stratified_log_prob(model, x, query=query, steps=steps, generator=generator)
    return Estimate(-logs.cpu() / (math.log(2) * model.num_variables))


@lru_cache(maxsize=1)  # studies read it for every model
def read_images(dataset: str, folder: Path | None, size: int | None) -> Images:
    """Reads a public data set, or the digits that ship with scikit-learn."""
    return load_images(dataset, None if dataset == BUNDLED else folder, size=size)


PAIRS = (
    ("mac", "ardm"),
    ("mac_strided", "ardm"),
    ("mac_strided", "mac"),
    ("path", "mac"),
    ("path_patches", "mac"),
    ("path_patches", "path"),
)
"""Paired differences a - b in the tables: negative is better for a."""

METRICS = ("joint", "marginal")

SMALL_SETS = ("digits", "binarized_mnist", "cifar10")

PAPER: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "cifar10": {"ardm": (2.86, 1.84), "mac_strided": (2.81, 1.81)},
    "imagenet32": {"ardm": (3.60, 2.10), "mac_strided": (3.58, 2.08)},
}
"""Joint and marginal bits of the paper, for images of 32x32 pixels."""


def table2(options: ImagesOptions) -> None:
    """Trains and measures models of ImageNet32."""
    _run("table2", "Table 2", ["imagenet32"], options)


def table3(options: ImagesOptions) -> None:
    """Trains and measures models of CIFAR-10, and at smaller scales of easier data sets too."""
    _run("table3", "Table 3", _sets(options), options)


def _sets(options: ImagesOptions) -> Sequence[str]:
    for name in options.sets or ():
        check_choice("sets", name, [BUNDLED, *READERS])
    if options.sets:
        return list(dict.fromkeys(options.sets))
    if options.scale == "paper":
        return ["cifar10"]
    return [BUNDLED] if options.data is None else SMALL_SETS


def _run(name: str, title: str, sets: Sequence[str], options: ImagesOptions) -> None:
    options.check(SCALES, IMAGE_MODELS)
    if options.data is None and list(sets) != [BUNDLED]:
        raise ConfigError(
            f"`data` must be the folder of {', '.join(s for s in sets if s != BUNDLED)}; an error "
            "then names the files that are missing."
        )
    studies = {one: ImageStudy(one, scale_of(options.scale, one), options.data) for one in sets}
    for study in studies.values():
        study.data_name  # noqa: B018, raises before any work if a file cannot be read
    heading = f"{title} at scale {options.scale}: bits per dimension; less is better"
    SetsTable(name, heading, _paired, _show).run(studies, options)


def _paired(outcome: Outcome) -> list[Paired]:
    return outcome.differences(PAIRS, METRICS)


def _show(console: Console, outcome: Outcome, study: ImageStudy) -> None:
    n = study.num_variables
    console.print(f"\n{outcome.data}, {n} dimensions")
    printed = PAPER.get(study.dataset, {}) if study.images.is_public_test else {}
    # Published likelihoods of binary images are in nats per image.
    nats = ["joint, nats\nper image"] if study.images.levels == 2 else []
    paper = ["paper: joint,\nmarginal"] if printed else []
    table = report_table("model", *METRICS, *nats, "steps", *paper)
    for name, found in outcome.estimates.items():
        cells = [cell(found[metric].value, found[metric].se) for metric in METRICS]
        if nats:
            joint = found["joint"]
            cells.append(f"{-joint.value * n * log(2):.2f} ± {joint.se * n * log(2):.2f}")
        cells.append(f"{outcome.steps(name):,}")
        cells += [", ".join(f"{v:.2f}" for v in printed.get(name, ()))] if printed else []
        table.add_row(name, *cells)
    console.print(table)
    if differences := _paired(outcome):
        console.print(difference_table(differences, METRICS, "bits"))
    if n > WHOLE_PATH:
        console.print(
            f"Likelihoods of masked networks are estimated from {SOME_STEPS} stratified steps.\n"
        )
