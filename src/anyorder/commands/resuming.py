"""A folder that holds an earlier training of something else: what differs, by the flags of `fit`.

The library compares weights, laws and settings, and names their fields. A checkpoint also notes the
options that its model was made with, and these are what a user typed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anyorder.commands.notation import quoted
from anyorder.commands.runs import DOMAINS
from anyorder.data.image import Images
from anyorder.data.table import TableSchema
from anyorder.data.text import Text
from anyorder.errors import AnotherRunError, CheckpointError
from anyorder.estimators.image import ImageModel
from anyorder.estimators.loading import load
from anyorder.estimators.table import TableModel
from anyorder.estimators.table_queries import law_of
from anyorder.estimators.text import TextModel
from anyorder.query_laws import QueryLaw, QueryList

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
        budget = {"--minutes": model.settings.minutes, "--steps": model.settings.steps}
        own, seed = _own_options(model, data), model.settings.seed
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
