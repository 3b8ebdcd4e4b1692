"""The experiments with images: how the models of Tables 2 and 3 are built, trained and measured."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from anyorder.conditionals.categorical import CategoricalConditionals
from anyorder.data.image import Images, image_schema, to_x
from anyorder.data.image_rows import ImageRows
from anyorder.data.image_sources import BUNDLED, load_images
from anyorder.estimators.image_network import image_network, image_order
from anyorder.evaluation import Estimate, marginal_questions
from anyorder.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.unet import Unet
from anyorder.protocols import DecompositionProtocol, RemoveGreatest
from anyorder.reproduce.catalogue import Entry
from anyorder.reproduce.experiment import Study
from anyorder.reproduce.image_catalogue import IMAGE_MODELS
from anyorder.stratified import stratified_log_prob
from anyorder.training.fit import Validation
from anyorder.training.settings import TrainingSettings

VALID_ROWS, VALID_STEPS = 32, 32
"""Images and steps of the walk that held-out bits are estimated from while training."""

WHOLE_WALK, SOME_STEPS = 784, 64
"""Walks of at most so many steps are summed: of 28x28 pixels, for less noise in the same time than
from a few steps of more images. Longer ones are estimated from so many runs."""

PATCH, SMALL_PATCH, SMALL_IMAGE = 4, 2, 8
"""The side of patches, and that of patches of images of at most so many rows."""


@dataclass(frozen=True)
class ImageScale:
    """How large an experiment is.

    Args:
        down: Blocks of the U-Net on its way down.
        channels: Of its blocks.
        layers: Of path networks.
        width: Of path networks.
        heads: Of path networks.
        rows: Test images that are asked about.
        settings: Of the training.
        size: Of CIFAR-10 images, which are shrunk to it; None leaves them.
        turns: Whether CIFAR-10 images are turned and flipped in training.
        joins_valid: Whether validation images are trained on too, as the published runs do.
        checkpointing: Of the U-Net.
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
"""Small sets are learnt by heart in minutes, so at that size validation says when to stop. At that
of the paper: 1200 rounds of CIFAR-10; path networks of as many weights."""

MNIST_CHANNELS, MNIST_MINUTES = 16, 30
"""Of images of 28x28 on a laptop: fewer channels, longer, so that thousands of steps are made."""

IMAGENET_STEPS = 160_000
"""Sixteen rounds of ImageNet32."""


def scale_of(name: str, dataset: str) -> ImageScale:
    """A scale by its name, with what differs by the data set."""
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
    """Models of one set of images.

    Args:
        dataset: Which one; see `load_images`.
        scale: How large.
        data: The folder with the data sets; the bundled digits need none.
    """

    dataset: str
    scale: ImageScale
    data: Path | None

    catalogue: ClassVar[Mapping[str, Entry]] = IMAGE_MODELS
    unit: ClassVar[str | None] = "bits"

    @property
    def images(self) -> Images:
        """The images."""
        return read_images(self.dataset, self.data, self.scale.size)

    @property
    def data_name(self) -> str:
        """What to call them."""
        return self.images.name

    @property
    def num_variables(self) -> int:
        """One a pixel and channel."""
        return self.images.shape.num_variables

    def build(self, entry: Entry) -> AnyOrderModel:
        """The untrained model."""
        images, scale = self.images, self.scale
        schema = image_schema(images.shape, images.levels)
        network: MaskedNetwork | PathNetwork[Any]
        with torch.random.fork_rng():
            torch.manual_seed(scale.settings.seed)
            if entry.network == "masked":
                network = Unet(
                    schema,
                    image_shape=tuple(images.shape),
                    down=scale.down,
                    width=scale.channels,
                    checkpointing=scale.checkpointing,
                )
            else:
                network = image_network(
                    schema,
                    images.shape,
                    layers=scale.layers,
                    width=scale.width,
                    heads=scale.heads,
                    patch=self._patch(entry),
                )
            conditionals = CategoricalConditionals(schema, width=network.width)
        return AnyOrderModel(schema, network, conditionals, self._protocol(entry))

    def _patch(self, entry: Entry) -> int | None:
        """The side of the patches of a network that has any."""
        if entry.network != "patches":
            return None
        return SMALL_PATCH if self.images.shape.height <= SMALL_IMAGE else PATCH

    def _protocol(self, entry: Entry) -> DecompositionProtocol:
        patch = self._patch(entry)
        if patch is None:
            return entry.protocol(self.num_variables)
        return RemoveGreatest(image_order("interleaved", self.images.shape, patch=patch))

    def rows(self) -> ImageRows:
        """The training images, turned and flipped where that is done."""
        images, parts = self.images, [self.images.train]
        if self.scale.joins_valid:
            parts.append(images.valid)
        return ImageRows(np.concatenate(parts), turns=self.scale.turns)

    def held_out(self, entry: Entry) -> Validation:
        """Marginal bits, estimated from a few steps of each walk, whatever is trained on."""
        del entry
        x = to_x(self.images.valid[:VALID_ROWS])
        return lambda model: _marginal(model, x, VALID_STEPS, seed=0).value

    def measure(self, model: AnyOrderModel, seed: int) -> dict[str, Estimate]:
        """Joint and marginal bits a dimension of test images."""
        x = to_x(self.images.test[: self.scale.rows])
        steps = self.num_variables if self.num_variables <= WHOLE_WALK else SOME_STEPS
        everything = torch.ones_like(x, dtype=torch.bool)
        return {
            "joint": _bits(model, x, everything, steps, seed),
            "marginal": _marginal(model, x, steps, seed=seed),
        }


def _marginal(model: AnyOrderModel, x: Tensor, steps: int, *, seed: int) -> Estimate:
    query = marginal_questions(model.num_variables, len(x), seed=seed).query
    return _bits(model, x, query, steps, seed)


def _bits(model: AnyOrderModel, x: Tensor, query: Tensor, steps: int, seed: int) -> Estimate:
    """Bits for each variable of the model, from all steps of the walks or from some."""
    generator = torch.Generator().manual_seed(seed)
    logs = stratified_log_prob(model, x, query=query, steps=steps, generator=generator)
    return Estimate(-logs.cpu() / (math.log(2) * model.num_variables))


@lru_cache(maxsize=1)  # an experiment asks for it again and again
def read_images(dataset: str, folder: Path | None, size: int | None) -> Images:
    """One of the public sets, or the digits that ship with scikit-learn."""
    return load_images(dataset, None if dataset == BUNDLED else folder, size=size)
