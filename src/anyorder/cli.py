"""The command line: verbs are functions, flags are their arguments.

Nothing heavy is imported here, so that `anyorder --help` answers at once; a verb imports what it
needs when it runs.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter, Token

# OpenMP threads that spin while they wait can slow a busy machine down a hundredfold. It reads this
# when torch is first imported, which is after this module.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

USER_ERROR = 2
"""The exit code of an error that the user can mend."""

INTERRUPTED = 130
"""The exit code that shells expect after Ctrl-C."""

BROKEN_PIPE = 141
"""The exit code that shells expect when the reader of a pipe has gone."""


def _whole(_: type, tokens: Sequence[Token]) -> int:
    """Whole numbers only: cyclopts by itself would round 1.5."""
    try:
        return int(tokens[0].value.replace("_", ""))
    except ValueError:
        raise ValueError(f'"{tokens[0].value}" is not a whole number') from None


Whole = Annotated[int, Parameter(converter=_whole)]
Json = Annotated[bool, Parameter(help="Print one JSON object, the last line of the output.")]
Seed = Annotated[Whole, Parameter(help="The same seed gives the same output.")]
Data = Annotated[
    Path | None,
    Parameter(
        env_var="ANYORDER_DATA",
        help="text8, or the folder that holds it; without it, the text that ships with Python.",
    ),
]
Scale = Annotated[
    Literal["tiny", "small", "paper"],
    Parameter(help="tiny takes a minute, small some hours of a laptop, paper wants a GPU."),
]
Runs = Annotated[
    Path, Parameter(help="Where the runs go; the same command goes on with what is there.")
]
Minutes = Annotated[
    float | None, Parameter(help="Of training for each model, in place of the scale's.")
]
AtOnce = Annotated[Whole, Parameter(help="How many models are trained at a time, a thread each.")]
KeptIn = Annotated[
    Path | None,
    Parameter(help="A file to which the numbers are written with the command and the commit."),
]

app = App(
    name="anyorder",
    help="Train one model, then ask it anything of the form p(these variables | those variables).",
    default_parameter=Parameter(negative=()),  # no --no-json beside --json
    suppress_keyboard_interrupt=False,
)
reproduce = App(name="reproduce", help="The paper's tables and figures, one command each.")
app.command(reproduce)


@app.command
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


@app.command
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


@app.command
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


@reproduce.command
def table1(
    *,
    scale: Scale = "tiny",
    data: Data = None,
    out: Runs = Path("runs/table1"),
    models: list[str] | None = None,
    minutes: Minutes = None,
    at_once: AtOnce = 1,
    seed: Seed = 0,
    json: Json = False,
    record: KeptIn = None,
) -> None:
    """Table 1: text, in bits for each character.

    Example: anyorder reproduce table1 --scale small --data text8 --at-once 2

    Parameters
    ----------
    models
        Which models; all by default.
    """
    from anyorder.reproduce.table1 import table1 as run

    run(
        scale=scale,
        data=data,
        out=out,
        models=models,
        minutes=minutes,
        at_once=at_once,
        seed=seed,
        json=json,
        record=record,
    )


@reproduce.command
def figure3(
    *,
    scale: Scale = "tiny",
    data: Data = None,
    out: Runs = Path("runs/figure3"),
    minutes: Minutes = None,
    at_once: AtOnce = 1,
    seed: Seed = 0,
    json: Json = False,
    record: KeptIn = None,
) -> None:
    """Figure 3: what each idea adds to the law that training masks are drawn from.

    Writes figure3.csv and figure3.png beside the runs.

    Example: anyorder reproduce figure3 --scale small --data text8 --at-once 2
    """
    from anyorder.reproduce.figure3 import figure3 as run

    run(
        scale=scale,
        data=data,
        out=out,
        minutes=minutes,
        at_once=at_once,
        seed=seed,
        json=json,
        record=record,
    )


@reproduce.command
def samples(
    *, run: Path | None = None, data: Data = None, seed: Seed = 0, json: Json = False
) -> None:
    """The appendix: test text, the same with holes, and how a model fills them.

    Example: anyorder reproduce samples

    Parameters
    ----------
    run
        The folder of a model of text; the model that ships with the package by default.
    """
    from anyorder.reproduce.samples import samples as show

    show(run=run, data=data, seed=seed, json=json)


@reproduce.command
def table7(
    *, samples: Whole = 1_000_000, seed: Seed = 0, json: Json = False, record: KeptIn = None
) -> None:
    """Table 7: the laws over masks that queries and protocols induce, exactly and by simulation.

    Example: anyorder reproduce table7 --samples 100000

    Parameters
    ----------
    samples
        How many masks the simulation draws from each law.
    """
    from anyorder.reproduce.table7 import table7 as run

    run(samples=samples, seed=seed, json=json, record=record)


def main(arguments: list[str] | None = None) -> None:
    """The entry point of the `anyorder` command."""
    run(app, arguments)


def run(command: App, arguments: list[str] | None = None) -> None:
    """Runs a command line; what the user can mend is one sentence and exit code 2."""
    try:
        command(
            arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("Stopped. The same command goes on from the last checkpoint.", code=INTERRUPTED)
    except BrokenPipeError:
        _close_quietly()
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename or 'the output'}")
    except ValueError as error:
        # Only now is it certain that the library, and so torch, was imported already.
        from anyorder.errors import AnyOrderError

        if not isinstance(error, AnyOrderError):
            raise
        _fail(str(error))


def _close_quietly() -> None:
    """Whoever read our output has gone: point it nowhere, so that closing it does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(BROKEN_PIPE)


def _fail(sentence: str, *, code: int = USER_ERROR) -> None:
    sys.stderr.write(f"error: {' '.join(sentence.split())}\n")
    sys.exit(code)
