"""Questions about one column, p(target | given), and their answers at points. Needs only numpy.

The evidence of a question is the part of a held-out row in some random columns. An answer is a list
of log probabilities, of the levels of a category, or of log densities at quadrature nodes of a
number.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SIZES = (0, 1, 3, 10)
"""Numbers of given columns; all other columns besides."""

ALL = "all"


class Question(NamedTuple):
    """A question p(target | given).

    Args:
        size: Number of given columns as a text, or "all" if these are all others.
        row: Index of the held-out row that has the evidence.
        given: Indices of the given columns, ascending.
        target: Index of the queried column.
    """

    size: str
    row: int
    given: tuple[int, ...]
    target: int


class Answers(NamedTuple):
    """Answers of a model.

    Args:
        logs: Log probabilities or densities of each question.
        joint: Log-likelihood of each held-out row, in nats. Shape ``(rows,)``.
        seconds: CPU seconds of its fit.
    """

    logs: list[Array]
    joint: Array
    seconds: float = 0.0


def sizes_of(columns: int) -> list[tuple[str, int]]:
    """Returns the names and the numbers of given columns in a table of so many columns.

    Example:
        >>> sizes_of(8)
        [('0', 0), ('1', 1), ('3', 3), ('all', 7)]
    """
    return [(str(size), size) for size in SIZES if size < columns - 1] + [(ALL, columns - 1)]


def sample_questions(columns: int, rows: int, *, number: int, seed: int) -> list[Question]:
    """Samples questions of every size.

    With nothing given there is one question for each column. Of the other sizes there are `number`,
    whose targets are all columns in turn, so that each is queried equally often.

    Args:
        columns: Number of columns.
        rows: Number of held-out rows.
        number: Number of questions of each size.
        seed: Seed of the targets, the rows and the given columns.
    """
    rng = np.random.default_rng([seed, 1])  # other numbers than those of the rows
    found = []
    for name, size in sizes_of(columns):
        targets = rng.permutation(columns)
        for place in range(number if size else columns):
            target, row = int(targets[place % columns]), int(rng.integers(rows))
            others = np.delete(np.arange(columns), target)
            given = np.sort(rng.choice(others, size, replace=False))
            found.append(Question(name, row, tuple(int(one) for one in given), target))
    return found


def write_rows(path: Path, rows: Array, names: Sequence[str]) -> None:
    """Writes rows as CSV."""
    # 17 digits: every double comes back as it was
    np.savetxt(path, rows, "%.17g", ",", header=",".join(names), comments="")


def read_rows(path: Path) -> Array:
    """Reads rows that `write_rows` wrote."""
    return np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)


def write_questions(path: Path, questions: Iterable[Question]) -> None:
    """Writes questions as JSON."""
    path.write_text(json.dumps([question._asdict() for question in questions]))


def read_questions(path: Path) -> list[Question]:
    """Reads questions that `write_questions` wrote."""
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return [Question(**{**one, "given": tuple(one["given"])}) for one in found]


def write_answers(path: Path, answers: Answers) -> None:
    """Writes answers as JSON; minus infinity is written as null."""
    parts = {
        "logs": [_plain(logs) for logs in answers.logs],
        "joint": _plain(answers.joint),
        "seconds": answers.seconds,
    }
    path.write_text(json.dumps(parts))


def read_answers(path: Path) -> Answers:
    """Reads answers that `write_answers` wrote."""
    found = json.loads(path.read_text())
    logs = [_array(part) for part in found["logs"]]
    return Answers(logs, _array(found["joint"]), found["seconds"])


def _plain(logs: Array) -> list[float | None]:
    return [None if log == -np.inf else float(log) for log in logs]


def _array(logs: list[float | None]) -> Array:
    return np.array([-np.inf if log is None else log for log in logs])
