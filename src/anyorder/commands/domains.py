"""Tables or text: which of them a verb is about, and that its options fit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anyorder.commands.scoring import evaluate_table
from anyorder.commands.table import fit_table
from anyorder.commands.text import evaluate_text, fit_text
from anyorder.data.frames import is_table
from anyorder.errors import ConfigError
from anyorder.estimators.loading import load
from anyorder.estimators.table import TableModel

Options = Mapping[str, Any]


def fit_file(
    file: str, *, domain: str | None, shared: Options, table: Options, text: Options
) -> None:
    """Fits a file as what it is, by its ending or by `domain`."""
    tabular = is_table(file) if domain is None else domain == "table"
    other = "text" if tabular else "table"
    _refuse(
        text if tabular else table,
        f'is for {"text" if tabular else "tables"}, and "{file}" is taken for a '
        f"{'table' if tabular else 'text'}; `--as {other}` would say otherwise.",
    )
    if tabular:
        missing = table["missing"] or "mcar"
        fit_table(Path(file), **shared, **{**table, "missing": missing})
    else:
        fit_text(file, **shared, **text)


def evaluate_file(
    run: Path, file: str, *, table: Options, text: Options, seed: int, json: bool
) -> None:
    """Evaluates a model on a file of its own domain."""
    model = load(run)
    if isinstance(model, TableModel):
        _refuse(text, f'is for text, and "{run}" holds a model of a table.')
        evaluate_table(model, Path(file), **table, seed=seed, json=json)
    else:
        _refuse(table, f'is for tables, and "{run}" holds a model of text.')
        evaluate_text(model, file, **text, seed=seed, json=json)


def _refuse(options: Options, why: str) -> None:
    """Says why an option that was given does not fit."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"`--{name.replace('_', '-')}` {why}")
