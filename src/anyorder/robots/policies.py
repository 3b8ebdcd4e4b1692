"""The conditional policy p(a_u | a_e, s): any dimensions of an action, given any others.

Nothing told, it acts alone; told some dimensions by an operator, it completes them.

What trained policies share: a model of actions given what is seen, fitted and saved.

Behavioural cloning: the mean action for what is seen, blind to what an operator does.

Shared autonomy: an operator decides some dimensions of each action, an assistant the others.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from anyorder.errors import CheckpointError, ConfigError, check_choice, check_count
from anyorder.heads.distributions import Conditionals, stacked
from anyorder.heads.mixture import MeanConditionals, MixtureConditionals
from anyorder.heads.spline import SplineConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.inference.walks import walk
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.lattice.query_laws import ConditionalQueries, Query, QueryLaw, QueryList
from anyorder.lattice.query_mixtures import MixtureQueries
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.residual_mlp import StateMlp
from anyorder.networks.state_path import StatePath
from anyorder.robots.demonstrations import Array, Demonstrations, Policy, Told
from anyorder.robots.scaling import Scaling, SteeredRows
from anyorder.saving.checkpoint import SavedModel, load_saved, save_model
from anyorder.training.loop import Fit, fit
from anyorder.training.losses import ArdmLoss, BlindLoss, MacLoss, Objective, PathLoss
from anyorder.training.settings import TrainingSettings
from anyorder.variables import Schema

POLICY_SETTINGS = TrainingSettings(
    batch=256, steps=12_000, warmup=200, learning_rate=1e-3, ema=0.999
)
"""How policies are trained unless told otherwise: a few minutes of one core."""

SPREAD = 0.1
"""Deviations by which joints are moved in training: two to seven hundredths of a radian."""

REACH = 0.16
"""Radians that an action of 1 moves a joint of the kitchen: two a second, for 0.08 seconds."""

NOISE = 0.1
"""Deviations of an action that are noise: a few thousandths of a radian of motion."""

VALID_ROWS = 2_048
"""Held-out steps that tell how training goes."""


class FittedPolicy(ABC):
    """A policy that was trained on demonstrations.

    Args:
        hidden: Width of the network.
        blocks: Its residual blocks, two layers each.
        spread: How far joints are moved in training, in their deviations, with the action that
            makes up for it; see `SteeredRows`. 0 trains on the demonstrated states alone.
        reach: How far an action of 1 moves a joint, in its own unit.
        settings: How it is trained; `POLICY_SETTINGS` by default.
    """

    domain: ClassVar[str]
    """What the folder of a saved policy says that it is."""

    def __init__(
        self,
        *,
        hidden: int = 256,
        blocks: int = 4,
        spread: float = SPREAD,
        reach: float = REACH,
        settings: TrainingSettings = POLICY_SETTINGS,
    ) -> None:
        self.hidden, self.blocks, self.settings = hidden, blocks, settings
        self.spread, self.reach = spread, reach
        self.model_: AnyOrderModel | None = None
        self.scaling_: Scaling | None = None
        self.fit_: Fit | None = None

    @abstractmethod
    def act(self, observation: Array, told: Told | None = None) -> Array:
        """See `Policy.act`."""

    @abstractmethod
    def _conditionals(self, schema: Schema, width: int) -> Conditionals:
        """The head, for features of a width."""

    @abstractmethod
    def _objective(self, num_actions: int) -> Objective:
        """What training minimises."""

    @abstractmethod
    def _options(self) -> dict[str, Any]:
        """The arguments of the constructor beside the settings, in plain values."""

    def start(self, seed: int) -> None:
        """Nothing is remembered between steps."""
        del seed

    def fit(
        self,
        demonstrations: Demonstrations,
        *,
        valid: Demonstrations | None = None,
        folder: str | Path | None = None,
        progress: bool = False,
    ) -> Self:
        """Trains on demonstrations, from the start.

        Args:
            demonstrations: What to imitate.
            valid: Others, to tell how training goes.
            folder: Where checkpoints go; the same call with the same folder goes on from the last.
            progress: Whether to show a line of progress.
        """
        scaling = Scaling.of(demonstrations)
        model, objective = self._build(scaling), self._objective(scaling.num_actions)
        self.fit_ = fit(
            model,
            self.rows(demonstrations, scaling),
            objective,
            settings=self.settings,
            valid=None if valid is None else _held_out(objective, scaling, valid),
            folder=folder,
            notes=self._notes(scaling),
            progress=progress,
        )
        self.model_, self.scaling_ = model.eval(), scaling
        return self

    def save(self, folder: str | Path) -> None:
        """Saves the policy."""
        model, scaling = self.fitted()
        save_model(folder, model, law=self._law(), notes=self._notes(scaling))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Loads what `save` saved, or the last checkpoint of a training."""
        return cls.from_saved(load_saved(folder), folder)

    @classmethod
    def from_saved(cls, saved: SavedModel, folder: str | Path) -> Self:
        """The policy of what was read from a folder; `folder` is for messages only."""
        notes = saved.notes
        if notes.get("domain") != cls.domain:
            raise CheckpointError(
                f'"{folder}" does not hold a {cls.__name__}, but "{notes.get("domain")}".'
            )
        try:
            loaded = cls(settings=TrainingSettings(**notes["settings"]), **notes["options"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f'"{folder}" was altered, or written by another version ({error!r}).'
            ) from error
        loaded.model_, loaded.scaling_ = saved.model, Scaling.from_json(notes.get("scaling", {}))
        return loaded

    def fitted(self) -> tuple[AnyOrderModel, Scaling]:
        """The model and its scaling, if there are any yet."""
        if self.model_ is None or self.scaling_ is None:
            raise ConfigError(f"This {type(self).__name__} is not fitted: call `fit` first.")
        return self.model_, self.scaling_

    def _law(self) -> QueryLaw | None:
        """The questions that a fitted policy was trained for, if it was trained for any."""
        return None

    def _network(self, schema: Schema) -> MaskedNetwork | PathNetwork[Any]:
        return StateMlp(schema, hidden=self.hidden, blocks=self.blocks)

    def _build(self, scaling: Scaling) -> AnyOrderModel:
        schema = scaling.schema
        with torch.random.fork_rng():
            torch.manual_seed(self.settings.seed)
            network = self._network(schema)
            conditionals = self._conditionals(schema, network.width)
        protocol = RemoveGreatest(lexicographic(scaling.num_actions))
        return AnyOrderModel(schema, network, conditionals, protocol)

    def rows(self, demonstrations: Demonstrations, scaling: Scaling) -> SteeredRows:
        """Steps as training draws them: joints moved, actions that make up for it, and noise."""
        x = scaling.rows(demonstrations.observations, demonstrations.actions)
        return SteeredRows(
            x,
            scaling=scaling,
            spread=self.spread,
            reach=self.reach,
            noise=NOISE,
            seed=self.settings.seed,
        )

    def _notes(self, scaling: Scaling) -> Mapping[str, Any]:
        return {
            "domain": self.domain,
            "options": {
                "hidden": self.hidden,
                "blocks": self.blocks,
                "spread": self.spread,
                "reach": self.reach,
                **self._options(),
            },
            "settings": asdict(self.settings),
            "scaling": scaling.to_json(),
        }


def _held_out(objective: Objective, scaling: Scaling, valid: Demonstrations) -> Any:
    """The loss on steps of other demonstrations, with the same questions every time."""
    every = np.linspace(0, valid.num_steps - 1, min(VALID_ROWS, valid.num_steps)).astype(int)
    x = scaling.rows(valid.observations[every], valid.actions[every])

    def surprise(model: AnyOrderModel) -> float:
        source = torch.Generator().manual_seed(0)
        drawn: tuple[Tensor, ...] = objective.draw(model, len(x), generator=source)
        return float(objective.loss(model, x, drawn).mean())

    return surprise


class CloningPolicy(FittedPolicy):
    """A perceptron that is never shown an action, trained by least squares.

    What it is told it does, and the rest of its action is what it would have been anyway.

    Example:
        >>> from anyorder.robots.kitchen import toy_demonstrations
        >>> from anyorder.training.settings import TrainingSettings
        >>> demonstrations = toy_demonstrations(8)
        >>> settings = TrainingSettings(batch=16, steps=4, warmup=1)
        >>> policy = CloningPolicy(hidden=16, blocks=1, settings=settings).fit(demonstrations)
        >>> policy.act(demonstrations.observations[0]).shape
        (9,)
    """

    domain: ClassVar[str] = "cloning policy"

    @torch.inference_mode()
    def act(self, observation: Array, told: Told | None = None) -> Array:
        """The mean action; see `Policy.act`."""
        model, scaling = self.fitted()
        x, _ = scaling.question(observation, None)
        every = torch.arange(scaling.num_actions)[None]
        nothing = torch.zeros_like(every, dtype=torch.bool)
        return scaling.action(model.predict(x, nothing, every).mean()[0], told)

    def _conditionals(self, schema: Schema, width: int) -> Conditionals:
        return MeanConditionals(schema, width=width)

    def _objective(self, num_actions: int) -> Objective:
        del num_actions
        return BlindLoss()

    def _options(self) -> dict[str, Any]:
        return {}


How = Literal["mean", "sample", "likeliest"]
Head = Literal["mixture", "spline"]
Law = Literal["mac", "uniform"]
Network = Literal["path", "perceptron"]

COMPONENTS = 20
"""Gaussians of a dimension, as in the paper."""


def action_queries(num_actions: int) -> QueryLaw:
    """What a policy is asked: a whole action, or the rest of one of which any part is told.

    With each factor counted once (`weighting="edge"`), training on it maximises the mean of the two
    likelihoods that Table 6 prints: of the rest of an action given a part, and of whole actions.
    """
    alone = QueryList(num_actions, [([], list(range(num_actions)), 1.0)])
    return MixtureQueries([alone, ConditionalQueries(num_actions)], [0.5, 0.5])


class ConditionalPolicy(FittedPolicy):
    """A model of whole actions that completes partial ones.

    Args:
        how: What is done: "likeliest" takes the most probable of `draws` draws from
            p(a_u | a_e, s); "sample" draws once; "mean" takes the mean of each dimension, given
            those before it, which is the steadiest, and stalls where there are several ways to go.
        draws: For "likeliest".
        temperature: Below 1 sharpens what is drawn.
        head: The density of a dimension: a "mixture" of 20 Gaussians, or a "spline".
        law: What it is trained on: "mac", exactly the factors that its questions walk over (see
            `action_queries`), or "uniform", every dimension given any others.
        network: "path" reads the state once for all dimensions of an action; "perceptron", the
            paper's, takes a pass for each.
        hidden: Width of the network.
        blocks: Its residual blocks, two layers each.
        spread: How far joints are moved in training; see `FittedPolicy`.
        reach: How far an action of 1 moves a joint.
        settings: How it is trained.

    Example:
        >>> from anyorder.robots.kitchen import toy_demonstrations
        >>> demonstrations = toy_demonstrations(8)
        >>> settings = TrainingSettings(batch=16, steps=4, warmup=1)
        >>> policy = ConditionalPolicy(hidden=16, blocks=1, settings=settings).fit(demonstrations)
        >>> policy.start(seed=0)
        >>> action = policy.act(demonstrations.observations[0], told={0: 0.25, 3: -0.5})
        >>> action.shape, float(action[0]), float(action[3])
        ((9,), 0.25, -0.5)
    """

    domain: ClassVar[str] = "conditional policy"

    def __init__(
        self,
        *,
        how: How = "likeliest",
        draws: int = 16,
        temperature: float = 1.0,
        head: Head = "mixture",
        law: Law = "mac",
        network: Network = "path",
        hidden: int = 256,
        blocks: int = 4,
        spread: float = SPREAD,
        reach: float = REACH,
        settings: TrainingSettings = POLICY_SETTINGS,
    ) -> None:
        super().__init__(
            hidden=hidden, blocks=blocks, spread=spread, reach=reach, settings=settings
        )
        check_choice("how", how, get_args(How))
        check_choice("head", head, get_args(Head))
        check_choice("law", law, get_args(Law))
        check_choice("network", network, get_args(Network))
        if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
            raise ConfigError(
                f'`temperature` must be above 0 and finite; got {temperature!r}. Use how="mean".'
            )
        self.how, self.draws, self.temperature = how, check_count("draws", draws), temperature
        self.head, self.law, self.network = head, law, network
        self._source = torch.Generator()

    def start(self, seed: int) -> None:
        """Begins an episode: its draws come from the seed."""
        self._source.manual_seed(seed)

    @torch.inference_mode()
    def act(self, observation: Array, told: Told | None = None) -> Array:
        """What is told, completed; see `Policy.act`."""
        model, scaling = self.fitted()
        x, known = scaling.question(observation, told)
        draws = self.draws if self.how == "likeliest" else 1
        filled, densities, chosen = x.repeat(draws, 1), [], []
        rank = model.protocol.rank(~known)
        for rows, targets, density in walk(
            model, filled, query=~known, given=known, rank=rank, n=draws
        ):
            values = density.mean() if self.how == "mean" else self._drawn(density)
            filled[rows, targets] = values
            densities.append(density)
            chosen.append(values)
        if draws == 1 or not chosen:
            return scaling.action(filled[0], told)
        logs = stacked(densities).log_prob(torch.stack(chosen))  # at once: steps are small
        return scaling.action(filled[int(logs.sum(dim=0).argmax())], told)

    def log_prob(self, demonstrations: Demonstrations, question: Query) -> Tensor:
        """Log densities of p(a_u | a_e, s) of steps, in the units of the actions.

        Args:
            demonstrations: Their steps are asked about.
            question: What is given and asked of each step; together all dimensions, unless the law
                is "uniform": "mac" never learns to do without one. Shapes ``(steps, dimensions)``.
        """
        model, scaling = self.fitted()
        x = scaling.rows(demonstrations.observations, demonstrations.actions)
        logs = log_prob(model, x, query=question.query, given=question.given)
        return logs - question.query.double() @ scaling.log_spread

    def _drawn(self, density: Any) -> Tensor:
        tempered = density if self.temperature == 1 else density.tempered(self.temperature)
        drawn: Tensor = tempered.sample(generator=self._source)
        return drawn

    def _network(self, schema: Schema) -> MaskedNetwork | PathNetwork[Any]:
        if self.network == "perceptron":
            return super()._network(schema)
        return StatePath(schema, hidden=self.hidden, blocks=self.blocks)

    def _conditionals(self, schema: Schema, width: int) -> Conditionals:
        if self.head == "spline":
            return SplineConditionals(schema, width=width)
        return MixtureConditionals(schema, width=width, components=COMPONENTS)

    def _objective(self, num_actions: int) -> Objective:
        """The nats of questions, each factor counted once: what `log_prob` answers."""
        if self.law == "uniform":
            return ArdmLoss()
        law = action_queries(num_actions)
        if self.network == "perceptron":
            return MacLoss(law, weighting="edge", reweight=False, targets="drawn")
        # Nothing is padded here: a batch of questions of all sizes has the steadier gradient.
        return PathLoss(law, weighting="edge", one_size=False)

    def _law(self) -> QueryLaw | None:
        _, scaling = self.fitted()
        return None if self.law == "uniform" else action_queries(scaling.num_actions)

    def _options(self) -> dict[str, Any]:
        names = ("how", "draws", "temperature", "head", "law", "network")
        return {name: getattr(self, name) for name in names}

    def __getstate__(self) -> dict[str, Any]:
        """Without the generator, which cannot be sent to another process."""
        return {name: value for name, value in vars(self).items() if name != "_source"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _source=torch.Generator())


class SharedAutonomy:
    """Two policies as one (section 5 of the paper, on FrankaKitchen).

    Args:
        operator: Whose action counts in the `operated` dimensions.
        assistant: Is told those, and decides the others.
        operated: Dimensions of the action.
        tells: Whether the assistant gets to know what the operator decided. Without that it is the
            paper's baseline: two policies that each believe to be alone.
    """

    def __init__(
        self,
        operator: Policy,
        assistant: Policy,
        operated: Sequence[int],
        *,
        tells: bool = True,
    ) -> None:
        self.operator, self.assistant, self.tells = operator, assistant, tells
        self.operated = tuple(operated)
        if len(set(self.operated)) < len(self.operated) or any(i < 0 for i in self.operated):
            raise ConfigError(
                f"`operated` must name dimensions of the action, each once; got {operated!r}."
            )

    def start(self, seed: int) -> None:
        """Begins an episode for both."""
        self.operator.start(seed)
        self.assistant.start(seed)

    def act(self, observation: Array, told: Told | None = None) -> Array:
        """The operator's dimensions, completed by the assistant; what is told overrides both."""
        wanted = self.operator.act(observation, told)
        decided = {**{i: float(wanted[i]) for i in self.operated}, **(told or {})}
        action = self.assistant.act(observation, decided if self.tells else told)
        for dimension, value in decided.items():
            action[dimension] = value
        return action
