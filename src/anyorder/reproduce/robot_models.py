"""What Table 6 trains and measures: likelihoods of held-out actions, and tasks completed.

The policies of Table 6: which are trained, how large, and which rows they are asked for.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyorder.diagnostics.calibration import NumberCalibration
from anyorder.diagnostics.evaluation import Estimate
from anyorder.diagnostics.predictions import SHARES, predictions
from anyorder.lattice.query_laws import ConditionalQueries, Query
from anyorder.robots.demonstrations import Demonstrations, Environment, Policy, SplitDemonstrations
from anyorder.robots.files import load_kitchen
from anyorder.robots.kitchen import SCORED, Kitchen, ToyKitchen, need_simulator, toy_demonstrations
from anyorder.robots.policies import (
    SPREAD,
    CloningPolicy,
    ConditionalPolicy,
    FittedPolicy,
    How,
    Law,
    SharedAutonomy,
)
from anyorder.robots.rollouts import Episode, rollouts
from anyorder.training.settings import TrainingSettings

OTHER_SEED, WILLED_SEED = 1_000, 2_000
"""Added to the seeds of further cloning policies, which must know nothing of the first."""

UNWANTED = "microwave"
"""The task that an operator with a will of its own leaves alone; most others begin with it."""

Operated = tuple[int, ...]
"""The dimensions of the action that an operator decides."""

Together = Callable[[Mapping[str, Policy], Operated], Policy]
"""From trained policies, and what is operated, to the policy that acts."""

EVERY_FEW: tuple[Operated, ...] = ((0, 1, 2, 3), (3, 4, 5, 6), (0, 2, 4, 6), (1, 3, 5, 8))
"""Choices of four dimensions of nine, over which shared autonomy is averaged: the paper does not
say which it took. Shoulder to elbow; elbow to wrist; every other joint; and one with a finger."""


@dataclass(frozen=True)
class RobotScale:
    """How large an experiment is.

    Args:
        hidden: Width of the perceptrons.
        blocks: Their residual blocks, two layers each.
        seeds: Trainings of each policy.
        episodes: Of each policy, for each seed and each choice of operated dimensions.
        operated: The choices.
        steps_asked: Held-out steps of each demonstration whose likelihood is asked.
        settings: Of the training.
        spread: How far joints are moved in training; see `FittedPolicy`.
        how: What the conditional policy does; see `ConditionalPolicy`.
    """

    hidden: int
    blocks: int
    seeds: int
    episodes: int
    operated: tuple[Operated, ...]
    steps_asked: int
    settings: TrainingSettings
    spread: float = SPREAD
    how: How = "likeliest"


SCALES: Mapping[str, RobotScale] = {
    "tiny": RobotScale(
        hidden=16, blocks=1, seeds=2, episodes=1, operated=EVERY_FEW[:2], steps_asked=2,
        settings=TrainingSettings(batch=32, steps=20, warmup=4, learning_rate=3e-3),
    ),
    "small": RobotScale(
        hidden=256, blocks=4, seeds=12, episodes=2, operated=EVERY_FEW, steps_asked=64,
        settings=TrainingSettings(
            batch=256, steps=2_500, warmup=200, learning_rate=1e-3, ema=0.999,
            evaluate_every=500, checkpoint_minutes=2,
        ),
    ),
    "paper": RobotScale(
        hidden=2048, blocks=4, seeds=3, episodes=32, operated=EVERY_FEW, steps_asked=64,
        settings=TrainingSettings(
            batch=4096, steps=7_700, warmup=200, learning_rate=5e-4, ema=0.999,
            evaluate_every=770, checkpoint_minutes=10,
        ),
    ),
}  # fmt: skip
"""At the size of the paper: 300 rounds of 105,000 steps, in batches of 4096. Episodes of one policy
begin nearly alike and end alike, so that a small experiment has many trainings, of few episodes."""


@dataclass(frozen=True)
class Trained:
    """A policy that is trained: what it is in words, how it is built, and what it never sees."""

    meaning: str
    kind: type[FittedPolicy]
    build: Callable[[RobotScale, int], FittedPolicy]
    unwanted: str | None = None

    def demonstrations(self, train: Demonstrations) -> Demonstrations:
        """Those that it learns from."""
        return train if self.unwanted is None else train.without(self.unwanted)


def _cloning(offset: int) -> Callable[[RobotScale, int], FittedPolicy]:
    def build(scale: RobotScale, seed: int) -> FittedPolicy:
        settings = replace(scale.settings, seed=seed + offset)
        return CloningPolicy(
            hidden=scale.hidden, blocks=scale.blocks, spread=scale.spread, settings=settings
        )

    return build


def _conditional(law: Law) -> Callable[[RobotScale, int], FittedPolicy]:
    def build(scale: RobotScale, seed: int) -> FittedPolicy:
        return ConditionalPolicy(
            how=scale.how,
            law=law,
            hidden=scale.hidden,
            blocks=scale.blocks,
            spread=scale.spread,
            settings=replace(scale.settings, seed=seed),
        )

    return build


TRAINED: Mapping[str, Trained] = {
    "bc": Trained("behavioural cloning: the operator", CloningPolicy, _cloning(0)),
    "bc_other": Trained(
        "behavioural cloning, of another seed", CloningPolicy, _cloning(OTHER_SEED)
    ),
    "bc_willed": Trained(
        f"an operator with a will: cloned from those who leave the {UNWANTED} alone",
        CloningPolicy,
        _cloning(WILLED_SEED),
        unwanted=UNWANTED,
    ),
    "mac": Trained(
        "p(a_u | a_e, s), trained on the factors of its questions",
        ConditionalPolicy,
        _conditional("mac"),
    ),
    "uniform": Trained(
        "the same, trained on every dimension given any others",
        ConditionalPolicy,
        _conditional("uniform"),
    ),
}

LIKELIHOODS = ("mac", "uniform")
"""Those with densities of actions."""


@dataclass(frozen=True)
class TableRow:
    """A row of the table: what it is, which trained policies it needs, how they act together."""

    meaning: str
    needs: tuple[str, ...]
    policy: Together


def _shared(operator: str, assistant: str, *, tells: bool) -> Together:
    def policy(trained: Mapping[str, Policy], operated: Operated) -> Policy:
        return SharedAutonomy(trained[operator], trained[assistant], operated, tells=tells)

    return policy


ROWS: Mapping[str, TableRow] = {
    "bc_fill": TableRow(
        "the operator gives four dimensions, a second cloning policy the other five, blind to them",
        ("bc", "bc_other"),
        _shared("bc", "bc_other", tells=False),
    ),
    "mac_fill": TableRow(
        "the operator gives four dimensions, p(a_u | a_e, s) fills in the other five",
        ("bc", "mac"),
        _shared("bc", "mac", tells=True),
    ),
    "bc_full": TableRow(
        "full autonomy of the operator",
        ("bc",),
        lambda trained, _: trained["bc"],
    ),
    "mac_full": TableRow(
        "full autonomy of p(a | s)",
        ("mac",),
        lambda trained, _: trained["mac"],
    ),
    "bc_fill_willed": TableRow(
        f"as bc_fill, of an operator who leaves the {UNWANTED} alone",
        ("bc_willed", "bc_other"),
        _shared("bc_willed", "bc_other", tells=False),
    ),
    "mac_fill_willed": TableRow(
        "as mac_fill, of the same operator",
        ("bc_willed", "mac"),
        _shared("bc_willed", "mac", tells=True),
    ),
}


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
