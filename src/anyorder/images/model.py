"""ImageModel: fit images, then score any pixels given any others, inpaint holes, or sample.

A model of images has a path network and a canonical order of its pixels.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.diagnostics.check import Check
from anyorder.diagnostics.evaluation import Estimate, conditional_bits
from anyorder.errors import (
    CheckpointError,
    ConfigError,
    Device,
    QueryError,
    check_choice,
    check_count,
    check_device,
    check_flag,
    renamed,
    seeded,
)
from anyorder.estimator import LevelEstimator
from anyorder.heads.distributions import CategoricalConditionals, Conditionals
from anyorder.heads.levels import LogisticLevelConditionals
from anyorder.images.data import (
    ImageRows,
    Images,
    Pixels,
    Shape,
    as_pixels,
    from_array,
    from_x,
    image_schema,
    to_x,
)
from anyorder.images.inpainting import Hole, hole_query, pixel_set
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import Draw, log_prob, sample
from anyorder.lattice.masks import MaskDistribution, Rectangle, UniformCardinality
from anyorder.lattice.protocols import (
    RemoveGreatest,
    channel_interleaved,
    patch_major,
    raster,
    strided,
)
from anyorder.lattice.query_laws import ConditionalQueries, MixtureQueries, QueryLaw, as_query_law
from anyorder.networks.contracts import PathNetwork
from anyorder.networks.patch_path_transformer import PatchPathTransformer
from anyorder.networks.path_transformer import PathTransformer
from anyorder.saving.checkpoint import SavedModel, save_model
from anyorder.training.loop import fit
from anyorder.training.losses import PathLoss
from anyorder.training.settings import TrainingSettings
from anyorder.variables import Schema

Order = Literal["interleaved", "raster", "strided"]

MAX_TOKENS = 4096
"""Greatest number of tokens, 64x64 in grey: attention, in a batch of 16 and 4 heads, is 4 GB a
block."""

MAX_VARIABLES = 256 * 256
"""Greatest number of variables in patches: their logits, 256 levels in a batch of 16, are 1 GB."""


def check_affordable(shape: Shape | tuple[int, int, int], patch: int | None) -> None:
    """Refuses images that would fill the memory, before anything is made for them."""
    height, width, channels = shape
    variables = height * width * channels
    tokens = variables if patch is None else height * width // patch**2
    if variables <= MAX_VARIABLES and tokens <= MAX_TOKENS:
        return
    inside = "" if patch is None else f" in {tokens:,} patches"
    raise ConfigError(
        f"Images of {height}x{width} pixels and {channels} channel(s) are {variables:,} "
        f"variables{inside}: more than {MAX_TOKENS:,}, or {MAX_VARIABLES:,} in {MAX_TOKENS:,} "
        "patches, would fill the memory. Make them smaller (`--size 32`) or read them in larger "
        "patches (`--patch 4`)."
    )


def image_network(
    schema: Schema,
    shape: Shape | tuple[int, int, int],
    *,
    layers: int,
    width: int,
    heads: int,
    patch: int | None = None,
) -> PathNetwork[Any]:
    """Returns a path network with two-dimensional positions; arguments as of `ImageModel`."""
    if patch is None:
        coordinates = pixel_coordinates(shape)
        return PathTransformer(
            schema, layers=layers, width=width, heads=heads, coordinates=coordinates
        )
    return PatchPathTransformer(
        schema,
        image_shape=tuple(shape),
        patch=patch,
        trunk_layers=layers,
        trunk_width=width,
        trunk_heads=heads,
        width=width,
        heads=heads,
    )


def image_order(
    order: Order, shape: Shape | tuple[int, int, int], *, patch: int | None = None
) -> Tensor:
    """Returns a canonical order of the variables of an image.

    Args:
        order: "interleaved", "raster", or "strided", in rounds of every few pixels: half a row
            apart, where the paper's are a row or more.
        shape: Height, width and channels.
        patch: Side of the patches that follow each other; None for no patches.
    """
    check_choice("order", order, get_args(Order))
    height, width, channels = shape
    if patch is not None:
        return patch_major(height, width, channels, patch=patch)
    if order == "strided":
        return strided(height * width * channels, max(2, width // 2))
    return (raster if order == "raster" else channel_interleaved)(height, width, channels)


def pixel_coordinates(shape: Shape | tuple[int, int, int]) -> list[tuple[int, int]]:
    """Returns the row and the column of each variable, for rotary positions."""
    height, width, channels = shape
    return [
        (row, column) for _ in range(channels) for row in range(height) for column in range(width)
    ]


EVALUATED = 256
"""Default number of images of an evaluation and of a check."""


Head = Literal["logits", "logistics"]

IMAGE_SETTINGS = TrainingSettings(minutes=10, batch=16, learning_rate=2e-3)
"""Default training settings of images."""

VALID_ROWS = 128
"""Validation images for early stopping."""


def image_queries(shape: Shape | tuple[int, int, int]) -> QueryLaw:
    """Returns the law of "any" for images: half of the queries are rectangles, given the rest.

    The others are marginals of random pixels, and the rest given random pixels: holes that people
    make are in one piece, and random sets of pixels hardly ever are. Training weights a query by
    its number of pixels, which for rectangles is small.
    """
    height, width, channels = shape
    n = height * width * channels
    around = Rectangle(height, width, channels, inside=False)
    laws = [as_query_law(UniformCardinality(n)), ConditionalQueries(n)]
    return MixtureQueries([*laws, ConditionalQueries(n, around)], [0.25, 0.25, 0.5])


class ImageModel(LevelEstimator):
    """A model of images of one shape that answers p(these pixels | those pixels).

    Images are arrays ``(height, width)`` or ``(height, width, channels)`` of whole numbers, the
    codes of levels, or several of them along an axis in front.

    Parameters are checked here, and again by `fit`, since attributes can be set in between.

    Args:
        layers: Number of blocks of the network.
        width: Width of the network.
        heads: Number of attention heads; must divide `width` into multiples of four.
        order: Canonical order: "interleaved" pixel by pixel, "raster" channel by channel,
            "strided" in rounds of every few pixels.
        patch: Side of square patches; must divide height and width. A token of the network is then
            a patch, with a small decoder inside, and the order goes patch by patch. None has a
            token for each variable, which is affordable up to a thousand of them.
        head: "logits", one per level; or "logistics", a mixture of ten over levels, which has fewer
            weights and uses the order of the levels.
        queries: Queries to train for: "any", or a query law over the variables.
        random_state: Seed of everything random in training; None is 0.
        minutes: Training budget in minutes; None is 10.
        settings: All training settings, in place of `IMAGE_SETTINGS` and `minutes`. `settings.seed`
            takes the place of `random_state`.
        progress: Whether a line on standard error shows how training goes; by default it does in
            terminals and notebooks.
        device: Device to train on: "cpu", "cuda", "mps" or a torch.device; None is the GPU if there
            is one.

    Example:
        >>> from anyorder.images.data import bundled_digits
        >>> from anyorder.images.inpainting import half_hole
        >>> digits = bundled_digits()
        >>> settings = TrainingSettings(steps=2, batch=4, warmup=1)
        >>> model = ImageModel(layers=1, width=16, heads=2, settings=settings).fit(digits)
        >>> model.inpaint(digits.test[0], half_hole((8, 8), "bottom"), n=3, random_state=0).shape
        (3, 8, 8, 1)
    """

    domain: ClassVar[str] = "image"
    defaults: ClassVar[TrainingSettings] = IMAGE_SETTINGS

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
        random_state: int | None = 0,
        minutes: float | None = None,
        settings: TrainingSettings | None = None,
        progress: bool | None = None,
        device: Device = None,
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
        self.random_state, self.minutes, self.settings = random_state, minutes, settings
        self.progress, self.device = progress, device
        self.training_settings()  # checks them
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

    @renamed(progress="self.progress")
    def fit(self, images: Any, *, turns: bool = False, folder: str | Path | None = None) -> Self:
        """Fits the model to images, from the start: an earlier fit is dropped.

        Args:
            images: Images from `load_images`, `load_image_folder` or `bundled_digits`; or an array
                ``(count, height, width[, channels])`` of bytes, which is split 8 to 1 to 1 for
                training, validation and `evaluate`.
            turns: If True, images are rotated by quarters and flipped at random in training.
            folder: Folder for checkpoints; the same call resumes from the last one.
        """
        settings = self.training_settings()
        found = images if isinstance(images, Images) else from_array(images)
        check_affordable(found.shape, self.patch)
        law = self._law(found.shape)
        model = self._build(found)
        valid = to_x(found.valid[:VALID_ROWS])
        fit(
            model,
            ImageRows(found.train, turns=check_flag("turns", turns)),
            PathLoss(law),
            settings=settings,
            valid=lambda trained: conditional_bits(trained, valid).value,
            folder=folder,
            notes=self._notes(found.shape, found.levels),
            progress=self.progress,
        )
        self.model_, self.shape_, self.levels_ = model.eval(), found.shape, found.levels
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The parameters of the network."""
        names = ("layers", "width", "heads", "order", "patch", "head")
        return {name: getattr(self, name) for name in names}

    @property
    def queries_(self) -> QueryLaw:
        """The query law that it was trained for."""
        return self._law(self.fitted_shape())

    def save(self, folder: str | Path) -> None:
        """Saves the model with its query law."""
        notes = self._notes(self.fitted_shape(), self.levels_)
        save_model(folder, self.fitted(), law=self.queries_, notes=notes)

    @classmethod
    def from_saved(cls, saved: SavedModel, folder: str | Path) -> Self:
        """Returns the model of what was read from a folder; `folder` is for messages only."""
        notes = saved.notes
        if notes.get("domain") != "image":
            raise CheckpointError(f'"{folder}" does not hold a model of images.')
        try:
            settings = TrainingSettings(**notes["settings"])
            trained: dict[str, Any] = {"random_state": settings.seed, "settings": settings}
            loaded = cls(queries=saved.law or "any", **trained, **notes["options"])
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
            torch.manual_seed(self.training_settings().seed)
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
        return AnyOrderModel(schema, network, conditionals, protocol).to(check_device(self.device))

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
            "settings": asdict(self.training_settings()),
        }

    def log_prob(
        self, images: Any, *, query: Hole | None = None, given: Hole | None = None
    ) -> float | NDArray[np.float64]:
        """Returns the log-likelihood, in nats, of the queried pixels.

        Args:
            images: One image, or several.
            query: Pixels to query, in all channels; all that are not given by default.
                Shape ``(height, width)``.
            given: Pixels that are evidence; none by default. Pixels in neither are marginalised.

        Returns:
            A number; of several images, an array of them.
        """
        x, one = self._read(images)
        asked, known = (
            None if pixels is None else pixel_set(pixels, self.fitted_shape(), argument=name)
            for name, pixels in (("query", query), ("given", given))
        )
        found = log_prob(self.fitted(), x, query=asked, given=known).cpu().numpy()
        return float(found[0]) if one else found

    @renamed(seed="random_state")
    def inpaint(
        self,
        images: Any,
        hole: Hole,
        *,
        n: int = 1,
        how: Draw = "sample",
        temperature: float = 1.0,
        random_state: int | None = None,
    ) -> Pixels:
        """Inpaints the pixels of a hole, given all others.

        Args:
            images: One image, or several; pixels in the hole are not read.
            hole: Pixels to inpaint. Shape ``(height, width)``; `rectangle_hole`, `half_hole`,
                `random_hole`, `picture_hole` and `alpha_hole` make such.
            n: Number of completions of each image.
            how: "sample", or "greedy" for the most probable level at each step.
            temperature: Temperature of sampling; below 1 favours probable levels.
            random_state: Seed of the samples; None is fresh randomness.

        Returns:
            Shape ``(n, height, width, channels)``; of several images, with an axis for them in
            front.
        """
        x, one = self._read(images)
        shape = self.fitted_shape()
        given, query = hole_query(hole, shape)
        drawn = sample(
            self.fitted(),
            x,
            query=query,
            given=given,
            n=n,
            how=how,
            temperature=temperature,
            generator=seeded(random_state),
        )
        found = from_x(drawn.flatten(0, 1), shape).reshape(len(x), n, *shape)
        return found[0] if one else found

    @renamed(seed="random_state")
    def sample(
        self, n: int = 1, *, temperature: float = 1.0, random_state: int | None = None
    ) -> Pixels:
        """Samples images.

        Args:
            n: Number of images.
            temperature: Temperature of sampling; below 1 favours probable levels.
            random_state: Seed of the samples; None is fresh randomness.

        Returns:
            Shape ``(n, height, width, channels)``.
        """
        check_count("n", n)
        generator = seeded(random_state)
        nothing = torch.zeros(1, self.fitted_shape().num_variables, dtype=torch.long)
        drawn = sample(self.fitted(), nothing, n=n, temperature=temperature, generator=generator)
        return from_x(drawn[0], self.fitted_shape())

    @renamed(seed="random_state")
    def evaluate(
        self, images: Any, *, rows: int = EVALUATED, random_state: int | None = 0
    ) -> dict[str, Estimate]:
        """Estimates the bits per variable of joints, marginals and conditionals.

        Those of the joint and of marginals (a random set of each image, of a random size) are
        divided by all variables of the image, as in the paper; those of a random half given the
        other by the variables queried.

        Args:
            images: Several images, or `Images`, of which the test part is read.
            rows: Greatest number of images, the first ones.
            random_state: Seed of the sets that are queried; None is 0.
        """
        return self._bits(self._several(images, rows), random_state)

    @renamed(seed="random_state")
    def check(
        self,
        images: Any,
        *,
        rows: int = EVALUATED,
        random_state: int | None = 0,
        progress: bool = False,
    ) -> Check:
        """Checks how far the model agrees with itself and with images it was not trained on.

        Args:
            images: Images as for `evaluate`.
            rows: Greatest number of images, the first ones.
            random_state: Seed of the queries; None is 0.
            progress: If True, a line on standard error shows how far it is.

        Returns:
            The findings: `.sentences()`, `.to_json()` and `.plot()`.
        """
        return self._check(self._several(images, rows), random_state, progress=progress)

    def _several(self, images: Any, rows: int) -> Tensor:
        check_count("rows", rows)
        return self._read(images.test if isinstance(images, Images) else images)[0][:rows]

    def fitted_shape(self) -> Shape:
        """Returns height, width and channels of the images that it was fitted to."""
        self.fitted()
        assert self.shape_ is not None
        return self.shape_

    def _read(self, images: Any) -> tuple[Tensor, bool]:
        """Returns images as rows ``(batch, vars)``, and True if it was a single one."""
        shape = self.fitted_shape()
        array = np.asarray(images)
        one = array.ndim == 2 or (array.ndim == 3 and array.shape == tuple(shape))
        pixels = as_pixels(array[None] if one else array, self.levels_)
        if pixels.shape[1:] != tuple(shape):
            raise QueryError(
                f"Images must be {shape.height}x{shape.width} (height x width) with "
                f"{shape.channels} channel{'s' if shape.channels > 1 else ''}, as in training; got "
                f"shape {pixels.shape[1:]}."
            )
        return to_x(pixels), one
