"""The policies of Table 6: which are trained, how large, and which rows they are asked for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from anyorder.data.robot import Demonstrations
from anyorder.policy.cloning import CloningPolicy
from anyorder.policy.conditional import ConditionalPolicy, How, Law
from anyorder.policy.contracts import Policy
from anyorder.policy.fitted import SPREAD, FittedPolicy
from anyorder.policy.shared import SharedAutonomy
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
