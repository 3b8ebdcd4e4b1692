"""Fits the small model of text that ships with the package.

    python -m experiments.shipped_text_model

It learns the language reference that comes with Python, in the alphabet of text8. Its weights take
less than 2 MB. The training goes on where it was if it is stopped.
"""

from pathlib import Path

import torch

from anyorder.data.text import embedded_text
from anyorder.estimators.text import SHIPPED, TextModel
from anyorder.training.settings import TrainingSettings

SETTINGS = TrainingSettings(
    batch=16, minutes=20, clock="processor", learning_rate=3e-3, weight_decay=0.1, warmup=200,
    evaluate_every=500, patience=8, checkpoint_minutes=2,
)  # fmt: skip


def main() -> None:
    """Fits and saves it, and prints how good it is."""
    torch.set_num_threads(1)
    text = embedded_text()
    model = TextModel(length=128, layers=3, width=96, heads=4, settings=SETTINGS)
    model.fit(text, folder=Path("runs/shipped_text_model"), progress=True)
    model.save(SHIPPED)
    for name, bits in model.evaluate(text.test, rows=128).items():
        print(f"{name}: {bits} bits")


if __name__ == "__main__":
    main()
