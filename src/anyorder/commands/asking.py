"""The verb `query`: the distribution of columns given what is known, as words, bars or a plot."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.commands.notation import read_given, read_names
from anyorder.commands.runs import read_run
from anyorder.commands.showing import note, plain, show, words
from anyorder.data.columns import NumberColumn
from anyorder.errors import ConfigError, QueryError
from anyorder.estimators.conditional import Conditional, as_label
from anyorder.estimators.table import TableModel
from anyorder.estimators.table_questions import column_set
from anyorder.reproduce.record import print_json

QUANTILES = (0.01, 0.1, 0.25, 0.75, 0.9, 0.99)
"""Shares whose quantiles are shown beside the median and the 90% interval."""

MOST_LEVELS, MOST_REPEATED = 20, 5
"""So many levels of a category, and so many repeated values of a number, are shown."""

EVEN = 0.99
"""From this share of draws on that count, weights are as good as equal: nothing is said of them."""

BAR = 30
"""Characters of a bar of probability 1."""

EIGHTHS = " ▏▎▍▌▋▊▉"

PLOTS = (".png", ".svg", ".pdf")


def query_table(
    run: Path, *, of: str, given: str | None, plot: Path | None, seed: int, json: bool
) -> None:
    """Answers p(columns | what is known), each column by itself; see `anyorder query --help`."""
    if plot is not None and plot.suffix.lower() not in PLOTS:
        raise ConfigError(f'`--plot` must be a .png, .svg or .pdf file; got "{plot}".')
    columns = read_names(of, option="--of")
    if not columns:
        raise QueryError("`--of` must name a column.")
    model = read_run(run, TableModel)
    column_set(model.table_, columns, argument="--of", allow_context=False)
    known = read_given(model.table_, given)
    found = {name: model.conditional(name, given=known, random_state=seed) for name in columns}
    if plot is not None:
        _plot(list(found.values()), given, plot)
    size = min(conditional.effective_sample_size for conditional in found.values())
    if json:
        answers = {name: described(conditional) for name, conditional in found.items()}
        sampled = None if math.isinf(size) else size
        print_json({"given": given or "", "of": answers, "effective_sample_size": sampled})
        return
    for name, conditional in found.items():
        _show(conditional, f"p({name} | {given})" if given else f"p({name})")
    draws = len(next(iter(found.values())).weights)
    if size < EVEN * draws:
        note(
            f"What is given by intervals or lists stands as {draws:,} weighted draws. They are "
            f"worth {size:,.0f} equal ones (the effective sample size): the fewer, the more "
            "another --seed changes the answer."
        )


def described(conditional: Conditional) -> dict[str, Any]:
    """A distribution as plain values, for JSON."""
    if not isinstance(conditional.column, NumberColumn):
        levels = conditional.probabilities().sort_values(ascending=False, kind="stable")
        listed = [{"level": plain(k), "probability": p} for k, p in levels.items()]
        return {"kind": conditional.column.kind, "levels": listed}
    low, high = conditional.interval(0.9)
    return {
        "kind": conditional.column.kind,
        "mean": plain(conditional.mean()),
        "median": plain(conditional.median()),
        "interval_90": [plain(low), plain(high)],
        "quantiles": {f"{share:g}": plain(value) for share, value in _quantiles(conditional)},
        "repeated": [{"value": plain(v), "probability": p} for v, p in repeated(conditional)],
    }


def _quantiles(conditional: Conditional) -> list[tuple[float, Any]]:
    return [(share, conditional.quantile(share)) for share in QUANTILES]


def repeated(conditional: Conditional) -> list[tuple[Any, float]]:
    """The repeated values of a number with their probabilities, the most probable first."""
    column = conditional.column
    if not isinstance(column, NumberColumn) or not column.atom_values:
        return []
    values = column.restore(np.array(column.atom_values))
    probabilities = conditional.pdf(values)
    best = np.argsort(-probabilities, kind="stable")[:MOST_REPEATED]
    return [(values.iloc[place], float(probabilities[place])) for place in best]


def _show(conditional: Conditional, title: str) -> None:
    if isinstance(conditional.column, NumberColumn):
        _show_number(conditional, title)
        return
    levels = conditional.probabilities().sort_values(ascending=False, kind="stable")
    top = levels.iloc[:MOST_LEVELS]
    _show_bars({words(level): share for level, share in top.items()}, title)
    if len(levels) > len(top):
        rest = levels.iloc[MOST_LEVELS:]
        note(f"{len(rest):,} other levels have {rest.sum():.1%} together.")


def _show_number(conditional: Conditional, title: str) -> None:
    low, high = conditional.interval(0.9)
    rows = [
        ("mean", words(conditional.mean())),
        ("median", words(conditional.median())),
        ("90% lies in", f"{words(low)} .. {words(high)}"),
    ]
    for share, value in _quantiles(conditional):
        rows.append((f"{share:.0%} lies below", words(value)))
    show(["", conditional.column.name], rows, title=title, numbers=[conditional.column.name])
    often = repeated(conditional)
    if often:
        _show_bars({words(value): share for value, share in often}, "Repeated values")


def _show_bars(shares: Mapping[str, float], title: str) -> None:
    rows = [(level, f"{share:.1%}", bar(share)) for level, share in shares.items()]
    show(["value", "probability", ""], rows, title=title, numbers=["probability"])


def bar(share: float) -> str:
    """A bar as long as a probability, in eighths of a character.

    Example:
        >>> bar(0.5)
        '███████████████'
    """
    full, part = divmod(round(share * BAR * 8), 8)
    return ("█" * full + EIGHTHS[part]).rstrip()


def _plot(conditionals: list[Conditional], given: str | None, path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError('Plots need matplotlib: pip install "anyorder[plot]".') from None
    figure = Figure(figsize=(6, 3.5 * len(conditionals)), layout="constrained")
    places = figure.subplots(len(conditionals), squeeze=False)[:, 0]
    for conditional, axes in zip(conditionals, places, strict=True):
        conditional.plot(axes)
    if given:
        figure.suptitle(as_label(f"given {given}"), wrap=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    note(f"Plotted: {path}")
