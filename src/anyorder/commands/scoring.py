"""How well a model predicts the rows of a file, in one pass over it and in bounded memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from anyorder.commands.notation import read_names
from anyorder.commands.runs import table_chunks
from anyorder.commands.showing import note, show
from anyorder.data.row_print import SEEN, RowPrint
from anyorder.diagnostics.row_sample import RowSample
from anyorder.errors import QueryError, SchemaError, check_seed
from anyorder.estimators.table import TableModel
from anyorder.estimators.table_batches import log_prob_in_units
from anyorder.estimators.table_queries import is_for_any
from anyorder.estimators.table_questions import named_sets
from anyorder.estimators.table_skill import GUESSED_ROWS, HEADINGS, Skill, column_skill
from anyorder.masks import Bernoulli
from anyorder.query_laws import ConditionalQueries
from anyorder.reproduce.record import print_json

ROWS_AT_ONCE = 16_384
"""Rows of the file in memory."""

LITTLE, FEWEST_CELLS = 0.05, 30
"""A column gains little from the rest of its row that saves a smaller share of its errors; of fewer
cells, nothing can be said."""


@dataclass
class Running:
    """A mean and its standard error, of values that come in parts.

    Example:
        >>> running = Running()
        >>> running.add(torch.tensor([1.0, 2.0]))
        >>> running.add(torch.tensor([6.0]))
        >>> running.mean, round(running.se, 4)
        (3.0, 1.5275)
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: Tensor) -> None:
        """Takes in some more values: the update of Chan, Golub and LeVeque (1979)."""
        if not len(values):
            return
        number, mean = len(values), float(values.double().mean())
        apart, total = mean - self.mean, self.count + number
        spread = float((values.double() - mean).square().sum())
        self.squares += spread + apart**2 * self.count * number / total
        self.mean += apart * number / total
        self.count = total

    @property
    def se(self) -> float:
        """The standard error of the mean."""
        if self.count < 2:
            return math.nan
        return math.sqrt(self.squares / (self.count - 1) / self.count)

    def to_json(self) -> dict[str, float | int | None]:
        """Plain values."""
        return {"value": self.mean, "se": self.se if self.count > 1 else None, "n": self.count}

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.se:.4f}"


def evaluate_table(
    model: TableModel,
    file: Path,
    *,
    query: str | None,
    given: str | None,
    seed: int,
    json: bool,
) -> None:
    """Prints the log-likelihood of a file's rows; see `anyorder evaluate --help`."""
    check_seed(seed)
    asked, known = read_names(query, option="--query"), read_names(given, option="--given")
    if known and not asked:
        raise QueryError("`--given` needs `--query`: which columns are asked?")
    found: dict[str, Running] = {}
    rows, sample = RowPrint(), RowSample(GUESSED_ROWS, seed=seed)
    for number, frame in enumerate(table_chunks(model.table_, file, rows=ROWS_AT_ONCE)):
        if asked:
            parts = {"query": _stated(model, frame, asked, known)}
        else:
            parts = _all_and_half(model, frame, seed + number)
        for name, part in parts.items():
            found.setdefault(name, Running()).add(part)
        x, missing = model.table_.encode(frame)
        rows.add(x, missing)
        sample.add(x, missing)
    if not any(running.count for running in found.values()):
        raise SchemaError(f'"{file}" has no row that has what is asked.')
    seen = rows.to_json() == model.trained_on_
    skill = [] if asked else _skill(model, sample)
    if json:
        nats = {name: part.to_json() for name, part in found.items()}
        told = {"data": file.name, "rows": rows.rows, "trained_on": seen, "nats": nats}
        if skill:
            told["columns"] = {one.column: one.to_json() for one in skill}
        print_json(told)
        return
    questions = {
        "joint": "all that a row has",
        "conditional": "a random half of it, given the other",
        "query": ", ".join(asked) + (f" given {', '.join(known)}" if known else ""),
    }
    show(
        ["question", "nats a row", "rows"],
        [[questions[name], str(part), f"{part.count:,}"] for name, part in found.items()],
        title=f"{file.name}: log-likelihoods of {rows.rows:,} rows; more is better",
        numbers=["nats a row", "rows"],
    )
    if skill:
        _show_skill(skill)
    if seen:
        note(SEEN)


def _skill(model: TableModel, sample: RowSample) -> list[Skill]:
    """How well columns are guessed, of a model that was trained for any question."""
    if not is_for_any(model.queries_):
        return []
    return column_skill(model.model_, model.table_, sample.x, sample.missing)


def _show_skill(skill: Sequence[Skill]) -> None:
    rows = [[one.column, f"{one.cells:,}", *one.words] for one in skill]
    title = "How well each column is guessed, and the share of its error that the others save"
    show(HEADINGS, rows, title=title, numbers=HEADINGS[1:])
    gains = [one.gain for one in skill if one.gain is not None and one.cells >= FEWEST_CELLS]
    if gains and max(gains) < LITTLE:
        note(
            "warning: no column is guessed better from the rest of its row than without. Either "
            "they have nothing to do with each other, or the model was trained too short: fit it "
            "anew with more `--minutes`."
        )


def _stated(
    model: TableModel, frame: pd.DataFrame, asked: Sequence[str], known: Sequence[str]
) -> Tensor:
    """The log-likelihoods of one question, of the rows that have all that it asks."""
    table = model.table_
    query, given = named_sets(table, asked, known, prefix="--")
    x, missing = table.encode(frame, needs=asked)
    rows = ~(missing & query).any(dim=1)
    frame, x, missing = frame[rows.numpy()], x[rows], missing[rows]
    return _log_prob(model, frame, x, query.expand_as(missing), given & ~missing)


def _all_and_half(model: TableModel, frame: pd.DataFrame, seed: int) -> dict[str, Tensor]:
    """The log-likelihoods of all that a row has, and of a random half given the other."""
    x, missing = model.table_.encode(frame)
    rows = ~missing.all(dim=1)
    frame, x, have = frame[rows.numpy()], x[rows], ~missing[rows]
    if not len(frame):
        return {}
    law = ConditionalQueries(have.shape[1], Bernoulli(have.shape[1], 0.5))
    generator = torch.Generator().manual_seed(seed)
    half = law.sample(len(have), available=have, generator=generator)
    return {
        "joint": _log_prob(model, frame, x, have, torch.zeros_like(have)),
        "conditional": _log_prob(model, frame, x, half.query, half.given),
    }


def _log_prob(
    model: TableModel, frame: pd.DataFrame, x: Tensor, query: Tensor, given: Tensor
) -> Tensor:
    """In nats and in the units of the columns; the sets may differ from row to row."""
    if not len(x):
        return torch.zeros(0, dtype=torch.float64)
    return log_prob_in_units(model.model_, model.table_, frame, x, query=query, given=given)
