"""Networks that know a density by heart: three Gaussians, and a level beside a value with an atom.

Their features are what the conditionals are read from, in doubles.
"""

import math

import torch
from torch import Tensor, nn

from anyorder import RemoveGreatest, Schema, Variable
from anyorder.heads.atoms import AtomicDistribution
from anyorder.heads.distributions import Categorical, Conditionals
from anyorder.heads.mixed import MixedDistribution
from anyorder.heads.mixture import Mixture
from anyorder.inference.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork

FIRST = torch.tensor([[1.0, 0.8, 0.3], [0.8, 1.0, -0.1], [0.3, -0.1, 1.0]]).double()
SECOND = torch.tensor([[1.2, 0.2, 0.5], [0.2, 0.9, 0.4], [0.5, 0.4, 1.0]]).double()
"""Covariances."""


def gaussian_conditional(covariance: Tensor, x: Tensor, known: Tensor, i: int) -> Tensor:
    """The mean and the log scale of x_i given the known ones."""
    weights = torch.linalg.solve(covariance[known][:, known], covariance[known, i])
    variance = covariance[i, i] - weights @ covariance[known, i]
    return torch.stack([weights @ x[known].double(), 0.5 * variance.log()])


class Gaussians(MaskedNetwork):
    """Conditionals of one covariance, or of a second one where an odd number is known."""

    width = 2

    def __init__(self, even: Tensor, odd: Tensor) -> None:
        super().__init__()
        self.even, self.odd = (nn.Parameter(part, requires_grad=False) for part in (even, odd))

    def forward(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Tensor:
        assert targets is not None
        rows = []
        for values, known, wanted in zip(x, observed, targets, strict=True):
            covariance = self.odd if int(known.sum()) % 2 else self.even
            rows.append(
                torch.stack(
                    [gaussian_conditional(covariance, values, known, int(i)) for i in wanted]
                )
            )
        return torch.stack(rows)


class Bell(Conditionals):
    """One Gaussian, whose mean and log scale are the features."""

    def forward(self, features: Tensor, variables: Tensor) -> Mixture:
        del variables
        mean, log_scale = features[..., :1], features[..., 1:]
        return Mixture(torch.zeros_like(mean), mean, log_scale)


def gaussian_model(odd: Tensor = FIRST) -> AnyOrderModel:
    schema = Schema(tuple(Variable.continuous(f"x{i}") for i in range(3)))
    return AnyOrderModel(schema, Gaussians(FIRST, odd), Bell(), RemoveGreatest([0, 1, 2]))


CENTRES = torch.tensor([[-2.0, 1.0], [0.2, -1.5], [2.5, 1.5]]).double()
OTHERS = torch.tensor([[-1.8, 1.2], [0.5, -1.2], [2.4, 1.0]]).double()
"""Of three bumps on a plane, for each variable."""

BUMP = 0.3
"""Their width."""


class Bumps(MaskedNetwork):
    """Conditionals of three bumps, or of others where an odd number is known.

    Features: the log weights of the bumps and their centres.
    """

    width = 6

    def __init__(self, even: Tensor, odd: Tensor) -> None:
        super().__init__()
        self.even, self.odd = (nn.Parameter(part, requires_grad=False) for part in (even, odd))

    def forward(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Tensor:
        assert targets is not None
        is_odd = observed.sum(dim=1) % 2 == 1
        centres = torch.where(is_odd[:, None, None], self.odd, self.even)  # (rows, bumps, 2)
        squares = ((x[:, None] - centres) / BUMP).square() * observed[:, None]
        wanted = centres.gather(2, targets[:, None].expand(-1, len(self.even), -1))
        logs = -squares.sum(dim=2, keepdim=True).expand_as(wanted) / 2
        return torch.cat([logs, wanted], dim=1).movedim(1, 2)  # (rows, targets, 6)


class ThreeBells(Conditionals):
    """A mixture of bells whose log weights and means are the features."""

    def forward(self, features: Tensor, variables: Tensor) -> Mixture:
        del variables
        logs, means = features.chunk(2, dim=-1)
        return Mixture(logs, means, torch.full_like(means, math.log(BUMP)))


def bumpy_model() -> AnyOrderModel:
    schema = Schema(tuple(Variable.continuous(name) for name in "ab"))
    return AnyOrderModel(schema, Bumps(CENTRES, OTHERS), ThreeBells(), RemoveGreatest([0, 1]))


LEVEL = torch.tensor([0.3, 0.7]).double()
"""The probabilities of the level."""

ATOM = torch.tensor([0.6, 0.1]).double()
"""The probability that the value is 0, for each level."""

MEANS, SCALES = torch.tensor([-1.0, 2.0]).double(), torch.tensor([0.5, 1.0]).double()
"""Of the value elsewhere."""


def likelihood(value: Tensor) -> Tensor:
    """p(value | level) for both levels: a probability at 0, a density elsewhere."""
    bells = torch.exp(-((value - MEANS) ** 2) / (2 * SCALES**2)) / (SCALES * math.sqrt(math.tau))
    return torch.where(value == 0, ATOM, (1 - ATOM) * bells)


class LevelAndValue(MaskedNetwork):
    """Features: the probabilities of the level, given all that is known."""

    width = 2

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Parameter(LEVEL, requires_grad=False)

    def forward(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Tensor:
        assert targets is not None
        rows = []
        for values, known in zip(x, observed, strict=True):
            weights = self.level * (likelihood(values[0]) if known[0] else 1.0)
            if known[1]:
                weights = nn.functional.one_hot(values[1].long(), 2).double()
            rows.append((weights / weights.sum()).log())
        return torch.stack(rows)[:, None].expand(-1, targets.shape[1], -1)


class LevelOrValue(Conditionals):
    """The level from its probabilities; the value as a mixture over them."""

    def forward(self, features: Tensor, variables: Tensor) -> MixedDistribution:
        flat, asked = features.flatten(0, -2), variables.flatten()
        parts = []
        for variable, distribution in ((0, self._value), (1, Categorical)):
            places = (asked == variable).nonzero().squeeze(1)
            if len(places):
                parts.append((places, distribution(flat[places])))
        return MixedDistribution(parts, features[..., 0])

    @staticmethod
    def _value(logs: Tensor) -> AtomicDistribution:
        weights = logs.exp()
        atom = (weights * ATOM).sum(dim=-1, keepdim=True)
        bells = (weights * (1 - ATOM)).log()
        smooth = Mixture(bells, MEANS.expand_as(bells), SCALES.log().expand_as(bells))
        branches = torch.cat([atom, 1 - atom], dim=-1).log()
        return AtomicDistribution(Categorical(branches), torch.zeros(len(logs), 1), smooth)


def atomic_model() -> AnyOrderModel:
    variables = (Variable.continuous("value", atoms=[0.0]), Variable.categorical("level", [*"ab"]))
    protocol = RemoveGreatest([0, 1])
    return AnyOrderModel(Schema(variables), LevelAndValue(), LevelOrValue(), protocol)
