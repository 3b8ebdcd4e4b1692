r"""The training law: the distribution over lattice edges that a query law and a protocol induce.

**Lattice.** Its nodes are the sets of variables; its edges (i, e) are the univariate conditionals
p(x_i | x_e). A protocol answers a query by a path of edges. Under `RemoveGreatest` the path of a
set S visits, for t = 0..|S|-1, the edge whose e holds the t smallest members of S and whose i is
the next one. A query law M and a protocol w thus induce a law over edges: how often inference
evaluates each conditional. Training samples its masks from that law (Shih, Sadigh and Ermon 2022,
section 3.2 (B)).

The paper defines this law in two ways, and both are here:

    weighting="path"   each query counts once, its edges share it    appendix B, the published runs
    weighting="edge"   each edge of each query counts once           Alg. 1, Eq. 5 and 6

Its cardinality reweighting, ``reweight=True``, multiplies the mass of an edge by 1 + |e| (D^CR of
Eq. 7). The paper samples the result by sampling-importance-resampling (``method="sir"``), which is
biased. The default here, ``method="exact"``, is unbiased.

**Exact sampling for uniform sizes.** A set whose size is uniform on 0..n, and which is uniform
given its size, is a Beta-Bernoulli set: sample p uniformly on (0, 1), then include each of the n
variables with probability p. Now sample the target of an edge first. For M =
`UniformCardinality(N)` under `path`, i is a uniform member of S, so it is uniform on 1..N. The
other members of S are a set of uniform size among the other variables, hence Beta-Bernoulli. And e
is the part of that set which comes *before i*, so variables after i need no sampling:

    i uniform on 1..N,   p uniform on (0, 1),   e = each j < i independently with probability p

is the law for which the paper's appendix B sorts three times a row. A weight that depends on sizes
only changes the laws of i and p: `query_samplers.py` has all eight cases. Rows with missing values
use their available variables in place of all: a uniform size stays uniform among them.

**All other laws.** `query_samplers.py` samples a query by the mass of its edges; then one edge of
its path is sampled.
"""

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from anyorder.errors import ConfigError, check_available, check_choice, check_count, check_flag
from anyorder.lattice.masks import MaskDistribution, bernoulli_sets, beta, source_device
from anyorder.lattice.protocols import DecompositionProtocol, RemoveGreatest
from anyorder.lattice.query_laws import Query, QueryLaw, as_query_law
from anyorder.lattice.query_samplers import (
    WeightedLaw,
    Weighting,
    check_same_variables,
    is_mixture,
    rejection_sampled,
    sample_components,
    sample_conditional,
    sample_linear,
    sample_marginal,
    weighted_queries,
)

Method = Literal["exact", "sir"]

PAPER_POOL = 100
"""Number of edges that the paper's resampling samples for each one kept (appendix B)."""

MAX_POOL = 2**24
"""Largest number of weights that `torch.multinomial` takes."""


class Edges(NamedTuple):
    """Edges (i, e) of the lattice, one a row: `target` is predicted from `observed`."""

    observed: Tensor
    """Set e: booleans of shape ``(batch, vars)``."""
    target: Tensor
    """Variable i, not in e: whole numbers of shape ``(batch,)``."""


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
    """Samples edges from the law that `law` and `protocol` induce on the lattice.

    Queries of no variable have no edges and are skipped.

    Args:
        law: Query law of the inference ahead, or a mask distribution M for marginals.
        protocol: Decomposition protocol w.
        batch: Number of edges.
        weighting: "path" (each query counts once) or "edge" (each of its edges counts once).
        reweight: True multiplies the mass of an edge by 1 + |e| (the paper's D^CR).
        method: "exact", or "sir" for the paper's sampling-importance-resampling, which is biased.
        pool: With "sir", the number of edges sampled for each one kept.
        available: Variables that each row has, booleans of shape ``(batch, vars)``. Queries are
            restricted to them row by row. All by default.
        generator: Source of randomness.

    Returns:
        `observed` of shape ``(batch, vars)`` and `target` of shape ``(batch,)``.

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


def _exact(
    law: WeightedLaw,
    protocol: DecompositionProtocol,
    batch: int,
    available: Tensor | None,
    generator: torch.Generator | None,
) -> Edges:
    if is_mixture(law.queries):

        def sample(part: WeightedLaw, rows: int, have: Tensor | None, source: Any) -> Edges:
            return _exact(part, protocol, rows, have, source)

        return Edges(*sample_components(law, batch, available, generator, sample))
    if isinstance(protocol, RemoveGreatest) and is_uniform(law.queries):
        return _uniform_edges(law, protocol, batch, available, generator)
    queries = weighted_queries(law, batch, available, generator)
    return _edge_of_path(queries, protocol, reweight=law.reweight, generator=generator)


def is_uniform(law: QueryLaw) -> bool:
    """True if all query sizes 1..N are equally likely, as the closed forms assume."""
    sizes = law.log_query_sizes(law.num_variables)
    return sizes is not None and bool(sizes[1].isfinite() and (sizes[1:] == sizes[1]).all())


def _uniform_edges(
    law: WeightedLaw,
    protocol: RemoveGreatest,
    batch: int,
    available: Tensor | None,
    generator: torch.Generator | None,
) -> Edges:
    """Samples edges of uniform queries in closed form; see `query_samplers.py`."""
    device = source_device(generator, available)
    if available is None:
        position = protocol.position.to(device, torch.int32)[None]  # (1, vars)
        n = torch.full((batch,), protocol.num_variables, device=device)
    else:
        position = protocol.rank(available).to(torch.int32)  # the row's own variables come first
        n = available.sum(dim=1)
    sample = sample_conditional if law.queries.queries_rest else sample_marginal
    i, first, second, sure = sample(n, law.weighting, law.reweight, generator)
    probability = beta(first, second, generator=generator)
    included = bernoulli_sets(probability, protocol.num_variables, generator=generator)
    place = (i - 1).to(torch.int32)[:, None]
    if law.queries.queries_rest:
        included &= position > place
        observed = included.logical_or_(position < place)
        observed = observed if available is None else observed & available
    else:
        if sure is not None:
            included |= position == sure.to(torch.int32)[:, None]
        observed = included.logical_and_(position < place)
    if available is None:
        return Edges(observed, protocol.canonical_order.to(device)[i - 1])
    return Edges(observed, (position == place).int().argmax(dim=1))


def _edge_of_path(
    queries: Query,
    protocol: DecompositionProtocol,
    *,
    reweight: bool,
    generator: torch.Generator | None,
) -> Edges:
    """Samples one edge of each path: t uniform, or in proportion to 1 + |e| = 1 + g + t."""
    queried, given = queries.query.sum(dim=1), queries.given.sum(dim=1)
    one = torch.ones_like(queried)
    intercept, slope = (given, one) if reweight else (one, 0 * one)
    step = sample_linear(intercept, slope, queried, generator)[:, None] - 1
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
    """Samples by the paper's appendix B: a pool along paths, resampled without replacement."""
    if pool * batch > MAX_POOL:
        raise ConfigError(
            f"`pool` times `batch` must be at most {MAX_POOL} to be resampled; got {pool * batch}. "
            'Use method="exact".'
        )
    plain = law._replace(weighting="path", reweight=False)
    queries = rejection_sampled(plain, pool * batch, None, generator)
    edges = _edge_of_path(queries, protocol, reweight=False, generator=generator)
    weight = torch.ones(pool * batch, dtype=torch.float64, device=edges.target.device)
    if law.weighting == "edge":
        weight *= queries.query.sum(dim=1)
    if law.reweight:
        weight *= 1 + edges.observed.sum(dim=1)
    kept = torch.multinomial(weight, batch, replacement=False, generator=generator)
    return Edges(edges.observed[kept], edges.target[kept])
