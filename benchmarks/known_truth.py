"""Tables whose distribution is known, questions about them, and the divergence of answers from it.

The score of a question is KL(truth || answer), in nats: the sum over the levels of a category, or
over the quadrature nodes of a number, of w (log p - log q). It is zero for the exact answer only.
"""

import gzip
import json
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import ConfigError
from benchmarks.location_model import LocationModel, Nodes
from benchmarks.rival_environments import (
    NETWORK_FILES,
    NETWORKS,
    RivalError,
    environment,
    run_worker,
    wheel,
)
from benchmarks.rivals.questions import (
    Answers,
    Array,
    Question,
    read_answers,
    read_questions,
    read_rows,
    sample_questions,
    sizes_of,
)
from benchmarks.rivals.task import Column

FREQUENCIES, LEARNT = "frequencies", "learnt_network"

PSEUDO_COUNT = 0.5
"""Pseudo-count of each level in the frequencies of a column (Jeffreys' prior)."""

FLOOR = 1e-12
"""Least probability or density of an answer, so that one wrong zero is not an infinite mean."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a task.

    Args:
        train_rows: Number of training rows.
        test_rows: Number of held-out rows.
        questions: Number of questions with so many columns given.
        seed: Seed of rows and questions.
    """

    train_rows: int = 10_000
    test_rows: int = 2000
    questions: int = 500
    seed: int = 0


@dataclass(frozen=True)
class Known:
    """A table whose distribution is known.

    Args:
        columns: Columns, with their kinds.
        levels: Labels of the levels of each column; none of a number.
        train: Training rows; categories are coded by their levels.
        test: Held-out rows.
        questions: Questions about the held-out rows.
        nodes: Points and weights of each question by the truth.
        truth: Exact answers at the points.
        others: Answers of other models, by name.
    """

    columns: list[Column]
    levels: list[list[str]]
    train: Array
    test: Array
    questions: list[Question]
    nodes: list[Nodes]
    truth: Answers
    others: dict[str, Answers] = field(default_factory=dict)

    def frame(self, rows: Array) -> pd.DataFrame:
        """Returns rows as a frame; its categories know all levels, those that never occur too."""
        parts = {}
        for column, levels, values in zip(self.columns, self.levels, rows.T, strict=True):
            if column.is_category:
                parts[column.name] = pd.Categorical.from_codes(
                    values.astype(np.int64), categories=levels
                )
            else:
                parts[column.name] = values
        return pd.DataFrame(parts)

    def values(self, target: int, points: Array) -> list[str] | Array:
        """Returns points of a column as its values: labels of a category, numbers of a number."""
        if not self.columns[target].is_category:
            return points
        return [self.levels[target][int(point)] for point in points]

    def evidence(self, question: Question) -> dict[str, str | float]:
        """Returns the given values of a question by the names of the columns."""
        row = self.test[question.row]
        found: dict[str, str | float] = {}
        for place in question.given:
            column = self.columns[place]
            label = column.is_category
            found[column.name] = self.levels[place][int(row[place])] if label else float(row[place])
        return found


@dataclass(frozen=True)
class Measured:
    """Scores of a model on a table, fitted with one or several seeds.

    Args:
        divergence: KL(truth || answer). Shape ``(seeds, questions)``.
        joint: Log-likelihood of the held-out rows. Shape ``(seeds, rows)``.
        seconds: CPU seconds of each fit. Shape ``(seeds,)``.
        zeros: Number of questions, over all seeds, with an answer below `FLOOR`.
    """

    divergence: Array
    joint: Array
    seconds: Array
    zeros: int

    def over_questions(self, asked: NDArray[np.bool_]) -> Estimate:
        """Returns the mean over questions, each averaged over seeds first."""
        return Estimate(torch.from_numpy(self.divergence[:, asked].mean(axis=0)))

    def over_seeds(self, asked: NDArray[np.bool_]) -> Estimate:
        """Returns the mean over seeds, each averaged over questions first."""
        return Estimate(torch.from_numpy(self.divergence[:, asked].mean(axis=1)))

    def joint_rows(self) -> Estimate:
        """Returns the mean log-likelihood over rows, each averaged over seeds first."""
        return Estimate(torch.from_numpy(self.joint.mean(axis=0)))


def measured(known: Known, answers: Iterable[Answers]) -> Measured:
    """Scores the answers of a model, one for each seed."""
    each = list(answers)
    divergences, zeros = zip(*(divergence(known, one) for one in each), strict=True)
    return Measured(
        np.stack(divergences),
        np.stack([one.joint for one in each]),
        np.array([one.seconds for one in each]),
        sum(zeros),
    )


def divergence(known: Known, answers: Answers) -> tuple[Array, int]:
    """Returns KL(truth || answer) of each question, and the number of those with a wrong zero."""
    found, zeros = [], 0
    for nodes, truth, logs in zip(known.nodes, known.truth.logs, answers.logs, strict=True):
        possible = nodes.weights > 0
        weights, truth, logs = nodes.weights[possible], truth[possible], logs[possible]
        zeros += bool(((logs < np.log(FLOOR)) & (weights > FLOOR)).any())
        found.append(weights @ (truth - np.maximum(logs, np.log(FLOOR))))
    return np.array(found), zeros


def asked_sizes(known: Known) -> Mapping[str, NDArray[np.bool_]]:
    """Returns the mask of the questions of each size."""
    sizes = np.array([question.size for question in known.questions])
    return {name: sizes == name for name, _ in sizes_of(len(known.columns))}


def known_network(name: str, environments: Path, sizes: Sizes, *, minutes: float) -> Known:
    """Samples a table from a public Bayesian network, and learns another from it.

    Args:
        name: Name of the network.
        environments: Folder of the rivals' environments.
        sizes: Sizes of the task.
        minutes: CPU minutes after which the worker is stopped.
    """
    try:
        environments.mkdir(parents=True, exist_ok=True)
        python = environment(NETWORKS, environments)
        text = network_file(name, wheel(NETWORK_FILES, python, environments))
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "network.bif").write_bytes(text)
            (folder / "settings.json").write_text(json.dumps(vars(sizes)))
            run_worker(NETWORKS, python, folder, minutes=minutes)
            return read_known(folder)
    except RivalError as error:
        raise ConfigError(f'`truths`: the network "{name}" cannot be answered: {error}.') from None


def network_file(name: str, archive: Path) -> bytes:
    """Returns the file of a network, in the Bayesian interchange format, from pgmpy's wheel."""
    with zipfile.ZipFile(archive) as files:
        return gzip.decompress(files.read(f"pgmpy/utils/example_models/{name}.bif.gz"))


def read_known(folder: Path) -> Known:
    """Reads what the worker wrote; see `benchmarks.rivals.bayesian_network`."""
    schema = json.loads((folder / "schema.json").read_text())
    levels: list[list[str]] = schema["levels"]
    columns = [
        Column(name, "category", levels=len(own))
        for name, own in zip(schema["names"], levels, strict=True)
    ]
    truth = read_answers(folder / "truth.json")
    nodes = [Nodes(np.arange(len(logs), dtype=np.float64), np.exp(logs)) for logs in truth.logs]
    train, test = read_rows(folder / "train.csv"), read_rows(folder / "test.csv")
    questions = read_questions(folder / "questions.json")
    known = Known(columns, levels, train, test, questions, nodes, truth)
    known.others[FREQUENCIES] = frequencies(known)
    known.others[LEARNT] = read_answers(folder / "learnt.json")
    return known


def known_location(model: LocationModel, sizes: Sizes) -> Known:
    """Samples a table from a general location model or a Gaussian copula."""
    rng = np.random.default_rng(sizes.seed)
    train, test = model.sample(sizes.train_rows, rng), model.sample(sizes.test_rows, rng)
    columns = model.columns
    levels = [[f"level {level}" for level in range(column.levels)] for column in columns]
    questions = sample_questions(len(columns), len(test), number=sizes.questions, seed=sizes.seed)
    asked = [(test[one.row], one.given, one.target) for one in questions]
    nodes = [model.nodes(*one) for one in asked]
    logs = [model.log_conditional(n.points, *one) for n, one in zip(nodes, asked, strict=True)]
    truth = Answers(logs, model.log_prob(test))
    known = Known(columns, levels, train, test, questions, nodes, truth)
    known.others[FREQUENCIES] = frequencies(known, model)
    return known


def frequencies(known: Known, model: LocationModel | None = None) -> Answers:
    """Answers every question by the marginal of its column, whatever is given.

    The marginal of a category is its smoothed frequency in the training rows; that of a number is
    the exact density of the model, which no estimate can surpass.
    """

    def marginal(target: int, points: Array) -> Array:
        column = known.columns[target]
        if not column.is_category:
            assert model is not None, "only a location model has numbers"
            return model.log_conditional(points, known.test[0], (), target)
        counts = np.bincount(known.train[:, target].astype(np.int64), minlength=column.levels)
        smoothed = counts + PSEUDO_COUNT
        return np.log(smoothed / smoothed.sum())[points.astype(np.int64)]

    pairs = zip(known.questions, known.nodes, strict=True)
    logs = [marginal(question.target, nodes.points) for question, nodes in pairs]
    joint = sum(marginal(place, values) for place, values in enumerate(known.test.T))
    return Answers(logs, np.asarray(joint))
