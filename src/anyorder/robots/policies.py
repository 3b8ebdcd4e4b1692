"""Policies that are trained on demonstrations, and shared autonomy.

`FittedPolicy` fits, saves and loads a model of actions given the observation. `CloningPolicy` is
behavioural cloning: the mean action. `ConditionalPolicy` is p(a_u | a_e, s), any dimensions of an
action given any others: it acts alone, or completes the dimensions that an operator gives.
`SharedAutonomy` lets an operator decide some dimensions of each action, and an assistant the rest.
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

from anyorder.errors import CheckpointError, ConfigError, check_choice, check_count, renamed
from anyorder.heads.distributions import Conditionals, stacked
from anyorder.heads.mixture import MeanConditionals, MixtureConditionals
from anyorder.heads.spline import SplineConditionals
from anyorder.inference.model import AnyOrderModel, walk
from anyorder.inference.queries import log_prob
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.lattice.query_laws import (
    ConditionalQueries,
    MixtureQueries,
    Query,
    QueryLaw,
    QueryList,
)
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.residual_mlp import StateMlp
from anyorder.networks.state_path import StatePath
from anyorder.robots.episodes import Array, Demonstrations, Policy, Told
from anyorder.robots.scaling import Scaling, SteeredRows
from anyorder.saving.checkpoint import SavedModel, load_saved, save_model
from anyorder.training.loop import Fit, fit
from anyorder.training.losses import ArdmLoss, BlindLoss, MacLoss, Objective, PathLoss
from anyorder.training.settings import TrainingSettings, training_settings
from anyorder.variables import Schema

POLICY_SETTINGS = TrainingSettings(
    batch=256, steps=12_000, warmup=200, learning_rate=1e-3, ema=0.999
)
"""Default training settings of policies: a few minutes of one core."""

SPREAD = 0.1
"""Scale of the joint perturbations in training, in deviations: 0.02 to 0.07 rad."""

REACH = 0.16
"""Radians that an action of 1 moves a joint of the kitchen: 2 rad/s for 0.08 s."""

NOISE = 0.1
"""Noise on actions in training, in deviations: a few thousandths of a radian of motion."""

VALID_ROWS = 2_048
"""Largest number of validation steps."""


class FittedPolicy(ABC):
    """A policy that is trained on demonstrations.

    It has no `device`: its network is small, and acts on the CPU, one step at a time.

    Args:
        hidden: Width of the network.
        blocks: Number of residual blocks, two layers each.
        spread: Standard deviations by which joints are moved in training, with the action that
            makes up for it; see `SteeredRows`. 0 trains on the demonstrated states alone.
        reach: Distance that an action of 1 moves a joint, in its own unit.
        random_state: Seed of everything random in training; None is 0.
        minutes: Training budget in minutes beside that of `POLICY_SETTINGS` in steps; None is no
            limit.
        settings: All training settings, in place of `POLICY_SETTINGS` and `minutes`.
            `settings.seed` takes the place of `random_state`.
        progress: Whether a line on standard error shows how training goes; by default it does in
            terminals and notebooks.
    """

    domain: ClassVar[str]
    """Kind of the policy in its saved folder."""

    def __init__(
        self,
        *,
        hidden: int = 256,
        blocks: int = 4,
        spread: float = SPREAD,
        reach: float = REACH,
        random_state: int | None = 0,
        minutes: float | None = None,
        settings: TrainingSettings | None = None,
        progress: bool | None = None,
    ) -> None:
        self.hidden, self.blocks, self.spread, self.reach = hidden, blocks, spread, reach
        self.random_state, self.minutes, self.settings = random_state, minutes, settings
        self.progress = progress
        self.training_settings()  # checks them
        self.model_: AnyOrderModel | None = None
        self.scaling_: Scaling | None = None
        self.fit_: Fit | None = None

    @abstractmethod
    def act(self, observation: Array, told: Told | None = None) -> Array:
        """Returns the action; see `Policy.act`."""

    @abstractmethod
    def _conditionals(self, schema: Schema, width: int) -> Conditionals:
        """Returns the head, for features of a width."""

    @abstractmethod
    def _objective(self, num_actions: int) -> Objective:
        """Returns the training objective."""

    @abstractmethod
    def _options(self) -> dict[str, Any]:
        """Returns the constructor's own arguments, in plain values."""

    def start(self, seed: int) -> None:
        """Begins an episode; this policy has no state."""
        del seed

    def training_settings(self) -> TrainingSettings:
        """Returns the settings that `fit` trains with, all defaults filled in."""
        return training_settings(POLICY_SETTINGS, self)

    @renamed(progress="self.progress")
    def fit(
        self,
        demonstrations: Demonstrations,
        *,
        valid: Demonstrations | None = None,
        folder: str | Path | None = None,
    ) -> Self:
        """Fits the policy to demonstrations, from the start.

        Args:
            demonstrations: Demonstrations to imitate.
            valid: Demonstrations for validation.
            folder: Folder for checkpoints; the same call resumes from the last one.
        """
        scaling = Scaling.of(demonstrations)
        model, objective = self._build(scaling), self._objective(scaling.num_actions)
        self.fit_ = fit(
            model,
            self.rows(demonstrations, scaling),
            objective,
            settings=self.training_settings(),
            valid=None if valid is None else _held_out(objective, scaling, valid),
            folder=folder,
            notes=self._notes(scaling),
            progress=self.progress,
        )
        self.model_, self.scaling_ = model.eval(), scaling
        return self

    def save(self, folder: str | Path) -> None:
        """Saves the policy to a folder."""
        model, scaling = self.fitted()
        save_model(folder, model, law=self._law(), notes=self._notes(scaling))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Loads a saved policy, or the last checkpoint of a training."""
        return cls.from_saved(load_saved(folder), folder)

    @classmethod
    def from_saved(cls, saved: SavedModel, folder: str | Path) -> Self:
        """Returns the policy of a loaded model; `folder` is for messages only."""
        notes = saved.notes
        if notes.get("domain") != cls.domain:
            raise CheckpointError(
                f'"{folder}" does not hold a {cls.__name__}, but "{notes.get("domain")}".'
            )
        try:
            settings = TrainingSettings(**notes["settings"])
            trained: dict[str, Any] = {"random_state": settings.seed, "settings": settings}
            loaded = cls(**trained, **notes["options"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f'"{folder}" was altered, or written by another version ({error!r}).'
            ) from error
        loaded.model_, loaded.scaling_ = saved.model, Scaling.from_json(notes.get("scaling", {}))
        return loaded

    def fitted(self) -> tuple[AnyOrderModel, Scaling]:
        """Returns the model and its scaling, or raises if the policy is not fitted."""
        if self.model_ is None or self.scaling_ is None:
            raise ConfigError(f"This {type(self).__name__} is not fitted: call `fit` first.")
        return self.model_, self.scaling_

    def _law(self) -> QueryLaw | None:
        """Returns the query law that a fitted policy was trained on, if any."""
        return None

    def _network(self, schema: Schema) -> MaskedNetwork | PathNetwork[Any]:
        return StateMlp(schema, hidden=self.hidden, blocks=self.blocks)

    def _build(self, scaling: Scaling) -> AnyOrderModel:
        schema = scaling.schema
        with torch.random.fork_rng():
            torch.manual_seed(self.training_settings().seed)
            network = self._network(schema)
            conditionals = self._conditionals(schema, network.width)
        protocol = RemoveGreatest(lexicographic(scaling.num_actions))
        return AnyOrderModel(schema, network, conditionals, protocol)

    def rows(self, demonstrations: Demonstrations, scaling: Scaling) -> SteeredRows:
        """Returns training rows: perturbed joints, corrected actions, and noise."""
        x = scaling.rows(demonstrations.observations, demonstrations.actions)
        return SteeredRows(
            x,
            scaling=scaling,
            spread=self.spread,
            reach=self.reach,
            noise=NOISE,
            seed=self.training_settings().seed,
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
            "settings": asdict(self.training_settings()),
            "scaling": scaling.to_json(),
        }


def _held_out(objective: Objective, scaling: Scaling, valid: Demonstrations) -> Any:
    """Returns the loss on validation demonstrations, with the same queries every time."""
    every = np.linspace(0, valid.num_steps - 1, min(VALID_ROWS, valid.num_steps)).astype(int)
    x = scaling.rows(valid.observations[every], valid.actions[every])

    def loss(model: AnyOrderModel) -> float:
        source = torch.Generator().manual_seed(0)
        sampled: tuple[Tensor, ...] = objective.draw(model, len(x), generator=source)
        return float(objective.loss(model, x, sampled).mean())

    return loss


class CloningPolicy(FittedPolicy):
    """Behavioural cloning: an MLP from observation to action, trained by least squares.

    Given dimensions are executed; the other dimensions do not depend on them.

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
        """Returns the mean action; see `Policy.act`."""
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
"""Gaussian components of a dimension, as in the paper."""


def action_queries(num_actions: int) -> QueryLaw:
    """Returns the law of a policy's queries: whole actions, or the rest given a random part.

    With each factor counted once (`weighting="edge"`), training on it maximises the mean of the two
    likelihoods of Table 6: of the rest of an action given a part, and of whole actions.
    """
    alone = QueryList(num_actions, [([], list(range(num_actions)), 1.0)])
    return MixtureQueries([alone, ConditionalQueries(num_actions)], [0.5, 0.5])


class ConditionalPolicy(FittedPolicy):
    """Policy p(a_u | a_e, s) that acts alone, or completes partial actions.

    Args:
        how: Decision rule. "likeliest" takes the most probable of `draws` samples of
            p(a_u | a_e, s). "sample" takes one sample. "mean" takes the mean of each dimension,
            given those before it: it is steady, but stalls where demonstrations go several ways.
        draws: Number of samples for "likeliest".
        temperature: Temperature of the samples; below 1 sharpens them.
        head: Density of a dimension: a "mixture" of 20 Gaussians, or a "spline".
        law: Training law: "mac", exactly the factors on the paths of its queries (see
            `action_queries`), or "uniform", every dimension given any others.
        network: "path" encodes the state once for all dimensions of an action; "perceptron", the
            paper's MLP, takes a pass for each.

    The other arguments are those of every policy: see `FittedPolicy`.

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
        random_state: int | None = 0,
        minutes: float | None = None,
        settings: TrainingSettings | None = None,
        progress: bool | None = None,
    ) -> None:
        super().__init__(
            hidden=hidden,
            blocks=blocks,
            spread=spread,
            reach=reach,
            random_state=random_state,
            minutes=minutes,
            settings=settings,
            progress=progress,
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
        """Begins an episode, and seeds its samples."""
        self._source.manual_seed(seed)

    @torch.inference_mode()
    def act(self, observation: Array, told: Told | None = None) -> Array:
        """Returns the given dimensions, completed; see `Policy.act`."""
        model, scaling = self.fitted()
        x, known = scaling.question(observation, told)
        draws = self.draws if self.how == "likeliest" else 1
        filled, densities, chosen = x.repeat(draws, 1), [], []
        rank = model.protocol.rank(~known)
        for rows, targets, density in walk(
            model, filled, query=~known, given=known, rank=rank, n=draws
        ):
            values = density.mean() if self.how == "mean" else self._sample(density)
            filled[rows, targets] = values
            densities.append(density)
            chosen.append(values)
        if draws == 1 or not chosen:
            return scaling.action(filled[0], told)
        logs = stacked(densities).log_prob(torch.stack(chosen))  # all steps at once: each is small
        return scaling.action(filled[int(logs.sum(dim=0).argmax())], told)

    def log_prob(self, demonstrations: Demonstrations, question: Query) -> Tensor:
        """Returns the log density of p(a_u | a_e, s) of each step, in the units of the actions.

        Args:
            demonstrations: Demonstrations whose steps are queried.
            question: Given and queried dimensions of each step. They must cover all dimensions
                unless the law is "uniform", because "mac" does not train on marginals. Shapes
                ``(steps, dimensions)``.
        """
        model, scaling = self.fitted()
        x = scaling.rows(demonstrations.observations, demonstrations.actions)
        logs = log_prob(model, x, query=question.query, given=question.given)
        return logs - question.query.double() @ scaling.log_spread

    def _sample(self, density: Any) -> Tensor:
        tempered = density if self.temperature == 1 else density.tempered(self.temperature)
        sampled: Tensor = tempered.sample(generator=self._source)
        return sampled

    def _network(self, schema: Schema) -> MaskedNetwork | PathNetwork[Any]:
        if self.network == "perceptron":
            return super()._network(schema)
        return StatePath(schema, hidden=self.hidden, blocks=self.blocks)

    def _conditionals(self, schema: Schema, width: int) -> Conditionals:
        if self.head == "spline":
            return SplineConditionals(schema, width=width)
        return MixtureConditionals(schema, width=width, components=COMPONENTS)

    def _objective(self, num_actions: int) -> Objective:
        """Returns the objective: negative log-likelihood of queries, each factor counted once."""
        if self.law == "uniform":
            return ArdmLoss()
        law = action_queries(num_actions)
        if self.network == "perceptron":
            return MacLoss(law, weighting="edge", reweight=False, targets="drawn")
        # Nothing is padded here, and queries of all sizes in a batch give less gradient noise.
        return PathLoss(law, weighting="edge", one_size=False)

    def _law(self) -> QueryLaw | None:
        _, scaling = self.fitted()
        return None if self.law == "uniform" else action_queries(scaling.num_actions)

    def _options(self) -> dict[str, Any]:
        names = ("how", "draws", "temperature", "head", "law", "network")
        return {name: getattr(self, name) for name in names}

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state without the generator, which cannot be pickled."""
        return {name: value for name, value in vars(self).items() if name != "_source"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _source=torch.Generator())


class SharedAutonomy:
    """Combines an operator and an assistant into one policy (section 5, on FrankaKitchen).

    Args:
        operator: Policy that decides the `operated` dimensions.
        assistant: Policy that decides the others, given those of the operator.
        operated: Dimensions of the action.
        tells: Gives the operator's dimensions to the assistant. False is the paper's baseline of
            two independent policies.
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
        """Begins an episode for both policies."""
        self.operator.start(seed)
        self.assistant.start(seed)

    def act(self, observation: Array, told: Told | None = None) -> Array:
        """Returns the operator's dimensions, completed; given dimensions override both."""
        wanted = self.operator.act(observation, told)
        decided = {**{i: float(wanted[i]) for i in self.operated}, **(told or {})}
        action = self.assistant.act(observation, decided if self.tells else told)
        for dimension, value in decided.items():
            action[dimension] = value
        return action
