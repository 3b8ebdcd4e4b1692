"""The verbs that fit a model and ask it: functions whose arguments are the flags.

A verb imports what it needs when it runs, so that `anyorder --help` answers at once.
"""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from anyorder.commands.options import AnyRun, Json, Run, Seed, Whole, Written


def fit(
    file: str,
    *,
    out: Path,
    domain: Annotated[Literal["table", "text"] | None, Parameter(name="--as")] = None,
    minutes: float | None = None,
    steps: Whole | None = None,
    layers: Whole | None = None,
    width: Whole | None = None,
    heads: Whole | None = None,
    seed: Seed = 0,
    queries: Written = None,
    context: str | None = None,
    types: str | None = None,
    missing_values: Written = None,
    missing: Literal["mcar", "mar"] | None = None,
    length: Whole | None = None,
    hole: str | None = None,
) -> None:
    """Fit a model of a table or a text, and save it.

    Examples: anyorder fit people.csv --out runs/people; anyorder fit book.txt --out runs/book

    The same command goes on with a training that was stopped. The first 90% of a text are learnt,
    the next 5% tell how training goes, and the last 5% are left for evaluate.

    Parameters
    ----------
    file
        A table: .csv, .tsv (also .gz) or .parquet. Or a UTF-8 text file, text8 or its zip; or
        "pydoc" for the text that ships with Python.
    out
        The folder of the model.
    domain
        What the file is taken for, whatever its ending: a .csv can be read as text. A table has to
        end in .csv, .tsv or .parquet.
    minutes
        The longest that training may take; if no steps are given, 7 for a table and 10 for a text.
    steps
        Of training.
    layers
        Blocks of the network; 3 for a table, 4 for a text.
    width
        Of the network; 96 for a table, 128 for a text.
    heads
        Of its attention, 4; divides the width.
    queries
        Tables: the questions to train for, in place of any, such as "age,job -> income; -> age";
        a weight may stand in front, "3: age -> income".
    context
        Tables: columns that are always given and never asked, such as "country,year".
    types
        Tables: what columns are, where their values do not say it, such as
        "zip=category,born=datetime,name=ignore"; also number and boolean.
    missing_values
        Tables: what stands for a gap besides an empty cell, such as "?,-999".
    missing
        Tables: whether gaps are random (mcar, the default), or depend on what is observed (mar).
    length
        Text: characters of a chunk, the longest text that can be asked about at once; 128.
    hole
        Text: the character that will stand for an unknown one, "_"; not one of the text's own.
    """
    from anyorder.commands.domains import fit_file

    fit_file(
        file,
        domain=domain,
        shared={
            "out": out,
            "minutes": minutes,
            "steps": steps,
            "layers": layers,
            "width": width,
            "heads": heads,
            "seed": seed,
        },
        table={
            "queries": queries,
            "context": context,
            "types": types,
            "missing_values": missing_values,
            "missing": missing,
        },
        text={"length": length, "hole": hole},
    )


def impute(
    run: Run,
    file: Path,
    *,
    out: Path,
    draws: Whole = 1,
    how: Literal["sample", "mean", "mode"] = "sample",
    seed: Seed = 0,
) -> None:
    """Fill the gaps of a table, given all that each row has.

    Example: anyorder impute runs/people people.csv --out filled.csv

    Parameters
    ----------
    file
        A .csv, .tsv or .parquet file of any size; columns that it lacks are gaps too.
    out
        The file to write, of any of these kinds.
    draws
        How many times it is filled; with several, the columns "draw" and "row" tell them apart.
    how
        sample draws the gaps of a row together; mean and mode guess each by itself.
    """
    from anyorder.commands.table import impute_table

    impute_table(run, file, out=out, draws=draws, how=how, seed=seed)


def query(
    run: Run,
    *,
    of: str,
    given: Written = None,
    plot: Path | None = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Print the distribution of columns of a table, given what is known.

    Example: anyorder query runs/people --of income --given "age=30..40,job=nurse|clerk"

    Parameters
    ----------
    of
        A column, or several with commas between them; each is answered by itself.
    given
        What is known: a value age=41, an interval age=30..40 (or 30.. or ..40), a set
        job=nurse|clerk. What holds a comma is put in double quotes.
    plot
        A .png, .svg or .pdf file to draw.
    """
    from anyorder.commands.asking import query_table

    query_table(run, of=of, given=given, plot=plot, seed=seed, json=json)


def sample(
    run: Run, *, n: Whole = 10, given: Written = None, out: Path | None = None, seed: Seed = 0
) -> None:
    """Draw rows of a table, given what is known.

    Example: anyorder sample runs/people --n 1000 --given "job=nurse" --out nurses.csv

    Parameters
    ----------
    n
        How many rows.
    given
        As for query.
    out
        A .csv, .tsv or .parquet file to write; without it, they are printed.
    """
    from anyorder.commands.table import sample_table

    sample_table(run, n=n, given=given, out=out, seed=seed)


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
    """Fill the holes of a text.

    Examples: anyorder infill shipped "the st_tem_nt" --n 3; anyorder infill runs/book "th_ q_ick"

    A hole is written "_", unless the model was fitted with another --hole: it belongs to the model.

    Parameters
    ----------
    text
        What is known, with holes; it is taken for the start of a chunk.
    n
        How many fills.
    greedy
        Take the most probable character at each step; there is one such fill.
    temperature
        Below 1 is more cautious.
    top_k
        Only the k most probable characters at each step.
    """
    from anyorder.commands.text import infill_text

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


def evaluate(
    run: AnyRun,
    file: str,
    *,
    query: str | None = None,
    given: str | None = None,
    rows: Whole | None = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Print how well a model predicts a table or the test part of a text, with standard errors.

    Examples: anyorder evaluate runs/people new.csv; anyorder evaluate shipped pydoc

    The test part of a text is its last 5%: the first 90% are for training, the next 5% for
    validation. It is read in chunks of the model's length. Bits of the joint and of marginals are
    divided by all characters of a chunk, those of conditionals by the characters asked.

    Parameters
    ----------
    file
        A table or a text, as for fit.
    query
        Tables: columns to ask, in place of all and of a random half given the other.
    given
        Tables: columns that are then known.
    rows
        Text: how many chunks; 256.
    """
    from anyorder.commands.domains import evaluate_file

    evaluate_file(
        run, file, table={"query": query, "given": given}, text={"rows": rows}, seed=seed, json=json
    )


def check(
    run: AnyRun,
    file: str,
    *,
    rows: Whole | None = None,
    out: Path | None = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Print how far a model agrees with itself, and whether its probabilities can be trusted.

    Examples: anyorder check runs/people test.csv --out report; anyorder check shipped pydoc

    The file should hold rows that the model was not trained on. The same likelihood is computed
    along other orders, with a column summed out, as a ratio, and with the evidence read in another
    way; and predictions are compared with what was there, by how much of a row was given.

    Parameters
    ----------
    file
        A table or a text, as for fit; of a text, the last 5% are read.
    rows
        At most so many rows, chosen at random, 2000; of a text, so many chunks, 256.
    out
        A folder for plots (if matplotlib is installed) and for the numbers, check.json.
    """
    from anyorder.commands.checking import check_file

    check_file(run, file, rows=rows, out=out, seed=seed, json=json)


def info(run: AnyRun, *, json: Json = False) -> None:
    """Print what a model is: its variables, its questions, its network.

    Example: anyorder info runs/people
    """
    from anyorder.commands.about import describe_run

    describe_run(run, json=json)


def demo(*, out: Path = Path("runs/demo"), seed: Seed = 0) -> None:
    """Show what the package does, in about a minute and without any file of yours.

    Fills a text with the model that ships; prints the paper's Table 7; fits a small table, fills
    its gaps, and asks it a question.

    Example: anyorder demo

    Parameters
    ----------
    out
        Where the model of the table goes, and a picture if matplotlib is installed.
    """
    from anyorder.commands.demo import run_demo

    run_demo(out=out, seed=seed)
