"""Objectives: the loss of one training step.

An objective has two methods, because several processes must agree on what is sampled. `draw`
samples queries or edges for the whole batch from a seeded generator; `loss` is the equation, for
the rows of one process. A loss is one number a row, in nats per variable. Its normalisation does
not depend on the row, so that the weights of the query law are kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from anyorder.errors import check_available, check_choice, check_flag, check_fraction, check_weights
from anyorder.inference.model import AnyOrderModel
from anyorder.lattice.exact_weights import edge_weights
from anyorder.lattice.masks import (
    FixedCardinality,
    MaskDistribution,
    source_device,
    subsets,
    uniform,
)
from anyorder.lattice.query_laws import QueryLaw, as_query_law
from anyorder.lattice.query_samplers import (
    WeightedLaw,
    Weighting,
    check_same_variables,
    row_masses,
    weighted_queries,
    weighted_queries_of_one_size,
)
from anyorder.lattice.training_law import training_masks

Targets = Literal["uniform", "exact", "drawn"]

WHOLE_FIRST = 0.5
"""Share of a training before which whole rows are asked more often: at first always."""


class Objective(ABC):
    """A loss that training minimises, with the law of what it is evaluated on."""

    @abstractmethod
    def draw(
        self,
        model: AnyOrderModel,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, ...]:
        """Samples what a batch of rows is trained on: tensors whose first dimension is the rows.

        Args:
            model: Model whose protocol decomposes the queries.
            batch: Number of rows.
            available: Variables that each row has, ``(batch, vars)``; all by default.
            generator: Source of randomness.
        """

    @abstractmethod
    def loss(self, model: AnyOrderModel, x: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss of each row, in nats per variable. Shape ``(batch,)``."""

    def after(self, share: float) -> "Objective":  # noqa: ARG002
        """Returns the objective that samples after a share of the training: this one."""
        return self


class MaskedObjective(Objective):
    """An objective that predicts variables outside a sampled mask, all in one pass.

    Path networks of two streams support this too: every target sees the evidence alone.
    """

    def loss(self, model: AnyOrderModel, x: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        """Returns minus the weighted sum of the log-likelihoods of variables outside `observed`."""
        observed, weights = drawn
        # Variables that are observed, unavailable or without weight are not predicted: a head can
        # cost more than the network, and under D^CR most variables are observed.
        row, target = weights.nonzero(as_tuple=True)
        features = model.features(x, observed)[row, target]
        logs = model.log_prob(features, target, x[row, target])
        losses = torch.zeros(len(x), dtype=logs.dtype, device=x.device)
        return losses.index_add(0, row, -weights[row, target].to(logs.dtype) * logs)


class ArdmLoss(MaskedObjective):
    r"""The objective of ARDM and ACE: uniform cardinality, uniform mask, uniform target.

    The paper's Eq. 4 for each variable: |e| uniform on 0..N-1, e uniform given its size. This is
    also the law of univariate queries given any other variables, all targets in one pass.

    Args:
        one_size: True samples one size for all masks of a batch without missing values: a path
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
        """Samples masks, and spreads the weight of each row over the variables outside."""
        have = _available(model, batch, available, generator)
        rows = 1 if self.one_size and available is None else batch
        chance = uniform((rows,), device=have.device, generator=generator).expand(batch)
        sizes = (chance * have.sum(dim=1)).long()
        observed = subsets(sizes, have, generator=generator)
        outside = (have & ~observed).double()
        return observed, outside / outside.sum(dim=1, keepdim=True)


class MacLoss(MaskedObjective):
    r"""The objective of MAC, the paper's Eq. 7: masks from the law that the queries induce.

    Args:
        law: Law of the queries that the model is for.
        weighting: "path" (the published runs) or "edge" (Alg. 1); see `training_masks`.
        reweight: Cardinality reweighting, the paper's D^CR.
        targets: Variables that are predicted from a mask: "uniform" (all outside it, the paper's
            parallel training), "exact" (as inference uses them, `edge_weights`) or "drawn" (only
            the target of the sampled edge, exact in expectation for any law).
        uniform_share: Fraction of "uniform" that is mixed into "exact".
    """

    def __init__(
        self,
        law: QueryLaw | MaskDistribution,
        *,
        weighting: Weighting = "path",
        reweight: bool = True,
        targets: Targets = "uniform",
        uniform_share: float = 0.0,
    ) -> None:
        check_choice("weighting", weighting, get_args(Weighting))
        check_choice("targets", targets, get_args(Targets))
        self.law = as_query_law(law)
        self.weighting = weighting
        self.reweight = reweight
        self.targets = targets
        self.uniform_share = check_fraction("uniform_share", uniform_share)

    def draw(
        self,
        model: AnyOrderModel,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, ...]:
        """Samples edges from the induced law, and the weights of what each mask predicts."""
        observed, target = training_masks(
            self.law,
            model.protocol,
            batch,
            weighting=self.weighting,
            reweight=self.reweight,
            available=available,
            generator=generator,
        )
        mass = _row_masses(self.law, available, observed, self.weighting, self.reweight)
        return observed, mass[:, None] * self._weights(model, observed, target, available)

    def _weights(
        self, model: AnyOrderModel, observed: Tensor, target: Tensor, available: Tensor | None
    ) -> Tensor:
        if self.targets == "drawn":
            weights = torch.zeros(observed.shape, dtype=torch.float64, device=observed.device)
            return weights.scatter_(1, target[:, None], 1.0)
        return edge_weights(
            self.law,
            model.protocol,
            observed,
            weighting=self.weighting,
            uniform_share=1.0 if self.targets == "uniform" else self.uniform_share,
            available=available,
        )


class BlindLoss(MaskedObjective):
    """Predicts every variable from the context alone, with no other variable observed.

    With normal densities of fixed width (`MeanConditionals`) this is least-squares regression,
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
        """Observes nothing, and spreads the weight of each row over the variables it has."""
        have = _available(model, batch, available, generator)
        return torch.zeros_like(have), have.double() / have.sum(dim=1, keepdim=True)


class PathLoss(Objective):
    r"""Alg. 1 of the paper in one pass: the exact law over edges, a whole query at a time.

    Queries are sampled by the mass of their edges, and the loss of a query is the mean over its
    edges: unweighted, or weighted by 1 + |e| under cardinality reweighting. That is the law over
    edges of `training_masks`, with all edges of a query in place of one. (A mean over the edges of
    queries sampled from the law itself would turn `edge` into `path`.)

    Args:
        law: Law of the queries that the model is for.
        weighting: "path" or "edge"; see `training_masks`.
        reweight: Cardinality reweighting.
        one_size: True samples queries of one size (not of the same variables) for a batch, where
            the law allows it: no pass is padded and attention masks are shared, which trains on
            more rows in the same time. The expected loss is the same.
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
        """Samples queries, the path of each, and the weights of the rows."""
        check_same_variables(self.law, model.protocol)
        law = WeightedLaw(self.law, self.weighting, self.reweight)
        if self.one_size and available is None:
            given, query = weighted_queries_of_one_size(law, batch, generator)
        else:
            given, query = weighted_queries(law, batch, available, generator)
        mass = _row_masses(self.law, available, query, self.weighting, self.reweight)
        return query, given, model.protocol.rank(query, generator=generator), mass

    def loss(self, model: AnyOrderModel, x: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        """Returns minus the mean log-likelihood of the factors of each row's query."""
        return self._loss(model, x, drawn)

    def _loss(
        self,
        model: AnyOrderModel,
        x: Tensor,
        drawn: tuple[Tensor, ...],
        counted: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss of the edges whose targets are counted; all by default."""
        query, given, rank, mass = drawn
        factors = model.factors(x, query=query, given=given, rank=rank, max_batch=len(x))
        queried, cardinality = query.sum(dim=1), given.sum(dim=1)[factors.row] + factors.step
        weight = (
            (1 + cardinality).float() if self.reweight else torch.ones_like(cardinality).float()
        )
        total = (1 + given.sum(dim=1) + (queried - 1) / 2) * queried if self.reweight else queried
        weight = weight * (mass / total)[factors.row]
        if counted is not None:
            weight = weight * counted[factors.row, factors.target]
        losses = torch.zeros(len(x), dtype=factors.log_prob.dtype, device=x.device)
        return losses.index_add(0, factors.row, -factors.log_prob * weight.to(losses.dtype))


class CompletedLoss(PathLoss):
    r"""`PathLoss` on rows whose missing values were imputed, for values missing at random.

    An imputed value teaches nothing where all observed values of its row are in the context: it was
    sampled from that very conditional, errors included. Such edges have no weight. Others need the
    imputed value, or rows with a missing value would be missing from the conditional, too.

    Which rows an edge (i, e) leaves out depends on x_e only: the observed values of those rows are
    in e, and under MAR these decide what is missing. So p(x_i | x_e) is estimated without bias.

    `available` marks the observed values; the others are imputed. Args as for `PathLoss`.
    """

    def draw(
        self,
        model: AnyOrderModel,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, ...]:
        """Samples queries of completed rows, and which of their edges count."""
        observed = _available(model, batch, available, generator)
        drawn = super().draw(model, batch, generator=generator)
        query, given, rank, _ = drawn
        return *drawn, informative(observed, query, given, rank)

    def loss(self, model: AnyOrderModel, x: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss of the informative edges."""
        *queries, counted = drawn
        return self._loss(model, x, tuple(queries), counted)


def informative(observed: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> Tensor:
    """Returns False for imputed targets whose context holds all observed values of the row.

    All sets and ranks have the shape ``(batch, vars)``; values that are not observed are imputed.

    Example:
        >>> first, both = torch.tensor([[True, False]]), torch.tensor([[True, True]])
        >>> informative(first, both, torch.zeros_like(both), torch.tensor([[0, 1]]))
        tensor([[ True, False]])
    """
    needed = observed & ~given
    last = torch.where(needed, rank, -1).amax(dim=1, keepdim=True)
    complete = ~(needed & ~query).any(dim=1, keepdim=True) & (rank > last)
    return observed | ~complete


def whole_first(law: QueryLaw, *, one_size: bool = True) -> "EitherLoss":
    """Returns the one-pass objective of a law, with whole rows at first; see `PathLoss`.

    A step of whole rows teaches the most factors, and they are those of no other question: so the
    likelihood of whole rows suffers least from all that is asked later.
    """
    whole = FixedCardinality(law.num_variables, law.num_variables)
    parts = [PathLoss(each, one_size=one_size) for each in (whole, law)]
    return EitherLoss(parts, [0, 1], until=WHOLE_FIRST)


class EitherLoss(Objective):
    """One of several objectives at every step, chosen at random.

    Args:
        objectives: The objectives.
        weights: Shares of the steps; they need not sum to 1.
        until: Share of the training before which the first objective has more of the steps: at
            first all of them, and then ever fewer. What teaches most is learnt first.

    Example:
        >>> either = EitherLoss([BlindLoss(), ArdmLoss()], [1, 3], until=0.5)
        >>> [either.after(share).weights for share in (0, 0.25, 0.5, 1)]
        [[1.0, 0.0], [0.625, 0.375], [0.25, 0.75], [0.25, 0.75]]
    """

    def __init__(
        self, objectives: Sequence[Objective], weights: Sequence[float], *, until: float = 0.0
    ) -> None:
        self.objectives = list(objectives)
        self.weights = check_weights("weights", weights, size=len(self.objectives)).tolist()
        self.until = check_fraction("until", until)

    def after(self, share: float) -> "EitherLoss":
        """Returns the objective with its weights after so much of the training."""
        part = min(1.0, share / self.until) if self.until else 1.0
        first, *others = (weight * part for weight in self.weights)
        objectives = [objective.after(share) for objective in self.objectives]
        return EitherLoss(objectives, [first + 1 - part, *others])

    @property
    def law(self) -> QueryLaw | None:
        """The query law of the last objective that has one."""
        laws = (getattr(objective, "law", None) for objective in reversed(self.objectives))
        return next((law for law in laws if law is not None), None)

    def draw(
        self,
        model: AnyOrderModel,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, ...]:
        """Samples an objective, and then what it samples; its index comes first."""
        device = source_device(generator)
        weights = torch.tensor(self.weights, device=device)
        choice = torch.multinomial(weights, 1, generator=generator)
        drawn = self.objectives[int(choice)].draw(
            model, batch, available=available, generator=generator
        )
        return choice.expand(batch), *drawn

    def loss(self, model: AnyOrderModel, x: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss of the sampled objective."""
        choice, *rest = drawn
        return self.objectives[int(choice[0])].loss(model, x, tuple(rest))


def _row_masses(
    law: QueryLaw, available: Tensor | None, like: Tensor, weighting: Weighting, reweight: bool
) -> Tensor:
    """Returns the weight of each row: 1 where nothing is missing."""
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
