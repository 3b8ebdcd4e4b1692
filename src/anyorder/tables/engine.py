"""Answers about encoded rows of a table, in parts that fit into memory."""

from collections.abc import Iterator
from typing import cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.heads.atoms import AtomicDistribution
from anyorder.heads.distributions import ContinuousDistribution, Distribution
from anyorder.heads.mixed import MixedDistribution
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob, sample
from anyorder.networks.paths import alike
from anyorder.priors.normals import MOST_ENTRIES
from anyorder.tables.columns import Column, NumberColumn
from anyorder.tables.schema import TableSchema

CELLS_AT_ONCE, ROWS_AT_ONCE = 262_144, 2048
"""Cells of a pass over a table, and rows."""

COVARIANCES_AT_ONCE = 2**25
"""Over all rows of a pass: in a guide each row may have those of all pairs of columns, or of the
normals of fewer, of its own."""

DRAWS_AT_ONCE = 2048
"""Rows that are drawn together."""


def parts(rows: int, columns: int) -> Iterator[slice]:
    """The rows of a table, some at a time."""
    size = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // columns, _guided_rows(columns)))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _guided_rows(columns: int) -> int:
    return max(1, COVARIANCES_AT_ONCE // max(MOST_ENTRIES, columns**2))


def row_log_prob(model: AnyOrderModel, x: Tensor, *, query: Tensor, given: Tensor) -> Tensor:
    """The log-likelihood of each row's question, in normal scores. Shape ``(rows,)``, float64."""
    found = [
        log_prob(model, x[rows], query=query[rows], given=given[rows]).cpu()
        for rows in parts(len(x), x.shape[1])
    ]
    return torch.cat(found)


def log_prob_in_units(
    model: AnyOrderModel,
    table: TableSchema,
    frame: pd.DataFrame,
    x: Tensor,
    *,
    query: Tensor,
    given: Tensor,
) -> Tensor:
    """The same in the units of the columns, for the rows of a frame and their codes `x`."""
    factors = table.log_density_factors(frame)
    return row_log_prob(model, x, query=query, given=given) + (factors * query).sum(dim=1)


def cell_surprise(model: AnyOrderModel, x: Tensor, missing: Tensor) -> Tensor:
    """Minus the log-likelihood of each cell given all others of its row; NaN for gaps."""
    have, cells = ~missing, torch.full(missing.shape, torch.nan, dtype=torch.float64)
    for place in range(missing.shape[1]):
        alone = torch.arange(missing.shape[1]) == place
        rows = have[:, place].nonzero().squeeze(1)
        if len(rows):
            asked = alone.expand(len(rows), -1)
            given = have[rows] & ~asked
            cells[rows, place] = -row_log_prob(model, x[rows], query=asked, given=given)
    return cells


def draw_rows(
    model: AnyOrderModel,
    x: Tensor,
    known: Tensor,
    *,
    n: int,
    generator: torch.Generator | None,
) -> Tensor:
    """So many rows: all from one row of evidence, or one from each. Shape ``(n, columns)``."""
    if known.all():
        return x.expand(n, -1)
    if len(x) == 1:
        counts = [len(part) for part in torch.arange(n).split(DRAWS_AT_ONCE)]
        drawn = [sample(model, x, given=known, n=count, generator=generator)[0] for count in counts]
    else:
        drawn = [
            sample(model, part, given=known, generator=generator)[:, 0]
            for part in x.split(DRAWS_AT_ONCE)
        ]
    return torch.cat(drawn).cpu()


def fill_gaps(
    model: AnyOrderModel,
    x: Tensor,
    missing: Tensor,
    *,
    draws: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Rows with their gaps drawn together. Shape ``(rows, draws, columns)``."""
    filled = x[:, None].repeat(1, draws, 1)
    gappy = missing.any(dim=1).nonzero().squeeze(1)
    gappy = gappy[alike(missing[gappy], ~missing[gappy])]  # little is padded
    most = max(1, min(DRAWS_AT_ONCE // draws, _guided_rows(x.shape[1])))
    for rows in gappy.split(most) if len(gappy) else ():
        gaps = missing[rows]
        drawn = sample(model, x[rows], query=gaps, given=~gaps, n=draws, generator=generator)
        filled[rows] = drawn.to(filled)
    return filled


@torch.no_grad()
def level_probabilities(model: AnyOrderModel, x: Tensor, known: Tensor, place: int) -> Tensor:
    """The probability of each level of a category. Shape ``(rows, levels)``."""
    found = []
    levels = model.schema.variables[place].num_levels
    for rows in parts(len(x), x.shape[1] + levels):
        targets = torch.full((len(x[rows]), 1), place)
        conditional = model.predict(x[rows], known[rows], targets)
        logs = [conditional.log_prob(torch.full_like(targets, code)) for code in range(levels)]
        found.append(torch.cat(logs, dim=1).exp().cpu())
    return torch.cat(found)


@torch.no_grad()
def best_guesses(
    model: AnyOrderModel, table: TableSchema, x: Tensor, known: Tensor, asked: Tensor, *, mean: bool
) -> dict[int, pd.Series]:
    """The mean of a number, or the most probable value, of every cell that is asked, by itself.

    Returns:
        The guesses of each column of which anything is asked, in the order of the rows.
    """
    places = asked.any(dim=0).nonzero().squeeze(1)
    found: dict[int, list[NDArray[np.float64]]] = {place: [] for place in places.tolist()}
    for rows in parts(len(x), x.shape[1] + len(places)):
        features = model.features(x[rows], known[rows], places.expand(len(x[rows]), -1))
        for number, (place, guesses) in enumerate(found.items()):
            mine = asked[rows, place].to(features.device)
            if mine.any():
                own = features[mine, number]
                which = torch.full((len(own),), place, device=own.device)
                conditional = cast(MixedDistribution, model.distribution(own, which)).only
                guesses.append(_guess(table.query[place], conditional, mean=mean))
    columns = {place: np.concatenate(guesses) for place, guesses in found.items()}
    return {place: _decoded(table.query[place], v, mean=mean) for place, v in columns.items()}


def _guess(column: Column, conditional: Distribution, *, mean: bool) -> NDArray[np.float64]:
    """A mean in the units of the column, or the code of the most probable value.

    What lies beyond the numbers of training counts as their least or greatest: a long tail that
    nothing was seen of would lead the mean anywhere.
    """
    if not (mean and isinstance(column, NumberColumn)):
        return conditional.mode().double().cpu().numpy()
    assert isinstance(conditional, ContinuousDistribution | AtomicDistribution)
    codes, weights = (part.double().cpu().numpy() for part in conditional.nodes())
    numbers = column.numbers(codes.ravel()).reshape(codes.shape)
    found: NDArray[np.float64] = (weights * np.clip(numbers, *column.seen)).sum(axis=0)
    return found


def _decoded(column: Column, values: NDArray[np.float64], *, mean: bool) -> pd.Series:
    if mean and isinstance(column, NumberColumn):
        return column.unrounded(values)
    return column.decode(values)
