"""Images as a domain: the flags of `fit`, the command `inpaint`, and the contract.

Nothing heavy is imported before it is needed: the command line's help reads this module.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from anyorder.cli.levels import LevelDomain
from anyorder.cli.options import FitOptions, Named, Run, Seed, Whole
from anyorder.domains import Description


@dataclass(frozen=True, kw_only=True)
class ImageFitOptions:
    """The options of `fit` for images.

    Args:
        size: Images: height and width that pictures are cropped and resized to, "16" or "16x24".
        levels: Images: number of levels that a channel is rounded to; 256, or as the set has them.
        turns: Images: rotate them by quarters and flip them at random in training.
        patch: Images: side of the square patches that are the tokens of the network, for images of
            more than a thousand pixels and channels; must divide height and width. A pixel by
            default.
    """

    size: str | None = None
    levels: Whole | None = None
    turns: bool | None = None
    patch: Whole | None = None


@dataclass(frozen=True, kw_only=True)
class InpaintOptions:
    """The options of `inpaint`.

    Args:
        out: The .png, .jpg, .webp or .bmp file of the grid.
        mask: A black and white picture of the same size, white in the hole.
        rectangle: The hole as a rectangle "top,left,height,width", in pixels.
        half: The hole as a half of the picture.
        pixels: The hole as a share of pixels, chosen at random.
        n: Number of completions of each picture.
        rows: Number of images of a set.
        greedy: Take the most probable level at each step; there is one such completion.
        temperature: Temperature of sampling; below 1 favours probable levels.
        resize: Crop and resize a picture of another size.
        completions: A folder to which each completion is also written by itself.
    """

    out: Named
    mask: Path | None = None
    rectangle: str | None = None
    half: Literal["left", "right", "top", "bottom"] | None = None
    pixels: float | None = None
    n: Whole = 3
    rows: Whole = 6
    greedy: bool = False
    temperature: float = 1.0
    resize: bool = False
    completions: Named | None = None
    seed: Seed = 0


def inpaint(
    run: Run, file: str, *, options: Annotated[InpaintOptions, Parameter(name="*")]
) -> None:
    """Inpaint a part of a picture; show it beside the original and what was given.

    Examples: anyorder inpaint runs/faces me.png --mask hole.png --out grid.png;
    anyorder inpaint runs/digits digits --half bottom --out grid.png

    Without a flag that defines the hole, it is what was erased: the transparent pixels.

    Parameters
    ----------
    file
        A picture of the size of the model's images; or a set of images as for fit, of which the
        first test images are inpainted.
    """
    from anyorder.images.cli import inpaint_image

    inpaint_image(run, file, options)


class ImageDomain(LevelDomain):
    """Pictures of one size."""

    name, noun, plural = "image", "images", "images"
    dimension, rows, part = "dimension", "images", "its test part"
    command = "inpaint"
    sources = ("a folder of pictures", '"digits"')
    fit_options = ImageFitOptions
    commands = (inpaint,)

    def recognises(self, source: str) -> bool:
        """Returns whether it is a folder of pictures or the name of a set of images."""
        from anyorder.images.cli import is_images

        return is_images(source)

    def fit(self, source: str, shared: FitOptions, own: ImageFitOptions) -> None:
        """Fits a set of images."""
        from anyorder.images.cli import fit_images

        fit_images(source, shared, own)

    def open(self, saved: Any, folder: str | Path) -> Any:
        """Returns the `ImageModel` of a run folder."""
        from anyorder.images.model import ImageModel

        return ImageModel.from_saved(saved, folder)

    def read(self, model: Any, source: str) -> Any:
        """Returns the `Images` of a folder or a name, in the size and levels of the model."""
        from anyorder.images.cli import images_for

        return images_for(model, source)

    def queries(self, model: Any) -> dict[str, str]:
        """Returns descriptions of the queries of an evaluation."""
        del model  # they are the same for images of all sizes
        return {
            "joint": "joint: all pixels and channels",
            "marginal": "marginal: a random set of them, divided by all",
            "conditional": "conditional: a random half given the other, divided by those queried",
        }

    def check_report(self, model: Any, run: Path) -> None:
        """Refuses a report of images that have no halves to inpaint."""
        from anyorder.errors import ConfigError

        shape = model.fitted_shape()[:2]
        if min(shape) < 2:
            raise ConfigError(
                "`--report` inpaints halves of images, so they must have two rows and columns; "
                f'"{run}" holds a model of {"x".join(map(str, shape))}.'
            )

    def report(self, model: Any, data: Any, **options: Any) -> Any:
        """Returns the report of a model, on the test part of a set of images."""
        from anyorder.images.report import image_report

        return image_report(model, data, **options)

    def describe(self, model: Any) -> Description:
        """Returns the shape and the levels of the images."""
        shape = list(model.fitted_shape())
        sizes = "x".join(map(str, shape))
        return Description(
            {"shape": shape, "levels": model.levels_},
            facts=[
                ("shape", f"{sizes}, height x width x channels"),
                ("levels", f"{model.levels_}"),
            ],
            names=model.model_.schema.names,
        )

    def routes(self, model: Any, dispatcher: Any, *, name: str, run: str) -> Any:
        """Returns the routes of a model of images."""
        from anyorder.images.routes import image_routes

        return image_routes(model, dispatcher, name=name, run=run)


IMAGES = ImageDomain()
