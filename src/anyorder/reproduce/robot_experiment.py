"""What Table 6 trains and measures: likelihoods of held-out actions, and tasks completed."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyorder.data.kitchen import SCORED, Kitchen, need_simulator
from anyorder.data.robot import Demonstrations, Environment, SplitDemonstrations
from anyorder.data.robot_sources import load_kitchen
from anyorder.data.robot_toy import ToyKitchen, toy_demonstrations
from anyorder.diagnostics.calibration import NumberCalibration
from anyorder.diagnostics.predictions import SHARES, predictions
from anyorder.evaluation import Estimate
from anyorder.policy.conditional import ConditionalPolicy
from anyorder.policy.contracts import Policy
from anyorder.policy.fitted import FittedPolicy
from anyorder.policy.rollouts import Episode, rollouts
from anyorder.query_laws import ConditionalQueries, Query
from anyorder.reproduce.robot_models import ROWS, TRAINED, RobotScale, TableRow

LEVEL = 0.8
"""Of the central intervals whose coverage tells calibration."""

FIRST_EPISODE = 1
"""Seeds of the episodes that are reported start here; what was tuned, was tuned on others."""

POLICY = "policy"
"""The folder of a trained policy in that of its training."""

REWARD, COVERAGE = "reward", "coverage"

NATS = {"conditional_nats": "the rest of an action", "whole_nats": "whole actions"}
"""The two kinds of questions whose likelihoods are measured, in words."""


@dataclass(frozen=True)
class RobotStudy:
    """The demonstrations, the environment, and how policies are trained and measured.

    It is sent to other processes, so it holds the place of its data rather than the data.

    Args:
        scale: How large.
        data: Where demonstrations are; None is the toy.
        cache: Where replayed ones are kept.
        seed: Of the questions and of the episodes.
    """

    scale: RobotScale
    data: Path | None
    cache: Path
    seed: int = 0

    @property
    def demonstrations(self) -> SplitDemonstrations:
        """Those that do not complete all that is scored, split."""
        return read_demonstrations(self.data, self.cache)

    @property
    def environment(self) -> Callable[[], Environment]:
        """Makes the environment of the episodes."""
        return ToyKitchen if self.data is None else Kitchen

    def check(self) -> None:
        """Says what is missing, before any work."""
        if self.data is not None:
            need_simulator()
        self.demonstrations  # noqa: B018

    def identity(self) -> dict[str, Any]:
        """What results depend on, in plain values."""
        train = self.demonstrations.train
        digest = hashlib.sha256(train.observations.tobytes() + train.actions.tobytes())
        return {
            "data": {
                "name": train.name,
                "demonstrations": len(train),
                "steps": train.num_steps,
                "sha256": digest.hexdigest(),
            },
            **asdict(self.scale),
            "seed": self.seed,
        }

    def train(self, name: str, folder: Path) -> dict[str, Estimate]:
        """Trains one policy, whose name ends in its seed, and asks it about held-out actions."""
        kind, _, seed = name.rpartition("-")
        parts = self.demonstrations
        policy = TRAINED[kind].build(self.scale, int(seed))
        train = TRAINED[kind].demonstrations(parts.train)
        policy.fit(train, valid=parts.valid, folder=folder)
        policy.save(folder / POLICY)
        if not isinstance(policy, ConditionalPolicy):
            return {"squared_error": self._squared_error(policy)}
        return self._likelihood(policy) | self._calibration(policy)

    def act(self, name: str, folder: Path) -> dict[str, Estimate]:
        """Episodes of one row of the table, whose name ends in the seed of its policies."""
        kind, _, seed = name.rpartition("-")
        row = ROWS[kind]
        trained = {
            need: TRAINED[need].kind.load(folder.parent / f"{need}-{seed}" / POLICY)
            for need in row.needs
        }
        episodes = rollouts(self._turns(row, trained), self.environment)
        rewards = [float(one.reward) for one in episodes]
        return {
            REWARD: Estimate(torch.tensor(rewards, dtype=torch.float64)),
            **{task: _done(task, episodes) for task in SCORED},
        }

    def _turns(self, row: TableRow, trained: Mapping[str, Policy]) -> list[tuple[Policy, int]]:
        """Each choice of operated dimensions has seeds of its own, the same in all rows."""
        each, first = self.scale.episodes, FIRST_EPISODE + 1_000 * self.seed
        acting = [row.policy(trained, operated) for operated in self.scale.operated]
        return [
            (policy, first + place * each + episode)
            for place, policy in enumerate(acting)
            for episode in range(each)
        ]

    def _asked(self) -> list[Demonstrations]:
        """Steps of each test demonstration, evenly spread."""
        test = self.demonstrations.test
        return [_evenly(test.chosen([i]), self.scale.steps_asked) for i in range(len(test))]

    def _likelihood(self, policy: ConditionalPolicy) -> dict[str, Estimate]:
        """Nats of the rest of an action given a random part, and of all of it.

        Each is a mean a demonstration; see `NATS`.
        """
        source, nats = torch.Generator().manual_seed(self.seed), []
        for steps in self._asked():
            law = ConditionalQueries(steps.actions.shape[1])
            rest = law.sample(steps.num_steps, generator=source)
            nothing = torch.zeros_like(rest.given)
            questions = (rest, Query(nothing, ~nothing))
            nats.append(torch.stack([policy.log_prob(steps, one).mean() for one in questions]))
        columns = torch.stack(nats).unbind(dim=1)
        return {metric: Estimate(column) for metric, column in zip(NATS, columns, strict=True)}

    def _calibration(self, policy: ConditionalPolicy) -> dict[str, Estimate]:
        """How often actions lie in their intervals of 0.8, by how much of an action is given.

        A dimension is asked as a decision asks it, with those before it on the path known. Joints
        are moved and actions shaken as in training, because that is what the densities are of:
        those of demonstrations as they are would seem too wide.
        """
        model, scaling = policy.fitted()
        found: dict[str, list[Tensor]] = {}
        source = torch.Generator().manual_seed(self.seed)
        for steps in self._asked():
            x, _ = policy.rows(steps, scaling).batch(0, steps.num_steps, generator=source)
            have = torch.ones(len(x), scaling.num_actions, dtype=torch.bool)
            for words, share in SHARES.items():
                asked: dict[str, Any] = {"share": share, "along_path": True, "generator": source}
                said = predictions(model, x, have, kind="continuous", **asked)
                covered = NumberCalibration(said.pit, said.variable, said.row).coverage(LEVEL)
                found.setdefault(words, []).append(covered.rows.mean())
        return {
            f"{COVERAGE}_{words.replace(' ', '_')}_given": Estimate(torch.stack(means))
            for words, means in found.items()
        }

    def _squared_error(self, policy: FittedPolicy) -> Estimate:
        """Of the action, summed over its dimensions, a mean a demonstration."""
        means = []
        for steps in self._asked():
            acted = np.stack([policy.act(seen) for seen in steps.observations])
            means.append(((acted - steps.actions) ** 2).sum(axis=1).mean())
        return Estimate(torch.tensor(np.array(means), dtype=torch.float64))


def _done(task: str, episodes: Sequence[Episode]) -> Estimate:
    done = [float(task in dict(one.completed)) for one in episodes]
    return Estimate(torch.tensor(done, dtype=torch.float64))


def _evenly(demonstrations: Demonstrations, steps: int) -> Demonstrations:
    count = min(steps, demonstrations.num_steps)
    kept = np.linspace(0, demonstrations.num_steps - 1, count).round().astype(int)
    return Demonstrations(
        demonstrations.name,
        demonstrations.observations[kept],
        demonstrations.actions[kept],
        (count,),
        demonstrations.tasks,
    )


@lru_cache(maxsize=1)  # an experiment asks for them again and again
def read_demonstrations(data: Path | None, cache: Path) -> SplitDemonstrations:
    """Those of a folder or file, or of the toy."""
    if data is None:
        return toy_demonstrations().split()
    return load_kitchen(data, cache, progress=True).without_all_of(SCORED).split()
