r"""Exact weights q(i | e) of the conditionals of a sampled mask e.

A masked network predicts all variables outside e at once, and the paper averages its loss over them
(Eq. 7), although inference never evaluates most of those edges. The paper leaves the remedy to
future work. It is: weight variable i by q(i | e), the share of the mass of node e that flows along
the edge (i, e).

Let M be exchangeable and h(c) = P(|S| = c) / C(n, c), divided by c under `path`. Take an edge whose
e holds t variables and whose target is the i-th in canonical order, after all of e. It is on the
path of S whenever S is e, i and any r of the n - i variables behind i:

    F(t, i) = sum_r h(t + 1 + r) C(n - i, r),       F(t, i) = F(t, i + 1) + F(t + 1, i + 1).

The recursion adds positive terms, so it is stable in logarithms at any n. For sizes uniform on 1..N
it has the closed forms

    path   F(t, i) = 1 / (N i C(i - 1, t))
    edge   F(t, i) = (N + 1) / (N (i + 1) C(i, t + 1))

A conditional query is of all variables not given, so its next variable is the first one outside e.
By reversing the order and taking complements, its edge has mass F(b, n + 1 - i), where b is the
number of variables outside e behind i, with the law of the number queried in place of |S|.
Cardinality reweighting scales all edges of a node equally and does not change q. Under
`RemoveRandom` all variables outside e are equivalent and q is uniform.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

from anyorder.errors import ConfigError, QueryError, check_choice, check_fraction, check_sets
from anyorder.lattice.masks import CardinalityLaw, MaskDistribution, log_binomial
from anyorder.lattice.protocols import DecompositionProtocol, RemoveGreatest, RemoveRandom
from anyorder.lattice.query_laws import MixtureQueries, QueryLaw, as_query_law
from anyorder.lattice.query_samplers import Weighting, check_same_variables
from anyorder.lattice.training_law import is_uniform


def edge_weights(
    law: QueryLaw | MaskDistribution,
    protocol: DecompositionProtocol,
    observed: Tensor,
    *,
    weighting: Weighting = "path",
    uniform_share: float = 0.0,
    available: Tensor | None = None,
) -> Tensor:
    """Returns q(i | e) of each variable i outside a mask e, so that training matches inference.

    Args:
        law: Query law. It must be exchangeable, or a mixture of such laws. For any other law,
            weight 1 on the target that `training_masks` samples is exact in expectation.
        protocol: Decomposition protocol w.
        observed: Masks e, booleans of shape ``(batch, vars)``.
        weighting: As in `training_masks`.
        uniform_share: Share l of the mixture (1 - l) q + l uniform; 1 is the paper's Eq. 7. Edges
            that q leaves out serve queries outside the law.
        available: Variables that each row has, booleans of shape ``(batch, vars)``.

    Returns:
        float64 of shape ``(batch, vars)``: zero on `observed` and unavailable variables; rows sum
        to 1.
    """
    check_choice("weighting", weighting, ("path", "edge"))
    check_fraction("uniform_share", uniform_share)
    queries = as_query_law(law)
    check_same_variables(queries, protocol)
    check_sets("observed", observed, queries.num_variables)
    have = torch.ones_like(observed) if available is None else available
    check_sets("available", have, queries.num_variables, batch=len(observed))
    outside = _check_outside(observed, have)

    evenly = outside.double() / outside.sum(dim=1, keepdim=True)
    parts = queries.laws if isinstance(queries, MixtureQueries) else (queries,)
    if uniform_share == 1:
        return evenly
    if any(part.size_law is None for part in parts):
        raise ConfigError(
            f"{queries!r} has no closed form: it is not exchangeable. "
            "Weight the target that `training_masks` samples instead."
        )
    if isinstance(protocol, RemoveRandom):
        return evenly
    if not isinstance(protocol, RemoveGreatest):
        raise ConfigError(
            f"{protocol!r} has no closed form. Weight the target that `training_masks` samples "
            "instead."
        )
    position = protocol.rank(have)
    shares = queries.weights if isinstance(queries, MixtureQueries) else torch.ones(1)
    logs = torch.full(observed.shape, -torch.inf, dtype=torch.float64, device=observed.device)
    for part, share in zip(parts, shares.tolist(), strict=True):
        if share > 0:
            masses = _log_masses(part, weighting, position, observed & have, have)
            logs = torch.logaddexp(logs, masses + math.log(share))
    return (1 - uniform_share) * _normalised(logs) + uniform_share * evenly


def _check_outside(observed: Tensor, available: Tensor) -> Tensor:
    outside = available & ~observed
    full = (~outside.any(dim=1)).nonzero()
    if len(full):
        raise QueryError(
            "Every row of `observed` must leave a variable to predict; "
            f"row {int(full[0])} does not."
        )
    return outside


def _normalised(logs: Tensor) -> Tensor:
    never = (logs.amax(dim=1) == -torch.inf).nonzero()
    if len(never):
        raise QueryError(
            f"Row {int(never[0])} of `observed` is a set that the query law never visits, so it "
            "has no weights. Sample masks with `training_masks` from the same law."
        )
    return logs.softmax(dim=1)


def _log_masses(
    law: QueryLaw, weighting: Weighting, position: Tensor, observed: Tensor, available: Tensor
) -> Tensor:
    """Returns the log mass of the edge from each row's e to each variable: ``(batch, vars)``."""
    n = available.sum(dim=1, keepdim=True)
    outside = available & ~observed
    if law.queries_rest:
        first = position.masked_fill(~outside, position.shape[1]).amin(dim=1, keepdim=True)
        followed = outside & (position == first)
        t, i = outside.sum(dim=1, keepdim=True) - 1, n - position
    else:
        last = position.masked_fill(~observed, -1).amax(dim=1, keepdim=True)
        followed = outside & (position > last)
        t, i = observed.sum(dim=1, keepdim=True), position + 1
    t, i = t.expand_as(i), i.clamp(min=1)
    t = torch.minimum(t, i - 1)  # others are not followed, but must not break the formulas

    masses = torch.empty(position.shape, dtype=torch.float64, device=position.device)
    for a in n.unique().tolist():
        rows = (n == a).squeeze(1)
        masses[rows] = _log_mass(law, weighting, a, t[rows], i[rows].clamp(max=a))
    return masses.masked_fill(~followed, -torch.inf)


def _log_mass(law: QueryLaw, weighting: Weighting, a: int, t: Tensor, i: Tensor) -> Tensor:
    """Returns log F(t, i) among `a` available variables, elementwise."""
    if not is_uniform(law):
        size_law, table = law.size_law, _small_table if a <= SMALL else _large_table
        assert size_law is not None
        return table(size_law, law.queries_rest, weighting, a).to(i.device)[t, i - 1]
    sizes = law.log_query_sizes(a)
    assert sizes is not None
    log_size = sizes[-1].to(i.device)  # of every size 1..a
    t, i = t.double(), i.double()
    if weighting == "path":
        return log_size - i.log() - log_binomial(i - 1, t)
    return log_size + math.log(a + 1) - (i + 1).log() - log_binomial(i, t + 1)


def log_mass_table(
    size_law: CardinalityLaw, queries_rest: bool, weighting: Weighting, a: int
) -> Tensor:
    """Returns log F(t, i) for t = 0..a-1 (rows) and i = 1..a (columns), by the recursion."""
    sizes = size_law.log_restricted(a)
    sizes = sizes.flip(0) if queries_rest else sizes
    c = torch.arange(1, a + 1, dtype=torch.float64)
    column = sizes[1:] - log_binomial(float(a), c)
    if weighting == "path":
        column = column - c.log()
    table = torch.empty(a, a, dtype=torch.float64)
    beyond = torch.tensor([-torch.inf], dtype=torch.float64)
    for i in range(a, 0, -1):
        table[:, i - 1] = column
        column = torch.logaddexp(column, torch.cat([column[1:], beyond]))
    return table


# Rows with missing values need a table for each number of available variables; a large one takes
# 75 MB.
SMALL = 128
_small_table = lru_cache(maxsize=4 * SMALL)(log_mass_table)
_large_table = lru_cache(maxsize=4)(log_mass_table)
