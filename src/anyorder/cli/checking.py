"""The command `check`: prints consistency gaps and calibration."""

import json as jsons
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from anyorder.cli.console import note, print_json, show
from anyorder.cli.runs import opened
from anyorder.cli.streams import printable
from anyorder.diagnostics.calibration import LEVELS
from anyorder.diagnostics.check import SEEN, Check
from anyorder.diagnostics.gaps import Gap, percent
from anyorder.domains import domain_of
from anyorder.errors import ConfigError, check_count, check_seed

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
    model = opened(run)
    found, size, seen = domain_of(model).check(model, file, rows=rows, seed=seed)
    if out is not None:
        _write(found, out)
    if json:
        print_json({"data": Path(file).name, "trained_on": seen, **found.to_json()})
    else:
        _show(found, f"{Path(file).name}, {size}")
        if seen:
            note(SEEN)


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
