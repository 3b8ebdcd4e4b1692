"""The objectives: what one training step asks of the network.

An objective is a noun with two verbs, because several processes must agree on what is drawn:
`draw` draws questions or edges for the whole batch from a seeded generator, and `loss` is the
equation, for the rows that a process has. A loss is one number a row, in nats for each variable;
its constant does not depend on the row, so that the weights of the law are kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from anyorder.errors import check_available, check_choice, check_flag, check_fraction, check_weights
from anyorder.inference.model import AnyOrderModel
from anyorder.lattice.edges import check_same_variables, row_masses, training_masks
from anyorder.lattice.exact_weights import edge_weights
from anyorder.lattice.masks import MaskDistribution
from anyorder.lattice.query_laws import QueryLaw, as_query_law
from anyorder.lattice.random_sets import source_device, subsets, uniform
from anyorder.lattice.uniform import Weighting
from anyorder.lattice.weighted import (
    WeightedLaw,
    weighted_queries,
    weighted_queries_of_one_size,
)

Targets = Literal["uniform", "exact", "drawn"]


class Objective(ABC):
    """What a training step minimises."""

    @abstractmethod
    def draw(
        self,
        model: AnyOrderModel,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, ...]:
        """Draws what a batch of rows is trained on; every tensor has a row a row.

        Args:
            model: Whose protocol takes questions apart.
            batch: How many rows.
            available: The variables that each row has, ``(batch, vars)``; all by default.
            generator: The source of randomness.
        """

    @abstractmethod
    def loss(self, model: AnyOrderModel, x: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        """The loss of each row, nats a variable. Shape ``(batch,)``."""


class MaskedObjective(Objective):
    """Objectives that predict variables outside a drawn mask, all at once.

    Path networks of two streams can be asked so too: each question sees the evidence alone.
    """

    def loss(self, model: AnyOrderModel, x: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        """Minus the weighted log-likelihoods of the variables outside `observed`."""
        observed, weights = drawn
        # What is observed, unavailable or without weight is not asked: a head can cost more than
        # the network, and under D^CR most variables are observed.
        row, target = weights.nonzero(as_tuple=True)
        features = model.features(x, observed)[row, target]
        logs = model.distribution(features, target).log_prob(x[row, target])
        losses = torch.zeros(len(x), dtype=logs.dtype, device=x.device)
        return losses.index_add(0, row, -weights[row, target].to(logs.dtype) * logs)


class ArdmLoss(MaskedObjective):
    r"""The objective of ARDM and ACE: every cardinality, every mask of it, every variable alike.

    The paper's Eq. 4 for each variable: |e| uniform on 0..N-1, e uniform given its size. This is
    also the law of questions about a single variable given any others, all of them asked at once.

    Args:
        one_size: Whether all masks of a batch are of one size, where rows have no gaps: a path
            network then pads nothing. The expected loss is the same.
    """

    def __init__(self, *, one_size: bool = False) -> None:
        self.one_size = check_flag("one_size", one_size)

    def draw(
        self,
        model: AnyOrderModel,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, ...]:
        """Draws masks and spreads the weight of each row over what they leave out."""
        have = _available(model, batch, available, generator)
        rows = 1 if self.one_size and available is None else batch
        chance = uniform((rows,), device=have.device, generator=generator).expand(batch)
        sizes = (chance * have.sum(dim=1)).long()
        observed = subsets(sizes, have, generator=generator)
        outside = (have & ~observed).double()
        return observed, outside / outside.sum(dim=1, keepdim=True)


class MacLoss(MaskedObjective):
    r"""The objective of MAC, the paper's Eq. 7: masks from the law that the questions induce.

    Args:
        law: The questions that will be asked.
        weighting: "path" (the published runs) or "edge" (Alg. 1); see `training_masks`.
        reweight: Cardinality reweighting, the paper's D^CR.
        targets: What is predicted from a mask: "uniform" (all variables outside it, the paper's
            parallel training), "exact" (as inference uses them, `edge_weights`) or "drawn" (only
            the target of the drawn edge, exact in expectation for any law).
        uniform_share: With "exact": how much of "uniform" is mixed in.
        method: "exact", or "sir" for the paper's resampling.
    """

    def __init__(
        self,
        law: QueryLaw | MaskDistribution,
        *,
        weighting: Weighting = "path",
        reweight: bool = True,
        targets: Targets = "uniform",
        uniform_share: float = 0.0,
        method: Literal["exact", "sir"] = "exact",
    ) -> None:
        check_choice("weighting", weighting, get_args(Weighting))
        check_choice("targets", targets, get_args(Targets))
        check_choice("method", method, ("exact", "sir"))
        self.law = as_query_law(law)
        self.weighting = weighting
        self.reweight = reweight
        self.targets = targets
        self.uniform_share = check_fraction("uniform_share", uniform_share)
        self.method = method

    def draw(
        self,
        model: AnyOrderModel,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, ...]:
        """Draws edges from the induced law, and the weights of what each mask predicts."""
        observed, target = training_masks(
            self.law,
            model.protocol,
            batch,
            weighting=self.weighting,
            reweight=self.reweight,
            method=self.method,
            available=available,
            generator=generator,
        )
        mass = _row_masses(self.law, available, observed, self.weighting, self.reweight)
        return observed, mass[:, None] * self._weights(model, observed, target, available)

    def _weights(
        self, model: AnyOrderModel, observed: Tensor, target: Tensor, available: Tensor | None
    ) -> Tensor:
        if self.targets == "drawn":
            alone = torch.zeros(observed.shape, dtype=torch.float64, device=observed.device)
            return alone.scatter_(1, target[:, None], 1.0)
        return edge_weights(
            self.law,
            model.protocol,
            observed,
            weighting=self.weighting,
            uniform_share=1.0 if self.targets == "uniform" else self.uniform_share,
            available=available,
        )


class BlindLoss(MaskedObjective):
    """Every variable from the context alone, as if none of the others could be known.

    With a bell of fixed width for each (`MeanConditionals`) this is regression by least squares,
    which for the actions of a robot is called behavioural cloning.
    """

    def draw(
        self,
        model: AnyOrderModel,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, ...]:
        """Observes nothing, and spreads the weight of each row over what it has."""
        have = _available(model, batch, available, generator)
        return torch.zeros_like(have), have.double() / have.sum(dim=1, keepdim=True)


class PathLoss(Objective):
    r"""Alg. 1 of the paper in one pass: the exact law over edges, a whole question at a time.

    Questions are drawn by the mass of their edges, and the loss of one is the mean of its edges:
    weighted alike, or by 1 + |e| under cardinality reweighting. That is the law over edges of
    `training_masks`, with all edges of a question in place of one. (A mean over the edges of
    questions drawn from the law itself would turn `edge` into `path`.)

    Args:
        law: The questions that will be asked.
        weighting: "path" or "edge"; see `training_masks`.
        reweight: Cardinality reweighting.
        one_size: Whether all questions of a batch ask equally many variables (not the same ones),
            where the law allows it: no pass is padded and attention masks are shared, which trains
            on more rows in the same time. The expected loss is the same.
    """

    def __init__(
        self,
        law: QueryLaw | MaskDistribution,
        *,
        weighting: Weighting = "edge",
        reweight: bool = False,
        one_size: bool = True,
    ) -> None:
        check_choice("weighting", weighting, get_args(Weighting))
        self.law = as_query_law(law)
        self.weighting = weighting
        self.reweight = check_flag("reweight", reweight)
        self.one_size = check_flag("one_size", one_size)

    def draw(
        self,
        model: AnyOrderModel,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, ...]:
        """Draws questions, the path of each, and how much each row counts."""
        check_same_variables(self.law, model.protocol)
        law = WeightedLaw(self.law, self.weighting, self.reweight)
        if self.one_size and available is None:
            given, query = weighted_queries_of_one_size(law, batch, generator)
        else:
            given, query = weighted_queries(law, batch, available, generator)
        mass = _row_masses(self.law, available, query, self.weighting, self.reweight)
        return query, given, model.protocol.rank(query, generator=generator), mass

    def loss(self, model: AnyOrderModel, x: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        """Minus the mean log-likelihood of the factors of the row's question."""
        query, given, rank, mass = drawn
        factors = model.factors(x, query=query, given=given, rank=rank, max_batch=len(x))
        asked, cardinality = query.sum(dim=1), given.sum(dim=1)[factors.row] + factors.step
        weight = (
            (1 + cardinality).float() if self.reweight else torch.ones_like(cardinality).float()
        )
        total = (1 + given.sum(dim=1) + (asked - 1) / 2) * asked if self.reweight else asked
        weight = weight * (mass / total)[factors.row]
        losses = torch.zeros(len(x), dtype=factors.log_prob.dtype, device=x.device)
        return losses.index_add(0, factors.row, -factors.log_prob * weight.to(losses.dtype))


class EitherLoss(Objective):
    """One of several objectives at every step, by chance.

    Args:
        objectives: Which ones.
        weights: How often each is taken.
    """

    def __init__(self, objectives: Sequence[Objective], weights: Sequence[float]) -> None:
        self.objectives = list(objectives)
        self.weights = check_weights("weights", weights, size=len(self.objectives)).tolist()

    @property
    def law(self) -> QueryLaw | None:
        """The questions that the first objective with a law is for."""
        laws = (getattr(objective, "law", None) for objective in self.objectives)
        return next((law for law in laws if law is not None), None)

    def draw(
        self,
        model: AnyOrderModel,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, ...]:
        """Draws an objective, and then what it draws; its number stands in front."""
        device = source_device(generator)
        weights = torch.tensor(self.weights, device=device)
        choice = torch.multinomial(weights, 1, generator=generator)
        drawn = self.objectives[int(choice)].draw(
            model, batch, available=available, generator=generator
        )
        return choice.expand(batch), *drawn

    def loss(self, model: AnyOrderModel, x: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        """The loss of the objective that was drawn."""
        choice, *rest = drawn
        return self.objectives[int(choice[0])].loss(model, x, tuple(rest))


def _row_masses(
    law: QueryLaw, available: Tensor | None, like: Tensor, weighting: Weighting, reweight: bool
) -> Tensor:
    """How much each row counts: 1 where nothing is missing."""
    if available is None:
        return torch.ones(len(like), dtype=torch.float64, device=like.device)
    return row_masses(law, available, weighting=weighting, reweight=reweight)


def _available(
    model: AnyOrderModel, batch: int, available: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    if available is not None:
        return check_available(available, model.num_variables, batch)
    device = source_device(generator)
    return torch.ones(batch, model.num_variables, dtype=torch.bool, device=device)
