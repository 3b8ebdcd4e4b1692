"""The average of several conditionals, edge by edge, in closed form.

Members that were trained apart err apart, and their average errs less. Averaged at every edge of a
path, conditionals are conditionals again: likelihoods sum to one, and every question of a single
model can be asked.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.conditionals.atomic import AtomicDistribution
from anyorder.conditionals.categorical import Categorical
from anyorder.conditionals.contracts import Conditionals, Distribution
from anyorder.conditionals.mixed import MixedDistribution
from anyorder.conditionals.mixture import Mixture
from anyorder.conditionals.on_scale import OnScale
from anyorder.errors import ConfigError
from anyorder.variables import Schema


class AveragedConditionals(Conditionals):
    """Reads the features of each member by its own conditionals, and averages.

    Args:
        schema: The variables.
        members: Of categories, mixtures and atoms, all of one kind.
    """

    def __init__(self, schema: Schema, members: Sequence[Conditionals]) -> None:
        super().__init__()
        self.schema = schema
        self.parts = nn.ModuleList(members)
        self.widths = [member.width for member in members]
        self.width = sum(self.widths)

    @property
    def members(self) -> list[Any]:
        """The members, in order."""
        return list(self.parts)

    def forward(self, features: Tensor, variables: Tensor) -> Distribution:
        """The conditionals of edges; see `Conditionals.forward`."""
        shares = features.split(self.widths, dim=-1)
        return averaged([m(part, variables) for m, part in zip(self.parts, shares, strict=True)])


def averaged(parts: Sequence[Any], log_weights: Tensor | None = None) -> Distribution:
    """The mixture of distributions of one kind.

    Args:
        parts: One of each member; all have the shape of the same edges.
        log_weights: The weight of each at each edge, up to a factor; equal by default.
            Shape ``(members, ...)``.
    """
    first = parts[0]
    if isinstance(first, MixedDistribution):
        groups = zip(*(part.parts for part in parts), strict=True)
        mixed = [(group[0][0], averaged([part for _, part in group])) for group in groups]
        return MixedDistribution(mixed, first.like)
    if isinstance(first, AtomicDistribution):
        branches = averaged([part.branches for part in parts])
        assert isinstance(branches, Categorical)
        # Elsewhere, a member counts by how probable it holds it to be there.
        beside = torch.stack([part.branches.log_probs[..., -1] for part in parts])
        elsewhere = averaged([part.elsewhere for part in parts], beside)
        assert isinstance(elsewhere, Mixture | OnScale)
        return AtomicDistribution(branches, first.atoms, elsewhere)
    if isinstance(first, Categorical) and log_weights is None:
        return Categorical(torch.stack([part.log_probs for part in parts]).logsumexp(dim=0))
    if isinstance(first, OnScale):  # members have one guide, and so one scale
        inner = averaged([part.inner for part in parts], log_weights)
        assert isinstance(inner, Mixture)
        return replace(first, inner=inner)
    if isinstance(first, Mixture):
        logits = [part.logits.log_softmax(dim=-1) for part in parts]
        if log_weights is not None:
            logits = [
                own + weight[..., None] for own, weight in zip(logits, log_weights, strict=True)
            ]
        means, scales = (
            torch.cat([getattr(p, f) for p in parts], dim=-1) for f in ("means", "log_scales")
        )
        return Mixture(torch.cat(logits, dim=-1), means, scales, first.component)
    raise ConfigError(
        f'{type(first).__name__} has no average in closed form: take head="mixture", or one member.'
    )
