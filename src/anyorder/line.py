"""Numbers seen piece by piece: the line of continuous values, cut at fixed knots.

Networks read known values so, and the heads of atoms spread probability so: what is near on the
line is alike until the data say otherwise.
"""

import torch
from torch import Tensor, nn

KNOTS = 24
"""Pieces of the line: normal quantiles, for standard values."""


class Line(nn.Module):
    """How much of each piece lies below a value, from 0 to 1, and how far out the value is.

    A linear function of these is a piecewise linear one of the value, with a slope for each piece.

    Example:
        >>> seen = Line()(torch.tensor([-9.0, 0.0, 9.0]))
        >>> seen.shape, seen[:, :-1].sum(dim=-1)
        (torch.Size([3, 25]), tensor([ 0., 12., 24.]))

    Reference:
        Gorishniy, Rubachev and Babenko (2022), piecewise linear encoding.
    """

    features = KNOTS + 1
    low: Tensor
    step: Tensor

    def __init__(self) -> None:
        super().__init__()
        knots = torch.special.ndtri(torch.linspace(0.001, 0.999, KNOTS + 1))
        self.register_buffer("low", knots[:-1], persistent=False)
        self.register_buffer("step", knots.diff(), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """What is seen of values. Shape ``values.shape + (features,)``."""
        values = values.to(self.step.dtype).unsqueeze(-1)
        pieces = ((values - self.low) / self.step).clamp(0, 1)
        # Beyond the knots only this last feature moves, and ever more slowly.
        return torch.cat([pieces, values.asinh()], dim=-1)
