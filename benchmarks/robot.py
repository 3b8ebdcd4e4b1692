"""Latency of a decision of a policy, on one core.

    python -m benchmarks.robot --json

A decision is an action of nine dimensions for an observation of 30 numbers: four are given and five
completed, or all nine are decided. Control at 12.5 Hz leaves 80 ms. Times are CPU milliseconds, so
that other load counts less. Ratios are of policies of the same size, measured in turns.

    fill           the conditional policy, four dimensions given
    full           the conditional policy, no dimension given
    masked         the same with the masked MLP, a pass for each dimension
    cloning        the cloning policy
    fill_ratio     fill / cloning
    masked_ratio   masked / full
    paper_...      the same with the paper's network, eight layers of width 2048
"""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch
from cyclopts import App
from rich.console import Console
from rich.table import Table

from anyorder.cli.app import run
from anyorder.cli.console import print_json
from anyorder.errors import check_count
from anyorder.reproduce.record import Record, Row, check_record
from anyorder.reproduce.robot_models import SCALES
from anyorder.robots.kitchen import toy_demonstrations
from anyorder.robots.policies import CloningPolicy, ConditionalPolicy, FittedPolicy
from anyorder.training.settings import TrainingSettings
from benchmarks.measuring import standard_error

TOLD = {0: 0.1, 1: -0.2, 2: 0.3, 3: 0.0}
DECISIONS = 20
"""Decisions of each policy in a round."""

Decision = Callable[[], object]


def policies(prefix: str, size: dict[str, Any]) -> dict[str, Decision]:
    """Returns decisions of policies of one size, untrained because training changes no time."""
    demonstrations = toy_demonstrations(8)
    once = TrainingSettings(batch=8, steps=1, warmup=0)
    cloning = CloningPolicy(**size, settings=once).fit(demonstrations)
    conditional = ConditionalPolicy(**size, settings=once).fit(demonstrations)
    masked = ConditionalPolicy(**size, network="perceptron", settings=once).fit(demonstrations)
    seen = demonstrations.observations[0]

    def decide(policy: FittedPolicy, told: dict[int, float] | None) -> Decision:
        return lambda: policy.act(seen, told)

    return {
        f"{prefix}fill": decide(conditional, TOLD),
        f"{prefix}full": decide(conditional, None),
        f"{prefix}masked": decide(masked, None),
        f"{prefix}cloning": decide(cloning, None),
    }


def milliseconds(decision: Decision) -> float:
    """Returns the median CPU time of a decision."""
    times = []
    for _ in range(DECISIONS):
        began = process_time()
        decision()
        times.append(1000 * (process_time() - began))
    return median(times)


app = App(name="python -m benchmarks.robot", help=(__doc__ or "").splitlines()[0])


@app.default
def main(*, rounds: int = 10, json: bool = False, record: Path | None = None) -> None:
    """Measures and prints the times.

    Args:
        rounds: Number of rounds, which give the standard errors.
        json: Print one JSON object in place of the table.
        record: File to which the numbers are written with the command and the commit.
    """
    check_count("rounds", rounds, low=2)
    check_record(record)
    torch.set_num_threads(1)
    paper = SCALES["paper"]
    timed = policies("", {})
    timed |= policies("paper_", {"hidden": paper.hidden, "blocks": paper.blocks})
    with Console(stderr=True).status("Measuring ..."):
        found = _measured(timed, rounds)
    rows = [
        Row("kitchen's shapes", "policy", name, *value, rounds) for name, value in found.items()
    ]
    settings: dict[str, Any] = {"told": len(TOLD), "decisions": DECISIONS}
    kept = Record(f"python -m benchmarks.robot --rounds {rounds}", settings, rows)
    if record is not None:
        kept.save(record)
    if json:
        print_json({name: value for name, (value, _) in found.items()})
        return
    table = Table(title="Latency of a decision")
    table.add_column("policy")
    table.add_column("CPU milliseconds, or ratio", justify="right")
    for name, (value, error) in found.items():
        table.add_row(name, f"{value:.2f} ± {error:.2f}")
    Console().print(table)


def _measured(timed: dict[str, Decision], rounds: int) -> dict[str, tuple[float, float]]:
    """Returns means and standard errors over rounds, in each of which all take turns."""
    for decision in timed.values():  # the first call is slower: it allocates memory
        decision()
    times = np.array([[milliseconds(d) for d in timed.values()] for _ in range(rounds)])
    columns = dict(zip(timed, torch.from_numpy(times).T, strict=True))
    for prefix in ("", "paper_"):
        columns[f"{prefix}fill_ratio"] = columns[f"{prefix}fill"] / columns[f"{prefix}cloning"]
        columns[f"{prefix}masked_ratio"] = columns[f"{prefix}masked"] / columns[f"{prefix}full"]
    return {name: (float(one.mean()), standard_error(one)) for name, one in columns.items()}


if __name__ == "__main__":
    run(app)
