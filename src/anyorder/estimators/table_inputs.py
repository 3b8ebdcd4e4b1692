"""What a model of a table is given: rows to ask about, a target that comes apart, weights."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from anyorder.data.frames import as_frame
from anyorder.data.table import TableSchema
from anyorder.errors import ConfigError, SchemaError, nearest_or_all


def rows_to_ask(rows: Any, table: TableSchema, features: Sequence[str]) -> pd.DataFrame:
    """Rows as a frame with a column of the model: without any, all is unknown and looks fine.

    Args:
        rows: What `as_frame` takes; an array has the columns that were fitted, in their order.
        table: The columns of the model.
        features: Those without a target that came apart, which an array may lack.
    """
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        names = table.layout if rows.shape[1] == len(table.layout) else features
        if rows.shape[1] != len(names):
            raise SchemaError(
                f"An array must have the {len(names)} columns that were fitted; it has "
                f"{rows.shape[1]}. Give a frame with the names of its columns."
            )
        return as_frame(rows, list(names))
    frame = as_frame(rows)
    if not set(frame.columns) & set(table.layout):
        first, *others = frame.columns
        raise SchemaError(
            f'The table must have a column of the model; it has "{first}"'
            f"{' and others' if others else ''}.{nearest_or_all(first, table.layout)}"
        )
    return frame


def with_target(frame: pd.DataFrame, y: Any) -> tuple[pd.DataFrame, str | None]:
    """The frame with a target given apart as its last column, and its name."""
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
    """How much each row counts, or an error that says what it must be."""
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
