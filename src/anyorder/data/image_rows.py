"""Images as training draws them: bytes until a batch of them is wanted."""

import hashlib

import torch
from torch import Tensor

from anyorder.data.image import Pixels, to_x
from anyorder.data.image_changes import turned
from anyorder.training.rows import Rows


class ImageRows:
    """Images in a random order, a new one each time round.

    Args:
        pixels: Shape ``(count, height, width, channels)``.
        turns: Whether each is turned by quarters (if it is square) and flipped anew whenever it is
            drawn.
    """

    def __init__(self, pixels: Pixels, *, turns: bool = False) -> None:
        self.pixels, self.turns = pixels, turns
        self.places = Rows(torch.arange(len(pixels))[:, None])

    def describe(self) -> dict[str, str | int]:
        """Which images these are: how many, whether they are turned, and a hash of them."""
        digest = hashlib.sha256(self.pixels.tobytes()).hexdigest()
        return {"images": len(self.pixels), "turns": int(self.turns), "sha256": digest}

    def batch(
        self, step: int, size: int, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """The images of a step as rows ``(size, vars)``; no pixel is missing."""
        places = self.places.batch(step, size, generator=generator)[0][:, 0]
        pixels = self.pixels[places.numpy()]
        if self.turns:
            square = pixels.shape[1] == pixels.shape[2]
            pixels = turned(pixels, generator=generator, rotations=square)
        return to_x(pixels), None
