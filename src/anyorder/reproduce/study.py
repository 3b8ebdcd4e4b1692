"""An experiment: models that are trained on one data set and compared.

Models are trained in folders of their own, which experiments share: what Table 1 has trained,
Figure 3 only measures.

Equal time on a shared machine: steps in place of minutes.

A clock is unfair to whichever model trains while the machine is busy. So the steps of all models
are timed first, in turns, which a disturbance strikes alike; each then gets as many steps as it
would have made in the minutes, and the training can be resumed to the same bits.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rich.progress import track

from anyorder.diagnostics.evaluation import Estimate
from anyorder.images.data import ImageRows
from anyorder.inference.model import AnyOrderModel
from anyorder.reproduce.jobs import joint_source, run_jobs
from anyorder.reproduce.options import ExperimentOptions
from anyorder.reproduce.record import Entry, Paired, Record, Row, progress_console
from anyorder.text.data import Crops
from anyorder.training.batches import Rows
from anyorder.training.loop import Validation, fit
from anyorder.training.settings import TrainingSettings, default_device

ROUNDS = 100
"""Timed steps of each model; questions differ in length, so that few would not tell."""


def equal_steps(
    timers: Mapping[str, Callable[[int], float]], minutes: float, *, rounds: int | None = None
) -> dict[str, int]:
    """How many steps each model makes in as many minutes.

    Args:
        timers: For each model, a function that makes a step and tells its seconds; it is given
            the number of the round.
        minutes: The budget.
        rounds: How many steps are timed; `ROUNDS` by default.
    """
    rounds = ROUNDS if rounds is None else rounds
    seconds = dict.fromkeys(timers, 0.0)
    for step in timers.values():  # the first is slower: memory is set up
        step(0)
    for turn in track(range(rounds), "timing steps", console=progress_console(), transient=True):
        for name, step in timers.items():
            seconds[name] += step(turn)
    return {name: max(1, round(60 * minutes * rounds / total)) for name, total in seconds.items()}


def kept_steps(
    path: Path, identity: dict[str, Any], measure: Callable[[], dict[str, int]]
) -> dict[str, int]:
    """The steps that are written in a file, or new ones where it is of another experiment.

    Args:
        path: The file.
        identity: What the steps depend on, in plain values.
        measure: Gives new ones.
    """
    plain = json.loads(json.dumps(identity))
    if path.exists():
        kept = json.loads(path.read_text())
        if kept["identity"] == plain:
            steps: dict[str, int] = kept["steps"]
            return steps
    measured = measure()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"identity": plain, "steps": measured}, indent=1) + "\n")
    return measured


class Study(ABC):
    """One data set, and how models of it are built, trained and measured, at one size.

    It is sent to other processes, so it holds the place of its data rather than the data.
    """

    catalogue: ClassVar[Mapping[str, Entry]]
    """All models that are trained in the same folders, whichever experiment they are of."""

    scale: Any
    """How large models are: a dataclass, with the `settings` of their training."""

    unit: ClassVar[str | None]
    """What is measured in; None where the name of each metric says so."""

    @property
    @abstractmethod
    def data_name(self) -> str:
        """What to call the data in tables."""

    @property
    @abstractmethod
    def num_variables(self) -> int:
        """N."""

    @property
    def settings(self) -> TrainingSettings:
        """How models are trained, all alike."""
        found: TrainingSettings = self.scale.settings
        return found

    def identity(self) -> dict[str, Any]:
        """What a training depends on beside the settings, in plain values: data and shape."""
        shape = {name: value for name, value in asdict(self.scale).items() if name != "settings"}
        digest = self.rows().describe()["sha256"]
        return {"data": {"name": self.data_name, "sha256": digest}, **shape}

    @abstractmethod
    def build(self, entry: Entry) -> AnyOrderModel:
        """The untrained model; its weights depend on the seed of the settings only."""

    @abstractmethod
    def rows(self) -> Crops | Rows | ImageRows:
        """What is trained on."""

    @abstractmethod
    def held_out(self, entry: Entry) -> Validation:
        """The surprise at held-out rows, while training."""

    @abstractmethod
    def measure(self, model: AnyOrderModel, seed: int) -> dict[str, Estimate]:
        """What the experiment asks of a trained model, on test rows."""


class Outcome(NamedTuple):
    """What an experiment found, and what that depends on."""

    data: str
    estimates: dict[str, dict[str, Estimate]]
    settings: dict[str, Any]
    source: dict[str, Any]
    folder: Path
    unit: str | None

    def rows(self) -> list[Row]:
        """The numbers, for a record."""
        return [
            Row(self.data, name, self.metric(metric), found.value, found.se, len(found.rows))
            for name, estimates in self.estimates.items()
            for metric, found in estimates.items()
        ]

    def record(self, command: str, paired: list[Paired]) -> Record:
        """What is kept of it."""
        return Record(command, self.settings, self.rows(), paired, self.source)

    def difference(self, a: str, b: str, metric: str) -> Paired:
        """How much more `a` has than `b`, row by row."""
        found = self.estimates[a][metric].minus(self.estimates[b][metric])
        return Paired(self.data, a, b, self.metric(metric), found.value, found.se)

    def metric(self, name: str) -> str:
        """The name of a metric with its unit."""
        return name if self.unit is None else f"{name}_{self.unit}"


def joint_record(command: str, outcomes: Mapping[str, Outcome], paired: list[Paired]) -> Record:
    """One record for several data sets, by their names."""
    return Record(
        command,
        {name: outcome.settings for name, outcome in outcomes.items()},
        [row for outcome in outcomes.values() for row in outcome.rows()],
        paired,
        joint_source([outcome.source for outcome in outcomes.values()]),
    )


def run_experiment(
    name: str, names: list[str], study: Study, folder: Path, options: ExperimentOptions
) -> Outcome:
    """Trains the models that are not trained yet, and measures them.

    Args:
        name: Of the experiment; its estimates go to files of this name.
        names: Its models.
        study: The data, and how models of it are trained and measured.
        folder: Each model has a folder of its name in it.
        options: The choices of the user.
    """
    settings = study.settings
    if options.minutes is not None:
        settings = replace(settings, steps=None, minutes=options.minutes)
    about = {**study.identity(), "settings": asdict(settings)}
    steps = _steps(folder / "steps.json", study, settings, about)
    estimates, source = run_jobs(
        Job(study, settings, steps, options.seed),
        names,
        folder,
        evaluation=f"{name}.json",
        identity={**about, "seed": options.seed},
        at_once=options.at_once,
    )
    settled = {**about, "seed": options.seed, "steps": {name: steps.get(name) for name in names}}
    return Outcome(study.data_name, estimates, settled, source, folder, study.unit)


@dataclass(frozen=True)
class Job:
    """Trains and measures one model; can be sent to another process.

    Args:
        study: The data, and how models of it are trained and measured.
        settings: How models are trained.
        steps: How long each model trains, if the settings count in minutes.
        seed: Of the questions that are asked.
    """

    study: Study
    settings: TrainingSettings
    steps: Mapping[str, int]
    seed: int

    def __call__(self, name: str, folder: Path) -> dict[str, Estimate]:
        """Trains, or goes on training, then measures."""
        study, settings, entry = self.study, self.settings, self.study.catalogue[name]
        if name in self.steps:
            settings = replace(settings, steps=self.steps[name], minutes=None)
        model = study.build(entry).to(default_device())
        fit(
            model,
            study.rows(),
            entry.objective(study.num_variables),
            settings=settings,
            valid=study.held_out(entry),
            folder=folder,
        )
        return study.measure(model.eval(), self.seed)


def _steps(
    path: Path, study: Study, settings: TrainingSettings, about: dict[str, Any]
) -> dict[str, int]:
    """The steps of each model, where the budget is in minutes and one process trains."""
    minutes = settings.minutes
    if minutes is None or "WORLD_SIZE" in os.environ:
        return {}
    kinds = {name: _timed_as(name, entry) for name, entry in study.catalogue.items()}

    def measure() -> dict[str, int]:
        timers = {kind: _timer(kind, study, settings) for kind in set(kinds.values())}
        steps = equal_steps(timers, minutes)
        return {name: steps[kind] for name, kind in kinds.items()}

    return kept_steps(path, about, measure)


def _timed_as(name: str, entry: Entry) -> str:
    """The model whose steps take as long.

    Masked networks differ in what is drawn only, which costs next to nothing; but densities cost
    by the number of variables that a mask leaves to be asked.
    """
    return "mac" if entry.network == "masked" and entry.head == "categorical" else name


def _timer(name: str, study: Study, settings: TrainingSettings) -> Callable[[int], float]:
    """Makes a step of a model of its own, and tells the seconds that it took."""
    entry = study.catalogue[name]
    model = study.build(entry).to(default_device())
    data, objective = study.rows(), entry.objective(study.num_variables)

    def seconds(turn: int) -> float:
        once = replace(
            settings,
            steps=1, minutes=None, clock="wall", seed=turn, evaluate_every=None, patience=None,
        )  # fmt: skip
        return fit(model, data, objective, settings=once).seconds

    return seconds
