"""The verbs for text: fit, infill, evaluate."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from anyorder.commands.runs import read_run
from anyorder.data.text import Text, decode, embedded_text, encode, load_text, load_text8
from anyorder.errors import CheckpointError, ConfigError
from anyorder.estimators.text import TEXT_SETTINGS, TextModel
from anyorder.reproduce.record import print_json
from anyorder.training.settings import is_first_process

EMBEDDED = "pydoc"
"""What to say in place of a file for the text that ships with Python."""


def fit_text(
    file: str,
    *,
    out: Path,
    minutes: float | None,
    steps: int | None,
    seed: int,
    **shape: Any,
) -> None:
    """Fits a text and saves the model; see `anyorder fit --help`."""
    budget = TEXT_SETTINGS.minutes if minutes is None and steps is None else minutes
    settings = replace(TEXT_SETTINGS, minutes=budget, steps=steps, seed=seed)
    sizes = {name: size for name, size in shape.items() if size is not None}
    model = TextModel(settings=settings, **sizes)
    text = read_text(file)
    model.fit(text, folder=out / "training", progress=True)
    if is_first_process():
        model.save(out)
        words = decode(text.valid[:12], text.alphabet)
        holed = words[:2] + model.hole + words[3:]
        Console(stderr=True, markup=False, soft_wrap=True).print(
            f'Fitted "{text.name}". Try:  anyorder infill {out} "{holed}"'
        )


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
    fills = read_model(run).infill(
        text,
        n=n,
        how="greedy" if greedy else "sample",
        temperature=temperature,
        top_k=top_k,
        seed=seed,
    )
    if json:
        print_json({"text": text, "fills": fills})
    else:
        Console(soft_wrap=True, highlight=False, markup=False).print("\n".join(fills))


def evaluate_text(model: TextModel, file: str, *, rows: int | None, seed: int, json: bool) -> None:
    """Prints the bits of a text under a model; see `anyorder evaluate --help`."""
    text, rows = read_text(file), 256 if rows is None else rows
    codes = encode(decode(text.test, text.alphabet), model.alphabet_)
    found = model.evaluate(codes, rows=rows, seed=seed)
    if json:
        bits = {name: {"value": e.value, "se": e.se, "n": len(e.rows)} for name, e in found.items()}
        print_json({"data": text.name, "bits": bits})
        return
    table = Table(title=f"{text.name}: bits for each character of the test part")
    for title in ("question", "bits", "rows"):
        table.add_column(title, justify="left" if title == "question" else "right")
    questions = {
        "joint": "all characters of a chunk",
        "marginal": "a random set of them, for each character of the chunk",
        "conditional": "a random half, given the other, for each character asked",
    }
    for name, estimate in found.items():
        table.add_row(questions[name], str(estimate), str(len(estimate.rows)))
    Console().print(table)


def read_model(run: Path) -> TextModel:
    """A model by what a user typed: its folder, even of a stopped training, or "shipped"."""
    model = read_run(run)
    if not isinstance(model, TextModel):
        raise CheckpointError(
            f'"{run}" holds a model of a table; this asks for one of text. Try `anyorder query`.'
        )
    return model


def read_text(file: str) -> Text:
    """A text by what a user typed: a file, text8 or the folder of text8, or "pydoc"."""
    if file == EMBEDDED:
        return embedded_text()
    path = Path(file)
    if not path.exists():
        raise ConfigError(f'There is no file "{file}". Give a text file, or "{EMBEDDED}".')
    if path.is_dir() or path.name in ("text8", "text8.zip"):
        return load_text8(path)
    return load_text(path)
