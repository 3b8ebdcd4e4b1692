"""Options that several commands share, as types."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token


def _whole(_: type, tokens: Sequence[Token]) -> int:
    """Reads a whole number: cyclopts by itself would round 1.5."""
    try:
        return int(tokens[0].value.replace("_", ""))
    except ValueError:
        raise ValueError(f'"{tokens[0].value}" is not a whole number') from None


def _named(_: type, tokens: Sequence[Token]) -> Path:
    """Reads a path that is not empty: an empty one would be the current folder."""
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
"""Text in a notation of its own, such as "-> age" or -999, which may begin with a dash."""

Scale = Annotated[
    Literal["tiny", "small", "paper"],
    Parameter(help="tiny takes seconds, small some hours of a laptop, paper wants a GPU."),
]
Runs = Annotated[
    Named, Parameter(help="Folder of the runs; the same command resumes from what is there.")
]
Minutes = Annotated[
    float | None, Parameter(help="Minutes of training for each model, in place of the scale's.")
]
Names = Annotated[
    list[str] | None, Parameter(consume_multiple=True, help="Which models; all by default.")
]
Sets = Annotated[
    list[str] | None,
    Parameter(consume_multiple=True, help="Which data sets; all that the folder holds by default."),
]
AtOnce = Annotated[Whole, Parameter(help="Models trained at a time, with one thread each.")]
KeptIn = Annotated[
    Path | None,
    Parameter(help="File for the results, with the command and the commit."),
]
Workers = Annotated[
    Whole, Parameter(help="Processes of this machine that share the work; needs the extra scale.")
]
Cluster = Annotated[
    str | None,
    Parameter(help="Address of a Dask scheduler whose workers do the work, tcp://HOST:8786."),
]


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of `fit` that all domains share.

    Args:
        out: Folder of the model.
        minutes: Longest time of the fit, in all. If no steps are given, a table stops where
            held-out likelihood stops improving, after 7 at most; text and images after 10.
        steps: Number of training steps.
        layers: Number of blocks of the network; 3 for a table, 4 for text and images.
        width: Width of the network; 96 for a table, 128 for text and images.
        heads: Number of attention heads, 4; must divide the width.
        seed: The same seed gives the same output.
        overwrite: Remove the earlier training in the folder, and start anew. Other files there
            stay.
    """

    out: Named
    minutes: float | None = None
    steps: Whole | None = None
    layers: Whole | None = None
    width: Whole | None = None
    heads: Whole | None = None
    seed: Whole = 0
    overwrite: bool = False

    def sizes(self) -> dict[str, Any]:
        """Returns the layers, width and heads that were set, as arguments of an estimator."""
        named = {"layers": self.layers, "width": self.width, "heads": self.heads}
        return {name: size for name, size in named.items() if size is not None}


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """The options of `evaluate`; a domain refuses those that it has no use for.

    Args:
        query: Tables: columns to query, in place of all and of a random half given the other.
        given: Tables: columns that are then given.
        rows: Text and images: number of chunks or images; 256.
        report: An .html file to write: a page with calibration, samples beside real rows, the value
            of evidence, and the training curve.
        seed: The same seed gives the same output.
        json: Print one JSON object, the last line of the output.
    """

    query: str | None = None
    given: str | None = None
    rows: Whole | None = None
    report: Path | None = None
    seed: Whole = 0
    json: bool = False
