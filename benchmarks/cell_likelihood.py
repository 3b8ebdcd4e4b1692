"""Likelihoods of a `TableModel` by one measure a column, whatever the model made of the column.

A number that was rounded to a step has the probability of its rounding cell, [x - step/2,
x + step/2]; a number that was not has its density, in the units of the column; a category has its
probability. `TableModel.log_prob` uses another measure, in which atoms and densities stand side by
side: fine for one model, but no other model shares it.

All edges of a row's path come from one pass of the network. The heads are then evaluated in
doubles, and differences of CDFs as differences of their logarithms, in whichever tail is nearer:
far away they are as exact as in the middle.
"""

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.special import log_ndtr

from anyorder.errors import ConfigError
from anyorder.heads.atoms import AtomicDistribution
from anyorder.heads.categorical import Categorical
from anyorder.heads.distributions import Distribution
from anyorder.heads.mixed import AveragedConditionals, MixedConditionals, MixedDistribution
from anyorder.heads.mixture import Mixture
from anyorder.heads.with_prior import OnScale
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import answering
from anyorder.networks.contracts import PathNetwork
from anyorder.networks.paths import alike
from anyorder.tables.columns import NumberColumn
from anyorder.tables.model import TableModel


class Cells(NamedTuple):
    """Where values lie, as codes of the model. All have one shape."""

    value: Tensor
    low: Tensor  # the code of x - step/2; NaN where a column has no step
    high: Tensor
    log_slope: Tensor  # of code by value

    def at(self, *places: Tensor) -> "Cells":
        """Some of them."""
        return Cells(*(part[places] for part in self))


def cell_log_prob(
    model: TableModel,
    frame: pd.DataFrame,
    *,
    query: Tensor,
    given: Tensor,
    steps: Sequence[float | None],
) -> Tensor:
    """The log-likelihood of each row's question, in nats.

    Args:
        model: Fitted, with a path network.
        frame: Rows.
        query: Which cells are asked. Shape ``(rows, columns)``.
        given: Which are known. Shape ``(rows, columns)``.
        steps: What each column is rounded to; None for categories and what is not rounded.

    Returns:
        Shape ``(rows,)``, float64.
    """
    x, _ = model.table_.encode(frame)
    cells = _cells(model, frame, x, steps)
    return _along_paths(model.model_, x, cells, query, given)


def log_mass(distribution: Distribution, cells: Cells) -> Tensor:
    """The log probability of cells, or the log density where there are none."""
    if isinstance(distribution, Categorical):
        return distribution.log_prob(cells.value)
    if isinstance(distribution, AtomicDistribution):
        logs = distribution.branches.log_probs
        # Where values have densities, an atom has none to add. The value itself is compared too:
        # its cell may be narrower than the digits of an atom.
        atoms = distribution.atoms.double()
        hit = (atoms > cells.low[:, None]) & (atoms < cells.high[:, None])
        hit |= (cells.value[:, None].float() == atoms.float()) & ~cells.low.isnan()[:, None]
        atom = torch.where(hit, logs[:, :-1], -torch.inf).logsumexp(dim=-1)
        return torch.logaddexp(atom, logs[:, -1] + log_mass(distribution.elsewhere, cells))
    density = distribution.log_prob(cells.value) + cells.log_slope
    return torch.where(cells.low.isnan(), density, _log_interval(distribution, cells))


def _log_interval(distribution: Distribution, cells: Cells) -> Tensor:
    low, high = cells.low.nan_to_num(), cells.high.nan_to_num()
    if isinstance(distribution, OnScale):
        low, high = (
            distribution.scales.to_units(end, distribution.variables) for end in (low, high)
        )
        return _log_interval(distribution.inner, cells._replace(low=low, high=high))
    if isinstance(distribution, Mixture) and distribution.component == "gaussian":
        ends = [(end[:, None] - distribution.means) for end in (low, high)]
        z = [end * (-distribution.log_scales).exp() for end in ends]
        return (distribution.logits.log_softmax(-1) + log_normal_mass(*z)).logsumexp(-1)
    return (distribution.cdf(high) - distribution.cdf(low)).clamp(min=0).log()


def log_normal_mass(low: Tensor, high: Tensor) -> Tensor:
    """The log of the standard normal's mass between two ends, low below high."""
    above = low > 0  # there the upper tail has the digits
    left, right = torch.where(above, -high, low), torch.where(above, -low, high)
    below = log_ndtr(right)
    return below + (-torch.expm1(log_ndtr(left) - below)).log()


@answering
def _along_paths(
    model: AnyOrderModel, x: Tensor, cells: Cells, query: Tensor, given: Tensor
) -> Tensor:
    network, conditionals = model.network, copy.deepcopy(model.conditionals).double()
    mixed = isinstance(conditionals, MixedConditionals | AveragedConditionals)
    if not isinstance(network, PathNetwork) or not mixed:
        raise ConfigError('`model` must have network="path": others take a pass a cell.')
    rank = model.protocol.rank(query).expand(query.shape)
    total = torch.zeros(len(x), dtype=torch.float64)
    for rows in alike(query, given).split(model.rows_at_once):
        path = network(x[rows], query[rows], given[rows], rank[rows])
        row, target = rows[path.row], path.target
        edges = cells.at(row, target)
        found = path.edges.map(Tensor.double).read_by(conditionals, target)
        assert isinstance(found, MixedDistribution)
        for places, part in found.parts:
            total.index_add_(0, row[places], log_mass(part, edges.at(places)))
    return total


def _cells(
    model: TableModel, frame: pd.DataFrame, x: Tensor, steps: Sequence[float | None]
) -> Cells:
    low, high, slope = np.full((3, *x.shape), np.nan)
    for place, (column, step) in enumerate(zip(model.table_.query, steps, strict=True)):
        if not isinstance(column, NumberColumn):
            continue
        numbers = column.measurement.numbers(frame[column.name], column.name)
        numbers = np.where(np.isnan(numbers), column.gaussianizer.median, numbers)
        slope[:, place] = column.gaussianizer.log_derivative(numbers)
        if step is not None:
            low[:, place] = column.gaussianizer.forward(numbers - step / 2)
            high[:, place] = column.gaussianizer.forward(numbers + step / 2)
    return Cells(x.double(), *(torch.from_numpy(part) for part in (low, high, slope)))
