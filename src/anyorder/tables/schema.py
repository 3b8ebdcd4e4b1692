"""The schema of a table: encodes a frame as codes `x (rows, variables)` and `missing`, and decodes.

`TableSchema` is everything that was learned about the columns in training; it is saved with a model
as JSON. The variables are the columns that can be queried, in the order of the frame, then the
context columns, which are always given. The model has no missing context, so a missing value there
is a value: one more level of a category, or a companion variable "is missing".
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.errors import (
    ConfigError,
    QueryError,
    SchemaError,
    check_choice,
    nearest_or_all,
)
from anyorder.tables.columns import CategoryColumn, Column, NumberColumn
from anyorder.tables.numbers import Gaussianizer, Measurement
from anyorder.tables.parsing import (
    BoolArray,
    FloatArray,
    as_dtype,
    marked,
    refuse_duplicates,
)
from anyorder.tables.type_inference import COLUMN_TYPES, infer_column
from anyorder.variables import Schema, Variable

FORMAT = 1
"""Version of the description; increased when an old one could be misread."""


class Ignored(NamedTuple):
    """A column of the frame that is not a variable, with its dtype and the reason."""

    name: str
    dtype: str
    reason: str


class Line(NamedTuple):
    """A line of a summary."""

    column: str
    kind: str
    details: str


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table as variables of a model.

    Args:
        layout: Names of all columns of the frame, in its order.
        query: Columns that can be queried, in the order of the model.
        context: Columns that are always given.
        ignored: Columns that are not variables.
        missing_values: Markers of missing values, besides NaN and its like.
        decimals: Decimal separators of columns in the CSV file that was trained on.

    Example:
        >>> frame = pd.DataFrame({"age": [41.5, 30.25, 22.0], "job": ["nurse", "clerk", None]})
        >>> table = TableSchema.infer(frame)
        >>> x, missing = table.encode(frame)
        >>> x.shape, missing[2].tolist()
        (torch.Size([3, 2]), [False, True])
        >>> table.decode(x, missing)["job"].tolist()[:2]
        ['nurse', 'clerk']
    """

    layout: tuple[str, ...]
    query: tuple[Column, ...]
    context: tuple[Column, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    missing_values: tuple[Any, ...] = ()
    decimals: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def infer(
        cls,
        frame: pd.DataFrame,
        *,
        types: Mapping[str, str] | None = None,
        missing_values: Sequence[Any] = (),
        context: Sequence[str] = (),
        order: Sequence[str] | None = None,
    ) -> "TableSchema":
        """Infers the columns of a frame.

        Args:
            frame: Result of `as_frame`, or of `read_table`, which adds the decimal separators.
            types: Types of columns, where values do not show them: "number", "category",
                "boolean", "datetime", "dmy" or "mdy" (dates with the day or the month first) or
                "ignore".
            missing_values: Markers of missing values, such as "?" or -999.
            context: Columns that are always given and never queried.
            order: Columns that come first in the model, in this order; the others follow in the
                order of the frame.
        """
        if not isinstance(types, Mapping | None):
            raise SchemaError(
                f"`types` must be a dictionary from columns to types; got {type(types).__name__}."
            )
        declared, layout = dict(types or {}), tuple(frame.columns)
        for argument, names in (("types", declared), ("context", context), ("order", order or ())):
            for name in names:
                if name not in layout:
                    raise SchemaError(
                        f'`{argument}` must name columns; got "{name}".'
                        f"{nearest_or_all(name, layout)}"
                    )
        if len(set(order or ())) < len(order or ()):
            raise SchemaError("`order` must name each column once; it names one of them twice.")
        for name, kind in declared.items():
            check_choice(f'types["{name}"]', kind, COLUMN_TYPES)
        markers = tuple(_plain_marker(marker) for marker in missing_values)
        columns, ignored = _infer_columns(frame, declared, markers, context)
        first = {name: place for place, name in enumerate(order or ())}
        query = [column for column in columns if not column.context]
        query.sort(key=lambda column: first.get(column.name, len(first)))
        if not query:
            raise SchemaError(
                "A table must have a column that can be queried; all of them are ignored, empty or "
                "context."
            )
        given = tuple(column for column in columns if column.context)
        decimals = dict(frame.attrs.get("decimals", {}))
        return cls(layout, tuple(query), given, tuple(ignored), markers, decimals)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that can be queried, in the order of the model."""
        return tuple(column.name for column in self.query)

    @cached_property
    def schema(self) -> Schema:
        """The variables of the model: query, then context."""
        given = [variable for column in self.context for variable in self._variables(column)]
        return Schema((*(column.variable for column in self.query), *given))

    def __getitem__(self, name: str) -> Column:
        for column in (*self.query, *self.context):
            if column.name == name:
                return column
        known = [column.name for column in (*self.query, *self.context)]
        raise QueryError(f'There is no column "{name}" in the model.{nearest_or_all(name, known)}')

    def ordered(self, names: Sequence[str]) -> "TableSchema":
        """Returns the schema with the columns that can be queried in another order."""
        return replace(self, query=tuple(self[name] for name in names))

    def widened(self, x: Tensor, have: Tensor) -> "TableSchema":
        """Returns the schema with the ranges of numbers extended to `x`, rows trained on later."""
        query = tuple(
            column.widened(x[have[:, place], place].double().numpy())
            if isinstance(column, NumberColumn)
            else column
            for place, column in enumerate(self.query)
        )
        return replace(self, query=query)

    def encode(
        self, frame: pd.DataFrame, *, needs: Sequence[str] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the codes of a frame, and its missing values.

        A column that the frame lacks is missing in every row; one that the model does not know is
        ignored. Dtypes may differ from training as long as the values can be parsed.

        Returns:
            `x` of float32, shape ``(rows, variables)``, and `missing`, shape ``(rows, N)``.
        """
        self._check_columns(frame, needs or ())
        codes, gaps = [], []
        for column in self.query:
            code, gone = self._read(column, frame)
            codes.append(code)
            gaps.append(gone)
        for column in self.context:
            codes.extend(self._read_context(column, frame))
        x = np.stack(codes, axis=1).astype(np.float32)
        return torch.from_numpy(x), torch.from_numpy(np.stack(gaps, axis=1))

    def decode(
        self, x: Tensor | NDArray[Any], missing: Tensor | NDArray[Any] | None = None
    ) -> pd.DataFrame:
        """Returns the frame of codes, with its columns and dtypes; `missing` cells are empty."""
        codes, gaps = _array(x), None if missing is None else _array(missing).astype(bool)
        found: dict[str, pd.Series] = {}
        for place, column in enumerate(self.query):
            found[column.name] = column.decode(
                codes[:, place], None if gaps is None else gaps[:, place]
            )
        place = len(self.query)
        for column in self.context:
            width = len(self._variables(column))
            gone = codes[:, place + 1] > 0.5 if width > 1 else None
            found[column.name] = column.decode(codes[:, place], gone)
            place += width
        for name, dtype, _ in self.ignored:
            found[name] = _empty(len(codes), dtype)
        return pd.DataFrame({name: found[name] for name in self.layout})

    def log_density_factors(self, frame: pd.DataFrame) -> Tensor:
        """Returns the log Jacobians: added to log densities of codes, they give those in the units.

        Returns:
            float64, shape ``(rows, N)``: 0 for categories, atoms, missing values and columns.
        """
        factors = np.zeros((len(frame), len(self.query)))
        for place, column in enumerate(self.query):
            if column.name in frame.columns:
                series = frame[column.name]
                there = ~marked(series, self.missing_values)
                factors[there, place] = column.log_density_factor(series[there])
        return torch.from_numpy(factors)

    def in_units(self, codes: Tensor) -> Tensor:
        """Converts codes ``(rows, numbers)`` of the query columns of numbers to their units."""
        columns = [column for column in self.query if isinstance(column, NumberColumn)]
        each = zip(columns, codes.T.cpu().numpy(), strict=True)
        found = [torch.from_numpy(column.numbers(values)) for column, values in each]
        return torch.stack(found, dim=1).to(codes.device)

    def summary(self) -> list[Line]:
        """Returns the type of each column, in the order of the frame, for people."""
        lines = {
            column.name: Line(column.name, column.kind, ", ".join(column.details))
            for column in (*self.query, *self.context)
        }
        lines |= {name: Line(name, "ignored", reason) for name, _, reason in self.ignored}
        return [lines[name] for name in self.layout]

    def describe(self) -> dict[str, Any]:
        """Returns plain values for JSON; `from_description` reads them back to an equal schema."""
        return {
            "format": FORMAT,
            "layout": list(self.layout),
            "query": [column.describe() for column in self.query],
            "context": [column.describe() for column in self.context],
            "ignored": [list(column) for column in self.ignored],
            "missing_values": list(self.missing_values),
            "decimals": dict(self.decimals),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "TableSchema":
        """Reads what `describe` wrote."""
        try:
            if description["format"] != FORMAT:
                raise SchemaError(
                    f"The table has format {description['format']!r}; this version reads {FORMAT}."
                )
            return cls(
                tuple(description["layout"]),
                tuple(column_from(entry) for entry in description["query"]),
                tuple(column_from(entry) for entry in description["context"]),
                tuple(Ignored(*entry) for entry in description["ignored"]),
                tuple(description["missing_values"]),
                dict(description.get("decimals", {})),  # none in models of earlier versions
            )
        except (KeyError, TypeError) as error:
            raise SchemaError(f"This is not a table written by anyorder ({error!r}).") from error

    def _variables(self, column: Column) -> tuple[Variable, ...]:
        """Returns the variables of a context column: itself, and "is missing" if it may be."""
        if isinstance(column, CategoryColumn) or not column.missing_share:
            return (column.variable,)
        name = f"{column.name} is missing"
        while name in self.layout:
            name = f"{name} "
        return column.variable, Variable.categorical(name, (False, True), context=True)

    def _check_columns(self, frame: pd.DataFrame, needs: Sequence[str]) -> None:
        for name in (*needs, *(column.name for column in self.context)):
            if name not in frame.columns:
                raise QueryError(
                    f'The frame must have the column "{name}"; it has none.'
                    f"{nearest_or_all(name, frame.columns)}"
                )

    def _read(self, column: Column, frame: pd.DataFrame) -> tuple[FloatArray, BoolArray]:
        """Returns the codes of a column and its missing values; all if the frame lacks it."""
        if column.name not in frame.columns:
            return np.zeros(len(frame)), np.ones(len(frame), dtype=bool)
        series = frame[column.name]
        hit = marked(series, self.missing_values)
        if not hit.any():
            return column.encode(series)
        # Without the marked rows, whose values may be invalid for the column.
        codes, gone = np.zeros(len(frame)), hit.copy()
        if isinstance(column, CategoryColumn) and column.context:
            codes[hit] = len(column.levels)
        codes[~hit], gone[~hit] = column.encode(series[~hit])
        return codes, gone

    def _read_context(self, column: Column, frame: pd.DataFrame) -> list[FloatArray]:
        codes, gone = self._read(column, frame)
        if len(self._variables(column)) > 1:
            return [codes, gone.astype(np.float64)]
        if isinstance(column, NumberColumn) and gone.any():
            raise QueryError(
                f'Column "{column.name}" is always given and had no missing values in training; '
                f"row {frame.index[np.flatnonzero(gone)[0]]} has one. Fill it."
            )
        return [codes]


def _infer_columns(
    frame: pd.DataFrame,
    declared: Mapping[str, str],
    markers: Sequence[Any],
    context: Sequence[str],
) -> tuple[list[Column], list[Ignored]]:
    columns: list[Column] = []
    ignored: list[Ignored] = []
    for name in frame.columns:
        if declared.get(name) == "ignore":
            ignored.append(Ignored(name, str(frame[name].dtype), "its type is ignore"))
            continue
        series = frame[name][~marked(frame[name], markers)]
        present = int(series.notna().sum())
        if not present:
            ignored.append(Ignored(name, str(frame[name].dtype), "no value in any row"))
            continue
        share = 1 - present / len(frame)
        columns.append(
            infer_column(
                series, declared=declared.get(name), missing_share=share, context=name in context
            )
        )
    return columns, ignored


def _plain_marker(marker: Any) -> Any:
    """Converts a marker to JSON; the infinities become text, which matches numbers too."""
    value = marker.item() if isinstance(marker, np.generic) else marker
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float) else str(value)


def _array(values: Tensor | NDArray[Any]) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _empty(rows: int, dtype: str) -> pd.Series:
    """Returns missing values, in a dtype if it can hold them."""
    values = pd.Series([None] * rows, dtype=object)
    if dtype == "object":
        return values
    gaps = np.ones(rows, dtype=bool)
    try:
        return as_dtype(values, "boolean" if dtype == "bool" else dtype, missing=gaps)
    except (TypeError, ValueError):
        return values


def as_frame(data: object, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Converts a frame, an array, a dict of lists, records, polars or Arrow to a pandas frame.

    Args:
        data: A pandas frame, a 2-d numpy array, a dict of lists, a list of dicts, or anything
            that has `to_pandas()`.
        columns: Names of an array's columns; "x0", "x1" and so on by default.

    Example:
        >>> as_frame(np.zeros((2, 3))).columns.tolist()
        ['x0', 'x1', 'x2']
    """
    if columns is not None and not isinstance(data, np.ndarray):
        raise ConfigError("`columns` names the columns of an array; other data has its own names.")
    frame = _framed(data, columns)
    if frame.columns.nlevels > 1:
        raise SchemaError("A table must have one row of column names; got several. Join them.")
    names = [_name(name, place) for place, name in enumerate(frame.columns)]
    refuse_duplicates(names)
    if not frame.shape[0] or not frame.shape[1]:
        raise SchemaError(
            f"A table must have at least one row and one column; got {frame.shape[0]} rows and "
            f"{frame.shape[1]} columns."
        )
    return frame if names == list(frame.columns) else frame.set_axis(names, axis=1)


def with_target(frame: pd.DataFrame, y: Any) -> tuple[pd.DataFrame, str | None]:
    """Returns the frame with the target `y` as its last column, and its name."""
    if y is None:
        return frame, None
    values = y if isinstance(y, pd.Series) else np.asarray(y)
    if getattr(values, "ndim", 0) != 1 or len(values) != len(frame):
        raise SchemaError(f"`y` must hold one value for each of {len(frame)} rows.")
    name = "target" if getattr(y, "name", None) is None else str(y.name)
    if name in frame.columns:
        raise SchemaError(f'`y` is called "{name}", and so is a column of X: rename one of them.')
    series = pd.Series(values).set_axis(frame.index)
    return frame.assign(**{name: series}), name


def row_weights(sample_weight: Any, rows: int) -> Tensor | None:
    """Returns the weight of each row, checked."""
    if sample_weight is None:
        return None
    try:
        weights = torch.from_numpy(np.array(sample_weight, dtype=np.float64))
    except (TypeError, ValueError):
        weights = torch.zeros(0, dtype=torch.float64)
    good = weights.shape == (rows,) and bool((weights >= 0).all()) and 0 < weights.sum() < np.inf
    if not good:
        raise ConfigError(
            f"`sample_weight` must hold {rows} finite numbers, none negative and not all zero."
        )
    return weights


def _framed(data: Any, columns: Sequence[str] | None) -> pd.DataFrame:
    if isinstance(data, pd.DataFrame):
        return data
    if isinstance(data, np.ndarray):
        return _from_array(data, columns)
    if isinstance(data, dict) or (
        isinstance(data, list) and all(isinstance(row, dict) for row in data)
    ):
        try:
            return pd.DataFrame(data)
        except ValueError as error:
            raise SchemaError(
                f"A dict must hold one list a column, all of one length ({error})."
            ) from None
    if hasattr(data, "to_pandas"):
        with pyarrow_needed():
            frame = data.to_pandas()
        if isinstance(frame, pd.DataFrame):
            return frame
    raise SchemaError(
        "A table must be a pandas, polars or Arrow frame, a 2-d numpy array, a dict of lists or a "
        f"list of dicts; got {type(data).__name__}."
    )


def _from_array(data: Any, columns: Sequence[str] | None) -> pd.DataFrame:
    if data.ndim != 2:
        raise SchemaError(f"An array must have two dimensions, rows and columns; got {data.ndim}.")
    names = [f"x{place}" for place in range(data.shape[1])] if columns is None else list(columns)
    if len(names) != data.shape[1]:
        raise SchemaError(
            f"`columns` must name each column of the array; got {len(names)} names for "
            f"{data.shape[1]} columns."
        )
    return pd.DataFrame(data, columns=names).infer_objects()


def _name(name: object, place: int) -> str:
    if name is None or name != name or name == "":
        raise SchemaError(f"Every column must have a name; column {place} has none.")
    return str(name)


@contextmanager
def pyarrow_needed() -> Iterator[None]:
    """Says how to install pyarrow where it is missing."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            'This needs pyarrow. Install it with: pip install "anyorder[parquet]".'
        ) from error


def column_from(description: dict[str, Any]) -> Column:
    """Reads what `Column.describe` wrote."""
    try:
        entries = _tupled(description)
        kind = entries.pop("column")
        if kind == CategoryColumn.__name__:
            return CategoryColumn(**entries)
        if kind != NumberColumn.__name__:
            raise KeyError(kind)
        entries["gaussianizer"] = Gaussianizer(**_tupled(entries["gaussianizer"]))
        entries["measurement"] = Measurement(**entries["measurement"])
        if not entries["gaussianizer"].rises:
            raise SchemaError("its numbers have a scale that does not rise")
        return NumberColumn(**entries)
    except (AttributeError, KeyError, TypeError) as error:
        raise SchemaError(f"This is not a column written by anyorder ({error!r}).") from error


def _tupled(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in entries.items()}
