"""Heads beside a guide: the last two features are a mean and a log deviation that it says.

A number without evidence is about standard normal, its guide says N(m, s) given some. A density is
moved there; an atom at a becomes N(a; m, s) / N(a; 0, 1) times as probable beside all other values,
as Bayes has it for what is standard normal. How far to believe that, the features say.
"""

import math

from torch import Tensor, nn

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


def _parted(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A network's own features, and what the guide says beside them."""
    own, (mean, log_deviation) = features[..., :-GUIDED], features[..., -GUIDED:].unbind(dim=-1)
    return own, mean, log_deviation
