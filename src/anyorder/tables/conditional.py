"""The distribution of one column given evidence, in the units of the column; its JSON form."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from anyorder.cli.console import plain
from anyorder.errors import ConfigError, QueryError, check_fraction
from anyorder.heads.distributions import NODES, mean_rule
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import SoftEvidence
from anyorder.inference.univariates import CLOSE, Edges, Levelled, Numbers
from anyorder.networks.contracts import Features
from anyorder.tables.answer_form import (
    Answers,
    CategoryAnswer,
    Density,
    NumberAnswer,
    Repeated,
)
from anyorder.tables.columns import CALENDAR, CategoryColumn, Column, NumberColumn
from anyorder.tables.engine import Count, codes_up_to
from anyorder.tables.numbers import PER_SECOND
from anyorder.tables.parsing import FloatArray

PLOTTED = 400
"""Points of a plotted density."""

SPANS = {"year": 365.25 * 86400, "day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0}
"""Units of a density of times, in seconds: the first that the range of the column exceeds."""

QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Probabilities of the quantiles of an answer."""

RARE = 5e-4
"""Repeated values that are less probable are not listed."""

MEAN_CLOSE = 1e-7
"""Greatest error of a quantile in a mean, in normal scores, times its weight."""

MEMBER_CLOSE = 1e-3
"""Error of a quantile in the mean of a single member, which is only compared with others."""

MOST_LEVELS = 200
"""Levels of a category that are listed."""


@dataclass(frozen=True)
class Conditional:
    """p(column | evidence): exact for evidence by values; a weighted mixture for regions.

    Args:
        column: The queried column.
        variable: Its number in the model.
        model: The model that answers.
        features: Features of the column given each sample of the evidence, as the query engine
            found them. Shape ``(samples, width)``.
        evidence: Weighted samples; one for evidence by values.
        count: Training rows that match the evidence; None if the model does not keep its rows.
    """

    column: Column
    variable: int
    model: AnyOrderModel
    features: Features
    evidence: SoftEvidence
    count: Count | None

    def __repr__(self) -> str:
        name = self.column.name
        if isinstance(self.column, CategoryColumn):
            likely = self.probabilities().sort_values(ascending=False)[:3]
            listed = ", ".join(f"{k} {v:.0%}" for k, v in likely.items())
            return f"Conditional({name}: {listed})"
        low, high = self.interval(0.9)
        return f"Conditional({name}: median {self.median()}, 90% in {low} to {high})"

    @property
    def weights(self) -> Tensor:
        """Weights of the samples; they sum to one."""
        return self.evidence.weights

    @property
    def effective_sample_size(self) -> float:
        """Effective sample size of the evidence; infinite for evidence by values."""
        return self.evidence.effective_sample_size

    def to_dict(self) -> dict[str, Any]:
        """Returns the distribution as plain values for JSON: a `NumberAnswer` or `CategoryAnswer`.

        Example:
            >>> from anyorder.tables.model import TableModel
            >>> frame = pd.DataFrame({"coin": ["heads", "tails"] * 8, "n": range(16)})
            >>> model = TableModel(max_steps=1, layers=1, width=8, heads=2).fit(frame)
            >>> found = model.conditional("coin", given={"n": (0, 4)}).to_dict()
            >>> found["rows"], sorted(found["shares"]), found["standard_errors"]
            (5, [0.4, 0.6], None)
        """
        (found,) = described([self])
        return found

    @cached_property
    def _distribution(self) -> Levelled | Numbers:
        ((_, found),) = _groups([self])
        return found

    def pdf(self, values: ArrayLike) -> NDArray[np.float64]:
        """Returns densities per unit of the column; of atoms and levels, probabilities."""
        series = self._series(values)
        codes, missing = self.column.encode(series)
        log_factor = self.column.log_density_factor(series)
        return np.where(missing, np.nan, self._pdf(codes) * np.exp(log_factor))

    def cdf(self, values: ArrayLike) -> NDArray[np.float64]:
        """Returns the probability of at most each value, in the steps of the column, as sampled."""
        column = self._number("cdf")
        numbers = column.measurement.numbers(self._series(values), column.name)
        missing = np.isnan(numbers)
        codes = codes_up_to(column, np.where(missing, 0.0, numbers))
        found = self._numbers.cdf(torch.from_numpy(codes)[:, None])[:, 0].numpy()
        return np.where(missing, np.nan, found)

    def quantile(self, share: ArrayLike) -> Any:
        """Returns the values below which shares of the probability lie."""
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
        """Returns the central interval that holds the value with probability `level`."""
        tail = (1 - check_fraction("level", level)) / 2
        self._number("interval")
        ends = np.array([max(tail, 1e-9), min(1 - tail, 1 - 1e-9)])
        low, high = self.column.decode(self._quantile_codes(ends))
        return low, high

    def median(self) -> Any:
        """Returns the quantile of 0.5."""
        return self.quantile(0.5)

    def mean(self) -> Any:
        """Returns the expectation; of dates, a date."""
        column = self._number("mean")
        shares, weights = mean_rule()
        codes = self._numbers.quantiles(shares, _node_close(weights))[:, 0]
        numbers = column.numbers(codes.numpy())
        return column.unrounded(np.array([weights.numpy() @ numbers])).iloc[0]

    def mode(self) -> Any:
        """Returns the most probable level or repeated value, or where the density is highest.

        That of a number is a repeated value if these have more than half of the probability. The
        density is that of normal scores, so that the unit does not matter.
        """
        if isinstance(self.column, CategoryColumn):
            return self.probabilities().idxmax()
        column = self._number("mode")
        atoms = np.array(column.atom_codes)
        masses = self._pdf(atoms) if len(atoms) else np.zeros(1)
        if masses.sum() > 0.5:
            return column.decode(atoms[[masses.argmax()]]).iloc[0]
        codes = self._quantile_codes((np.arange(NODES) + 0.5) / NODES)
        smooth = codes[~np.isin(codes.astype(np.float32), atoms.astype(np.float32))]
        return column.decode(smooth[[self._pdf(smooth).argmax()]]).iloc[0]

    def probabilities(self) -> pd.Series:
        """Returns the probability of each level of a category."""
        if not isinstance(self.column, CategoryColumn):
            raise QueryError(f'"{self.column.name}" is no category: use pdf, cdf or quantile.')
        assert isinstance(self._distribution, Levelled)
        found = self._distribution.probabilities[0, : len(self.column.levels)].numpy()
        index = pd.Index(self.column.levels, name=self.column.name)
        return pd.Series(found, index=index, name="probability")

    def standard_error(self) -> Any:
        """Returns the standard error of the mean, or of each level's probability, over members.

        It says how far the answer depends on chance in training, and not how far on the choice of
        rows, which all members share. That of times is in seconds. None for a single model.
        """
        (found,) = _standard_errors([self])
        if found is None or not isinstance(self.column, CategoryColumn):
            return None if found is None else float(found[0])
        return pd.Series(found, index=self.probabilities().index, name="standard error")

    def shares(self) -> pd.Series | None:
        """Returns the share of each level of a category among the matching training rows.

        None where no row matches, or the model does not keep its rows; see `count`.
        """
        probabilities = self.probabilities()
        if self.count is None or self.count.shares is None:
            return None
        return pd.Series(self.count.shares, index=probabilities.index, name="share")

    def plot(self, ax: Any = None) -> Any:
        """Plots the density, with atoms as stems, or the bars of a category; returns the axes."""
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
            masses = self._pdf(inside)
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

    @property
    def _numbers(self) -> Numbers:
        assert isinstance(self._distribution, Numbers)
        return self._distribution

    def _quantile_codes(self, shares: FloatArray) -> FloatArray:
        return self._numbers.quantiles(torch.from_numpy(shares))[:, 0].numpy()

    def _pdf(self, codes: FloatArray) -> FloatArray:
        """Returns densities of codes; the probabilities of levels and atoms. Shape ``(codes,)``."""
        if isinstance(self._distribution, Levelled):
            return self._distribution.probabilities[0].numpy()[codes.astype(np.int64)]
        return self._distribution.pdf(torch.from_numpy(codes)[:, None])[:, 0].numpy()


def answers(
    conditionals: Sequence[Conditional], found: Sequence[dict[str, Any]], warnings: Sequence[str]
) -> dict[str, Any]:
    """Returns the JSON form of distributions given one evidence, `Answers`."""
    size = min((one.effective_sample_size for one in conditionals), default=math.inf)
    names = [one.column.name for one in conditionals]
    columns = dict(zip(names, found, strict=True))
    return vars(Answers(columns, None if math.isinf(size) else size, list(warnings)))  # type: ignore[arg-type]


@torch.inference_mode()
def described(conditionals: Sequence[Conditional]) -> list[dict[str, Any]]:
    """Returns distributions of one model as plain values: all of a kind are evaluated together."""
    found: dict[int, dict[str, Any]] = {}
    errors = _standard_errors(conditionals)
    for owners, group in _groups(conditionals) if conditionals else ():
        asked, own = [conditionals[owner] for owner in owners], [errors[owner] for owner in owners]
        if isinstance(group, Levelled):
            forms = [*map(_category, asked, group.probabilities.numpy(), own)]
        else:
            forms = _numbers(asked, group, own)
        found |= dict(zip(owners, forms, strict=True))
    return [found[place] for place in range(len(conditionals))]


def _groups(conditionals: Sequence[Conditional]) -> list[tuple[list[int], Levelled | Numbers]]:
    return list(_edges(conditionals).groups(conditionals[0].model))


def _edges(conditionals: Sequence[Conditional]) -> Edges:
    return Edges.of(
        [one.features for one in conditionals],
        [one.variable for one in conditionals],
        [one.weights for one in conditionals],
    )


def _standard_errors(conditionals: Sequence[Conditional]) -> list[FloatArray | None]:
    """Returns the standard error over ensemble members of each mean or of each level."""
    members = _edges(conditionals).member_groups(conditionals[0].model) if conditionals else []
    by_owner: list[list[FloatArray]] = [[] for _ in conditionals]
    for groups in members:
        for owners, group in groups:
            columns = [conditionals[owner].column for owner in owners]
            for owner, expected in zip(owners, _expectations(columns, group), strict=True):
                by_owner[owner].append(expected)
    if not members:
        return [None] * len(conditionals)
    return [np.std(own, axis=0, ddof=1) / len(own) ** 0.5 for own in by_owner]


def _expectations(columns: Sequence[Column], group: Levelled | Numbers) -> Sequence[FloatArray]:
    """Returns the probabilities of levels, or means exact enough to compare them."""
    if isinstance(group, Levelled):
        pairs = zip(columns, group.probabilities.numpy(), strict=True)
        return [own[: len(column.levels)] for column, own in pairs]  # type: ignore[attr-defined]
    shares, weights = mean_rule()
    codes = group.quantiles(shares, MEMBER_CLOSE).T.numpy()
    found = np.zeros((len(columns), 1))
    for column, mine in _by_column(columns):
        assert isinstance(column, NumberColumn)
        numbers = column.numbers(codes[mine].ravel()).reshape(len(mine), -1)
        found[mine, 0] = numbers @ weights.numpy()
    return list(found)


def _category(
    asked: Conditional, probabilities: FloatArray, errors: FloatArray | None
) -> dict[str, Any]:
    column, count = asked.column, asked.count
    assert isinstance(column, CategoryColumn)
    shares = None if count is None else count.shares
    own = probabilities[: len(column.levels)]
    order = np.argsort(-own, kind="stable")[:MOST_LEVELS]
    likely, listed = own[own > 0], own[order]
    return vars(
        CategoryAnswer(
            column=column.name,
            type=column.kind,  # type: ignore[arg-type]
            mode=column.levels[order[0]],
            levels=[column.levels[place] for place in order.tolist()],
            probabilities=listed.tolist(),
            standard_errors=None if errors is None else errors[order].tolist(),
            rest=max(0.0, float(own.sum() - listed.sum())) if len(own) > len(listed) else 0.0,
            entropy=float(-(likely * np.log(likely)).sum()),
            rows=None if count is None else count.rows,
            shares=None if shares is None else shares[order].tolist(),
        )
    )


def _numbers(
    asked: Sequence[Conditional], group: Numbers, errors: Sequence[FloatArray | None]
) -> list[dict[str, Any]]:
    """Returns the JSON form of numbers; a column at a time, for a map costs per call."""
    shares, close, weights = _rule()
    codes = group.quantiles(shares, close).T.numpy()
    knots, reached = (part.T.numpy() for part in group.knots)  # (count, knots)
    share = group.share.numpy()
    masses, atoms = np.diff(reached) * share[:, None], group.masses.numpy()
    middles = (knots[:, 1:] + knots[:, :-1]) / 2
    entropies = _entropies(masses, np.diff(knots), atoms).tolist()
    sections = np.cumsum([len(QUANTILES), len(weights), knots.shape[1]])
    found: dict[int, dict[str, Any]] = {}
    for column, mine in _by_column([one.column for one in asked]):
        assert isinstance(column, NumberColumn)
        places = np.concatenate([codes[mine], knots[mine], middles[mine]], axis=1)
        numbers = column.numbers(places.ravel()).reshape(places.shape)
        quantiles, nodes, edges, inside = np.split(numbers, sections, axis=1)
        summaries = _summaries(column, quantiles, nodes @ weights)
        widths, inside = np.diff(edges), positions(column, inside)
        atoms_of_column = np.array(column.atom_values)
        values = column.restore(atoms_of_column).tolist() if len(atoms_of_column) else []
        axis = positions(column, atoms_of_column)
        for at, place in enumerate(mine):
            there = widths[at] > 0  # far out, where the map is flat, knots can coincide
            heights = (masses[place, there] / widths[at, there]).tolist()
            density = Density(inside[at, there].tolist(), heights, float(share[place]))
            likely = np.flatnonzero(atoms[place, : len(values)] >= RARE)
            listed = Repeated(
                [plain(values[atom]) for atom in likely],
                axis[likely].tolist(),
                atoms[place, likely].tolist(),
            )
            found[place] = vars(
                NumberAnswer(
                    column=column.name,
                    type=column.kind,  # type: ignore[arg-type]
                    **summaries[at],
                    standard_error=None if (own := errors[place]) is None else float(own[0]),
                    density=vars(density),  # type: ignore[arg-type]
                    repeated=vars(listed),  # type: ignore[arg-type]
                    entropy=entropies[place],
                    rows=None if (count := asked[place].count) is None else count.rows,
                )
            )
    return [found[place] for place in range(len(asked))]


@cache
def _rule() -> tuple[Tensor, Tensor, FloatArray]:
    """Returns the shares of all quantiles of an answer, tolerances, and the weights of a mean."""
    ends = torch.tensor(QUANTILES, dtype=torch.float64)
    shares, weights = mean_rule()
    close = torch.cat([torch.full_like(ends, CLOSE), _node_close(weights)])
    return torch.cat([ends, shares]), close, weights.numpy()


def _node_close(weights: Tensor) -> Tensor:
    """Returns the tolerances of the quantiles of a mean: the less they weigh, the greater."""
    return (MEAN_CLOSE / weights).clamp(max=1e-2)


def _by_column(columns: Sequence[Column]) -> Iterable[tuple[Column, list[int]]]:
    places: dict[str, list[int]] = {}
    for place, column in enumerate(columns):
        places.setdefault(column.name, []).append(place)
    return ((columns[mine[0]], mine) for mine in places.values())


def _summaries(column: NumberColumn, ends: FloatArray, means: FloatArray) -> list[dict[str, Any]]:
    """Returns mean, median, interval, quantiles and positions of each distribution of a column."""
    values = [plain(value) for value in column.restore(ends.ravel()).tolist()]
    middles = [plain(value) for value in column.unrounded(means).tolist()]
    places, centres = positions(column, ends).tolist(), positions(column, means).tolist()
    low, half, high = (QUANTILES.index(share) for share in (0.05, 0.5, 0.95))
    found = []
    for at, (mean, centre, place) in enumerate(zip(middles, centres, places, strict=True)):
        own = values[at * len(QUANTILES) : (at + 1) * len(QUANTILES)]
        found.append(
            {
                "mean": mean,
                "median": own[half],
                "interval_90": [own[low], own[high]],
                "quantiles": dict(zip(map(str, QUANTILES), own, strict=True)),
                "positions": {
                    "mean": centre,
                    "median": place[half],
                    "low": place[low],
                    "high": place[high],
                },
            }
        )
    return found


def _entropies(masses: FloatArray, widths: FloatArray, atoms: FloatArray) -> FloatArray:
    """Returns entropies from the probabilities of cells, their widths and those of atoms."""
    heights = np.where(masses > 0, masses / np.where(widths > 0, widths, 1), 1)
    found = -(masses * np.log(heights)).sum(axis=1)
    return found - (atoms * np.log(np.where(atoms > 0, atoms, 1))).sum(axis=1)


def positions(column: NumberColumn, numbers: FloatArray) -> FloatArray:
    """Returns where numbers lie on the axis of a column: times in seconds since 1970."""
    measured = column.measurement
    return numbers + measured.origin / PER_SECOND.get(measured.unit, 1)


def _density_unit(column: NumberColumn) -> tuple[str, float]:
    """Returns the label of a density, and its unit in those of the column (seconds for times)."""
    if column.kind == "number":
        return "density", 1.0
    span = column.seen[1] - column.seen[0]
    unit, seconds = next(((u, s) for u, s in SPANS.items() if span >= s), ("second", 1.0))
    return f"density a {unit}", seconds
