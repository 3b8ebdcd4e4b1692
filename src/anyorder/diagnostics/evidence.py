"""Evidence: the same question by ways that treat it differently.

A conditional can be walked from the evidence, or taken as a ratio of two likelihoods. And a path
network reads values that are given in one way (all see each other) and values along its own path in
another (each sees those before it), so that p(x_i | x_e) has two answers.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anyorder.diagnostics.drawn_sets import (
    factors_along,
    has_mass,
    last_of,
    one_of,
    several,
    without,
)
from anyorder.diagnostics.gaps import Gap, estimate_json, nats, percent, verdict
from anyorder.evaluation import Estimate
from anyorder.model import AnyOrderModel
from anyorder.queries import answering, log_prob

ROUNDING = 1e-4
"""Nats: what sums of factors in float32 may be off, so that a certain value does not count."""


@answering
def walk_and_ratio(
    model: AnyOrderModel, x: Tensor, have: Tensor, *, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The log of p(x_i | x_e) by a walk from e, and by log p(x_i, x_e) - log p(x_e).

    Args:
        model: The model.
        x: Values. Shape ``(rows, columns)``.
        have: What the rows have, two variables or more. Shape ``(rows, vars)``.
        generator: The source of randomness: of i, a cell with a probability rather than a density
            where a row has one, and of e, one or more of the others.

    Returns:
        The walks, the ratios, and whether each is a probability. Shapes ``(rows,)``.
    """
    masses = have & has_mass(model, x)
    is_mass = masses.any(dim=1)
    target = one_of(torch.where(is_mass[:, None], masses, have), generator=generator)
    given = several(without(have, target), least=1, generator=generator)
    query = torch.zeros_like(have).scatter(1, target[:, None], True)
    walk, ratio = (
        log_prob(model, x, query=query, given=given, method=method, generator=generator)
        for method in ("walk", "ratio")
    )
    return walk, ratio, is_mass


@dataclass(frozen=True)
class RatioGap(Gap):
    """Conditionals of one cell as ratios, against walks from the evidence.

    Args:
        rows: The log of the ratio minus that of the walk. Shape ``(rows,)``.
        log_probabilities: The logs of the ratios that are probabilities: a density may well exceed
            1. Shape ``(probabilities,)``.
    """

    log_probabilities: Tensor

    @property
    def share_above_one(self) -> Estimate | None:
        """Of the probabilities, how many exceed 1; None if there are only densities."""
        logs = self.log_probabilities
        return Estimate((logs > ROUNDING).double()) if len(logs) else None

    @property
    def sentence(self) -> str:
        """What it means."""
        share = self.share_above_one
        by_hand = f"Formed by hand, as a ratio p(a, b) / p(b), it would differ by {self}"
        if share is None:
            return f"A conditional is answered directly here. {by_hand}."
        return (
            f"A conditional probability is answered directly here, and never exceeds 1. {by_hand}, "
            f"and {percent(share)} of such probabilities would exceed 1."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        share = self.share_above_one
        counted = None if share is None else estimate_json(share)
        return {**super().to_json(), "share_above_one": counted}


@answering
def encoding_differences(
    model: AnyOrderModel, x: Tensor, have: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """The log of p(x_i | x_e) with e as evidence minus the same with e along the path.

    i is the last of a random set on the model's own path and e the rest of it, so that both are
    questions that a model is trained for. A masked network sees sets: there is no difference.

    Args:
        model: The model.
        x: Values. Shape ``(rows, columns)``.
        have: What the rows have, two variables or more. Shape ``(rows, vars)``.
        generator: The source of randomness: of the set.

    Returns:
        Shape ``(rows,)``.
    """
    query = several(have, least=2, generator=generator)
    rank = model.protocol.rank(query, generator=generator)
    target = last_of(query, rank)
    factors = factors_along(model, x, query=query, rank=rank)
    told = factors.log_prob[factors.target == target[factors.row]].double()
    asked = torch.zeros_like(query).scatter(1, target[:, None], True)
    return log_prob(model, x, query=asked, given=without(query, target)) - told


@dataclass(frozen=True)
class EncodingGap(Gap):
    """Evidence as evidence, against the same values along the path.

    Args:
        rows: The first log-likelihood of a cell minus the second. Shape ``(rows,)``.
        is_one_pass: Whether the network is one for which there are two ways.
    """

    is_one_pass: bool

    @property
    def sentence(self) -> str:
        """What it means."""
        if not self.is_one_pass:
            return "Evidence is read in one way only by a masked network: there is no encoding gap."
        words = verdict(
            self.size.value,
            "both encodings say the same",
            "they differ a little",
            "they differ, and more training on conditional questions would help",
        )
        better = "better" if self.bias.value > 0 else "worse"
        apart = nats(Estimate(self.bias.rows * (1 if self.bias.value > 0 else -1)))
        return (
            f"Read as evidence rather than along the path, the same values change the prediction "
            f"of a cell by {self}: {words}; as evidence, cells are predicted {apart} nats {better}."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**super().to_json(), "by_construction": not self.is_one_pass}
