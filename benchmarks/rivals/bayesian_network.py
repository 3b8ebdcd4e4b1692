"""Known Bayesian networks by pyAgrum: rows, exact answers, and a network learnt from the rows.

Reads from its folder:

    network.bif     the truth
    settings.json   train_rows, test_rows, questions (of each size), seed

and writes:

    schema.json     names and levels of the columns, in the order of the file
    train.csv       training rows, coded by their levels; test.csv, held-out rows
    questions.json  questions about the held-out rows; see `questions`
    truth.json      exact answers, and the log-likelihoods of the held-out rows
    learnt.json     the same of a network that is learnt from the training rows

Rows are sampled by numpy from the tables of the network, so that they depend on the seed only.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyagrum as gum
from numpy.typing import NDArray

from benchmarks.rivals.questions import (
    Answers,
    Array,
    Question,
    read_rows,
    sample_questions,
    write_answers,
    write_questions,
    write_rows,
)

PSEUDO_COUNT = 0.1
"""Pseudo-count of each cell of a table of the learnt network. Without any, levels that never occur
together are impossible; with 1, alarm's held-out rows lose 0.07 nats."""

Codes = NDArray[np.int64]


def main(folder: Path) -> None:
    """Answers everything in a folder."""
    settings = json.loads((folder / "settings.json").read_text())
    truth = load(folder / "network.bif")
    names = _names(truth)
    levels = [list(truth.variable(name).labels()) for name in names]
    (folder / "schema.json").write_text(json.dumps({"names": names, "levels": levels}))
    rng = np.random.default_rng(settings["seed"])
    for part in ("train", "test"):
        rows = sample(truth, settings[f"{part}_rows"], rng)
        write_rows(folder / f"{part}.csv", rows.astype(np.float64), names)
    test = read_rows(folder / "test.csv").astype(np.int64)
    questions = sample_questions(
        len(names), len(test), number=settings["questions"], seed=settings["seed"]
    )
    write_questions(folder / "questions.json", questions)
    write_answers(folder / "truth.json", answered(truth, test, questions, 0.0))
    start = time.process_time()
    learnt = learn(folder / "train.csv", names, [len(one) for one in levels])
    seconds = time.process_time() - start
    write_answers(folder / "learnt.json", answered(learnt, test, questions, seconds))


def load(path: Path) -> Any:
    """Returns a network; its rounded tables are normalised."""
    network = gum.loadBN(str(path))
    for name in _names(network):
        network.cpt(name).normalizeAsCPT()
    return network


def learn(path: Path, names: list[str], sizes: list[int]) -> Any:
    """Learns a network by greedy hill climbing with the BIC score; it knows all levels."""
    template = gum.BayesNet()
    for name, size in zip(names, sizes, strict=True):
        template.add(gum.LabelizedVariable(name, name, [str(level) for level in range(size)]))
    learner = gum.BNLearner(str(path), template)
    learner.setNumberOfThreads(1)
    learner.useGreedyHillClimbing()
    learner.useScoreBIC()
    learner.useSmoothingPrior(PSEUDO_COUNT)
    return learner.learnBN()


def sample(network: Any, rows: int, rng: np.random.Generator) -> Codes:
    """Samples rows, each column after its parents."""
    names = _names(network)
    found = np.zeros((rows, len(names)), dtype=np.int64)
    for place, parents, table in _tables(network):
        below = table[tuple(found[:, parent] for parent in parents)].cumsum(axis=-1)
        below = np.broadcast_to(below, (rows, table.shape[-1]))
        # The last level takes what rounding leaves.
        found[:, place] = (rng.random((rows, 1)) >= below[:, :-1]).sum(axis=1)
    return found


def answered(network: Any, test: Codes, questions: list[Question], seconds: float) -> Answers:
    """Returns the exact answers of a network, by lazy propagation."""
    names, engine = _names(network), gum.LazyPropagation(network)
    logs = []
    with np.errstate(divide="ignore"):
        for question in questions:
            engine.eraseAllEvidence()
            engine.eraseAllTargets()
            target = names[question.target]
            engine.addTarget(target)
            row = test[question.row]
            engine.setEvidence({names[place]: int(row[place]) for place in question.given})
            engine.makeInference()
            logs.append(np.log(engine.posterior(target).toarray().astype(np.float64)))
        return Answers(logs, joint(network, test), seconds)


def joint(network: Any, rows: Codes) -> Array:
    """Returns the log-likelihood of each row."""
    total = np.zeros(len(rows))
    for place, parents, table in _tables(network):
        total += np.log(table[tuple(rows[:, column] for column in (*parents, place))])
    return total


def _tables(network: Any) -> Iterator[tuple[int, list[int], Array]]:
    """Yields each column after its parents: their places and its table, its levels last."""
    names = _names(network)
    for node in network.topologicalOrder():
        name = network.variable(node).name()
        table = network.cpt(name)
        parents = [names.index(parent) for parent in reversed(table.names[1:])]
        yield names.index(name), parents, table.toarray().astype(np.float64)


def _names(network: Any) -> list[str]:
    return [network.variable(node).name() for node in sorted(network.nodes())]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
