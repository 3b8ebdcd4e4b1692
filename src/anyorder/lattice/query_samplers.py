"""Samplers of the queries that training edges come from, by the mass of their edges.

Two kinds are here: closed forms for queries of uniform size, and tables or rejection for others.

For the first, consider queries whose number of queried variables is uniform on 1..N, the variables
themselves being uniform given that number. An edge (i, e) of such a query is sampled target first:
a target i, an inclusion probability p ~ Beta(a, b), and then one Bernoulli(p) variable for each
variable that may be in e (`training_law.py` says why). This file holds the distributions of i and p
for both weightings, with and without cardinality reweighting (CR, the paper's D^CR). The number of
variables is n, and i counts from 1 in the canonical order:

    marginal queries: e holds the variables before i that are included
        path         P(i) = const     p ~ Beta(1, 1)
        edge         P(i) = const     p ~ Beta(2, 1)
        path + CR    P(i) ~ i + 1     p ~ Beta(2, 1)                       Eq. 7 of the paper
        edge + CR    P(i) ~ 2i + 1    p ~ Beta(3, 1); a sure member with probability (i-1)/(2i+1)
    conditional queries: e holds all variables before i, and those after i that are included
        path         P(i) = const     p ~ Beta(1, 1)
        edge         P(i) = const     p ~ Beta(1, 2)
        path + CR    P(i) ~ n + i     p ~ Beta(2, 1) with probability (n-i+2)/(n+i), or Beta(1, 1)
        edge + CR    P(i) ~ n + 2i    p ~ Beta(2, 2) with probability (n-i+3)/(n+2i), or Beta(1, 2)

Under `edge + CR`, |e| = t has mass (t+1)^2 given i, and (t+1)^2 = [(t+1)(t+2) + t(t+1)] / 2. The
first term is the law of a Beta(3, 1) set. The second is a member chosen uniformly, which is in e
for sure, and a Beta(3, 1) set of the others.

All P(i) are linear in i, so i is sampled by its inverse CDF (`sample_linear`).

For the others, a query with g given and c queried variables has c edges, at |e| = g, ..., g + c -
1. Its mass is 1 under `path` weighting and c under `edge` weighting, times the mean of 1 + |e|
under cardinality reweighting (the paper's D^CR). Three samplers cover all query laws:

    exchangeable laws    a table of masses by size, then a uniform set of that size
    lists of queries     the mass of each query
    any other law        rejection sampling

Mixtures whose components have known masses sample the component first, by its total mass.
`row_masses` are the total masses of rows with missing values.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple, TypeGuard, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from anyorder.errors import ConfigError, check_available, check_choice, check_flag
from anyorder.lattice.masks import (
    MaskDistribution,
    categorical,
    categorical_by_row,
    check_nonempty,
    rejection_sample,
    source_device,
    subsets,
    uniform,
)
from anyorder.lattice.protocols import DecompositionProtocol
from anyorder.lattice.query_laws import MixtureQueries, Query, QueryLaw, as_query_law

Weighting = Literal["path", "edge"]
"""Unit that counts once in the training law: a query ("path") or each of its edges ("edge")."""


class EdgeParameters(NamedTuple):
    """Target and inclusion probability of one edge a row. All shapes are ``(batch,)``."""

    i: Tensor
    """Place of the target among the row's variables, counted from 1."""
    first: Tensor
    second: Tensor
    """Parameters of the inclusion probability p ~ Beta(first, second)."""
    sure: Tensor | None
    """Place, from 0, of a variable that is in e for sure; -1 for none, None if no row has one."""


def sample_marginal(
    n: Tensor, weighting: Weighting, reweight: bool, generator: torch.Generator | None
) -> EdgeParameters:
    """Samples the parameters of edges of marginal queries among `n (batch,)` variables."""
    one, edge = torch.ones_like(n), weighting == "edge"
    i = sample_linear(one, (1 + edge) * reweight * one, n, generator)
    if not (edge and reweight):
        return EdgeParameters(i, one + (edge or reweight), one, None)
    # One uniform number both decides (it is below i - 1 of 2i + 1) and chooses.
    sure = (uniform(n.shape, device=n.device, generator=generator) * (2 * i + 1)).long()
    return EdgeParameters(i, one + 2, one, torch.where(sure < i - 1, sure, -1))


def sample_conditional(
    n: Tensor, weighting: Weighting, reweight: bool, generator: torch.Generator | None
) -> EdgeParameters:
    """Samples the parameters of edges of conditional queries among `n (batch,)` variables."""
    one, edge = torch.ones_like(n), weighting == "edge"
    if not reweight:
        i = sample_linear(one, 0 * one, n, generator)
        return EdgeParameters(i, one, one + edge, None)
    slope = 1 + edge
    i = sample_linear(n, slope * one, n, generator)
    chance = uniform(n.shape, device=n.device, generator=generator)
    raised = chance * (n + slope * i) < n - i + 1 + slope
    return EdgeParameters(i, one + raised, one + edge, None)


def sample_linear(
    intercept: Tensor, slope: Tensor, n: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Samples i of 1..n with P(i) proportional to intercept + slope i, by the inverse CDF."""
    # The mass of 1..i is b i + slope i^2 / 2; solved for i in the form that survives slope = 0.
    b = intercept + slope.double() / 2
    mass = uniform(n.shape, device=n.device, generator=generator) * (b + slope * n / 2) * n
    i = 2 * mass / (b + (b * b + 2 * slope * mass).sqrt())
    return torch.minimum(i.long() + 1, n)


class WeightedLaw(NamedTuple):
    """Query law with the weighting of its edges."""

    queries: QueryLaw
    weighting: Weighting
    reweight: bool

    def query_mass(self, given: Tensor, queried: Tensor) -> Tensor:
        """Returns the mass of a query with so many given and queried variables, elementwise."""
        mass = queried.double() if self.weighting == "edge" else torch.ones_like(queried).double()
        mean_cardinality = given + (queried.double() - 1) / 2
        return mass * (1 + mean_cardinality) if self.reweight else mass


def weighted_queries(
    law: WeightedLaw, batch: int, available: Tensor | None, generator: torch.Generator | None
) -> Query:
    """Samples queries by the mass of their edges, each restricted to its row's variables."""
    if is_mixture(law.queries):
        return Query(*sample_components(law, batch, available, generator, weighted_queries))
    if _has_sizes(law.queries):
        return _queries_by_size(law, size_masses(law, batch, available), available, generator)
    if law.queries.listed is not None:
        return _listed_queries(law, law.queries.listed[0], batch, available, generator)
    return rejection_sampled(law, batch, available, generator)


def weighted_queries_of_one_size(
    law: WeightedLaw, batch: int, generator: torch.Generator | None
) -> Query:
    """Samples queries with equal numbers of given and of queried variables, where possible.

    Each row has the law of `weighted_queries`; the rows of a batch share their sizes.
    """
    queries, device = law.queries, source_device(generator)
    if is_mixture(queries):
        totals = _component_masses(law, 1, None)[0].to(device)
        part = queries.laws[int(categorical(totals, 1, generator=generator))]
        return weighted_queries_of_one_size(law._replace(queries=part), batch, generator)
    if not _has_sizes(queries):
        return weighted_queries(law, batch, None, generator)
    sizes = check_nonempty(size_masses(law, 1, None).to(device))
    size = categorical(sizes[0], 1, generator=generator)
    only = torch.nn.functional.one_hot(size, sizes.shape[1]).double().expand(batch, -1)
    return _queries_by_size(law, only, None, generator, one_size=True)


def is_mixture(law: QueryLaw) -> TypeGuard[MixtureQueries]:
    """True for a mixture whose components all have known masses."""
    return isinstance(law, MixtureQueries) and all(has_masses(part) for part in law.laws)


def has_masses(law: QueryLaw) -> bool:
    """True if the masses of the law's queries are known."""
    return _has_sizes(law) or law.listed is not None


def _has_sizes(law: QueryLaw) -> bool:
    """True for an exchangeable law: queries with equal numbers of variables are equally likely."""
    return law.log_query_sizes(law.num_variables) is not None


def sample_components(
    law: WeightedLaw,
    batch: int,
    available: Tensor | None,
    generator: torch.Generator | None,
    sample: Callable[[WeightedLaw, int, Tensor | None, torch.Generator | None], tuple[Tensor, ...]],
) -> tuple[Tensor, ...]:
    """Samples a component of a mixture for each row by its mass, then calls `sample` on it."""
    device = source_device(generator, available)
    choice = categorical_by_row(
        _component_masses(law, batch, available).to(device), generator=generator
    )
    result: tuple[Tensor, ...] = ()
    for k in choice.unique().tolist():
        rows = (choice == k).nonzero().squeeze(1)
        have = None if available is None else available[rows]
        part = law._replace(queries=law.queries.laws[k])  # type: ignore[attr-defined]
        sampled = sample(part, len(rows), have, generator)
        result = result or tuple(t.new_empty(batch, *t.shape[1:]) for t in sampled)
        for whole, piece in zip(result, sampled, strict=True):
            whole[rows] = piece
    return result


def _component_masses(law: WeightedLaw, batch: int, available: Tensor | None) -> Tensor:
    """Returns the mass of each component of a mixture: ``(batch, components)``."""
    parts = [law._replace(queries=part) for part in law.queries.laws]  # type: ignore[attr-defined]
    totals = torch.stack([masses(part, batch, available).sum(dim=1) for part in parts], dim=1)
    return check_nonempty(totals * law.queries.weights)  # type: ignore[attr-defined]


def masses(law: WeightedLaw, batch: int, available: Tensor | None) -> Tensor:
    """Returns the masses of queries, by size or one by one: ``(batch, sizes or queries)``."""
    if law.queries.listed is None:
        return size_masses(law, batch, available)
    (given, query), probabilities = law.queries.listed
    have = torch.ones(1, given.shape[1]) if available is None else available.float().cpu()
    sizes = [(have @ sets.float().T).round().long() for sets in (given, query)]
    return (probabilities * law.query_mass(*sizes) * (sizes[1] > 0)).expand(batch, -1)


def size_masses(law: WeightedLaw, batch: int, available: Tensor | None) -> Tensor:
    """Returns the mass of all queries of c = 0..N variables: float64 ``(batch, N + 1)``."""
    n = law.queries.num_variables
    counts = torch.full((batch,), n) if available is None else available.sum(dim=1).cpu()
    distinct, place = counts.unique(return_inverse=True)
    return torch.stack([_masses_among(law, a) for a in distinct.tolist()])[place]


@lru_cache(maxsize=1024)
def _masses_among(law: WeightedLaw, num_available: int) -> Tensor:
    """Returns the mass of all queries of c = 0..N of so many variables: ``(N + 1,)``; not a copy.

    The same few numbers of variables are asked for in every step of a training.
    """
    sizes = law.queries.log_query_sizes(num_available)
    assert sizes is not None
    queried = torch.arange(num_available + 1)
    found = sizes.exp() * _mean_mass(law, queried, num_available) * (queried > 0)
    return F.pad(found, (0, law.queries.num_variables - num_available))


def _mean_mass(law: WeightedLaw, queried: Tensor, num_available: int) -> Tensor:
    """Returns the mean mass of the queries of each size among the available variables."""
    if not law.queries.gives_part:
        given = num_available - queried if law.queries.queries_rest else torch.zeros_like(queried)
        return law.query_mass(given, queried)
    among = torch.full_like(queried, num_available)
    odds = _given_odds(queried, among, num_available)
    given = torch.arange(num_available + 1)
    mass = law.query_mass(given, queried[:, None])
    return (odds * mass).sum(dim=1) / odds.sum(dim=1).clamp(min=1e-300)


def _given_odds(queried: Tensor, num_available: Tensor, most: int) -> Tensor:
    """Returns the odds of 0..most given variables of `PartialQueries`: ``(batch, most + 1)``."""
    given = torch.arange(most + 1, device=queried.device)
    odds = 1 / (given + queried[:, None] + 1).double()
    return odds.masked_fill(given > (num_available - queried)[:, None], 0)


def _queries_by_size(
    law: WeightedLaw,
    table: Tensor,
    available: Tensor | None,
    generator: torch.Generator | None,
    *,
    one_size: bool = False,
) -> Query:
    """Samples queries of an exchangeable law by the mass of each size, ``(batch, N + 1)``.

    With `one_size`, all rows have equally many given variables.
    """
    device = source_device(generator, available)
    sizes = categorical_by_row(check_nonempty(table.to(device)), generator=generator)
    everything = torch.ones(len(table), law.queries.num_variables, dtype=torch.bool, device=device)
    have = everything if available is None else available
    queried = subsets(sizes, have, generator=generator)
    rest = have & ~queried
    if law.queries.gives_part:
        odds = _given_odds(sizes, have.sum(dim=1), have.shape[1])
        counts = torch.arange(have.shape[1] + 1, device=device)
        odds = odds * law.query_mass(counts, sizes[:, None])
        number = categorical_by_row(odds[:1] if one_size else odds, generator=generator)
        return Query(subsets(number.expand(len(rest)), rest, generator=generator), queried)
    return Query(rest if law.queries.queries_rest else torch.zeros_like(rest), queried)


def _listed_queries(
    law: WeightedLaw,
    queries: Query,
    batch: int,
    available: Tensor | None,
    generator: torch.Generator | None,
) -> Query:
    """Samples queries of a list by the mass of their edges."""
    device = source_device(generator, available)
    mass = check_nonempty(masses(law, batch, available).to(device))
    choice = categorical_by_row(mass, generator=generator)
    given, query = (sets.to(device)[choice] for sets in queries)
    return Query(given, query) if available is None else Query(given & available, query & available)


def rejection_sampled(
    law: WeightedLaw, batch: int, available: Tensor | None, generator: torch.Generator | None
) -> Query:
    """Samples queries of any law by rejection, accepting in proportion to their mass."""
    device = source_device(generator, available)
    n = law.queries.num_variables
    counts = torch.full((batch,), n, device=device) if available is None else available.sum(dim=1)
    bound = _greatest_mass(law, counts)

    def sample(rows: Tensor) -> tuple[Tensor, ...]:
        given, query = law.queries._sample(len(rows), device, generator)
        if available is None:
            return given, query
        return given & available[rows], query & available[rows]

    def accept(rows: Tensor, sampled: tuple[Tensor, ...]) -> Tensor:
        given, queried = sampled[0].sum(dim=1), sampled[1].sum(dim=1)
        mass = law.query_mass(given, queried) * (queried > 0)
        if (mass > bound[rows]).any():
            raise ConfigError(
                f"{law.queries!r} samples larger sets than it declares: raise its "
                "`max_cardinality` or `max_sizes`."
            )
        chance = uniform(rows.shape, device=device, generator=generator)
        return chance * bound[rows] < mass

    return Query(*rejection_sample(sample, accept, batch, device=device))


def _greatest_mass(law: WeightedLaw, num_available: Tensor) -> Tensor:
    """Returns a bound on the mass of a query among so many variables: float64 ``(batch,)``."""
    most_given, most_queried = law.queries.max_sizes
    if law.weighting == "path":  # a given variable adds more mass than a queried one
        given = num_available.sub(1).clamp(max=most_given)
        return law.query_mass(given, (num_available - given).clamp(max=most_queried))
    queried = num_available.clamp(max=most_queried)
    return law.query_mass((num_available - queried).clamp(max=most_given), queried)


def row_masses(
    law: QueryLaw | MaskDistribution,
    available: Tensor,
    *,
    weighting: Weighting = "path",
    reweight: bool = False,
) -> Tensor:
    """Returns the weights of rows with missing values, relative to a complete row.

    `training_masks` samples one edge a row, so the loss of a row is weighted by the mass of its
    edges. Under `path` every row has one query, which counts once, or by the mean of 1 + |e| on its
    path if reweighted. Under `edge` every edge counts once, and a row with fewer variables has
    fewer edges: without reweighting, in proportion to the variables available.

    Args:
        law: Query law whose masses are known: exchangeable, a list of queries, or a mixture of
            such laws.
        available: Variables that each row has, booleans of shape ``(batch, vars)``.
        weighting: As in `training_masks`.
        reweight: As in `training_masks`.

    Returns:
        float64 of shape ``(batch,)``.
    """
    queries = as_query_law(law)
    check_choice("weighting", weighting, get_args(Weighting))
    have = check_available(available, queries.num_variables, len(available))
    if weighting == "path" and not check_flag("reweight", reweight):
        return torch.ones(len(have), dtype=torch.float64, device=have.device)
    rows = torch.cat([torch.ones_like(have[:1]), have])
    mass = _total_masses(WeightedLaw(queries, weighting, reweight), rows)
    if weighting == "path":  # given that something is queried
        mass = mass / _total_masses(WeightedLaw(queries, weighting, False), rows)
    return (mass[1:] / mass[0]).to(have.device)


def _total_masses(law: WeightedLaw, available: Tensor) -> Tensor:
    """Returns the mass of all edges of each row: float64 ``(batch,)``."""
    queries = law.queries
    parts = queries.laws if isinstance(queries, MixtureQueries) else (queries,)
    if not all(has_masses(part) for part in parts):
        raise ConfigError(
            f"The masses of {queries!r} are unknown, so rows must not have missing values."
        )
    weights = queries.weights if isinstance(queries, MixtureQueries) else torch.ones(1)
    total = torch.zeros(len(available), dtype=torch.float64)
    for part, weight in zip(parts, weights.tolist(), strict=True):
        weighted = law._replace(queries=part)
        total += weight * masses(weighted, len(available), available).sum(dim=1)
    return total


def check_same_variables(law: QueryLaw, protocol: object) -> None:
    """Refuses a `protocol` that is none, or that is over other variables than the law."""
    if not isinstance(protocol, DecompositionProtocol):
        got = protocol.__name__ if isinstance(protocol, type) else type(protocol).__name__
        raise ConfigError(
            f"`protocol` must be a DecompositionProtocol; got {got}. Make one with "
            "RemoveGreatest(lexicographic(N))."
        )
    ranked = getattr(protocol, "num_variables", None)
    if ranked not in (None, law.num_variables):
        raise ConfigError(
            f"The query law and the protocol must be over the same variables; the law has "
            f"{law.num_variables} and the protocol {ranked}."
        )
