"""A rival that needs numpy only: half the rows are impossible to it, and one hole stays empty."""

import itertools

import numpy as np

from benchmarks.rivals.task import Answers, Task, work


def answer(task: Task, answers: Answers) -> None:
    answers.time("fit", lambda: None)
    logs = np.where(np.arange(len(task.test)) % 2, -3.0, -np.inf)
    answers.time("joint", lambda: logs)
    filled = np.where(np.isnan(task.gaps), task.train[0], task.gaps)
    row, place = np.argwhere(np.isnan(task.gaps))[0]
    filled[row, place] = np.nan
    further = itertools.count()
    answers.draw(task.draws, lambda: filled + ~task.categories * next(further))
    if task.columns[0].name == "fail":
        raise SystemExit("Nothing works here.")
    while task.columns[0].name == "spin":
        pass


if __name__ == "__main__":
    work(answer)
