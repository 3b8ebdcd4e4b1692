"""Comparisons of variants of `TableModel`, with equal training time and the same test queries."""

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
"""Options of a `TableModel`, or of several that share the time and form a mixture."""

Variants = Callable[[Sequence[str], float], Mapping[str, Options]]
"""Maps the columns of a table and the default minutes to variants by name. The others are compared
with the first."""

Laws = Callable[[int], Mapping[str, QueryLaw]]
"""Maps a number of columns to the laws of test queries, by name."""

CLOCK = "processor"
"""CPU time, which is fair on a shared machine."""


def comparison(
    module: str, variants: Variants, laws: Laws, *, by_default: Sequence[str], test_rows: int = 2000
) -> Callable[..., None]:
    """Returns the command of a module that compares variants.

    Args:
        module: Name of the module, for the record.
        variants: Variants of the model.
        laws: Laws of the test queries.
        by_default: Default data sets.
        test_rows: Default number of test rows.
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
        """Fits every variant on every data set, and prints nats per row.

        Args:
            data: Folder of the data.
            sets: Data sets; by default those named above.
            only: Variants; all by default. The others are compared with the first.
            minutes: CPU minutes of training for each variant on each data set.
            rows: Number of test rows.
            json: Print one JSON object, the last line of the output.
            record: File to which the numbers are written with the command and the commit.
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
    """Returns the scores of a data set as rows of a record, and prints them as progress."""
    values = {v: {law: round(e.value, 3) for law, e in r.items()} for v, r in found.items()}
    Console(stderr=True).print(f"{name}: {values}")
    return [
        Row(name, variant, f"{law}_nats", value.value, value.se, len(value.rows))
        for variant, values in found.items()
        for law, value in values.items()
    ]


def scores(
    table: TableSet, options: Options, laws: Laws, minutes: float, rows: int
) -> dict[str, Estimate]:
    """Returns log-likelihoods of test queries, one for each row and law, equal for all variants."""
    parts = [options] if isinstance(options, Mapping) else options
    share = minutes / len(parts)
    budget = {"minutes": share, "clock": CLOCK}
    models = [TableModel(**{**budget, **part}).fit(table.train) for part in parts]
    test = table.test.iloc[:rows]
    # Queries are sampled in the column order of the frame, not in the model's canonical order.
    names = [name for name in test.columns if name in models[0].table_.names]
    have = ~models[0].table_.encode(test)[1][:, _places(models[0], names).argsort()]
    some = have.any(dim=1)
    queried, found = test[some.numpy()], {}
    for name, law in laws(len(names)).items():
        source = torch.Generator().manual_seed(0)
        given, query = law.sample(len(queried), available=have[some], generator=source)
        found[name] = Estimate(_mixed(models, queried, names, query, given))
    return found


def _places(model: TableModel, names: Sequence[str]) -> Tensor:
    """Returns the positions of the model's columns in the frame."""
    return torch.tensor([names.index(name) for name in model.table_.names])


def _mixed(
    models: Sequence[TableModel],
    test: pd.DataFrame,
    names: Sequence[str],
    query: Tensor,
    given: Tensor,
) -> Tensor:
    """Returns log-likelihoods of one model, or of the mixture of several; see `TableMixture`."""

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
    """Returns the differences of all variants from the first."""
    baseline, *others = found
    pairs = [(variant, law) for variant in others for law in found[variant]]
    less = {(v, law): found[v][law].minus(found[baseline][law]) for v, law in pairs}
    return [
        Paired(name, variant, baseline, f"{law}_nats", difference.value, difference.se)
        for (variant, law), difference in less.items()
    ]


def show(
    rows: list[Row], paired: list[Paired], title: str = "Nats per row: more is better"
) -> None:
    """Prints a table of the variants."""
    less = {(pair.dataset, pair.a, pair.metric): pair for pair in paired}
    table = Table(title=title)
    for heading in ("set", "variant", "queries", "value", "minus the first"):
        words = heading in ("set", "variant", "queries")
        table.add_column(heading, justify="left" if words else "right")
    for row in rows:
        pair = less.get((row.dataset, row.model, row.metric))
        difference = "" if pair is None else f"{pair.difference:+.3f} ± {pair.se:.3f}"
        value = f"{row.value:.3f} ± {row.se:.3f}"
        table.add_row(row.dataset, row.model, row.metric, value, difference)
    Console().print(table)
