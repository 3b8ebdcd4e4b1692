"""Tables as a domain: the flags of `fit`, the commands that query a table, and the contract.

Nothing heavy is imported before it is needed: the command line's help reads this module.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from anyorder.cli.console import STREAM, reading
from anyorder.cli.options import (
    Cluster,
    EvaluateOptions,
    FitOptions,
    Json,
    Named,
    Run,
    Seed,
    Whole,
    Workers,
    Written,
)
from anyorder.domains import Checked, Description, Domain

OTHER_TABLES = (
    *(".xlsx", ".xls", ".xlsm", ".ods", ".numbers", ".json", ".jsonl", ".ndjson", ".feather"),
    *(".arrow", ".orc", ".avro", ".pkl", ".pickle", ".npy", ".npz", ".h5", ".hdf5", ".mat"),
    *(".sav", ".dta", ".sas7bdat", ".rds", ".rdata", ".db", ".sqlite", ".arff"),
)
"""Endings of table formats that cannot be read."""


@dataclass(frozen=True, kw_only=True)
class TableFitOptions:
    """The options of `fit` for tables.

    Args:
        queries: Tables: the queries to train for, in place of any, such as
            "age,job -> income; -> age"; a weight may stand in front, "3: age -> income".
        context: Tables: columns that are always given and never queried, such as "country,year".
        types: Tables: types of columns whose values do not show it, such as
            "zip=category,born=datetime,name=ignore"; also number and boolean, and dmy or mdy for
            dates such as 05/11/2022 that do not show whether the day or the month comes first.
        missing_values: Tables: markers of a missing value besides an empty cell, such as "?,-999".
        decimal: Tables: decimal separator in columns of a CSV file that do not show it, "," or ".":
            whether 1.234 is 1234.
        missing: Tables: whether values are missing at random (mcar, the default), or depending on
            what is observed (mar).
        forget_rows: Tables: leave the rows out of the run folder; answers then do not say how many
            of them match.
    """

    queries: Written = None
    context: str | None = None
    types: str | None = None
    missing_values: Written = None
    decimal: Literal[".", ","] | None = None
    missing: Literal["mcar", "mar"] | None = None
    forget_rows: bool | None = None


@dataclass(frozen=True, kw_only=True)
class ImputeOptions:
    """The options of `impute`.

    Args:
        out: The file to write, of any of these kinds, or "-" for CSV on standard output.
        draws: Number of imputations; several are numbered by the columns "draw" and "row".
        how: sample samples the missing values of a row jointly; mean and mode predict each by
            itself.
    """

    out: Named
    draws: Whole = 1
    how: Literal["sample", "mean", "mode"] = "sample"
    seed: Seed = 0
    workers: Workers = 1
    cluster: Cluster = None


def impute(run: Run, file: Path, *, options: Annotated[ImputeOptions, Parameter(name="*")]) -> None:
    """Impute the missing values of a table, given the observed values of each row.

    Example: anyorder impute runs/people people.csv --out filled.csv

    Parameters
    ----------
    file
        A .csv, .tsv or .parquet file of any size, or "-" for CSV from standard input; columns that
        it lacks are missing in all rows.
    """
    from anyorder.tables.cli import impute_table

    impute_table(run, file, options)


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """The options of `score`.

    Args:
        out: The file to write, of any of these kinds: the number of each row, and its
            log-likelihood.
        query: Columns to query; without it, all that a row has and that is not given. A row with a
            missing value among them gets an empty cell.
        given: Columns that are evidence; a missing value there is marginalised in that row.
    """

    out: Named
    query: str | None = None
    given: str | None = None
    workers: Workers = 1
    cluster: Cluster = None


def score(run: Run, file: Path, *, options: Annotated[ScoreOptions, Parameter(name="*")]) -> None:
    """Write the log-likelihood of each row of a table, in nats and in the units of its columns.

    Example: anyorder score runs/people people.csv --query income --given age,job --out scores.csv

    Parameters
    ----------
    file
        A .csv, .tsv or .parquet file of any size.
    """
    from anyorder.tables.cli import score_table

    score_table(run, file, options)


def query(
    run: Run,
    *,
    of: str,
    given: Written = None,
    plot: Path | None = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Print the distribution of columns of a table, given evidence.

    Example: anyorder query runs/people --of income --given "age=30..40,job=nurse|clerk"

    Parameters
    ----------
    of
        A column, or several with commas between them; each is answered by itself.
    given
        Evidence: a value age=41, an interval age=30..40 (or 30.. or ..40), a set job=nurse|clerk.
        Names and values with a comma are put in double quotes. Dates are whole, written as in the
        table or as 2022-11-22: born=1990-01-01..1990-12-31 is a year.
    plot
        A .png, .svg or .pdf file to draw.
    """
    from anyorder.tables.cli import query_table

    query_table(run, of=of, given=given, plot=plot, seed=seed, json=json)


def sample(
    run: Run,
    *,
    n: Whole = 10,
    given: Written = None,
    out: Named | None = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Sample rows of a table, given evidence.

    Example: anyorder sample runs/people --n 1000 --given "job=nurse" --out nurses.csv

    Parameters
    ----------
    n
        Number of rows.
    given
        As for query.
    out
        A .csv, .tsv or .parquet file to write, or "-" for CSV on standard output; without it, they
        are printed as a table, or as several with some of the columns each on a narrow terminal.
    """
    from anyorder.tables.cli import sample_table

    sample_table(run, n=n, given=given, out=out, seed=seed, json=json)


class Tables(Domain):
    """Tables with columns of any type and missing values."""

    name, noun, plural = "table", "a table", "tables"
    command = "query"
    sources = ("a table (.csv, .tsv, .parquet)",)
    fit_options = TableFitOptions
    width = 96
    commands = (impute, query, sample, score)

    def recognises(self, source: str) -> bool:
        """Returns whether a name ends like that of a table, or is standard input."""
        from anyorder.tables.files import is_table

        return source == STREAM or is_table(source)

    def refuse(self, source: str) -> None:
        """Refuses a table in another format, which would be learnt as a text."""
        from anyorder.errors import ConfigError
        from anyorder.tables.csv_dialect import SEPARATOR_NAMES, apparent_separator

        path = Path(source)
        if path.suffix.lower() in OTHER_TABLES:
            raise ConfigError(
                f'A "{path.suffix}" file cannot be read as a table: save "{source}" as .csv or '
                ".parquet. `--as text` would learn its characters."
            )
        separator = apparent_separator(path) if path.is_file() else None
        if separator:
            signs, named = SEPARATOR_NAMES[separator], path.with_suffix(".csv").name
            raise ConfigError(
                f'"{source}" looks like a table, with {signs} in every line, but does not end like '
                f'one: call it "{named}", or say `--as text` to learn its characters.'
            )

    def fit(self, source: str, shared: FitOptions, own: TableFitOptions) -> None:
        """Fits a file of rows."""
        from anyorder.tables.cli import fit_table

        fit_table(Path(source), shared, own)

    def open(self, saved: Any, folder: str | Path) -> Any:
        """Returns the `TableModel` of a run folder."""
        from anyorder.tables.model import TableModel

        return TableModel.from_saved(saved, folder)

    def evaluate(self, model: Any, run: Path, source: str, options: EvaluateOptions) -> None:
        """Prints log-likelihoods of the rows of a file, and the skill of each column."""
        from anyorder.cli.runs import check_report, refuse_options, report_options, write_report
        from anyorder.tables.scoring import evaluate_table, sampled_rows

        check_report(options.report)
        refuse_options(
            {"rows": options.rows}, f'is for text and images, and "{run}" holds a model of a table.'
        )
        with reading(source) as file:
            evaluate_table(model, file, options)
            if options.report is None:
                return
            from anyorder.tables.report import table_report

            rows, seen = sampled_rows(model, file, seed=options.seed)
            named = {"data": file.name, **report_options(run, seed=options.seed)}
            write_report(table_report(model, rows, seen=seen, **named).html(), options.report)

    def check(
        self, model: Any, source: str, *, rows: int | None, target: str | None, seed: int
    ) -> Checked:
        """Checks a model on a random sample of the rows of a file."""
        from anyorder.tables.scoring import check_table

        with reading(source) as file:
            return check_table(model, file, rows=rows, target=target, seed=seed)

    def describe(self, model: Any) -> Description:
        """Returns the columns of a model with their types."""
        lines = model.table_.summary()
        return Description(
            {"columns": [line._asdict() for line in lines]},
            facts=[],
            names=model.table_.names,
            columns=(["column", "type", "details"], lines),
        )

    def routes(self, model: Any, dispatcher: Any, *, name: str, run: str) -> Any:
        """Returns the routes of a model of a table."""
        from anyorder.tables.routes import table_routes

        return table_routes(model, dispatcher, name=name, run=run)


TABLES = Tables()
