"""Tables 4 and 5: the same models on the same data sets, asked different questions.

Table 4 of the paper: marginals of the public tables, of their first variables and of any.

Table 5 of the paper: conditionals of the public tables, half of the variables given.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from rich.console import Console

from anyorder.cli.console import note
from anyorder.diagnostics.evaluation import half_given
from anyorder.errors import ConfigError, check_choice
from anyorder.lattice.query_laws import Query
from anyorder.lattice.random_sets import subsets
from anyorder.reproduce.options import TablesOptions
from anyorder.reproduce.record import TOO_SHORT, Paired, legend, report_console, report_table
from anyorder.reproduce.study import Outcome, joint_record, run_experiment
from anyorder.reproduce.uci_data import ARCHIVE, UCI, found_uci, load_uci
from anyorder.reproduce.uci_models import (
    MILLISECONDS,
    SCALES,
    UCI_MODELS,
    Questions,
    UciStudy,
    scale_of,
)

PAIRS = (
    ("mac", "ace"),
    ("mac_mixture", "mac"),
    ("path", "mac"),
    ("path", "mac_mixture"),
    ("path", "ace"),
)
"""Differences that the tables state, a - b: positive is better for a."""

BUNDLED = "bundled"
"""The folder of runs on the table that ships with scikit-learn."""

Printed = Mapping[str, Mapping[str, Mapping[str, float]]]
"""The paper's numbers by data set, model and metric."""


@dataclass(frozen=True)
class UciTable:
    """One of the tables: its verb and title, what it asks, and what the paper has printed."""

    name: str
    title: str
    questions: Questions
    printed: Printed


def run_table(table: UciTable, options: TablesOptions) -> None:
    """Trains and asks the models on each data set, and prints them beside the paper's numbers."""
    options.check(SCALES, UCI_MODELS)
    studies = {
        name or BUNDLED: UciStudy(
            name, scale_of(options.scale, name), options.data, table.questions
        )
        for name in _datasets(options)
    }
    for study in studies.values():
        name = study.data_name  # a file that cannot be read stops us before the work
        if study.dataset is None:
            note(f"Without --data, {name} stands in for the tables of the paper.")
    names = options.models or list(UCI_MODELS)
    outcomes = {
        name: run_experiment(table.name, names, study, options.out / options.scale / name, options)
        for name, study in studies.items()
    }
    paired = [pair for outcome in outcomes.values() for pair in _paired(outcome)]
    kept = joint_record(options.command(table.name), outcomes, paired)
    if not kept.publish(options.record, json=options.json):
        return
    console = report_console()
    console.print(f"{table.title} at scale {options.scale}: nats; more is better")
    for name, outcome in outcomes.items():
        printed = table.printed.get(name, {}) if studies[name].numbers.is_public_test else {}
        _show(console, outcome, printed)
    console.print(legend(UCI_MODELS, names))
    if options.scale == "tiny":
        console.print(f"\n{TOO_SHORT}")


def _datasets(options: TablesOptions) -> list[str | None]:
    """The data sets that are wanted and there; None is the table that ships with scikit-learn."""
    if options.data is None:
        if options.sets or options.scale == "paper":
            raise ConfigError(
                "The public data sets are read from `data`: give the folder into which "
                f"data.tar.gz of {ARCHIVE} was unpacked."
            )
        return [None]
    found = found_uci(options.data)
    for name in options.sets or ():
        check_choice("sets", name, UCI)
        if name not in found:
            load_uci(name, options.data)  # says what is missing
    if not found:
        raise ConfigError(
            f'There is none of {", ".join(UCI)} in "{options.data}": unpack data.tar.gz of '
            f"{ARCHIVE} there."
        )
    return [*dict.fromkeys(options.sets or found)]


def _paired(outcome: Outcome) -> list[Paired]:
    found = outcome.estimates
    pairs = [(a, b) for a, b in PAIRS if a in found and b in found]
    return [outcome.difference(a, b, metric) for a, b in pairs for metric in _metrics(outcome)]


def _metrics(outcome: Outcome) -> list[str]:
    """The likelihoods among what was measured."""
    first = next(iter(outcome.estimates.values()))
    return [metric for metric in first if metric != MILLISECONDS]


def _show(console: Console, outcome: Outcome, printed: Mapping[str, Mapping[str, float]]) -> None:
    console.print(f"\n{outcome.data}")
    titles = {
        metric: metric.removesuffix("_nats").replace("_", " ") for metric in _metrics(outcome)
    }
    found = outcome.estimates
    table = report_table("nats", *found, *(f"paper:\n{name}" for name in printed))
    for metric, title in titles.items():
        cells = [
            _cell(estimates[metric].value, estimates[metric].se) for estimates in found.values()
        ]
        cells += [f"{v[metric]:.2f}" if metric in v else "" for v in printed.values()]
        table.add_row(title, *cells)
    table.add_row("ms a row", *(f"{found[name][MILLISECONDS].value:,.1f}" for name in found))
    table.add_row("steps", *(f"{_steps(outcome, name):,}" for name in found))
    console.print(table)
    differences = {(p.a, p.b, p.metric): p for p in _paired(outcome)}
    pairs = list(dict.fromkeys((a, b) for a, b, _ in differences))
    if pairs:
        table = report_table("a - b: more\nis better for a", *(f"{a}\n- {b}" for a, b in pairs))
        for metric, title in titles.items():
            row = [differences[a, b, metric] for a, b in pairs]
            table.add_row(title, *(_cell(p.difference, p.se, sign="+") for p in row))
        console.print(table)


def _steps(outcome: Outcome, name: str) -> int:
    """How long a model was trained, at most."""
    steps: int = outcome.settings["steps"][name] or outcome.settings["settings"]["steps"]
    return steps


def _cell(value: float, se: float, *, sign: str = "") -> str:
    return f"{value:{sign}.2f} ± {se:.2f}"


SIZES = (3, 5, 10)
"""How many variables are asked; at most all of them."""


def table4(options: TablesOptions) -> None:
    """Trains models of the public tables, and prints likelihoods of some of their variables."""
    title = "Table 4, marginals of the first variables and of any,"
    run_table(UciTable("table4", title, marginals, PRINTED_MARGINALS), options)


def marginals(num_variables: int, rows: int, seed: int) -> dict[str, Query]:
    """The first k variables, as the paper asks; and random k, others in each row."""
    generator, found = torch.Generator().manual_seed(seed), {}
    everything = torch.ones(rows, num_variables, dtype=torch.bool)
    for size in dict.fromkeys(min(size, num_variables) for size in SIZES):
        first = (torch.arange(num_variables) < size).expand(rows, -1)
        found[f"first_{size}_nats"] = Query(torch.zeros_like(first), first)
    for size in (size for size in SIZES if size < num_variables):
        sizes = torch.full((rows,), size)
        chosen = subsets(sizes, everything, generator=generator)
        found[f"any_{size}_nats"] = Query(torch.zeros_like(chosen), chosen)
    return found


def _printed_marginals(
    last: int, **models: tuple[float, float, float]
) -> dict[str, dict[str, float]]:
    names = [f"first_{size}_nats" for size in (3, 5, last)]
    return {name: dict(zip(names, values, strict=True)) for name, values in models.items()}


PRINTED_MARGINALS: Printed = {
    "power": _printed_marginals(
        6,
        SPFlow=(-0.63, 1.01, -0.12),
        ACFlow=(-0.57, 1.34, 0.42),
        ACE=(-0.56, 1.42, 0.58),
        MAC=(-0.55, 1.43, 0.61),
    ),
    "gas": _printed_marginals(
        8,
        SPFlow=(0.68, 1.88, 4.81),
        ACFlow=(0.78, 3.01, 10.13),
        ACE=(1.31, 4.31, 12.20),
        MAC=(1.59, 4.98, 13.02),
    ),
    "hepmass": _printed_marginals(
        10,
        SPFlow=(-4.01, -6.58, -13.38),
        ACFlow=(-4.03, -6.19, -11.58),
        ACE=(-4.00, -5.91, -10.72),
        MAC=(-4.00, -5.90, -10.69),
    ),
    "miniboone": _printed_marginals(
        10,
        SPFlow=(-2.21, -4.31, -9.85),
        ACFlow=(-2.76, -5.31, -10.36),
        ACE=(-2.13, -3.80, -7.94),
        MAC=(-2.12, -3.76, -7.76),
    ),
    "bsds": _printed_marginals(
        10,
        SPFlow=(-2.87, -4.42, -8.15),
        ACFlow=(5.06, 9.26, 19.60),
        ACE=(5.10, 9.37, 20.31),
        MAC=(5.10, 9.37, 20.33),
    ),
}
"""Of whole test sets, by models that were trained for up to 1.6 million steps."""


METRIC = "conditional_nats"


def table5(options: TablesOptions) -> None:
    """Trains models of the public tables, and prints likelihoods of the rest given a half."""
    title = "Table 5, the rest given a random half,"
    run_table(UciTable("table5", title, conditionals, PRINTED_CONDITIONALS), options)


def conditionals(num_variables: int, rows: int, seed: int) -> dict[str, Query]:
    """Each variable is given with probability 1/2, the rest is asked."""
    return {METRIC: half_given(num_variables, rows, seed=seed)}


def _printed_conditionals(**models: float) -> dict[str, dict[str, float]]:
    return {name: {METRIC: value} for name, value in models.items()}


PRINTED_CONDITIONALS: Printed = {
    "power": _printed_conditionals(SPFlow=-1.03, ACFlow=0.56, ACE=0.63, MAC=0.65),
    "gas": _printed_conditionals(SPFlow=4.30, ACFlow=8.09, ACE=9.64, MAC=9.77),
    "hepmass": _printed_conditionals(SPFlow=-12.78, ACFlow=-8.20, ACE=-3.86, MAC=-3.05),
    "miniboone": _printed_conditionals(SPFlow=-18.34, ACFlow=-0.97, ACE=0.31, MAC=0.07),
    "bsds": _printed_conditionals(SPFlow=-24.15, ACFlow=81.83, ACE=86.70, MAC=86.05),
}
"""Of whole test sets, by models that were trained for up to 1.6 million steps."""
