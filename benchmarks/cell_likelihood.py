"""Likelihoods of a `TableModel` by a fixed measure of each column, whatever its type in the model.

A rounded number has the probability of its rounding cell, [x - step/2, x + step/2]; another number
its density, in the units of the column; a category its probability. `TableModel.log_prob` uses a
measure with both atoms and densities, which no other model shares.

All edges of a row's path come from one pass of the network. The heads are then evaluated in
float64, and differences of CDFs as differences of their logarithms in the nearer tail, so that they
are as exact in the tails as in the middle.
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
from anyorder.heads.distributions import Categorical, Distribution
from anyorder.heads.mixed import AveragedConditionals, MixedConditionals, MixedDistribution
from anyorder.heads.mixture import Mixture
from anyorder.heads.with_prior import OnScale
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import answering
from anyorder.lattice.protocols import alike
from anyorder.networks.contracts import PathNetwork
from anyorder.tables.columns import NumberColumn
from anyorder.tables.model import TableModel


class Cells(NamedTuple):
    """Rounding cells of values, in the codes of the model. All parts have one shape."""

    value: Tensor
    low: Tensor  # the code of x - step/2; NaN where a column has no step
    high: Tensor
    log_slope: Tensor  # of code by value

    def at(self, *places: Tensor) -> "Cells":
        """Returns the cells at some places."""
        return Cells(*(part[places] for part in self))


def cell_log_prob(
    model: TableModel,
    frame: pd.DataFrame,
    *,
    query: Tensor,
    given: Tensor,
    steps: Sequence[float | None],
) -> Tensor:
    """Returns the log-likelihood of each row's query, in nats.

    Args:
        model: Fitted model with a path network.
        frame: Rows.
        query: Mask of the queried cells. Shape ``(rows, columns)``.
        given: Mask of the given cells. Shape ``(rows, columns)``.
        steps: Rounding step of each column; None for categories and numbers without rounding.

    Returns:
        Shape ``(rows,)``, float64.
    """
    x, _ = model.table_.encode(frame)
    cells = _cells(model, frame, x, steps)
    return _along_paths(model.model_, x, cells, query, given)


def log_mass(distribution: Distribution, cells: Cells) -> Tensor:
    """Returns the log probability of cells, or the log density of columns without cells."""
    if isinstance(distribution, Categorical):
        return distribution.log_prob(cells.value)
    if isinstance(distribution, AtomicDistribution):
        logs = distribution.branches.log_probs
        # An atom adds no mass to a density. The value itself is compared too: its cell may be
        # narrower than the precision of an atom.
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
    """Returns the log mass of the standard normal between two ends, low below high."""
    above = low > 0  # there the upper tail is more precise
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
