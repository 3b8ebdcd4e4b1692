"""The command line: verbs are functions, flags are their arguments.

Nothing heavy is imported here, so that `anyorder --help` answers at once; a verb imports what it
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
"""The exit code of an error that the user can mend."""

INTERRUPTED = 130
"""The exit code that shells expect after Ctrl-C."""

BROKEN_PIPE = 141
"""The exit code that shells expect when the reader of a pipe has gone."""

NO_MEMORY = ("DefaultCPUAllocator", "out of memory", "Storage size calculation overflowed")
"""What torch's RuntimeErrors say where memory does not suffice; all others are our own mistakes."""

DEBUG = "--debug"
"""Anywhere on the command line: errors show where they came from."""

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
    """The entry point of the `anyorder` command."""
    run(app, arguments)


def run(command: App, arguments: list[str] | None = None) -> None:
    """Runs a command line; what the user can mend is one sentence and exit code 2."""
    words = piped(sys.argv[1:] if arguments is None else arguments)
    if DEBUG in words:
        words.remove(DEBUG)
        _call(command, words)
        return
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _tell  # type: ignore[assignment]
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


def _tell(message: Warning | str, *_: object) -> None:
    """A warning as one line, without the place in the code that it came from."""
    sys.stderr.write(f"warning: {printable(str(message))}\n")


def _without_dashes(error: MissingArgumentError) -> str:
    """What is missing as the help names it: FILE, not --file, where it is known by its place."""
    argument, sentence = error.argument, str(error)
    if argument is None or argument.index is None:
        return sentence
    name = argument.names[0]
    place = name.removeprefix("--").upper()
    return sentence.replace(f"parameter {name} requires an argument", f"needs {place}")


def _close_quietly() -> None:
    """Whoever read our output has gone: point it nowhere, so that closing it does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(BROKEN_PIPE)


def _fail(sentence: str, *, word: str = "error", code: int = USER_ERROR) -> None:
    sys.stderr.write(f"{word}: {printable(' '.join(sentence.split()))}\n")
    sys.exit(code)
