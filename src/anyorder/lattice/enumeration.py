"""The induced laws by enumeration: every question, every path, exactly, for few variables.

Inference is a flow on the lattice. The mass of each question enters at its set and runs down, each
node passing all it received to the sets below it in the shares of the protocol (Definition 1 of the
paper). What runs along an edge is how often inference evaluates that conditional: the law that
`lattice.training_masks` draws from.
"""

import torch
from torch import Tensor

from anyorder.errors import ConfigError, QueryError, check_choice, check_count, check_flag
from anyorder.lattice.edges import check_same_variables
from anyorder.lattice.masks import MaskDistribution
from anyorder.lattice.protocols import DecompositionProtocol
from anyorder.lattice.query_laws import QueryLaw, as_query_law
from anyorder.lattice.uniform import Weighting

MAX_VARIABLES = 13
"""A state is a variable given, asked or neither: 3^13 of them take 300 MB."""


MAX_SETS = 24
"""All sets of so many variables take 3 GB."""


def edge_law(
    law: QueryLaw | MaskDistribution,
    protocol: DecompositionProtocol,
    *,
    weighting: Weighting = "path",
    reweight: bool = False,
) -> Tensor:
    """The exact law over edges (e, i) that `law` and `protocol` induce.

    Args:
        law: The questions that will be asked.
        protocol: How they are taken apart.
        weighting: "path" (each query counts once) or "edge" (each of its edges counts once).
        reweight: Whether to multiply the mass of an edge by 1 + |e|.

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
            "Draw from `training_masks` instead."
        )
    given, asked = _all_questions(n)
    flow = queries.log_prob(given, asked).exp()
    if weighting == "path":
        flow = flow / asked.sum(dim=1).clamp(min=1)

    # Mass never leaves its given set: a law of marginals keeps 2^N of the 3^N states.
    start = set_index(given)
    entered = torch.zeros(2**n, dtype=torch.float64).index_add_(0, start, flow)
    live = (entered[start] > 0).nonzero().squeeze(1)
    given, asked = given[live], asked[live]

    edges = torch.zeros(2**n, n, dtype=torch.float64)
    node, removal, num_asked = set_index(given | asked), protocol.removal(asked), asked.sum(dim=1)
    for size in range(n, 0, -1):
        for i in range(n):
            rows = ((num_asked == size) & asked[:, i]).nonzero().squeeze(1)
            passed = flow[live[rows]] * removal[rows, i]
            edges[:, i].index_add_(0, node[rows] - 2**i, passed)
            flow.index_add_(0, live[rows] - 3**i, passed)
    if reweight:
        edges *= 1 + all_sets(n).sum(dim=1, keepdim=True)
    if not edges.any():
        raise QueryError("The query law never asks anything: give it larger queries.")
    return edges / edges.sum()


def node_law(edges: Tensor) -> Tensor:
    """The law over sets e of a law over edges (e, i): the training masks. Shape ``(2^N,)``."""
    return edges.sum(dim=1)


def entropy(probabilities: Tensor) -> float:
    """The entropy of a law in nats."""
    return float(torch.special.entr(probabilities).sum())


def all_sets(num_variables: int) -> Tensor:
    """All sets, booleans of shape ``(2^N, N)``: variable j is in set k where bit j of k is 1."""
    check_count("num_variables", num_variables, high=MAX_SETS)
    return _digits(num_variables, base=2).bool()


def set_index(sets: Tensor) -> Tensor:
    """The row of `all_sets` that each set is. Shape ``(batch,)``."""
    return sets.long() @ (2 ** torch.arange(sets.shape[1], device=sets.device))


def _all_questions(num_variables: int) -> tuple[Tensor, Tensor]:
    """All 3^N questions (given, asked): digit 1 is asked, 2 is given."""
    digits = _digits(num_variables, base=3)
    return digits == 2, digits == 1


def _digits(num_digits: int, *, base: int) -> Tensor:
    """The digits of 0, 1, ..., the least first: shape ``(base^num_digits, num_digits)``."""
    numbers = torch.arange(base**num_digits)[:, None]
    return numbers // base ** torch.arange(num_digits) % base
