"""A toy of the kitchen: the same shapes and no physics, for tests and for a first look.

Nine joints move where they are told. Each of four tasks is done when the joints come near a place
of its own; its thing then moves to its goal. Demonstrations do three of the four, in any order, so
that what to do next is open wherever a task ends.
"""

from collections.abc import Sequence

import numpy as np

from anyorder.data.kitchen import JOINTS, POSITIONS, SCORED
from anyorder.data.robot import Array, Demonstrations, Step

MOVE = 0.16
"""How far an action of 1 moves a joint."""

REACH = 0.35
"""How near the joints must come, as the length of the way that is left."""

NOISE = 0.05
"""Of the demonstrator's hand."""

EPISODE = 48
"""Steps of an episode."""

HOLDS = 3
"""Tasks of a demonstration."""

_PLACES = np.random.default_rng(6).uniform(-0.8, 0.8, (len(SCORED), JOINTS))
"""Where the joints must be for each task."""


class ToyKitchen:
    """The toy.

    Args:
        steps: Of an episode, at most.
    """

    num_actions = JOINTS

    def __init__(self, *, steps: int = EPISODE) -> None:
        self.steps = steps
        self._positions = np.zeros(POSITIONS)
        self._left: set[int] = set()
        self._taken = 0

    def start(self, seed: int) -> Array:
        """Begins an episode: the joints are near zero."""
        random = np.random.default_rng(seed)
        self._positions = np.zeros(POSITIONS)
        self._positions[:JOINTS] = random.uniform(-0.05, 0.05, JOINTS)
        self._left, self._taken = set(range(len(SCORED))), 0
        return self._seen()

    def step(self, action: Array) -> Step:
        """Moves the joints, and what they reach."""
        self._positions[:JOINTS] += MOVE * np.asarray(action).clip(-1, 1)
        self._taken += 1
        reached = [task for task in sorted(self._left) if self._way(task) < REACH]
        for task in reached:
            self._left.remove(task)
            self._positions[JOINTS + task] = 1.0
        over = not self._left or self._taken >= self.steps
        return Step(self._seen(), tuple(SCORED[task] for task in reached), over)

    def _way(self, task: int) -> float:
        return float(np.linalg.norm(_PLACES[task] - self._positions[:JOINTS]))

    def _seen(self) -> Array:
        return self._positions.astype(np.float32)


def toy_demonstrations(count: int = 60, *, seed: int = 0) -> Demonstrations:
    """Demonstrations of three tasks of the four each, in random orders."""
    random = np.random.default_rng(seed)
    episodes = [
        _demonstrated(random.permutation(len(SCORED))[:HOLDS].tolist(), number, random)
        for number in range(count)
    ]
    seen, actions, tasks = zip(*episodes, strict=True)
    return Demonstrations(
        "toy kitchen",
        np.concatenate(seen),
        np.concatenate(actions),
        tuple(len(one) for one in actions),
        tasks,
    )


def _demonstrated(
    wanted: Sequence[int], seed: int, random: np.random.Generator
) -> tuple[Array, Array, frozenset[str]]:
    toy, done = ToyKitchen(), set[str]()
    observations: list[Array] = []
    actions: list[Array] = []
    seen = toy.start(seed)
    for task in wanted:
        while SCORED[task] not in done and len(actions) < EPISODE:
            way = _PLACES[task] - seen[:JOINTS]
            hand = way / MOVE / 2 + random.normal(0, NOISE, JOINTS)
            actions.append(hand.clip(-1, 1).astype(np.float32))
            observations.append(seen)
            seen, completed, _ = toy.step(actions[-1])
            done.update(completed)
    return np.stack(observations), np.stack(actions), frozenset(done)
