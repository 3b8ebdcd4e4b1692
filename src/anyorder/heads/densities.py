"""Conditionals of continuous variables: features -> the numbers that describe a density.

One projection serves all variables, with a scale and a bias of its own for each: the features of an
edge know already which variable is asked.
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from anyorder.errors import check_choice, check_count
from anyorder.heads.distributions import Conditionals
from anyorder.heads.energy import EnergyDistribution
from anyorder.heads.mixture import Component, Mixture
from anyorder.heads.spline import Spline
from anyorder.variables import Schema

Head = Literal["mixture", "spline", "energy"]

INITIAL_SCALE = 0.1
"""Of the projections: a head starts near a standard normal density, whatever the features."""

LEAST_LOG_SCALE = math.log(1e-4)
"""Values are standardised: bells narrower than this would be atoms, which have their own head."""

GREATEST_LOG_SCALE = math.log(1e3)

FREQUENCIES = 16
"""Sines and cosines of a value that an energy sees."""


class VariableProjection(nn.Module):
    """Features to numbers, with a scale of the features and a bias for each variable.

    Args:
        num_variables: How many variables.
        width: Size of the features.
        start: The numbers at first.
    """

    def __init__(self, num_variables: int, *, width: int, start: Sequence[float]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(num_variables, width))
        self.weight = nn.Parameter(torch.empty(len(start), width))
        self.bias = nn.Parameter(torch.tensor(start).repeat(num_variables, 1))
        nn.init.normal_(self.weight, std=INITIAL_SCALE * width**-0.5)

    def forward(self, features: Tensor, variables: Tensor) -> Tensor:
        """Shape ``(..., numbers)``."""
        scaled = features * self.scale[variables]
        return nn.functional.linear(scaled, self.weight) + self.bias[variables]


class MixtureConditionals(Conditionals):
    """Mixtures of bells.

    Args:
        schema: The variables.
        width: Size of the features.
        components: Bells of a mixture.
        component: Their shape.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        width: int,
        components: int = 12,
        component: Component = "gaussian",
    ) -> None:
        super().__init__()
        check_count("components", components)
        check_choice("component", component, get_args(Component))
        self.schema, self.width = schema, width
        self.components, self.component = components, component
        spread = torch.special.ndtri((torch.arange(components) + 0.5) / components)
        narrow = -0.5 * math.log(components)
        start = [0.0] * components + spread.tolist() + [narrow] * components
        self.projection = VariableProjection(len(schema), width=width, start=start)

    def forward(self, features: Tensor, variables: Tensor) -> Mixture:
        """The densities of edges; see `Conditionals.forward`."""
        numbers = self.projection(features, variables).unflatten(-1, (3, -1))
        logits, means, log_scales = numbers.unbind(dim=-2)
        return Mixture(logits, means, bounded(log_scales), self.component)


class MeanConditionals(Conditionals):
    """A bell of width one around a mean: its likelihood is the squared error.

    Args:
        schema: The variables.
        width: Size of the features.
    """

    def __init__(self, schema: Schema, *, width: int) -> None:
        super().__init__()
        self.schema, self.width = schema, width
        self.projection = VariableProjection(len(schema), width=width, start=[0.0])

    def forward(self, features: Tensor, variables: Tensor) -> Mixture:
        """The densities of edges; see `Conditionals.forward`."""
        means = self.projection(features, variables)
        return Mixture(torch.zeros_like(means), means, torch.zeros_like(means))


class SplineConditionals(Conditionals):
    """Rational-quadratic splines on a normal base.

    Args:
        schema: The variables.
        width: Size of the features.
        bins: Pieces of a spline.
    """

    def __init__(self, schema: Schema, *, width: int, bins: int = 16) -> None:
        super().__init__()
        check_count("bins", bins, low=2, high=256)
        self.schema, self.width, self.bins = schema, width, bins
        self.projection = VariableProjection(len(schema), width=width, start=[0.0] * (3 * bins + 1))

    def forward(self, features: Tensor, variables: Tensor) -> Spline:
        """The densities of edges; see `Conditionals.forward`."""
        numbers, bins = self.projection(features, variables), self.bins
        location, log_scale = numbers[..., -2], numbers[..., -1]
        return Spline(
            numbers[..., :bins],
            numbers[..., bins : 2 * bins],
            numbers[..., 2 * bins : 3 * bins - 1],
            location,
            bounded(log_scale),
        )


class EnergyConditionals(Conditionals):
    """Energies with a mixture as the proposal; sizes as ACE has them for tables.

    Args:
        schema: The variables.
        width: Size of the features.
        samples: Importance samples of the normaliser, in training only.
        hidden: Width of the energy's own network.
        blocks: Residual blocks of it, two layers each.
        components: Bells of the proposal.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        width: int,
        samples: int = 20,
        hidden: int = 128,
        blocks: int = 4,
        components: int = 10,
    ) -> None:
        super().__init__()
        self.schema, self.width, self.components = schema, width, components
        self.samples = check_count("samples", samples)
        self.hidden, self.blocks = check_count("hidden", hidden), check_count("blocks", blocks)
        self.proposal = MixtureConditionals(schema, width=width, components=components)
        self.context = VariableProjection(len(schema), width=width, start=[0.0] * hidden)
        self.value = nn.Linear(1 + 2 * FREQUENCIES, hidden)
        self.inner = nn.ModuleList(_energy_block(hidden) for _ in range(blocks))
        self.out = nn.Linear(hidden, 1)
        nn.init.zeros_(self.out.weight)
        # From a wave as long as the data to one that the grid of the normaliser resolves well.
        turns = torch.logspace(math.log10(0.5), math.log10(30), FREQUENCIES)
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, features: Tensor, variables: Tensor) -> EnergyDistribution:
        """The densities of edges; see `Conditionals.forward`."""
        context = self.context(features, variables)
        proposal = self.proposal(features, variables)

        def energy(values: Tensor) -> Tensor:
            angle = values.unsqueeze(-1) * self.turns
            seen = torch.cat([values.unsqueeze(-1).tanh(), angle.sin(), angle.cos()], dim=-1)
            hidden = self.value(seen) + context
            for block in self.inner:
                hidden = hidden + block(hidden)
            return self.out(nn.functional.silu(hidden)).squeeze(-1)

        return EnergyDistribution(energy, proposal, self.samples if self.training else None)


def _energy_block(hidden: int) -> nn.Module:
    """What a residual block of an energy adds."""
    return nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden))


def bounded(log_scales: Tensor) -> Tensor:
    """Log scales between the least and the greatest, with a gradient everywhere."""
    above = LEAST_LOG_SCALE + nn.functional.softplus(log_scales - LEAST_LOG_SCALE)
    return GREATEST_LOG_SCALE - nn.functional.softplus(GREATEST_LOG_SCALE - above)


HEADS: dict[str, type[Conditionals]] = {
    "mixture": MixtureConditionals,
    "spline": SplineConditionals,
    "energy": EnergyConditionals,
}


def continuous_conditionals(schema: Schema, *, width: int, head: Head) -> Conditionals:
    """The conditionals of continuous variables by the name of their head."""
    check_choice("head", head, get_args(Head))
    return HEADS[head](schema, width=width)
