"""Plot of the differences of `TableModel` from the best rival on each data set.

    python -m experiments.contest_picture        writes docs/rivals.png

Reads the records of `benchmarks.tables`, `results/tables.SET.json`.
"""

from collections.abc import Sequence
from typing import Any

from cyclopts import App
from matplotlib.figure import Figure

from anyorder.cli.app import run
from experiments.records import ROOT
from experiments.table_results import CONTEST, Match, matches

LIKELIHOODS = ("joint_nats", "conditional_nats")
IMPUTATION = ("nrmse", "error_rate", "crps")

LINEAR_NATS, LINEAR_PER_CENT = 0.1, 10
"""Linear ranges of the axes, so that 0.1 and 10 nats, 1 and 100 per cent are all visible."""


def draw() -> Figure:
    """Plots likelihoods on the left, imputation on the right; positive is better for ours."""
    found = list(matches())
    sets = list(dict.fromkeys(match.ours["dataset"] for match in found))
    figure = Figure(figsize=(10, 1.2 + 0.4 * len(sets)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, metrics in ((left, LIKELIHOODS), (right, IMPUTATION)):
        for offset, metric in enumerate(metrics):
            chosen = [match for match in found if match.ours["metric"] == metric]
            places = [sets.index(match.ours["dataset"]) for match in chosen]
            shifted = [place + 0.2 * (offset - (len(metrics) - 1) / 2) for place in places]
            _points(axes, chosen, shifted, metric)
        axes.axvline(0, color="grey", linewidth=1)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
    left.set_xscale("symlog", linthresh=LINEAR_NATS)
    right.set_xscale("symlog", linthresh=LINEAR_PER_CENT)
    left.set(xlabel="nats per row more than the best rival")
    right.set(xlabel="per cent less error than the best rival")
    left.set_yticks(range(len(sets)), sets)
    left.invert_yaxis()
    figure.suptitle("Right of the line TableModel is ahead; bars are two standard errors")
    return figure


def _points(axes: Any, chosen: Sequence[Match], places: Sequence[float], metric: str) -> None:
    likely = metric in LIKELIHOODS
    units = [1.0 if likely else -100 / match.rival["value"] for match in chosen]
    axes.errorbar(
        [unit * match.difference for unit, match in zip(units, chosen, strict=True)],
        places,
        xerr=[2 * abs(unit) * match.se for unit, match in zip(units, chosen, strict=True)],
        fmt="o",
        markersize=4,
        label=CONTEST[metric].removesuffix(", nats"),
    )


app = App(name="python -m experiments.contest_picture", help=(__doc__ or "").splitlines()[0])


@app.default
def main() -> None:
    """Writes the plot."""
    draw().savefig(ROOT / "docs" / "rivals.png", dpi=130)


if __name__ == "__main__":
    run(app)
