"""The demo's first act: a text with holes, and the model that ships with the package."""

from rich.console import Console

from anyorder.demo.telling import command, say
from anyorder.estimators.text import TextModel
from anyorder.report.page import Code, Section, Words

HOLED = "the ______ statement r_ises an exc_pti_n if th_ obj_ct is not fo_nd"
FILLS = 3


def text_act(model: TextModel, seed: int) -> Section:
    """Fills the holes."""
    words = "A model of text comes with the package: it has read Python's own reference."
    say(f"{words} It fills the holes three times:")
    command("infill", "shipped", HOLED, "--n", FILLS, "--seed", seed)
    fills = model.infill(HOLED, n=FILLS, seed=seed)
    Console(soft_wrap=True, highlight=False, markup=False).print("\n".join(fills))
    lines = [f"known   {HOLED}", *(f"filled  {fill}" for fill in fills)]
    told = f"{words} It fills holes, the underscores, here {FILLS} times."
    return Section("Text: holes and fills", [Words(told), Code("\n".join(lines))])
