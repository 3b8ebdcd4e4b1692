"""The options that several verbs share, as types."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, Token


def _whole(_: type, tokens: Sequence[Token]) -> int:
    """Whole numbers only: cyclopts by itself would round 1.5."""
    try:
        return int(tokens[0].value.replace("_", ""))
    except ValueError:
        raise ValueError(f'"{tokens[0].value}" is not a whole number') from None


def _named(_: type, tokens: Sequence[Token]) -> Path:
    """A path that says something: an empty one would be the present folder."""
    if not tokens[0].value.strip():
        raise ValueError("it is empty, as a variable of the shell is that was not set")
    return Path(tokens[0].value)


Named = Annotated[Path, Parameter(converter=_named)]
Whole = Annotated[int, Parameter(converter=_whole)]
Run = Annotated[Path, Parameter(help="The folder of a model.")]
AnyRun = Annotated[
    Path,
    Parameter(help='The folder of a model; "shipped" is the model of text in the package.'),
]
Json = Annotated[bool, Parameter(help="Print one JSON object, the last line of the output.")]
Seed = Annotated[Whole, Parameter(help="The same seed gives the same output.")]
Data = Annotated[
    Path | None,
    Parameter(
        env_var="ANYORDER_DATA",
        help="text8, or the folder that holds it; without it, the text that ships with Python.",
    ),
]
Tables = Annotated[
    Path | None,
    Parameter(
        env_var="ANYORDER_DATA",
        help="The folder with MAF's data sets; without it, a table that ships with scikit-learn.",
    ),
]
ImageData = Annotated[
    Path | None,
    Parameter(
        env_var="ANYORDER_DATA",
        help="The folder with the sets of images; without it, digits that ship with scikit-learn.",
    ),
]
RobotData = Annotated[
    Path | None,
    Parameter(
        env_var="ANYORDER_DATA",
        help="The folder with the demonstrations; without it, a toy of the kitchen.",
    ),
]
ImageSets = Annotated[
    list[str] | None,
    Parameter(
        consume_multiple=True,
        help="Which of digits, mnist, binarized_mnist, cifar10 and imagenet32.",
    ),
]
Written = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
"""What is written in a notation of its own, such as "-> age" or -999."""

Scale = Annotated[
    Literal["tiny", "small", "paper"],
    Parameter(help="tiny takes seconds, small some hours of a laptop, paper wants a GPU."),
]
Runs = Annotated[
    Named, Parameter(help="Where the runs go; the same command goes on with what is there.")
]
Minutes = Annotated[
    float | None, Parameter(help="Of training for each model, in place of the scale's.")
]
Names = Annotated[
    list[str] | None, Parameter(consume_multiple=True, help="Which models; all by default.")
]
Sets = Annotated[
    list[str] | None,
    Parameter(consume_multiple=True, help="Which data sets; all that the folder holds by default."),
]
AtOnce = Annotated[Whole, Parameter(help="How many models are trained at a time, a thread each.")]
KeptIn = Annotated[
    Path | None,
    Parameter(help="A file to which the numbers are written with the command and the commit."),
]
Workers = Annotated[
    Whole, Parameter(help="Processes of this machine that share the work, with the extra scale.")
]
Cluster = Annotated[
    str | None,
    Parameter(help="The address of a Dask scheduler whose workers do it, tcp://HOST:8786."),
]
