"""Checks a model on some rows: runs all diagnostics, in parts of bounded memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from anyorder.conditionals.heads import EnergyConditionals
from anyorder.diagnostics.calibration import CategoryCalibration, NumberCalibration
from anyorder.diagnostics.evidence import (
    EncodingGap,
    RatioGap,
    encoding_differences,
    walk_and_ratio,
)
from anyorder.diagnostics.marginalisation import (
    NODES,
    MarginalisationGap,
    marginalisation_differences,
)
from anyorder.diagnostics.orders import OrderSpread, PathGap, order_log_probs, path_differences
from anyorder.diagnostics.predictions import SHARES, Predictions, predictions
from anyorder.diagnostics.report import Check
from anyorder.errors import QueryError, check_seed, check_sets
from anyorder.model import AnyOrderModel
from anyorder.networks.contracts import PathNetwork
from anyorder.queries import answering, checked_question
from anyorder.training.progress import stderr_bar
from anyorder.variables import Kind

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
