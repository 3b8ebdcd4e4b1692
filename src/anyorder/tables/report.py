"""The report of a model of a table, on rows that it has not seen."""

import warnings
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from anyorder.cli.console import words
from anyorder.diagnostics.calibration import surprise_by_evidence
from anyorder.diagnostics.check import check_model
from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import AnyOrderWarning, QueryError, seeded
from anyorder.priors.tree_fit import dependence
from anyorder.report.page import Grid, Page, Panels, Picture, Section, Words
from anyorder.report.sections import (
    calibration_sections,
    column_figures,
    evidence_section,
    pair_figures,
    settings_section,
    training_section,
)
from anyorder.tables.answers import CHECKED_ROWS
from anyorder.tables.columns import CALENDAR, NumberColumn
from anyorder.tables.evaluation import GUESSED_ROWS, HEADINGS, column_skill
from anyorder.tables.model import TableModel
from anyorder.tables.parsing import read_datetimes, read_durations, read_floats
from anyorder.tables.questions import is_for_any
from anyorder.tables.schema import TableSchema

DRAWS = 2000
"""Number of samples to compare with real rows."""

COMPARED = 2000
"""Rows from which the dependence of columns is estimated."""

SHOWN_ROWS, SHOWN_COLUMNS, PAIRED = 8, 12, 4
"""Numbers of samples in the table, of columns with a plot, and of columns plotted in pairs."""


def table_report(
    model: TableModel,
    frame: pd.DataFrame,
    *,
    name: str,
    data: str,
    training: Path | None = None,
    seen: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> Page:
    """Evaluates a model and returns its report.

    The rows should be in random order, and better such as the model has not seen (`seen`). The
    first are checked, as many as `anyorder check` takes: with the same file and seed, both give the
    same numbers. The curve is that in the folder `training`.
    """
    table = model.table_
    x, missing = table.encode(frame)
    check = check_model(
        model.model_, x[:CHECKED_ROWS], missing[:CHECKED_ROWS], seed=seed, progress=progress
    )
    worth = surprise_by_evidence(model.model_, x, missing, generator=seeded(seed))
    joint = Estimate(torch.from_numpy(model.log_prob(frame)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AnyOrderWarning)  # the page says what it was trained for
        drawn = _samples(model, frame, seed)
    facts = [
        ("rows", f"{len(frame):,}"),
        ("columns", f"{len(table.names)}"),
        ("weights", f"{model.model_.num_parameters:,}"),
    ]
    sections = [
        *_skill_sections(model, x[:GUESSED_ROWS], missing[:GUESSED_ROWS]),
        _samples_section(table, frame, drawn, _related(model, x, missing)),
        evidence_section(worth, "cell", whole=joint),
        *calibration_sections(check, seen=seen),
        Section("Columns", [Grid(("column", "type", "details"), [*map(tuple, table.summary())])]),
        training_section(training, model.queries_, table.names, dimension="cell"),
        settings_section(model.get_params()),
    ]
    words = f"A model of a table: any columns given any others. Evaluated on {data}."
    return Page(f'The model "{name}"', words, sections, facts)


def _skill_sections(model: TableModel, x: Tensor, missing: Tensor) -> list[Section]:
    """Returns the section on the skill of columns, of a model that was trained for any query."""
    if not is_for_any(model.queries_):
        return []
    skill = column_skill(model.model_, model.table_, x, missing)
    rows = [(one.column, f"{one.cells:,}", *one.words) for one in skill]
    text = (
        "Each cell is predicted from the rest of its row: a number by its median, a category by "
        "its most probable level. Beside it: the best constant prediction for these rows. A column "
        "without gain is independent of the others, or the training was too short."
    )
    grid = Grid(HEADINGS, rows, HEADINGS[1:])
    return [Section("Prediction of each column from the others", [Words(text), grid])]


def _samples(model: TableModel, frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Samples rows of the model; context is that of real rows."""
    if not model.context:
        return model.sample(DRAWS, random_state=seed)
    given = frame[list(model.context)].sample(DRAWS, replace=True, random_state=seed)
    return model.impute(given.reset_index(drop=True), random_state=seed)


def _samples_section(
    table: TableSchema, frame: pd.DataFrame, drawn: pd.DataFrame, related: list[str]
) -> Section:
    without = {column.name for column in table.ignored}
    modelled = [name for name in table.layout if name not in without]
    names = [name for name in modelled if name in frame.columns]
    some = names[:SHOWN_COLUMNS]
    left = f" Of {len(names)} columns, the first {len(some)}." if len(some) < len(names) else ""
    printed = drawn[modelled].head(SHOWN_ROWS)
    rows = [[words(value) for value in row] for row in printed.itertuples(index=False)]
    measured = [name for name in modelled if isinstance(table[name], NumberColumn)]
    real, own = (_plottable(table, part) for part in (frame, drawn))
    return Section(
        "Samples beside real rows",
        [
            Words(f"{len(drawn):,} rows were sampled from the model, nothing given."),
            Panels(
                [
                    Picture(figure, f"Distribution of {name}, of rows and of samples")
                    for name, figure in column_figures(real[some], own[some]).items()
                ],
                "Real rows in blue, samples in orange: where they agree, the model has learnt the "
                f"column.{left}",
            ),
            Panels(
                [
                    Picture(figure, f"Scatter of {across} and {down}, of rows and of samples")
                    for (across, down), figure in pair_figures(real[related], own[related]).items()
                ],
                "The most dependent columns, in pairs: a dot is a row. The two plots of a pair "
                "should look alike.",
            ),
            Grid(modelled, rows, measured, caption="Some of the samples"),
        ],
    )


def _plottable(table: TableSchema, frame: pd.DataFrame) -> pd.DataFrame:
    """Returns rows as the model reads them: dates are dates, and markers missing values."""
    read = table.decode(*table.encode(frame))
    for column in (*table.query, *table.context):
        values, name = read[column.name], column.name
        if column.kind in CALENDAR:
            read[name] = read_datetimes(values, name, QueryError).dt.tz_localize(None)
        elif column.kind == "duration":
            read[name] = read_durations(values, name, QueryError) / pd.Timedelta(days=1)
        elif column.kind == "number":
            read[name] = read_floats(values, name, QueryError)
    return read


def _related(model: TableModel, x: Tensor, missing: Tensor) -> list[str]:
    """Returns the most dependent columns, in the order of the frame."""
    asked = len(model.table_.query)
    levels = [variable.num_levels for variable in model.table_.schema][:asked]
    information = dependence(x[:COMPARED, :asked], ~missing[:COMPARED], levels)
    there = ~missing.all(dim=0)  # a file may lack columns
    best = information.sum(dim=1).masked_fill(~there, -torch.inf).argsort(descending=True)
    best = best[: min(PAIRED, int(there.sum()))]
    names = [model.table_.names[place] for place in best.tolist()]
    return sorted(names, key=model.table_.layout.index)
