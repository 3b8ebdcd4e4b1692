"""Commands for text: fit and infill."""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from anyorder.cli.console import STREAM, note, print_json, printable, shell
from anyorder.cli.levels import check_temperature, level_flags, level_settings, note_fitted
from anyorder.cli.options import FitOptions
from anyorder.cli.resume import fit_in_folder
from anyorder.diagnostics.evaluation import conditional_bits
from anyorder.domains import read_run
from anyorder.errors import ConfigError, check_seed
from anyorder.text import EMBEDDED
from anyorder.text.data import Text, chunks, decode, embedded_text, load_text, load_text8
from anyorder.text.model import TEXT_SETTINGS, VALID_ROWS, TextModel
from anyorder.training.settings import is_first_process

HINT = 32
"""Greatest length of the text that `fit` proposes to infill."""


def fit_text(file: str, shared: FitOptions, **own: Any) -> None:
    """Fits a text and saves the model; see `anyorder fit --help`."""
    chosen = {name: value for name, value in own.items() if value is not None}
    model = TextModel(settings=level_settings(TEXT_SETTINGS, shared), **shared.sizes(), **chosen)
    text = read_text(file)
    if is_first_process():
        size = sum(len(part) for part in (text.train, text.valid, text.test))
        note(f"{text.name}: read as a text of {size:,} characters")
    done = fit_in_folder(
        model,
        text,
        shared,
        file=file,
        name=file,
        flags=lambda one: {"--length": one.length, **level_flags(one)},
        other_data=lambda _: f'it is of another text than "{file}"',
    )
    if is_first_process():
        bits = conditional_bits(model.fitted(), chunks(text.valid, model.length, VALID_ROWS))
        held_out = f"Held-out text: {bits} bits for each character of a random half of a chunk"
        example = shell("anyorder", "infill", shared.out, example_text(text, model))
        note_fitted(text.name, shared.out, done, held_out, example)


def example_text(text: Text, model: TextModel) -> str:
    """Returns words of the validation text, with a hole in each that has three letters or more."""
    found = ""
    for word in decode(text.valid[: 8 * HINT], text.alphabet).split()[1:]:  # the first may be cut
        middle = len(word) // 2
        holed = word[:middle] + model.hole + word[middle + 1 :] if len(word) > 2 else word
        longer = f"{found} {holed}".strip()
        if len(longer) > min(HINT, model.length) or (found and " " not in text.alphabet):
            break
        found = longer
    return found if model.hole in found else model.hole * min(3, model.length)


def infill_text(run: Path, text: str, options: Any) -> None:
    """Fills the holes of a text, with `InfillOptions`; see `anyorder infill --help`."""
    _check_sampling(options)
    check_seed(options.seed)
    text = sys.stdin.read().rstrip("\n") if text == STREAM else text
    fills = read_run(run, "text").infill(
        text,
        n=options.n,
        how="greedy" if options.greedy else "sample",
        temperature=options.temperature,
        top_k=options.top_k,
        random_state=options.seed,
    )
    if options.json:
        print_json({"text": text, "fills": fills})
    else:
        lines = "\n".join(fills)
        console = Console(soft_wrap=True, highlight=False, markup=False)
        # A pipe gets the samples unchanged.
        console.print(printable(lines) if console.is_terminal else lines)


def _check_sampling(options: Any) -> None:
    """Refuses options that contradict each other, in the words of the command line."""
    check_temperature(options.temperature, "character")
    if options.greedy and (options.n > 1 or options.temperature != 1):
        other = "--n" if options.n > 1 else "--temperature"
        raise ConfigError(f"`--greedy` samples nothing, so `{other}` has no use: drop one of them.")


def read_text(file: str) -> Text:
    """Reads what a user typed: a text file, text8 or the folder of text8, or "pydoc"."""
    if file == EMBEDDED:
        return embedded_text()
    path = Path(file)
    if not path.exists():
        raise ConfigError(f'There is no file "{file}". Give a text file, or "{EMBEDDED}".')
    if path.is_dir() and not any((path / name).exists() for name in ("text8", "text8.zip")):
        raise ConfigError(
            f'"{file}" is a folder without pictures and without text8. Give '
            "a table, a text file or a folder of pictures."
        )
    if path.is_dir() or path.name in ("text8", "text8.zip"):
        return load_text8(path)
    return load_text(path)
