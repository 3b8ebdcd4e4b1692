"""How a model is trained: the settings of `fit`, and what they say at a step.

Which of the processes that train together this one is, by what torchrun tells it.
"""

import math
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
import torch.distributed as dist

from anyorder.errors import (
    ConfigError,
    check_choice,
    check_count,
    check_flag,
    check_positive,
    check_seed,
)

NEEDED = ("RANK", "MASTER_ADDR", "MASTER_PORT")
"""What several processes must be told: which one they are, and where they meet."""

REMEDY = "Start with torchrun, which sets it; or unset WORLD_SIZE and RANK to train alone."


def place_and_number() -> tuple[int, int]:
    """The number of this process, and how many there are: 0 and 1 for one that is alone.

    Whoever trains and whoever saves must read it here: a process that trains alone saves too.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    size, rank = number_in("WORLD_SIZE", 1, low=1), number_in("RANK", 0, low=0)
    if rank >= size:
        told = f"WORLD_SIZE is {size}" if "WORLD_SIZE" in os.environ else "WORLD_SIZE is not set"
        raise ConfigError(
            f"The variable RANK must be below WORLD_SIZE, the number of processes; it is {rank}, "
            f"and {told}. {REMEDY}"
        )
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if size > 1 and missing:
        raise ConfigError(f"WORLD_SIZE is {size}, but {missing[0]} is not set. {REMEDY}")
    return rank, size


def number_in(variable: str, default: int, *, low: int) -> int:
    """The whole number in a variable of the environment."""
    text = os.environ.get(variable, str(default)).strip()
    if not text.isascii() or not text.isdigit() or int(text) < low:
        raise ConfigError(
            f'The variable {variable} must be a whole number, {low} or more; got "{text}". {REMEDY}'
        )
    return int(text)


Schedule = Literal["constant", "linear", "cosine"]
Precision = Literal["auto", "float32", "bfloat16"]
Sharding = Literal["none", "fsdp"]
Clock = Literal["wall", "processor"]
Device = Literal["cpu", "cuda", "mps"] | torch.device | None

MACHINE_FIELDS = frozenset(
    {"accumulate", "compile", "sharding", "checkpoint_every", "checkpoint_minutes", "tensorboard"}
)
"""Settings that fit a run to a machine, and may differ when it is resumed on another."""

LONGEST_WARMUP = 0.1
"""The share of the minutes that the learning rate may rise for: where steps are slow, a hundred of
them may be all there is time for."""


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of `fit`. At least one of `steps` and `minutes` must be given.

    Args:
        batch: Rows of a step, over all processes and micro-batches.
        steps: The budget in steps. Under it alone a resumed run has the bits of an undisturbed one.
        minutes: The budget in minutes of training; evaluations and checkpoints do not count.
        clock: How minutes are counted: "wall", or "processor" for the time that this process spent
            computing, which is fair to models that are compared on a busy machine.
        learning_rate: Its greatest value.
        warmup: Over how many steps it rises from zero; of a budget in minutes at most a tenth.
        schedule: After that: "constant", or "linear" or "cosine" to zero at the end of the budget.
        betas: Of AdamW.
        weight_decay: Of AdamW; not on biases, norms and embeddings.
        clip: The greatest norm of the gradient, or None.
        ema: The decay of a moving average of the weights, or None. The average is what is
            evaluated and returned. It is shorter at first, so that it forgets the start.
        accumulate: Micro-batches of a step; divides `batch`.
        draws: How often the objective draws in a step; divides `accumulate`. More than one puts
            questions of several sizes into one step where an objective draws one size at a time.
        precision: "auto" is bfloat16 autocast on CUDA and float32 elsewhere.
        compile: Whether the loss is compiled with torch.compile.
        sharding: With several processes: "none" (each holds all, DDP) or "fsdp" (FSDP2).
        seed: Of everything random in the training.
        log_every: Steps between lines of metrics.
        evaluate_every: Steps between evaluations of `valid`; None: at the end only.
        patience: After how many evaluations without improvement the training stops; the best
            weights are then returned. None: all of the budget, and the last weights.
        checkpoint_every: Steps between checkpoints, or None.
        checkpoint_minutes: Minutes of training between checkpoints, or None.
        tensorboard: Whether metrics go to TensorBoard too, where it is installed.
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


def default_device() -> torch.device:
    """The GPU of this process, or the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", number_in("LOCAL_RANK", 0, low=0))


def check_device(device: Device) -> torch.device:
    """Returns the device that is meant, if this machine has it; None is `default_device`."""
    if device is None:
        return default_device()
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ConfigError(
            f'`device` must be None, "cpu", "cuda", "mps" or a torch.device; got {device!r}.'
        ) from None
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": torch.backends.mps.is_available()}
    if (found.index or 0) >= there.get(found.type, 0):
        raise ConfigError(
            f'`device` must be a device of this machine; it has no "{found}". Use "cpu", or None '
            "for the GPU if there is one."
        )
    return default_device() if found == torch.device("cuda") else found


def training_settings(
    default: TrainingSettings,
    *,
    random_state: int | None,
    minutes: float | None,
    settings: object,
    progress: object,
    device: Device = None,
) -> TrainingSettings:
    """Checks the five parameters that all estimators share; returns how they train.

    Args:
        default: Settings of the estimator where none are given.
        random_state: Seed of everything random in training; None is 0.
        minutes: Budget of training time in place of that of `default`.
        settings: All settings of training, in place of `default`, `minutes` and `random_state`.
        progress: Whether a line shows how training goes.
        device: Where the model is trained; see `check_device`.
    """
    check_flag("progress", progress)
    check_device(device)
    seed = 0 if random_state is None else check_seed(random_state, "random_state")
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


def is_first_process() -> bool:
    """Whether this is the process that writes: the only one, or the first of torchrun's."""
    return place_and_number()[0] == 0


def share_done(settings: TrainingSettings, step: int, seconds: float) -> float:
    """How much of the budget is spent, 1 at its end; of two budgets, that which ends first."""
    by_steps = step / settings.steps if settings.steps else 0.0
    by_time = seconds / (60 * settings.minutes) if settings.minutes else 0.0
    return max(by_steps, by_time)


def learning_rate(settings: TrainingSettings, step: int, seconds: float) -> float:
    """The learning rate of the step after `step` steps."""
    rate = settings.learning_rate
    if step < settings.warmup:
        by_time = seconds / (60 * LONGEST_WARMUP * settings.minutes) if settings.minutes else 0.0
        rate *= min(1.0, max((step + 1) / settings.warmup, by_time))
    done = min(share_done(settings, step, seconds), 1)
    if settings.schedule == "linear":
        rate *= 1 - done
    if settings.schedule == "cosine":
        rate *= (1 + math.cos(math.pi * done)) / 2
    return rate


def low_precision(precision: Precision, device_type: str) -> torch.dtype | None:
    """The type that matrix products are computed in, if it is not float32.

    On a CPU bfloat16 is refused: on machines whose hypervisor hides AMX state it ends the process,
    with no error that could be caught.
    """
    if precision == "bfloat16" and device_type == "cpu":
        raise ConfigError('`precision` "bfloat16" is for GPUs; on a CPU use "auto" or "float32".')
    wanted = precision == "bfloat16" or (precision == "auto" and device_type == "cuda")
    return torch.bfloat16 if wanted else None


def autocast(precision: Precision, device_type: str) -> AbstractContextManager[object]:
    """The context in which losses are computed."""
    dtype = low_precision(precision, device_type)
    return nullcontext() if dtype is None else torch.autocast(device_type, dtype=dtype)
