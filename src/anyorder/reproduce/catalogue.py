"""What an experiment says of a model that it trains and compares."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from anyorder.losses import Objective
from anyorder.protocols import DecompositionProtocol, RemoveGreatest, lexicographic


@dataclass(frozen=True)
class Entry:
    """One model: what it is in words; its contract, objective and protocol, for N variables."""

    meaning: str
    network: Literal["masked", "path", "single_stream", "patches"]
    objective: Callable[[int], Objective]
    protocol: Callable[[int], DecompositionProtocol]
    head: Literal["categorical", "mixture", "energy"] = "categorical"


def mac_protocol(n: int) -> DecompositionProtocol:
    """The protocol of MAC along the variables, as they come."""
    return RemoveGreatest(lexicographic(n))
