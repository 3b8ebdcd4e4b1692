"""Variants of `TableModel`, fitted for the same time and asked the same questions of test rows."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import check_choice, check_count
from anyorder.lattice.query_laws import QueryLaw
from anyorder.reproduce.record import Paired, Record, Row, check_record
from anyorder.tables.engine import row_log_prob
from anyorder.tables.model import TableModel
from benchmarks.table_sets import TableSet, load_set

Options = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Of a `TableModel`, or of several that share the time and are mixed."""

Variants = Callable[[Sequence[str], float], Mapping[str, Options]]
"""From the columns of a table, and the minutes that each has unless it says otherwise, to what is
compared, by name; the others with the first."""

Laws = Callable[[int], Mapping[str, QueryLaw]]
"""From a number of columns to the laws of test questions, by name."""

CLOCK = "processor"
"""Equal time on a machine that others use too."""


def comparison(
    module: str, variants: Variants, laws: Laws, *, by_default: Sequence[str], test_rows: int = 2000
) -> Callable[..., None]:
    """The command of a module that compares variants.

    Args:
        module: Its name, for the record.
        variants: What is compared.
        laws: What is asked.
        by_default: Which sets, if none are named.
        test_rows: How many, if no number is given.
    """

    def measure(
        *,
        data: Path,
        sets: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
        only: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
        minutes: float = 2.0,
        rows: int = test_rows,
        json: bool = False,
        record: Path | None = None,
    ) -> None:
        """Fits every variant on every set, prints nats a row, and keeps a record.

        Args:
            data: The folder of the data.
            sets: Which sets; by default those that the text above names.
            only: Which variants; all by default. The others are compared with the first.
            minutes: Of the processor, in training, for each variant on each set.
            rows: Test rows.
            json: Print one JSON object, the last line of the output.
            record: A file to which the numbers are written with the command and the commit.
        """
        check_count("rows", rows)
        check_record(record)
        names = sets or list(by_default)
        tables = {name: load_set(data, name) for name in names}
        chosen = {
            name: _chosen(variants(list(t.train.columns), minutes), only)
            for name, t in tables.items()
        }
        kept: list[Row] = []
        paired: list[Paired] = []
        for name, table in tables.items():
            scored = {v: scores(table, o, laws, minutes, rows) for v, o in chosen[name].items()}
            kept += rows_of(name, scored)
            paired += differences(name, scored)
        settings = {
            "minutes": minutes,
            "clock": CLOCK,
            "rows": rows,
            "threads": torch.get_num_threads(),
        }
        parts = [f"python -m {module} --data DIR --sets {' '.join(names)}"]
        parts += [f"--only {' '.join(only)}"] if only else []
        parts += [f"--minutes {minutes:g}", f"--rows {rows}"]
        found = Record(" ".join(parts), settings, kept, paired)
        if found.publish(record, json=json):
            show(found.rows, found.paired)

    return measure


def _chosen(variants: Mapping[str, Options], only: Sequence[str] | None) -> dict[str, Options]:
    for name in only or ():
        check_choice("only", name, variants)
    return {name: options for name, options in variants.items() if name in (only or variants)}


def rows_of(name: str, found: Mapping[str, Mapping[str, Estimate]]) -> list[Row]:
    """The numbers of a set for the record, and a line that tells them."""
    told = {v: {law: round(e.value, 3) for law, e in r.items()} for v, r in found.items()}
    Console(stderr=True).print(f"{name}: {told}")
    return [
        Row(name, variant, f"{law}_nats", value.value, value.se, len(value.rows))
        for variant, values in found.items()
        for law, value in values.items()
    ]


def scores(
    table: TableSet, options: Options, laws: Laws, minutes: float, rows: int
) -> dict[str, Estimate]:
    """The log-likelihoods of test questions, one a row and law, the same for every variant."""
    parts = [options] if isinstance(options, Mapping) else options
    share = minutes / len(parts)
    budget = {"minutes": share, "clock": CLOCK}
    models = [TableModel(**{**budget, **part}).fit(table.train) for part in parts]
    test = table.test.iloc[:rows]
    # Questions are drawn in the order of the frame, whatever the model's canonical order is.
    names = [name for name in test.columns if name in models[0].table_.names]
    have = ~models[0].table_.encode(test)[1][:, _places(models[0], names).argsort()]
    some = have.any(dim=1)
    asked, found = test[some.numpy()], {}
    for law, drawn in laws(len(names)).items():
        source = torch.Generator().manual_seed(0)
        given, query = drawn.sample(len(asked), available=have[some], generator=source)
        found[law] = Estimate(_mixed(models, asked, names, query, given))
    return found


def _places(model: TableModel, names: Sequence[str]) -> Tensor:
    """The places in the frame of the model's columns."""
    return torch.tensor([names.index(name) for name in model.table_.names])


def _mixed(
    models: Sequence[TableModel],
    test: pd.DataFrame,
    names: Sequence[str],
    query: Tensor,
    given: Tensor,
) -> Tensor:
    """The answers of one model, or of the mixture of several: see `TableMixture`."""

    def answers(query: Tensor, given: Tensor) -> Tensor:
        each = []
        for model in models:
            place, (x, _) = _places(model, names), model.table_.encode(test)
            sets = {"query": query[:, place], "given": given[:, place]}
            each.append(row_log_prob(model.model_, x, **sets))
        return torch.stack(each)

    found = answers(query, given)
    if len(models) == 1:
        return found[0]
    evidence = answers(given, torch.zeros_like(given))
    return (found + evidence).logsumexp(dim=0) - evidence.logsumexp(dim=0)


def differences(name: str, found: Mapping[str, Mapping[str, Estimate]]) -> list[Paired]:
    """All variants of a set but the first, less the first."""
    baseline, *others = found
    pairs = [(variant, law) for variant in others for law in found[variant]]
    less = {(v, law): found[v][law].minus(found[baseline][law]) for v, law in pairs}
    return [
        Paired(name, variant, baseline, f"{law}_nats", difference.value, difference.se)
        for (variant, law), difference in less.items()
    ]


def show(rows: list[Row], paired: list[Paired]) -> None:
    """Prints a table of variants."""
    less = {(pair.dataset, pair.a, pair.metric): pair for pair in paired}
    table = Table(title="Nats a row: more is better")
    for title in ("set", "variant", "questions", "value", "minus the first"):
        words = title in ("set", "variant", "questions")
        table.add_column(title, justify="left" if words else "right")
    for row in rows:
        pair = less.get((row.dataset, row.model, row.metric))
        difference = "" if pair is None else f"{pair.difference:+.3f} ± {pair.se:.3f}"
        value = f"{row.value:.3f} ± {row.se:.3f}"
        table.add_row(row.dataset, row.model, row.metric, value, difference)
    Console().print(table)
