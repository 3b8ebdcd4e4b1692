"""miceforest with its defaults: chained LightGBM regressions with mean matching."""

import itertools
import warnings

import miceforest
import numpy as np
import pandas as pd

from benchmarks.rivals.task import Answers, Array, Task, work

ROUNDS = 5
"""Rounds in the examples of its documentation."""


def answer(task: Task, answers: Answers) -> None:
    """Imputes missing cells by samples, each of its own fit; there are no likelihoods."""
    warnings.simplefilter("ignore")
    frame = _frame(task, np.concatenate([task.train, task.gaps]))
    seeds = itertools.count(task.seed)

    def fitted() -> "miceforest.ImputationKernel":
        kernel = miceforest.ImputationKernel(
            frame, num_datasets=1, random_state=next(seeds), save_all_iterations_data=False
        )
        kernel.mice(ROUNDS)
        return kernel

    first = [answers.time("fit", fitted)]
    answers.draw(task.draws, lambda: _sampled(task, first.pop() if first else fitted()))


def _frame(task: Task, rows: Array) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=[f"c{place}" for place in range(rows.shape[1])])
    for place, column in enumerate(task.columns):
        if column.is_category:
            codes = pd.array(rows[:, place], dtype="Int64")
            frame[f"c{place}"] = pd.Categorical(codes, categories=range(column.levels))
            frame[f"c{place}"] = frame[f"c{place}"].cat.remove_unused_categories()
    return frame


def _sampled(task: Task, kernel: "miceforest.ImputationKernel") -> Array:
    filled = kernel.complete_data(dataset=0).iloc[-len(task.gaps) :]
    return np.stack([filled[name].to_numpy(dtype=np.float64) for name in filled], axis=1)


if __name__ == "__main__":
    work(answer)
