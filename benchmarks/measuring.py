"""How time and memory are measured."""

import os
from collections.abc import Callable
from statistics import median
from time import perf_counter

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler reports its own starts otherwise

from torch import Tensor
from torch.profiler import ProfilerActivity, profile

Work = Callable[[], object]


def seconds(work: Work, *, repeats: int = 1) -> float:
    """The median time of a call."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return median(times)


def peak_bytes(work: Work) -> int:
    """The most that torch has allocated at one time during one call."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def standard_error(values: Tensor) -> float:
    """Of a mean over rounds."""
    return float(values.std() / len(values) ** 0.5)
