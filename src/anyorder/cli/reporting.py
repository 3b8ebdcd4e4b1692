"""`anyorder evaluate --report`: one page about a model and rows that it has not seen."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from anyorder.cli.console import note
from anyorder.cli.runs import table_chunks
from anyorder.diagnostics.evaluation import Sampling
from anyorder.errors import ConfigError
from anyorder.images.cli import images_for
from anyorder.images.model import ImageModel
from anyorder.saving.run_folder import replace_text
from anyorder.tables.evaluation import RowPrint
from anyorder.tables.model import TableModel
from anyorder.text.cli import read_text
from anyorder.text.model import TextModel

ROWS_AT_ONCE, MOST_ROWS = 16_384, 5000
"""Rows of a file in memory, and rows that a report asks about."""

ENDINGS = (".html", ".htm")


def check_report(out: Path) -> None:
    """Refuses, before the work, a report that cannot be written."""
    if out.suffix.lower() not in ENDINGS:
        raise ConfigError(f'`--report` must end in .html; got "{out}".')
    if out.is_dir():
        raise ConfigError(f'`--report` must be a file; "{out}" is a folder.')
    if find_spec("matplotlib") is None:
        raise ConfigError('A report needs matplotlib: pip install "anyorder[plot]".')


def write_report(
    model: TableModel | TextModel | ImageModel, run: Path, file: str, *, out: Path, seed: int
) -> None:
    """Writes the page; see `anyorder evaluate --help`."""
    from anyorder.images.report import image_report
    from anyorder.tables.report import table_report
    from anyorder.text.report import text_report

    name = run.resolve().name  # of "." too
    training = run / "training" if (run / "training").is_dir() else None
    options: dict[str, Any] = {"name": name, "training": training, "seed": seed, "progress": True}
    if isinstance(model, TableModel):
        rows, seen = sampled_rows(model, Path(file), seed=seed)
        page = table_report(model, rows, data=Path(file).name, seen=seen, **options)
    elif isinstance(model, ImageModel):
        page = image_report(model, images_for(model, file), **options)
    else:
        page = text_report(model, read_text(file), **options)
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_text(out, page.html())
    note(f"Written: {out}, a page for any browser.")


def sampled_rows(model: TableModel, file: Path, *, seed: int) -> tuple[pd.DataFrame, bool]:
    """Rows of a file, at most so many and at random, and whether the model was trained on them.

    They are in random order, so that the first of them are those that `check` takes: the rows of
    the least random numbers, which both draw from the same seed.
    """
    sampling, kept, rows = Sampling(MOST_ROWS, seed=seed), pd.DataFrame(), RowPrint()
    for frame in table_chunks(model.table_, file, rows=ROWS_AT_ONCE):
        kept = pd.concat([kept, frame]).iloc[sampling.keep(len(frame)).numpy()]
        rows.add(*model.table_.encode(frame))
    return kept, rows.to_json() == model.trained_on_
