"""Models, trainings and files of tables by what a user typed."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pandas as pd

from anyorder.cli.console import note
from anyorder.domains import load
from anyorder.errors import CheckpointError, SchemaError
from anyorder.images.model import ImageModel
from anyorder.saving.run_folder import RunFolder
from anyorder.tables.categories import CategoryColumn
from anyorder.tables.columns import Column
from anyorder.tables.csv_dialect import CsvHints
from anyorder.tables.files import as_frame, column_names, read_chunks
from anyorder.tables.fitting import MAR_ROUNDS
from anyorder.tables.model import TableModel
from anyorder.tables.schema import TableSchema
from anyorder.text.model import TextModel

Model = TypeVar("Model", TableModel, TextModel, ImageModel)

DOMAINS: dict[type, tuple[str, str]] = {
    TableModel: ("a table", "query"),
    TextModel: ("text", "infill"),
    ImageModel: ("images", "inpaint"),
}
"""What the models of a kind are of, and a verb that they answer to."""


def finished_step(folder: Path) -> int | None:
    """The steps of a training that has ended; None if it goes on, or is not there."""
    members = list(folder.glob("member-*")) or [folder]
    steps = [_ended(member, len(members)) for member in members]
    return None if None in steps else sum(filter(None, steps))


def tell_fitted(name: str, out: Path, done: int | None, held_out: str) -> None:
    """Says that a text or images were fitted, or had been, and how well they are known."""
    state = "Fitted" if done is None else f"Already trained (step {done:,}):"
    note(f'{state} "{name}". Saved in {out}.')
    note(f"{held_out}, given the other half; less is better. Try:")


def _ended(folder: Path, members: int) -> int | None:
    """The steps of a training that has ended and is one of so many."""
    last = folder / f"stage-{MAR_ROUNDS}"  # of a training in stages
    place = last if last.is_dir() else folder
    pairs = RunFolder(place).load("model", "training") if place.is_dir() else None
    if not pairs or pairs[0].document["notes"].get("members", 1) != members:
        return None
    done = pairs[1].document["fit"]
    return None if done["ending"] is None else int(done["step"])


def opened(run: Path) -> TableModel | TextModel | ImageModel:
    """The model of a folder, or "shipped"; says so if its training was stopped before its end."""
    model = load(run)
    if (run / "training").is_dir() and not (run / "model.json").exists():
        note(
            f'warning: the training of "{run}" was stopped before its end: this is what it had '
            "learnt by then. The same `anyorder fit` goes on."
        )
    return model


def read_run(run: Path, kind: type[Model]) -> Model:
    """The model of a folder, of one kind."""
    return of_kind(opened(run), run, kind)


def of_kind(model: TableModel | TextModel | ImageModel, run: Path, kind: type[Model]) -> Model:
    """The model of a folder, or an error if it is not of a kind."""
    if not isinstance(model, kind):
        holds, verb = DOMAINS[type(model)]
        raise CheckpointError(
            f'"{run}" holds a model of {holds}; this asks for one of {DOMAINS[kind][0]}. Try '
            f"`anyorder {verb}`."
        )
    return model


def table_chunks(table: TableSchema, file: Path, *, rows: int) -> Iterator[pd.DataFrame]:
    """Reads a file for a model in frames of at most so many rows, counted from 0 in the index."""
    names, start = column_names(file), 0
    if names and not set(names) & set(table.layout):
        raise SchemaError(
            f'"{file}" has no column of the model, which begin with "{table.layout[0]}"; it has '
            f'"{names[0]}"{" and others" if names[1:] else ""}.'
        )
    told, known = told_by(table, file), {column.name for column in (*table.query, *table.context)}
    for chunk in read_chunks(
        file,
        rows=rows,
        missing_values=told.missing_values,
        text=told.text,
        untouched=[name for name in names if name not in known],
        decimals=told.known,
    ):
        frame = as_frame(chunk)
        yield frame.set_axis(range(start, start + len(frame)))
        start += len(frame)


def told_by(table: TableSchema, file: Path) -> CsvHints:
    """What a model tells of a file: its gaps, what is no number in it, and its decimals."""
    numbers = {c.name for c in (*table.query, *table.context) if not _is_text(c)}
    text = [name for name in column_names(file) if name not in numbers]
    return CsvHints(table.missing_values, text, table.decimals)


def _is_text(column: Column) -> bool:
    """Whether its values are no numbers to the model, even if they look like it, as 01234."""
    return isinstance(column, CategoryColumn) and any(isinstance(v, str) for v in column.levels)
