"""The check of a model: all diagnostics on some rows, as numbers, sentences, JSON and plots.

`check_model` runs the consistency gaps and the calibrations in chunks of bounded memory; `Check`
holds the results and interprets them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from anyorder.diagnostics.calibration import (
    LEVELS,
    SHARES,
    CategoryCalibration,
    ColumnCalibration,
    NumberCalibration,
    Predictions,
    by_column,
    predictions,
)
from anyorder.diagnostics.consistency import (
    NODES,
    EncodingGap,
    MarginalisationGap,
    OrderSpread,
    PathGap,
    RatioGap,
    encoding_differences,
    marginalisation_differences,
    order_log_probs,
    path_differences,
    percent,
    walk_and_ratio,
)
from anyorder.errors import ConfigError, QueryError, check_seed, check_sets
from anyorder.heads.energy import EnergyConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import answering, checked_query
from anyorder.networks.contracts import PathNetwork
from anyorder.training.progress import stderr_bar
from anyorder.variables import Kind

SEEN = "These rows were trained on: expect better numbers than on new ones."
"""Sentence for a check on training rows."""

SUSPICIOUS = 0.01
"""Significance level: the rate of false alarms of a sentence."""

POWER = 0.8
"""Rate at which an error must be found to count as one that would be noticed."""

DOUBTFUL = 0.1
"""A p-value between the two calls for more rows."""

OFF = 0.05
"""An error of probabilities that matters in use."""

ORDERS = 8
"""Number of random orders of whole rows."""

ALONG_OTHERS = {"path", "orders"}
"""Diagnostics that walk other orders than the model's own."""

CELLS = 250_000
"""Cells that a diagnostic reads in all: fewer rows where each takes many passes."""

FEWEST = 100
"""Least number of rows of a diagnostic, however many cells they have."""

SLOW_ROWS = 30
"""Rows of a diagnostic of energies, whose every edge is an integral over thousands of points."""

CELLS_AT_ONCE = 25_000
"""Cells of a chunk, after which progress is shown."""


@dataclass(frozen=True, repr=False)
class Check:
    """Results of all diagnostics of a model on some rows; prints as sentences.

    Gaps are None where no row has two cells, or where the network cannot walk another order.
    Calibrations are keyed by the fraction of the row that was given.

    Args:
        rows: Number of rows.
        path: Gap between a random order and the model's own.
        marginalisation: Gap between summing a variable out and leaving it out.
        ratio: Gap between conditionals as ratios and as walks.
        orders: Spread of the likelihoods of whole rows over orders.
        encoding: Gap between values given as evidence and along the path.
        names: Names of the variables.
        numbers: Calibration of numbers.
        categories: Calibration of categories.
    """

    rows: int
    path: PathGap | None
    marginalisation: MarginalisationGap | None
    ratio: RatioGap | None
    orders: OrderSpread | None
    encoding: EncodingGap | None
    names: tuple[str, ...]
    numbers: Mapping[str, NumberCalibration]
    categories: Mapping[str, CategoryCalibration]

    def columns(self) -> list[ColumnCalibration]:
        """Returns the calibration of each variable, the least p-value first."""
        return by_column([*self.numbers.values(), *self.categories.values()], self.names)

    def columns_off(self) -> list[ColumnCalibration]:
        """Returns the significantly miscalibrated variables, the greatest distance first."""
        found = self.columns()
        off = [column for column in found if column.p_value * len(found) < SUSPICIOUS]
        return sorted(off, key=lambda column: -column.distance)

    def sentences(self) -> list[str]:
        """Returns the interpretation of the results, one sentence each."""
        return [*self.gap_sentences(), *self.calibration_sentences()]

    def gap_sentences(self) -> list[str]:
        """Returns the sentences on consistency."""
        gaps = (self.path, self.marginalisation, self.ratio, self.orders, self.encoding)
        return [gap.sentence for gap in gaps if gap is not None]

    def calibration_sentences(self) -> list[str]:
        """Returns the sentences on calibration."""
        found = []
        if self.numbers:
            found.append(_numbers_sentence(self.numbers))
        if self.categories:
            found.append(_categories_sentence(self.categories))
        return [*found, self._columns_sentence()]

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def _columns_sentence(self) -> str:
        off, every = self.columns_off(), self.columns()
        if not off:
            fewest = int(min(column.n_effective for column in every))
            missed = _points(smallest_noticed(fewest, 0.5, 2 * len(every)))
            return (
                "Taken one by one, no column is further off than chance explains; with "
                f"{fewest:,} cells each, errors below {missed} would go unnoticed."
            )
        return (
            f"The probabilities of {len(off)} of {len(every)} columns are further off "
            f'than chance explains, those of "{off[0].name}" the most: by up to '
            f"{_points(off[0].distance)}."
        )

    def to_json(self) -> dict[str, Any]:
        """Returns all numbers as plain values, and the sentences."""
        gaps = ("path", "marginalisation", "ratio", "orders", "encoding")
        parts = {name: getattr(self, name) for name in gaps}
        return {
            "rows": self.rows,
            **{name: None if part is None else part.to_json() for name, part in parts.items()},
            "numbers": {given: part.to_json() for given, part in self.numbers.items()},
            "categories": {given: part.to_json() for given, part in self.categories.items()},
            "columns": [asdict(column) for column in self.columns()],
            "sentences": self.sentences(),
        }

    def plot(self, folder: str | Path | None = None) -> dict[str, Any]:
        """Plots calibration: PIT histograms, coverage by evidence, reliability.

        Args:
            folder: Folder to write .png files to; None writes nothing.

        Returns:
            The matplotlib figures by name.
        """
        try:
            from anyorder.diagnostics.plots import figures
        except ImportError:
            raise ConfigError('Plots need matplotlib: pip install "anyorder[plot]".') from None
        found = figures(self.numbers, self.categories)
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for name, figure in found.items():
                figure.savefig(Path(folder) / f"{name}.png", dpi=160)
        return found


def _numbers_sentence(found: Mapping[str, NumberCalibration]) -> str:
    """Returns the coverage of the widest intervals, as plotted, and its interpretation."""
    level = LEVELS[-1]
    each = [part.coverage(level) for part in found.values()]
    shares = [part.value for part in each]
    mean = float(torch.cat([part.rows for part in each]).mean())
    held = (
        f"Numbers: {level:.0%} intervals hold {mean:.1%} of the values "
        f"({min(shares):.1%} to {max(shares):.1%}, depending on how much is given)"
    )
    p_values = {given: part.off_p_value for given, part in found.items()}
    off = [given for given in found if _is_significant(p_values, given)]
    if not off:
        fewest = min(len(part.pit) for part in found.values())
        return f"{held}. {_insignificant(p_values, fewest, level, each=2)}."
    worst = max(off, key=lambda given: found[given].distance)
    distance = found[worst].distance
    return (
        f"{held}. With {worst} given, stated probabilities are off by up to {_points(distance)}, "
        f"{_significant(distance)}."
    )


def _categories_sentence(found: Mapping[str, CategoryCalibration]) -> str:
    """Returns confidence and accuracy of the most probable level, and their interpretation."""
    hits, sure = (
        torch.cat([getattr(part, name) for part in found.values()]).double()
        for name in ("hit", "confidence")
    )
    held = (
        f"Categories: the most probable level is said to be right in {float(sure.mean()):.1%} of "
        f"the cases, and is in {float(hits.mean()):.1%}"
    )
    p_values = {given: part.hit_p_value for given, part in found.items()}
    off = [given for given in found if _is_significant(p_values, given)]
    if not off:
        fewest = min(len(part.hit) for part in found.values())
        return f"{held}. {_insignificant(p_values, fewest, float(hits.mean()), each=1)}."
    worst = max(off, key=lambda given: found[given].error_beyond_chance)
    part, error = found[worst], found[worst].expected_error
    said = part.accuracy.value + part.overconfidence.value
    return (
        f"{held}. With {worst} given, it is said to be in {said:.1%} and is in "
        f"{percent(part.accuracy)}, and stated probabilities are off by {_points(error)} on "
        f"average, {_significant(error)}."
    )


def _points(share: float) -> str:
    """Formats a difference of two percentages."""
    return f"{100 * share:.1f} percentage points"


def _is_significant(p_values: Mapping[str, float], given: str) -> bool:
    """Tests one of several amounts of evidence, with Bonferroni's correction.

    The correction holds although the amounts share their rows.
    """
    return len(p_values) * p_values[given] < SUSPICIOUS


def smallest_noticed(cells: int, rate: float, tests: int) -> float:
    """Returns an error of a rate: smaller ones are found in fewer than four checks of five.

    A lower bound, by the spread at the tested rate: a rate that is closer to one half spreads more,
    and the distance of distributions has less power.

    Args:
        cells: Number of cells of each test.
        rate: Rate if the model is calibrated.
        tests: Number of tests, for Bonferroni's correction; `off_p_value` is the lesser of two.
    """
    normal = NormalDist()
    apart = normal.inv_cdf(1 - SUSPICIOUS / tests / 2) + normal.inv_cdf(POWER)
    spread = max(rate * (1 - rate), 1 / cells) ** 0.5
    return min(1.0, apart * spread / cells**0.5)


def _insignificant(p_values: Mapping[str, float], cells: int, rate: float, *, each: int) -> str:
    """Returns the interpretation of errors that are not significant, and what would be missed.

    Each p-value is that of `each` tests.
    """
    share = len(p_values) * min(p_values.values())  # corrected for several amounts of evidence
    often = "may well look as far off"
    if share <= 0.5:
        often = f"would look as far off in up to {share:.0%} of such checks"
    missed = smallest_noticed(cells, rate, each * len(p_values))
    meaning = f"with {cells:,} cells each, errors below {_points(missed)} would go unnoticed"
    if share < DOUBTFUL:
        meaning = "that is no proof against these probabilities, but reason to check more rows"
    return f"By chance, a perfect model {often}: {meaning}"


def _significant(distance: float) -> str:
    """Returns the interpretation of a significant error."""
    rarely = f"more than a perfect model would be in {1 - SUSPICIOUS:.0%} of such checks"
    if distance < OFF:
        return f"{rarely}: that is real, but too little to matter for most uses"
    return f"{rarely}: do not take them at their word"


Found = tuple[Tensor, ...]


@dataclass(frozen=True)
class Stage:
    """One diagnostic.

    Args:
        title: Title on the progress bar.
        passes: Approximate number of network passes over a row.
        least: Number of cells that a row must have.
        run: Function of values, the variables that the rows have and their indices; it returns
            tensors whose last dimension is the rows.
    """

    title: str
    passes: int
    least: int
    run: Callable[[Tensor, Tensor, Tensor], Found]


@answering
def check_model(
    model: AnyOrderModel, x: Tensor, missing: Tensor, *, seed: int = 0, progress: bool = False
) -> Check:
    """Runs all diagnostics.

    Args:
        model: The model.
        x: Values of rows that it was not trained on, in random order: diagnostics that take many
            passes read the first ones only. Shape ``(rows, columns)``.
        missing: Missing values. Shape ``(rows, vars)``.
        seed: Seed of the random queries.
        progress: True shows a progress bar.
    """
    generator = torch.Generator().manual_seed(check_seed(seed))
    missing = check_sets("missing", missing, model.num_variables)
    if missing.all():
        raise QueryError("A check needs a row that has a value.")
    x, have, _ = checked_query(model, x, ~missing, None)
    found = dict(_run(model, _stages(model, generator), x, have, progress))
    return _check(model, len(x), found)


def _stages(model: AnyOrderModel, generator: torch.Generator) -> dict[str, Stage]:
    """Returns all diagnostics by name; they sample from one generator, one after another."""

    def each(function: Callable[..., Tensor]) -> Callable[[Tensor, Tensor, Tensor], Found]:
        return lambda x, have, _: (function(model, x, have, generator=generator),)

    def ratio(x: Tensor, have: Tensor, _: Tensor) -> Found:
        return walk_and_ratio(model, x, have, generator=generator)

    def predicted(x: Tensor, have: Tensor, rows: Tensor, *, kind: Kind, share: float) -> Found:
        found = predictions(model, x, have, kind=kind, share=share, generator=generator)
        return found._replace(row=rows.cpu()[found.row])

    # A masked network takes a pass for each queried variable, but cheaper ones.
    walk = 1 if model.is_one_pass else max(1, model.num_variables // 4)
    mixture = partial(order_log_probs, orders=ORDERS)
    gaps = {
        "path": Stage("other orders", 2 * walk, 2, each(path_differences)),
        "marginalisation": Stage("summing out", NODES * walk, 2, each(marginalisation_differences)),
        "ratio": Stage("ratios", 3 * walk, 2, ratio),
        "orders": Stage("mixtures of orders", (ORDERS + 1) * walk, 2, each(mixture)),
        "encoding": Stage("evidence", 2 * walk, 2, each(encoding_differences)),
    }
    if _has_energies(model):
        del gaps["marginalisation"]  # an integral of integrals
    if isinstance(model.network, PathNetwork) and not model.network.walks_any_order:
        gaps = {name: stage for name, stage in gaps.items() if name not in ALONG_OTHERS}
    kinds = {variable.kind for variable in model.schema.variables[: model.num_variables]}
    calibrations = {
        f"{kind} {given}": Stage(
            f"calibration, {given} given",
            1,
            1,
            partial(predicted, kind=kind, share=share),
        )
        for kind in sorted(kinds)
        for given, share in SHARES.items()
    }
    return gaps | calibrations


def _has_energies(model: AnyOrderModel) -> bool:
    return any(isinstance(part, EnergyConditionals) for part in model.modules())


def _run(
    model: AnyOrderModel, stages: dict[str, Stage], x: Tensor, have: Tensor, progress: bool
) -> Iterator[tuple[str, Found]]:
    """Yields the results of each diagnostic on the rows that it can use, if there are any."""
    chosen = {name: _rows(model, stage, have) for name, stage in stages.items()}
    chosen = {name: rows for name, rows in chosen.items() if len(rows)}
    work = sum(len(rows) * stages[name].passes for name, rows in chosen.items())
    with stderr_bar(shown=progress, title="checking", total=work) as advance:
        for name, usable in chosen.items():
            stage, parts = stages[name], []
            size = max(1, CELLS_AT_ONCE // (stage.passes * x.shape[1]))
            size = 1 if _has_energies(model) else size
            for rows in usable.split(size):
                parts.append(stage.run(x[rows], have[rows], rows))
                advance(len(rows) * stage.passes, stage.title)
            joined = tuple(torch.cat(one, dim=-1).cpu() for one in zip(*parts, strict=True))
            if joined[0].shape[-1]:
                yield name, joined


def _rows(model: AnyOrderModel, stage: Stage, have: Tensor) -> Tensor:
    """Returns the indices of the rows that a diagnostic reads."""
    most = max(FEWEST, CELLS // (stage.passes * model.num_variables))
    most = SLOW_ROWS if _has_energies(model) else most
    return (have.sum(dim=1) >= stage.least).nonzero().squeeze(1)[:most]


def _check(model: AnyOrderModel, rows: int, found: dict[str, Found]) -> Check:
    """Returns the results of the diagnostics that ran; None for the others."""

    def gap(name: str, kind: Callable[..., Any]) -> Any:
        return kind(*found[name]) if name in found else None

    def ratio(walk: Tensor, other: Tensor, is_mass: Tensor) -> RatioGap:
        return RatioGap(other - walk, other[is_mass])

    numbers, categories = (
        {g: Predictions(*found[f"{kind} {g}"]) for g in SHARES if f"{kind} {g}" in found}
        for kind in ("continuous", "categorical")
    )
    return Check(
        rows=rows,
        path=gap("path", PathGap),
        marginalisation=gap("marginalisation", MarginalisationGap),
        ratio=gap("ratio", ratio),
        orders=gap("orders", OrderSpread),
        encoding=gap("encoding", partial(EncodingGap, is_one_pass=model.is_one_pass)),
        names=tuple(variable.name for variable in model.schema.variables),
        numbers={g: NumberCalibration(p.pit, p.variable, p.row) for g, p in numbers.items()},
        categories={g: CategoryCalibration(*part) for g, part in categories.items()},
    )
