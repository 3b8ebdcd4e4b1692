"""The verb `check`: how far a model agrees with itself, and whether its probabilities hold."""

import json as jsons
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from anyorder.cli.console import note, show
from anyorder.cli.runs import opened, table_chunks
from anyorder.cli.streams import printable, reading
from anyorder.diagnostics.calibration import LEVELS
from anyorder.diagnostics.check import Check, check_model
from anyorder.diagnostics.evaluation import RowSample
from anyorder.diagnostics.gaps import Gap, percent
from anyorder.errors import ConfigError, check_count, check_seed
from anyorder.images.cli import images_for
from anyorder.images.model import EVALUATED, ImageModel
from anyorder.reproduce.record import print_json
from anyorder.tables.answers import CHECKED_ROWS
from anyorder.tables.evaluation import SEEN, RowPrint
from anyorder.tables.model import TableModel
from anyorder.text.cli import read_text
from anyorder.text.model import CHECKED_CHUNKS, TextModel

ROWS_AT_ONCE = 16_384
"""Rows of the file in memory."""

MOST_COLUMNS = 10
"""Columns that are shown, the worst of them."""

GAPS = {
    "path": "along another order",
    "marginalisation": "with a variable summed out",
    "ratio": "as a ratio, not directly",
    "encoding": "with evidence along the path",
}
"""What the other way to the same likelihood is."""


def check_file(
    run: Path, file: str, *, rows: int | None, out: Path | None, seed: int, json: bool
) -> None:
    """Checks a model on a file of its own domain; see `anyorder check --help`."""
    check_seed(seed)
    if rows is not None:
        check_count("rows", rows)
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError(f'`--out` must be a folder; "{out}" is a file.')
    model, seen = opened(run), False
    if isinstance(model, TableModel):
        with reading(file) as source:
            found, size, seen = _check_table(
                model, source, CHECKED_ROWS if rows is None else rows, seed
            )
    elif isinstance(model, ImageModel):
        found, size = _check_images(model, file, EVALUATED if rows is None else rows, seed)
    else:
        found, size = _check_text(model, file, CHECKED_CHUNKS if rows is None else rows, seed)
    if out is not None:
        _write(found, out)
    if json:
        print_json({"data": Path(file).name, "trained_on": seen, **found.to_json()})
    else:
        _show(found, f"{Path(file).name}, {size}")
        if seen:
            note(SEEN)


def _check_text(model: TextModel, file: str, chunks: int, seed: int) -> tuple[Check, str]:
    """The check of the test part of a text, and how much of it was read."""
    found = model.check(read_text(file), rows=chunks, random_state=seed, progress=True)
    return found, f"{found.rows:,} chunks of its test part"


def _check_images(model: ImageModel, file: str, rows: int, seed: int) -> tuple[Check, str]:
    """The check of the first test images, and how many these are."""
    found = model.check(images_for(model, file), rows=rows, random_state=seed, progress=True)
    return found, f"{found.rows:,} images of its test part"


def _check_table(model: TableModel, file: Path, rows: int, seed: int) -> tuple[Check, str, bool]:
    """The check of a random sample of a file's rows, how many, and whether it was trained on."""
    sample, fingerprint = RowSample(rows, seed=seed), RowPrint()
    for frame in table_chunks(model.table_, file, rows=ROWS_AT_ONCE):
        x, missing = model.table_.encode(frame)
        sample.add(x, missing)
        fingerprint.add(x, missing)
    found = check_model(model.model_, sample.x, sample.missing, seed=seed, progress=True)
    seen = fingerprint.to_json() == model.trained_on_
    return found, f"{found.rows:,} of {sample.seen:,} rows", seen


def _write(found: Check, out: Path) -> None:
    """The numbers, and the plots where they can be drawn."""
    out.mkdir(parents=True, exist_ok=True)
    document = jsons.dumps(found.to_json(), indent=1, ensure_ascii=False)
    (out / "check.json").write_text(document + "\n", encoding="utf-8")
    names = ["check.json"]
    if find_spec("matplotlib") is None:
        note('No plots, which need matplotlib: pip install "anyorder[plot]".')
    else:
        names += [f"{name}.png" for name in found.plot(out)]
    note(f"Written: {', '.join(str(out / name) for name in names)}")


def _show(found: Check, title: str) -> None:
    _show_gaps(found, title)
    _show_numbers(found)
    _show_categories(found)
    _show_columns(found)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for sentence in found.sentences():
        console.print(f"- {printable(sentence)}")


def _show_gaps(found: Check, title: str) -> None:
    """How far other ways to a likelihood come out."""
    gaps: dict[str, Gap | None] = {GAPS[name]: getattr(found, name) for name in GAPS}
    rows = [
        [words, str(gap.size), f"{gap.quantile_90:.4f}", f"{len(gap.rows):,}"]
        for words, gap in gaps.items()
        if gap is not None
    ]
    if rows:
        numbers = ["nats apart", "in a tenth of rows, more than", "rows"]
        title = f"{title}: the same likelihood by another way"
        show(["way", *numbers], rows, title=title, numbers=numbers)


def _show_numbers(found: Check) -> None:
    """Coverage of intervals by how much was given."""
    levels = [f"{level:.0%} intervals" for level in LEVELS]
    rows = []
    for given, part in found.numbers.items():
        shares = [percent(part.coverage(level)) for level in LEVELS]
        cells = f"{len(part.pit):,}"
        rows.append([given, cells, *shares, f"{part.distance:.1%}", f"{part.p_value:.2g}"])
    if rows:
        numbers = ["cells", *levels, "off by up to", "p-value"]
        title = "Numbers: how many values lie in their intervals"
        show(["given of a row", *numbers], rows, title=title, numbers=numbers)


def _show_categories(found: Check) -> None:
    """How often the most probable level is right, by how much was given."""
    rows = []
    for given, part in found.categories.items():
        right = part.accuracy
        said = f"{right.value + part.overconfidence.value:.1%}"
        error, chance = f"{part.expected_error:.1%}", f"{part.expected_by_chance:.1%}"
        shares = [said, percent(right), error, chance]
        rows.append([given, f"{len(part.hit):,}", *shares, f"{part.hit_p_value:.2g}"])
    if rows:
        shares = ["said to be right", "is right", "off by, on average", "by chance"]
        numbers = ["cells", *shares, "p-value"]
        title = "Categories: how often the most probable level is right"
        show(["given of a row", *numbers], rows, title=title, numbers=numbers)


def _show_columns(found: Check) -> None:
    """The columns whose probabilities are off, if any."""
    rows = [
        [column.name, f"{column.n:,}", f"{column.distance:.1%}", f"{column.p_value:.2g}"]
        for column in found.columns_off()[:MOST_COLUMNS]
    ]
    if rows:
        numbers = ["cells", "off by up to", "p-value"]
        title = "Columns whose probabilities are off beyond chance, the worst first"
        show(["column", *numbers], rows, title=title, numbers=numbers)
