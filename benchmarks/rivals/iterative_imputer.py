"""scikit-learn's IterativeImputer as it comes: Bayesian ridge regressions, round and round.

It knows numbers only: a category is a column for each of its levels but the first, whose share is
what the others leave, and the greatest wins. With a column for every level each would follow from
the others, and a hole would keep what it was first filled with. The imputer is fitted to the rows
with holes too, because on rows without holes it stops after one round.
"""

import warnings

import numpy as np

# It must be switched on before it can be imported.
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from benchmarks.rivals.task import Answers, Array, Task, work


def answer(task: Task, answers: Answers) -> None:
    """Fills holes; there are no likelihoods."""
    warnings.simplefilter("ignore")  # it says each time that ten rounds were not enough
    gaps, both = _wide(task, task.gaps), _wide(task, np.concatenate([task.train, task.gaps]))
    imputer = IterativeImputer(random_state=task.seed)
    answers.time("fit", lambda: imputer.fit(both))
    answers.time("point", lambda: _narrow(task, imputer.transform(gaps)))
    sampler = IterativeImputer(random_state=task.seed, sample_posterior=True)
    answers.time("draws_fit", lambda: sampler.fit(both))
    # Each transform draws anew.
    answers.draw(task.draws, lambda: _narrow(task, sampler.transform(gaps)))


def _wide(task: Task, rows: Array) -> Array:
    """A column for each level of a category but the first, all NaN in a gap."""
    parts = []
    for place, column in enumerate(task.columns):
        values = rows[:, [place]]
        if column.is_category:
            hits = (values == np.arange(1, column.levels)).astype(np.float64)
            values = np.where(np.isnan(values), np.nan, hits)
        parts.append(values)
    return np.concatenate(parts, axis=1)


def _narrow(task: Task, rows: Array) -> Array:
    parts, start = [], 0
    for column in task.columns:
        width = column.levels - 1 if column.is_category else 1
        part = rows[:, start : start + width]
        if column.is_category:
            shares = np.concatenate([1 - part.sum(axis=1, keepdims=True), part], axis=1)
            parts.append(shares.argmax(axis=1))
        else:
            parts.append(part[:, 0])
        start += width
    return np.stack(parts, axis=1).astype(np.float64)


if __name__ == "__main__":
    work(answer)
