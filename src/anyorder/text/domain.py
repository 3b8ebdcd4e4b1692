"""Text as a domain: the flags of `fit`, the command `infill`, and the contract.

Nothing heavy is imported before it is needed: the command line's help reads this module.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anyorder.cli.options import AnyRun, EvaluateOptions, FitOptions, Json, Seed, Whole
from anyorder.domains import Checked, Description, Domain
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


def infill(
    run: AnyRun,
    text: str,
    *,
    n: Whole = 1,
    greedy: bool = False,
    temperature: float = 1.0,
    top_k: Whole | None = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Sample the holes of a text, given its other characters.

    Examples: anyorder infill shipped "the st_tem_nt" --n 3; anyorder infill runs/book "th_ q_ick"

    A hole is written "_", unless the model was fitted with another --hole: it belongs to the model.

    Parameters
    ----------
    text
        The text with holes, or "-" to read it from standard input; it is read as the start of a
        chunk.
    n
        Number of fills.
    greedy
        Take the most probable character at each step; there is one such fill.
    temperature
        Temperature of sampling; below 1 favours probable characters.
    top_k
        Sample from the k most probable characters at each step.
    """
    from anyorder.text.cli import infill_text

    infill_text(
        run,
        text,
        n=n,
        greedy=greedy,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        json=json,
    )


class TextDomain(Domain):
    """Chunks of characters."""

    name, noun, plural = "text", "text", "text"
    command = "infill"
    sources = ("a text", f'or "{EMBEDDED}", the text that ships with Python')
    fit_options = TextFitOptions
    width = 128
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

    def evaluate(self, model: Any, run: Path, source: str, options: EvaluateOptions) -> None:
        """Prints the bits of the test part of a text."""
        from anyorder.cli.runs import check_report, refuse_options, report_options, write_report
        from anyorder.text.cli import evaluate_text, read_text

        check_report(options.report)
        refuse_options(
            {"query": options.query, "given": options.given},
            f'is for tables, and "{run}" holds a model of text.',
        )
        evaluate_text(model, source, options)
        if options.report is not None:
            from anyorder.text.report import text_report

            page = text_report(model, read_text(source), **report_options(run, seed=options.seed))
            write_report(page.html(), options.report)

    def check(
        self, model: Any, source: str, *, rows: int | None, target: str | None, seed: int
    ) -> Checked:
        """Checks a model on chunks of the test part of a text."""
        from anyorder.cli.runs import refuse_options
        from anyorder.text.cli import read_text
        from anyorder.text.model import CHECKED_CHUNKS

        refuse_options({"target": target}, "is for tables, and this is a model of text.")
        rows = CHECKED_CHUNKS if rows is None else rows
        found = model.check(read_text(source), rows=rows, random_state=seed, progress=True)
        return Checked(found, f"{found.rows:,} chunks of its test part")

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
