"""Episodes: a policy acts in an environment, many times over, in several processes."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import torch
from rich.console import Console
from rich.progress import track

from anyorder.data.robot import Environment
from anyorder.policy.contracts import Policy


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
    policies: Sequence[Policy],
    environment: Callable[[], Environment],
    seeds: Sequence[int],
    *,
    processes: int = 1,
    progress: bool = False,
) -> list[list[Episode]]:
    """An episode of each policy for each seed, in lists by policy.

    Args:
        policies: Whose episodes; sent to the processes.
        environment: Makes an environment; a function of a module, or a class.
        seeds: Of the episodes, the same for all policies, so that they can be compared in pairs.
        processes: How many episodes at a time, with one thread each; 1 stays in this process.
        progress: Whether a bar on standard error shows how it goes.
    """
    places = [(policy, seed) for policy in range(len(policies)) for seed in seeds]
    started = (list(policies), environment)
    if processes == 1:
        _open(*started)
        found = map(_run, places)
        episodes = list(_tracked(found, len(places), progress))
    else:
        with ProcessPoolExecutor(processes, get_context("spawn"), _open, started) as pool:
            episodes = list(_tracked(pool.map(_run, places), len(places), progress))
    each = len(seeds)
    return [episodes[i * each : (i + 1) * each] for i in range(len(policies))]


_policies: list[Policy] = []
_environment: Environment | None = None
"""Of this process: both take longer to send or to open than an episode may last."""


def _open(policies: list[Policy], environment: Callable[[], Environment]) -> None:
    global _policies, _environment
    torch.set_num_threads(1)
    _policies, _environment = policies, environment()


def _run(place: tuple[int, int]) -> Episode:
    policy, seed = place
    assert _environment is not None
    return rollout(_policies[policy], _environment, seed)


def _tracked(episodes: object, total: int, shown: bool) -> object:
    return track(  # type: ignore[type-var]
        episodes, "episodes", total=total, console=Console(stderr=True), disable=not shown
    )
