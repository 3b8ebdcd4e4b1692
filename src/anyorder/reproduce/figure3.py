"""Figure 3 of the paper: ablation of the law over training masks."""

import csv
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate, marginal_bits
from anyorder.inference.model import AnyOrderModel
from anyorder.reproduce.options import ExperimentOptions
from anyorder.reproduce.record import TOO_SHORT, Paired, legend, report_console, report_table
from anyorder.reproduce.study import Outcome
from anyorder.reproduce.text_models import FIGURE3, run_text_experiment
from anyorder.training.progress import read_metrics

BASELINE = "ardm"
"""Law that differences are taken from: uniform cardinality, uniform masks of a cardinality."""


def measure(model: AnyOrderModel, x: Tensor, seed: int) -> dict[str, Estimate]:
    """Returns the marginal bits of test rows, summed over whole paths."""
    generator = torch.Generator().manual_seed(seed)
    return {"marginal": marginal_bits(model, x, seed=seed, generator=generator)}


def figure3(options: ExperimentOptions) -> None:
    """Trains a model on each law, and plots its marginal bits during training.

    `figure3.csv` and `figure3.png` are written beside the runs.
    """
    outcome = run_text_experiment("figure3", FIGURE3, measure, options)
    folder = outcome.folder
    curves = {name: read_curve(folder / name) for name in outcome.estimates}
    write_curves(folder / "figure3.csv", curves)
    kept = outcome.record(options.command("figure3"), _paired(outcome))
    plot = plot_curves(folder / "figure3.png", curves)
    if not kept.publish(options.record, json=options.json):
        return
    _show(options.scale, outcome)
    picture = f" and {plot}" if plot else '. No plot: pip install "anyorder[plot]"'
    report_console().print(f"\nCurves: {folder / 'figure3.csv'}{picture}", soft_wrap=True)


def _paired(outcome: Outcome) -> list[Paired]:
    if BASELINE not in outcome.estimates:
        return []
    others = [name for name in outcome.estimates if name != BASELINE]
    return [outcome.difference(name, BASELINE, "marginal") for name in others]


def _show(scale: str, outcome: Outcome) -> None:
    console = report_console()
    console.print(f"Figure 3 at scale {scale}: {outcome.data}, marginal bits; less is better")
    table = report_table("law", "bits", f"minus {BASELINE}")
    differences = {pair.a: pair for pair in _paired(outcome)}
    for name, found in outcome.estimates.items():
        pair = differences.get(name)
        difference = "" if pair is None else f"{pair.difference:+.4f} ± {pair.se:.4f}"
        table.add_row(name, str(found["marginal"]), difference)
    console.print(table)
    console.print(legend(FIGURE3, outcome.estimates))
    if scale == "tiny":
        console.print(f"\n{TOO_SHORT}")


def plot_curves(path: Path, curves: dict[str, list[tuple[int, float]]]) -> Path | None:
    """Plots the curves; returns None without matplotlib (the extra `plot`)."""
    if find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for law, curve in curves.items():
        last = curve[-1][0]
        shares, bits = [100 * step / last for step, _ in curve], [value for _, value in curve]
        axes.plot(shares, bits, label=law.replace("_", " "), marker="." if len(bits) < 9 else None)
    axes.set(xlabel="% of the training steps", ylabel="held-out marginal bits")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=160)
    return path


def read_curve(folder: Path) -> list[tuple[int, float]]:
    """Reads training steps and held-out marginal bits from the metrics of a run."""
    found = read_metrics(folder / "metrics.jsonl")
    return [(line["step"], line["held_out"]) for line in found if "held_out" in line]


def write_curves(path: Path, curves: dict[str, list[tuple[int, float]]]) -> None:
    """Writes a CSV file with columns law, step and marginal_bits."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["law", "step", "marginal_bits"])
        for law, curve in curves.items():
            writer.writerows([law, step, bits] for step, bits in curve)
