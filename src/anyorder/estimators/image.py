"""Images: fit pictures once, then ask for likelihoods, draws, and what belongs into their holes."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

import torch

from anyorder.checkpoint import SavedModel, load_saved, save_model
from anyorder.conditionals.categorical import CategoricalConditionals
from anyorder.conditionals.contracts import Conditionals
from anyorder.conditionals.logistic_levels import LogisticLevelConditionals
from anyorder.data.image import Images, Shape, from_array, image_schema, to_x
from anyorder.data.image_rows import ImageRows
from anyorder.errors import CheckpointError, ConfigError, check_choice, check_count, check_flag
from anyorder.estimators.image_answers import ImageAnswers
from anyorder.estimators.image_network import (
    Order,
    check_affordable,
    image_network,
    image_order,
)
from anyorder.evaluation import conditional_bits
from anyorder.losses import PathLoss
from anyorder.masks import MaskDistribution, Rectangle, UniformCardinality
from anyorder.model import AnyOrderModel
from anyorder.protocols import RemoveGreatest
from anyorder.query_laws import ConditionalQueries, QueryLaw, as_query_law
from anyorder.query_mixtures import MixtureQueries
from anyorder.training.fit import fit
from anyorder.training.settings import TrainingSettings, default_device
from anyorder.variables import Schema

Head = Literal["logits", "logistics"]

IMAGE_SETTINGS = TrainingSettings(minutes=10, batch=16, learning_rate=2e-3)
"""How images are trained unless told otherwise."""

VALID_ROWS = 128
"""Validation images that tell when training gets no better."""


def image_queries(shape: Shape | tuple[int, int, int]) -> QueryLaw:
    """What "any" means for images: half of the questions paint a rectangle, given what is around.

    The others are marginals of random pixels, and the rest given random pixels: holes that people
    make are in one piece, and random sets of pixels hardly ever are. Training weighs a question by
    how many pixels it asks, which for rectangles is few.
    """
    height, width, channels = shape
    n = height * width * channels
    around = Rectangle(height, width, channels, inside=False)
    laws = [as_query_law(UniformCardinality(n)), ConditionalQueries(n)]
    return MixtureQueries([*laws, ConditionalQueries(n, around)], [0.25, 0.25, 0.5])


class ImageModel(ImageAnswers):
    """A model of all questions about images of one shape.

    Args:
        layers: Blocks of the network.
        width: Of the network.
        heads: Of its attention; divides `width` into multiples of four.
        order: The canonical order: "interleaved" pixel by pixel, "raster" channel by channel,
            "strided" in rounds of every few pixels.
        patch: The side of square patches, which divides height and width: then a token of the
            network is a patch, with a small decoder inside, and the order goes patch by patch.
            None has a token for each variable, which is affordable up to a thousand of them.
        head: "logits", one a level; or "logistics", a mixture of ten over levels, which has fewer
            weights and knows that levels have an order.
        queries: The questions that it is trained for: "any", or a law over the variables.
        minutes: Of training.
        settings: How it is trained, all of it, in place of `minutes`; `IMAGE_SETTINGS` by default.

    Example:
        >>> from anyorder.data.image import bundled_digits
        >>> from anyorder.data.image_holes import half_hole
        >>> digits = bundled_digits()
        >>> settings = TrainingSettings(steps=2, batch=4, warmup=1)
        >>> model = ImageModel(layers=1, width=16, heads=2, settings=settings).fit(digits)
        >>> model.inpaint(digits.test[0], half_hole((8, 8), "bottom"), n=3, seed=0).shape
        (3, 8, 8, 1)
    """

    def __init__(
        self,
        *,
        layers: int = 4,
        width: int = 128,
        heads: int = 4,
        order: Order = "interleaved",
        patch: int | None = None,
        head: Head = "logits",
        queries: QueryLaw | MaskDistribution | str = "any",
        minutes: float | None = None,
        settings: TrainingSettings | None = None,
    ) -> None:
        self.layers, self.width, self.heads = layers, width, heads
        check_choice("order", order, get_args(Order))
        check_choice("head", head, get_args(Head))
        if patch is not None and order != "interleaved":
            raise ConfigError("`order` and `patch` exclude each other: patches have their own.")
        self.patch = None if patch is None else check_count("patch", patch)
        self.order, self.head = order, head
        if isinstance(queries, str):
            check_choice("queries", queries, ("any",))
        self.queries = queries if isinstance(queries, str) else as_query_law(queries)
        if minutes is not None and settings is not None:
            raise ConfigError("`minutes` and `settings` exclude each other: set settings.minutes.")
        chosen = replace(IMAGE_SETTINGS, minutes=minutes or IMAGE_SETTINGS.minutes)
        self.settings = settings or chosen
        self.model_: AnyOrderModel | None = None
        self.shape_: Shape | None = None
        self.levels_ = 0

    def __repr__(self) -> str:
        tokens = "" if self.patch is None else f" over patches of {self.patch}x{self.patch}"
        network = f"{self.layers} layers of width {self.width}{tokens}"
        if self.model_ is None or self.shape_ is None:
            return f"<ImageModel: {network}, not fitted>"
        height, width, channels = self.shape_
        return (
            f"<ImageModel: {height}x{width}x{channels} in {self.levels_} levels, {network}, "
            f"{self.model_.num_parameters:,} weights>"
        )

    def fit(
        self,
        images: Any,
        *,
        turns: bool = False,
        folder: str | Path | None = None,
        progress: bool = False,
    ) -> Self:
        """Trains on images, from the start: what was learnt before is dropped.

        Args:
            images: From `load_images`, `load_image_folder` or `bundled_digits`; or an array
                ``(count, height, width[, channels])`` of bytes, which is split 8 to 1 to 1. The
                validation part tells how training goes, and the test part is left for `evaluate`.
            turns: Whether images may be turned by quarters and flipped in training.
            folder: Where checkpoints go; the same call with the same folder goes on from the last.
            progress: Whether to show a line of progress.
        """
        found = images if isinstance(images, Images) else from_array(images)
        check_affordable(found.shape, self.patch)
        law = self._law(found.shape)
        model = self._build(found)
        valid = to_x(found.valid[:VALID_ROWS])
        fit(
            model,
            ImageRows(found.train, turns=check_flag("turns", turns)),
            PathLoss(law),
            settings=self.settings,
            valid=lambda trained: conditional_bits(trained, valid).value,
            folder=folder,
            notes=self._notes(found.shape, found.levels),
            progress=progress,
        )
        self.model_, self.shape_, self.levels_ = model.eval(), found.shape, found.levels
        return self

    @property
    def options(self) -> dict[str, Any]:
        """What it is made of, as it was asked for."""
        return {
            "layers": self.layers,
            "width": self.width,
            "heads": self.heads,
            "order": self.order,
            "patch": self.patch,
            "head": self.head,
        }

    @property
    def queries_(self) -> QueryLaw:
        """The questions that it was trained for."""
        return self._law(self.fitted_shape())

    def save(self, folder: str | Path) -> None:
        """Saves the model with the questions that it was trained for."""
        notes = self._notes(self.fitted_shape(), self.levels_)
        save_model(folder, self.fitted(), law=self.queries_, notes=notes)

    @classmethod
    def load(cls, folder: str | Path) -> "ImageModel":
        """Loads what `save` saved, or the last checkpoint of a training; onto the GPU if any."""
        return cls.from_saved(load_saved(folder, device=default_device()), folder)

    @classmethod
    def from_saved(cls, saved: SavedModel, folder: str | Path) -> "ImageModel":
        """The model of what was read from a folder; `folder` is for messages only."""
        notes = saved.notes
        if notes.get("domain") != "image":
            raise CheckpointError(f'"{folder}" does not hold a model of images.')
        try:
            settings = TrainingSettings(**notes["settings"])
            loaded = cls(settings=settings, queries=saved.law or "any", **notes["options"])
            shape = Shape(*(check_count("shape", size) for size in notes["shape"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f'"{folder}" was altered, or written by another version ({error!r}).'
            ) from error
        levels = saved.model.schema.variables[0].num_levels
        if saved.model.schema != image_schema(shape, levels):
            raise CheckpointError(f'"{folder}" was altered: its shape is not that of its model.')
        loaded.model_, loaded.shape_, loaded.levels_ = saved.model, shape, levels
        return loaded

    def _law(self, shape: Shape) -> QueryLaw:
        if isinstance(self.queries, str):
            return image_queries(shape)
        if self.queries.num_variables != shape.num_variables:
            raise ConfigError(
                f"`queries` must be a law over the {shape.num_variables} variables of an image; it "
                f"is over {self.queries.num_variables}."
            )
        return self.queries

    def _build(self, images: Images) -> AnyOrderModel:
        schema = image_schema(images.shape, images.levels)
        with torch.random.fork_rng():
            torch.manual_seed(self.settings.seed)
            network = image_network(
                schema,
                images.shape,
                layers=self.layers,
                width=self.width,
                heads=self.heads,
                patch=self.patch,
            )
            conditionals = self._conditionals(schema)
        protocol = RemoveGreatest(image_order(self.order, images.shape, patch=self.patch))
        return AnyOrderModel(schema, network, conditionals, protocol).to(default_device())

    def _conditionals(self, schema: Schema) -> Conditionals:
        if self.head == "logits":
            return CategoricalConditionals(schema, width=self.width)
        return LogisticLevelConditionals(schema, width=self.width)

    def _notes(self, shape: Shape, levels: int) -> dict[str, Any]:
        return {
            "domain": "image",
            "shape": list(shape),
            "levels": levels,
            "options": self.options,
            "settings": asdict(self.settings),
        }
