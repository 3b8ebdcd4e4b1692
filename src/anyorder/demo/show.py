"""The demo from its first act to its page."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from anyorder.commands.notation import shell
from anyorder.commands.showing import note
from anyorder.demo.telling import say
from anyorder.errors import ConfigError, check_seed
from anyorder.estimators.text import TextModel
from anyorder.report.page import Page
from anyorder.storage import replace_text

NEEDED = ("matplotlib", "palmerpenguins", "PIL")


def run_demo(*, out: Path, seed: int) -> None:
    """Shows everything; see `anyorder demo --help`."""
    check_seed(seed)
    if any(find_spec(name) is None for name in NEEDED):
        raise ConfigError('The demo needs pictures and penguins: pip install "anyorder[demo]".')
    # Acts draw: they cannot be imported where what was just looked for is not there.
    from anyorder.demo.answer import ASKED, KNOWN
    from anyorder.demo.digits import digits_act
    from anyorder.demo.speed import speed_act
    from anyorder.demo.table import table_act
    from anyorder.demo.text import text_act

    if out.exists() and not out.is_dir():
        raise ConfigError(f'`--out` must be a folder; "{out}" is a file.')
    shipped = TextModel.shipped()
    text = text_act(shipped, seed)
    table = table_act(out / "penguins", seed)
    digits = digits_act(out / "digits", seed)
    speed = speed_act(shipped, seed)
    page = Page(
        "What anyorder does",
        "Three models, of a table, of text and of images; each answers any question of the form "
        "p(these | those): what is asked, given what is known. Made by anyorder demo.",
        [*table.answers, text, digits, table.samples, speed, *table.about],
    )
    report = out / "report.html"
    replace_text(report, page.html())
    say(f"All of it with pictures: {report} (open it in a browser). To go on:")
    for line in activation():
        note(f"  {line}")
    for arguments in (
        ("query", out / "penguins", "--of", ASKED, "--given", KNOWN),
        ("inpaint", out / "digits", "digits", "--half", "left", "--out", "left.png"),
        ("fit", "YOUR.csv", "--out", "runs/yours"),
    ):
        note(f"  {shell('anyorder', *arguments)}")


def activation() -> list[str]:
    """What must be typed before `anyorder` is found, if anything: make runs it without."""
    scripts = Path(sys.executable).parent
    found, script = shutil.which("anyorder"), scripts / "activate"
    if not script.exists() or (found is not None and Path(found).parent == scripts):
        return []
    here = Path.cwd()
    return [f". {shell(script.relative_to(here) if script.is_relative_to(here) else script)}"]
