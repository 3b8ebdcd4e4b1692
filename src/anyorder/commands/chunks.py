"""What is done with a part of a table, wherever it is done."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from anyorder.commands.runs import of_kind, table_chunks
from anyorder.data.table import TableSchema
from anyorder.errors import ConfigError
from anyorder.estimators.table import TableModel
from anyorder.estimators.table_answers import How
from anyorder.scale.crew import loaded


class Part(NamedTuple):
    """Some rows of a table, and the seed of what is drawn for them."""

    frame: pd.DataFrame
    seed: int


def parts(table: TableSchema, file: Path, *, rows: int, seed: int = 0) -> Iterator[Part]:
    """A file in parts; what is drawn depends on the part, not on who draws it."""
    for number, frame in enumerate(table_chunks(table, file, rows=rows)):
        yield Part(frame, seed + number)


def table_run(run: Path) -> tuple[TableSchema, str]:
    """What a model of a table is of, and its folder as others find it; it is read once."""
    folder = str(run.absolute()) if run.is_dir() else str(run)
    return of_kind(loaded(folder), run, TableModel).table_, folder


@dataclass(frozen=True)
class Completion:
    """Fills the gaps of a part.

    Args:
        run: The folder of the model.
        draws: How many times it is filled.
        how: How a gap is filled.
    """

    run: str
    draws: int
    how: How

    def __call__(self, part: Part) -> tuple[pd.DataFrame, int]:
        """The columns of the file as they stand there, then those that it lacks; and the gaps."""
        model: TableModel = loaded(self.run)
        table, frame = model.table_, part.frame
        filled = model.impute(frame, draws=self.draws, how=self.how, random_state=part.seed)
        for name in frame.columns:
            if name not in table.layout:
                filled[name] = pd.concat([frame[name]] * self.draws).array
        lacking = [name for name in table.names if name not in frame.columns]
        gaps = int(frame.reindex(columns=list(table.names)).isna().to_numpy().sum())
        filled = filled[[*frame.columns, *lacking]]
        return filled if self.draws == 1 else _numbered(filled), gaps


@dataclass(frozen=True)
class Scoring:
    """The log-likelihood of each row of a part.

    Args:
        run: The folder of the model.
        query: Columns that are asked; None for all that a row has and that is not given.
        given: Columns that are known.
    """

    run: str
    query: Sequence[str] | None
    given: Sequence[str] | None

    def __call__(self, part: Part) -> pd.DataFrame:
        """The number of each row of the file, and its log-likelihood; NaN where a gap is asked."""
        model: TableModel = loaded(self.run)
        frame, asked = part.frame, [name for name in self.query or () if name in part.frame.columns]
        whole = frame[asked].notna().all(axis=1).to_numpy()
        found = np.full(len(frame), np.nan)
        if whole.any():
            found[whole] = model.log_prob(frame[whole], query=self.query, given=self.given)
        return pd.DataFrame({"row": frame.index, "log_prob": found})


def _numbered(filled: pd.DataFrame) -> pd.DataFrame:
    """With the number of the draw and that of the row in front."""
    for name in ("draw", "row"):
        if name in filled.columns:
            raise ConfigError(
                f'Several draws are told apart by a column "{name}", which the table has already. '
                "Rename it, or take one draw."
            )
    return filled.reset_index()
