"""The models of images that are compared: Tables 2 and 3 share them."""

from collections.abc import Mapping
from math import isqrt

from anyorder.losses import ArdmLoss, MacLoss, PathLoss
from anyorder.masks import UniformCardinality
from anyorder.protocols import DecompositionProtocol, RemoveGreatest, RemoveRandom, strided
from anyorder.reproduce.catalogue import Entry, mac_protocol

PUBLISHED_STRIDES = {3072: 48}
"""The stride of the published commands, by N; the paper's text says 32."""


def strided_protocol(n: int) -> DecompositionProtocol:
    """The protocol of MAC in a strided order: about as many rounds as steps in a round."""
    return RemoveGreatest(strided(n, PUBLISHED_STRIDES.get(n, max(2, isqrt(n)))))


IMAGE_MODELS: Mapping[str, Entry] = {
    "ardm": Entry(
        "ARDM: the paper's U-Net, trained on all masks alike, asked in random orders",
        "masked", lambda _: ArdmLoss(), lambda _: RemoveRandom(),
    ),
    "mac": Entry(
        "MAC: the same, on the masks of its questions (D^CR), channel by channel, row by row",
        "masked", lambda n: MacLoss(UniformCardinality(n)), mac_protocol,
    ),
    "mac_strided": Entry(
        "MAC in a strided order, as the published command",
        "masked", lambda n: MacLoss(UniformCardinality(n)), strided_protocol,
    ),
    "path": Entry(
        "path network with a token a pixel, marginal questions",
        "path", lambda n: PathLoss(UniformCardinality(n)), mac_protocol,
    ),
    # The walk goes patch by patch; the study, which knows the shape of its images, says how.
    "path_patches": Entry(
        "path network with a token a patch and a decoder inside it, marginal questions",
        "patches", lambda n: PathLoss(UniformCardinality(n)), mac_protocol,
    ),
}  # fmt: skip
