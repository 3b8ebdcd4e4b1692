"""The settings of `fit`: the learning rate and precision they imply, and this process's place.

A process learns its rank and the number of processes from torchrun's environment variables; they
are read here, so that training and saving agree on them.
"""

import math
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist

from anyorder.errors import (
    TORCHRUN,
    ConfigError,
    check_choice,
    check_count,
    check_device,
    check_flag,
    check_positive,
    check_seed,
    environment_integer,
)

Schedule = Literal["constant", "linear", "cosine", "trapezoid"]
Precision = Literal["auto", "float32", "bfloat16"]
Sharding = Literal["none", "fsdp"]
Clock = Literal["wall", "processor"]

MACHINE_FIELDS = frozenset(
    {"accumulate", "compile", "sharding", "checkpoint_every", "checkpoint_minutes", "tensorboard"}
)
"""Settings that adapt a run to a machine, and may differ when it is resumed on another."""

LONGEST_WARMUP = 0.1
"""Greatest fraction of `minutes` that warmup may take: where steps are slow, a hundred of them may
be all there is time for."""

DECAY = 0.5
"""Share of the time that the trapezoid's decay takes. At equal steps it is ahead of the cosine on
adult, and not significantly different on penguins and abalone."""

LEAST_TRAINED = 0.2
"""Least share of `minutes` for the steps themselves, however long the set-up took."""

SECONDS = 60
"""Seconds of a minute."""

INSTANT = 1e-9
"""Least budget, in seconds, that a share is computed of."""

NEEDED = ("RANK", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that several processes need: their rank, and where they meet."""


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of `fit`. At least one of `steps` and `minutes` must be given.

    Args:
        batch: Rows of a step, over all processes and micro-batches.
        steps: Budget in steps. With this budget alone, a resumed run is bit for bit the same as an
            undisturbed one.
        minutes: Budget in minutes, in all: evaluations, checkpoints and what was spent before the
            first step count.
        clock: Clock of `minutes`: "wall", or "processor" for the time that this process spent
            computing, which is fair to models that are compared on a busy machine.
        learning_rate: Greatest learning rate.
        warmup: Steps over which the rate rises from zero; at most a tenth of a budget in minutes.
        schedule: The rate after that: "constant"; "linear" or "cosine" decay to zero at the end of
            the budget; or "trapezoid": constant until half of the budget is spent, or held-out
            loss has stopped improving, then linear decay for as long. It returns the best weights.
        betas: Betas of AdamW.
        weight_decay: Weight decay of AdamW; not applied to biases, norms and embeddings.
        clip: Greatest norm of the gradient, or None.
        ema: Decay of a moving average of the weights, or None. The average is evaluated and
            returned. Its decay is smaller at first, so that it forgets the start.
        accumulate: Micro-batches of a step; must divide `batch`.
        draws: Times that the objective samples in a step; must divide `accumulate`. More than one
            puts queries of several sizes into a step where an objective samples one size at a time.
        precision: "auto" is bfloat16 autocast on CUDA and float32 elsewhere.
        compile: True compiles the loss with torch.compile.
        sharding: With several processes: "none" (each holds all weights, DDP) or "fsdp" (FSDP2).
        seed: Seed of everything random in the training.
        log_every: Steps between lines of metrics.
        evaluate_every: Steps between evaluations of `valid`; None evaluates at the end only.
        patience: Evaluations without improvement after which the training stops and returns the
            best weights. None spends all of the budget and returns the last weights.
        checkpoint_every: Steps between checkpoints, or None.
        checkpoint_minutes: Minutes of training between checkpoints, or None.
        tensorboard: True writes metrics to TensorBoard too, where it is installed.
    """

    batch: int = 64
    steps: int | None = None
    minutes: float | None = None
    clock: Clock = "wall"
    learning_rate: float = 1e-3
    warmup: int = 100
    schedule: Schedule = "cosine"
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.01
    clip: float | None = 1.0
    ema: float | None = None
    accumulate: int = 1
    draws: int = 1
    precision: Precision = "auto"
    compile: bool = False
    sharding: Sharding = "none"
    seed: int = 0
    log_every: int = 10
    evaluate_every: int | None = None
    patience: int | None = None
    checkpoint_every: int | None = None
    checkpoint_minutes: float | None = 2.0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("batch", "accumulate", "draws", "log_every"):
            check_count(name, getattr(self, name))
        for name in ("steps", "evaluate_every", "patience", "checkpoint_every"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("warmup", self.warmup, low=0)
        check_count("seed", self.seed, low=0)
        check_choice("schedule", self.schedule, get_args(Schedule))
        check_choice("precision", self.precision, get_args(Precision))
        check_choice("sharding", self.sharding, get_args(Sharding))
        check_choice("clock", self.clock, get_args(Clock))
        self._check_numbers()
        self._check_together()

    def _check_numbers(self) -> None:
        for name in ("minutes", "clip", "checkpoint_minutes"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        check_positive("learning_rate", self.learning_rate)
        if self.weight_decay != 0:
            check_positive("weight_decay", self.weight_decay)
        if self.ema is not None:
            check_positive("ema", self.ema, below=1)
        if not isinstance(self.betas, tuple | list) or len(self.betas) != 2:
            raise ConfigError(f"`betas` must be two numbers; got {self.betas!r}.")
        for beta in self.betas:
            check_positive("betas", beta, below=1)
        object.__setattr__(self, "betas", tuple(self.betas))

    def _check_together(self) -> None:
        if self.steps is None and self.minutes is None:
            raise ConfigError("`steps` or `minutes` must be given: training needs a budget.")
        if self.patience is not None and self.evaluate_every is None:
            raise ConfigError("`patience` counts evaluations: give `evaluate_every` too.")
        if self.batch % self.accumulate:
            raise ConfigError(
                f"`accumulate` must divide `batch`; got {self.accumulate} and {self.batch}."
            )
        if self.accumulate % self.draws:
            raise ConfigError(
                f"`draws` must divide `accumulate`; got {self.draws} and {self.accumulate}."
            )


def training_settings(default: TrainingSettings, estimator: Any) -> TrainingSettings:
    """Checks the five parameters that all estimators share; returns how one trains.

    Its `minutes` and `random_state` take the place of those of `default`, its `settings` that of
    all. A policy of a robot has no `device`.
    """
    minutes, settings = estimator.minutes, estimator.settings
    if estimator.progress is not None:
        check_flag("progress", estimator.progress)
    check_device(getattr(estimator, "device", None))
    given = estimator.random_state
    seed = 0 if given is None else check_seed(given, "random_state")
    if minutes is not None:
        check_positive("minutes", minutes)
    if settings is None:
        return replace(default, minutes=default.minutes if minutes is None else minutes, seed=seed)
    if not isinstance(settings, TrainingSettings):
        got = type(settings).__name__
        raise ConfigError(f"`settings` must be TrainingSettings or None; got {got}.")
    if minutes is not None:
        raise ConfigError("`minutes` and `settings` exclude each other: set settings.minutes.")
    if seed not in (0, settings.seed):
        raise ConfigError("`random_state` and `settings` exclude each other: set settings.seed.")
    return settings


def share_done(
    settings: TrainingSettings, step: int, seconds: float, *, setup: float = 0.0
) -> float:
    """Returns the fraction of the budget that is spent: the greater one of two budgets.

    Of the seconds, `setup` were spent before the first step; the steps have the rest.
    """
    by_steps = step / settings.steps if settings.steps else 0.0
    if not settings.minutes:
        return by_steps
    rest = max(SECONDS * settings.minutes - setup, INSTANT)
    return max(by_steps, (seconds - setup) / rest)


def leaving(settings: TrainingSettings, spent: float, share: float = 1.0) -> float:
    """Returns the seconds to count as spent, so that a share of the rest of the minutes is left.

    At least `LEAST_TRAINED` of the minutes are taken to be left.

    Example:
        >>> leaving(TrainingSettings(minutes=1), 20), leaving(TrainingSettings(minutes=1), 20, 0.5)
        (20.0, 40.0)
        >>> leaving(TrainingSettings(minutes=1), 90)
        48.0
    """
    if settings.minutes is None:
        return spent
    budget = SECONDS * settings.minutes
    return budget - share * max(budget - spent, LEAST_TRAINED * budget)


def learning_rate(
    settings: TrainingSettings,
    step: int,
    seconds: float,
    *,
    setup: float = 0.0,
    plateau: float | None = None,
) -> float:
    """Returns the learning rate of the step after `step` steps.

    Args:
        settings: Settings of the training.
        step: Number of steps done.
        seconds: Seconds spent, of which `setup` were before the first step.
        setup: See `share_done`.
        plateau: Share of the budget at which held-out loss stopped improving, if it has.
    """
    rate = settings.learning_rate
    done = share_done(settings, step, seconds, setup=setup)
    if step < settings.warmup:
        by_time = done / LONGEST_WARMUP if settings.minutes else 0.0
        rate *= min(1.0, max((step + 1) / settings.warmup, by_time))
    done = min(done, 1)
    if settings.schedule == "linear":
        rate *= 1 - done
    if settings.schedule == "cosine":
        rate *= (1 + math.cos(math.pi * done)) / 2
    if settings.schedule == "trapezoid":
        end = end_of(plateau)
        rate *= min(1.0, max(0.0, end - done) / (DECAY * end))
    return rate


def end_of(plateau: float | None) -> float:
    """Returns the share of the budget at which a training ends: decay is `DECAY` of its time.

    Example:
        >>> end_of(None), end_of(0.1), end_of(0.9)
        (1.0, 0.2, 1.0)
    """
    return 1.0 if plateau is None else min(1.0, plateau / (1 - DECAY))


def low_precision(precision: Precision, device_type: str) -> torch.dtype | None:
    """Returns the type that matrix products are computed in, or None for float32.

    On a CPU bfloat16 is refused: on machines whose hypervisor hides AMX state it kills the process,
    with no error that could be caught.
    """
    if precision == "bfloat16" and device_type == "cpu":
        raise ConfigError('`precision` "bfloat16" is for GPUs; on a CPU use "auto" or "float32".')
    wanted = precision == "bfloat16" or (precision == "auto" and device_type == "cuda")
    return torch.bfloat16 if wanted else None


def autocast(precision: Precision, device_type: str) -> AbstractContextManager[object]:
    """Returns the context in which losses are computed."""
    dtype = low_precision(precision, device_type)
    return nullcontext() if dtype is None else torch.autocast(device_type, dtype=dtype)


def is_first_process() -> bool:
    """Tests for the process that writes: the only one, or the first of torchrun's."""
    return rank_and_world_size()[0] == 0


def rank_and_world_size() -> tuple[int, int]:
    """Returns the rank of this process and the number of processes: 0 and 1 for a single one.

    Training and saving must both read it here: a process that trains alone saves too.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    size, rank = environment_integer("WORLD_SIZE", low=1), environment_integer("RANK", low=0)
    if rank >= size:
        found = f"WORLD_SIZE is {size}" if "WORLD_SIZE" in os.environ else "WORLD_SIZE is not set"
        raise ConfigError(
            f"The variable RANK must be below WORLD_SIZE, the number of processes; it is {rank}, "
            f"and {found}. {TORCHRUN}"
        )
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if size > 1 and missing:
        raise ConfigError(f"WORLD_SIZE is {size}, but {missing[0]} is not set. {TORCHRUN}")
    return rank, size
