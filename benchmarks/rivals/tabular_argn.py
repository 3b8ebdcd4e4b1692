"""MOSTLY AI's TabularARGN with its defaults: an any-order network over bins and digits.

Its likelihoods are of bins and of whole rows, so they count only for tables of categories.
"""

import numpy as np
import pandas as pd
from mostlyai.engine import TabularARGN

from benchmarks.rivals.task import Answers, Array, Task, work


def answer(task: Task, answers: Answers) -> None:
    """Fits, scores tables of categories, and imputes missing cells."""
    # Value protection merges rare values for privacy, which lowers the likelihood.
    model = TabularARGN(value_protection=False, random_state=task.seed, verbose=0)
    answers.time("fit", lambda: model.fit(_frame(task, task.train)))
    if task.categories.all():
        answers.time("joint", lambda: model.log_prob(_frame(task, task.test)))
    gaps = _frame(task, task.gaps)
    answers.draw(task.draws, lambda: _rows(task, model.impute(gaps)))


def _frame(task: Task, rows: Array) -> pd.DataFrame:
    """Returns a frame with categories as text, so that they are not treated as numbers."""
    found = {}
    for place, column in enumerate(task.columns):
        values = pd.Series(rows[:, place])
        if column.is_category:
            values = values.map(lambda code: None if np.isnan(code) else f"L{code:.0f}")
        elif column.step == 1:
            values = values.astype("Int64")
        found[f"c{place}"] = values
    return pd.DataFrame(found)


def _rows(task: Task, frame: pd.DataFrame) -> Array:
    parts = []
    for place, column in enumerate(task.columns):
        values = frame[f"c{place}"]
        if column.is_category:
            values = values.str.removeprefix("L")
        parts.append(pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64))
    return np.stack(parts, axis=1)


if __name__ == "__main__":
    work(answer)
