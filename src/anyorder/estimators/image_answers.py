"""What a model of images answers: likelihoods of pixels, what belongs into holes, draws, bits."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.data.image import Images, Pixels, Shape, as_pixels, from_x, to_x
from anyorder.data.image_holes import Hole, hole_query, pixel_set
from anyorder.diagnostics.check import check_model
from anyorder.diagnostics.report import Check
from anyorder.errors import QueryError, check_count
from anyorder.evaluation import Estimate, conditional_bits, joint_bits, marginal_bits
from anyorder.model import AnyOrderModel
from anyorder.queries import Draw, log_prob, sample
from anyorder.random_sets import seeded

EVALUATED = 256
"""Images of an evaluation, and of a check, unless told otherwise."""


class ImageAnswers:
    """The questions that can be asked of a model of images.

    Images are arrays ``(height, width)`` or ``(height, width, channels)`` of whole numbers, the
    codes of levels, or several of them along an axis in front.
    """

    shape_: Shape | None
    levels_: int
    model_: AnyOrderModel | None

    def log_prob(
        self, images: Any, *, query: Hole | None = None, given: Hole | None = None
    ) -> float | NDArray[np.float64]:
        """The log-likelihood, in nats, of the pixels that are asked.

        Args:
            images: One image, or several.
            query: Which pixels are asked, in all channels; all that is not given by default.
                Shape ``(height, width)``.
            given: Which pixels are known; none by default. Pixels in neither are marginalised.

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

    def inpaint(
        self,
        images: Any,
        hole: Hole,
        *,
        n: int = 1,
        how: Draw = "sample",
        temperature: float = 1.0,
        seed: int | None = None,
    ) -> Pixels:
        """Paints the unknown pixels, given all others.

        Args:
            images: One image, or several; what stands in the hole is not read.
            hole: Which pixels are unknown. Shape ``(height, width)``; `rectangle_hole`,
                `half_hole`, `random_hole`, `picture_hole` and `alpha_hole` make such.
            n: How many completions of each.
            how: "sample", or "greedy" for the most probable level at each step.
            temperature: Below 1 is more cautious.
            seed: The same seed gives the same completions.

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
            generator=seeded(seed),
        )
        found = from_x(drawn.flatten(0, 1), shape).reshape(len(x), n, *shape)
        return found[0] if one else found

    def sample(self, n: int = 1, *, temperature: float = 1.0, seed: int | None = None) -> Pixels:
        """Draws images. Shape ``(n, height, width, channels)``."""
        check_count("n", n)
        nothing = torch.zeros(1, self.fitted_shape().num_variables, dtype=torch.long)
        drawn = sample(self.fitted(), nothing, n=n, temperature=temperature, generator=seeded(seed))
        return from_x(drawn[0], self.fitted_shape())

    def evaluate(self, images: Any, *, rows: int = EVALUATED, seed: int = 0) -> dict[str, Estimate]:
        """Bits for each variable: of the joint, of marginals, and of one half given the other.

        Those of the joint and of marginals (a random set of each image, of a random size) are
        divided by all variables of the image, as in the paper; those of one half given the other by
        the variables asked.

        Args:
            images: Several of them, or `Images`, of which the test part is read.
            rows: At most so many, the first.
            seed: Of the sets that are asked.
        """
        model, x = self.fitted(), self._several(images, rows)
        return {
            "joint": joint_bits(model, x),
            "marginal": marginal_bits(model, x, seed=seed),
            "conditional": conditional_bits(model, x, seed=seed),
        }

    def check(
        self, images: Any, *, rows: int = EVALUATED, seed: int = 0, progress: bool = False
    ) -> Check:
        """How far the model agrees with itself and with images that it was not trained on.

        Args:
            images: As for `evaluate`.
            rows: At most so many, the first.
            seed: Of the questions that are asked.
            progress: Whether a line shows how far it is.
        """
        x = self._several(images, rows)
        missing = torch.zeros(x.shape, dtype=torch.bool)
        return check_model(self.fitted(), x, missing, seed=seed, progress=progress)

    def _several(self, images: Any, rows: int) -> Tensor:
        check_count("rows", rows)
        return self._read(images.test if isinstance(images, Images) else images)[0][:rows]

    def fitted(self) -> AnyOrderModel:
        """The model beneath; an error if there is none yet."""
        if self.model_ is None:
            raise QueryError("This model knows nothing yet: call `fit` or `load` first.")
        return self.model_

    def fitted_shape(self) -> Shape:
        """Height, width and channels of the images that it knows."""
        self.fitted()
        assert self.shape_ is not None
        return self.shape_

    def _read(self, images: Any) -> tuple[Tensor, bool]:
        """Images as rows ``(batch, vars)``, and whether it was one."""
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
