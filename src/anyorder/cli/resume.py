"""An earlier training in the folder of `fit`: explained where it differs, replaced on request.

Without `--overwrite`, a training of something else is refused. The library compares weights, laws
and settings by their fields; `fit_in_folder` names the flags that differ instead, from the options
in the notes of the checkpoint.

With `--overwrite`, `overwriting` sets the earlier training aside, and removes it once the new one
has saved something. If that never happens, the earlier one is put back: at once, or by the next
`fit` if the process was killed. Nothing but an earlier training is ever removed.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from anyorder.cli.console import note
from anyorder.cli.options import FitOptions
from anyorder.cli.runs import finished_step
from anyorder.domains import domain_of, load
from anyorder.errors import AnotherRunError, CheckpointError, ConfigError
from anyorder.saving.checkpoint import RunFolder
from anyorder.training.settings import is_first_process

LONGEST = 60
"""Greatest number of characters of a value that are shown."""


def fit_in_folder(
    model: Any,
    data: Any,
    shared: FitOptions,
    *,
    file: str | Path,
    name: str,
    flags: Callable[[Any], Mapping[str, Any]],
    other_data: Callable[[Any], str],
    stages: int | None = None,
    **options: Any,
) -> int | None:
    """Fits a model in its folder and saves it there, unless its training had ended.

    `flags` gives the options of an estimator, this one or an earlier one, by flags; `other_data`
    says how the data of an earlier one differ, where no flag does. `options` are more arguments of
    `fit`.

    Returns:
        The steps of a training that had ended; None if there was none.
    """
    out, training = shared.out, shared.out / TRAINING
    with overwriting(out, overwrite=shared.overwrite, file=file):
        try:
            done = finished_step(training, stages=stages)
            model.progress = done is None
            model.fit(data, folder=training, **options)
        except AnotherRunError as error:
            turned = "`data.turns`" in str(error)  # the one option that no model keeps
            reason = "`--turns` differs" if turned else _reason(out, model, name, flags, other_data)
            raise CheckpointError(
                f'"{out}" holds an earlier training: {reason}. Give what was given then, or '
                "another `--out`; or `--overwrite`, which removes the earlier training."
            ) from error
        if is_first_process():
            model.save(out)
    return done


def _reason(
    out: Path,
    model: Any,
    file: str,
    flags: Callable[[Any], Mapping[str, Any]],
    other_data: Callable[[Any], str],
) -> str:
    try:
        earlier = load(out)
    except CheckpointError:  # damaged, or of another version
        return "it is of other data, or was started with other options"
    before, after = domain_of(earlier), domain_of(model)
    if before.name != after.name:
        return f'it is of {before.noun}, and "{file}" of {after.noun}'
    was, now = (
        {flag: _typed(value) for flag, value in flags(one).items()} for one in (earlier, model)
    )
    words = [
        f"`{flag}` was {_shown(was[flag])} and is {_shown(now[flag])} now"
        for flag in now
        if was[flag] != now[flag]
    ]
    return "; ".join(words) or other_data(earlier)


def size_flags(model: Any) -> dict[str, Any]:
    """Returns the flags of the size of a network."""
    return {"--layers": model.layers, "--width": model.width, "--heads": model.heads}


def _typed(value: str | float | None) -> str | None:
    """Returns a value as it is typed; None where nothing is."""
    if value is None or value == "":
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shown(value: str | None) -> str:
    if value is None:
        return "not given"
    return value if len(value) <= LONGEST else f"{value[: LONGEST - 3]}..."


ASIDE = ".anyorder-earlier"
"""Folder of the earlier training until it is removed."""

TRAINING = "training"

RUN = (TRAINING, "weights.safetensors", "weights.next.safetensors", "model.json")
"""Files and folders to move, in this order; and back in the reverse one, so that checkpoints in the
folder are never those of the earlier training while a part of it is set aside."""

PART = r"training(/member-\d+)?(/stage-\d+)?"
STEP = r"step-\d{8,}(-\d+)?"
PAIR = (
    r"(weights|training)(\.next)?\.safetensors|(model|training)\.json|\.(model|training)\.json\.new"
)

FOLDERS = re.compile(rf"{PART}(/tensorboard|/\.?{STEP})?")
FILES = re.compile(
    r"model\.json|weights(\.next)?\.safetensors"
    rf"|{PART}/(\.lock|latest|metrics\.jsonl|order\.json|\.(latest|metrics\.jsonl|order\.json)\.new)"
    rf"|{PART}/tensorboard/events\.out\.tfevents\.[^/]+"
    rf"|{PART}/\.?{STEP}/({PAIR})"
)
"""Paths of all that `fit` writes, relative to the folder of the model."""

DOCUMENTS = {"weights.safetensors": "model.json", "training.safetensors": "training.json"}
"""Document that belongs to each file of tensors; those being written, `.next`, come before it."""

METRIC = b'{"step": '
"""Beginning of every line of metrics."""

KEYS = {"format", "anyorder", "checksum"}
"""Keys of every document of anyorder."""


@contextmanager
def overwriting(out: Path, *, overwrite: bool, file: str | Path) -> Iterator[None]:
    """Removes the earlier training in a folder once the one in this block has saved something.

    Args:
        out: Folder of the model, locked for other commands meanwhile. Files in it that are no
            model's stay.
        overwrite: If False, nothing is removed.
        file: Training data, which must not be a part of what would be removed.
    """
    if not is_first_process():
        yield
        return
    with RunFolder(out).held():
        _settle(out)
        try:
            if overwrite:
                _set_aside(out, Path(file))
            yield
        finally:
            _settle(out)


def _set_aside(out: Path, file: Path) -> None:
    there = [out / name for name in RUN if os.path.lexists(out / name)]
    for path in there:
        _check(path, out)
        if file.resolve().is_relative_to(path.resolve()):
            raise ConfigError(
                f'`--overwrite` would remove "{file}", which is to be trained on. Move it away, or '
                "give another `--out`."
            )
    _refuse_busy(out / TRAINING)
    if there:
        (out / ASIDE).mkdir()
    for path in there:
        path.rename(out / ASIDE / path.name)


def _settle(out: Path) -> None:
    """Puts back what was set aside if nothing was saved in its place; else removes it."""
    aside = out / ASIDE
    if not os.path.lexists(aside):
        return
    if aside.is_symlink() or not aside.is_dir():
        raise _foreign(aside)
    earlier = list(aside.rglob("*"))
    for path in earlier:
        if not _is_in_place(path, aside):  # what it says was read before, and may be half removed
            raise _foreign(path)
    if earlier and not any((out / TRAINING).rglob("step-*")):
        _put_back(out)
    shutil.rmtree(aside)


def _put_back(out: Path) -> None:
    aside, training = out / ASIDE, out / TRAINING
    names = [name for name in reversed(RUN) if (aside / name).exists()]
    for name in names:
        if name != TRAINING and os.path.lexists(out / name):
            raise ConfigError(
                f'"{aside}" holds an earlier training, and "{out / name}" is in its place. Move '
                "one of them away."
            )
    if os.path.lexists(training):
        _check(training, out)
        _refuse_busy(training)
        shutil.rmtree(training)
    for name in names:
        (aside / name).rename(out / name)
    note(f'The earlier training in "{out}" is back: nothing was saved in its place.')


def _refuse_busy(training: Path) -> None:
    """Refuses while another process trains there."""
    for lock in list(training.rglob(".lock")):
        with RunFolder(lock.parent).held():
            pass


def _check(top: Path, root: Path) -> None:
    """Refuses to remove a file or a folder unless anyorder wrote all of it."""
    names = set()
    for path in chain([top], top.rglob("*")):
        if not (_is_in_place(path, root) and _is_ours(path)):
            raise _foreign(path)
        if path.is_file():
            names.add(path.name)
    if top.name == TRAINING and names and not names & {".lock", "model.json"}:
        raise _foreign(top)


def _foreign(path: Path) -> ConfigError:
    return ConfigError(
        f'`--overwrite` removes only what anyorder wrote, and "{path}" is none of it. Move it '
        "away, or give another `--out`."
    )


def _is_in_place(path: Path, root: Path) -> bool:
    """Returns whether anyorder writes a file or a folder of that name there."""
    places = FOLDERS if path.is_dir() else FILES
    written = places.fullmatch(path.relative_to(root).as_posix())
    return written is not None and not path.is_symlink()


def _is_ours(path: Path) -> bool:
    """Returns whether anyorder wrote a file, by its content or the document that belongs to it."""
    if path.name == "latest":
        return all(re.fullmatch(STEP, word) for word in path.read_text(errors="replace").split())
    if path.name == "metrics.jsonl":
        return path.read_bytes()[: len(METRIC)] in (b"", METRIC)
    document = path.with_name(DOCUMENTS.get(path.name, path.name))
    return document.name not in DOCUMENTS.values() or _is_document(document)


def _is_document(path: Path) -> bool:
    """Returns whether a file describes a model or a training of anyorder."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.keys() >= KEYS
