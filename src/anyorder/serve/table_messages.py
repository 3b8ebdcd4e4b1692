"""What requests about a table may hold, and what answers do: the OpenAPI description."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

Whole = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True, max_length=100_000)]
Name = Annotated[str, Field(strict=True, max_length=1000)]
Value = StrictBool | Whole | Real | Text
Seed = Annotated[int | None, Field(strict=True, ge=0, le=2**63 - 1)]

EVIDENCE = {"age": {"low": 30, "high": 40}, "job": ["nurse", "clerk"], "income": 31500}


class Message(BaseModel):
    """A request; a field that is not known is refused, because it was meant to do something."""

    model_config = ConfigDict(extra="forbid")


class Range(Message):
    """All values from `low` to `high`; null is an open end."""

    low: Value | None = None
    high: Value | None = None


Known = dict[Name, Value | Range | list[Value] | None]
Row = dict[Name, Value | None]


def as_given(known: Known) -> dict[str, Any]:
    """Evidence as `TableModel` takes it: an interval is a tuple."""
    return {
        name: (value.low, value.high) if isinstance(value, Range) else value
        for name, value in known.items()
    }


class ConditionalsRequest(Message):
    """Which columns are asked, given what."""

    given: Known = Field(
        default={},
        description="What is known, by column: a value; an interval; a list of levels.",
        examples=[EVIDENCE],
    )
    columns: list[Name] | None = Field(
        default=None,
        description="Which columns are asked; by default all that are not given.",
        examples=[["income"]],
    )


class ConditionalsBatchRequest(Message):
    """Several questions at once."""

    questions: list[ConditionalsRequest] = Field(
        min_length=1, examples=[[{"given": {"age": 41}}, {"given": {"job": "nurse"}}]]
    )


class SurpriseRequest(Message):
    """How unusual a record is."""

    given: Known = Field(description="The record so far.", examples=[EVIDENCE])


class LogProbRequest(Message):
    """The log-likelihood of rows."""

    rows: list[Row] = Field(min_length=1, examples=[[{"age": 41, "job": "nurse"}]])
    query: list[Name] | None = Field(
        default=None,
        description="Columns that are asked; by default all that a row has and is not given.",
        examples=[["job"]],
    )
    given: list[Name] | None = Field(
        default=None, description="Columns that are known.", examples=[["age"]]
    )


class SampleRequest(Message):
    """Rows drawn given what is known."""

    given: Known = Field(default={}, examples=[{"job": "nurse"}])
    n: int = Field(default=10, ge=1, strict=True, description="How many rows.")
    seed: Seed = Field(default=None, description="The same seed gives the same rows.")


class ImputeRequest(Message):
    """Rows with gaps to fill."""

    rows: list[Row] = Field(min_length=1, examples=[[{"age": 41, "job": None}]])
    draws: int = Field(default=1, ge=1, strict=True, description="How often each row is filled.")
    how: Literal["sample", "mean", "mode"] = Field(
        default="sample", description="Draws that belong together, or the best guess of each gap."
    )
    seed: Seed = None


class GainRequest(Message):
    """What to measure next."""

    target: Name = Field(description="What is to be known better.", examples=["income"])
    given: Known = Field(default={}, description="Values that are known.", examples=[{"age": 41}])


class OutliersRequest(Message):
    """Rows to be judged."""

    rows: list[Row] = Field(min_length=1, examples=[[{"age": 41, "job": "nurse"}]])


class Density(BaseModel):
    """A density between repeated values, in the unit of the column; times in seconds since 1970."""

    values: list[float]
    heights: list[float]
    share: float = Field(description="The probability of all but repeated values.")


class Repeated(BaseModel):
    """Values that have a probability of their own."""

    values: list[float]
    probabilities: list[float]


class NumberAnswer(BaseModel):
    """The distribution of a number or a time."""

    kind: Literal["number", "date and time", "date", "duration"]
    mean: float | str
    median: float | str
    interval: list[float | str] = Field(description="Holds the value with probability 0.9.")
    places: list[float] = Field(
        description="The low end, the median, the high end and the mean, as places on the axis of "
        "the density: times in seconds since 1970."
    )
    density: Density
    repeated: Repeated
    entropy: float = Field(description="In nats, of normal scores.")


class CategoryAnswer(BaseModel):
    """The distribution of a category."""

    kind: Literal["category", "boolean"]
    levels: list[bool | int | float | str]
    probabilities: list[float]
    mode: bool | int | float | str
    entropy: float


class ConditionalsAnswer(BaseModel):
    """What is known about each column."""

    columns: dict[str, NumberAnswer | CategoryAnswer]
    effective_sample_size: float | None = Field(
        description="Of the draws that stand for intervals and lists; null where there are none."
    )
    warnings: list[str] = Field(description="Reasons to doubt the answer.")


class ConditionalsBatchAnswer(BaseModel):
    """An answer to each question."""

    answers: list[ConditionalsAnswer]


class SurpriseAnswer(BaseModel):
    """How unusual a record is."""

    nats: float = Field(description="Minus its log-likelihood; numbers count in normal scores.")
    rank: float | None = Field(
        description="The share of records drawn from the model that are less surprising in these "
        "columns; null with intervals, lists or context."
    )
    warnings: list[str]


class LogProbAnswer(BaseModel):
    """The log-likelihood of each row, in nats and in the units of the columns."""

    log_prob: list[float]


class RowsAnswer(BaseModel):
    """Rows."""

    rows: list[dict[str, Any]]
    effective_sample_size: float | None
    warnings: list[str]


class ImputeAnswer(BaseModel):
    """Completed rows, once for each draw."""

    draws: list[list[dict[str, Any]]]


class GainAnswer(BaseModel):
    """How many nats each column is expected to tell about the target, most first."""

    gains: dict[str, float]


class OutliersAnswer(BaseModel):
    """How surprising each row is a cell, and each of its cells given the others, in nats."""

    rows: list[float | None]
    cells: list[dict[str, float | None]]


class ColumnAnswer(BaseModel):
    """What a column is to the model."""

    name: str
    kind: str
    details: str
    context: bool = Field(description="Whether it is always given and never asked.")
    levels: list[bool | int | float | str] | None = Field(description="Of a category.")
    low: float | None = Field(description="The least value in training; times in seconds.")
    high: float | None
    step: float | None = Field(description="What values are rounded to.")
    zoned: bool = Field(description="Whether its times have a time zone.")
    typical: list[float] | None = Field(description="Where 99 of 100 values of training lie.")


class TableAnswer(BaseModel):
    """The model that is served."""

    domain: Literal["table"]
    name: str
    run: str = Field(description="The folder to load it from, as the server was told it.")
    columns: list[ColumnAnswer]
    parameters: int
    trained_for: list[str]
    limits: dict[str, float]
