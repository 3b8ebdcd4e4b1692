"""What `fit` is given beside a frame: a target that comes apart, and the weights of rows."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from anyorder.errors import ConfigError, SchemaError


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
        weights = torch.as_tensor(np.asarray(sample_weight, dtype=np.float64))
    except (TypeError, ValueError):
        weights = torch.zeros(0, dtype=torch.float64)
    good = weights.shape == (rows,) and bool((weights >= 0).all()) and 0 < weights.sum() < np.inf
    if not good:
        raise ConfigError(
            f"`sample_weight` must hold {rows} finite numbers, none negative and not all zero."
        )
    return weights
