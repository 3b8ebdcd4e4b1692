"""The training loop: one plain loop for a CPU, a GPU, or several processes.

A step is a function of the weights, the seed and its number (`batches.py`), so a run that was
stopped and resumed is bit for bit the same as one that was not. Between two steps the loop agrees
with the other processes, evaluates, and saves. Ctrl-C takes effect there and nowhere else, so that
no step is half done (`Interrupts`).
"""

import math
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic, perf_counter, process_time
from typing import Any, Literal, Self

import torch
from torch import Tensor

from anyorder.errors import AnotherRunError, AnyOrderWarning, ConfigError
from anyorder.inference.model import AnyOrderModel
from anyorder.saving.checkpoint import (
    Pair,
    RunFolder,
    as_json,
    describe,
    describe_model,
    difference,
    fill,
    named_tensors,
)
from anyorder.training.batches import (
    MicroBatch,
    Rows,
    TrainingData,
    check_rows,
    micro_batches,
    scoped_seed,
)
from anyorder.training.distributed import Team
from anyorder.training.learner import Learner, denormals_flushed
from anyorder.training.losses import Objective
from anyorder.training.progress import Metrics, ProgressLine, shows
from anyorder.training.settings import (
    MACHINE_FIELDS,
    Clock,
    TrainingSettings,
    end_of,
    learning_rate,
    low_precision,
    share_done,
)

Validation = Callable[[AnyOrderModel], float | Tensor]
"""Function from a model to its held-out loss, or to those of rows ``(rows,)``: then their mean
counts, and the differences between evaluations tell when it stopped improving."""

MODEL_FIELDS = ("schema", "network", "conditionals", "protocol")
"""Fields that identify a model; its query law is part of the objective."""

_LONGER = (
    ": the learning rate of such a schedule ends with its budget, so that only runs with "
    'schedule="constant" can be trained longer.'
)

CURVE = "curve/losses"
"""Name of the held-out losses of all evaluations in a checkpoint."""

SMOOTHED, SIGNIFICANT = 2, 1.0
"""Fewest evaluations that are averaged before two averages are compared, and the gain, in standard
errors, below which held-out loss has stopped improving."""

BUSY, BUSY_FROM = 0.5, 5.0
"""Share of the wall clock below which a machine was busy, and the least seconds to tell from."""

TINY = 1e-12
"""Least standard error, where all rows gain the same."""

CLOCK_TICK = 1e-9
"""The shortest time, in seconds, that a rate is computed over."""

IMPATIENCE = 5.0
"""Seconds after which a second Ctrl-C does not wait for the step to end: a step hangs."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that stop a training: Ctrl-C, and the one that schedulers send before a kill."""


@dataclass
class Fit:
    """Progress and outcome of a training.

    Attributes:
        step: Number of steps done.
        seconds: Time spent in all, by the clock of the settings.
        setup: Part of it before the first step.
        computed: Processor time of this process among it.
        loss: Loss as last written to the metrics, in nats per variable.
        held_out: Last value of `valid`, in bits per variable.
        best: Least value of `valid`.
        best_step: Step at which `best` was found.
        best_seconds: Value of `seconds` then.
        evaluated: Last step that was evaluated.
        stale: Evaluations since the best one.
        plateau: Share of the budget at which held-out loss stopped improving, if it has.
        improving: True if held-out loss was still improving at the last evaluation.
        ending: Reason why the training ended; None while it runs.
    """

    step: int = 0
    seconds: float = 0.0
    setup: float = 0.0
    computed: float = 0.0
    loss: float | None = None
    held_out: float | None = None
    best: float | None = None
    best_step: int = 0
    best_seconds: float = 0.0
    evaluated: int = 0
    stale: int = 0
    plateau: float | None = None
    improving: bool = False
    ending: Literal["budget", "patience", "plateau"] | None = None


def fit(
    model: AnyOrderModel,
    data: TrainingData | Tensor,
    objective: Objective,
    *,
    settings: TrainingSettings,
    valid: Validation | None = None,
    folder: str | Path | None = None,
    notes: Mapping[str, Any] | None = None,
    progress: bool | None = False,
    spent: float = 0.0,
) -> Fit:
    """Trains a model in place (Alg. 1 of the paper, with any objective).

    Under torchrun, or in an initialised process group, all processes call this with the same
    arguments and train together; the first one writes.

    Args:
        model: The model; move it to its device before.
        data: Source of rows, or a tensor of them ``(rows, columns)``.
        objective: The objective to minimise.
        settings: The settings of the training.
        valid: Function from a model to its held-out bits; less is better. It is called with the
            weights that would be returned, without gradients, in all processes.
        folder: Folder of checkpoints and metrics. A run of the same model and settings that is
            there already is resumed; Ctrl-C leaves a checkpoint.
        notes: Notes to save with the model of each checkpoint; see `save_model`.
        progress: Whether a line on standard error shows progress; None shows it in terminals and
            notebooks.
        spent: Seconds of the budget that were spent before, on what the training needed.
    """
    if isinstance(data, Tensor):
        data = Rows(data, seed=settings.seed if isinstance(settings, TrainingSettings) else 0)
    _check_types(model, data, objective, settings)
    low_precision(settings.precision, model.device.type)
    if settings.patience is not None and valid is None:
        raise ConfigError("`patience` needs `valid`: without it nothing is evaluated.")
    started = now(settings.clock)
    run = _Run(model, data, objective, settings, valid, folder, notes)
    run.fit.setup = run.fit.seconds = spent + now(settings.clock) - started
    with run.held():
        run.resume()
        run.train(progress=shows(progress))
    fill(named_tensors(model), run.learner.result())
    model.eval()
    _warn_if_busy(run.fit, settings, model.device)
    return run.fit


def now(clock: Clock) -> float:
    """Returns the seconds of a clock."""
    return process_time() if clock == "processor" else perf_counter()


def verdict(fit: Fit) -> str:
    """Returns in a sentence whether a training has converged; "" if nothing was held out.

    Example:
        >>> verdict(Fit(step=200, seconds=14.8, best=1.068, best_seconds=13.1, ending="plateau"))
        'Converged after 15 s and 200 steps: held-out loss best 1.068 at 13 s.'
    """
    if fit.best is None:
        return ""
    after = f"after {fit.seconds:.0f} s and {fit.step:,} steps"
    best = f"held-out loss best {fit.best:.3f} at {fit.best_seconds:.0f} s"
    if fit.ending == "budget" and fit.improving:
        return f"Still improving {after}: {best}, and more minutes would pay."
    return f"Converged {after}: {best}."


def _warn_if_busy(fit: Fit, settings: TrainingSettings, device: torch.device) -> None:
    """Warns where other work on the machine took the time of a training, which was cut short."""
    seconds = fit.seconds - fit.setup
    by_wall = fit.ending == "budget" and settings.minutes is not None and settings.clock == "wall"
    if device.type != "cpu" or not by_wall or not fit.improving or seconds < BUSY_FROM:
        return
    if fit.computed < BUSY * seconds:
        warnings.warn(
            f"The machine was busy: training computed for {fit.computed:.0f} of {seconds:.0f} "
            "seconds and was still improving when its time was up; give it more `minutes`, or "
            'clock="processor".',
            AnyOrderWarning,
            stacklevel=2,
        )


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
        self.curve = torch.zeros(0)  # held-out losses (evaluations, rows)
        self.window = torch.zeros(2, device=self.team.device)  # losses and norms not yet logged
        self.unlogged = 0
        self.speed = 0.0  # rows a second
        self.is_whole = True  # False while a step is half done
        self.is_agreed = False  # True once all processes stop at this step

    def held(self) -> AbstractContextManager[None]:
        """Returns the context in which the folder is locked for this run."""
        folder = self.folder if self.team.is_first else None
        return nullcontext() if folder is None else folder.held()

    def resume(self) -> None:
        """Continues from the last checkpoint, if there is one."""
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
        self.curve = tensors.get(CURVE, self.curve)
        self.fit = Fit(**document["fit"])
        loss, norm, self.unlogged = document["window"]
        self.window[0] = loss if self.team.is_first else 0.0
        self.window[1] = norm
        self.saved = self.logged = replace(self.fit)

    def train(self, *, progress: bool) -> None:
        """Trains until the budget or the patience is exhausted."""
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
                    with self.interrupts.shield(), self._timed():
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
        """Agrees with the other processes, evaluates and saves if due; tests for the end."""
        self._agree()
        fit, settings = self.fit, self.settings
        spent = self._share() >= end_of(fit.plateau)
        due = spent or _is_multiple(fit.step, settings.evaluate_every)
        if self.valid is not None and due and fit.evaluated < fit.step:
            with self._timed():
                self._evaluate(self.valid)
        if settings.patience is not None and fit.stale >= settings.patience:
            fit.ending = "patience"
        elif spent:
            fit.ending = "budget" if end_of(fit.plateau) == 1 else "plateau"
        else:
            fit.ending = None  # of a constant schedule that is trained longer
        if fit.ending is not None and self.unlogged:
            self._log(*self._sums())
        is_new = (fit.step, fit.evaluated) != (self.saved.step, self.saved.evaluated)
        if is_new and (fit.ending is not None or self._is_checkpoint_due()):
            self._save()
        return fit.ending is not None

    def _agree(self) -> None:
        """Makes all processes read one clock and stop at the same step."""
        asked, self.fit.seconds = self.team.greatest(self.interrupts.asked, self.fit.seconds)
        if asked:
            self.is_agreed = True
            raise KeyboardInterrupt

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Counts the time of a block."""
        fit, clock, computed = self.fit, self.settings.clock, process_time()
        start = now(clock)
        yield
        fit.seconds += now(clock) - start
        fit.computed += process_time() - computed

    def _step(self) -> None:
        fit, settings = self.fit, self.settings
        with self._scoped_seed(f"dropout of process {self.team.rank}"):
            batches = list(self._batches())
            self.is_whole = False
            rate = learning_rate(
                settings, fit.step, fit.seconds, setup=fit.setup, plateau=fit.plateau
            )
            with denormals_flushed():
                loss, norm = self.learner.learn(batches, rate)
        fit.step += 1
        self.learner.update_average(fit.step)
        self.window += torch.stack([loss, norm])
        self.unlogged += 1
        self.is_whole = True
        if _is_multiple(fit.step, settings.log_every):
            self._log(*self._sums())  # waits for the device

    def _batches(self) -> Iterator[MicroBatch]:
        return micro_batches(
            self.learner.model,
            self.data,
            self.objective,
            settings=self.settings,
            team=self.team,
            step=self.fit.step,
            share=self._share() / end_of(self.fit.plateau),
        )

    def _scoped_seed(self, purpose: str) -> AbstractContextManager[None]:
        return scoped_seed(self.settings.seed, self.fit.step, purpose, device=self.team.device)

    def _sums(self) -> tuple[float, float]:
        """Returns the sums of losses and gradient norms since the last line; raises if not finite.

        All processes must call this.
        """
        loss, norm = self.team.total(self.window[0]), self.window[1].item()
        if not math.isfinite(loss + norm):
            raise ConfigError(
                f"The training diverged by step {self.fit.step}: its loss or gradient is not "
                "finite. Lower `learning_rate` or raise `warmup`; the last good checkpoint is kept."
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
        self._sums()  # refuses to evaluate weights that diverged
        with self._scoped_seed("valid"), self.learner.answering(self.interrupts.shield) as model:
            losses = torch.as_tensor(valid(model), dtype=torch.float64).flatten().cpu()
        (value,) = self.team.greatest(float(losses.mean()))
        if math.isnan(value):
            raise ConfigError(f"`valid` returned NaN at step {fit.step}: lower `learning_rate`.")
        with self.interrupts.shield():
            fit.held_out, fit.evaluated, fit.stale = value, fit.step, fit.stale + 1
            if fit.best is None or value < fit.best:
                if self.settings.patience is not None or self.settings.schedule == "trapezoid":
                    self.learner.keep_best()
                fit.best, fit.best_step, fit.stale = value, fit.step, 0
                fit.best_seconds = fit.seconds
            if len(losses) > 1:
                self._watch(losses)
        self.metrics.write(fit.step, held_out=value, seconds=fit.seconds)
        self._show()

    def _watch(self, losses: Tensor) -> None:
        """Adds an evaluation to the curve, and notes where it stopped improving."""
        fit, before = self.fit, self.curve
        self.curve = torch.cat([before.view(-1, len(losses)), losses[None].float()])
        gain = late_gain(self.curve)
        (stopped,) = self.team.greatest(float(gain is not None and gain < SIGNIFICANT))
        fit.improving = not stopped
        if stopped and self.settings.schedule == "trapezoid" and fit.plateau is None:
            fit.plateau = self._share()

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
        # Sharded weights are gathered by all processes; whole ones are read by the first alone.
        if self.folder is None or not (self.team.is_first or self.settings.sharding == "fsdp"):
            return
        weights, state = self.learner.result(), self.learner.state()
        if len(self.curve):
            state[CURVE] = self.curve
        document = {**self.identity, "fit": asdict(self.fit), "window": window}
        if self.team.is_first:
            pairs = {"model": Pair(self.described, weights), "training": Pair(document, state)}
            self.folder.save(self.fit.step, pairs)

    def _check_same(self, saved: Mapping[str, Any], folder: Path) -> None:
        """Refuses to resume a run of another model, objective, data or settings."""
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
        fit = self.fit
        return share_done(self.settings, fit.step, fit.seconds, setup=fit.setup)


def late_gain(curve: Tensor) -> float | None:
    """Returns the gain of the last third of the evaluations over the third before.

    It is in standard errors of the differences, which are paired over the rows: of so many rows
    the loss itself is known far less well. None means that it is too early to tell.

    Args:
        curve: Held-out losses. Shape ``(evaluations, rows)``.
    """
    third = max(SMOOTHED, len(curve) // 3)
    if len(curve) < 2 * third:
        return None
    before, after = curve[-2 * third : -third].mean(dim=0), curve[-third:].mean(dim=0)
    gains = (before - after).double()
    error = gains.std() / len(gains) ** 0.5
    return float(gains.mean() / error.clamp(min=TINY))


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
    """Returns the parts of a document that must be the same when a run is resumed."""
    model = {name: document["model"].get(name) for name in MODEL_FIELDS}
    settings = {key: value for key, value in document["settings"].items() if key not in free}
    kept = {name: document[name] for name in ("objective", "data")}
    return {"model": model, "settings": settings, **kept}


def _describe(objective: Objective) -> dict[str, Any]:
    try:
        return describe(objective)
    except (AttributeError, TypeError, ValueError):  # it does not keep its arguments
        return {"type": type(objective).__name__}


class Stopped(KeyboardInterrupt):
    """A training was stopped; its message says what was saved."""


class Interrupts:
    """Delays Ctrl-C to the end of a step; a second one after `IMPATIENCE` does not wait.

    Args:
        patient: True makes Ctrl-C only set `asked`, even between steps, for several processes that
            must stop at the same step.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.asked = False
        self._patient = patient
        self._shielded = self._deaf = False
        self._asked_at = 0.0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others receive no signals
            self._previous = {name: signal.signal(name, self._handle) for name in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for name, handler in self._previous.items():
            signal.signal(name, handler)

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Ignores signals in this block, so that a checkpoint is written to its end."""
        self._deaf = True
        try:
            yield
        finally:
            self._deaf = False

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Delays Ctrl-C to the end of this block."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self.asked and not self._patient:
            raise KeyboardInterrupt

    def _handle(self, *signal_and_frame: object) -> None:
        del signal_and_frame
        if self._deaf:
            return
        late = self.asked and monotonic() - self._asked_at > IMPATIENCE
        if late or not (self._shielded or self._patient):
            raise KeyboardInterrupt
        self._asked_at = self._asked_at if self.asked else monotonic()
        self.asked = True
