"""Tables 4 and 5: the same models on the same data sets, asked different questions."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console

from anyorder.commands.showing import note
from anyorder.data.uci import ARCHIVE, UCI, found_uci, load_uci
from anyorder.errors import ConfigError, check_choice
from anyorder.reproduce.experiment import Outcome, joint_record, run_experiment
from anyorder.reproduce.options import TablesOptions
from anyorder.reproduce.record import Paired
from anyorder.reproduce.showing import TOO_SHORT, legend, report_console, report_table
from anyorder.reproduce.uci_catalogue import UCI_MODELS
from anyorder.reproduce.uci_experiment import MILLISECONDS, Questions, UciStudy
from anyorder.reproduce.uci_models import SCALES, scale_of

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
