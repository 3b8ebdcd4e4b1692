"""Text: chunks of characters; files, model, answers."""

from pathlib import Path

EMBEDDED = "pydoc"
"""Name of the text that ships with Python."""

SHIPPED = Path(__file__).parent / "shipped"
"""Run folder that ships with the package, written by `experiments.shipped_text_model --save`."""
