"""The training law by enumeration of all queries and paths, for few variables.

Inference is a flow on the lattice. The mass of each query enters at its set and flows down: each
node passes what it received to the sets below it in proportion to the protocol's w_e(j) (Definition
1 of the paper). The flow along an edge is the frequency with which inference evaluates that
conditional. It is the law that `training_masks` samples, here as a table (Table 7 of the paper).
"""

import torch
from torch import Tensor

from anyorder.errors import ConfigError, QueryError, check_choice, check_count, check_flag
from anyorder.lattice.masks import MaskDistribution
from anyorder.lattice.protocols import DecompositionProtocol
from anyorder.lattice.query_laws import QueryLaw, as_query_law
from anyorder.lattice.query_samplers import Weighting, check_same_variables

MAX_VARIABLES = 13
"""Each variable is given, queried or neither: 3^13 states take 300 MB."""

MAX_SETS = 24
"""Largest number of variables of `all_sets`: their sets take 3 GB."""


def edge_law(
    law: QueryLaw | MaskDistribution,
    protocol: DecompositionProtocol,
    *,
    weighting: Weighting = "path",
    reweight: bool = False,
) -> Tensor:
    """Returns the exact law over edges (e, i) that `law` and `protocol` induce.

    Arguments are those of `training_masks`.

    Returns:
        float64 of shape ``(2^N, N)`` that sums to 1; row k is the set ``all_sets(N)[k]``, column i
        the target.
    """
    check_choice("weighting", weighting, ("path", "edge"))
    check_flag("reweight", reweight)
    queries = as_query_law(law)
    check_same_variables(queries, protocol)
    n = queries.num_variables
    if n > MAX_VARIABLES:
        raise ConfigError(
            f"Enumeration works up to {MAX_VARIABLES} variables; the law has {n}. "
            "Sample with `training_masks` instead."
        )
    given, queried = _all_queries(n)
    flow = queries.log_prob(given, queried).exp()
    if weighting == "path":
        flow = flow / queried.sum(dim=1).clamp(min=1)

    # Mass never leaves its given set: a law of marginals keeps 2^N of the 3^N states.
    start = set_index(given)
    entered = torch.zeros(2**n, dtype=torch.float64).index_add_(0, start, flow)
    live = (entered[start] > 0).nonzero().squeeze(1)
    given, queried = given[live], queried[live]

    edges = torch.zeros(2**n, n, dtype=torch.float64)
    node, removal, num_queried = (
        set_index(given | queried),
        protocol.removal(queried),
        queried.sum(dim=1),
    )
    for size in range(n, 0, -1):
        for i in range(n):
            rows = ((num_queried == size) & queried[:, i]).nonzero().squeeze(1)
            passed = flow[live[rows]] * removal[rows, i]
            edges[:, i].index_add_(0, node[rows] - 2**i, passed)
            flow.index_add_(0, live[rows] - 3**i, passed)
    if reweight:
        edges *= 1 + all_sets(n).sum(dim=1, keepdim=True)
    if not edges.any():
        raise QueryError("The query law never queries a variable: give it larger queries.")
    return edges / edges.sum()


def node_law(edges: Tensor) -> Tensor:
    """Returns the law over sets e of a law over edges (e, i). Shape ``(2^N,)``."""
    return edges.sum(dim=1)


def entropy(probabilities: Tensor) -> float:
    """Returns the entropy of a law in nats."""
    return float(torch.special.entr(probabilities).sum())


def all_sets(num_variables: int) -> Tensor:
    """Returns all sets, booleans ``(2^N, N)``: variable j is in set k if bit j of k is 1."""
    check_count("num_variables", num_variables, high=MAX_SETS)
    return _digits(num_variables, base=2).bool()


def set_index(sets: Tensor) -> Tensor:
    """Returns the row of `all_sets` of each set. Shape ``(batch,)``."""
    return sets.long() @ (2 ** torch.arange(sets.shape[1], device=sets.device))


def _all_queries(num_variables: int) -> tuple[Tensor, Tensor]:
    """Returns all 3^N queries (given, query): digit 1 is queried, 2 is given."""
    digits = _digits(num_variables, base=3)
    return digits == 2, digits == 1


def _digits(num_digits: int, *, base: int) -> Tensor:
    """Returns the digits of 0, 1, ..., least first: ``(base^num_digits, num_digits)``."""
    numbers = torch.arange(base**num_digits)[:, None]
    return numbers // base ** torch.arange(num_digits) % base
