"""What a verb must not write to."""

from pathlib import Path

from anyorder.commands.streams import STREAM
from anyorder.errors import ConfigError


def check_target(out: str | Path, *sources: str | Path | None) -> None:
    """Refuses, before the work, to write over what is read, also through links, or a folder.

    Args:
        out: What will be written.
        sources: What is read.
    """
    if str(out) == STREAM:
        return
    if Path(out).is_dir():
        raise ConfigError(f'`--out` must be a file; "{out}" is a folder.')
    for source in sources:
        both = source is not None and Path(out).exists() and Path(source).exists()
        if both and Path(out).samefile(str(source)):
            raise ConfigError(
                f'`--out` must be another file than the one that is read, "{source}": it would '
                "be lost. Choose another name."
            )
