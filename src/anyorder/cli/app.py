"""The command line: the commands that all domains share, those of each domain, and exit codes.

Commands are functions, and flags are their arguments. Nothing heavy is imported here, so that
`anyorder --help` answers at once; a command imports what it needs when it runs.
"""

import inspect
import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

from anyorder.cli.console import piped, printable
from anyorder.cli.options import (
    AnyRun,
    EvaluateOptions,
    FitOptions,
    Json,
    Named,
    Seed,
    Whole,
)
from anyorder.domains import domains

# OpenMP threads that spin while they wait can slow a busy machine down a hundredfold. It reads this
# when torch is first imported, which is after this module.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

As = Annotated[
    str | None,
    Parameter(
        name="--as",
        help="Domain of the file, whatever its ending, such as table, text or image: a .csv can be "
        "read as text. A table has to end in .csv, .tsv or .parquet.",
    ),
]


def fit_command() -> Callable[..., None]:
    """Returns the command `fit`, whose flags are the shared ones and those of every domain."""

    def fit(file: str, *, shared: FitOptions, domain: As = None, **own: object) -> None:
        """Fit a model of a table, a text or images, and save it.

        Examples: anyorder fit people.csv --out runs/people; anyorder fit book.txt --out runs/book;
        anyorder fit pictures/ --size 16 --out runs/pictures

        The same command resumes a training that was stopped; with other options it is refused,
        unless it says --overwrite: anyorder fit people.csv --steps 900 --out runs/people
        --overwrite. The first 90% of a text are for training, the next 5% for validation, and the
        last 5% are left for evaluate.

        Parameters
        ----------
        file
            A table: .csv, .tsv (also .gz) or .parquet, or "-" for CSV from standard input. Or a
            UTF-8 text file, text8 or its zip; or "pydoc" for the text that ships with Python. Or a
            folder of pictures; "digits", which ship with scikit-learn; mnist, binarized_mnist,
            cifar10 or imagenet32, from ANYORDER_DATA.
        """
        from anyorder.cli.runs import fit_file

        fit_file(file, domain=domain, shared=shared, own=own)

    kinds = inspect.Parameter
    parameters = [
        kinds("file", kinds.POSITIONAL_OR_KEYWORD, annotation=str),
        kinds("shared", kinds.KEYWORD_ONLY, annotation=Annotated[FitOptions, Parameter(name="*")]),
        kinds("domain", kinds.KEYWORD_ONLY, default=None, annotation=As),
    ]
    for each in domains():
        flags = Annotated[each.fit_options, Parameter(name="*")]  # type: ignore[name-defined]
        default = each.fit_options()
        parameters.append(kinds(each.name, kinds.KEYWORD_ONLY, default=default, annotation=flags))
    fit.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    fit.__annotations__ = {each.name: each.annotation for each in parameters}
    return fit


def evaluate(
    run: AnyRun,
    file: str,
    *,
    options: Annotated[EvaluateOptions, Parameter(name="*")] = EvaluateOptions(),  # noqa: B008
) -> None:
    """Print how well a model predicts a table, or the test part of a text or of images.

    Examples: anyorder evaluate runs/people new.csv --report people.html; anyorder evaluate shipped
    pydoc

    For a table also: how well each column is predicted from the rest of its row, beside a constant
    prediction. That needs a model that was trained for any query.

    The test part of a text is its last 5%: the first 90% are for training, the next 5% for
    validation. It is read in chunks of the model's length. Bits of the joint and of marginals are
    divided by all characters of a chunk, those of conditionals by the characters queried.

    Parameters
    ----------
    file
        As for fit.
    """
    from anyorder.domains import domain_of, opened

    model = opened(run)
    domain_of(model).evaluate(model, run, file, options)


def check(
    run: AnyRun,
    file: str,
    *,
    rows: Whole | None = None,
    target: str | None = None,
    out: Named | None = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Print how consistent a model is, and whether its probabilities are calibrated.

    Examples: anyorder check runs/people test.csv --out report; anyorder check shipped pydoc

    The file should hold rows that the model was not trained on. The same likelihood is computed
    along other orders, with a column marginalised numerically, as a ratio, and with the evidence
    encoded in another way. Predictions are compared with the data, by how much of a row was given.
    Of a table, every probability given nothing or one category is compared with the share of rows.

    Parameters
    ----------
    file
        As for fit; of a text, the last 5% are read, and of images the test part.
    rows
        Greatest number of rows, chosen at random, 2000; of chunks or images, 256.
    target
        Tables: a category whose predictions, given the rest of the row, are compared with what
        happened, by tenths of the rows.
    out
        Folder for plots (if matplotlib is installed) and for the numbers, check.json.
    """
    from anyorder.cli.runs import check_file

    check_file(run, file, rows=rows, target=target, out=out, seed=seed, json=json)


def info(run: AnyRun, *, json: Json = False) -> None:
    """Print the facts about a model: its variables, its query law, its network.

    Example: anyorder info runs/people
    """
    from anyorder.cli.runs import describe_run

    describe_run(run, json=json)


def serve(
    run: AnyRun,
    *,
    host: str = "127.0.0.1",
    port: Whole = 8765,
    token: Annotated[str | None, Parameter(env_var="ANYORDER_TOKEN")] = None,
    open: bool = False,  # noqa: A002
) -> None:
    """Serve a model: a page to query it by hand, and an API for programs.

    Example: anyorder serve runs/people --open

    On the page, set what is given and watch the distributions of all else. /openapi.json describes
    the API. Requests accepted before Ctrl-C is pressed are still answered.

    Parameters
    ----------
    host
        Address to listen at. Another than this machine's own needs a token.
    port
        Port; 0 takes any that is free.
    token
        Token that requests must bear, as the header "Authorization: Bearer ...".
    open
        Open the page in a browser.
    """
    from anyorder.cli.runs import serve_model

    serve_model(run, host=host, port=port, token=token, show=open)


USER_ERROR = 2
"""Exit code of a user error."""

INTERRUPTED = 130
"""Exit code that shells expect after Ctrl-C."""

BROKEN_PIPE = 141
"""Exit code that shells expect when the reader of a pipe has gone."""

NO_MEMORY = ("DefaultCPUAllocator", "out of memory", "Storage size calculation overflowed")
"""Marks of torch's RuntimeErrors for lack of memory; all others are bugs."""

DEBUG = "--debug"
"""Flag, anywhere on the command line, that shows the traceback of an error."""

app = App(
    name="anyorder",
    help="Train one model, then ask it anything of the form p(these variables | those variables).",
    help_epilogue=(
        f"{DEBUG} after any command shows where an error came from; --install-completion teaches "
        "the shell the commands."
    ),
    default_parameter=Parameter(negative=()),  # no --no-json beside --json
    suppress_keyboard_interrupt=False,
)
# By name: these packages are built on this one.
app.command(
    "anyorder.demo:demo",
    name="demo",
    help="Show what the package does, in two or three minutes and without any file of yours.",
)
for command in (fit_command(), evaluate, check, info, serve):
    app.command(command)
for domain in domains():
    for command in domain.commands:
        app.command(command)
app.command(
    "anyorder.reproduce.cli:reproduce",
    name="reproduce",
    help="Run an experiment of the paper: a table or a figure, at any scale.",
)
app.register_install_completion_command()


def main(arguments: list[str] | None = None) -> None:
    """Runs the `anyorder` command; its entry point."""
    run(app, arguments)


def run(command: App, arguments: list[str] | None = None) -> None:
    """Runs a command line; a user error is one sentence and exit code 2."""
    words = piped(sys.argv[1:] if arguments is None else arguments)
    if DEBUG in words:
        words.remove(DEBUG)
        _call(command, words)
        return
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _print_warning  # type: ignore[assignment]
            _call(command, words)
    except MissingArgumentError as error:
        _fail(_without_dashes(error))
    except CycloptsError as error:
        _fail(str(error))
    except KeyboardInterrupt as stopped:
        # A training says what it saved.
        _fail(str(stopped) or "Nothing more was done.", word="interrupted", code=INTERRUPTED)
    except BrokenPipeError:
        _close_quietly()
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename or 'the output'}")
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(word in str(error) for word in NO_MEMORY):
            raise
        _fail(
            "The memory of this machine does not suffice. Make something smaller: `--n` or "
            "`--rows`, or, when fitting, `--width`, `--layers`, `--length` or `--size`."
        )
    except ValueError as error:
        # Only now is it certain that the library, and so torch, was imported already.
        from anyorder.errors import AnyOrderError

        if not isinstance(error, AnyOrderError):
            raise
        _fail(str(error))


def _call(command: App, words: list[str]) -> None:
    command(words, exit_on_error=False, print_error=False, result_action="return_value")


def _print_warning(message: Warning | str, *_: object) -> None:
    """Prints a warning as one line, without the place in the code that it came from."""
    sys.stderr.write(f"warning: {printable(str(message))}\n")


def _without_dashes(error: MissingArgumentError) -> str:
    """Names a missing positional argument as the help does: FILE, not --file."""
    argument, sentence = error.argument, str(error)
    if argument is None or argument.index is None:
        return sentence
    name = argument.names[0]
    place = name.removeprefix("--").upper()
    return sentence.replace(f"parameter {name} requires an argument", f"needs {place}")


def _close_quietly() -> None:
    """Redirects an output without a reader to nowhere, so that closing it raises nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(BROKEN_PIPE)


def _fail(sentence: str, *, word: str = "error", code: int = USER_ERROR) -> None:
    sys.stderr.write(f"{word}: {printable(' '.join(sentence.split()))}\n")
    sys.exit(code)
