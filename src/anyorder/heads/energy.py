"""Energies, the head of ACE: any density up to its normaliser, an integral for each edge.

log p(v) = -energy(v) - log Z, with Z estimated in training by importance samples of a learned
mixture, the *proposal*, and computed by quadrature wherever a likelihood is reported: an estimate
from samples is biased low in log Z, so likelihoods come out high. Samples come from the
tabulated CDF of the energy, not from the proposal.

Reference: Strauss and Oliva (2021), Arbitrary Conditional Distributions with Energy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder.errors import check_count
from anyorder.heads.distributions import Conditionals, ContinuousDistribution, VariableProjection
from anyorder.heads.mixture import Mixture, MixtureConditionals
from anyorder.variables import Schema

REACH = 24.0
"""Distance from zero, 8 scales of the base, beyond which an energy has no density."""

BASE_SCALE = 3.0
"""Scale of the normal density that every energy tilts, so that all of them can be normalised."""

CELLS = 8192
"""Cells of the grid behind the normaliser, the CDF and samples: 35 to an energy's shortest wave."""

NODES_AT_ONCE = 512
"""Nodes of the grid whose energies, for all edges, are in memory together."""

Energy = Callable[[Tensor], Tensor]
"""Function from values ``(count, edges)`` to energies of the same shape."""


@dataclass(frozen=True)
class EnergyDistribution(ContinuousDistribution):
    """A density known up to its normaliser; edges are flat here.

    Args:
        energy: Energy of values ``(count, edges)``.
        proposal: Source of the importance samples of training. Its edges have shape ``(edges,)``.
        samples: Number of importance samples, in training; None computes the normaliser by
            quadrature.
    """

    energy: Energy
    proposal: Mixture
    samples: int | None = None

    @property
    def like(self) -> Tensor:
        """A tensor with the shape of the edges."""
        return self.proposal.like

    def log_prob(self, values: Tensor) -> Tensor:
        """Returns the log density; in training an estimate, from which the proposal learns too."""
        several = values if values.ndim > self.like.ndim else values[None]
        logs = self._unnormalised(several)
        if self.samples is None:
            logs = logs - self.log_normalizer()
        else:
            # Adds nothing to the value and the proposal's likelihood to the gradient.
            fit = self.proposal.log_prob(several)
            logs = logs - self.sampled_log_normalizer(self.samples) + (fit - fit.detach())
        return logs if values.ndim > self.like.ndim else logs[0]

    def log_normalizer(self) -> Tensor:
        """Returns log Z by the trapezoidal rule: densities vanish at both ends."""
        logs = self._on_grid(self._grid().to(self.like))
        return logs.logsumexp(dim=0) + math.log(2 * REACH / CELLS)

    def sampled_log_normalizer(
        self, samples: int, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Estimates log Z by importance samples: unbiased for Z, biased low for its log."""
        with torch.no_grad():
            drawn = torch.stack([self.proposal.sample(generator=generator) for _ in range(samples)])
            log_proposal = self.proposal.log_prob(drawn)
        ratios = self._unnormalised(drawn) - log_proposal
        return ratios.logsumexp(dim=0) - math.log(samples)

    def cdf(self, values: Tensor) -> Tensor:
        """Returns the probability of at most `values`, linear between the cells of a table."""
        _, below = self._table()
        several = values if values.ndim > self.like.ndim else values[None]
        places = ((several + REACH) / (2 * REACH) * CELLS).clamp(0, CELLS)
        cell = places.long().clamp(max=CELLS - 1)
        low, high = below.gather(0, cell), below.gather(0, cell + 1)
        found = low + (places - cell).to(low) * (high - low)
        return found if values.ndim > self.like.ndim else found[0]

    def icdf(self, probability: Tensor) -> Tensor:
        """Returns the quantile, from the same table."""
        grid, below = self._table()
        several = probability if probability.ndim > self.like.ndim else probability[None]
        cell = torch.searchsorted(below.T.contiguous(), several.T.contiguous().to(below)).T - 1
        cell = cell.clamp(0, CELLS - 1)
        low, high = below.gather(0, cell), below.gather(0, cell + 1)
        share = (several.to(low) - low) / (high - low).clamp(min=torch.finfo(low.dtype).tiny)
        found = (grid[cell] + share.clamp(0, 1) * (2 * REACH / CELLS)).to(self.like.dtype)
        return found if probability.ndim > self.like.ndim else found[0]

    def _table(self) -> tuple[Tensor, Tensor]:
        """Returns cell edges and the probability of at most each. Shapes ``(cells + 1, edges)``."""
        grid = self._grid()
        logs = self._on_grid(grid.to(self.like)).double()
        density = (logs - logs.amax(dim=0)).exp()
        below = torch.cat([torch.zeros_like(density[:1]), (density[1:] + density[:-1]).cumsum(0)])
        return grid, below / below[-1]

    def _grid(self) -> Tensor:
        return torch.linspace(
            -REACH, REACH, CELLS + 1, dtype=torch.float64, device=self.like.device
        )

    def _on_grid(self, grid: Tensor) -> Tensor:
        """Returns unnormalised log densities on a grid, in parts. Shape ``(nodes, edges)``."""
        values = grid[:, None].expand(-1, *self.like.shape)
        return torch.cat([self._unnormalised(part) for part in values.split(NODES_AT_ONCE)])

    def _unnormalised(self, values: Tensor) -> Tensor:
        return -self.energy(values) - 0.5 * (values / BASE_SCALE).square()


FREQUENCIES = 16
"""Number of sines and cosines of a value that an energy reads."""


class EnergyConditionals(Conditionals):
    """Energies with a mixture as the proposal; sizes as ACE has them for tables.

    Args:
        schema: The variables.
        width: Size of the features.
        samples: Number of importance samples of the normaliser, in training only.
        hidden: Width of the energy's own network.
        blocks: Number of its residual blocks, two layers each.
        components: Number of components of the proposal.
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
        """Returns the densities of edges; see `Conditionals.forward`."""
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
    """Returns a residual block of an energy."""
    return nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
