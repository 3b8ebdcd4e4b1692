"""Tables, text or images: which of them a verb is about, and that its options fit."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anyorder.cli.reporting import check_report, write_report
from anyorder.cli.runs import DOMAINS, opened
from anyorder.cli.streams import STREAM, reading
from anyorder.errors import ConfigError, check_count
from anyorder.images.cli import evaluate_images, fit_images, is_images
from anyorder.images.model import ImageModel
from anyorder.images.public_sets import BUNDLED
from anyorder.tables.cli import fit_table
from anyorder.tables.csv_dialect import SEPARATOR_NAMES, apparent_separator
from anyorder.tables.files import is_table
from anyorder.tables.model import TableModel
from anyorder.tables.scoring import evaluate_table
from anyorder.text.cli import EMBEDDED, evaluate_text, fit_text

Options = Mapping[str, Any]

OTHER_TABLES = (
    *(".xlsx", ".xls", ".xlsm", ".ods", ".numbers", ".json", ".jsonl", ".ndjson", ".feather"),
    *(".arrow", ".orc", ".avro", ".pkl", ".pickle", ".npy", ".npz", ".h5", ".hdf5", ".mat"),
    *(".sav", ".dta", ".sas7bdat", ".rds", ".rdata", ".db", ".sqlite", ".arff"),
)
"""Endings of files that hold tables, none of which is read."""

ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar", ".gz", ".bz2", ".xz", ".zst")
"""Endings of files that have to be unpacked, unless what is in them stands before: .csv.gz."""

PACKED_TEXT = "text8.zip"
"""The archive that is read as it is."""

GOES_ON = "The same command goes on from the last checkpoint, if there is one."
SAME = re.compile("same (call or )?command")

WIDTHS, HEADS = {"table": 96, "text": 128, "image": 128}, 4
"""Of networks, where nobody says so; see `fit --help`."""

PLURALS = {"table": "tables", "text": "text", "image": "images"}
SINGULARS = {"table": "a table", "text": "a text", "image": "images"}


def fit_file(file: str, *, domain: str | None, shared: Options, **options: Options) -> None:
    """Fits a file as what it is, by its name or by `domain`.

    Args:
        file: What was typed.
        domain: "table", "text" or "image", if it was said.
        shared: Options for all.
        options: Options for one of them, by domain.
    """
    found = domain or _domain_of(file)
    for other, given in options.items():
        if other != found:
            _refuse(
                given,
                f'is for {PLURALS[other]}, and "{file}" is taken for {SINGULARS[found]}; '
                f"`--as {other}` would say otherwise.",
            )
    _check_shared(shared, width=WIDTHS[found])
    try:
        _fit(found, file, shared, options[found])
    except KeyboardInterrupt as stopped:  # before the training or after it, where none tells more
        words = str(stopped) or GOES_ON
        if shared["overwrite"]:  # which would remove what was saved just now
            words = SAME.sub("same command without `--overwrite`", words)
        raise KeyboardInterrupt(words) from None


def _fit(found: str, file: str, shared: Options, own: Options) -> None:
    if found == "table":
        fit_table(Path(file), **shared, **{**own, "missing": own["missing"] or "mcar"})
    elif found == "image":
        fit_images(file, **shared, **own)
    else:
        fit_text(file, **shared, **own)


def _check_shared(shared: Options, *, width: int) -> None:
    """Refuses what cannot be, before a file is read and columns are shown."""
    out: Path = shared["out"]
    taken = next((place for place in (out, *out.parents) if place.is_file()), None)
    if taken is not None:
        raise ConfigError(
            f'`--out` must be a folder, which is made for the model; "{taken}" is a file. Name '
            f'another, such as "runs/{taken.stem}".'
        )
    minutes = shared["minutes"]
    if minutes is not None and not 0 < minutes < math.inf:
        raise ConfigError(f"`--minutes` must be above 0 and finite; got {minutes:g}.")
    for name in ("steps", "layers", "width", "heads"):
        if shared[name] is not None:
            check_count(name, shared[name])
    wide, heads = shared["width"] or width, shared["heads"] or HEADS
    if wide % heads:
        raise ConfigError(
            f"`--heads` must divide the width, which is {wide}; got {heads}. Change one of them "
            "(`--width`)."
        )


def _domain_of(file: str) -> str:
    """What a file is by its name; refuses a table that would be learnt as a text."""
    if file == STREAM or is_table(file):
        return "table"
    if is_images(file):
        return "image"
    path = Path(file)
    if file != EMBEDDED and not path.exists():
        raise ConfigError(
            f'There is no file "{file}". Give a table (.csv, .tsv, .parquet), a text, a folder of '
            f'pictures, or a name: "{EMBEDDED}", "{BUNDLED}".'
        )
    if path.suffix.lower() in ARCHIVES and path.name != PACKED_TEXT:
        raise ConfigError(
            f'"{file}" is an archive: unpack it, and give the table, the text or the folder of '
            "pictures that is in it. One packed CSV file can be read if it is called .csv.gz or "
            ".csv.zip."
        )
    if path.suffix.lower() in OTHER_TABLES:
        raise ConfigError(
            f'A "{path.suffix}" file cannot be read as a table: save "{file}" as .csv or .parquet. '
            "`--as text` would learn its characters."
        )
    separator = apparent_separator(path) if path.is_file() else None
    if separator:
        raise ConfigError(
            f'"{file}" looks like a table, with {SEPARATOR_NAMES[separator]} in every line, but '
            f'does not end like one: call it "{path.with_suffix(".csv").name}", or say '
            "`--as text` to learn its characters."
        )
    return "text"


def evaluate_file(
    run: Path,
    file: str,
    *,
    table: Options,
    rows: int | None,
    report: Path | None,
    seed: int,
    json: bool,
) -> None:
    """Evaluates a model on a file of its own domain, and writes a page about it if asked to."""
    if report is not None:
        check_report(report)
    model = opened(run)
    holds = f'"{run}" holds a model of {DOMAINS[type(model)][0]}.'
    if isinstance(model, TableModel):
        _refuse({"rows": rows}, f"is for text and images, and {holds}")
        with reading(file) as source:
            evaluate_table(model, source, **table, seed=seed, json=json)
            if report is not None:
                write_report(model, run, str(source), out=report, seed=seed)
    else:
        _refuse(table, f"is for tables, and {holds}")
        if isinstance(model, ImageModel):
            if report is not None and min(model.fitted_shape()[:2]) < 2:
                raise ConfigError(
                    "`--report` paints halves of images, so they must have two rows and columns; "
                    f'"{run}" holds a model of {"x".join(map(str, model.fitted_shape()[:2]))}.'
                )
            evaluate_images(model, file, rows=rows, seed=seed, json=json)
        else:
            evaluate_text(model, file, rows=rows, seed=seed, json=json)
        if report is not None:
            write_report(model, run, file, out=report, seed=seed)


def _refuse(options: Options, why: str) -> None:
    """Says why an option that was given does not fit."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"`--{name.replace('_', '-')}` {why}")
