"""Bayesian network learnt by pyAgrum: greedy hill climbing, BIC score. For categories only.

It is fitted to the rows without missing values. A row's likelihood is a product of the tables; p(of
some columns) is exact too, by lazy propagation, so conditionals are ratios.
"""

import numpy as np
import pyagrum as gum
from numpy.typing import NDArray

from benchmarks.rivals.bayesian_network import Codes, joint, learn
from benchmarks.rivals.task import Answers, Array, Task, work


def answer(task: Task, answers: Answers) -> None:
    """Learns a network, then answers what it can of."""
    if not task.categories.all():
        return
    names = [f"c{place}" for place in range(len(task.columns))]
    sizes = [column.levels for column in task.columns]
    path = answers.folder / "whole.csv"
    header = ",".join(names)
    np.savetxt(path, task.whole_rows(), "%d", ",", header=header, comments="")
    network = answers.time("fit", lambda: learn(path, names, sizes))
    test, have = np.nan_to_num(task.test).astype(np.int64), ~np.isnan(task.test)

    def known(there: NDArray[np.bool_]) -> Array:
        return log_evidence(network, names, test, there)

    with np.errstate(divide="ignore"):
        whole = bool(have.all())
        answers.time("joint", lambda: joint(network, test) if whole else known(have))
        answers.time("conditional", lambda: known(have) - known(have & task.given))


def log_evidence(
    network: gum.BayesNet, names: list[str], rows: Codes, known: NDArray[np.bool_]
) -> Array:
    """Returns the log probability of the known columns of each row."""
    engine, found = gum.LazyPropagation(network), np.zeros(len(rows))
    for number, (row, there) in enumerate(zip(rows, known, strict=True)):
        places = np.flatnonzero(there)
        if len(places):
            engine.setEvidence({names[place]: int(row[place]) for place in places})
            found[number] = np.log(engine.evidenceProbability())
    return found


if __name__ == "__main__":
    work(answer)
