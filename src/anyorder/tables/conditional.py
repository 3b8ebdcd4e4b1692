"""The distribution of one column given evidence, in the units of the column."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from anyorder.errors import ConfigError, QueryError, check_fraction
from anyorder.heads.distributions import NODES, invert, mean_rule
from anyorder.heads.mixed import MixedDistribution
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.soft_evidence import SoftEvidence
from anyorder.networks.contracts import Features
from anyorder.tables.categories import CategoryColumn
from anyorder.tables.columns import CALENDAR, Column, NumberColumn, codes_up_to

EDGES_AT_ONCE = 65_536
"""Edges of one evaluation: keeps memory flat where many draws stand for the evidence."""

PLOTTED = 400
"""Points of a drawn density."""

SPANS = {"year": 365.25 * 86400, "day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0}
"""Units of a density of times, in seconds: that is told of which there are several."""


@dataclass(frozen=True)
class Conditional:
    """p(column | evidence): exact for evidence by values; a weighted mixture for regions.

    Args:
        column: What it is about.
        variable: Its number in the model.
        model: Whose conditionals are asked.
        features: Of the column given each draw of the evidence. Shape ``(draws, width)``.
        evidence: The draws, their weights and how good they are; one for evidence by values.
    """

    column: Column
    variable: int
    model: AnyOrderModel
    features: Features
    evidence: SoftEvidence

    def __repr__(self) -> str:
        name = self.column.name
        if isinstance(self.column, CategoryColumn):
            likely = self.probabilities().sort_values(ascending=False)[:3]
            return (
                f"Conditional({name}: " + ", ".join(f"{k} {v:.0%}" for k, v in likely.items()) + ")"
            )
        low, high = self.interval(0.9)
        return f"Conditional({name}: median {self.median()}, 90% in {low} to {high})"

    @property
    def weights(self) -> Tensor:
        """Of the draws; they sum to one."""
        return self.evidence.weights

    @property
    def effective_sample_size(self) -> float:
        """As many equally weighted draws would be as good; infinite for evidence by values."""
        return self.evidence.effective_sample_size

    def pdf(self, values: ArrayLike) -> NDArray[np.float64]:
        """The density of values, per unit of the column; of atoms and levels, the probability."""
        series = self._series(values)
        codes, missing = self.column.encode(series)
        log_factor = self.column.log_density_factor(series)
        found = self._mixed("log_prob", codes, exponential=True) * np.exp(log_factor)
        return np.where(missing, np.nan, found)

    def cdf(self, values: ArrayLike) -> NDArray[np.float64]:
        """The probability of at most each value, as draws have it: in the steps of the column."""
        column = self._number("cdf")
        numbers = column.measurement.numbers(self._series(values), column.name)
        missing = np.isnan(numbers)
        codes = codes_up_to(column, np.where(missing, 0.0, numbers))
        found = self._mixed("cdf", codes).clip(0, 1)  # sums of many masses, with their rounding
        return np.where(missing, np.nan, found)

    def quantile(self, share: ArrayLike) -> Any:
        """The values below which the given shares of the probability lie."""
        self._number("quantile")
        try:
            wanted = np.atleast_1d(np.asarray(share, dtype=np.float64))
        except (TypeError, ValueError):
            wanted = np.array([np.nan])
        if wanted.ndim > 1 or not ((wanted > 0) & (wanted < 1)).all():
            raise QueryError(
                "`share` must be a number between 0 and 1, ends left out, or a list of them; "
                f"got {share!r}."
            )
        found = self.column.decode(self._quantile_codes(wanted))
        return found.iloc[0] if np.ndim(share) == 0 else found.to_numpy()

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """The central interval that holds the value with probability `level`."""
        tail = (1 - check_fraction("level", level)) / 2
        self._number("interval")
        ends = np.array([max(tail, 1e-9), min(1 - tail, 1 - 1e-9)])
        low, high = self.column.decode(self._quantile_codes(ends))
        return low, high

    def median(self) -> Any:
        """The value that is as likely exceeded as not."""
        return self.quantile(0.5)

    def mean(self) -> Any:
        """The expectation; of dates, a date."""
        column = self._number("mean")
        shares, weights = mean_rule() if len(self.weights) == 1 else mean_rule(16)
        each = self._evaluate("icdf", shares[:, None].expand(-1, len(self.weights)))
        numbers = column.numbers(each.double().flatten().numpy()).reshape(each.shape)
        mean = weights.numpy() @ numbers @ self.weights.cpu().double().numpy()
        return column.unrounded(np.array([mean])).iloc[0]

    def mode(self) -> Any:
        """The most probable level or repeated value, or where the density is highest.

        A number's is a repeated value where these weigh more than the rest together; its density is
        that of normal scores, so that the unit does not matter.
        """
        if isinstance(self.column, CategoryColumn):
            return self.probabilities().idxmax()
        column = self._number("mode")
        atoms = np.array(column.atom_codes)
        masses = self._mixed("log_prob", atoms, exponential=True) if len(atoms) else np.zeros(1)
        if masses.sum() > 0.5:
            return column.decode(atoms[[masses.argmax()]]).iloc[0]
        number = max(2, NODES // len(self.weights))  # of each draw: together they span the mixture
        shares = (torch.arange(number, dtype=torch.float64) + 0.5) / number
        each = self._evaluate("icdf", shares[:, None].expand(-1, len(self.weights)))
        codes = each.double().flatten().numpy()
        smooth = codes[~np.isin(codes.astype(np.float32), atoms.astype(np.float32))]
        heights = self._mixed("log_prob", smooth, exponential=True)
        return column.decode(smooth[[heights.argmax()]]).iloc[0]

    def probabilities(self) -> pd.Series:
        """The probability of each level of a category."""
        if not isinstance(self.column, CategoryColumn):
            raise QueryError(f'"{self.column.name}" is no category: use pdf, cdf or quantile.')
        codes = np.arange(len(self.column.levels), dtype=np.float64)
        found = self._mixed("log_prob", codes, exponential=True)
        index = pd.Index(self.column.levels, name=self.column.name)
        return pd.Series(found, index=index, name="probability")

    def plot(self, ax: Any = None) -> Any:
        """Draws the density, with atoms as stems, or the bars of a category; returns the axes."""
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise ConfigError('Plots need matplotlib: pip install "anyorder[plot]".') from None
        from anyorder.diagnostics.plots import as_label

        axes = plt.subplots(figsize=(6, 3.5), layout="constrained")[1] if ax is None else ax
        if isinstance(self.column, CategoryColumn):
            bars = self.probabilities().sort_values()[-30:]
            axes.barh([as_label(level) for level in bars.index], bars.to_numpy())
            axes.set_xlabel("probability")
        else:
            self._plot_line(axes)
        axes.set_title(as_label(self.column.name))
        return axes

    def _plot_line(self, axes: Any) -> None:
        column = self._number("plot")
        ends = self._quantile_codes(np.array([0.001, 0.999]))
        codes = np.linspace(ends[0], ends[1], PLOTTED) if ends[1] > ends[0] else ends
        atoms = np.array(column.atom_codes)
        smooth = codes[~np.isin(codes.astype(np.float32), atoms.astype(np.float32))]
        values = column.unrounded(column.numbers(smooth))
        unit, seconds = _density_unit(column)
        axes.plot(values, self.pdf(values) * seconds)
        inside = atoms[(atoms >= ends[0]) & (atoms <= ends[1])] if len(atoms) else atoms
        if len(inside):
            masses = self._mixed("log_prob", inside, exponential=True)
            beside = axes.twinx()
            beside.vlines(column.decode(inside), 0, masses, color="tab:orange")
            beside.set_ylabel("probability of repeated values", color="tab:orange")
            beside.set_ylim(bottom=0)
        low, high = self.interval(0.9)
        axes.axvspan(low, high, alpha=0.12, linewidth=0, label="90% lies here")
        axes.axvline(self.median(), color="0.4", linestyle=":", label="median")
        axes.legend(frameon=False, fontsize="small")
        axes.set(ylabel=unit, ylim=(0, None))
        if column.kind in CALENDAR:
            from anyorder.diagnostics.plots import name_dates

            name_dates(axes)

    def _number(self, what: str) -> NumberColumn:
        if not isinstance(self.column, NumberColumn):
            raise QueryError(
                f'"{self.column.name}" is a category and has no {what}: use probabilities() or pdf.'
            )
        return self.column

    def _series(self, values: ArrayLike) -> pd.Series:
        if np.ndim(values) > 1:
            raise QueryError(
                f"Give a value or a list of them; got an array of {np.ndim(values)} dimensions."
            )
        listed = values if isinstance(values, pd.Series) else pd.Series(np.atleast_1d(values))
        return listed.rename(self.column.name)

    def _quantile_codes(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        wanted = torch.from_numpy(shares)[:, None].expand(-1, len(self.weights))
        each = self._evaluate("icdf", wanted)
        if len(self.weights) == 1:
            return each[:, 0].double().numpy()
        low, high = (end.double() for end in each.aminmax(dim=1))

        def mixed(codes: Tensor) -> Tensor:
            return torch.from_numpy(self._mixed("cdf", codes.numpy()))

        return invert(mixed, torch.from_numpy(shares), low, high).numpy()

    def _mixed(
        self, method: str, codes: NDArray[np.float64], *, exponential: bool = False
    ) -> NDArray[np.float64]:
        """What the draws answer for codes, weighted. Shape ``(values,)``."""
        wanted = torch.from_numpy(np.asarray(codes, dtype=np.float32))[:, None]
        found = self._evaluate(method, wanted.expand(-1, len(self.weights))).double()
        return ((found.exp() if exponential else found) @ self.weights.cpu().double()).numpy()

    @torch.no_grad()
    def _evaluate(self, method: str, inputs: Tensor) -> Tensor:
        """What each draw answers for each input. Shape ``(values, draws)``."""
        device = self.features.device
        asked = torch.full((len(self.features),), self.variable, device=device)
        conditional = self.model.distribution(self.features, asked)
        assert isinstance(conditional, MixedDistribution)
        answer = getattr(conditional.only, method)
        size = max(1, EDGES_AT_ONCE // len(self.features))
        return torch.cat([answer(part.to(device)).cpu() for part in inputs.split(size)])


def _density_unit(column: NumberColumn) -> tuple[str, float]:
    """What a density is told by, and how much of the column's own unit that is.

    Times have seconds, of which a density of years would be some 1e-8.
    """
    if column.kind == "number":
        return "density", 1.0
    span = column.seen[1] - column.seen[0]
    unit, seconds = next(((u, s) for u, s in SPANS.items() if span >= s), ("second", 1.0))
    return f"density a {unit}", seconds
