"""The verbs that ask a model: functions whose arguments are the flags.

A verb imports what it needs when it runs, so that `anyorder --help` answers at once.
"""

from pathlib import Path
from typing import Literal

from anyorder.cli.options import (
    AnyRun,
    Cluster,
    Json,
    Named,
    Run,
    Seed,
    Whole,
    Workers,
    Written,
)


def impute(
    run: Run,
    file: Path,
    *,
    out: Named,
    draws: Whole = 1,
    how: Literal["sample", "mean", "mode"] = "sample",
    seed: Seed = 0,
    workers: Workers = 1,
    cluster: Cluster = None,
) -> None:
    """Fill the gaps of a table, given all that each row has.

    Example: anyorder impute runs/people people.csv --out filled.csv

    Parameters
    ----------
    file
        A .csv, .tsv or .parquet file of any size, or "-" for CSV from standard input; columns that
        it lacks are gaps too.
    out
        The file to write, of any of these kinds, or "-" for CSV on standard output.
    draws
        How many times it is filled; with several, the columns "draw" and "row" tell them apart.
    how
        sample draws the gaps of a row together; mean and mode guess each by itself.
    """
    from anyorder.tables.cli import impute_table

    impute_table(
        run,
        file,
        out=out,
        draws=draws,
        how=how,
        seed=seed,
        workers=workers,
        cluster=cluster,
    )


def score(
    run: Run,
    file: Path,
    *,
    out: Named,
    query: str | None = None,
    given: str | None = None,
    workers: Workers = 1,
    cluster: Cluster = None,
) -> None:
    """Write the log-likelihood of each row of a table, in nats and in the units of its columns.

    Example: anyorder score runs/people people.csv --query income --given age,job --out scores.csv

    Parameters
    ----------
    file
        A .csv, .tsv or .parquet file of any size.
    out
        The file to write, of any of these kinds: the number of each row, and its log-likelihood.
    query
        Columns that are asked; without it, all that a row has and that is not given. A row with a
        gap among them gets an empty cell.
    given
        Columns that are known; a gap there is unknown in that row.
    """
    from anyorder.tables.cli import score_table

    score_table(run, file, out=out, query=query, given=given, workers=workers, cluster=cluster)


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
        job=nurse|clerk. What holds a comma is put in double quotes. Dates are whole, written as in
        the table or as 2022-11-22: born=1990-01-01..1990-12-31 is a year.
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
    """Draw rows of a table, given what is known.

    Example: anyorder sample runs/people --n 1000 --given "job=nurse" --out nurses.csv

    Parameters
    ----------
    n
        How many rows.
    given
        As for query.
    out
        A .csv, .tsv or .parquet file to write, or "-" for CSV on standard output; without it, they
        are printed as a table, or as several with some of the columns each on a narrow terminal.
    """
    from anyorder.tables.cli import sample_table

    sample_table(run, n=n, given=given, out=out, seed=seed, json=json)


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
        What is known, with holes, or "-" to read it from standard input; it is taken for the start
        of a chunk.
    n
        How many fills.
    greedy
        Take the most probable character at each step; there is one such fill.
    temperature
        Below 1 is more cautious.
    top_k
        Only the k most probable characters at each step.
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


def inpaint(
    run: Run,
    file: str,
    *,
    out: Named,
    mask: Path | None = None,
    rectangle: str | None = None,
    half: Literal["left", "right", "top", "bottom"] | None = None,
    pixels: float | None = None,
    n: Whole = 3,
    rows: Whole = 6,
    greedy: bool = False,
    temperature: float = 1.0,
    resize: bool = False,
    completions: Named | None = None,
    seed: Seed = 0,
) -> None:
    """Paint the unknown part of a picture; show it beside the original and what was known.

    Examples: anyorder inpaint runs/faces me.png --mask hole.png --out grid.png;
    anyorder inpaint runs/digits digits --half bottom --out grid.png

    Without a word on what is unknown, it is what was erased: the transparent pixels.

    Parameters
    ----------
    file
        A picture of the size of the model's images; or a set of images as for fit, of which the
        first test images are painted.
    out
        The .png, .jpg, .webp or .bmp file of the grid.
    mask
        A black and white picture of the same size, white where pixels are unknown.
    rectangle
        The unknown rectangle as "top,left,height,width", in pixels.
    half
        The unknown half.
    pixels
        The share of pixels, chosen at random, that are unknown.
    n
        How many completions of each picture.
    rows
        How many images of a set.
    greedy
        Take the most probable level at each step; there is one such completion.
    temperature
        Below 1 is more cautious.
    resize
        Crop and resize a picture of another size.
    completions
        A folder to which each completion is also written by itself.
    """
    from anyorder.images.cli import inpaint_image

    inpaint_image(
        run,
        file,
        mask=mask,
        rectangle=rectangle,
        half=half,
        pixels=pixels,
        n=n,
        rows=rows,
        greedy=greedy,
        temperature=temperature,
        resize=resize,
        out=out,
        completions=completions,
        seed=seed,
    )
