"""Runs the demo, from its first act to its page.

`run_demo` fills a text with the model that ships, fits and queries a table of penguins
(`penguins.table_act`), fits and inpaints handwritten digits, times two speed-ups over the paper's
algorithms, and writes a page with all of it.
"""

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from rich.console import Console

from anyorder.cli.console import note, shell, show
from anyorder.demo.penguins import GIVEN, QUERY, command, say, table_act
from anyorder.errors import ConfigError, check_seed
from anyorder.images.data import bundled_digits
from anyorder.images.domain import inpaint
from anyorder.images.model import IMAGE_SETTINGS, ImageModel
from anyorder.images.public_sets import BUNDLED
from anyorder.images.report import painted_section
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.lattice.masks import UniformCardinality
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.lattice.training_law import training_masks
from anyorder.report.page import Code, Grid, Page, Section, Words
from anyorder.reproduce.table7 import papers_sampler
from anyorder.saving.run_folder import replace_text
from anyorder.text.model import TextModel

HOLES = "the ______ statement r_ises an exc_pti_n if th_ obj_ct is not fo_nd"
FILLS = 3

MINUTES, STEPS = 1.5, 1200
"""Training budget: CPU minutes and steps, whichever ends first."""

SHAPE = {"layers": 3, "width": 96, "heads": 4}
IMAGES_EVALUATED = 128
"""Number of held-out digits that are evaluated."""

BATCH, VARIABLES = 128, 250
"""Masks of a batch, and variables of the paper's text8."""

TEXTS, ROUNDS = 16, 3
TITLES = ("task", "paper's algorithm", "here", "times faster")


def run_demo(*, out: Path, seed: int) -> None:
    """Runs all acts and writes the page; see `anyorder demo --help`."""
    check_seed(seed)
    if out.exists() and not out.is_dir():
        raise ConfigError(f'`--out` must be a folder; "{out}" is a file.')
    shipped = TextModel.shipped()
    text = text_act(shipped, seed)
    table = table_act(out / "penguins", seed)
    digits = digits_act(out / "digits", seed)
    speed = speed_act(shipped, seed)
    page = Page(
        "What anyorder does",
        "Three models, of a table, of text and of images; each answers any query of the form "
        "p(these | those): what is queried, given what is known. Made by anyorder demo.",
        [*table.answers, text, digits, table.samples, speed, *table.about],
    )
    report = out / "report.html"
    replace_text(report, page.html())
    say(f"All of it with pictures: {report} (open it in a browser). To go on:")
    for line in activation():
        note(f"  {line}")
    for arguments in (
        ("query", out / "penguins", "--of", QUERY, "--given", GIVEN),
        ("inpaint", out / "digits", "digits", "--half", "left", "--out", "left.png"),
        ("fit", "YOUR.csv", "--out", "runs/yours"),
    ):
        note(f"  {shell('anyorder', *arguments)}")


def activation() -> list[str]:
    """Returns the shell command that puts `anyorder` on the path, if one is needed."""
    scripts = Path(sys.executable).parent
    found, script = shutil.which("anyorder"), scripts / "activate"
    if not script.exists() or (found is not None and Path(found).parent == scripts):
        return []
    here = Path.cwd()
    return [f". {shell(script.relative_to(here) if script.is_relative_to(here) else script)}"]


def text_act(model: TextModel, seed: int) -> Section:
    """Fills the holes of a text with the model that ships."""
    words = "A text model comes with the package; it was trained on Python's own reference."
    say(f"{words} It fills the holes three times:")
    command("infill", "shipped", HOLES, "--n", FILLS, "--seed", seed)
    fills = model.infill(HOLES, n=FILLS, random_state=seed)
    Console(soft_wrap=True, highlight=False, markup=False).print("\n".join(fills))
    lines = [f"known   {HOLES}", *(f"filled  {fill}" for fill in fills)]
    sentence = f"{words} It fills holes, the underscores, here {FILLS} times."
    return Section("Text: holes and fills", [Words(sentence), Code("\n".join(lines))])


def digits_act(run: Path, seed: int) -> Section:
    """Fits handwritten digits, evaluates the model, and inpaints held-out ones."""
    digits = bundled_digits()
    count, (height, width, _) = len(digits.train), digits.shape
    data = f"{count} handwritten digits of {height}x{width} pixels, which scikit-learn has."
    say(f"Images: {data}")
    budget = {"minutes": MINUTES, "clock": "processor", "steps": STEPS}
    settings = replace(IMAGE_SETTINGS, **budget, seed=seed)  # type: ignore[arg-type]
    model = ImageModel(**SHAPE, settings=settings, progress=True).fit(digits)  # type: ignore[arg-type]
    model.save(run)
    found = model.evaluate(digits, rows=IMAGES_EVALUATED, random_state=seed)
    show(
        ["query", "bits per pixel"],
        [[name, str(bits)] for name, bits in found.items()],
        numbers=["bits per pixel"],
    )
    say("Their lower halves, hidden and inpainted:")
    grid = run / "grid.png"
    command("inpaint", run, BUNDLED, "--half", "bottom", "--out", grid, "--seed", seed)
    inpaint(run, BUNDLED, half="bottom", out=grid, seed=seed)
    painted = painted_section(model, digits, seed)
    words = Words(f"The data: {data} The model inpaints hidden parts of held-out ones.")
    return Section("Images: inpainted parts", [words, *painted.blocks[1:]])


def speed_act(model: TextModel, seed: int) -> Section:
    """Times mask sampling and likelihoods, by the paper's algorithms and ours."""
    say("The paper's algorithms and ours, timed on this machine:")
    rows = [_mask_sampling(seed), _likelihoods(model.fitted())]
    show(TITLES, rows, numbers=TITLES[1:])
    words = (
        "The paper samples a hundred times as many training masks as it needs and resamples them; "
        "here they are sampled exactly. A masked network takes a pass for every queried variable; "
        "a path network takes one for all."
    )
    return Section(
        "Two speed-ups, timed on this machine", [Words(words), Grid(TITLES, rows, TITLES[1:])]
    )


def _mask_sampling(seed: int) -> list[str]:
    generator = torch.Generator().manual_seed(seed)
    law, protocol = UniformCardinality(VARIABLES), RemoveGreatest(lexicographic(VARIABLES))

    def exact() -> object:
        return training_masks(law, protocol, BATCH, reweight=True, generator=generator)

    slow = _seconds(lambda: papers_sampler(BATCH, VARIABLES, generator))
    return _row(f"{BATCH} training masks of {VARIABLES} variables", slow, _seconds(exact))


def _likelihoods(model: AnyOrderModel) -> list[str]:
    """Times joint likelihoods, in one pass and in one for each variable."""
    n, rank = model.num_variables, model.protocol.rank(torch.ones(1, model.num_variables).bool())
    x = torch.zeros(TEXTS, n, dtype=torch.long)
    path = rank.flatten().argsort()

    def one_by_one() -> None:
        for step, variable in enumerate(path.tolist()):
            known = torch.zeros(n, dtype=torch.bool)
            known[path[:step]] = True
            log_prob(model, x, query=[variable], given=known)

    fast = _seconds(lambda: log_prob(model, x))
    slow = _seconds(one_by_one, rounds=1)
    return _row(f"p(x) of {TEXTS} texts of {n} characters", slow, fast)


def _seconds(work: Callable[[], object], *, rounds: int = ROUNDS) -> float:
    work()  # the first call is slower: it allocates memory
    times = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return median(times)


def _row(task: str, slow: float, fast: float) -> list[str]:
    return [task, f"{1000 * slow:,.0f} ms", f"{1000 * fast:,.1f} ms", f"{slow / fast:,.0f}"]
