"""The models of text that are compared: their networks, and what each is trained on.

Table 1 and Figure 3 share them, under one name each, so that none is trained twice.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from anyorder.estimators.text import text_queries
from anyorder.losses import ArdmLoss, MacLoss, PathLoss
from anyorder.masks import FixedCardinality, UniformCardinality
from anyorder.protocols import DecompositionProtocol, RemoveGreatest, RemoveRandom, strided
from anyorder.query_laws import MarginalQueries, Query, QueryLaw
from anyorder.reproduce.catalogue import Entry, mac_protocol

STRIDES = 10
"""Rounds of the strided order: a stride of 25 at length 250, that of the published commands."""


def published_order(n: int) -> Tensor:
    """The strided order of the published commands for text."""
    return strided(n, max(2, n // STRIDES))


def strided_protocol(n: int) -> DecompositionProtocol:
    """The protocol of MAC in that order."""
    return RemoveGreatest(published_order(n))


TABLE1: Mapping[str, Entry] = {
    "ardm": Entry(
        "ARDM: masked, trained on all masks alike",
        "masked", lambda _: ArdmLoss(), lambda _: RemoveRandom(),
    ),
    "mac": Entry(
        "MAC: masked, trained on the masks of its questions (D^CR)",
        "masked", lambda n: MacLoss(UniformCardinality(n)), mac_protocol,
    ),
    "mac_strided": Entry(
        "MAC in a strided order, as the published command",
        "masked", lambda n: MacLoss(UniformCardinality(n)), strided_protocol,
    ),
    "mac_exact": Entry(
        "MAC, each prediction weighted as inference uses it",
        "masked",
        lambda n: MacLoss(UniformCardinality(n), targets="exact"),
        mac_protocol,
    ),
    "path": Entry(
        "path network, two streams, marginal questions",
        "path", lambda n: PathLoss(UniformCardinality(n)), mac_protocol,
    ),
    "path_mix": Entry(
        "path network, two streams, any questions: what TextModel is",
        "path", lambda n: PathLoss(text_queries(n)), mac_protocol,
    ),
    "path_rnd": Entry(
        "path network, two streams, random orders",
        "path", lambda n: PathLoss(FixedCardinality(n, n)), lambda _: RemoveRandom(),
    ),
    "path_one_stream": Entry(
        "path network, one stream, marginal questions",
        "single_stream", lambda n: PathLoss(UniformCardinality(n)), mac_protocol,
    ),
    "path_mix_one_stream": Entry(
        "path network, one stream, any questions",
        "single_stream", lambda n: PathLoss(text_queries(n)), mac_protocol,
    ),
    "left_to_right": Entry(
        "an ordinary language model: one stream, the joint only",
        "single_stream", lambda n: PathLoss(FixedCardinality(n, n)), mac_protocol,
    ),
}  # fmt: skip


class LastEdges(QueryLaw):
    """The last edge of the path of S ~ M: its greatest variable, given all the others of S.

    Insight (A) without (B): one edge a node, but every node as often as it is asked about, not as
    often as it is passed. The paper does not define its ablation; this is our reading.

    Args:
        canonical_order: A permutation of the variables, least first.
    """

    def __init__(self, canonical_order: Sequence[int] | Tensor) -> None:
        self._protocol = RemoveGreatest(canonical_order)
        self.canonical_order = self._protocol.canonical_order
        self.num_variables = self._protocol.num_variables
        self._sets = MarginalQueries(UniformCardinality(self.num_variables))

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        return self.num_variables - 1, 1

    def _draw(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        members = self._sets._draw(batch, device, generator).query
        greatest = self._protocol.removal(members).bool()
        return Query(members & ~greatest, greatest)

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        last = (self._protocol.removal(given | query).bool() == query).all(dim=1)
        nothing = torch.zeros_like(given)
        return self._sets._log_prob(nothing, given | query).masked_fill(~last, -torch.inf)


FIGURE3: Mapping[str, Entry] = {
    "ardm": TABLE1["ardm"],
    "a_only": Entry(
        "insight A: one edge a mask, the masks as often as they are asked",
        "masked",
        lambda n: MacLoss(LastEdges(published_order(n)), reweight=False),
        strided_protocol,
    ),
    "b_only": Entry(
        "insight B: masks as often as inference visits them, in random orders",
        "masked",
        lambda n: MacLoss(UniformCardinality(n), reweight=False),
        lambda _: RemoveRandom(),
    ),
    "a_and_b": Entry(
        "A and B: masks as often as MAC visits them",
        "masked", lambda n: MacLoss(UniformCardinality(n), reweight=False), strided_protocol,
    ),
    "b_cr": Entry(
        "B with cardinality reweighting",
        "masked", lambda n: MacLoss(UniformCardinality(n)), lambda _: RemoveRandom(),
    ),
    "mac_strided": TABLE1["mac_strided"],
    "mac": TABLE1["mac"],
    "mac_exact": TABLE1["mac_exact"],
    "path": TABLE1["path"],
}  # fmt: skip
