"""Episodes: a policy acts in an environment, many times over, in several processes."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from anyorder.robots.demonstrations import Environment, Policy


@dataclass(frozen=True)
class Episode:
    """What came of an episode.

    Args:
        seed: Of all chance in it.
        completed: The tasks that were completed, and at which step, in order.
        steps: How long it was.
    """

    seed: int
    completed: tuple[tuple[str, int], ...]
    steps: int

    @property
    def reward(self) -> int:
        """How many tasks were completed."""
        return len(self.completed)


def rollout(policy: Policy, environment: Environment, seed: int) -> Episode:
    """One episode, from its start to its end."""
    policy.start(seed)
    seen, completed, steps, is_over = environment.start(seed), [], 0, False
    while not is_over:
        seen, done, is_over = environment.step(policy.act(seen))
        completed += [(task, steps) for task in done]
        steps += 1
    return Episode(seed, tuple(completed), steps)


def rollouts(
    turns: Sequence[tuple[Policy, int]],
    environment: Callable[[], Environment],
    *,
    processes: int = 1,
    progress: bool = False,
) -> list[Episode]:
    """An episode for each policy and seed, in their order.

    Policies that get the same seeds can be compared in pairs.

    Args:
        turns: Policies, which are sent to the processes, and the seed of an episode of each.
        environment: Makes an environment; a function of a module, or a class.
        processes: How many episodes at a time, with one thread each; 1 stays in this process.
        progress: Whether a bar on standard error shows how it goes.
    """
    shown: dict[str, Any] = {
        "total": len(turns), "console": Console(stderr=True), "disable": not progress,
    }  # fmt: skip
    if processes == 1:
        here = environment()
        return [rollout(policy, here, seed) for policy, seed in track(turns, "episodes", **shown)]
    with ProcessPoolExecutor(
        processes, get_context("spawn"), _open, (list(turns), environment)
    ) as pool:
        return list(track(pool.map(_run, range(len(turns))), "episodes", **shown))


_turns: list[tuple[Policy, int]] = []
_environment: Environment | None = None
"""Of this process: both may take longer to send or to open than an episode lasts."""


def _open(turns: list[tuple[Policy, int]], environment: Callable[[], Environment]) -> None:
    global _turns, _environment
    torch.set_num_threads(1)
    _turns, _environment = turns, environment()


def _run(turn: int) -> Episode:
    policy, seed = _turns[turn]
    assert _environment is not None
    return rollout(policy, _environment, seed)
