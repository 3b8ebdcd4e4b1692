"""Table 6 of the paper: shared autonomy in FrankaKitchen, in tasks completed out of four."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from anyorder.data.robot_replay import LOGS, completed_share, read_logs
from anyorder.data.robot_sources import load_kitchen
from anyorder.errors import ConfigError
from anyorder.evaluation import Estimate
from anyorder.reproduce.jobs import Results, joint_source, run_jobs
from anyorder.reproduce.options import RobotOptions
from anyorder.reproduce.record import Paired, Record, Row
from anyorder.reproduce.robot_experiment import COVERAGE, NATS, REWARD, RobotStudy
from anyorder.reproduce.robot_models import LIKELIHOODS, ROWS, SCALES, TRAINED, RobotScale
from anyorder.reproduce.showing import TOO_SHORT, cell, report_console, report_table

PAPER: Mapping[str, tuple[float, float]] = {"bc_fill": (1.81, 0.08), "mac_fill": (2.00, 0.05)}
"""What the paper prints; its full autonomy, an implicit policy, has 2.15 +- 0.06."""

FULL_AUTONOMY = (2.15, 0.06)

PAIRS = (
    ("mac_fill", "bc_fill"),
    ("mac_fill", "bc_full"),
    ("mac_fill", "mac_full"),
    ("bc_fill", "bc_full"),
)
"""Differences that the table states, a - b: positive is better for a."""

BY_SEED = "_by_seed"
"""Ends the name of a metric whose rows are the means of trainings, not single episodes."""


def table6(options: RobotOptions) -> None:
    """Trains policies, lets them act, and prints what they completed."""
    options.check(SCALES, ROWS)
    if options.data is None and options.scale != "tiny":
        raise ConfigError(
            "The demonstrations are read from `data`: give the folder that holds "
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
    """The scale, with minutes of the processor in place of steps where they were asked for."""
    scale = SCALES[options.scale]
    if options.minutes is None:
        return scale
    settings = replace(scale.settings, steps=None, minutes=options.minutes, clock="processor")
    return replace(scale, settings=settings)


@dataclass(frozen=True)
class Found:
    """Estimates of rows and of trained policies, with those of all seeds one after another."""

    acted: Mapping[str, Mapping[str, Estimate]]
    trained: Mapping[str, Mapping[str, Estimate]]
    seeds: int
    source: dict[str, object]

    def by_seed(self, estimate: Estimate) -> Estimate:
        """The mean of each training, which is what trainings differ by."""
        return Estimate(estimate.rows.view(self.seeds, -1).mean(dim=1))

    def record(self, command: str, study: RobotStudy, more: list[Row]) -> Record:
        """What is kept of it."""
        data, rows = study.demonstrations.train.name, list(more)
        for name, estimates in {**self.acted, **self.trained}.items():
            for metric, one in estimates.items():
                rows.append(Row(data, name, metric, one.value, one.se, len(one.rows)))
                seeds = self.by_seed(one)
                rows.append(
                    Row(data, name, metric + BY_SEED, seeds.value, seeds.se, len(seeds.rows))
                )
        return Record(command, study.identity(), rows, self.paired(data), self.source)

    def paired(self, data: str) -> list[Paired]:
        """Differences, episode by episode and training by training."""
        pairs = [(a, b, REWARD, self.acted) for a, b in PAIRS if {a, b} <= self.acted.keys()]
        if set(LIKELIHOODS) <= self.trained.keys():
            pairs.append((*LIKELIHOODS, NATS, self.trained))
        found = []
        for a, b, metric, estimates in pairs:
            each = estimates[a][metric].minus(estimates[b][metric])
            seeds = self.by_seed(each)
            found.append(Paired(data, a, b, metric, each.value, each.se))
            found.append(Paired(data, a, b, metric + BY_SEED, seeds.value, seeds.se))
        return found


def _run(study: RobotStudy, names: Sequence[str], folder: Path, at_once: int) -> Found:
    """Trains all that is needed, `at_once` policies at a time; then the episodes, likewise."""
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
    return Found(
        _joined(acted, names),
        _joined(trained, needed),
        len(seeds),
        joint_source([trained.source, acted.source]),
    )


def _with_seeds(names: Iterable[str], seeds: Iterable[int]) -> list[str]:
    return [f"{name}-{seed}" for seed in seeds for name in names]


def _joined(results: Results, names: Iterable[str]) -> dict[str, dict[str, Estimate]]:
    """The estimates of each name, those of its seeds one after another."""
    joined = {}
    for name in names:
        parts = [
            estimates
            for place, estimates in results.estimates.items()
            if place.rpartition("-")[0] == name
        ]
        joined[name] = {
            metric: Estimate(torch.cat([part[metric].rows for part in parts]))
            for metric in parts[0]
        }
    return joined


def _replayed(study: RobotStudy) -> list[Row]:
    """How many demonstrations were replayed, and the share that completed its tasks."""
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
            console.print(f"{row.dataset}: {done} of {row.n} completed all they set out to")
    table = report_table("reward", "mean", "± episodes", "± trainings", "paper")
    for name, estimates in found.acted.items():
        one = estimates[REWARD]
        paper = cell(*PAPER[name]) if name in PAPER else ""
        seeds = found.by_seed(one)
        table.add_row(name, f"{one.value:.2f}", f"{one.se:.2f}", f"{seeds.se:.2f}", paper)
    console.print(table)
    table = report_table("a - b: more\nis better for a", "mean", "± episodes", "± trainings")
    pairs = {(pair.a, pair.b, pair.metric): pair for pair in kept.paired}
    for (a, b, metric), pair in pairs.items():
        if not metric.endswith(BY_SEED):
            by_seed = pairs[a, b, metric + BY_SEED].se
            words = f"{a} - {b}" + (", nats" if metric == NATS else "")
            table.add_row(words, f"{pair.difference:+.2f}", f"{pair.se:.2f}", f"{by_seed:.2f}")
    console.print(table)
    _show_likelihoods(console, found)
    width = max(map(len, found.acted))
    console.print("\n".join(f"{name:<{width}}  {ROWS[name].meaning}" for name in found.acted))
    console.print(f"full autonomy in the paper, an implicit policy: {cell(*FULL_AUTONOMY)}")


def _show_likelihoods(console: Console, found: Found) -> None:
    """Nats of held-out actions, and the coverage of intervals by what is given."""
    names = [name for name in LIKELIHOODS if name in found.trained]
    if not names:
        return
    table = report_table("held-out actions", *names)
    for metric in found.trained[names[0]]:
        words = metric.replace("_", " ").replace(COVERAGE, "in the interval of 0.8,")
        ones = [found.trained[name][metric] for name in names]
        table.add_row(words, *(cell(one.value, one.se) for one in ones))
    console.print(table)
