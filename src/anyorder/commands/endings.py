"""How the training of a table ended, in words: was it long enough?"""

from pathlib import Path
from statistics import mean

from anyorder.training.fit import Fit
from anyorder.training.progress import read_metrics

LATE_GAIN = 0.02
"""Bits a cell that held-out rows gained in the second half of a training that was too short."""


def ending(fit: Fit, training: Path) -> str:
    """When and why a training ended, and whether more time would pay.

    Args:
        fit: How it went; of several members, how the last one went.
        training: The folder with its metrics, or with those of its members.
    """
    gains = [late_gain(file) for file in _metrics(training) if file.exists()]
    if gains and mean(gains) >= LATE_GAIN:
        return (
            f"At the end, step {fit.step:,}, held-out rows were still predicted better and better: "
            "more time (`--minutes`, or `--steps`) would pay. "
        )
    if fit.ending == "patience":
        return (
            f"Stopped at step {fit.step:,}: held-out rows were predicted best at step "
            f"{fit.best_step:,}, which is kept. "
        )
    return ""


def _metrics(training: Path) -> list[Path]:
    """Of each member, or of the only one; of stages, of the last one."""
    places = sorted(training.glob("member-*")) or [training]
    lasts = [(sorted(place.glob("stage-*")) or [place])[-1] for place in places]
    return [last / "metrics.jsonl" for last in lasts]


def late_gain(metrics: Path) -> float:
    """Bits a cell by which held-out rows were predicted better at the end than half way.

    0 if they had been predicted better before the end.
    """
    found = [e for e in read_metrics(metrics) if e.get("held_out") is not None]
    if not found or found[-1]["held_out"] > min(e["held_out"] for e in found):
        return 0.0
    half = [e["held_out"] for e in found if e["step"] <= found[-1]["step"] / 2]
    # A training with one evaluation has gained all that it knows since it began.
    return half[-1] - found[-1]["held_out"] if half else LATE_GAIN
