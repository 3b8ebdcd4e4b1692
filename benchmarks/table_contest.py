"""One model on one set: our own in this process, a rival in its environment; both scored alike."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from anyorder.diagnostics.evaluation import Estimate
from anyorder.tables.model import TableModel
from anyorder.tables.questions import Queries
from benchmarks.cell_likelihood import cell_log_prob
from benchmarks.rival_environments import Rival, RivalError, environment, run_worker
from benchmarks.rivals.task import Answers, Array, read_answers
from benchmarks.table_scores import LIKELIHOODS, imputation, likelihood
from benchmarks.table_task import TableTask

FILLS = ("point", "draws")
NO_LEVEL = -1.0


@dataclass
class Scored:
    """What one model reached on one set: scores, seconds, and why something is not there."""

    scores: dict[str, Estimate] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    reason: str | None = None


def ours(task: TableTask, minutes: float, queries: Queries = "any") -> Scored:
    """Our model, in this process, from the frames as users have them."""
    have, given = (torch.from_numpy(part) for part in (task.have, task.task.given))
    nothing, kept = torch.zeros_like(given), {}
    with tempfile.TemporaryDirectory() as folder:
        answers = Answers(Path(folder))
        table_model = TableModel(queries=queries, minutes=minutes, clock="processor")
        model = answers.time("fit", lambda: table_model.fit(task.train))

        def nats(query: torch.Tensor, known: torch.Tensor) -> Array:
            steps = task.steps
            return cell_log_prob(model, task.test, query=query, given=known, steps=steps).numpy()

        def drawn() -> Array:
            draws = task.task.draws
            filled = model.impute(task.gappy, draws=draws, random_state=task.task.seed)
            return task.codes(filled).reshape(draws, len(task.test), -1)

        kept["joint"] = answers.time("joint", lambda: nats(have, nothing))
        kept["conditional"] = answers.time("conditional", lambda: nats(have & ~given, given))
        kept["point"] = answers.time(
            "point", lambda: task.codes(model.impute(task.gappy, how="mean"))
        )
        kept["draws"] = answers.time("draws", drawn)
    return scored(task, kept, answers.seconds)


def theirs(task: TableTask, rival: Rival, environments: Path, *, minutes: float) -> Scored:
    """A rival, in its environment; what it cannot do is left out, and why is noted."""
    reason = None
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        task.task.save(folder)
        try:
            python = environment(rival, environments)
        except RivalError as error:
            return Scored(reason=f"cannot be installed: {error}")
        try:
            run_worker(rival, python, folder, minutes=minutes)
        except RivalError as error:
            reason = str(error)
        answers, seconds = read_answers(folder)
    result = scored(task, answers, seconds)
    result.reason = reason
    return result


def scored(task: TableTask, answers: Mapping[str, Array], seconds: Mapping[str, float]) -> Scored:
    """All scores of a model's answers."""
    result = Scored(counts={f"{name}_seconds": value for name, value in seconds.items()})
    for name in LIKELIHOODS:
        if name in answers:
            result.scores[f"{name}_nats"], lost = likelihood(answers[name])
            result.counts[f"{name}_impossible_rows"] = lost
    fills = {name: answers[name] for name in FILLS if name in answers}
    if "draws" in fills:
        result.counts["draws"] = len(fills["draws"])  # fewer of a rival that was stopped
    for name, rows in fills.items():
        result.counts[f"{name}_changed_cells"] = _changed(task, rows)
        fills[name], result.counts[f"{name}_empty_cells"] = _without_gaps(task, rows)
    result.scores |= imputation(task, fills)
    return result


def _without_gaps(task: TableTask, rows: Array) -> tuple[Array, int]:
    """Holes that a model left: the mean of a number, no level of a category; how many."""
    empty = np.isnan(rows) & task.holes
    means = np.where(task.task.categories, NO_LEVEL, np.nanmean(task.task.train, axis=0))
    return np.where(empty, means, rows), int(empty.sum())


def _changed(task: TableTask, rows: Array) -> int:
    """Known cells that came back as something else: rows in another order, or a worker's mistake.

    The scores of such a model are not to be believed.
    """
    known = ~np.isnan(task.task.gaps)
    return int((~np.isclose(rows, task.task.gaps, rtol=1e-5) & known).sum())  # some use float32
