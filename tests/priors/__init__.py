"""Messages of priors as tensors, for comparisons."""

import torch

from anyorder.networks.contracts import PriorMessage


def flat(message):
    """Location and log scale, then the components. Shape ``(..., 2 + 3 * components)``."""
    moments = torch.stack([message.location, message.log_scale], dim=-1)
    return torch.cat([moments, *message.components], dim=-1)


def message_of(numbers):
    """The message that `flat` gives these numbers of."""
    parts = numbers[..., 2:].unflatten(-1, (3, -1)).unbind(dim=-2)
    return PriorMessage(numbers[..., 0], numbers[..., 1], *parts)
