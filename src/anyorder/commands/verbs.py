"""The verbs that fit a model and ask it: functions whose arguments are the flags.

A verb imports what it needs when it runs, so that `anyorder --help` answers at once.
"""

from pathlib import Path

from anyorder.commands.options import Json, Seed, Whole


def fit(
    file: str,
    *,
    out: Path,
    length: Whole = 128,
    layers: Whole = 4,
    width: Whole = 128,
    heads: Whole = 4,
    hole: str = "_",
    minutes: float | None = None,
    steps: Whole | None = None,
    seed: Seed = 0,
) -> None:
    """Fit a model of a text, and save it.

    Example: anyorder fit book.txt --out runs/book --minutes 10

    The same command goes on with a training that was stopped.

    Parameters
    ----------
    file
        A UTF-8 text file, text8 or its zip; or "pydoc" for the text that ships with Python.
    out
        The folder of the model.
    length
        Characters of a chunk: the longest text that can be asked about at once.
    layers
        Blocks of the network.
    width
        Of the network.
    heads
        Of its attention; divides the width.
    hole
        The character that will stand for an unknown one; not one of the text's own.
    minutes
        Of training; 10 if no steps are given.
    steps
        Of training.
    """
    from anyorder.commands.text import fit_text

    fit_text(
        file,
        out=out,
        length=length,
        layers=layers,
        width=width,
        heads=heads,
        hole=hole,
        minutes=minutes,
        steps=steps,
        seed=seed,
    )


def infill(
    run: Path,
    text: str,
    *,
    n: Whole = 1,
    greedy: bool = False,
    temperature: float = 1.0,
    top_k: Whole | None = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Fill the holes of a text, written "_".

    Example: anyorder infill runs/book "th_ q_ick br_wn f_x" --n 3

    Parameters
    ----------
    run
        The folder of a model of text; or "shipped" for the one that comes with the package.
    text
        What is known, with holes.
    n
        How many fills.
    greedy
        Take the most probable character at each step.
    temperature
        Below 1 is more cautious.
    top_k
        Only the k most probable characters at each step.
    """
    from anyorder.commands.text import infill_text

    infill_text(
        run,
        text,
        n=n,
        greedy=greedy,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        json=json,
    )


def evaluate(
    run: Path, file: str, *, rows: Whole = 256, seed: Seed = 0, json: Json = False
) -> None:
    """Print how well a model predicts the test part of a text, with standard errors.

    Example: anyorder evaluate runs/book book.txt

    Parameters
    ----------
    run
        The folder of a model of text.
    file
        A text file; or "pydoc".
    rows
        How many chunks.
    """
    from anyorder.commands.text import evaluate_text

    evaluate_text(run, file, rows=rows, seed=seed, json=json)
