"""Text as a domain: the flags of `fit`, the command `infill`, and the contract.

Nothing heavy is imported before it is needed: the command line's help reads this module.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from anyorder.cli.levels import LevelDomain
from anyorder.cli.options import AnyRun, FitOptions, Json, Seed, Whole
from anyorder.domains import Description
from anyorder.text import EMBEDDED, SHIPPED


@dataclass(frozen=True, kw_only=True)
class TextFitOptions:
    """The options of `fit` for text.

    Args:
        length: Text: number of characters of a chunk, the longest text of a query; 128.
        hole: Text: character that marks a hole, "_"; must not occur in the text.
    """

    length: Whole | None = None
    hole: str | None = None


@dataclass(frozen=True, kw_only=True)
class InfillOptions:
    """The options of `infill`.

    Args:
        n: Number of fills.
        greedy: Take the most probable character at each step; there is one such fill.
        temperature: Temperature of sampling; below 1 favours probable characters.
        top_k: Sample from the k most probable characters at each step.
    """

    n: Whole = 1
    greedy: bool = False
    temperature: float = 1.0
    top_k: Whole | None = None
    seed: Seed = 0
    json: Json = False


def infill(
    run: AnyRun,
    text: str,
    *,
    options: Annotated[InfillOptions, Parameter(name="*")] = InfillOptions(),  # noqa: B008
) -> None:
    """Sample the holes of a text, given its other characters.

    Examples: anyorder infill shipped "the st_tem_nt" --n 3; anyorder infill runs/book "th_ q_ick"

    A hole is written "_", unless the model was fitted with another --hole: it belongs to the model.

    Parameters
    ----------
    text
        The text with holes, or "-" to read it from standard input; it is read as the start of a
        chunk.
    """
    from anyorder.text.cli import infill_text

    infill_text(run, text, options)


class TextDomain(LevelDomain):
    """Chunks of characters."""

    name, noun, plural = "text", "text", "text"
    dimension, rows, part = "character", "chunks", "its test part, the last 5%"
    command = "infill"
    sources = ("a text", f'or "{EMBEDDED}", the text that ships with Python')
    fit_options = TextFitOptions
    commands = (infill,)
    named_runs = {"shipped": SHIPPED}  # noqa: RUF012
    reads_any_file = True

    def recognises(self, source: str) -> bool:
        """Returns whether it is text8 or the text that ships with Python; others are any file."""
        path = Path(source)
        return source == EMBEDDED or (path.exists() and path.name in ("text8", "text8.zip"))

    def fit(self, source: str, shared: FitOptions, own: TextFitOptions) -> None:
        """Fits a text file."""
        from anyorder.text.cli import fit_text

        fit_text(source, shared, **asdict(own))

    def open(self, saved: Any, folder: str | Path) -> Any:
        """Returns the `TextModel` of a run folder."""
        from anyorder.text.model import TextModel

        return TextModel.from_saved(saved, folder)

    def read(self, model: Any, source: str) -> Any:
        """Returns the `Text` of a file, a folder or a name."""
        from anyorder.text.cli import read_text

        del model  # every model reads the same text
        return read_text(source)

    def queries(self, model: Any) -> dict[str, str]:
        """Returns descriptions of the queries of an evaluation."""
        return {
            "joint": f"joint: all {model.length} characters of a chunk",
            "marginal": f"marginal: a random set of them, divided by all {model.length}",
            "conditional": "conditional: a random half given the other, divided by those queried",
        }

    def report(self, model: Any, data: Any, **options: Any) -> Any:
        """Returns the report of a model, on the test part of a text."""
        from anyorder.text.report import text_report

        return text_report(model, data, **options)

    def describe(self, model: Any) -> Description:
        """Returns the alphabet and the length of chunks."""
        return Description(
            {"alphabet": model.alphabet_, "length": model.length, "hole": model.hole},
            facts=[("alphabet", repr(model.alphabet_)), ("length", f"{model.length} characters")],
            names=[str(place) for place in range(model.length)],
        )

    def routes(self, model: Any, dispatcher: Any, *, name: str, run: str) -> Any:
        """Returns the routes of a model of text."""
        from anyorder.text.routes import text_routes

        return text_routes(model, dispatcher, name=name, run=run)


TEXT = TextDomain()
