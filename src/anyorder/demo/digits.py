"""The demo's third act: handwritten digits, of which a part is taken away and painted again."""

from dataclasses import replace
from pathlib import Path

from anyorder.commands.questions import inpaint
from anyorder.commands.showing import show
from anyorder.data.image import bundled_digits
from anyorder.data.image_sources import BUNDLED
from anyorder.demo.telling import command, say
from anyorder.estimators.image import IMAGE_SETTINGS, ImageModel
from anyorder.report.image import painted_section
from anyorder.report.page import Section, Words

MINUTES, STEPS = 1.5, 1200
"""The budget of the training, whatever comes first: minutes of the processor."""

SHAPE = {"layers": 3, "width": 96, "heads": 4}
ROWS = 128
"""Held-out digits that bits are measured on."""


def digits_act(run: Path, seed: int) -> Section:
    """Fits digits, paints halves of some that were held out, and says how well it predicts them."""
    digits = bundled_digits()
    count, (height, width, _) = len(digits.train), digits.shape
    data = f"{count} handwritten digits of {height}x{width} pixels, which scikit-learn has."
    say(f"Images: {data}")
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
    command("inpaint", run, BUNDLED, "--half", "bottom", "--out", grid, "--seed", seed)
    inpaint(run, BUNDLED, half="bottom", out=grid, seed=seed)
    painted = painted_section(model, digits, seed)
    words = Words(f"The data: {data} A model of them paints parts of others that it has not seen.")
    return Section("Images: painted parts", [words, *painted.blocks[1:]])
