"""Heads beside a guide: the last two features are a mean and a log deviation that it says.

A number without evidence is about standard normal, its guide says N(m, s) given some. A density is
moved there; an atom at a becomes N(a; m, s) / N(a; 0, 1) times as probable beside all other values,
as Bayes has it for what is standard normal. Of one of two levels the guide says a logit. How far to
believe all that, the features say.
"""

import math

import torch
from torch import Tensor, nn

from anyorder.conditionals.categorical import Categorical, CategoricalConditionals
from anyorder.conditionals.contracts import Conditionals
from anyorder.conditionals.heads import (
    Head,
    VariableProjection,
    bounded,
    continuous_conditionals,
)
from anyorder.conditionals.mixture import Mixture
from anyorder.conditionals.spline import Spline
from anyorder.networks.guided import GUIDED
from anyorder.variables import Schema

LEAST_TILT = -50.0
"""No atom becomes less probable than by this, in nats: a sure guide can be wrong."""

CAUTION = math.log(0.1 / 0.9)
"""What the logistic function makes a tenth of."""

LOOSE = 0.1
"""Of the projection beside a guide that is believed: at first little is said beside it."""

BELIEVED = math.log(math.e - 1)
"""What softplus makes one of: at first the guide is believed."""


class MovedConditionals(Conditionals):
    """Densities that are moved to where the guide says.

    Args:
        schema: Continuous variables.
        width: Size of the features, with those of the guide.
        head: Of the densities.
        cautious: Whether the features say how far to move, a little at first. Beside atoms the
            guide speaks of all values, and where no row teaches a density, because all values of
            training are atoms, it must not follow.
    """

    def __init__(self, schema: Schema, *, width: int, head: Head, cautious: bool = False) -> None:
        super().__init__()
        self.schema, self.width, self.head, self.cautious = schema, width, head, cautious
        self.bare = continuous_conditionals(schema, width=width - GUIDED, head=head)
        if cautious:
            self.share = VariableProjection(len(schema), width=width - GUIDED, start=[CAUTION])

    def forward(self, features: Tensor, variables: Tensor) -> Mixture | Spline:
        """The densities of edges; see `Conditionals.forward`."""
        own, mean, log_deviation = _parted(features)
        found: Mixture | Spline = self.bare(own, variables)
        if self.cautious:
            share = self.share(own, variables).squeeze(-1).sigmoid()
            mean, log_deviation = share * mean, share * log_deviation
        return found.moved(mean, log_deviation)


class AtomTilt(nn.Module):
    """How much more probable the guide makes each atom.

    Args:
        num_variables: How many variables.
        width: Size of the features, with those of the guide.
    """

    def __init__(self, num_variables: int, *, width: int) -> None:
        super().__init__()
        start = [0.0, 0.0, BELIEVED]
        self.numbers = VariableProjection(num_variables, width=width - GUIDED, start=start)

    def forward(self, features: Tensor, variables: Tensor, atoms: Tensor) -> Tensor:
        """Logs of ratios. Shape ``(..., atoms)``.

        Args:
            features: Shape ``(..., width)``.
            variables: Shape ``(...)``.
            atoms: Their places; finite. Shape ``(..., atoms)``.
        """
        own, mean, log_deviation = _parted(features)
        shift, wider, belief = self.numbers(own, variables).unbind(dim=-1)
        center, log_scale = mean + log_deviation.exp() * shift, bounded(log_deviation + wider)
        z = (atoms - center.unsqueeze(-1)) * (-log_scale).exp().unsqueeze(-1)
        tilt = 0.5 * (atoms.square() - z.square()) - log_scale.unsqueeze(-1)
        return (tilt * nn.functional.softplus(belief).unsqueeze(-1)).clamp(min=LEAST_TILT)


class GuidedCategoricalConditionals(Conditionals):
    """Levels beside a guide: what it says of two is believed at first, of several it is learnt.

    Args:
        schema: Categorical variables.
        width: Size of the features, with those of the guide.
    """

    def __init__(self, schema: Schema, *, width: int) -> None:
        super().__init__()
        self.schema, self.width = schema, width
        self.bare = CategoricalConditionals(schema, width=width - GUIDED, shared=False)
        self.belief = VariableProjection(len(schema), width=width - GUIDED, start=[BELIEVED])
        sizes = torch.tensor([variable.num_levels for variable in schema])
        reading = torch.zeros(len(schema), int(sizes.max()), GUIDED)
        reading[sizes == 2, 1:2, 0] = 1
        self.reading = nn.Parameter(reading)
        with torch.no_grad():
            self.bare.weight[sizes[: len(self.bare.weight)] == 2] *= LOOSE

    def forward(self, features: Tensor, variables: Tensor) -> Categorical:
        """The conditionals of edges; see `Conditionals.forward`."""
        own, said = features[..., :-GUIDED], features[..., -GUIDED:]
        read = (self.reading[variables] @ said.unsqueeze(-1)).squeeze(-1)
        belief = nn.functional.softplus(self.belief(own, variables))
        return Categorical(self.bare(own, variables).logits + belief * read)


def _parted(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A network's own features, and what the guide says beside them."""
    own, (mean, log_deviation) = features[..., :-GUIDED], features[..., -GUIDED:].unbind(dim=-1)
    return own, mean, log_deviation
