"""Studies: models that are trained on one data set and compared.

A `Study` says how models of a data set are built, trained and measured. `run_experiment` trains
them in folders of their own, some at a time, and returns an `Outcome`. Experiments share these
folders: Figure 3 only measures the models that Table 1 has trained.

Results are read from the folders, so an interrupted command resumes. A folder holds the settings
and the commit of its results; results of other settings are refused.

Training budgets in minutes become steps. A wall clock is unfair to the model that trains while the
machine is busy. So the steps of all models are timed first, in turns, and each model gets the
number of steps that fit into the minutes. The training can then be resumed to the same bits.
"""

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, NamedTuple

import torch
from rich.console import Console
from rich.progress import track

from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import ConfigError, check_device
from anyorder.heads.distributions import CategoricalConditionals, Conditionals
from anyorder.images.data import ImageRows
from anyorder.inference.model import AnyOrderModel
from anyorder.lattice.protocols import DecompositionProtocol
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.reproduce.options import ExperimentOptions
from anyorder.reproduce.record import (
    TOO_SHORT,
    Entry,
    Paired,
    Record,
    Row,
    legend,
    progress_console,
    report_console,
    source,
)
from anyorder.text.data import Crops
from anyorder.training.batches import Rows
from anyorder.training.loop import Validation, fit
from anyorder.training.settings import TrainingSettings, is_first_process
from anyorder.variables import Schema


class Study(ABC):
    """Builds, trains and measures the models of one data set at one scale.

    A study is sent to other processes, so it holds the path of its data rather than the data.
    """

    catalogue: ClassVar[Mapping[str, Entry]]
    """Models that are trained in the same folders, of all experiments on this data."""

    scale: Any
    """Sizes of the models: a dataclass that includes the training `settings`."""

    unit: ClassVar[str | None]
    """Unit of all metrics; None if the name of each metric ends in its unit."""

    @property
    @abstractmethod
    def data_name(self) -> str:
        """Name of the data set in tables."""

    @property
    @abstractmethod
    def num_variables(self) -> int:
        """Number of variables N."""

    @property
    def settings(self) -> TrainingSettings:
        """Training settings, the same for all models."""
        found: TrainingSettings = self.scale.settings
        return found

    def identity(self) -> dict[str, Any]:
        """Returns the data and the sizes that a training depends on, in plain values."""
        shape = {name: value for name, value in asdict(self.scale).items() if name != "settings"}
        digest = self.rows().describe()["sha256"]
        return {"data": {"name": self.data_name, "sha256": digest}, **shape}

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Variables of a row."""

    @abstractmethod
    def network(self, entry: Entry, schema: Schema) -> MaskedNetwork | PathNetwork[Any]:
        """Returns the network of a model."""

    def conditionals(self, entry: Entry, schema: Schema, width: int) -> Conditionals:
        """Returns the head of a model."""
        del entry
        return CategoricalConditionals(schema, width=width)

    def protocol(self, entry: Entry) -> DecompositionProtocol:
        """Returns the protocol of a model."""
        return entry.protocol(self.num_variables)

    def build(self, entry: Entry) -> AnyOrderModel:
        """Returns the untrained model; its weights depend only on the seed of the settings."""
        schema = self.schema
        with torch.random.fork_rng():
            torch.manual_seed(self.settings.seed)
            network = self.network(entry, schema)
            conditionals = self.conditionals(entry, schema, network.width)
        return AnyOrderModel(schema, network, conditionals, self.protocol(entry))

    @abstractmethod
    def rows(self) -> Crops | Rows | ImageRows:
        """Returns the training rows."""

    @abstractmethod
    def held_out(self, entry: Entry) -> Validation:
        """Returns the validation loss that is evaluated while training."""

    @abstractmethod
    def measure(self, model: AnyOrderModel, seed: int) -> dict[str, Estimate]:
        """Returns the metrics of a trained model on test rows."""


class Outcome(NamedTuple):
    """Estimates of an experiment by model and metric, with the settings and code behind them."""

    data: str
    estimates: dict[str, dict[str, Estimate]]
    settings: dict[str, Any]
    source: dict[str, Any]
    folder: Path
    unit: str | None

    def rows(self) -> list[Row]:
        """Returns the estimates as rows of a record."""
        return [
            Row(self.data, name, self.metric(metric), found.value, found.se, len(found.rows))
            for name, estimates in self.estimates.items()
            for metric, found in estimates.items()
        ]

    def record(self, command: str, paired: list[Paired]) -> Record:
        """Returns the record of the experiment."""
        return Record(command, self.settings, self.rows(), paired, self.source)

    def difference(self, a: str, b: str, metric: str) -> Paired:
        """Returns the paired difference `a` - `b` of a metric."""
        found = self.estimates[a][metric].minus(self.estimates[b][metric])
        return Paired(self.data, a, b, self.metric(metric), found.value, found.se)

    def differences(self, pairs: Iterable[tuple[str, str]], metrics: Iterable[str]) -> list[Paired]:
        """Returns paired differences of the pairs of models that were measured."""
        measured = [(a, b) for a, b in pairs if {a, b} <= self.estimates.keys()]
        return [self.difference(a, b, metric) for a, b in measured for metric in metrics]

    def steps(self, name: str) -> int:
        """Returns the largest number of training steps of a model."""
        steps: int = self.settings["steps"][name] or self.settings["settings"]["steps"]
        return steps

    def metric(self, name: str) -> str:
        """Returns the name of a metric with its unit."""
        return name if self.unit is None else f"{name}_{self.unit}"


@dataclass(frozen=True)
class SetsTable:
    """A table of several data sets: its command, title, differences, and what it prints of each."""

    name: str
    title: str
    paired: Callable[[Outcome], list[Paired]]
    show: Callable[[Console, Outcome, Any], None]

    def run(self, studies: Mapping[str, Study], options: ExperimentOptions) -> None:
        """Trains and measures the models on each data set, and prints them."""
        entries = next(iter(studies.values())).catalogue
        names = options.models or list(entries)
        outcomes = {
            one: run_experiment(self.name, names, study, options.out / options.scale / one, options)
            for one, study in studies.items()
        }
        record = Record(
            options.command(self.name),
            {one: outcome.settings for one, outcome in outcomes.items()},
            [row for outcome in outcomes.values() for row in outcome.rows()],
            [pair for outcome in outcomes.values() for pair in self.paired(outcome)],
            joint_source([outcome.source for outcome in outcomes.values()]),
        )
        if not record.publish(options.record, json=options.json):
            return
        console = report_console()
        console.print(self.title)
        for one, outcome in outcomes.items():
            self.show(console, outcome, studies[one])
        console.print(legend(entries, names))
        if options.scale == "tiny":
            console.print(f"\n{TOO_SHORT}")


def run_experiment(
    name: str, names: list[str], study: Study, folder: Path, options: ExperimentOptions
) -> Outcome:
    """Trains the models that are not trained yet, and measures them."""
    settings = study.settings
    if options.minutes is not None:
        settings = replace(settings, steps=None, minutes=options.minutes)
    about = {**study.identity(), "settings": asdict(settings)}
    steps = _steps(folder / "steps.json", study, settings, about)
    estimates, source = run_jobs(
        TrainingJob(study, settings, steps, options.seed),
        names,
        folder,
        evaluation=f"{name}.json",
        identity={**about, "seed": options.seed},
        at_once=options.at_once,
    )
    settled = {**about, "seed": options.seed, "steps": {name: steps.get(name) for name in names}}
    return Outcome(study.data_name, estimates, settled, source, folder, study.unit)


@dataclass(frozen=True)
class TrainingJob:
    """Trains and measures one model; can be sent to another process."""

    study: Study
    settings: TrainingSettings
    steps: Mapping[str, int]
    seed: int

    def __call__(self, name: str, folder: Path) -> dict[str, Estimate]:
        """Trains the model of a name, or resumes its training, then measures it."""
        study, settings, entry = self.study, self.settings, self.study.catalogue[name]
        if name in self.steps:
            settings = replace(settings, steps=self.steps[name], minutes=None)
        model = study.build(entry).to(check_device(None))
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
    """Returns the steps of each model, if the budget is in minutes and one process trains."""
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
    """Returns the model whose steps take equally long.

    Masked networks differ only in their training masks, which cost next to nothing to sample. The
    cost of densities depends on the number of masked variables, so those are timed apart.
    """
    return "mac" if entry.network == "masked" and entry.head == "categorical" else name


def _timer(name: str, study: Study, settings: TrainingSettings) -> Callable[[int], float]:
    """Returns a function that trains a fresh model for one step and returns its seconds."""
    entry = study.catalogue[name]
    model = study.build(entry).to(check_device(None))
    data, objective = study.rows(), entry.objective(study.num_variables)

    def seconds(turn: int) -> float:
        once = replace(
            settings,
            steps=1, minutes=None, clock="wall", seed=turn, evaluate_every=None, patience=None,
        )  # fmt: skip
        return fit(model, data, objective, settings=once).seconds

    return seconds


ROUNDS = 100
"""Timed steps of each model; queries differ in size, so few steps would be a poor estimate."""


def equal_steps(timers: Mapping[str, Callable[[int], float]], minutes: float) -> dict[str, int]:
    """Returns the number of steps that each model makes in the same minutes.

    A timer maps the number of a round to the seconds of a step.
    """
    seconds = dict.fromkeys(timers, 0.0)
    for step in timers.values():  # the first step is slower: it allocates memory
        step(0)
    for turn in track(range(ROUNDS), "timing steps", console=progress_console(), transient=True):
        for name, step in timers.items():
            seconds[name] += step(turn)
    return {name: max(1, round(60 * minutes * ROUNDS / total)) for name, total in seconds.items()}


def kept_steps(
    path: Path, identity: dict[str, Any], measure: Callable[[], dict[str, int]]
) -> dict[str, int]:
    """Reads the steps from a file, or measures and writes them if its identity differs."""
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


Job = Callable[[str, Path], dict[str, Estimate]]
"""Trains and evaluates the model of a name in a folder, and returns its estimates."""


class Results(NamedTuple):
    """Estimates of each model, and the commit that produced them."""

    estimates: dict[str, dict[str, Estimate]]
    source: dict[str, Any]


def run_jobs(
    job: Job,
    names: Iterable[str],
    folder: Path,
    *,
    identity: dict[str, Any],
    evaluation: str = "evaluation.json",
    doing: str = "training",
    at_once: int = 1,
) -> Results:
    """Runs the jobs that are not done yet, and returns the results of all.

    Args:
        job: Function that can be sent to another process.
        names: Names of the models.
        folder: Folder that holds a folder for each model.
        identity: Data and settings that the results depend on, in plain values.
        evaluation: File in the folder of a model that holds its estimates.
        doing: Word for the job in the progress lines.
        at_once: Number of processes, with one thread each; 1 runs the jobs in this process.
    """
    wanted, plain = list(dict.fromkeys(names)), json.loads(json.dumps(identity))
    places = {name: folder / name / evaluation for name in wanted}
    for path in places.values():
        _check_same(path, plain)
    left = [name for name in wanted if not places[name].exists()]
    console = progress_console()
    if at_once == 1:
        for name in left:
            _run(job, name, places[name], plain, doing)
    else:
        with ProcessPoolExecutor(
            at_once, get_context("spawn"), _begin, max_tasks_per_child=1
        ) as pool:
            futures = {
                pool.submit(_run, job, name, places[name], plain, doing): name for name in left
            }
            try:
                for future in as_completed(futures):
                    future.result()
                    console.print(f"{futures[future]}: done")
            except BaseException:  # also Ctrl-C: cancels the jobs that have not begun
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    if not is_first_process():  # of torchrun: only the first process reports
        sys.exit()
    found = {name: _document(path) for name, path in places.items()}
    estimates = {name: read_estimates(document) for name, document in found.items()}
    return Results(estimates, joint_source([document["source"] for document in found.values()]))


def _begin() -> None:
    """Initialises a process: one thread, and an exit when the parent ends.

    A parent that is killed cannot stop its children, and the same command, run again, would find
    their folders in use. Only the steps since the last checkpoint are lost.
    """
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(job: Job, name: str, path: Path, identity: dict[str, Any], doing: str) -> None:
    if is_first_process():
        progress_console().print(f"{name}: {doing}")
    path.parent.mkdir(parents=True, exist_ok=True)
    began = source()
    estimates = job(name, path.parent)
    if is_first_process():
        write_estimates(path, estimates, identity=identity, source=began)


def _check_same(path: Path, identity: dict[str, Any]) -> None:
    if not path.exists():
        return
    done = _document(path)["identity"]
    if done != identity:
        both = [*identity, *(done if isinstance(done, dict) else ())]
        odd = next(k for k in both if not isinstance(done, dict) or done.get(k) != identity.get(k))
        raise ConfigError(
            f'"{path.parent}" holds results of another experiment: `{odd}` differs. Give another '
            "`out`, or delete that folder."
        )


def _document(path: Path) -> dict[str, Any]:
    """Reads and validates a file of `write_estimates`."""
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        joint_source([document["source"]])
        read_estimates(document)
        return {"identity": document["identity"], **document}
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError):
        raise ConfigError(
            f'"{path}" is damaged or was altered: delete it, and run the command again.'
        ) from None


def joint_source(sources: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the commits that produced several results, the last one first."""
    commits = list(dict.fromkeys(one["commit"] for one in reversed(sources)))
    found = {"commit": commits[0], "dirty": any(one["dirty"] for one in sources)}
    return found if len(commits) == 1 else {**found, "commits": commits}


def write_estimates(
    path: Path,
    estimates: dict[str, Estimate],
    *,
    identity: dict[str, Any],
    source: dict[str, Any],
) -> None:
    """Writes estimates with their rows, so that paired differences can be computed."""
    rows = {metric: estimate.rows.tolist() for metric, estimate in estimates.items()}
    document = {"identity": identity, "source": source, "estimates": rows}
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(document))
    aside.replace(path)


def read_estimates(document: dict[str, Any]) -> dict[str, Estimate]:
    """Returns the estimates in a document of `write_estimates`."""
    return {
        metric: Estimate(torch.tensor(rows, dtype=torch.float64))
        for metric, rows in document["estimates"].items()
    }
