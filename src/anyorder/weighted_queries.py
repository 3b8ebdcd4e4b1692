"""Queries, drawn in proportion to the mass of their edges.

A query with g given and c asked variables has c edges, at |e| = g, ..., g + c - 1. Its mass is 1
under `path` and c under `edge`, times the mean of 1 + |e| under cardinality reweighting. A law of
sizes has a table of these masses, a list of queries has them one by one, and any other law is drawn
by rejection.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.errors import ConfigError
from anyorder.masks import check_possible
from anyorder.protocols import DecompositionProtocol
from anyorder.query_laws import Query, QueryLaw
from anyorder.random_sets import categories, redraw, source_device, subsets
from anyorder.tosses import Weighting, uniform


class Induced(NamedTuple):
    """A law over edges: questions, how they are taken apart, and what counts."""

    queries: QueryLaw
    protocol: DecompositionProtocol
    weighting: Weighting
    reweight: bool

    def query_mass(self, given: Tensor, asked: Tensor) -> Tensor:
        """The mass of all edges of one query with so many given and asked variables."""
        mass = (
            asked.double()
            if self.weighting == "edge"
            else torch.ones_like(asked, dtype=torch.float64)
        )
        mean_cardinality = given + (asked.double() - 1) / 2
        return mass * (1 + mean_cardinality) if self.reweight else mass


def weighted_queries(
    law: Induced, batch: int, available: Tensor | None, generator: torch.Generator | None
) -> Query:
    """Draws queries by the mass of their edges, each restricted to its row's variables."""
    if law.queries.size_law is not None:
        return _sized(law, batch, available, generator)
    if law.queries.listed is not None:
        return _listed(law, law.queries.listed[0], batch, available, generator)
    return rejected(law, batch, available, generator)


def has_masses(law: QueryLaw) -> bool:
    """Whether the masses of a law's queries are known, so that laws can be mixed by them."""
    return law.size_law is not None or law.listed is not None


def masses(law: Induced, batch: int, available: Tensor | None) -> Tensor:
    """The mass of the edges of each kind of query, by size or one by one: ``(batch, kinds)``."""
    if law.queries.listed is None:
        return size_masses(law, batch, available)
    (given, query), probabilities = law.queries.listed
    have = torch.ones(1, given.shape[1]) if available is None else available.float().cpu()
    sizes = [(have @ sets.float().T).round().long() for sets in (given, query)]
    return (probabilities * law.query_mass(*sizes) * (sizes[1] > 0)).expand(batch, -1)


def size_masses(law: Induced, batch: int, available: Tensor | None) -> Tensor:
    """The mass of the edges of all queries that ask c variables: float64 ``(batch, N + 1)``."""
    n = law.queries.num_variables
    counts = torch.full((batch,), n) if available is None else available.sum(dim=1).cpu()
    table = torch.zeros(batch, n + 1, dtype=torch.float64)
    for a in sorted(set(counts.tolist()), reverse=True):
        sizes = law.queries.log_asked_sizes(a)
        assert sizes is not None
        asked = torch.arange(a + 1)
        given = a - asked if law.queries.asks_rest else torch.zeros_like(asked)
        table[counts == a, : a + 1] = sizes.exp() * law.query_mass(given, asked) * (asked > 0)
    return table


def _sized(
    law: Induced, batch: int, available: Tensor | None, generator: torch.Generator | None
) -> Query:
    """Queries of a law of sizes, by the mass of their edges."""
    device = source_device(generator, available)
    mass = check_possible(size_masses(law, batch, available).to(device))
    n = law.queries.num_variables
    have = torch.ones(batch, n, dtype=torch.bool, device=device) if available is None else available
    asked = subsets(categories(mass, generator=generator), have, generator=generator)
    given = have & ~asked if law.queries.asks_rest else torch.zeros_like(asked)
    return Query(given, asked)


def _listed(
    law: Induced,
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
    law: Induced, batch: int, available: Tensor | None, generator: torch.Generator | None
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
        return uniform(rows, generator) * bound[rows] < mass

    return Query(*redraw(draw, accept, batch, device=device))


def _greatest_mass(law: Induced, num_available: Tensor) -> Tensor:
    """A bound on the mass of a query among so many variables: float64 ``(batch,)``."""
    most_given, most_asked = law.queries.max_sizes
    if law.weighting == "path":  # a given variable counts for more than one that is asked
        given = num_available.sub(1).clamp(max=most_given)
        return law.query_mass(given, (num_available - given).clamp(max=most_asked))
    asked = num_available.clamp(max=most_asked)
    return law.query_mass((num_available - asked).clamp(max=most_given), asked)
