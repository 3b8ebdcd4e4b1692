"""The command line: verbs are functions, flags are their arguments.

Nothing heavy is imported here, so that `anyorder --help` answers at once; a verb imports what it
needs when it runs.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

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

app = App(
    name="anyorder",
    help="Train one model, then ask it anything of the form p(these variables | those variables).",
    suppress_keyboard_interrupt=False,
)
reproduce = App(name="reproduce", help="The paper's tables and figures, one command each.")
app.command(reproduce)


@reproduce.command
def table7(
    *, samples: Whole = 1_000_000, seed: Whole = 0, json: bool = False, record: Path | None = None
) -> None:
    """Table 7: the laws over masks that queries and protocols induce, exactly and by simulation.

    Example: anyorder reproduce table7 --samples 100000

    Parameters
    ----------
    samples
        How many masks the simulation draws from each law.
    seed
        Of the simulation.
    json
        Print one JSON object in place of the table.
    record
        A file to which the numbers are written with the command and the commit.
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
        _fail("Stopped.", code=INTERRUPTED)
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
