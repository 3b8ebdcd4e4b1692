"""The command line: commands are functions, flags are their arguments.

Nothing heavy is imported here, so that `anyorder --help` answers at once; a command imports what it
needs when it runs.
"""

import os
import sys
import warnings

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

from anyorder.cli.commands import check, evaluate, fit_command, info, serve
from anyorder.cli.streams import piped, printable
from anyorder.domains import domains

# OpenMP threads that spin while they wait can slow a busy machine down a hundredfold. It reads this
# when torch is first imported, which is after this module.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

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
    "anyorder.demo.cli:demo",
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
