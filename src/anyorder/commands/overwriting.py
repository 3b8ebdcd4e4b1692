"""`fit --overwrite`: an earlier training makes room for a new one, and nothing else does.

What is there is set aside and goes when the new training has ended or has saved something; what is
refused before that leaves the earlier training as it was.
"""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from anyorder.errors import ConfigError
from anyorder.storage import TENSORS, RunFolder
from anyorder.training.settings import is_first_process

DOCUMENT, TRAINING = "model.json", "training"

ASIDE = ".earlier"
"""Where the earlier training is until it is not needed any more."""

WEIGHTS = [f"{TENSORS['model']}.safetensors", f"{TENSORS['model']}.next.safetensors"]

WRITTEN = re.compile(
    r"(member|stage)-\d+|\.?step-\d+(-\d+)?|latest|\.lock|metrics\.jsonl|order\.json|\..+\.new"
    r"|(model|training)\.json|(weights|training)(\.next)?\.safetensors|tensorboard|events\..+"
)
"""Names of what a training writes into its folder."""


MARKS = ("latest", ".lock", "metrics.jsonl")
"""What no training is without, also one that was stopped before it saved anything."""


@contextmanager
def making_room(out: Path, *, overwrite: bool) -> Iterator[None]:
    """Removes the earlier training in a folder once the one in this block has saved something.

    Args:
        out: The folder of the model. Files in it that are no model's stay.
        overwrite: Whether anything is removed at all.
    """
    if not (overwrite and is_first_process() and _holds_run(out)):
        yield
        return
    aside = out / ASIDE
    shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed
    aside.mkdir()
    there = [out / name for name in (DOCUMENT, *WEIGHTS, TRAINING) if (out / name).exists()]
    for path in there:
        path.rename(aside / path.name)
    try:
        yield
    except BaseException:
        if not _checkpoints(out / TRAINING):
            shutil.rmtree(out / TRAINING, ignore_errors=True)
            for path in there:
                (aside / path.name).rename(path)
        raise
    finally:
        shutil.rmtree(aside)


def _holds_run(out: Path) -> bool:
    """Whether there is an earlier training; refuses a folder that holds only other things."""
    if not out.exists() or not any(path.name != ASIDE for path in out.iterdir()):
        return False
    training = out / TRAINING
    marks = (path for path in training.rglob("*") if path.name in MARKS)
    if not _is_document(out / DOCUMENT) and not any(marks):
        raise ConfigError(
            f'`--overwrite` removes an earlier training, and "{out}" holds other files and no '
            "training. Drop it, or give another `--out`."
        )
    inside = [training, *training.rglob("*")] if training.exists() else []
    for path in inside:
        if path.is_symlink() or not (path == training or WRITTEN.fullmatch(path.name)):
            raise ConfigError(
                f'`--overwrite` removes only what anyorder wrote, and "{path}" is none of it. Move '
                "it away, or give another `--out`."
            )
    with ExitStack() as held:  # refuses while another process trains there
        for lock in (path for path in inside if path.name == ".lock"):
            held.enter_context(RunFolder(lock.parent).held())
    return True


def _is_document(path: Path) -> bool:
    """Whether a file is what anyorder says of a model."""
    try:
        return "anyorder" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _checkpoints(training: Path) -> bool:
    """Whether a training has saved something, in one piece or in members and stages."""
    return any(training.rglob("latest"))
