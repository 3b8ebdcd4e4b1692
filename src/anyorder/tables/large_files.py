"""Files larger than memory: a bounded random sample of their rows, and all rows as codes on disk.

The columns are inferred from the sample. Then the file is read in chunks once more, and encoded
into temporary files that are mapped into memory: training reads a few rows of them at a time, and
the system keeps as many in memory as it has room for.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from anyorder.diagnostics.evaluation import Sampling
from anyorder.lattice.masks import MaskDistribution
from anyorder.lattice.query_laws import QueryLaw
from anyorder.tables.csv_dialect import NO_HINTS, CsvHints
from anyorder.tables.files import column_names, number_of_cells, read_chunks, read_written, written
from anyorder.tables.fitting import TableData, split
from anyorder.tables.schema import TableSchema, as_frame
from anyorder.training.batches import RowPrint, Rows

LARGE = 16_000_000
"""Cells of a file that is not read whole."""

SAMPLED = 1_500_000
"""Cells of the sample from which columns are inferred, and of that to which a prior is fitted."""

CHUNK_CELLS = 1_000_000
"""Cells in memory at a time."""

MOST_LEVELS = 10_000
"""Values of a column up to which each has a row in the sample."""


@dataclass(frozen=True)
class CodesOnDisk(TableData):
    """Rows in temporary files, of which a law queries something.

    Args:
        have: False for missing values. Shape of `missing`.
    """

    have: Tensor | None = None

    def rows(self, law: QueryLaw | MaskDistribution, seed: int) -> Rows:
        """Returns the rows to train on; see `TableData.rows`."""
        del law
        return Rows(self.x, available=self.have if self.missing.any() else None, seed=seed)

    def sampled(self, seed: int) -> TableData:
        """Returns random rows in memory, all if they are few."""
        every = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(seed))
        return TableData(self.x, self.missing).at(every[: SAMPLED // self.x.shape[1]])


@dataclass(frozen=True)
class TableFile:
    """A file of rows.

    Args:
        path: A .csv, .tsv (also compressed) or .parquet file.
        hints: Declared properties of a CSV file.
    """

    path: Path
    hints: CsvHints = NO_HINTS

    @property
    def is_large(self) -> bool:
        """True for a file that is not read whole."""
        return number_of_cells(self.path) > LARGE

    def frame(self, seed: int) -> pd.DataFrame:
        """Returns the rows; of a large file a random sample, and a row with each rare value.

        The number of rows of a large file is in `attrs["rows"]`.
        """
        if not self.is_large:
            return read_written(self.path, self.hints)[0]
        sampling = Sampling(max(1, SAMPLED // self._columns), seed=seed)
        kept, rare, seen = pd.DataFrame(), [pd.DataFrame()], dict[Any, set[Any]]()
        for chunk in self._chunks():
            rare.append(chunk[_has_new_values(chunk, seen)])
            kept = pd.concat([kept, chunk]).iloc[sampling.keep(len(chunk)).numpy()]
        others = pd.concat(rare)
        found = pd.concat([kept, others[~others.index.isin(kept.index)]]).reset_index(drop=True)
        found.attrs = {"rows": sampling.seen, "decimals": self._as_trained.known}
        return found

    def encoded(
        self, table: TableSchema, law: QueryLaw, rows: int, *, held_out: float, seed: int
    ) -> tuple[TableSchema, CodesOnDisk, TableData, RowPrint]:
        """Returns the columns of all rows, rows to train on, held-out rows, and the print of both.

        Args:
            table: The columns, as a sample has them.
            law: Queries; rows of which it asks nothing are left out.
            rows: Number of rows of the file.
            held_out: Share of the rows that are held out; see `split`.
            seed: Seed of the split.
        """
        apart, seen, end = torch.zeros(rows, dtype=torch.bool), RowPrint(), 0
        apart[split(rows, held_out, seed)[1]] = True
        parts: list[TableData] = []
        x = _on_disk(rows, len(table.schema), np.float32)
        missing, have = (_on_disk(rows, len(table.names), np.bool_) for _ in range(2))
        for chunk in self._chunks():
            part = TableData(*table.encode(chunk))
            seen.add(part.x, part.missing)
            table = table.widened(part.x, ~part.missing)
            mine = apart[chunk.index[0] : chunk.index[-1] + 1]
            parts.append(part.at(mine.nonzero()[:, 0]))
            part = part.at((~mine).nonzero()[:, 0])
            part = part.at(part.asking(law))
            place = slice(end, end + len(part.x))
            x[place], missing[place], have[place] = part.x, part.missing, ~part.missing
            end = place.stop
        others = reduce(TableData.with_rows, parts)
        return table, CodesOnDisk(x[:end], missing[:end], have=have[:end]), others, seen

    def _chunks(self) -> Iterator[pd.DataFrame]:
        """Yields the rows, counted from 0 in the index."""
        hints, start = self._as_trained, 0
        for chunk in read_chunks(
            self.path,
            rows=max(1, CHUNK_CELLS // self._columns),
            missing_values=hints.missing_values,
            text=hints.text,
            decimals=hints.known,
        ):
            frame = as_frame(chunk)
            yield frame.set_axis(range(start, start + len(frame)))
            start += len(frame)

    @cached_property
    def _as_trained(self) -> CsvHints:
        """All that is known of the file, the decimal separators of its columns among it."""
        hints, dialect = written(self.path, self.hints)
        return hints if dialect is None else hints._replace(known=dialect.decimals.as_read())

    @cached_property
    def _columns(self) -> int:
        return max(1, len(column_names(self.path)))


def _on_disk(rows: int, columns: int, dtype: Any) -> Tensor:
    """Returns zeros in a temporary file, which goes with them."""
    with tempfile.TemporaryFile() as file:
        return torch.from_numpy(np.memmap(file, dtype=dtype, shape=(max(rows, 1), columns)))


def _has_new_values(chunk: pd.DataFrame, seen: dict[Any, set[Any]]) -> pd.Series:
    """Tests which rows have a value of a category that no row before had; adds them to `seen`."""
    found = pd.Series(False, index=chunk.index)
    for name in chunk:
        column = chunk[name]
        if pd.api.types.is_numeric_dtype(column) or len(seen.setdefault(name, set())) > MOST_LEVELS:
            continue
        first = column.dropna().drop_duplicates()
        new = first[~first.isin(seen[name])]
        seen[name].update(new)
        found[new.index] = True
    return found
