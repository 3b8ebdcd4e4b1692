"""The models of tables of numbers that are compared: Tables 4 and 5 share them."""

from collections.abc import Mapping

from anyorder.estimators.table_fitting import table_queries
from anyorder.losses import ArdmLoss, MacLoss, PathLoss
from anyorder.protocols import RemoveRandom
from anyorder.query_mixtures import any_queries
from anyorder.reproduce.catalogue import Entry, mac_protocol

UCI_MODELS: Mapping[str, Entry] = {
    "ace": Entry(
        "ACE: perceptron with energies, trained on all masks alike, asked in random orders",
        "masked", lambda _: ArdmLoss(), lambda _: RemoveRandom(), "energy",
    ),
    "mac": Entry(
        "MAC: the same, on the masks of its questions (D^CR), half of them conditional",
        "masked", lambda n: MacLoss(any_queries(n)), mac_protocol, "energy",
    ),
    "mac_mixture": Entry(
        "MAC with mixtures in place of energies: exactly normalised, in training too",
        "masked", lambda n: MacLoss(any_queries(n)), mac_protocol, "mixture",
    ),
    "path": Entry(
        "path network with mixtures, any questions: TableModel without its guide",
        "path", lambda n: PathLoss(table_queries(n)), mac_protocol, "mixture",
    ),
}  # fmt: skip
