"""UnmaskingTrees with its defaults: gradient-boosted trees that unmask columns in random orders.

Its likelihoods are means over random orders, a lower bound. Its densities are trees of bins, which
diverge at repeated values, so they are left out for tables with rounded numbers.
"""

import contextlib
import io

import numpy as np
from utrees import UnmaskingTrees

from benchmarks.rivals.task import Answers, Column, Task, work


def answer(task: Task, answers: Answers) -> None:
    """Fits, imputes missing cells, and scores rows without rounded numbers."""
    model = UnmaskingTrees(random_state=task.seed)
    kinds = [_kind(column) for column in task.columns]
    answers.time("fit", lambda: model.fit(task.train.copy(), quantize_cols=kinds))
    with contextlib.redirect_stderr(io.StringIO()):  # it prints a line for every sample
        answers.draw(task.draws, lambda: model.impute(X=task.gaps.copy())[0])
    if all(column.step is None for column in task.columns):
        answers.time("joint", lambda: np.asarray(model.score_samples(task.test.copy())))


def _kind(column: Column) -> str:
    if column.is_category:
        return "categorical"
    return "integer" if column.step == 1 else "continuous"


if __name__ == "__main__":
    work(answer)
