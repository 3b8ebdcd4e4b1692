"""scikit-learn's IterativeImputer with its defaults: chained Bayesian ridge regressions.

It handles only numbers, so a category is a dummy column for each level but the first, whose share
is the remainder, and the largest share wins. With a column for every level each would follow from
the others, and a missing cell would keep its initial value. The imputer is fitted to the rows with
missing cells too, because on complete rows it stops after one round.
"""

import warnings

import numpy as np

# It must be switched on before it can be imported.
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from benchmarks.rivals.task import Answers, Array, Task, work


def answer(task: Task, answers: Answers) -> None:
    """Imputes missing cells; there are no likelihoods."""
    warnings.simplefilter("ignore")  # it warns each time that ten rounds were not enough
    gaps, both = _wide(task, task.gaps), _wide(task, np.concatenate([task.train, task.gaps]))
    imputer = IterativeImputer(random_state=task.seed)
    answers.time("fit", lambda: imputer.fit(both))
    answers.time("point", lambda: _narrow(task, imputer.transform(gaps)))
    sampler = IterativeImputer(random_state=task.seed, sample_posterior=True)
    answers.time("draws_fit", lambda: sampler.fit(both))
    # Each transform samples anew.
    answers.draw(task.draws, lambda: _narrow(task, sampler.transform(gaps)))


def _wide(task: Task, rows: Array) -> Array:
    """Codes each level of a category but the first as a column, all NaN if it is missing."""
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
