"""The commands that all domains share: functions whose arguments are the flags.

A command imports what it needs when it runs, so that `anyorder --help` answers at once.
"""

import inspect
from collections.abc import Callable
from typing import Annotated

from cyclopts import Parameter

from anyorder.cli.options import (
    AnyRun,
    EvaluateOptions,
    FitOptions,
    Json,
    Named,
    Seed,
    Whole,
)
from anyorder.domains import domains

As = Annotated[
    str | None,
    Parameter(
        name="--as",
        help="Domain of the file, whatever its ending, such as table, text or image: a .csv can be "
        "read as text. A table has to end in .csv, .tsv or .parquet.",
    ),
]


def fit_command() -> Callable[..., None]:
    """Returns the command `fit`, whose flags are the shared ones and those of every domain."""

    def fit(file: str, *, shared: FitOptions, domain: As = None, **own: object) -> None:
        """Fit a model of a table, a text or images, and save it.

        Examples: anyorder fit people.csv --out runs/people; anyorder fit book.txt --out runs/book;
        anyorder fit pictures/ --size 16 --out runs/pictures

        The same command resumes a training that was stopped; with other options it is refused,
        unless it says --overwrite: anyorder fit people.csv --steps 900 --out runs/people
        --overwrite. The first 90% of a text are for training, the next 5% for validation, and the
        last 5% are left for evaluate.

        Parameters
        ----------
        file
            A table: .csv, .tsv (also .gz) or .parquet, or "-" for CSV from standard input. Or a
            UTF-8 text file, text8 or its zip; or "pydoc" for the text that ships with Python. Or a
            folder of pictures; "digits", which ship with scikit-learn; mnist, binarized_mnist,
            cifar10 or imagenet32, from ANYORDER_DATA.
        """
        from anyorder.cli.runs import fit_file

        fit_file(file, domain=domain, shared=shared, own=own)

    kinds = inspect.Parameter
    parameters = [
        kinds("file", kinds.POSITIONAL_OR_KEYWORD, annotation=str),
        kinds("shared", kinds.KEYWORD_ONLY, annotation=Annotated[FitOptions, Parameter(name="*")]),
        kinds("domain", kinds.KEYWORD_ONLY, default=None, annotation=As),
    ]
    for each in domains():
        flags = Annotated[each.fit_options, Parameter(name="*")]  # type: ignore[name-defined]
        default = each.fit_options()
        parameters.append(kinds(each.name, kinds.KEYWORD_ONLY, default=default, annotation=flags))
    fit.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    fit.__annotations__ = {each.name: each.annotation for each in parameters}
    return fit


def evaluate(
    run: AnyRun,
    file: str,
    *,
    options: Annotated[EvaluateOptions, Parameter(name="*")] = EvaluateOptions(),  # noqa: B008
) -> None:
    """Print how well a model predicts a table, or the test part of a text or of images.

    Examples: anyorder evaluate runs/people new.csv --report people.html; anyorder evaluate shipped
    pydoc

    For a table also: how well each column is predicted from the rest of its row, beside a constant
    prediction. That needs a model that was trained for any query.

    The test part of a text is its last 5%: the first 90% are for training, the next 5% for
    validation. It is read in chunks of the model's length. Bits of the joint and of marginals are
    divided by all characters of a chunk, those of conditionals by the characters queried.

    Parameters
    ----------
    file
        As for fit.
    """
    from anyorder.cli.runs import opened
    from anyorder.domains import domain_of

    model = opened(run)
    domain_of(model).evaluate(model, run, file, options)


def check(
    run: AnyRun,
    file: str,
    *,
    rows: Whole | None = None,
    out: Named | None = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Print how consistent a model is, and whether its probabilities are calibrated.

    Examples: anyorder check runs/people test.csv --out report; anyorder check shipped pydoc

    The file should hold rows that the model was not trained on. The same likelihood is computed
    along other orders, with a column marginalised numerically, as a ratio, and with the evidence
    encoded in another way. Predictions are compared with the data, by how much of a row was given.

    Parameters
    ----------
    file
        As for fit; of a text, the last 5% are read, and of images the test part.
    rows
        Greatest number of rows, chosen at random, 2000; of chunks or images, 256.
    out
        Folder for plots (if matplotlib is installed) and for the numbers, check.json.
    """
    from anyorder.cli.runs import check_file

    check_file(run, file, rows=rows, out=out, seed=seed, json=json)


def info(run: AnyRun, *, json: Json = False) -> None:
    """Print the facts about a model: its variables, its query law, its network.

    Example: anyorder info runs/people
    """
    from anyorder.cli.runs import describe_run

    describe_run(run, json=json)


def serve(
    run: AnyRun,
    *,
    host: str = "127.0.0.1",
    port: Whole = 8765,
    token: Annotated[str | None, Parameter(env_var="ANYORDER_TOKEN")] = None,
    open: bool = False,  # noqa: A002
) -> None:
    """Serve a model: a page to query it by hand, and an API for programs.

    Example: anyorder serve runs/people --open

    On the page, set what is given and watch the distributions of all else. /openapi.json describes
    the API. Requests accepted before Ctrl-C is pressed are still answered.

    Parameters
    ----------
    host
        Address to listen at. Another than this machine's own needs a token.
    port
        Port; 0 takes any that is free.
    token
        Token that requests must bear, as the header "Authorization: Bearer ...".
    open
        Open the page in a browser.
    """
    from anyorder.cli.runs import serve_model

    serve_model(run, host=host, port=port, token=token, show=open)
