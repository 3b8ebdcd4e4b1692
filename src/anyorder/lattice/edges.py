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
only changes the laws of i and p: `tosses.py` has all eight. Rows with missing values use their
available variables in place of all: a uniform size stays uniform among them.

All other laws draw a query by the mass of its edges (`weighted_queries.py`), then one of its edges.
"""

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from anyorder.errors import ConfigError, check_available, check_choice, check_count, check_flag
from anyorder.lattice.masks import MaskDistribution
from anyorder.lattice.protocols import DecompositionProtocol, RemoveGreatest
from anyorder.lattice.query_laws import Query, QueryLaw, as_query_law
from anyorder.lattice.query_mixtures import MixtureQueries
from anyorder.lattice.random_sets import beta, coins, source_device
from anyorder.lattice.uniform import Weighting, conditional_toss, linear, marginal_toss
from anyorder.lattice.weighted import (
    WeightedLaw,
    by_parts,
    has_masses,
    is_mixture,
    masses,
    rejected,
    weighted_queries,
)

Method = Literal["exact", "sir"]

PAPER_POOL = 100
"""How many masks the paper's resampling draws for each one that it keeps (appendix B)."""


MAX_POOL = 2**24
"""As many weights as torch can resample from."""


class Edges(NamedTuple):
    """Edges of the lattice, one a row: predict `target` from `observed`."""

    observed: Tensor
    """The set e: booleans of shape ``(batch, vars)``."""
    target: Tensor
    """The variable i, not in e: whole numbers of shape ``(batch,)``."""


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
        >>> from anyorder.lattice.masks import UniformCardinality
        >>> from anyorder.lattice.protocols import lexicographic
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
    check_count("pool", pool)
    weighted = WeightedLaw(as_query_law(law), weighting, check_flag("reweight", reweight))
    check_same_variables(weighted.queries, protocol)
    if available is not None:
        available = check_available(available, weighted.queries.num_variables, batch)
    if method == "sir":
        if available is not None:
            raise ConfigError('`available` works with method="exact" only: "sir" mixes the rows.')
        return _resampled(weighted, protocol, batch, pool, generator)
    return _exact(weighted, protocol, batch, available, generator)


def row_masses(
    law: QueryLaw | MaskDistribution,
    available: Tensor,
    *,
    weighting: Weighting = "path",
    reweight: bool = False,
) -> Tensor:
    """How much rows with gaps count, relative to a row with all its variables.

    `training_masks` draws one edge a row. The loss of a row is to be weighted by the mass of its
    edges: under `path` every row asks one query, which counts once, or by the mean of 1 + |e| on
    its path if reweighted; under `edge` every edge counts once, and a row with fewer variables has
    fewer of them (without reweighting, as many as the share of its variables that are available).

    Args:
        law: As in `training_masks`; its masses must be known: sets of one size alike, a list, or a
            mixture of such laws.
        available: Booleans ``(batch, vars)``.
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
    if weighting == "path":  # given that something is asked
        mass = mass / _total_masses(WeightedLaw(queries, weighting, False), rows)
    return (mass[1:] / mass[0]).to(have.device)


def _total_masses(law: WeightedLaw, available: Tensor) -> Tensor:
    """The mass of all edges of each row: float64 ``(batch,)``."""
    queries = law.queries
    parts = queries.laws if isinstance(queries, MixtureQueries) else (queries,)
    if not all(has_masses(part) for part in parts):
        raise ConfigError(f"The masses of {queries!r} are not known, so rows cannot have gaps.")
    weights = queries.weights if isinstance(queries, MixtureQueries) else torch.ones(1)
    total = torch.zeros(len(available), dtype=torch.float64)
    for part, weight in zip(parts, weights.tolist(), strict=True):
        weighted = law._replace(queries=part)
        total += weight * masses(weighted, len(available), available).sum(dim=1)
    return total


def check_same_variables(law: QueryLaw, protocol: object) -> None:
    """Refuses what is no protocol, or ranks another number of variables than the law draws."""
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


def _exact(
    law: WeightedLaw,
    protocol: DecompositionProtocol,
    batch: int,
    available: Tensor | None,
    generator: torch.Generator | None,
) -> Edges:
    if is_mixture(law.queries):

        def draw(part: WeightedLaw, rows: int, have: Tensor | None, source: Any) -> Edges:
            return _exact(part, protocol, rows, have, source)

        return Edges(*by_parts(law, batch, available, generator, draw))
    if isinstance(protocol, RemoveGreatest) and is_uniform(law.queries):
        return _tossed(law, protocol, batch, available, generator)
    queries = weighted_queries(law, batch, available, generator)
    return _cut(queries, protocol, reweight=law.reweight, generator=generator)


def is_uniform(law: QueryLaw) -> bool:
    """Whether all numbers asked 1..N are equally likely, which is when coins can be tossed."""
    sizes = law.log_asked_sizes(law.num_variables)
    return sizes is not None and bool(sizes[1].isfinite() and (sizes[1:] == sizes[1]).all())


def _tossed(
    law: WeightedLaw,
    protocol: RemoveGreatest,
    batch: int,
    available: Tensor | None,
    generator: torch.Generator | None,
) -> Edges:
    """Edges by coins: see `tosses.py`."""
    device = source_device(generator, available)
    if available is None:
        position = protocol.position.to(device, torch.int32)[None]  # (1, vars)
        n = torch.full((batch,), protocol.num_variables, device=device)
    else:
        position = protocol.rank(available).to(torch.int32)  # the row's own variables come first
        n = available.sum(dim=1)
    toss = conditional_toss if law.queries.asks_rest else marginal_toss
    i, first, second, sure = toss(n, law.weighting, law.reweight, generator)
    probability = beta(first, second, generator=generator)
    heads = coins(probability, protocol.num_variables, generator=generator)
    place = (i - 1).to(torch.int32)[:, None]
    if law.queries.asks_rest:
        heads &= position > place
        observed = heads.logical_or_(position < place)
        observed = observed if available is None else observed & available
    else:
        if sure is not None:
            heads |= position == sure.to(torch.int32)[:, None]
        observed = heads.logical_and_(position < place)
    if available is None:
        return Edges(observed, protocol.canonical_order.to(device)[i - 1])
    return Edges(observed, (position == place).int().argmax(dim=1))


def _cut(
    queries: Query,
    protocol: DecompositionProtocol,
    *,
    reweight: bool,
    generator: torch.Generator | None,
) -> Edges:
    """One edge of each query's path: t uniform, or in proportion to 1 + |e| = 1 + g + t."""
    asked, given = queries.query.sum(dim=1), queries.given.sum(dim=1)
    one = torch.ones_like(asked)
    intercept, slope = (given, one) if reweight else (one, 0 * one)
    step = linear(intercept, slope, asked, generator)[:, None] - 1
    rank = protocol.rank(queries.query, generator=generator)
    observed = queries.given | (queries.query & (rank < step))
    return Edges(observed, (rank == step).int().argmax(dim=1))


def _resampled(
    law: WeightedLaw,
    protocol: DecompositionProtocol,
    batch: int,
    pool: int,
    generator: torch.Generator | None,
) -> Edges:
    """The paper's way (appendix B): a pool along paths, resampled without replacement."""
    if pool * batch > MAX_POOL:
        raise ConfigError(
            f"`pool` times `batch` must be at most {MAX_POOL} to be resampled; got {pool * batch}. "
            'Use method="exact".'
        )
    plain = law._replace(weighting="path", reweight=False)
    queries = rejected(plain, pool * batch, None, generator)
    edges = _cut(queries, protocol, reweight=False, generator=generator)
    weight = torch.ones(pool * batch, dtype=torch.float64, device=edges.target.device)
    if law.weighting == "edge":
        weight *= queries.query.sum(dim=1)
    if law.reweight:
        weight *= 1 + edges.observed.sum(dim=1)
    kept = torch.multinomial(weight, batch, replacement=False, generator=generator)
    return Edges(edges.observed[kept], edges.target[kept])
