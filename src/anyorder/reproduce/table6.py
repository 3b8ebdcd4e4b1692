"""Table 6 of the paper: shared autonomy in FrankaKitchen, in tasks completed out of four."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import ConfigError
from anyorder.reproduce.options import RobotOptions
from anyorder.reproduce.record import (
    TOO_SHORT,
    Paired,
    Record,
    Row,
    cell,
    report_console,
    report_table,
)
from anyorder.reproduce.robot_models import (
    COVERAGE,
    LIKELIHOODS,
    NATS,
    REWARD,
    ROWS,
    SCALES,
    TRAINED,
    RobotScale,
    RobotStudy,
)
from anyorder.reproduce.study import Results, joint_source, run_jobs
from anyorder.robots.kitchen import LOGS, completed_share, load_kitchen, read_logs

PAPER: Mapping[str, tuple[float, float]] = {"bc_fill": (1.81, 0.08), "mac_fill": (2.00, 0.05)}
"""Rewards of the paper, with their standard errors."""

FULL_AUTONOMY = (2.15, 0.06)
"""Reward of full autonomy in the paper, by an implicit policy."""

PAIRS = (
    ("mac_fill", "bc_fill"),
    ("mac_fill", "bc_full"),
    ("mac_fill", "mac_full"),
    ("bc_fill", "bc_full"),
    ("mac_fill_willed", "bc_fill_willed"),
)
"""Paired differences a - b in the table: positive is better for a."""

BY_SEED = "_by_seed"
"""Suffix of a metric whose standard error is over trainings, not over queries or episodes."""


def table6(options: RobotOptions) -> None:
    """Trains policies, runs their episodes, and prints their rewards."""
    options.check(SCALES, ROWS)
    if options.data is None and options.scale != "tiny":
        raise ConfigError(
            "`data` must be the folder of the demonstrations at this scale: it holds "
            f"{LOGS}, D4RL's kitchen-mixed-v0.hdf5 or Minari's D4RL/kitchen/mixed-v2."
        )
    folder = options.out / options.scale
    study = RobotStudy(_scale(options), options.data, options.out / "replays", options.seed)
    study.check()
    names = options.models or list(ROWS)
    found = _run(study, names, folder, options.at_once)
    kept = found.record(options.command("table6"), study, _replayed(study))
    if not kept.publish(options.record, json=options.json):
        return
    console = report_console()
    console.print(
        f"Table 6, shared autonomy, at scale {options.scale}: tasks of four; more is better"
    )
    _show(console, found, kept)
    if options.scale == "tiny":
        console.print(f"\n{TOO_SHORT}")


def _scale(options: RobotOptions) -> RobotScale:
    """Returns the scale, with CPU minutes in place of steps if `minutes` is given."""
    scale = SCALES[options.scale]
    if options.minutes is None:
        return scale
    settings = replace(scale.settings, steps=None, minutes=options.minutes, clock="processor")
    return replace(scale, settings=settings)


@dataclass(frozen=True)
class Crossed:
    """Scores of every training on every test demonstration, or in every episode.

    All trainings share the test demonstrations, and the seeds and operated dimensions of the
    episodes, so their scores are not independent samples. Two standard errors are given, each over
    means; neither contains the other.

    For a likelihood, the error over demonstrations tells how much other demonstrations would
    change it. For a reward, the error over episodes is the noise within them; it includes the
    differences between the choices of operated dimensions, so it is too large. The error over
    trainings tells how much other trainings would change a reward. It is the one that counts,
    because episodes begin nearly alike.

    Args:
        scores: Shape ``(trainings, demonstrations or episodes)``.
    """

    scores: Tensor

    @property
    def by_test(self) -> Estimate:
        """Mean over trainings of each demonstration or episode."""
        return Estimate(self.scores.mean(dim=0))

    @property
    def by_seed(self) -> Estimate:
        """Mean of each training."""
        return Estimate(self.scores.mean(dim=1))

    def minus(self, other: "Crossed") -> "Crossed":
        """Returns the difference on the same demonstrations, or in the same episodes."""
        return Crossed(self.scores - other.scores)

    def named(self, metric: str) -> dict[str, Estimate]:
        """Returns both estimates by their names in a record."""
        return {metric: self.by_test, metric + BY_SEED: self.by_seed}


@dataclass(frozen=True)
class Found:
    """Scores of the rows of the table and of the trained policies, by name and metric."""

    acted: Mapping[str, Mapping[str, Crossed]]
    trained: Mapping[str, Mapping[str, Crossed]]
    source: dict[str, object]

    def record(self, command: str, study: RobotStudy, more: list[Row]) -> Record:
        """Returns the record of the experiment."""
        data, rows = study.demonstrations.train.name, list(more)
        for name, scored in {**self.acted, **self.trained}.items():
            for metric, scores in scored.items():
                for words, one in scores.named(metric).items():
                    rows.append(Row(data, name, words, one.value, one.se, len(one.rows)))
        return Record(command, study.identity(), rows, self.paired(data), self.source)

    def paired(self, data: str) -> list[Paired]:
        """Returns paired differences, with both standard errors."""
        pairs = [(a, b, REWARD, self.acted) for a, b in PAIRS if {a, b} <= self.acted.keys()]
        if set(LIKELIHOODS) <= self.trained.keys():
            pairs += [(*LIKELIHOODS, metric, self.trained) for metric in NATS]
        found = []
        for a, b, metric, scored in pairs:
            each = scored[a][metric].minus(scored[b][metric])
            for words, one in each.named(metric).items():
                found.append(Paired(data, a, b, words, one.value, one.se))
        return found


def _run(study: RobotStudy, names: Sequence[str], folder: Path, at_once: int) -> Found:
    """Trains the policies of the rows, `at_once` at a time; then runs the episodes, likewise."""
    seeds = range(study.scale.seeds)
    needed = [kind for kind in TRAINED if any(kind in ROWS[name].needs for name in names)]
    if "mac" in needed:
        needed.append("uniform")  # for the likelihoods
    common: dict[str, Any] = {"identity": study.identity(), "at_once": at_once}
    trained = run_jobs(
        study.train, _with_seeds(needed, seeds), folder, evaluation="likelihood.json", **common
    )
    acted = run_jobs(
        study.act,
        _with_seeds(names, seeds),
        folder,
        evaluation="episodes.json",
        doing="acting",
        **common,
    )
    source = joint_source([trained.source, acted.source])
    return Found(_crossed(acted, names), _crossed(trained, needed), source)


def _with_seeds(names: Iterable[str], seeds: Iterable[int]) -> list[str]:
    return [f"{name}-{seed}" for seed in seeds for name in names]


def _crossed(results: Results, names: Iterable[str]) -> dict[str, dict[str, Crossed]]:
    """Returns the scores of each name, with a row for each of its seeds."""
    crossed = {}
    for name in names:
        parts = [
            estimates
            for place, estimates in results.estimates.items()
            if place.rpartition("-")[0] == name
        ]
        crossed[name] = {
            metric: Crossed(torch.stack([part[metric].rows for part in parts]))
            for metric in parts[0]
        }
    return crossed


def _replayed(study: RobotStudy) -> list[Row]:
    """Returns the share of replayed demonstrations that completed their tasks."""
    data = study.data
    if data is None or not ((data / LOGS).exists() or data.suffix == ".npz"):
        return []
    logs = read_logs(data)
    demonstrations = load_kitchen(data, study.cache)
    done, of = completed_share(demonstrations, logs)
    se = (done / of * (1 - done / of) / of) ** 0.5
    return [Row(demonstrations.name, "replay", "completed_share", done / of, se, of)]


def _show(console: Console, found: Found, kept: Record) -> None:
    for row in kept.rows:
        if row.metric == "completed_share" and row.n:
            done = round(row.value * row.n)
            console.print(f"{row.dataset}: {done} of {row.n} completed all of their tasks")
    table = report_table("reward", "mean", "± episodes", "± trainings", "paper")
    for name, scored in found.acted.items():
        one, seeds = scored[REWARD].by_test, scored[REWARD].by_seed
        paper = cell(*PAPER[name]) if name in PAPER else ""
        table.add_row(name, f"{one.value:.2f}", f"{one.se:.2f}", f"{seeds.se:.2f}", paper)
    console.print(table)
    table = report_table("a - b: positive\nis better for a", "mean", "± test", "± trainings")
    pairs = {(pair.a, pair.b, pair.metric): pair for pair in kept.paired}
    for (a, b, metric), pair in pairs.items():
        if not metric.endswith(BY_SEED):
            by_seed = pairs[a, b, metric + BY_SEED].se
            words = f"{a} - {b}" + (f", nats of {NATS[metric]}" if metric in NATS else "")
            table.add_row(words, f"{pair.difference:+.2f}", f"{pair.se:.2f}", f"{by_seed:.2f}")
    console.print(table)
    _show_likelihoods(console, found)
    width = max(map(len, found.acted))
    console.print("\n".join(f"{name:<{width}}  {ROWS[name].meaning}" for name in found.acted))
    console.print(f"full autonomy in the paper, an implicit policy: {cell(*FULL_AUTONOMY)}")


def _show_likelihoods(console: Console, found: Found) -> None:
    """Prints log-likelihoods of held-out actions, and the coverage of intervals."""
    names = [name for name in LIKELIHOODS if name in found.trained]
    if not names:
        return
    table = report_table("held-out actions", *names)
    for metric in found.trained[names[0]]:
        words = metric.replace("_", " ").replace(COVERAGE, "coverage of 80% intervals,")
        ones = [found.trained[name][metric].by_test for name in names]
        table.add_row(words, *(cell(one.value, one.se) for one in ones))
    console.print(table)
