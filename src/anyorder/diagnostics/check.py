"""All diagnostics of a model on some rows: numbers, a sentence each, JSON and plots.

Checks a model on some rows: runs all diagnostics, in parts of bounded memory.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anyorder.diagnostics.calibration import (
    LEVELS,
    CategoryCalibration,
    ColumnCalibration,
    NumberCalibration,
    by_column,
)
from anyorder.diagnostics.gaps import (
    EncodingGap,
    OrderSpread,
    PathGap,
    RatioGap,
    encoding_differences,
    order_log_probs,
    path_differences,
    percent,
    walk_and_ratio,
)
from anyorder.diagnostics.marginalisation import (
    NODES,
    MarginalisationGap,
    marginalisation_differences,
)
from anyorder.diagnostics.predictions import SHARES, Predictions, predictions
from anyorder.errors import ConfigError, QueryError, check_seed, check_sets
from anyorder.heads.energy import EnergyConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import answering, checked_question
from anyorder.networks.contracts import PathNetwork
from anyorder.training.progress import stderr_bar
from anyorder.variables import Kind

SUSPICIOUS = 0.01
"""A p-value below this is not taken for chance: the share of false alarms of a sentence."""

DOUBTFUL = 0.1
"""A p-value between these two is worth another look."""

OFF = 0.05
"""Probabilities that are off by this much mislead."""


@dataclass(frozen=True, repr=False)
class Check:
    """What a model was found to be like on some rows; prints as its sentences.

    Gaps are None where no row has two cells, or where the network cannot walk another order;
    calibrations are by how much of a row was given.

    Args:
        rows: How many rows there were.
        path: Along another order.
        marginalisation: With a variable summed out.
        ratio: Conditionals as ratios.
        orders: Whole rows along several orders.
        encoding: Evidence as evidence or along the path.
        names: Of the variables.
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
        """The calibration of each variable, that with the least p-value first."""
        return by_column([*self.numbers.values(), *self.categories.values()], self.names)

    def columns_off(self) -> list[ColumnCalibration]:
        """Those that are further off than chance explains, the one that is off the most first."""
        found = self.columns()
        off = [column for column in found if column.p_value * len(found) < SUSPICIOUS]
        return sorted(off, key=lambda column: -column.distance)

    def sentences(self) -> list[str]:
        """What the numbers mean, one plain sentence each."""
        return [*self.gap_sentences(), *self.calibration_sentences()]

    def gap_sentences(self) -> list[str]:
        """How far it agrees with itself."""
        gaps = (self.path, self.marginalisation, self.ratio, self.orders, self.encoding)
        return [gap.sentence for gap in gaps if gap is not None]

    def calibration_sentences(self) -> list[str]:
        """Whether its probabilities hold."""
        found = []
        if self.numbers:
            found.append(_numbers_sentence(self.numbers))
        if self.categories:
            found.append(_categories_sentence(self.categories))
        return [*found, self._columns_sentence()]

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def _columns_sentence(self) -> str:
        off = self.columns_off()
        if not off:
            return "Taken one by one, no column is further off than chance explains."
        return (
            f"The probabilities of {len(off)} of {len(self.columns())} columns are further off "
            f'than chance explains, those of "{off[0].name}" the most: by up to '
            f"{_points(off[0].distance)}."
        )

    def to_json(self) -> dict[str, Any]:
        """All numbers as plain values, and the sentences."""
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
        """Draws calibration: PIT histograms, coverage by evidence, reliability.

        Args:
            folder: Where to write them as .png files; None writes nothing.

        Returns:
            The figures of matplotlib by name.
        """
        try:
            from anyorder.diagnostics.plots import figures
        except ImportError:
            raise ConfigError('Plots need matplotlib: pip install "anyorder[plot]".') from None
        drawn = figures(self.numbers, self.categories)
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for name, figure in drawn.items():
                figure.savefig(Path(folder) / f"{name}.png", dpi=160)
        return drawn


def _numbers_sentence(found: Mapping[str, NumberCalibration]) -> str:
    """How many values lie in the widest intervals, as its plot has it, and whether all is well."""
    level = LEVELS[-1]
    each = [part.coverage(level) for part in found.values()]
    shares = [part.value for part in each]
    mean = float(torch.cat([part.rows for part in each]).mean())
    held = (
        f"Numbers: {level:.0%} intervals hold {mean:.1%} of the values "
        f"({min(shares):.1%} to {max(shares):.1%}, depending on how much is given)"
    )
    chances = {given: part.off_p_value for given, part in found.items()}
    off = [given for given in found if _is_real(chances, given)]
    if not off:
        return f"{held}. {_no_blame(chances)}."
    worst = max(off, key=lambda given: found[given].distance)
    distance = found[worst].distance
    return (
        f"{held}. With {worst} given, stated probabilities are off by up to {_points(distance)}, "
        f"{_blame(distance)}."
    )


def _categories_sentence(found: Mapping[str, CategoryCalibration]) -> str:
    """How sure of its best guess the model is, how often it is right, and whether all is well."""
    hits, sure = (
        torch.cat([getattr(part, name) for part in found.values()]).double()
        for name in ("hit", "confidence")
    )
    held = (
        f"Categories: the most probable level is said to be right in {float(sure.mean()):.1%} of "
        f"the cases, and is in {float(hits.mean()):.1%}"
    )
    chances = {given: part.hit_p_value for given, part in found.items()}
    off = [given for given in found if _is_real(chances, given)]
    if not off:
        return f"{held}. {_no_blame(chances)}."
    worst = max(off, key=lambda given: found[given].error_beyond_chance)
    part, error = found[worst], found[worst].expected_error
    said = part.accuracy.value + part.overconfidence.value
    return (
        f"{held}. With {worst} given, it is said to be in {said:.1%} and is in "
        f"{percent(part.accuracy)}, and stated probabilities are off by {_points(error)} on "
        f"average, {_blame(error)}."
    )


def _points(share: float) -> str:
    """A difference of two percentages."""
    return f"{100 * share:.1f} percentage points"


def _is_real(chances: Mapping[str, float], given: str) -> bool:
    """Whether chance does not explain what was found with so much given.

    Bonferroni's correction: one amount of several is looked at. It holds although the same rows
    are there with more or less given.
    """
    return len(chances) * chances[given] < SUSPICIOUS


def _no_blame(chances: Mapping[str, float]) -> str:
    """What to think of probabilities that chance may have put so far off."""
    share = len(chances) * min(chances.values())  # that chance does it with one of the amounts
    often = "may well look as far off"
    if share <= 0.5:
        often = f"would look as far off in up to {share:.0%} of such checks"
    meaning = "nothing speaks against these probabilities"
    if share < DOUBTFUL:
        meaning = "that is no proof against these probabilities, but reason to check more rows"
    return f"By chance, a perfect model {often}: {meaning}"


def _blame(distance: float) -> str:
    """What to think of probabilities that are really so far off."""
    rarely = f"more than a perfect model would be in {1 - SUSPICIOUS:.0%} of such checks"
    if distance < OFF:
        return f"{rarely}: that is real, but too little to matter for most uses"
    return f"{rarely}: do not take them at their word"


ORDERS = 8
"""Random orders along which whole rows are walked."""

ALONG_OTHERS = {"path", "orders"}
"""Diagnostics that walk along other orders than the model's own."""

CELLS = 250_000
"""Cells that a diagnostic reads in all: fewer rows where each takes many passes."""

FEWEST = 100
"""Rows of a diagnostic, however many cells they have."""

SLOW_ROWS = 30
"""Rows of a diagnostic of energies, whose every edge is an integral over thousands of points."""

CELLS_AT_ONCE = 25_000
"""Cells of a part, after which progress is shown."""

Found = tuple[Tensor, ...]


@dataclass(frozen=True)
class Stage:
    """One diagnostic.

    Args:
        title: What is shown meanwhile.
        passes: How many times it reads a row, about.
        least: Cells that a row must have.
        run: From values, what the rows have and their numbers to tensors whose last dimension is
            the rows.
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
        missing: Their gaps. Shape ``(rows, vars)``.
        seed: Of the sets that are asked.
        progress: Whether a line shows how far it is.
    """
    generator = torch.Generator().manual_seed(check_seed(seed))
    gaps = check_sets("missing", missing, model.num_variables)
    if gaps.all():
        raise QueryError("A check needs a row that has a value.")
    x, have, _ = checked_question(model, x, ~gaps, None)
    found = dict(_run(model, _stages(model, generator), x, have, progress))
    return _check(model, len(x), found)


def _stages(model: AnyOrderModel, generator: torch.Generator) -> dict[str, Stage]:
    """All diagnostics by name; they draw from one generator, one after another."""

    def each(function: Callable[..., Tensor]) -> Callable[[Tensor, Tensor, Tensor], Found]:
        return lambda x, have, _: (function(model, x, have, generator=generator),)

    def ratio(x: Tensor, have: Tensor, _: Tensor) -> Found:
        return walk_and_ratio(model, x, have, generator=generator)

    def predicted(x: Tensor, have: Tensor, rows: Tensor, *, kind: Kind, share: float) -> Found:
        found = predictions(model, x, have, kind=kind, share=share, generator=generator)
        return found._replace(row=rows.cpu()[found.row])

    # A masked network takes a pass for each variable asked, but cheaper ones.
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
    """What each diagnostic found on the rows that it can use, if there are any."""
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
    """The rows that a diagnostic reads."""
    most = max(FEWEST, CELLS // (stage.passes * model.num_variables))
    most = SLOW_ROWS if _has_energies(model) else most
    return (have.sum(dim=1) >= stage.least).nonzero().squeeze(1)[:most]


def _check(model: AnyOrderModel, rows: int, found: dict[str, Found]) -> Check:
    ratio = None
    if "ratio" in found:
        walk, other, is_mass = found["ratio"]
        ratio = RatioGap(other - walk, other[is_mass])
    encoding = None
    if "encoding" in found:
        encoding = EncodingGap(found["encoding"][0], model.is_one_pass)
    numbers, categories = (
        {g: Predictions(*found[f"{kind} {g}"]) for g in SHARES if f"{kind} {g}" in found}
        for kind in ("continuous", "categorical")
    )
    return Check(
        rows=rows,
        path=PathGap(found["path"][0]) if "path" in found else None,
        marginalisation=(
            MarginalisationGap(found["marginalisation"][0]) if "marginalisation" in found else None
        ),
        ratio=ratio,
        orders=OrderSpread(found["orders"][0]) if "orders" in found else None,
        encoding=encoding,
        names=tuple(variable.name for variable in model.schema.variables),
        numbers={
            given: NumberCalibration(part.pit, part.variable, part.row)
            for given, part in numbers.items()
        },
        categories={given: CategoryCalibration(*part) for given, part in categories.items()},
    )
