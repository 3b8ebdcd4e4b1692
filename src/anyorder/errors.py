"""Errors, warnings, and the checks of arguments that raise them.

Every user error is an `AnyOrderError` and a `ValueError`. Its text is one or two sentences: which
argument, what must hold, what was received, what to do. Public functions call the checks below;
private functions trust their input.
"""

import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from numbers import Real
from operator import index
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor


class AnyOrderError(ValueError):
    """Root of all user errors: those that other arguments or other data avoid."""


class SchemaError(AnyOrderError):
    """Invalid description of variables, or data that does not fit the description."""


class QueryError(AnyOrderError):
    """Query that the model cannot answer soundly."""


class ConfigError(AnyOrderError):
    """Option with an invalid value."""


class CheckpointError(AnyOrderError):
    """Saved model that is incomplete, altered, or of another version."""


class AnotherRunError(CheckpointError):
    """Run folder of another model, of other data or with other settings."""


class AnyOrderWarning(UserWarning):
    """Warning: the result may be unreliable for the stated reason."""


P = ParamSpec("P")
R = TypeVar("R")


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accepts old names of keyword arguments for one more version, with a FutureWarning.

    Args:
        names: The new name by the old one. `self.name` is the attribute `name` of the object whose
            method is called: the argument moved to the constructor.

    Example:
        >>> @renamed(seed="random_state")
        ... def draw(*, random_state=None):
        ...     return random_state
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     draw(seed=3)
        3
        >>> print(caught[0].message)
        `seed` is now `random_state`; the old name goes with the next version.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def accepting(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                _rename(old, names[old], args, kwargs)
            return function(*args, **kwargs)

        return accepting

    return decorate


def _rename(old: str, new: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Warns at the call of a renamed function, and moves the value to where it belongs now."""
    attribute = new.removeprefix("self.")
    if attribute != new:
        setattr(args[0], attribute, kwargs.pop(old))
        new = f"{type(args[0]).__name__}({attribute}=)"
    elif new in kwargs:
        raise ConfigError(f"`{old}` is the old name of `{new}`: give `{new}` only.")
    else:
        kwargs[new] = kwargs.pop(old)
    words = f"`{old}` is now `{new}`; the old name goes with the next version."
    warnings.warn(words, FutureWarning, stacklevel=3)


PROBABILITY_TOLERANCE = 1e-6
"""Tolerance of the sum of probabilities: float32 input sums to one only this closely."""

MOST_LISTED = 8
"""Largest number of names that an error lists."""


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuses a value that is not one of `choices`, suggesting the nearest one."""
    options = list(choices)
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(f'"{option}"' for option in options)
        raise ConfigError(
            f'`{name}` must be one of {listed}; got "{value}".{nearest(value, options)}'
        )


def nearest(word: object, options: Iterable[object]) -> str:
    """Returns ' Did you mean ...?' if an option is close to `word`, else an empty string."""
    close = get_close_matches(str(word), [str(option) for option in options], n=1)
    return f' Did you mean "{close[0]}"?' if close else ""


def nearest_or_all(word: object, options: Iterable[object]) -> str:
    """Returns the text of `nearest`, or a list of the options if none is close to `word`."""
    known = [str(option) for option in options]
    listed = ", ".join(f'"{option}"' for option in known[:MOST_LISTED])
    more = f" and {len(known) - MOST_LISTED:,} more" if len(known) > MOST_LISTED else ""
    return nearest(word, known) or (f" Known are {listed}{more}." if known else "")


def check_count(name: str, value: object, *, low: int = 1, high: int | None = None) -> int:
    """Returns `value` as an int if it is an integer of any type from `low` to `high`."""
    try:
        number = None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < low or (high is not None and number > high):
        allowed = f"{low} or more" if high is None else f"from {low} to {high}"
        raise ConfigError(f"`{name}` must be a whole number, {allowed}; got {value!r}.")
    return number


def check_seed(value: object, name: str = "seed") -> int:
    """Returns `value` as an int if it is a valid seed."""
    return check_count(name, value, low=0, high=2**63 - 1)


def check_generator(generator: object) -> None:
    """Raises a `ConfigError` if it is neither None nor a source of randomness of torch."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ConfigError(
            f"`generator` must be a torch.Generator; got {type(generator).__name__}. Make one with "
            "torch.Generator().manual_seed(0)."
        )


def seeded(random_state: int | None) -> torch.Generator | None:
    """Returns the generator of a seed; None stands for torch's global state."""
    if random_state is None:
        return None
    return torch.Generator().manual_seed(check_seed(random_state, "random_state"))


def check_fraction(name: str, value: object) -> float:
    """Returns `value` as a float if it lies between 0 and 1, ends included."""
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not 0 <= number <= 1:
        raise ConfigError(f"`{name}` must be a number between 0 and 1; got {value!r}.")
    return number


def check_positive(name: str, value: object, *, below: float = math.inf) -> float:
    """Returns `value` if it is a number above 0 and below a bound."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 < value < below):  # type: ignore[operator]
        bounds = "above 0 and finite" if below == math.inf else f"above 0 and below {below}"
        raise ConfigError(f"`{name}` must be a number, {bounds}; got {value!r}.")
    return value  # type: ignore[return-value]


def check_probabilities(name: str, values: object, *, size: int | None = None) -> Tensor:
    """Returns `values` as a float64 vector if it is a probability distribution."""
    probabilities = _doubles(name, values)
    if probabilities.ndim != 1 or len(probabilities) == 0 or size not in (None, len(probabilities)):
        wanted = "one number or more" if size is None else f"{size} numbers"
        raise ConfigError(
            f"`{name}` must be a list of {wanted}; got shape {tuple(probabilities.shape)}."
        )
    if not (probabilities >= 0).all():
        raise ConfigError(f"`{name}` must not hold negative numbers or NaN.")
    total = float(probabilities.sum())
    if not math.isclose(total, 1, abs_tol=PROBABILITY_TOLERANCE):
        raise ConfigError(f"`{name}` must sum to 1; it sums to {total:.6g}. Divide it by its sum.")
    return probabilities / total


def check_weights(name: str, values: object, *, size: int) -> Tensor:
    """Returns `values`, non-negative and not all zero, divided by their sum."""
    weights = _doubles(name, values)
    if weights.shape != (size,):
        raise ConfigError(f"`{name}` must hold {size} numbers; got shape {tuple(weights.shape)}.")
    if not (weights >= 0).all() or not 0 < float(weights.sum()) < math.inf:
        raise ConfigError(
            f"`{name}` must be non-negative, finite and not all zero; got {values!r}."
        )
    return weights / weights.sum()


def _doubles(name: str, values: object) -> Tensor:
    try:
        return torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(f"`{name}` must be a list of numbers; got {values!r}.") from None


def check_permutation(name: str, values: object) -> Tensor:
    """Returns `values` as a long vector if it is a permutation of 0..N-1."""
    try:
        # Through a list, so that ranges and arrays with negative strides are accepted. The copy
        # protects against later changes of the caller's array.
        order = torch.tensor(values.tolist() if hasattr(values, "tolist") else list(values))  # type: ignore[call-overload]
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(f"`{name}` must be a list of whole numbers; got {values!r}.") from None
    if order.ndim != 1 or len(order) == 0 or order.dtype != torch.int64:
        raise ConfigError(
            f"`{name}` must be a permutation of 0..N-1 as one vector of whole numbers; "
            f"got shape {tuple(order.shape)} of {order.dtype}."
        )
    rule = f"`{name}` must name each of 0..{len(order) - 1} exactly once"
    for variable, times in Counter(order.tolist()).items():
        if not 0 <= variable < len(order):
            raise ConfigError(f"{rule}; {variable} is not one of them.")
        if times > 1:
            raise ConfigError(f"{rule}; {variable} occurs {times} times.")
    return order.long()


def check_sets(name: str, sets: object, num_variables: int, *, batch: int | None = None) -> Tensor:
    """Returns `sets` as a tensor if it is boolean of shape `(batch, vars)`, True = in the set."""
    rows = "batch" if batch is None else batch
    if isinstance(sets, np.ndarray) and sets.dtype == np.bool_:
        sets = torch.from_numpy(np.ascontiguousarray(sets))
    if not isinstance(sets, Tensor) or sets.dtype != torch.bool:
        got = sets.dtype if isinstance(sets, Tensor) else type(sets).__name__
        raise QueryError(f"`{name}` must be a boolean tensor, True = in the set; got {got}.")
    if sets.ndim != 2 or sets.shape[1] != num_variables or batch not in (None, sets.shape[0]):
        raise QueryError(
            f"`{name}` must have shape ({rows}, {num_variables}), one column a variable; "
            f"got {tuple(sets.shape)}."
        )
    return sets


def check_available(available: object, num_variables: int, batch: int) -> Tensor:
    """Returns `available` if it holds one non-empty set a row. Shape `(batch, vars)`."""
    have = check_sets("available", available, num_variables, batch=batch)
    empty = (~have.any(dim=1)).nonzero()
    if len(empty):
        raise QueryError(
            f"Every row of `available` must have a variable; row {int(empty[0])} has none. Drop it."
        )
    return have


def check_flag(name: str, value: object) -> bool:
    """Returns `value` as a bool if it is one, Python's or numpy's."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"`{name}` must be True or False; got {value!r}.")
    return bool(value)


def check_disjoint(given: Tensor, query: Tensor) -> None:
    """Refuses a variable that is both given and queried."""
    if given.shape != query.shape:
        raise QueryError(
            f"`given` and `query` must have one shape; got {tuple(given.shape)} "
            f"and {tuple(query.shape)}."
        )
    both = (given & query).nonzero()
    if len(both):
        row, variable = both[0].tolist()
        raise QueryError(
            f"`given` and `query` must not share a variable; variable {variable} of row {row} is "
            "in both. Drop it from one of them."
        )


Device = Literal["cpu", "cuda", "mps"] | torch.device | None

TORCHRUN = "Start with torchrun, which sets it; or unset WORLD_SIZE and RANK to train alone."
"""Remedy for environment variables that several processes need."""


def check_device(device: Device) -> torch.device:
    """Returns the device that is meant, if this machine has it; None is the GPU, or the CPU."""
    if device is None:
        return _default_device()
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
    return _default_device() if found == torch.device("cuda") else found


def _default_device() -> torch.device:
    """Returns the GPU of this process, or the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", environment_integer("LOCAL_RANK", low=0))


def environment_integer(variable: str, *, low: int) -> int:
    """Returns the whole number in an environment variable; `low`, the least, if it is not set."""
    text = os.environ.get(variable, str(low)).strip()
    if not text.isascii() or not text.isdigit() or int(text) < low:
        raise ConfigError(
            f'The variable {variable} must be a whole number, {low} or more; got "{text}". '
            f"{TORCHRUN}"
        )
    return int(text)
