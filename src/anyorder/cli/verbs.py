"""The verbs that fit a model and judge it: functions whose arguments are the flags.

A verb imports what it needs when it runs, so that `anyorder --help` answers at once.
"""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from anyorder.cli.options import AnyRun, Json, Named, Seed, Whole, Written


def fit(
    file: str,
    *,
    out: Named,
    domain: Annotated[Literal["table", "text", "image"] | None, Parameter(name="--as")] = None,
    minutes: float | None = None,
    steps: Whole | None = None,
    layers: Whole | None = None,
    width: Whole | None = None,
    heads: Whole | None = None,
    seed: Seed = 0,
    overwrite: bool = False,
    queries: Written = None,
    context: str | None = None,
    types: str | None = None,
    missing_values: Written = None,
    decimal: Literal[".", ","] | None = None,
    missing: Literal["mcar", "mar"] | None = None,
    length: Whole | None = None,
    hole: str | None = None,
    size: str | None = None,
    levels: Whole | None = None,
    turns: bool | None = None,
    patch: Whole | None = None,
) -> None:
    """Fit a model of a table, a text or images, and save it.

    Examples: anyorder fit people.csv --out runs/people; anyorder fit book.txt --out runs/book;
    anyorder fit pictures/ --size 16 --out runs/pictures

    The same command goes on with a training that was stopped; with other options it is refused,
    unless it says --overwrite: anyorder fit people.csv --steps 900 --out runs/people --overwrite.
    The first 90% of a text are learnt, the next 5% tell how training goes, and the last 5% are left
    for evaluate.

    Parameters
    ----------
    file
        A table: .csv, .tsv (also .gz) or .parquet, or "-" for CSV from standard input. Or a UTF-8
        text file, text8 or its zip; or "pydoc" for the text that ships with Python. Or a folder of
        pictures; "digits", which ship with scikit-learn; mnist, binarized_mnist, cifar10 or
        imagenet32, from ANYORDER_DATA.
    out
        The folder of the model.
    domain
        What the file is taken for, whatever its ending: a .csv can be read as text. A table has to
        end in .csv, .tsv or .parquet.
    minutes
        The longest that training may take; if no steps are given, 7 for a table and 10 for text
        and images.
    steps
        Of training.
    layers
        Blocks of the network; 3 for a table, 4 for text and images.
    width
        Of the network; 96 for a table, 128 for text and images.
    heads
        Of its attention, 4; divides the width.
    overwrite
        Remove the earlier training in the folder, and start anew. Other files there stay.
    queries
        Tables: the questions to train for, in place of any, such as "age,job -> income; -> age";
        a weight may stand in front, "3: age -> income".
    context
        Tables: columns that are always given and never asked, such as "country,year".
    types
        Tables: what columns are, where their values do not say it, such as
        "zip=category,born=datetime,name=ignore"; also number and boolean, and dmy or mdy for dates
        such as 05/11/2022 that do not tell whether the day or the month comes first.
    missing_values
        Tables: what stands for a gap besides an empty cell, such as "?,-999".
    decimal
        Tables: what parts decimals in columns of a CSV file that do not show it, "," or ".":
        whether 1.234 is 1234.
    missing
        Tables: whether gaps are random (mcar, the default), or depend on what is observed (mar).
    length
        Text: characters of a chunk, the longest text that can be asked about at once; 128.
    hole
        Text: the character that will stand for an unknown one, "_"; not one of the text's own.
    size
        Images: the height and width that pictures are cropped and resized to, "16" or "16x24".
    levels
        Images: how many levels a channel is rounded to; 256, or as the set has them.
    turns
        Images: turn them by quarters and flip them in training.
    patch
        Images: the side of square patches that are the tokens of the network, for images of more
        than a thousand pixels and channels; it divides height and width. A pixel by default.
    """
    from anyorder.cli.domains import fit_file

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
            "overwrite": overwrite,
        },
        table={
            "queries": queries,
            "context": context,
            "types": types,
            "missing_values": missing_values,
            "decimal": decimal,
            "missing": missing,
        },
        text={"length": length, "hole": hole},
        image={"size": size, "levels": levels, "turns": turns, "patch": patch},
    )


def evaluate(
    run: AnyRun,
    file: str,
    *,
    query: str | None = None,
    given: str | None = None,
    rows: Whole | None = None,
    report: Path | None = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Print how well a model predicts a table, or the test part of a text or of images.

    Examples: anyorder evaluate runs/people new.csv --report people.html; anyorder evaluate shipped
    pydoc

    Of a table also: how well each column is guessed from the rest of its row, beside one guess for
    all rows. That needs a model that was trained for any question.

    The test part of a text is its last 5%: the first 90% are for training, the next 5% for
    validation. It is read in chunks of the model's length. Bits of the joint and of marginals are
    divided by all characters of a chunk, those of conditionals by the characters asked.

    Parameters
    ----------
    file
        As for fit.
    query
        Tables: columns to ask, in place of all and of a random half given the other.
    given
        Tables: columns that are then known.
    rows
        Text and images: how many chunks or images; 256.
    report
        An .html file to write: a page with calibration, draws beside real rows, what evidence is
        worth, and how the training went.
    """
    from anyorder.cli.domains import evaluate_file

    table = {"query": query, "given": given}
    evaluate_file(run, file, table=table, rows=rows, report=report, seed=seed, json=json)


def check(
    run: AnyRun,
    file: str,
    *,
    rows: Whole | None = None,
    out: Named | None = None,
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
        As for fit; of a text, the last 5% are read, and of images the test part.
    rows
        At most so many rows, chosen at random, 2000; of text or images, so many chunks or images,
        256.
    out
        A folder for plots (if matplotlib is installed) and for the numbers, check.json.
    """
    from anyorder.cli.checking import check_file

    check_file(run, file, rows=rows, out=out, seed=seed, json=json)


def info(run: AnyRun, *, json: Json = False) -> None:
    """Print what a model is: its variables, its questions, its network.

    Example: anyorder info runs/people
    """
    from anyorder.cli.about import describe_run

    describe_run(run, json=json)


def serve(
    run: AnyRun,
    *,
    host: str = "127.0.0.1",
    port: Whole = 8765,
    token: Annotated[str | None, Parameter(env_var="ANYORDER_TOKEN")] = None,
    open: bool = False,  # noqa: A002
) -> None:
    """Serve a model: a page to ask it by hand, and an API for programs.

    Example: anyorder serve runs/people --open

    On the page, set what is known and watch what follows for all else. The API is described at
    /openapi.json. What was accepted when Ctrl-C is pressed is still answered.

    Parameters
    ----------
    host
        The address to listen at. Another than this machine's own needs a token.
    port
        The port; 0 takes any that is free.
    token
        What requests must bear, as the header "Authorization: Bearer ...".
    open
        Open the page in a browser.
    """
    from anyorder.cli.about import serve_model

    serve_model(run, host=host, port=port, token=token, show=open)
