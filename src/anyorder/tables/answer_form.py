"""The JSON form of an answer: the distribution of a number, of a category, and of several columns.

`Conditional.to_dict`, the command `anyorder query --json` and the HTTP API all return it.
"""

from dataclasses import dataclass
from typing import Literal

Level = bool | int | float | str


@dataclass(frozen=True)
class Density:
    """The density beside repeated values, per unit of the column (times: per second).

    Attributes:
        positions: Places on the axis of the column, ascending.
        heights: Density there: the mean over a cell around each position.
        probability: Probability of all but repeated values.
    """

    positions: list[float]
    heights: list[float]
    probability: float


@dataclass(frozen=True)
class Repeated:
    """Values that have a probability of their own, where it is 0.0005 or more; ascending.

    Attributes:
        values: Values of the column.
        positions: Their places on its axis.
        probabilities: Their probabilities.
    """

    values: list[float | str]
    positions: list[float]
    probabilities: list[float]


@dataclass(frozen=True)
class NumberAnswer:
    """The distribution of a number or a time.

    Values are in the unit of the column; dates and times are ISO 8601 text, durations text. A
    position is a place on the axis of the column: the number itself; of dates and times, seconds
    since 1970; of durations, seconds.

    Attributes:
        column: Name of the column.
        type: Its type.
        mean: Expectation.
        standard_error: Standard error of the mean over ensemble members, in the unit of
            `positions`; null for a single model.
        median: Quantile of 0.5.
        interval_90: Quantiles of 0.05 and 0.95.
        quantiles: Quantiles by their probabilities, "0.01" to "0.99".
        positions: Places of "mean", "median", "low" and "high", the ends of `interval_90`; not
            rounded to the steps of the column.
        density: The density beside repeated values.
        repeated: Repeated values and their probabilities.
        entropy: Entropy of normal scores in nats, to about 0.001.
        rows: Training rows that match the evidence exactly and have a value of the column; null if
            they are not counted, because the model does not keep its rows.
    """

    column: str
    type: Literal["number", "date and time", "date", "duration"]
    mean: float | str
    standard_error: float | None
    median: float | str
    interval_90: list[float | str]
    quantiles: dict[str, float | str]
    positions: dict[str, float]
    density: Density
    repeated: Repeated
    entropy: float
    rows: int | None


@dataclass(frozen=True)
class CategoryAnswer:
    """The distribution of a category.

    Attributes:
        column: Name of the column.
        type: Its type.
        mode: Most probable level.
        levels: Levels, the most probable first; at most 200.
        probabilities: Probabilities of these levels.
        standard_errors: Their standard errors over ensemble members; null for a single model.
        rest: Probability of the levels that are not listed.
        entropy: Entropy in nats.
        rows: Training rows that match the evidence exactly and have a value of the column; null if
            they are not counted, because the model does not keep its rows.
        shares: Share of each listed level among these rows; null where there are none.
    """

    column: str
    type: Literal["category", "boolean"]
    mode: Level
    levels: list[Level]
    probabilities: list[float]
    standard_errors: list[float] | None
    rest: float
    entropy: float
    rows: int | None
    shares: list[float] | None


@dataclass(frozen=True)
class Answers:
    """The distributions of some columns given evidence, each by itself.

    Attributes:
        columns: Distributions by the name of the column.
        effective_sample_size: Effective number of the samples that stand for intervals and sets of
            levels; null where values alone are given, because these answers are exact.
        warnings: Warnings about the answers.
    """

    columns: dict[str, NumberAnswer | CategoryAnswer]
    effective_sample_size: float | None
    warnings: list[str]
