"""An experiment with models of text: how long each trains, and the runs of all.

Models are trained in folders of their own, which experiments share: what Table 1 has trained,
Figure 3 only measures.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from anyorder.data.text import Crops, Text, chunks
from anyorder.evaluation import Estimate
from anyorder.model import AnyOrderModel
from anyorder.reproduce.budget import equal_steps, kept_steps
from anyorder.reproduce.jobs import run_jobs
from anyorder.reproduce.options import ExperimentOptions
from anyorder.reproduce.record import Paired, Record, Row
from anyorder.reproduce.text_catalogue import FIGURE3, TABLE1, Entry
from anyorder.reproduce.text_models import SCALES, Scale, build, read_text, train
from anyorder.training.fit import fit
from anyorder.training.settings import default_device

CATALOGUE: Mapping[str, Entry] = {**TABLE1, **FIGURE3}

Measure = Callable[[AnyOrderModel, Tensor, int], dict[str, Estimate]]
"""From a trained model, test rows and a seed to estimates; a function of a module."""


class Outcome(NamedTuple):
    """What an experiment found, and what that depends on."""

    data: str
    estimates: dict[str, dict[str, Estimate]]
    settings: dict[str, Any]
    source: dict[str, Any]
    folder: Path

    def record(self, command: str, paired: list[Paired]) -> Record:
        """What is kept of it."""
        rows = [
            Row(self.data, name, f"{metric}_bits", found.value, found.se, len(found.rows))
            for name, estimates in self.estimates.items()
            for metric, found in estimates.items()
        ]
        return Record(command, self.settings, rows, paired, self.source)

    def difference(self, a: str, b: str, metric: str) -> Paired:
        """How many bits more `a` needs than `b`, row by row."""
        found = self.estimates[a][metric].minus(self.estimates[b][metric])
        return Paired(self.data, a, b, f"{metric}_bits", found.value, found.se)


def run_experiment(
    name: str, entries: Mapping[str, Entry], measure: Measure, options: ExperimentOptions
) -> Outcome:
    """Trains the models that are not trained yet, and measures them.

    Args:
        name: Of the experiment; its estimates go to files of this name.
        entries: Its models.
        measure: What is measured.
        options: The choices of the user.
    """
    options.check(SCALES, entries)
    scale, text = SCALES[options.scale], read_text(options.data)
    if options.minutes is not None:
        budget = replace(scale.settings, steps=None, minutes=options.minutes)
        scale = replace(scale, settings=budget)
    folder, names = options.out / options.scale, options.models or list(entries)
    about = _identity(scale, text)
    steps = _steps(folder / "steps.json", scale, text, about)
    job = TextJob(measure, scale, steps, options.data, options.seed)
    estimates, source = run_jobs(
        job,
        names,
        folder,
        evaluation=f"{name}.json",
        identity={**about, "seed": options.seed},
        at_once=options.at_once,
    )
    settings = {**about, "seed": options.seed, "steps": {name: steps.get(name) for name in names}}
    return Outcome(text.name, estimates, settings, source, folder)


@dataclass(frozen=True)
class TextJob:
    """Trains and measures one model; can be sent to another process.

    Args:
        measure: What is measured.
        scale: How large.
        steps: How long each model trains, if its scale counts in minutes.
        data: Where the text is; see `read_text`.
        seed: Of the questions that are asked.
    """

    measure: Measure
    scale: Scale
    steps: Mapping[str, int]
    data: Path | None
    seed: int

    def __call__(self, name: str, folder: Path) -> dict[str, Estimate]:
        """Trains, or goes on training, then measures."""
        text, scale = read_text(self.data), self.scale
        if name in self.steps:
            budget = replace(scale.settings, steps=self.steps[name], minutes=None)
            scale = replace(scale, settings=budget)
        model = train(CATALOGUE[name], scale, text, folder=folder)
        return self.measure(model, chunks(text.test, scale.length, scale.rows), self.seed)


def _identity(scale: Scale, text: Text) -> dict[str, Any]:
    """What a training depends on, in plain values."""
    shape = {name: value for name, value in asdict(scale).items() if name != "settings"}
    data = {"name": text.name, "sha256": Crops(text.train, scale.length).describe()["sha256"]}
    return {"data": data, **shape, "settings": asdict(scale.settings)}


def _steps(path: Path, scale: Scale, text: Text, about: dict[str, Any]) -> dict[str, int]:
    """The steps of each model, where the budget is in minutes and one process trains."""
    minutes = scale.settings.minutes
    if minutes is None or "WORLD_SIZE" in os.environ:
        return {}
    # Masked networks differ in what is drawn only, which costs next to nothing: one stands for all.
    kinds = {name: "mac" if e.network == "masked" else name for name, e in CATALOGUE.items()}

    def measure() -> dict[str, int]:
        timers = {kind: _timer(CATALOGUE[kind], scale, text) for kind in set(kinds.values())}
        steps = equal_steps(timers, minutes)
        return {name: steps[kind] for name, kind in kinds.items()}

    return kept_steps(path, about, measure)


def _timer(entry: Entry, scale: Scale, text: Text) -> Callable[[int], float]:
    """Makes a step of a model of its own, and tells the seconds that it took."""
    model = build(entry, scale, text.alphabet).to(default_device())
    data, objective = Crops(text.train, scale.length), entry.objective(scale.length)

    def seconds(turn: int) -> float:
        once = replace(scale.settings, steps=1, minutes=None, clock="wall", seed=turn)
        return fit(model, data, objective, settings=once).seconds

    return seconds
