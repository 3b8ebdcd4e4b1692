"""Tables in memory and in files, all as pandas frames.

CSV (also tab-separated, also compressed) and Parquet are read whole or in chunks of bounded memory.
The first lines of a CSV file show the separators of its cells and decimals (`csv_dialect.py`).
Missing values in CSV are those of pandas: an empty cell, NA, N/A, NaN, NULL, None and their like. A
"?" is text unless it is declared in `missing_values`.
"""

import bz2
import gzip
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import pandas as pd

from anyorder.errors import ConfigError, SchemaError, check_choice, check_count
from anyorder.tables.csv_dialect import (
    MISSING_MARKERS,
    NO_HINTS,
    CsvHints,
    Dialect,
    check_header,
    csv_options,
    dialect_of,
    digit_identifiers,
    explained_errors,
    separator_of,
    with_points,
)
from anyorder.tables.parsing import SIGNS, marked
from anyorder.tables.schema import pyarrow_needed

SEPARATORS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")

COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")
CELL_BYTES, PACKED = 6, 4
"""Bytes of a cell of a CSV file, about, and how many times as long a compressed file is."""

STREAMS: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
"""Compressed formats that can be written in chunks."""


def is_table(path: str | Path) -> bool:
    """Tests whether a file is a table by its suffix."""
    try:
        return bool(_kind(Path(path)))
    except ConfigError:
        return False


def number_of_cells(path: str | Path) -> int:
    """Returns the number of cells of a Parquet file; of a CSV file about, by its size."""
    file = _existing(path)
    if _kind(file) in PARQUET:
        with explained_errors(file):
            found = _parquet().read_metadata(file)
        return int(found.num_rows * found.num_columns)
    packed = PACKED if file.suffix.lower() in COMPRESSED else 1
    return packed * file.stat().st_size // CELL_BYTES


def read_table(
    path: str | Path,
    *,
    missing_values: Sequence[Any] = (),
    text: Iterable[str] = (),
    decimal: str = "",
) -> pd.DataFrame:
    """Reads a .csv, .tsv (also compressed) or .parquet file.

    The decimal separators of the columns of a CSV file are in `attrs["decimals"]`: a model that is
    fitted to the frame reads later files alike.

    Args:
        path: Path of the file; its suffix is its format.
        missing_values: Additional markers of missing values, such as "?" or -999.
        text: Columns of a CSV file that are kept verbatim: 01234 is then not a number.
        decimal: Decimal separator, "." or ",", of columns of a CSV file that do not show it.
    """
    if decimal:
        check_choice("decimal", decimal, SIGNS)
    return read_written(path, CsvHints(missing_values, {*text}, decimal=decimal))[0]


def read_written(path: str | Path, hints: CsvHints) -> tuple[pd.DataFrame, Dialect | None]:
    """Reads a file, and its dialect if it is CSV; see `read_table`."""
    hints, dialect = written(path, hints)
    file = Path(path)
    with explained_errors(file):
        if dialect is None:
            return _without(_parquet().read_table(file).to_pandas(), hints.missing_values), None
        options = csv_options(dialect, hints)
        frame = pd.read_csv(file, dtype=dict.fromkeys(hints.text, str), **options)
        frame = with_points(frame, dialect.decimals, text=hints.text)
        frame.attrs["decimals"] = dialect.decimals.as_read()
        return frame, dialect


def written(path: str | Path, hints: CsvHints) -> tuple[CsvHints, Dialect | None]:
    """Returns all that is known of a file that is to be trained on, and its dialect if it is CSV.

    Columns of digits that identify something, such as 01234, are kept verbatim.
    """
    file = _existing(path)
    if _kind(file) in PARQUET:
        return hints, None
    with explained_errors(file):
        usual = SEPARATORS[_kind(file)]
        digits = digit_identifiers(file, separator_of(file, usual))
        hints = hints._replace(text={*hints.text, *digits})
        return hints, dialect_of(file, usual, hints)


def read_chunks(
    path: str | Path,
    *,
    rows: int,
    missing_values: Sequence[Any] = (),
    text: Iterable[str] = (),
    untouched: Iterable[str] = (),
    decimals: Mapping[str, str] | None = None,
) -> Iterator[pd.DataFrame]:
    """Yields a file in frames of at most `rows` rows, one at a time in memory; see `read_table`.

    The dtype of a column may differ from chunk to chunk: `TableSchema.encode` takes either.

    In `untouched` columns only empty cells are missing: "NA" and "?" are text there. `decimals` are
    the decimal separators of the columns of a model that the file is for.
    """
    check_count("rows", rows)
    file, kept = _existing(path), {*untouched}
    if _kind(file) in PARQUET:
        return _parquet_chunks(_parquet(), file, rows, missing_values, kept)
    return _csv_chunks(file, rows, CsvHints(missing_values, {*text} | kept, decimals or {}), kept)


def column_names(path: str | Path) -> list[str]:
    """Returns the names of the columns of a file; none for an empty Parquet file."""
    file = _existing(path)
    if _kind(file) in PARQUET:
        return [str(name) for name in next(read_chunks(file, rows=1), pd.DataFrame()).columns]
    with explained_errors(file):
        separator = separator_of(file, SEPARATORS[_kind(file)])
        check_header(file, separator)
        return [str(name) for name in pd.read_csv(file, nrows=0, sep=separator, index_col=False)]


def _parquet_chunks(
    parquet: Any, file: Path, rows: int, missing_values: Sequence[Any], untouched: set[str]
) -> Iterator[pd.DataFrame]:
    with explained_errors(file), parquet.ParquetFile(file) as source:
        for batch in source.iter_batches(batch_size=rows):
            frame = batch.to_pandas()
            yield _without(frame, missing_values, among=[c for c in frame if c not in untouched])


def _csv_chunks(
    file: Path, rows: int, hints: CsvHints, untouched: set[str]
) -> Iterator[pd.DataFrame]:
    with explained_errors(file):
        dialect = dialect_of(file, SEPARATORS[_kind(file)], hints)
        options = csv_options(dialect, hints)
        if untouched:
            markers = [*MISSING_MARKERS, *options["na_values"]]
            names = column_names(file)
            options["na_values"] = {name: "" if name in untouched else markers for name in names}
            options["keep_default_na"] = False
        kept = dict.fromkeys(hints.text, str)
        with pd.read_csv(file, chunksize=rows, dtype=kept, **options) as source:
            for chunk in source:
                yield with_points(chunk, dialect.decimals, text=hints.text)


def write_chunks(
    frames: Iterable[pd.DataFrame],
    path: str | Path,
    *,
    like: Path | None = None,
    hints: CsvHints = NO_HINTS,
) -> int:
    """Writes frames one after another into one file; returns the number of rows.

    The write is atomic: the file is written aside and renamed at the end. A link is followed.

    All frames have the same columns; Parquet also keeps the types of the first one. The dialect is
    that of `like`, read with `hints`, if its suffix is the same.
    """
    file = Path(path).resolve() if Path(path).is_symlink() else Path(path)  # a link stays one
    dialect = _dialect_to_write(file, like, hints)
    write = partial(_write_csv, dialect=dialect) if dialect else _write_parquet
    if file.suffix.lower() in COMPRESSED and file.suffix.lower() not in STREAMS:
        raise ConfigError(f'A "{file.suffix}" file cannot be written; write .csv.gz or .parquet.')
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".new-{file.name}")
    try:
        rows = write(frames, aside)
        if not rows:
            raise SchemaError(f'There are no rows to write to "{file}".')
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)
    return rows


def _dialect_to_write(file: Path, like: Path | None, hints: CsvHints) -> Dialect | None:
    """Returns the dialect of `like` if its format is the same, else the plain one."""
    kind = _kind(file)
    if kind in PARQUET:
        return None
    if like is None or _kind(like) != kind:
        return Dialect(SEPARATORS[kind])
    with explained_errors(like):
        return dialect_of(like, SEPARATORS[kind], hints)


def _write_csv(frames: Iterable[pd.DataFrame], file: Path, *, dialect: Dialect) -> int:
    rows, shape = 0, {"sep": dialect.separator, "decimal": dialect.decimal}
    opened = STREAMS.get(file.suffix.lower(), open)
    with opened(file, "wt", encoding="utf-8", newline="") as target:
        for place, frame in enumerate(frames):
            frame.to_csv(target, index=False, header=not place, **shape)
            rows += len(frame)
    return rows


def _write_parquet(frames: Iterable[pd.DataFrame], file: Path) -> int:
    parquet, rows, writer = _parquet(), 0, None
    try:
        for frame in frames:
            table = _arrow(frame, None if writer is None else writer.schema)
            if writer is None:
                writer = parquet.ParquetWriter(file, table.schema)
            writer.write_table(table)
            rows += len(frame)
    finally:
        if writer is not None:
            writer.close()
    return rows


def _arrow(frame: pd.DataFrame, schema: Any) -> Any:
    """Converts a frame to an Arrow table, with a schema if one is given."""
    import pyarrow

    try:
        table = pyarrow.Table.from_pandas(frame, schema=schema, preserve_index=False)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, KeyError) as error:
        raise SchemaError(
            "A column of a .parquet file must be of one type in all rows; "
            f"write a .csv file instead ({' '.join(str(part) for part in error.args)})."
        ) from error
    for place, field in enumerate(table.schema if schema is None else ()):
        if pyarrow.types.is_null(field.type):  # all missing here: later rows may hold text
            empty = table.column(place).cast(pyarrow.string())
            table = table.set_column(place, field.with_type(pyarrow.string()), empty)
    return table


def _kind(file: Path) -> str:
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
        if suffixes and suffixes[-1] in PARQUET:
            suffixes.clear()  # Parquet is compressed within
    if not suffixes or suffixes[-1] not in (*SEPARATORS, *PARQUET):
        packed = file.suffix.lower() in COMPRESSED
        raise ConfigError(
            f'A table must be a .csv, .tsv, .csv.gz or .parquet file; got "{file.name}". '
            f"{'Unpack it, and give the file in it.' if packed else 'Save it as one of these.'}"
        )
    return suffixes[-1]


def _existing(path: str | Path) -> Path:
    file = Path(path)
    _kind(file)
    if not file.is_file():
        raise ConfigError(f'There is no file "{file}".')
    return file


def _without(
    frame: pd.DataFrame, missing_values: Sequence[Any], among: Sequence[Any] | None = None
) -> pd.DataFrame:
    """Returns the frame with missing values in place of declared markers, in some columns."""
    cleaned = frame.copy(deep=False)
    for name in frame.columns if among is None else among:
        hit = marked(frame[name], missing_values)
        if hit.any():
            cleaned[name] = frame[name].mask(hit)
    return cleaned


def _parquet() -> Any:
    with pyarrow_needed():
        import pyarrow.parquet

        return pyarrow.parquet
