"""The demo's third act: handwritten digits, of which a part is taken away and painted again."""

from dataclasses import replace
from pathlib import Path

from anyorder.commands.showing import show
from anyorder.data.image import Images, bundled_digits
from anyorder.data.image_files import write_image
from anyorder.data.image_grid import picture_grid
from anyorder.data.image_holes import half_hole
from anyorder.demo.telling import command, say
from anyorder.estimators.image import IMAGE_SETTINGS, ImageModel
from anyorder.report.image import painted_section
from anyorder.report.page import Section

MINUTES, STEPS = 1.5, 1200
"""The budget of the training, whatever comes first: minutes of the processor."""

SHAPE = {"layers": 3, "width": 96, "heads": 4}
SHOWN, DRAWS, ROWS = 6, 3, 128


def digits_act(run: Path, seed: int) -> Section:
    """Fits digits, paints halves of some that were held out, and says how well it predicts them."""
    digits = bundled_digits()
    count, (height, width, _) = len(digits.train), digits.shape
    say(f"Images: {count} handwritten digits of {height}x{width} pixels, which scikit-learn has.")
    budget = {"minutes": MINUTES, "clock": "processor", "steps": STEPS}
    settings = replace(IMAGE_SETTINGS, **budget, seed=seed)  # type: ignore[arg-type]
    model = ImageModel(**SHAPE, settings=settings).fit(digits, progress=True)  # type: ignore[arg-type]
    model.save(run)
    found = model.evaluate(digits, rows=ROWS, seed=seed)
    show(
        ["question", "bits a pixel"],
        [[name, str(bits)] for name, bits in found.items()],
        numbers=["bits a pixel"],
    )
    say("Their bottom halves, taken away and painted again:")
    grid = run / "grid.png"
    command("inpaint", run, "digits", "--half", "bottom", "--out", grid)
    _write_grid(model, digits, grid, seed)
    return replace(painted_section(model, digits, seed), title="Images: painted parts")


def _write_grid(model: ImageModel, digits: Images, grid: Path, seed: int) -> None:
    originals, hole = digits.test[:SHOWN], half_hole(digits.shape[:2], "bottom")
    painted = model.inpaint(originals, hole, n=DRAWS, seed=seed)
    write_image(grid, picture_grid(originals, hole, painted, levels=model.levels_))
