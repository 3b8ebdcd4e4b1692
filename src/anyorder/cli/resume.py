"""`fit --overwrite`: an earlier training makes room for a new one, and nothing else does.

What is there is set aside, and goes when the new training has saved something. If it ends before
that, the earlier one is put back: at once, or by the next `fit` if the process was killed.

A folder that holds an earlier training of something else: what differs, by the flags of `fit`.

The library compares weights, laws and settings, and names their fields. A checkpoint also notes the
options that its model was made with, and these are what a user typed.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from anyorder.cli.console import note
from anyorder.cli.notation import quoted
from anyorder.cli.runs import DOMAINS
from anyorder.domains import load
from anyorder.errors import AnotherRunError, CheckpointError, ConfigError
from anyorder.images.data import Images
from anyorder.images.model import ImageModel
from anyorder.lattice.query_laws import QueryLaw, QueryList
from anyorder.saving.run_folder import RunFolder
from anyorder.tables.model import TableModel
from anyorder.tables.questions import law_of
from anyorder.tables.schema import TableSchema
from anyorder.text.data import Text
from anyorder.text.model import TextModel
from anyorder.training.settings import is_first_process

AnyModel = TableModel | TextModel | ImageModel

LONGEST = 60
"""Characters of a value that are shown."""


@contextmanager
def told_by_flags(
    out: Path, model: AnyModel, data: TableSchema | Text | Images, *, file: str
) -> Iterator[None]:
    """Says by flags why a training cannot go on with the one that is in its folder.

    Args:
        out: The folder of the model.
        model: What is to be trained.
        data: What it is to be trained on.
        file: What the user calls that.
    """
    try:
        yield
    except AnotherRunError as error:
        turned = "`data.turns`" in str(error)  # the one option that no model keeps
        reason = "`--turns` differs" if turned else _reason(out, model, data, file)
        raise CheckpointError(
            f'"{out}" holds an earlier training: {reason}. Give what was given then, or another '
            "`--out`; or `--overwrite`, which removes the earlier training."
        ) from error


def _reason(out: Path, model: AnyModel, data: TableSchema | Text | Images, file: str) -> str:
    try:
        earlier = load(out)
    except CheckpointError:  # damaged, or of another version
        return "it is of other data, or was started with other options"
    if type(earlier) is not type(model):
        return f'it is of {DOMAINS[type(earlier)][0]}, and "{file}" of {DOMAINS[type(model)][0]}'
    was, now = _options(earlier, _data_of(earlier)), _options(model, data)
    words = [
        f"`{flag}` was {_shown(was[flag])} and is {_shown(now[flag])} now"
        for flag in now
        if was[flag] != now[flag]
    ]
    return "; ".join(words) or _other_data(earlier, data, file)


def _data_of(earlier: AnyModel) -> Any:
    """What stands for the data of a model that was loaded: its columns, or itself."""
    return earlier.table_ if isinstance(earlier, TableModel) else earlier


def _options(model: AnyModel, data: Any) -> dict[str, str | None]:
    """What was said of a model on the command line, or would have been, by flags."""
    network = {"--layers": model.layers, "--width": model.width, "--heads": model.heads}
    if isinstance(model, TableModel):
        budget = {"--minutes": model.minutes, "--steps": model.max_steps}
        own, seed = _table_options(model, data), model.random_state
    else:
        settings = model.training_settings()
        budget = {"--minutes": settings.minutes, "--steps": settings.steps}
        own, seed = _own_options(model, data), settings.seed
    found = {**own, **budget, **network, "--seed": seed}
    return {flag: _typed(value) for flag, value in found.items()}


def _typed(value: str | float | None) -> str | None:
    """A value as it is typed; None where nothing is."""
    if value is None or value == "":
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)


def _table_options(model: TableModel, table: TableSchema) -> dict[str, Any]:
    is_fitted = hasattr(model, "queries_")
    law = model.queries_ if is_fitted else law_of(model.queries, table)
    types = [f"{quoted(name)}={kind}" for name, kind in sorted((model.types or {}).items())]
    return {
        "--queries": _questions(law, table.names),
        "--context": ",".join(map(quoted, model.context)),
        "--types": ",".join(types),
        "--missing-values": ",".join(quoted(str(marker)) for marker in model.missing_values),
        "--missing": model.missing,
    }


def _own_options(model: TextModel | ImageModel, data: Any) -> dict[str, Any]:
    if isinstance(model, TextModel):
        return {"--length": model.length}
    shape = data.fitted_shape() if isinstance(data, ImageModel) else data.shape
    levels = data.levels_ if isinstance(data, ImageModel) else data.levels
    size = f"{shape.height}x{shape.width}"
    return {"--size": size, "--levels": levels, "--patch": model.patch}


def _questions(law: QueryLaw, names: tuple[str, ...]) -> str | None:
    """A list of questions as it is written, with weights that sum to 1; None for any."""
    if not isinstance(law, QueryList):
        return None
    lines = []
    for given, query, weight in law.queries:
        known, asked = (",".join(quoted(names[place]) for place in part) for part in (given, query))
        lines.append(f"{weight:.3g}: {known} -> {asked}".replace("  ", " "))
    return "; ".join(lines)


def _other_data(earlier: AnyModel, data: Any, file: str) -> str:
    if isinstance(earlier, TextModel):
        return f'it is of another text than "{file}"'
    if isinstance(earlier, ImageModel):
        return f'it is of other pictures than "{file}"'
    before, now = earlier.table_.layout, data.layout
    for names, others, verb in ((before, now, "lacks"), (now, before, "also has")):
        for name in names:
            if name not in others:
                return f'it is of another table; "{file}" {verb} the column "{name}"'
    return f'it is of other rows than those of "{file}"'


def _shown(value: str | None) -> str:
    if value is None:
        return "not given"
    return value if len(value) <= LONGEST else f"{value[: LONGEST - 3]}..."


ASIDE = ".anyorder-earlier"
"""Where the earlier training is until it is not needed any more."""

TRAINING = "training"

RUN = (TRAINING, "weights.safetensors", "weights.next.safetensors", "model.json")
"""What is moved, in this order; and back in the reverse one, so that checkpoints in the folder are
never those of the earlier training while a part of it is set aside."""

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
"""The places of all that a fit writes, from the folder of the model on."""

DOCUMENTS = {"weights.safetensors": "model.json", "training.safetensors": "training.json"}
"""What tensors are never without; those that are just being written, `.next`, come before it."""

METRIC = b'{"step": '
"""What the lines of metrics begin with."""

KEYS = {"format", "anyorder", "checksum"}
"""What every document of anyorder has."""


@contextmanager
def making_room(out: Path, *, overwrite: bool, file: str | Path) -> Iterator[None]:
    """Removes the earlier training in a folder once the one in this block has saved something.

    Args:
        out: The folder of the model, which no other command fits into meanwhile. Files in it that
            are no model's stay.
        overwrite: Whether anything is removed at all.
        file: What is trained on, which must not be a part of what would be removed.
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
        if not (_is_in_place(path, root) and _says_so(path)):
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
    """Whether anyorder writes a file or a folder of that name there."""
    places = FOLDERS if path.is_dir() else FILES
    written = places.fullmatch(path.relative_to(root).as_posix())
    return written is not None and not path.is_symlink()


def _says_so(path: Path) -> bool:
    """Whether what is in a file, or in the document that belongs to it, is of anyorder."""
    if path.name == "latest":
        return all(re.fullmatch(STEP, word) for word in path.read_text(errors="replace").split())
    if path.name == "metrics.jsonl":
        return path.read_bytes()[: len(METRIC)] in (b"", METRIC)
    document = path.with_name(DOCUMENTS.get(path.name, path.name))
    return document.name not in DOCUMENTS.values() or _is_document(document)


def _is_document(path: Path) -> bool:
    """Whether a file is what anyorder says of a model or a training."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.keys() >= KEYS
