"""A density on another scale of the line than values are: of units, where values are scores."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.conditionals.continuous import ContinuousDistribution
from anyorder.conditionals.mixture import Mixture
from anyorder.conditionals.quadrature import highest
from anyorder.conditionals.spline import Spline
from anyorder.networks.unit_scales import UnitScales


@dataclass(frozen=True)
class OnScale(ContinuousDistribution):
    """The distribution of normal scores whose units have a density.

    A scale is a rising function, so probabilities stay, and a density is multiplied by its slope.

    Args:
        inner: The density of units.
        scales: Of all variables.
        variables: That of each edge, of which there is one row. Shape ``(edges,)``.
    """

    inner: Mixture | Spline
    scales: UnitScales
    variables: Tensor

    @property
    def like(self) -> Tensor:
        """A tensor with the shape of the edges."""
        return self.inner.like

    def log_prob(self, values: Tensor) -> Tensor:
        """The log density."""
        units, log_slopes = self.scales.measured(values, self.variables.expand(values.shape))
        return self.inner.log_prob(units) + log_slopes

    def cdf(self, values: Tensor) -> Tensor:
        """The probability of at most `values`."""
        return self.inner.cdf(self.scales.to_units(values, self.variables.expand(values.shape)))

    def icdf(self, probability: Tensor) -> Tensor:
        """The quantile."""
        return self._scores(self.inner.icdf(probability))

    def mode(self) -> Tensor:
        """Where the density is highest; a narrow bell may lie between quantiles."""
        candidates = self._quantiles()
        if isinstance(self.inner, Mixture):
            middles = self._scores(self.inner.means.movedim(-1, 0))
            candidates = torch.cat([candidates, middles]).sort(dim=0).values
        return highest(self.log_prob, candidates)

    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """A draw."""
        return self._scores(self.inner.sample(generator=generator))

    def nodes(self) -> tuple[Tensor, Tensor]:
        """See `ContinuousDistribution.nodes`: those of the units."""
        values, weights = self.inner.nodes()
        return self._scores(values), weights

    def tempered(self, temperature: float, top_k: int | None = None) -> "OnScale":
        """Sharper or flatter in units."""
        inner = self.inner.tempered(temperature, top_k)
        assert isinstance(inner, Mixture | Spline)
        return replace(self, inner=inner)

    def _scores(self, units: Tensor) -> Tensor:
        return self.scales.to_scores(units, self.variables)
