r"""The lattice of masks, and what a query law and a protocol induce on it.

The nodes of the lattice are the sets of variables, its edges (i, e) the univariate conditionals
p(x_i | x_e). A protocol answers a question by a walk over edges: under `RemoveGreatest` the path of
a set S visits, for t = 0..|S|-1, the edge whose e holds the t smallest members of S and whose i is
the next one. So a query law M and a protocol w induce a law over edges: how often inference
evaluates each conditional. Training draws its masks from that law (Shih, Sadigh and Ermon 2022,
section 3.2 (B)).

The paper defines it in two ways, and both are here:

    weighting="path"   each query counts once, its edges share it    appendix B, the published runs
    weighting="edge"   each edge of each query counts once           Alg. 1, Eq. 5-6

and its cardinality reweighting, ``reweight=True``, multiplies the mass of an edge by 1 + |e|. The
paper draws from the result by sampling-importance-resampling (``method="sir"``), which is biased;
here it is drawn exactly.

**Tossing coins.** A set whose size is uniform on 0..n, and which is uniform given its size, can be
had without counting: draw p uniformly, then toss a coin of probability p for each of the n
variables. Now turn an edge round and ask for its target first. For M = `UniformCardinality(N)`
under `path`, i is a uniform member of S, so it is uniform on 1..N; the other members of S are a set
of uniform size among the other variables: coins. And e is what these coins say about the variables
*before i*. The coins after i need not be tossed. So

    i uniform on 1..N,   p uniform on (0, 1),   e = the j < i whose coin of probability p is heads

is the law that the paper's appendix draws with three sorts a row. A weight that depends on sizes
only changes the laws of i and p. With n for the number of variables and i counted from 1:

    marginal queries: e holds those of the variables before i whose coins are heads
        path         P(i) = const     p ~ Beta(1, 1)
        edge         P(i) = const     p ~ Beta(2, 1)
        path + CR    P(i) ~ i + 1     p ~ Beta(2, 1)                              the paper's D^CR
        edge + CR    P(i) ~ 2i + 1    p ~ Beta(3, 1); a sure member with probability (i-1)/(2i+1)
    conditional queries: e holds all variables before i, and those after it whose coins are heads
        path         P(i) = const     p ~ Beta(1, 1)
        edge         P(i) = const     p ~ Beta(1, 2)
        path + CR    P(i) ~ n + i     p ~ Beta(2, 1) with probability (n-i+2)/(n+i), or Beta(1, 1)
        edge + CR    P(i) ~ n + 2i    p ~ Beta(2, 2) with probability (n-i+3)/(n+2i), or Beta(1, 2)

The sure member of `edge + CR` splits (t+1)^2 = [(t+1)(t+2) + t(t+1)] / 2, t = |e|: the first term
is Beta(3, 1) coins, the second one member chosen uniformly and Beta(3, 1) coins for the others.
Rows with missing values use their available variables in place of all: a uniform size stays uniform
among them.

Any other law of sizes draws its sizes from a table, and any other law at all is drawn by rejection:
a query with g given and c asked variables has mass (1 or c) times (1 or the mean of 1 + |e| along
its path).
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from anyorder.errors import ConfigError, QueryError, check_choice, check_count, check_sets
from anyorder.masks import MaskDistribution
from anyorder.protocols import DecompositionProtocol, RemoveGreatest
from anyorder.query_laws import MixtureQueries, Query, QueryLaw, as_query_law
from anyorder.random_sets import beta, categories, coins, redraw, source_device, subsets

Weighting = Literal["path", "edge"]
Method = Literal["exact", "sir"]

PAPER_POOL = 100
"""How many masks the paper's resampling draws for each one that it keeps (appendix B)."""


class Edges(NamedTuple):
    """Edges of the lattice, one a row: predict `target` from `observed`."""

    observed: Tensor
    """The set e: booleans of shape ``(batch, vars)``."""
    target: Tensor
    """The variable i, not in e: whole numbers of shape ``(batch,)``."""


class _Law(NamedTuple):
    """What `training_masks` was asked for, checked."""

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
        mean_cardinality = given + (asked - 1) / 2
        return mass * (1 + mean_cardinality) if self.reweight else mass


def training_masks(
    law: QueryLaw | MaskDistribution,
    protocol: DecompositionProtocol,
    batch: int,
    *,
    weighting: Weighting = "path",
    reweight: bool = False,
    method: Method = "exact",
    pool: int = PAPER_POOL,
    available: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Edges:
    """Draws edges from the law that `law` and `protocol` induce on the lattice.

    Questions that ask nothing have no edges and are passed over.

    Args:
        law: The questions that will be asked: a query law, or a mask distribution M for marginals.
        protocol: How they are taken apart.
        batch: How many edges.
        weighting: "path" (each query counts once) or "edge" (each of its edges counts once).
        reweight: Whether to multiply the mass of an edge by 1 + |e| (the paper's D^CR).
        method: "exact", or "sir" for the paper's sampling-importance-resampling, which is biased.
        pool: With "sir": how many edges are drawn for each one kept.
        available: Booleans ``(batch, vars)``: the variables that each row has. Questions are then
            restricted to them, row by row.
        generator: The source of randomness.

    Reference:
        Shih, Sadigh and Ermon (2022), Eq. 6, Eq. 7 and appendix B.

    Example:
        >>> from anyorder.masks import UniformCardinality
        >>> from anyorder.protocols import lexicographic
        >>> generator = torch.Generator().manual_seed(0)
        >>> edges = training_masks(
        ...     UniformCardinality(5), RemoveGreatest(lexicographic(5)), 3, generator=generator
        ... )
        >>> edges.observed.shape, edges.target.shape
        (torch.Size([3, 5]), torch.Size([3]))
    """
    check_count("batch", batch)
    check_choice("weighting", weighting, get_args(Weighting))
    check_choice("method", method, get_args(Method))
    induced = _Law(as_query_law(law), protocol, weighting, reweight)
    check_same_variables(induced.queries, protocol)
    if available is not None:
        _check_available(available, induced.queries.num_variables, batch)
    if method == "sir":
        check_count("pool", pool)
        if available is not None:
            raise ConfigError('`available` works with method="exact" only: "sir" mixes the rows.')
        return _resampled(induced, batch, pool, generator)
    return _exact(induced, batch, available, generator)


def check_same_variables(law: QueryLaw, protocol: DecompositionProtocol) -> None:
    """Refuses a protocol that ranks another number of variables than the law draws."""
    ranked = getattr(protocol, "num_variables", None)
    if ranked not in (None, law.num_variables):
        raise ConfigError(
            f"The query law and the protocol must be over the same variables; the law has "
            f"{law.num_variables} and the protocol {ranked}."
        )


def _check_available(available: Tensor, num_variables: int, batch: int) -> None:
    check_sets("available", available, num_variables, batch=batch)
    empty = (~available.any(dim=1)).nonzero()
    if len(empty):
        raise QueryError(
            f"Every row of `available` must have a variable; row {int(empty[0])} has none. Drop it."
        )


def _exact(
    law: _Law, batch: int, available: Tensor | None, generator: torch.Generator | None
) -> Edges:
    queries = law.queries
    if isinstance(queries, MixtureQueries) and all(_is_sized(part) for part in queries.laws):
        return _mixture(law, queries, batch, available, generator)
    if isinstance(law.protocol, RemoveGreatest) and is_uniform(queries):
        return _tossed(law, law.protocol, batch, available, generator)
    if _is_sized(queries):
        return _cut(law, _sized(law, batch, available, generator), generator)
    return _cut(law, _rejected(law, batch, available, generator), generator)


def _is_sized(law: QueryLaw) -> bool:
    return law.asked_sizes(law.num_variables) is not None


def is_uniform(law: QueryLaw) -> bool:
    """Whether all numbers asked 1..N are equally likely, which is when coins can be tossed."""
    sizes = law.asked_sizes(law.num_variables)
    return sizes is not None and bool((sizes[1:] > 0).all() and (sizes[1:] == sizes[1]).all())


def _tossed(
    law: _Law,
    protocol: RemoveGreatest,
    batch: int,
    available: Tensor | None,
    generator: torch.Generator | None,
) -> Edges:
    """Edges by coins: the table in the module's docstring."""
    device = source_device(generator, available)
    if available is None:
        position = protocol.position.to(device, torch.int32)[None]  # (1, vars)
        n = torch.full((batch,), protocol.num_variables, device=device)
    else:
        position = protocol.rank(available).to(
            torch.int32
        )  # (batch, vars), the row's own come first
        n = available.sum(dim=1)
    toss = _conditional_toss if law.queries.asks_rest else _marginal_toss
    i, first, second, sure = toss(law, n, generator)

    heads = coins(
        beta(first, second, generator=generator), protocol.num_variables, generator=generator
    )
    place = (i - 1).to(torch.int32)[:, None]
    if law.queries.asks_rest:
        heads &= position > place
        observed = heads.logical_or_(position < place)
        observed = observed if available is None else observed & available
    else:
        if law.weighting == "edge" and law.reweight:
            heads |= position == sure.to(torch.int32)[:, None]
        observed = heads.logical_and_(position < place)
    if available is None:
        return Edges(observed, protocol.canonical_order.to(device)[i - 1])
    return Edges(observed, (position == place).int().argmax(dim=1))


class _Toss(NamedTuple):
    i: Tensor
    """The place of the target among the row's variables, from 1."""
    first: Tensor
    second: Tensor
    """The coins have probability p ~ Beta(first, second)."""
    sure: Tensor
    """The place, from 0, of a sure member; -1 for none."""


def _marginal_toss(law: _Law, n: Tensor, generator: torch.Generator | None) -> _Toss:
    one = torch.ones_like(n)
    slope = (2 if law.weighting == "edge" else 1) if law.reweight else 0
    i = _linear(one, slope * one, n, generator)
    first = one + law.reweight + (law.weighting == "edge")
    sure = -one
    if law.weighting == "edge" and law.reweight:
        # One uniform number both decides (it is below i - 1 of 2i + 1) and chooses.
        sure = (_uniform(n, generator) * (2 * i + 1)).long()
    return _Toss(i, first, one, torch.where(sure < i - 1, sure, -1))


def _conditional_toss(law: _Law, n: Tensor, generator: torch.Generator | None) -> _Toss:
    one = torch.ones_like(n)
    edge = law.weighting == "edge"
    if not law.reweight:
        return _Toss(_linear(one, 0 * one, n, generator), one, one + edge, -one)
    slope = 2 if edge else 1
    i = _linear(n, slope * one, n, generator)
    raised = _uniform(n, generator) * (n + slope * i) < n - i + 1 + slope
    return _Toss(i, one + raised, one + edge, -one)


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.rand(like.shape, dtype=torch.float64, device=like.device, generator=generator)


def _linear(
    intercept: Tensor, slope: Tensor, n: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Draws i of 1..n with P(i) proportional to intercept + slope i, by its inverse CDF."""
    # The mass of 1..i is b i + slope i^2 / 2; solved for i in the form that survives slope = 0.
    b = intercept + slope / 2
    mass = _uniform(n, generator) * (b + slope * n / 2) * n
    i = 2 * mass / (b + (b * b + 2 * slope * mass).sqrt())
    return torch.minimum(i.long() + 1, n)


def _mixture(
    law: _Law,
    mixture: MixtureQueries,
    batch: int,
    available: Tensor | None,
    generator: torch.Generator | None,
) -> Edges:
    """Chooses a law for each row by the mass of its edges there, then draws from that law."""
    device = source_device(generator, available)
    parts = [law._replace(queries=part) for part in mixture.laws]
    masses = torch.stack([_size_masses(part, batch, available).sum(dim=1) for part in parts], dim=1)
    weighted = (masses * mixture.weights).to(device)  # (batch, laws)
    choice = categories(_positive(weighted), generator=generator)
    observed = torch.empty(batch, mixture.num_variables, dtype=torch.bool, device=device)
    target = torch.empty(batch, dtype=torch.long, device=device)
    for k, part in enumerate(parts):
        rows = (choice == k).nonzero().squeeze(1)
        if len(rows):
            have = None if available is None else available[rows]
            observed[rows], target[rows] = _exact(part, len(rows), have, generator)
    return Edges(observed, target)


def _size_masses(law: _Law, batch: int, available: Tensor | None) -> Tensor:
    """The mass of the edges of all queries that ask c variables: float64 ``(batch, N + 1)``."""
    n = law.queries.num_variables
    counts = torch.full((batch,), n) if available is None else available.sum(dim=1).cpu()
    table = torch.zeros(batch, n + 1, dtype=torch.float64)
    for a in counts.unique().tolist():
        sizes = law.queries.asked_sizes(a)
        assert sizes is not None
        asked = torch.arange(a + 1)
        given = a - asked if law.queries.asks_rest else torch.zeros_like(asked)
        table[counts == a, : a + 1] = sizes * law.query_mass(given, asked) * (asked > 0)
    return table


def _sized(
    law: _Law, batch: int, available: Tensor | None, generator: torch.Generator | None
) -> Query:
    """Queries of a law of sizes, by the mass of their edges."""
    device = source_device(generator, available)
    sizes = categories(
        _positive(_size_masses(law, batch, available).to(device)), generator=generator
    )
    n = law.queries.num_variables
    have = torch.ones(batch, n, dtype=torch.bool, device=device) if available is None else available
    asked = subsets(sizes, have, generator=generator)
    given = have & ~asked if law.queries.asks_rest else torch.zeros_like(asked)
    return Query(given, asked)


def _positive(masses: Tensor) -> Tensor:
    if not (masses.sum(dim=1) > 0).all():
        raise QueryError("The query law never asks anything of some row: give it larger queries.")
    return masses


def _rejected(
    law: _Law, batch: int, available: Tensor | None, generator: torch.Generator | None
) -> Query:
    """Queries of any law, by the mass of their edges: draw, then accept in proportion to it."""
    device = source_device(generator, available)
    bound = float(law.query_mass(*(torch.tensor(size) for size in law.queries.max_sizes)))

    def draw(rows: Tensor) -> tuple[Tensor, ...]:
        given, query = law.queries._draw(len(rows), device, generator)
        if available is None:
            return given, query
        return given & available[rows], query & available[rows]

    def accept(rows: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        given, asked = drawn[0].sum(dim=1), drawn[1].sum(dim=1)
        return (_uniform(rows, generator) * bound < law.query_mass(given, asked)) & (asked > 0)

    return Query(*redraw(draw, accept, batch, device=device))


def _cut(law: _Law, queries: Query, generator: torch.Generator | None) -> Edges:
    """One edge of each query's path: t uniform, or in proportion to 1 + |e| = 1 + g + t."""
    asked, given = queries.query.sum(dim=1), queries.given.sum(dim=1)
    one = torch.ones_like(asked)
    intercept, slope = (given, one) if law.reweight else (one, 0 * one)
    step = _linear(intercept, slope, asked, generator)[:, None] - 1
    rank = law.protocol.rank(queries.query, generator=generator)
    observed = queries.given | (queries.query & (rank < step))
    return Edges(observed, (rank == step).int().argmax(dim=1))


def _resampled(law: _Law, batch: int, pool: int, generator: torch.Generator | None) -> Edges:
    """The paper's way (appendix B): a pool along paths, resampled without replacement."""
    plain = law._replace(weighting="path", reweight=False)
    queries = _rejected(plain, pool * batch, None, generator)
    edges = _cut(plain, queries, generator)
    weight = torch.ones(pool * batch, dtype=torch.float64, device=edges.target.device)
    if law.weighting == "edge":
        weight *= queries.query.sum(dim=1)
    if law.reweight:
        weight *= 1 + edges.observed.sum(dim=1)
    kept = torch.multinomial(weight, batch, replacement=False, generator=generator)
    return Edges(edges.observed[kept], edges.target[kept])
