"""Stands in for pyAgrum: a Bayesian network of four columns, answered by enumeration in numpy.

A cold makes sneezing likely; pollen too, and sneezing decides among three remedies.
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.rivals.questions import (
    Answers,
    sample_questions,
    write_answers,
    write_questions,
    write_rows,
)

NAMES = ["remedy", "sneeze", "cold", "pollen"]
LEVELS = [["tea", "pill", "none"], ["yes", "no"], ["no", "yes"], ["low", "high"]]
COLD, POLLEN = np.array([0.8, 0.2]), np.array([0.7, 0.3])
SNEEZE = np.array([[[0.1, 0.9], [0.6, 0.4]], [[0.9, 0.1], [0.95, 0.05]]])  # [cold, pollen]
REMEDY = np.array([[0.5, 0.5, 0.0], [0.1, 0.0, 0.9]])  # of those who sneeze, and the others
JOINT = np.einsum("sr,cps,c,p->rscp", REMEDY, SNEEZE, COLD, POLLEN)


def conditional(given, target, joint=JOINT):
    """p(target | given), by sums over all worlds; `given` has codes by column."""
    weights = np.zeros(joint.shape[target])
    for world in itertools.product(*map(range, joint.shape)):
        if all(world[column] == code for column, code in given.items()):
            weights[world[target]] += joint[world]
    return weights / weights.sum()


def answered(joint, test, questions, seconds=0.0):
    with np.errstate(divide="ignore"):
        logs = [
            np.log(conditional({i: test[q.row, i] for i in q.given}, q.target, joint))
            for q in questions
        ]
        return Answers(logs, np.log(joint[tuple(test.T)]), seconds)


def main(folder):
    settings = json.loads((folder / "settings.json").read_text())
    if (folder / "network.bif").read_text() == "fail":
        raise SystemExit("Nothing works here.")
    (folder / "schema.json").write_text(json.dumps({"names": NAMES, "levels": LEVELS}))
    rng, worlds = np.random.default_rng(settings["seed"]), np.argwhere(JOINT >= 0)
    rows = {}
    for part in ("train", "test"):
        chosen = rng.choice(len(worlds), settings[f"{part}_rows"], p=JOINT.ravel())
        rows[part] = worlds[chosen]
        write_rows(folder / f"{part}.csv", rows[part].astype(float), NAMES)
    size, seed = len(rows["test"]), settings["seed"]
    questions = sample_questions(4, size, number=settings["questions"], seed=seed)
    write_questions(folder / "questions.json", questions)
    write_answers(folder / "truth.json", answered(JOINT, rows["test"], questions))
    counts = np.zeros(JOINT.shape)
    np.add.at(counts, tuple(rows["train"].T), 1)
    learnt = (counts + 0.1) / (counts + 0.1).sum()
    write_answers(folder / "learnt.json", answered(learnt, rows["test"], questions, 1.5))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
