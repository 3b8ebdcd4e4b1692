"""How the demo speaks: sentences and commands on standard error, answers on standard output."""

from anyorder.commands.notation import shell
from anyorder.commands.showing import note


def say(sentence: str) -> None:
    """A sentence, after an empty line."""
    note(f"\n{sentence}")


def command(*arguments: object) -> None:
    """A command that does what comes next."""
    note(f"$ {shell('anyorder', *arguments)}\n")
