"""Queries, drawn in proportion to the mass of their edges.

A query with g given and c asked variables has c edges, at |e| = g, ..., g + c - 1. Its mass is 1
under `path` and c under `edge`, times the mean of 1 + |e| under cardinality reweighting. A law of
sizes has a table of these masses, a list of queries has them one by one, and any other law is drawn
by rejection.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor

from anyorder.errors import ConfigError
from anyorder.lattice.masks import check_possible
from anyorder.lattice.query_laws import Query, QueryLaw
from anyorder.lattice.query_mixtures import MixtureQueries
from anyorder.lattice.random_sets import (
    categories,
    draws,
    redraw,
    source_device,
    subsets,
    uniform,
)
from anyorder.lattice.uniform import Weighting


class WeightedLaw(NamedTuple):
    """Questions, and what counts of them."""

    queries: QueryLaw
    weighting: Weighting
    reweight: bool

    def query_mass(self, given: Tensor, asked: Tensor) -> Tensor:
        """The mass of all edges of one query with so many given and asked variables."""
        mass = asked.double() if self.weighting == "edge" else torch.ones_like(asked).double()
        mean_cardinality = given + (asked.double() - 1) / 2
        return mass * (1 + mean_cardinality) if self.reweight else mass


def weighted_queries(
    law: WeightedLaw, batch: int, available: Tensor | None, generator: torch.Generator | None
) -> Query:
    """Draws queries by the mass of their edges, each restricted to its row's variables."""
    if is_mixture(law.queries):
        drawn = by_parts(law, batch, available, generator, weighted_queries)
        return Query(*drawn)
    if _has_sizes(law.queries):
        return _sized(law, size_masses(law, batch, available), available, generator)
    if law.queries.listed is not None:
        return _listed(law, law.queries.listed[0], batch, available, generator)
    return rejected(law, batch, available, generator)


def weighted_queries_of_one_size(
    law: WeightedLaw, batch: int, generator: torch.Generator | None
) -> Query:
    """Draws queries that all give and ask equally many variables, where the law allows it.

    Each row by itself is drawn as by `weighted_queries`; the rows of a batch share their sizes.
    """
    queries, device = law.queries, source_device(generator)
    if is_mixture(queries):
        totals = _part_masses(law, 1, None)[0].to(device)
        part = queries.laws[int(draws(totals, 1, generator=generator))]
        return weighted_queries_of_one_size(law._replace(queries=part), batch, generator)
    if not _has_sizes(queries):
        return weighted_queries(law, batch, None, generator)
    sizes = check_possible(size_masses(law, 1, None).to(device))
    size = draws(sizes[0], 1, generator=generator)
    only = torch.nn.functional.one_hot(size, sizes.shape[1]).double().expand(batch, -1)
    return _sized(law, only, None, generator, together=True)


def is_mixture(law: QueryLaw) -> TypeGuard[MixtureQueries]:
    """Whether a law is a mixture whose parts have known masses, so that they can be weighed."""
    return isinstance(law, MixtureQueries) and all(has_masses(part) for part in law.laws)


def has_masses(law: QueryLaw) -> bool:
    """Whether the masses of a law's queries are known."""
    return _has_sizes(law) or law.listed is not None


def _has_sizes(law: QueryLaw) -> bool:
    """Whether the questions of a law that ask equally many variables are alike."""
    return law.log_asked_sizes(law.num_variables) is not None


def by_parts(
    law: WeightedLaw,
    batch: int,
    available: Tensor | None,
    generator: torch.Generator | None,
    draw: Callable[[WeightedLaw, int, Tensor | None, torch.Generator | None], tuple[Tensor, ...]],
) -> tuple[Tensor, ...]:
    """Chooses a part of a mixture for each row by the mass of its edges, and draws from it."""
    device = source_device(generator, available)
    choice = categories(_part_masses(law, batch, available).to(device), generator=generator)
    result: tuple[Tensor, ...] = ()
    for k in choice.unique().tolist():
        rows = (choice == k).nonzero().squeeze(1)
        have = None if available is None else available[rows]
        part = law._replace(queries=law.queries.laws[k])  # type: ignore[attr-defined]
        drawn = draw(part, len(rows), have, generator)
        result = result or tuple(t.new_empty(batch, *t.shape[1:]) for t in drawn)
        for whole, piece in zip(result, drawn, strict=True):
            whole[rows] = piece
    return result


def _part_masses(law: WeightedLaw, batch: int, available: Tensor | None) -> Tensor:
    """The mass of each part of a mixture: ``(batch, parts)``."""
    parts = [law._replace(queries=part) for part in law.queries.laws]  # type: ignore[attr-defined]
    totals = torch.stack([masses(part, batch, available).sum(dim=1) for part in parts], dim=1)
    return check_possible(totals * law.queries.weights)  # type: ignore[attr-defined]


def masses(law: WeightedLaw, batch: int, available: Tensor | None) -> Tensor:
    """The mass of the edges of each kind of query, by size or one by one: ``(batch, kinds)``."""
    if law.queries.listed is None:
        return size_masses(law, batch, available)
    (given, query), probabilities = law.queries.listed
    have = torch.ones(1, given.shape[1]) if available is None else available.float().cpu()
    sizes = [(have @ sets.float().T).round().long() for sets in (given, query)]
    return (probabilities * law.query_mass(*sizes) * (sizes[1] > 0)).expand(batch, -1)


def size_masses(law: WeightedLaw, batch: int, available: Tensor | None) -> Tensor:
    """The mass of the edges of all queries that ask c variables: float64 ``(batch, N + 1)``."""
    n = law.queries.num_variables
    counts = torch.full((batch,), n) if available is None else available.sum(dim=1).cpu()
    table = torch.zeros(batch, n + 1, dtype=torch.float64)
    for a in sorted(set(counts.tolist()), reverse=True):
        sizes = law.queries.log_asked_sizes(a)
        assert sizes is not None
        asked = torch.arange(a + 1)
        table[counts == a, : a + 1] = sizes.exp() * _mean_mass(law, asked, a) * (asked > 0)
    return table


def _mean_mass(law: WeightedLaw, asked: Tensor, num_available: int) -> Tensor:
    """The mean mass of the queries that ask so many of the available variables."""
    if not law.queries.gives_part:
        given = num_available - asked if law.queries.asks_rest else torch.zeros_like(asked)
        return law.query_mass(given, asked)
    among = torch.full_like(asked, num_available)
    odds = _given_odds(asked, among, num_available)
    given = torch.arange(num_available + 1)
    mass = law.query_mass(given, asked[:, None])
    return (odds * mass).sum(dim=1) / odds.sum(dim=1).clamp(min=1e-300)


def _given_odds(asked: Tensor, num_available: Tensor, most: int) -> Tensor:
    """The odds of 0..most given variables where a part is given: ``(batch, most + 1)``."""
    given = torch.arange(most + 1, device=asked.device)
    odds = 1 / (given + asked[:, None] + 1).double()
    return odds.masked_fill(given > (num_available - asked)[:, None], 0)


def _sized(
    law: WeightedLaw,
    table: Tensor,
    available: Tensor | None,
    generator: torch.Generator | None,
    *,
    together: bool = False,
) -> Query:
    """Queries of a law of sizes, by a table of the mass of each size ``(batch, N + 1)``.

    With `together`, all rows are given equally many variables.
    """
    device = source_device(generator, available)
    sizes = categories(check_possible(table.to(device)), generator=generator)
    everything = torch.ones(len(table), law.queries.num_variables, dtype=torch.bool, device=device)
    have = everything if available is None else available
    asked = subsets(sizes, have, generator=generator)
    rest = have & ~asked
    if law.queries.gives_part:
        odds = _given_odds(sizes, have.sum(dim=1), have.shape[1])
        counts = torch.arange(have.shape[1] + 1, device=device)
        odds = odds * law.query_mass(counts, sizes[:, None])
        number = categories(odds[:1] if together else odds, generator=generator)
        return Query(subsets(number.expand(len(rest)), rest, generator=generator), asked)
    return Query(rest if law.queries.asks_rest else torch.zeros_like(rest), asked)


def _listed(
    law: WeightedLaw,
    queries: Query,
    batch: int,
    available: Tensor | None,
    generator: torch.Generator | None,
) -> Query:
    """Queries of a list, by the mass of their edges."""
    device = source_device(generator, available)
    mass = check_possible(masses(law, batch, available).to(device))
    choice = categories(mass, generator=generator)
    given, query = (sets.to(device)[choice] for sets in queries)
    return Query(given, query) if available is None else Query(given & available, query & available)


def rejected(
    law: WeightedLaw, batch: int, available: Tensor | None, generator: torch.Generator | None
) -> Query:
    """Queries of any law, by the mass of their edges: draw, then accept in proportion to it."""
    device = source_device(generator, available)
    n = law.queries.num_variables
    counts = torch.full((batch,), n, device=device) if available is None else available.sum(dim=1)
    bound = _greatest_mass(law, counts)

    def draw(rows: Tensor) -> tuple[Tensor, ...]:
        given, query = law.queries._draw(len(rows), device, generator)
        if available is None:
            return given, query
        return given & available[rows], query & available[rows]

    def accept(rows: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        given, asked = drawn[0].sum(dim=1), drawn[1].sum(dim=1)
        mass = law.query_mass(given, asked) * (asked > 0)
        if (mass > bound[rows]).any():
            raise ConfigError(
                f"{law.queries!r} draws larger sets than it declares: raise its `max_cardinality` "
                "or `max_sizes`."
            )
        chance = uniform(rows.shape, device=device, generator=generator)
        return chance * bound[rows] < mass

    return Query(*redraw(draw, accept, batch, device=device))


def _greatest_mass(law: WeightedLaw, num_available: Tensor) -> Tensor:
    """A bound on the mass of a query among so many variables: float64 ``(batch,)``."""
    most_given, most_asked = law.queries.max_sizes
    if law.weighting == "path":  # a given variable counts for more than one that is asked
        given = num_available.sub(1).clamp(max=most_given)
        return law.query_mass(given, (num_available - given).clamp(max=most_asked))
    asked = num_available.clamp(max=most_asked)
    return law.query_mass((num_available - asked).clamp(max=most_given), asked)
