"""Policies of Table 6: their sizes, their training, and the study that measures them.

`TRAINED` are the policies that are trained, `ROWS` the rows of the table, in which one or two of
them act. A `RobotStudy` measures likelihoods of held-out actions and completed tasks.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyorder.diagnostics.calibration import SHARES, NumberCalibration, predictions
from anyorder.diagnostics.evaluation import Estimate
from anyorder.lattice.query_laws import ConditionalQueries, Query
from anyorder.robots.episodes import (
    Demonstrations,
    Environment,
    Episode,
    Policy,
    SplitDemonstrations,
    rollouts,
)
from anyorder.robots.kitchen import (
    SCORED,
    Kitchen,
    ToyKitchen,
    load_kitchen,
    need_simulator,
    toy_demonstrations,
)
from anyorder.robots.policies import (
    CloningPolicy,
    ConditionalPolicy,
    FittedPolicy,
    SharedAutonomy,
)
from anyorder.training.settings import TrainingSettings

OTHER_SEED, WILLED_SEED = 1_000, 2_000
"""Seed offsets of further cloning policies, which must be independent of the first."""

UNWANTED = "microwave"
"""Task that the operator with its own goal avoids; most demonstrations begin with it."""

Operated = tuple[int, ...]
"""Dimensions of the action that the operator decides."""

EVERY_FEW: tuple[Operated, ...] = ((0, 1, 2, 3), (3, 4, 5, 6), (0, 2, 4, 6), (1, 3, 5, 8))
"""Choices of four of nine dimensions, over which shared autonomy is averaged, because the paper
does not name its choice: shoulder to elbow, elbow to wrist, every other joint, one with a finger.
"""


@dataclass(frozen=True)
class RobotScale:
    """Sizes of the policies, the training and the test of an experiment.

    Each policy has `episodes` for each of its `seeds` trainings and each choice of `operated`
    dimensions. Likelihoods are those of `steps_asked` steps of each test demonstration.
    """

    hidden: int
    blocks: int
    seeds: int
    episodes: int
    operated: tuple[Operated, ...]
    steps_asked: int
    settings: TrainingSettings


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
"""Scale paper has 300 epochs of 105,000 steps, in batches of 4096. Episodes of one policy differ
little, so scale small has many trainings with few episodes each."""


@dataclass(frozen=True)
class Trained:
    """Class and options of a trained policy, its seed offset, and the task it must not see."""

    kind: type[FittedPolicy]
    options: Mapping[str, Any] = field(default_factory=dict)
    offset: int = 0
    unwanted: str | None = None

    def build(self, scale: RobotScale, seed: int) -> FittedPolicy:
        """Returns the untrained policy."""
        settings = replace(scale.settings, seed=seed + self.offset)
        return self.kind(
            hidden=scale.hidden, blocks=scale.blocks, settings=settings, **self.options
        )

    def demonstrations(self, train: Demonstrations) -> Demonstrations:
        """Returns the demonstrations that the policy is trained on."""
        return train if self.unwanted is None else train.without(self.unwanted)


TRAINED: Mapping[str, Trained] = {
    # Behavioural cloning: the operator, another one, and one with its own goal.
    "bc": Trained(CloningPolicy),
    "bc_other": Trained(CloningPolicy, offset=OTHER_SEED),
    "bc_willed": Trained(CloningPolicy, offset=WILLED_SEED, unwanted=UNWANTED),
    # p(a_u | a_e, s), trained on the factors of its queries, or on all dimensions given any others.
    "mac": Trained(ConditionalPolicy, {"law": "mac"}),
    "uniform": Trained(ConditionalPolicy, {"law": "uniform"}),
}

LIKELIHOODS = ("mac", "uniform")
"""Policies that have densities of actions."""


@dataclass(frozen=True)
class TableRow:
    """A row of the table: its description, and the policy that acts, or operator and assistant."""

    meaning: str
    needs: tuple[str, ...]
    tells: bool = False

    def policy(self, trained: Mapping[str, Policy], operated: Operated) -> Policy:
        """Returns the policy that the trained ones form; the operator decides some dimensions."""
        operator, assistant = trained[self.needs[0]], trained[self.needs[-1]]
        if len(self.needs) == 1:
            return operator
        return SharedAutonomy(operator, assistant, operated, tells=self.tells)


ROWS: Mapping[str, TableRow] = {
    "bc_fill": TableRow(
        "the operator gives four dimensions, a second cloning policy the other five, independently",
        ("bc", "bc_other"),
    ),
    "mac_fill": TableRow(
        "the operator gives four dimensions, p(a_u | a_e, s) fills in the other five",
        ("bc", "mac"),
        tells=True,
    ),
    "bc_full": TableRow("full autonomy of the operator", ("bc",)),
    "mac_full": TableRow("full autonomy of p(a | s)", ("mac",)),
    "bc_fill_willed": TableRow(
        f"as bc_fill, with an operator that avoids the {UNWANTED}", ("bc_willed", "bc_other")
    ),
    "mac_fill_willed": TableRow(
        "as mac_fill, with the same operator", ("bc_willed", "mac"), tells=True
    ),
}


LEVEL = 0.8
"""Level of the central intervals whose coverage is measured."""

FIRST_EPISODE = 1
"""First seed of the reported episodes; tuning used other seeds."""

POLICY = "policy"
"""Subfolder of a training that holds the trained policy."""

REWARD, COVERAGE = "reward", "coverage"

NATS = {"conditional_nats": "the rest of an action", "whole_nats": "whole actions"}
"""Two kinds of queries whose likelihoods are measured, in words."""


@dataclass(frozen=True)
class RobotStudy:
    """Trains and measures policies on demonstrations and in their environment.

    A study is sent to other processes, so it holds the path of its data rather than the data;
    without one, the toy kitchen is the data.
    """

    scale: RobotScale
    data: Path | None
    cache: Path
    seed: int = 0

    @property
    def demonstrations(self) -> SplitDemonstrations:
        """Demonstrations that do not complete all scored tasks, split."""
        return read_demonstrations(self.data, self.cache)

    @property
    def environment(self) -> Callable[[], Environment]:
        """Constructor of the environment of the episodes."""
        return ToyKitchen if self.data is None else Kitchen

    def check(self) -> None:
        """Raises before any work if the simulator or a file is missing."""
        if self.data is not None:
            need_simulator()
        self.demonstrations  # noqa: B018

    def identity(self) -> dict[str, Any]:
        """Returns the data and sizes that results depend on, in plain values."""
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
        """Trains one policy, whose name ends in its seed, and measures it on held-out actions."""
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
        """Runs the episodes of a row of the table, whose name ends in the seed of its policies."""
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
        """Returns policies and episode seeds; each choice of dimensions has its own seeds."""
        each, first = self.scale.episodes, FIRST_EPISODE + 1_000 * self.seed
        acting = [row.policy(trained, operated) for operated in self.scale.operated]
        return [
            (policy, first + place * each + episode)
            for place, policy in enumerate(acting)
            for episode in range(each)
        ]

    def _test_steps(self) -> list[Demonstrations]:
        """Returns evenly spaced steps of each test demonstration."""
        test = self.demonstrations.test
        return [_evenly(test.chosen([i]), self.scale.steps_asked) for i in range(len(test))]

    def _likelihood(self, policy: ConditionalPolicy) -> dict[str, Estimate]:
        """Returns nats of the rest of an action given a random part, and of whole actions.

        Each is a mean over the steps of a demonstration; see `NATS`.
        """
        source, nats = torch.Generator().manual_seed(self.seed), []
        for steps in self._test_steps():
            law = ConditionalQueries(steps.actions.shape[1])
            rest = law.sample(steps.num_steps, generator=source)
            nothing = torch.zeros_like(rest.given)
            queries = (rest, Query(nothing, ~nothing))
            nats.append(torch.stack([policy.log_prob(steps, one).mean() for one in queries]))
        columns = torch.stack(nats).unbind(dim=1)
        return {metric: Estimate(column) for metric, column in zip(NATS, columns, strict=True)}

    def _calibration(self, policy: ConditionalPolicy) -> dict[str, Estimate]:
        """Returns the coverage of 80% intervals of actions, by the share of it that is given.

        A dimension is queried as in a decision, given those before it on the path. Joints and
        actions are perturbed as in training, because the densities include these perturbations:
        they would seem too wide on unperturbed demonstrations.
        """
        model, scaling = policy.fitted()
        found: dict[str, list[Tensor]] = {}
        source = torch.Generator().manual_seed(self.seed)
        for steps in self._test_steps():
            x, _ = policy.rows(steps, scaling).batch(0, steps.num_steps, generator=source)
            have = torch.ones(len(x), scaling.num_actions, dtype=torch.bool)
            for words, share in SHARES.items():
                options: dict[str, Any] = {"share": share, "along_path": True, "generator": source}
                one = predictions(model, x, have, kind="continuous", **options)
                covered = NumberCalibration(one.pit, one.variable, one.row).coverage(LEVEL)
                found.setdefault(words, []).append(covered.rows.mean())
        return {
            f"{COVERAGE}_{words.replace(' ', '_')}_given": Estimate(torch.stack(means))
            for words, means in found.items()
        }

    def _squared_error(self, policy: FittedPolicy) -> Estimate:
        """Returns the squared error of actions, a mean over the steps of each demonstration."""
        means = []
        for steps in self._test_steps():
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


@lru_cache(maxsize=1)  # studies read them for every policy
def read_demonstrations(data: Path | None, cache: Path) -> SplitDemonstrations:
    """Reads demonstrations from a folder or file; without one, makes those of the toy."""
    if data is None:
        return toy_demonstrations().split()
    return load_kitchen(data, cache, progress=True).without_all_of(SCORED).split()
