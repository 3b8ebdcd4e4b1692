"""Dropout that costs a CPU little: a byte of chance a number, eight of them to a draw."""

import torch
from torch import Tensor, nn

BYTE = 256


class Dropout(nn.Dropout):
    """PyTorch's dropout; on a CPU the share is rounded to 1/256.

    Masks are then drawn in a fraction of the time, which is a tenth of a step of a table's network.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Some numbers set to zero, the others raised so that the mean stays, in training."""
        if not self.training:
            return input
        threshold = round(BYTE * self.p)
        if input.device.type != "cpu" or not 0 < threshold < BYTE:
            return super().forward(input)
        draws = torch.empty(-(-input.numel() // 8), dtype=torch.int64)
        # From the least of all numbers on, so that all 64 bits are random.
        draws.random_(torch.iinfo(torch.int64).min, None)
        kept = draws.view(torch.uint8)[: input.numel()].view(input.shape) >= threshold
        return input * kept.to(input.dtype).mul_(BYTE / (BYTE - threshold))
