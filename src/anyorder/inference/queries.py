"""Queries p(x_u | x_e): likelihoods, samples, univariate conditionals, entropies.

Every function takes a model, a batch of values `x (batch, vars)` and two boolean sets, `query` (u)
and `given` (e). Variables in neither set are marginalised by construction. A set may have shape
``(vars,)``, the same for all rows, or be a list of names or numbers of variables.

    joint         p(x)                query=all, given=nothing
    marginal      p(x_u)              query=u, given=nothing
    conditional   p(x_u | x_e)        query=u, given=e

    log_prob              exact log-likelihood along the protocol's path (Alg. 2 of the paper)
    stratified_log_prob   unbiased estimate of it in a few passes of a masked network
    univariates           p(x_i | x_e) of all i
    sample                samples of x_u, one variable after another
    entropy, information_gain
    soft_evidence         weighted samples of variables known to lie in an interval or a set
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar, get_args

import torch
from torch import Tensor

from anyorder.errors import (
    QueryError,
    check_choice,
    check_count,
    check_disjoint,
    check_generator,
    check_sets,
)
from anyorder.heads.distributions import DRAWN_EDGE, Distribution
from anyorder.inference.model import AnyOrderModel, walk
from anyorder.lattice.masks import uniform
from anyorder.lattice.protocols import DecompositionProtocol, RemoveRandom, path_lists
from anyorder.variables import Variable

GAIN_NODES = 32
"""Number of quantiles that approximate the expectation over a continuous variable."""

Inputs = ParamSpec("Inputs")
Answer = TypeVar("Answer")

Set = Tensor | Sequence[str] | Sequence[int]
"""Set of variables: booleans, or a list of names or numbers."""

Method = Literal["walk", "ratio"]
Combine = Literal["elbo", "mixture"]
Draw = Literal["sample", "greedy"]
"""Choice of each value: a sample of its conditional, or the most probable value."""


def answering(function: Callable[Inputs, Answer]) -> Callable[Inputs, Answer]:
    """Runs `function` without gradients and in evaluation mode, then restores the mode."""

    @wraps(function)
    def answer(*arguments: Inputs.args, **options: Inputs.kwargs) -> Answer:
        model = arguments[0] if arguments else options.get("model")
        if not isinstance(model, AnyOrderModel):
            hint = ": use its `.model_`" if hasattr(model, "model_") else ""
            raise QueryError(f"`model` must be an AnyOrderModel; got {type(model).__name__}{hint}.")
        was_training = model.training
        if was_training:  # a walk over all modules, which takes as long as a small question
            model.eval()
        try:
            with torch.no_grad():
                return function(*arguments, **options)
        finally:
            if was_training:
                model.train()

    return answer


@answering
def log_prob(
    model: AnyOrderModel,
    x: Tensor,
    *,
    query: Set | None = None,
    given: Set | None = None,
    method: Method = "walk",
    orders: int = 1,
    combine: Combine = "elbo",
    protocol: DecompositionProtocol | None = None,
    max_batch: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Returns the log-likelihood log p(x_query | x_given) of each row, in nats (Alg. 2).

    Args:
        model: The model.
        x: Values. Shape ``(batch, vars)``.
        query: Queried variables; all that are not given by default.
        given: Evidence; nothing by default.
        method: "walk" follows one path from the given set to the union of both, and sums to one
            over the query. "ratio" is log p(query, given) - log p(given) by two paths from the
            empty set: it need not sum to one and can exceed 1 (section 5, Limitations).
        orders: Number of random paths, with `RemoveRandom`.
        combine: "elbo" is the mean of the paths' log-likelihoods, a lower bound; "mixture" is the
            log of the mean of their likelihoods (appendix A). With `RemoveRandom`.
        protocol: Decomposition protocol; the model's by default. A model that was trained along
            one order predicts badly along others.
        max_batch: Largest number of rows of a pass, to bound memory; suits the device by default.
        generator: Source of randomness, for `RemoveRandom`.

    Returns:
        Shape ``(batch,)``.
    """
    check_choice("method", method, get_args(Method))
    check_choice("combine", combine, get_args(Combine))
    check_count("orders", orders)
    if max_batch is not None:
        check_count("max_batch", max_batch)
    check_generator(generator)
    protocol = model.protocol if protocol is None else protocol
    x, query, given = checked_query(model, x, query, given)
    if method == "ratio":
        options: dict[str, Any] = {
            "given": torch.zeros_like(given),
            "orders": orders,
            "combine": combine,
            "protocol": protocol,
            "max_batch": max_batch,
            "generator": generator,
        }
        both = log_prob(model, x, query=query | given, **options)
        return both - log_prob(model, x, query=given, **options)
    if orders > 1 and not isinstance(protocol, RemoveRandom):
        raise QueryError("`orders` needs random orders (RemoveRandom); this protocol has one path.")
    walks = []
    for _ in range(orders):
        rank = protocol.rank(query, generator=generator)
        factors = model.factors(x, query=query, given=given, rank=rank, max_batch=max_batch)
        walks.append(factors.totals(len(x)))
    paths = torch.stack(walks)
    return paths.mean(dim=0) if combine == "elbo" else paths.logsumexp(dim=0) - math.log(orders)


@answering
def stratified_log_prob(
    model: AnyOrderModel,
    x: Tensor,
    *,
    query: Tensor | None = None,
    given: Tensor | None = None,
    steps: int = 32,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Returns an unbiased estimate of `log_prob` from two passes a stratum of the path.

    A masked network takes a pass for each step of a path: thousands for an image. Here the path is
    cut into strata of L steps. At the start of a stratum, one pass approximates all its factors by
    c_j = log p(x_j | all before the stratum). One step J of the stratum is then sampled and
    evaluated exactly, f_J = log p(x_J | all before J). The estimate of the stratum is

        sum_j c_j + L (f_J - c_J)

    Its expectation over J is sum_j f_j for any c: the c_j are control variates, and the variance is
    that of f - c, not that of f. For an image it is small, because the few neighbours inside the
    stratum add little to the hundreds of pixels before. Path networks return `log_prob`.

    `steps` is the number of strata of a path, of nearly equal length; a shorter path is exact. The
    other arguments are those of `log_prob`.

    Returns:
        Shape ``(batch,)``.
    """
    check_count("steps", steps)
    x, query, given = checked_query(model, x, query, given)
    if model.is_one_pass:
        return log_prob(model, x, query=query, given=given, generator=generator)
    rank = model.protocol.rank(query, generator=generator)
    path, num_queried = path_lists(query, rank)

    def log_probs(row: Tensor, step: Tensor, targets: Tensor) -> Tensor:
        return model.at_steps(x, query, given, rank, (row, step, targets)).double()

    bounds = (num_queried[:, None] * torch.arange(steps + 1, device=x.device)) // steps
    row, stratum = (bounds.diff() > 0).nonzero(as_tuple=True)
    first, length = bounds[row, stratum], bounds.diff()[row, stratum]
    place = torch.arange(int(length.max()) if len(length) else 0, device=x.device)
    inside = place < length[:, None]  # (strata, longest)
    variables = path[row[:, None], torch.where(inside, first[:, None] + place, first[:, None])]
    approximate = log_probs(row, first, variables)  # c_j
    sampled = (uniform(length.shape, device=x.device, generator=generator) * length).long()
    later = sampled.nonzero()[:, 0]  # at the first step of a stratum c is exact
    target = variables[later, sampled[later], None]
    exact = log_probs(row[later], (first + sampled)[later], target)[:, 0]  # f_J
    error = exact - approximate[later, sampled[later]]
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    total.index_add_(0, row, approximate.masked_fill(~inside, 0).sum(dim=1))
    return total.index_add_(0, row[later], error * length[later])


@answering
def univariates(model: AnyOrderModel, x: Tensor, observed: Set) -> Distribution:
    """Returns the conditionals p(x_i | x_observed) of all variables i, in one pass.

    Those of observed variables are no valid predictions: their values were inputs of the network.

    Args:
        model: The model.
        x: Values. Shape ``(batch, vars)``.
        observed: Observed variables. Shape ``(batch, vars)`` or ``(vars,)``.

    Returns:
        Distributions of shape ``(batch, vars)``.
    """
    x, _, observed = checked_query(model, x, None, observed, reads_query=False)
    everything = torch.arange(model.num_variables, device=x.device).expand(len(x), -1)
    return model.predict(x, observed, everything)


@answering
def sample(
    model: AnyOrderModel,
    x: Tensor,
    *,
    query: Set | None = None,
    given: Set | None = None,
    n: int = 1,
    how: Draw = "sample",
    temperature: float = 1.0,
    top_k: int | None = None,
    cache: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Samples x_query from p(x_query | x_given), one variable after another along the path.

    Args:
        model: The model.
        x: Values; only given ones are read. Shape ``(batch, vars)``.
        query: Variables to sample; all that are not given by default.
        given: Evidence; nothing by default.
        n: Number of samples a row. They share the encoding of their evidence.
        how: "sample", or "greedy" for the most probable value at each step.
        temperature: Below 1 sharpens each conditional, above 1 flattens it.
        top_k: Number of most probable levels that each step samples from; all by default.
        cache: False runs a path network without its key/value cache.
        generator: Source of randomness.

    Returns:
        `x` with the query filled in, for each sample. Shape ``(batch, n, vars)``.
    """
    check_choice("how", how, get_args(Draw))
    check_count("n", n)
    check_generator(generator)
    if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        raise QueryError(
            f'`temperature` must be above 0 and finite; got {temperature!r}. Use how="greedy".'
        )
    if top_k is not None:
        check_count("top_k", top_k)
    x, query, given = checked_query(model, x, query, given, reads_query=False)
    rank = model.protocol.rank(query, generator=generator)
    filled = x.repeat_interleave(n, dim=0)
    with torch.inference_mode():  # cheaper than no gradients, step by step
        steps = walk(model, filled, query=query, given=given, rank=rank, n=n, cache=cache)
        for rows, targets, conditional in steps:
            if temperature != 1 or top_k is not None:
                conditional = conditional.tempered(temperature, top_k)
            greedy = how == "greedy"
            values = conditional.mode() if greedy else conditional.sample(generator=generator)
            filled[rows, targets] = values.to(filled.dtype)
    return filled.view(len(x), n, -1)


@answering
def entropy(
    model: AnyOrderModel, x: Tensor, target: int | str, *, given: Set | None = None
) -> Tensor:
    """Returns the entropy of p(x_target | x_given), in nats. Shape ``(batch,)``."""
    target = _place(model, target)
    x, _, given = checked_query(model, x, _only(model, x, target), given, reads_query=False)
    return model.predict(x, given, _column(x, target)).entropy()[:, 0]


@answering
def information_gain(
    model: AnyOrderModel,
    x: Tensor,
    target: int | str,
    candidate: int | str,
    *,
    given: Set | None = None,
) -> Tensor:
    r"""Returns the expected reduction of the entropy of `target` by observing `candidate`, in nats.

    It is H(target | given) minus the mean of H(target | given, candidate = v) over v ~ p(candidate
    | given): all levels of a categorical `candidate`, equally probable quantiles of a continuous
    one. It is non-negative if the model's conditionals are consistent with each other; negative
    values measure their inconsistency.

    Returns:
        Shape ``(batch,)``.
    """
    target, candidate = _place(model, target), _place(model, candidate)
    if target == candidate:
        raise QueryError(f"`target` and `candidate` must differ; both are variable {target}.")
    both = _only(model, x, target, candidate)
    x, _, given = checked_query(model, x, both, given, reads_query=False)
    before = model.predict(x, given, _column(x, target)).entropy()[:, 0]
    known = given.clone()
    known[:, candidate] = True
    after = torch.zeros_like(before)
    for values, weights in _values_of(model, x, candidate, given):
        supposed = x.clone()
        supposed[:, candidate] = values.to(x.dtype)
        after += weights * model.predict(supposed, known, _column(x, target)).entropy()[:, 0]
    return before - after


def _values_of(
    model: AnyOrderModel, x: Tensor, candidate: int, given: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields values of `candidate` and their probabilities. Shapes ``(batch,)``."""
    conditional, variable = (
        model.predict(x, given, _column(x, candidate)),
        _variables(model)[candidate],
    )
    shape, device = (len(x), 1), x.device
    if variable.kind == "categorical":
        for level in range(variable.num_levels):
            values = torch.full(shape, level, device=device)
            yield values[:, 0], conditional.log_prob(values).exp()[:, 0]
        return
    for node in range(GAIN_NODES):
        share = torch.full(shape, (node + 0.5) / GAIN_NODES, device=device)
        yield conditional.icdf(share)[:, 0], torch.full((len(x),), 1 / GAIN_NODES, device=device)


def _variables(model: AnyOrderModel) -> tuple[Variable, ...]:
    """Returns the variables that can be queried, in the order of the sets."""
    return model.schema.variables[: model.num_variables]


def _column(x: Tensor, variable: int) -> Tensor:
    return torch.full((len(x), 1), variable, device=x.device)


def _only(model: AnyOrderModel, x: Tensor, *variables: int) -> Tensor:
    members = torch.zeros(len(x), model.num_variables, dtype=torch.bool, device=x.device)
    for variable in variables:
        members[:, variable] = True
    return members


def checked_query(
    model: AnyOrderModel,
    x: Tensor,
    query: Set | None,
    given: Set | None,
    *,
    reads_query: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns checked `x (batch, columns)`, `query (batch, vars)` and `given (batch, vars)`.

    Only values that are read are checked: given ones, and with `reads_query` the queried ones.
    """
    n, columns = model.num_variables, len(model.schema)
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] != columns or len(x) == 0:
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise QueryError(
            f"`x` must be a tensor of shape (batch, {columns}) with a row or more; got {got}."
        )
    if x.dtype == torch.bool or x.is_complex():
        raise QueryError(f"`x` must hold numbers, the codes of levels; got {x.dtype}.")
    x = x.to(model.device)
    sets: list[Tensor] = []
    for name, members in (("given", given), ("query", query)):
        if members is None:
            nothing = torch.zeros(len(x), n, dtype=torch.bool, device=x.device)
            sets.append(nothing if name == "given" else ~sets[0])
            continue
        members = _named(model, members)
        one = getattr(members, "ndim", 0) == 1  # the same set for all rows
        found = check_sets(name, members[None] if one else members, n)
        wide = found.expand(len(x), -1) if one else found
        sets.append(check_sets(name, wide, n, batch=len(x)).to(model.device))
    check_disjoint(*sets)
    read = sets[0] | sets[1] if reads_query else sets[0]
    used = torch.nn.functional.pad(read, (0, columns - n), value=True)  # the context always is
    _check_values(model, x, used)
    kind = torch.float32 if _has_continuous(model) else torch.long
    return x.masked_fill(~used, 0).to(kind), sets[1], sets[0]


def _named(model: AnyOrderModel, members: Any) -> Any:
    """Returns a list of names or numbers as a set ``(vars,)``; all else as it is."""
    if not isinstance(members, list | tuple) or any(isinstance(one, bool) for one in members):
        return members
    found = torch.zeros(model.num_variables, dtype=torch.bool)
    for one in members:
        found[_place(model, one)] = True
    return found


def _place(model: AnyOrderModel, variable: Any) -> int:
    """Returns the number of a variable that can be queried, by its name or number."""
    if isinstance(variable, str):
        variable = model.schema.index(variable)
    return check_count("variable", variable, low=0, high=model.num_variables - 1)


def _has_continuous(model: AnyOrderModel) -> bool:
    return any(variable.kind == "continuous" for variable in model.schema)


def _check_values(model: AnyOrderModel, x: Tensor, used: Tensor) -> None:
    """Refuses invalid codes of levels and numbers that are not finite, where they are used."""
    variables = model.schema.variables
    sizes = torch.tensor([variable.num_levels for variable in variables], device=x.device)
    whole = x == x.floor() if x.is_floating_point() else torch.ones_like(used)
    is_code = (x >= 0) & (x < sizes) & whole  # NaN compares to nothing
    bad = (~torch.where(sizes > 0, is_code, x.isfinite()) & used).nonzero()
    if not len(bad):
        return
    row, column = bad[0].tolist()
    name, value = variables[column].name, x[row, column].item()
    if sizes[column] == 0:
        raise QueryError(f'`x` must hold finite numbers; row {row} of "{name}" holds {value}.')
    raise QueryError(
        f'`x` must hold codes of levels; "{name}" has {int(sizes[column])} levels and row '
        f"{row} holds {value}."
    )


@dataclass(frozen=True)
class Interval:
    """Region of a continuous variable: `low` to `high`, ends included."""

    low: float
    high: float


@dataclass(frozen=True)
class Levels:
    """Region of a categorical variable: the codes of some levels."""

    codes: tuple[int, ...]


@dataclass(frozen=True)
class SoftEvidence:
    """Weighted samples of the variables with regions, beside the given values.

    Args:
        x: Given and sampled values. Shape ``(n, columns)``.
        known: Variables that are evidence in `x`, given or sampled. Shape ``(vars,)``.
        log_weights: Log importance weights. Shape ``(n,)``.
        is_drawn: False if there are no regions, and hence nothing was sampled.
    """

    x: Tensor
    known: Tensor
    log_weights: Tensor
    is_drawn: bool = True

    @property
    def weights(self) -> Tensor:
        """Importance weights that sum to one. Shape ``(n,)``."""
        return self.log_weights.softmax(dim=0)

    @property
    def effective_sample_size(self) -> float:
        """Effective number of samples, 1 / sum of squared weights; infinite if none were needed."""
        if not self.is_drawn:
            return math.inf
        return 1 / float(self.weights.square().sum())

    @property
    def log_probability(self) -> float:
        """Log of an unbiased estimate of the probability of the regions given the evidence."""
        return float(self.log_weights.logsumexp(dim=0)) - math.log(len(self.log_weights))

    def resampled(self, number: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Returns indices of `number` equally weighted samples, by systematic resampling.

        With equal weights, these are the first samples, each once. Shape ``(number,)``.
        """
        if number <= len(self.x) and float(self.log_weights.max() - self.log_weights.min()) < 1e-6:
            return torch.arange(number)
        first = uniform((1,), device=self.x.device, generator=generator)
        points = (torch.arange(number, device=self.x.device) + first) / number
        chosen = torch.searchsorted(self.weights.cumsum(dim=0), points).clamp(max=len(self.x) - 1)
        return chosen[uniform((number,), device=chosen.device, generator=generator).argsort()]


@answering
def soft_evidence(
    model: AnyOrderModel,
    x: Tensor,
    *,
    given: Tensor,
    regions: Mapping[int, Interval | Levels],
    n: int,
    generator: torch.Generator | None = None,
) -> SoftEvidence:
    """Samples the variables with regions from the model, truncated to their regions.

    p(x_u | x_e, x_s in R) is a mixture of p(x_u | x_e, x_s) over the values of x_s in R. These are
    sampled one after another along the canonical path, each from its conditional *truncated to its
    region*, and a sample is weighted by the product of the regions' probabilities: importance
    sampling whose proposal lies in R. With one such variable all weights are equal and the samples
    are exact. With more, the effective sample size measures the error.

    `regions` are those of variables that are not given, by their numbers; `x`, of one row, is read
    where it is given.
    """
    check_count("n", n)
    soft = torch.zeros(1, model.num_variables, dtype=torch.bool)
    soft[0, list(regions)] = True
    x, query, evidence = checked_query(model, x, soft, given, reads_query=False)
    rank = model.protocol.rank(query, generator=generator)
    filled = x.repeat_interleave(n, dim=0)
    log_weights = torch.zeros(n, dtype=torch.float64, device=x.device)
    with torch.inference_mode():
        for rows, targets, conditional in walk(
            model, filled, query=query, given=evidence, rank=rank, n=n
        ):
            region = regions[int(targets[0])]  # one row: all samples are at the same variable
            values, log_mass = _truncated(conditional, region, n, x.device, generator)
            filled[rows, targets] = values.to(filled.dtype)
            log_weights += log_mass
    if not log_weights.isfinite().any():
        raise QueryError(
            "The evidence has no probability under the model: widen an interval or a set."
        )
    known = (query | evidence)[0]
    return SoftEvidence(filled.clone(), known, log_weights.clone(), is_drawn=bool(regions))


def _truncated(
    conditional: Distribution,
    region: Interval | Levels,
    n: int,
    device: torch.device,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """Samples a conditional truncated to a region; returns values and log P(region)."""
    u = uniform((n,), device=device, generator=generator)
    if isinstance(region, Levels):
        codes = torch.tensor(region.codes, device=device)
        masses = torch.stack(
            [conditional.log_prob(code.expand(n)).double().exp() for code in codes], dim=1
        )
        below = masses.cumsum(dim=1)
        chosen = (below < (u * below[:, -1])[:, None]).sum(dim=1).clamp(max=len(codes) - 1)
        return codes[chosen], below[:, -1].log()
    low, high = (
        torch.tensor(end, dtype=torch.float32, device=device) for end in (region.low, region.high)
    )
    # Just below the lower end, so that an atom on it is inside; in doubles, because the tails have
    # little probability.
    below = torch.nextafter(low, torch.tensor(-torch.inf, device=device))
    first, last = (conditional.cdf(end.double().expand(n)).double() for end in (below, high))
    inside = (first + u * (last - first)).clamp(DRAWN_EDGE, 1 - DRAWN_EDGE)
    values = conditional.icdf(inside).to(torch.float32).clamp(low, high)
    return values, (last - first).clamp(min=0).log()
