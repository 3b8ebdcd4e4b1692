"""Training rows that steer back: joints seen beside where they were, with the action that mends it.

A policy that imitates leaves the demonstrated states by a little at each step, and has never seen
what to do there. Where an action is a way to go, that is known without asking anybody: an action a
leads joint q to q + reach * a, so a joint that is seen at q + d must go by a - d / reach to come to
the same place.
"""

import torch
from torch import Tensor

from anyorder.policy.scaling import Scaling
from anyorder.training.rows import Rows


class SteeredRows(Rows):
    """Rows of `x` whose joints are moved at random, and whose actions make up for it.

    Args:
        x: Actions and what is seen, scaled; the first numbers that are seen are the joints.
        scaling: How they were scaled.
        spread: How far joints are moved, in deviations of each; 0 leaves them.
        reach: How far an action of 1 moves a joint, in its own unit.
        noise: Added to actions, in deviations. Where dimensions all but repeat, as two fingers that
            move as one, a density would grow without end, and its slope drown all others.
        seed: Of the order of the rows.
    """

    def __init__(
        self, x: Tensor, *, scaling: Scaling, spread: float, reach: float, noise: float, seed: int
    ) -> None:
        self.joints, self.spread = scaling.num_actions, spread
        shaken = torch.zeros(x.shape[1])
        shaken[: self.joints] = noise
        super().__init__(x, seed=seed, noise=shaken)
        seen = torch.tensor(scaling.seen_spread[: self.joints])
        self.makes_up = seen / reach / torch.tensor(scaling.action_spread)

    def describe(self) -> dict[str, str | int]:
        """Which rows these are, and how far they are moved."""
        return {**super().describe(), "steering": f"{self.spread:g} {self.makes_up.tolist()}"}

    def batch(
        self, step: int, size: int, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """The rows of a step, moved anew."""
        x, available = super().batch(step, size, generator=generator)
        # A scale for each row: most states are met nearby, some farther off.
        scale = 2 * self.spread * torch.rand(size, 1, generator=generator)
        moved = scale * torch.randn(size, self.joints, generator=generator)
        action, joints, rest = x.tensor_split([self.joints, 2 * self.joints], dim=1)
        # Not cut to [-1, 1]: numbers that are all the same have no density, and `act` cuts anyway.
        mended = action - moved * self.makes_up
        return torch.cat([mended, joints + moved, rest], dim=1), available
