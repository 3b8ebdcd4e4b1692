"""Training of the small text model that ships with the package.

    python -m experiments.shipped_text_model           trains it for 20 minutes and evaluates it
    python -m experiments.shipped_text_model --save    also replaces the shipped model

It is trained on the language reference that ships with Python (3.11 for the shipped model), in the
alphabet of text8. Its weights take less than 2 MB. An interrupted training resumes.
"""

from pathlib import Path

import torch
from cyclopts import App, Parameter
from rich.console import Console

from anyorder.cli.app import run
from anyorder.text import SHIPPED
from anyorder.text.data import embedded_text
from anyorder.text.model import TextModel
from anyorder.training.settings import TrainingSettings

SETTINGS = TrainingSettings(
    batch=16, minutes=20, clock="processor", learning_rate=3e-3, weight_decay=0.1, warmup=200,
    evaluate_every=500, patience=8, checkpoint_minutes=2,
)  # fmt: skip


app = App(
    name="python -m experiments.shipped_text_model",
    default_parameter=Parameter(negative=()),
    help=(__doc__ or "").splitlines()[0],
)


@app.default
def main(*, out: Path = Path("runs/shipped_text_model"), save: bool = False) -> None:
    """Fits the model, and prints its bits.

    Args:
        out: Folder of the training; the same command resumes it.
        save: Overwrite the weights that ship with the package.
    """
    torch.set_num_threads(1)
    text = embedded_text()
    model = TextModel(length=128, layers=3, width=96, heads=4, settings=SETTINGS, progress=True)
    model.fit(text, folder=out)
    if save:
        model.save(SHIPPED)
    for name, bits in model.evaluate(text, rows=128).items():
        Console().print(f"{name}: {bits} bits")


if __name__ == "__main__":
    run(app)
