"""Table 1 of the paper: text, in bits per character; with path networks beside its models."""

from anyorder.reproduce.options import ExperimentOptions
from anyorder.reproduce.record import (
    TOO_SHORT,
    cell,
    difference_table,
    legend,
    report_console,
    report_table,
)
from anyorder.reproduce.study import Outcome
from anyorder.reproduce.text_models import TABLE1, evaluate, run_text_experiment

PAPER = {"ardm": (1.48, 1.12), "mac_strided": (1.40, 1.09), "path_rnd": (1.64, None)}
"""Joint and marginal bits that the paper prints (3000 epochs; OA-Transformer for random orders).

Its command for text8 has a strided order."""

PAIRS = (
    ("mac", "ardm"),
    ("mac_strided", "ardm"),
    ("mac_exact", "ardm"),
    ("path", "mac"),
    ("path_mix", "mac"),
    ("path_mix", "mac_strided"),
    ("path_mix", "ardm"),
    ("path", "left_to_right"),
    ("path_one_stream", "left_to_right"),
    ("path_mix_one_stream", "path_mix"),
)
"""Paired differences a - b in the table: negative is better for a."""

ASKS_NO_CONDITIONALS = ("path", "path_rnd", "path_one_stream", "left_to_right")

NO_CONDITIONALS = "* not trained on conditional queries: its evidence encoder is untrained."

METRICS = ("joint", "marginal", "conditional")


def table1(options: ExperimentOptions) -> None:
    """Trains and evaluates the models of Table 1, and prints them beside the paper's numbers."""
    outcome = run_text_experiment("table1", TABLE1, evaluate, options)
    kept = outcome.record(options.command("table1"), outcome.differences(PAIRS, METRICS))
    if kept.publish(options.record, json=options.json):
        _show(options.scale, outcome)


def _show(scale: str, outcome: Outcome) -> None:
    console = report_console()
    console.print(f"Table 1 at scale {scale}: {outcome.data}, bits; less is better")
    table = report_table("model", *METRICS, "paper: joint,\nmarginal")
    for name, estimates in outcome.estimates.items():
        paper = ", ".join(f"{v:.2f}" for v in PAPER.get(name, ()) if v is not None)
        cells = [cell(estimates[metric].value, estimates[metric].se) for metric in METRICS]
        cells[-1] += "*" if name in ASKS_NO_CONDITIONALS else " "
        table.add_row(name, *cells, paper)
        for metric in (m for m in estimates if m not in METRICS):
            found = estimates[metric]
            table.add_row(f"  {metric}", cell(found.value, found.se), "", "", "")
    console.print(table)
    if any(name in ASKS_NO_CONDITIONALS for name in outcome.estimates):
        console.print(f"{NO_CONDITIONALS}\n")
    if differences := outcome.differences(PAIRS, METRICS):
        console.print(difference_table(differences, METRICS, "bits"))
    console.print(legend(TABLE1, outcome.estimates))
    if scale == "tiny":
        console.print(f"\n{TOO_SHORT}")
