"""Training: one plain loop for a CPU, a GPU, or several processes.

A step is a function of the weights, the seed and its number (`batches.py`), so a run that was
stopped and resumed has the bits of one that was not. Between two steps the loop agrees with the
other processes, evaluates, and saves; Ctrl-C is heard there and nowhere else.

Numbers that are almost zero are zero while a model trains.

Where attention is sharp, gradients get so small that their floats are denormal (below 1e-38), and
a CPU computes with those in microcode: a step of a trained masked network on text took twice its
time. They do not matter to a sum of any other numbers.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Literal

import torch
from torch import Tensor

from anyorder.errors import AnotherRunError, ConfigError
from anyorder.inference.model import AnyOrderModel
from anyorder.saving.checkpoint import describe, describe_model, fill, named_tensors
from anyorder.saving.run_folder import Pair, RunFolder, as_json, difference
from anyorder.training.batches import (
    MicroBatch,
    Rows,
    TrainingData,
    check_rows,
    micro_batches,
    scoped_seed,
)
from anyorder.training.distributed import Team
from anyorder.training.interrupts import Interrupts, Stopped
from anyorder.training.learner import Learner
from anyorder.training.losses import Objective
from anyorder.training.progress import Metrics, ProgressLine
from anyorder.training.settings import (
    MACHINE_FIELDS,
    TrainingSettings,
    learning_rate,
    low_precision,
    share_done,
)

DENORMAL = 1e-40
"""A denormal float32."""


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Computes with zeros in place of denormal numbers, in this thread."""
    before = is_flushing()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def is_flushing() -> bool:
    """Whether denormal numbers are zeros already."""
    return not torch.tensor(DENORMAL).mul(1).item()


Validation = Callable[[AnyOrderModel], float]

MODEL_FIELDS = ("schema", "network", "conditionals", "protocol")
"""What makes a model the same one; its law is part of the objective."""

_LONGER = (
    ": the learning rate of such a schedule ends with its budget, so that only runs with "
    'schedule="constant" can be trained longer.'
)

CLOCK_TICK = 1e-9
"""The shortest time, in seconds, that a rate is taken over."""


@dataclass
class Fit:
    """How far a training has come, and how it went.

    Attributes:
        step: Steps done.
        seconds: Time spent on them; evaluations and checkpoints do not count.
        loss: The loss as last written to the metrics, nats a variable.
        held_out: The last value of `valid`, bits a variable.
        best: The least value of `valid`.
        best_step: The step that it was found at.
        evaluated: The last step that was evaluated.
        stale: Evaluations since the best one.
        ending: Why the training ended.
    """

    step: int = 0
    seconds: float = 0.0
    loss: float | None = None
    held_out: float | None = None
    best: float | None = None
    best_step: int = 0
    evaluated: int = 0
    stale: int = 0
    ending: Literal["budget", "patience"] | None = None


def fit(
    model: AnyOrderModel,
    data: TrainingData | Tensor,
    objective: Objective,
    *,
    settings: TrainingSettings,
    valid: Validation | None = None,
    folder: str | Path | None = None,
    notes: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Fit:
    """Trains a model in place (Alg. 1 of the paper, with any objective).

    Under torchrun, or in an initialised process group, all processes call this with the same
    arguments and train together; the first one writes.

    Args:
        model: Trained where it is: move it to its device before.
        data: Where rows come from; a tensor of them ``(rows, columns)`` will do.
        objective: What is minimised.
        settings: How.
        valid: Gives the held-out bits of a model; less is better. It is called with the weights
            that would be returned, without gradients, in all processes.
        folder: Where checkpoints and metrics go. A run that is there already, of the same model
            and settings, is gone on with; Ctrl-C leaves a checkpoint.
        notes: What is saved with the model of each checkpoint; see `save_model`.
        progress: Whether a line on standard error shows how it goes.
    """
    if isinstance(data, Tensor):
        data = Rows(data, seed=settings.seed if isinstance(settings, TrainingSettings) else 0)
    _check_types(model, data, objective, settings)
    low_precision(settings.precision, model.device.type)
    if settings.patience is not None and valid is None:
        raise ConfigError("`patience` needs `valid`: without it nothing is evaluated.")
    run = _Run(model, data, objective, settings, valid, folder, notes)
    with run.held():
        run.resume()
        run.train(progress=progress)
    fill(named_tensors(model), run.learner.result())
    model.eval()
    return run.fit


class _Run:
    """One training, from its first step or its last checkpoint to its end."""

    def __init__(
        self,
        model: AnyOrderModel,
        data: TrainingData,
        objective: Objective,
        settings: TrainingSettings,
        valid: Validation | None,
        folder: str | Path | None,
        notes: Mapping[str, Any] | None,
    ) -> None:
        self.team = Team(model.device)
        check_rows(settings, self.team)
        self.data, self.objective = data, objective
        self.settings, self.valid = settings, valid
        self.folder = None if folder is None else RunFolder(folder)
        self.described = describe_model(model, law=getattr(objective, "law", None), notes=notes)
        rows: dict[str, Any] = getattr(data, "describe", dict)()
        parts = {"settings": asdict(settings), "objective": _describe(objective), "data": rows}
        self.identity = as_json(parts)
        self.learner = Learner(model, objective, settings, self.team)
        self.interrupts = Interrupts(patient=not self.team.is_alone)
        self.fit = Fit()
        self.saved = self.logged = replace(self.fit)
        self.window = torch.zeros(2, device=self.team.device)  # losses and norms not yet logged
        self.unlogged = 0
        self.speed = 0.0  # rows a second
        self.is_whole = True  # whether no step is half done
        self.is_agreed = False  # whether all processes stop here

    def held(self) -> AbstractContextManager[None]:
        """While the folder is this run's alone."""
        mine = self.folder if self.team.is_first else None
        return nullcontext() if mine is None else mine.held()

    def resume(self) -> None:
        """Goes on from the last checkpoint, if there is one."""
        folder = self.folder
        if folder is None:
            return
        folder.refuse_another()
        pairs = self.team.share(lambda: folder.load("model", "training"))
        if pairs is None:
            return
        (described, _), (document, tensors) = pairs
        self._check_same({**document, "model": described}, folder.folder)
        self.learner.load(tensors)
        self.fit = Fit(**document["fit"])
        loss, norm, self.unlogged = document["window"]
        self.window[0] = loss if self.team.is_first else 0.0
        self.window[1] = norm
        self.saved = self.logged = replace(self.fit)

    def train(self, *, progress: bool) -> None:
        """Steps until the budget is spent or patience ends."""
        first, fit = self.team.is_first, self.fit
        self.metrics = Metrics(
            self.folder.folder if self.folder and first else None,
            step=fit.step,
            evaluated=fit.evaluated,
            tensorboard=self.settings.tensorboard,
        )
        self.line = ProgressLine(shown=progress and first, share=self._share())
        with closing(self.metrics), self.line, self.interrupts:
            try:
                while not self._is_over():
                    with self.interrupts.shield():
                        self._step()
            except KeyboardInterrupt:
                with self.interrupts.deaf():
                    if self.is_whole and (self.team.is_alone or self.is_agreed):
                        self._save()
                raise Stopped(self._kept()) from None

    def _kept(self) -> str:
        if self.folder is None or not self.folder.names():
            return "Stopped, and nothing was saved."
        return (
            f"Saved at step {self.saved.step:,}: the same call or command goes on from this "
            "checkpoint."
        )

    def _is_over(self) -> bool:
        """Between two steps: agrees with the others, evaluates, saves what is due."""
        self._agree()
        fit, settings = self.fit, self.settings
        spent = self._share() >= 1
        due = spent or _is_multiple(fit.step, settings.evaluate_every)
        if self.valid is not None and due and fit.evaluated < fit.step:
            self._evaluate(self.valid)
        if settings.patience is not None and fit.stale >= settings.patience:
            fit.ending = "patience"
        else:
            fit.ending = "budget" if spent else None
        if fit.ending is not None and self.unlogged:
            self._log(*self._sums())
        is_new = (fit.step, fit.evaluated) != (self.saved.step, self.saved.evaluated)
        if is_new and (fit.ending is not None or self._is_checkpoint_due()):
            self._save()
        return fit.ending is not None

    def _agree(self) -> None:
        """All processes read one clock, and stop at the same step."""
        asked, self.fit.seconds = self.team.greatest(self.interrupts.asked, self.fit.seconds)
        if asked:
            self.is_agreed = True
            raise KeyboardInterrupt

    def _step(self) -> None:
        start, fit, settings = self._now(), self.fit, self.settings
        with self._scoped_seed(f"dropout of process {self.team.rank}"):
            batches = list(self._batches())
            self.is_whole = False
            rate = learning_rate(settings, fit.step, fit.seconds)
            with denormals_flushed():
                loss, norm = self.learner.learn(batches, rate)
        fit.step += 1
        self.learner.remember(fit.step)
        self.window += torch.stack([loss, norm])
        self.unlogged += 1
        self.is_whole = True
        # Reading the loss waits for the device, which is time of training.
        sums = self._sums() if _is_multiple(fit.step, settings.log_every) else None
        fit.seconds += self._now() - start
        if sums is not None:
            self._log(*sums)

    def _now(self) -> float:
        return process_time() if self.settings.clock == "processor" else perf_counter()

    def _batches(self) -> Iterator[MicroBatch]:
        return micro_batches(
            self.learner.model,
            self.data,
            self.objective,
            settings=self.settings,
            team=self.team,
            step=self.fit.step,
        )

    def _scoped_seed(self, purpose: str) -> AbstractContextManager[None]:
        return scoped_seed(self.settings.seed, self.fit.step, purpose, device=self.team.device)

    def _sums(self) -> tuple[float, float]:
        """The losses and gradients since the last line, or an error if they are not numbers.

        All processes must ask.
        """
        loss, norm = self.team.total(self.window[0]), self.window[1].item()
        if not math.isfinite(loss + norm):
            raise ConfigError(
                f"The training diverged by step {self.fit.step}: its loss or gradient is no number "
                "any more. Lower `learning_rate` or raise `warmup`; the last good checkpoint is "
                "kept."
            )
        return loss, norm

    def _log(self, loss: float, norm: float) -> None:
        fit, before, steps = self.fit, self.logged, self.unlogged
        rows = (fit.step - before.step) * self.settings.batch
        self.speed = rows / max(fit.seconds - before.seconds, CLOCK_TICK)
        fit.loss, self.logged = loss / steps, replace(fit)
        self.window.zero_()
        self.unlogged = 0
        self.metrics.write(
            fit.step,
            loss=fit.loss,
            gradient=norm / steps,
            learning_rate=self.learner.rate,
            rows_per_second=self.speed,
            seconds=fit.seconds,
        )
        self._show()

    def _evaluate(self, valid: Validation) -> None:
        fit = self.fit
        self._sums()  # weights that are no numbers are not worth an evaluation
        with self._scoped_seed("valid"), self.learner.answering(self.interrupts.shield) as model:
            (value,) = self.team.greatest(float(valid(model)))
        if math.isnan(value):
            raise ConfigError(f"`valid` gave no number at step {fit.step}: lower `learning_rate`.")
        with self.interrupts.shield():
            fit.held_out, fit.evaluated, fit.stale = value, fit.step, fit.stale + 1
            if fit.best is None or value < fit.best:
                if self.settings.patience is not None:
                    self.learner.keep_best()
                fit.best, fit.best_step, fit.stale = value, fit.step, 0
        self.metrics.write(fit.step, held_out=value, seconds=fit.seconds)
        self._show()

    def _show(self) -> None:
        fit, share, speed = self.fit, self._share(), self.speed
        self.line.show(share, step=fit.step, loss=fit.loss, held_out=fit.held_out, speed=speed)

    def _is_checkpoint_due(self) -> bool:
        minutes = self.settings.checkpoint_minutes
        late = minutes is not None and self.fit.seconds - self.saved.seconds >= 60 * minutes
        return late or _is_multiple(self.fit.step, self.settings.checkpoint_every)

    def _save(self) -> None:
        window = [*self._sums(), self.unlogged]
        self.saved = replace(self.fit)
        # Sharded weights are gathered by all processes; whole ones are the first one's to read.
        if self.folder is None or not (self.team.is_first or self.settings.sharding == "fsdp"):
            return
        weights, state = self.learner.result(), self.learner.state()
        document = {**self.identity, "fit": asdict(self.fit), "window": window}
        if self.team.is_first:
            pairs = {"model": Pair(self.described, weights), "training": Pair(document, state)}
            self.folder.save(self.fit.step, pairs)

    def _check_same(self, saved: Mapping[str, Any], folder: Path) -> None:
        """Refuses to go on with a run of another model, objective or settings."""
        free = set(MACHINE_FIELDS)
        if self.settings.schedule == "constant":  # the budget does not change what was done
            free |= {"steps", "minutes"}
        now = _comparable({**self.identity, "model": self.described}, free)
        words = difference(_comparable(saved, free), now)
        if words is not None:
            raise AnotherRunError(
                f'"{folder}" holds another run: {words}. '
                "Train into another folder, or with the settings of that run"
                + (_LONGER if words.startswith(("`settings.steps`", "`settings.minutes`")) else ".")
            )

    def _share(self) -> float:
        return share_done(self.settings, self.fit.step, self.fit.seconds)


def _check_types(model: object, data: object, objective: object, settings: object) -> None:
    """Refuses arguments in the wrong place before any work is done."""
    for name, value, kind in (
        ("model", model, AnyOrderModel),
        ("objective", objective, Objective),
        ("settings", settings, TrainingSettings),
    ):
        if not isinstance(value, kind):
            article = "an" if kind.__name__[0] in "AO" else "a"
            raise ConfigError(
                f"`{name}` must be {article} {kind.__name__}; got {type(value).__name__}."
            )
    if not callable(getattr(data, "batch", None)):
        raise ConfigError(f"`data` must have a method `batch`; got {type(data).__name__}.")


def _is_multiple(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0


def _comparable(document: Mapping[str, Any], free: set[str]) -> dict[str, Any]:
    """What must be the same when a run is gone on with."""
    model = {name: document["model"].get(name) for name in MODEL_FIELDS}
    settings = {key: value for key, value in document["settings"].items() if key not in free}
    kept = {name: document[name] for name in ("objective", "data")}
    return {"model": model, "settings": settings, **kept}


def _describe(objective: Objective) -> dict[str, Any]:
    try:
        return describe(objective)
    except (AttributeError, TypeError, ValueError):  # it does not keep its arguments
        return {"type": type(objective).__name__}
