"""The conditional policy p(a_u | a_e, s): any dimensions of an action, given any others.

Nothing told, it acts alone; told some dimensions by an operator, it completes them.
"""

import math
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from anyorder.conditionals.continuous import stacked
from anyorder.conditionals.contracts import Conditionals
from anyorder.conditionals.heads import MixtureConditionals, SplineConditionals
from anyorder.data.robot import Array, Demonstrations
from anyorder.errors import ConfigError, check_choice, check_count
from anyorder.losses import ArdmLoss, MacLoss, Objective, PathLoss
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.state_path import StatePath
from anyorder.policy.contracts import Told
from anyorder.policy.fitted import POLICY_SETTINGS, REACH, SPREAD, FittedPolicy
from anyorder.queries import log_prob
from anyorder.query_laws import ConditionalQueries, Query, QueryLaw, QueryList
from anyorder.query_mixtures import MixtureQueries
from anyorder.training.settings import TrainingSettings
from anyorder.variables import Schema
from anyorder.walks import walk

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
        >>> from anyorder.data.robot_toy import toy_demonstrations
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
