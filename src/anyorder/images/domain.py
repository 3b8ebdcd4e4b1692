"""Images as a domain: the flags of `fit`, the command `inpaint`, and the contract.

Nothing heavy is imported before it is needed: the command line's help reads this module.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from anyorder.cli.options import EvaluateOptions, FitOptions, Named, Run, Seed, Whole
from anyorder.domains import Checked, Description, Domain


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


def inpaint(
    run: Run,
    file: str,
    *,
    out: Named,
    mask: Path | None = None,
    rectangle: str | None = None,
    half: Literal["left", "right", "top", "bottom"] | None = None,
    pixels: float | None = None,
    n: Whole = 3,
    rows: Whole = 6,
    greedy: bool = False,
    temperature: float = 1.0,
    resize: bool = False,
    completions: Named | None = None,
    seed: Seed = 0,
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
    out
        The .png, .jpg, .webp or .bmp file of the grid.
    mask
        A black and white picture of the same size, white in the hole.
    rectangle
        The hole as a rectangle "top,left,height,width", in pixels.
    half
        The hole as a half of the picture.
    pixels
        The hole as a share of pixels, chosen at random.
    n
        Number of completions of each picture.
    rows
        Number of images of a set.
    greedy
        Take the most probable level at each step; there is one such completion.
    temperature
        Temperature of sampling; below 1 favours probable levels.
    resize
        Crop and resize a picture of another size.
    completions
        A folder to which each completion is also written by itself.
    """
    from anyorder.images.cli import inpaint_image

    inpaint_image(
        run,
        file,
        mask=mask,
        rectangle=rectangle,
        half=half,
        pixels=pixels,
        n=n,
        rows=rows,
        greedy=greedy,
        temperature=temperature,
        resize=resize,
        out=out,
        completions=completions,
        seed=seed,
    )


class ImageDomain(Domain):
    """Pictures of one size."""

    name, noun, plural = "image", "images", "images"
    command = "inpaint"
    sources = ("a folder of pictures", '"digits"')
    fit_options = ImageFitOptions
    width = 128
    commands = (inpaint,)

    def recognises(self, source: str) -> bool:
        """Returns whether it is a folder of pictures or the name of a set of images."""
        from anyorder.images.cli import is_images

        return is_images(source)

    def fit(self, source: str, shared: FitOptions, own: ImageFitOptions) -> None:
        """Fits a set of images."""
        from anyorder.images.cli import fit_images

        fit_images(source, shared, **asdict(own))

    def open(self, saved: Any, folder: str | Path) -> Any:
        """Returns the `ImageModel` of a run folder."""
        from anyorder.images.model import ImageModel

        return ImageModel.from_saved(saved, folder)

    def evaluate(self, model: Any, run: Path, source: str, options: EvaluateOptions) -> None:
        """Prints the bits of the test part of a set of images."""
        from anyorder.cli.runs import check_report, refuse_options, report_options, write_report
        from anyorder.errors import ConfigError
        from anyorder.images.cli import evaluate_images, images_for

        check_report(options.report)
        refuse_options(
            {"query": options.query, "given": options.given},
            f'is for tables, and "{run}" holds a model of images.',
        )
        shape = model.fitted_shape()[:2]
        if options.report is not None and min(shape) < 2:
            raise ConfigError(
                "`--report` inpaints halves of images, so they must have two rows and columns; "
                f'"{run}" holds a model of {"x".join(map(str, shape))}.'
            )
        evaluate_images(model, source, options)
        if options.report is not None:
            from anyorder.images.report import image_report

            images, named = images_for(model, source), report_options(run, seed=options.seed)
            write_report(image_report(model, images, **named).html(), options.report)

    def check(
        self, model: Any, source: str, *, rows: int | None, target: str | None, seed: int
    ) -> Checked:
        """Checks a model on the first test images."""
        from anyorder.cli.runs import refuse_options
        from anyorder.images.cli import images_for
        from anyorder.images.model import EVALUATED

        refuse_options({"target": target}, "is for tables, and this is a model of images.")
        rows = EVALUATED if rows is None else rows
        found = model.check(images_for(model, source), rows=rows, random_state=seed, progress=True)
        return Checked(found, f"{found.rows:,} images of its test part")

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
