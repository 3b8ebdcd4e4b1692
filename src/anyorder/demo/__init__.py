"""Demo of text, table and image models, in minutes, with data that packages ship.

The command imports the models only when it runs.
"""

from importlib.util import find_spec
from pathlib import Path

from anyorder.cli.options import Named, Seed
from anyorder.errors import ConfigError

NEEDED = ("matplotlib", "palmerpenguins", "PIL")


def demo(*, out: Named = Path("runs/demo"), seed: Seed = 0) -> None:
    """Show what the package does, in two or three minutes and without any file of yours.

    Fills a text with the model that ships; fits, queries and imputes a table with missing values;
    fits and inpaints handwritten digits; and writes a page with all of it.

    Example: anyorder demo

    Parameters
    ----------
    out
        Folder of the models and of the page.
    """
    if any(find_spec(name) is None for name in NEEDED):
        raise ConfigError('The demo needs its plots and data: pip install "anyorder[demo]".')
    from anyorder.demo.show import run_demo

    run_demo(out=out, seed=seed)
