"""Commands for text: fit, infill, evaluate."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from anyorder.cli.console import STREAM, note, print_json, printable, shell, show
from anyorder.cli.options import EvaluateOptions, FitOptions
from anyorder.cli.resume import explaining_mismatch, overwriting, size_flags, training_flags
from anyorder.cli.runs import finished_step, note_fitted, read_run
from anyorder.diagnostics.consistency import estimate_json
from anyorder.diagnostics.evaluation import conditional_bits
from anyorder.errors import ConfigError, check_seed
from anyorder.text import EMBEDDED
from anyorder.text.data import Text, chunks, decode, embedded_text, load_text, load_text8
from anyorder.text.model import TEXT_SETTINGS, VALID_ROWS, TextModel
from anyorder.training.settings import is_first_process

HINT = 32
"""Greatest length of the text that `fit` proposes to infill."""


def fit_text(file: str, shared: FitOptions, **own: Any) -> None:
    """Fits a text and saves the model; see `anyorder fit --help`."""
    out, minutes, steps = shared.out, shared.minutes, shared.steps
    budget = TEXT_SETTINGS.minutes if minutes is None and steps is None else minutes
    settings = replace(TEXT_SETTINGS, minutes=budget, steps=steps, seed=shared.seed)
    chosen = {name: value for name, value in own.items() if value is not None}
    model = TextModel(settings=settings, **shared.sizes(), **chosen)
    text, training = read_text(file), out / "training"
    if is_first_process():
        size = sum(len(part) for part in (text.train, text.valid, text.test))
        note(f"{text.name}: read as a text of {size:,} characters")

    def flags(one: TextModel) -> dict[str, Any]:
        return {
            "--length": one.length,
            **size_flags(one),
            **training_flags(one.training_settings()),
        }

    def other_data(_: TextModel) -> str:
        return f'it is of another text than "{file}"'

    room = overwriting(out, overwrite=shared.overwrite, file=file)
    with room, explaining_mismatch(out, model, file=file, flags=flags, other_data=other_data):
        done = finished_step(training)
        model.progress = done is None
        model.fit(text, folder=training)
        if is_first_process():
            model.save(out)
    if is_first_process():
        bits = conditional_bits(model.fitted(), chunks(text.valid, model.length, VALID_ROWS))
        held_out = f"Held-out text: {bits} bits for each character of a random half of a chunk"
        note_fitted(text.name, out, done, held_out)
        note(f"  {shell('anyorder', 'infill', out, example_text(text, model))}")


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


def infill_text(
    run: Path,
    text: str,
    *,
    n: int,
    greedy: bool,
    temperature: float,
    top_k: int | None,
    seed: int,
    json: bool,
) -> None:
    """Fills the holes of a text; see `anyorder infill --help`."""
    _check_sampling(n, greedy, temperature)
    check_seed(seed)
    text = sys.stdin.read().rstrip("\n") if text == STREAM else text
    fills = read_run(run, "text").infill(
        text,
        n=n,
        how="greedy" if greedy else "sample",
        temperature=temperature,
        top_k=top_k,
        random_state=seed,
    )
    if json:
        print_json({"text": text, "fills": fills})
    else:
        lines = "\n".join(fills)
        console = Console(soft_wrap=True, highlight=False, markup=False)
        # A pipe gets the samples unchanged.
        console.print(printable(lines) if console.is_terminal else lines)


def _check_sampling(n: int, greedy: bool, temperature: float) -> None:
    """Refuses options that contradict each other, in the words of the command line."""
    if not 0 < temperature < math.inf:
        raise ConfigError(
            f"`--temperature` must be above 0 and finite; got {temperature:g}. `--greedy` takes "
            "the most probable character at each step."
        )
    if greedy and (n > 1 or temperature != 1):
        other = "--n" if n > 1 else "--temperature"
        raise ConfigError(f"`--greedy` samples nothing, so `{other}` has no use: drop one of them.")


def evaluate_text(model: TextModel, file: str, options: EvaluateOptions) -> None:
    """Prints the bits of a text under a model; see `anyorder evaluate --help`."""
    text = read_text(file)
    rows = 256 if options.rows is None else options.rows
    found = model.evaluate(text, rows=rows, random_state=check_seed(options.seed))
    if options.json:
        bits = {name: estimate_json(estimate) for name, estimate in found.items()}
        print_json({"data": text.name, "bits": bits})
        return
    questions = {
        "joint": f"joint: all {model.length} characters of a chunk",
        "marginal": f"marginal: a random set of them, divided by all {model.length}",
        "conditional": "conditional: a random half given the other, divided by those queried",
    }
    show(
        ["query", "bits a character", "chunks"],
        [[questions[name], str(bits), str(len(bits.rows))] for name, bits in found.items()],
        title=f"{text.name}: its test part, the last 5%; less is better",
        numbers=["bits a character", "chunks"],
    )


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
