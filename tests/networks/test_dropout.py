"""Dropout keeps the share and the mean that PyTorch's keeps, and the gradients of what is kept."""

import math

import pytest
import torch
from torch import nn

from anyorder.networks.blocks import Dropout


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_share_and_mean(share):
    torch.manual_seed(0)
    n = 100_003  # no multiple of eight
    dropped = Dropout(share)(torch.ones(n))
    expected = round(256 * share) / 256
    error = math.sqrt(expected * (1 - expected) / n)
    assert abs((dropped == 0).double().mean() - expected) < 5 * error
    assert dropped.unique().tolist() == [0, pytest.approx(1 / (1 - expected))]
    # Neighbours share a draw, but not its bits.
    kept = dropped != 0
    both = (kept[1:] & kept[:-1]).double().mean()
    assert abs(both - (1 - expected) ** 2) < 5 * error


def test_gradients_go_where_values_went():
    x = torch.ones(50, 7, requires_grad=True)
    dropped = Dropout(0.3)(x)
    dropped.sum().backward()
    torch.testing.assert_close(x.grad, dropped.detach())


@pytest.mark.parametrize("share", [0.0, 1.0, 1e-4])
def test_ends_are_pytorchs(share):
    torch.manual_seed(0)
    ours = Dropout(share)(torch.ones(1000))
    torch.manual_seed(0)
    torch.testing.assert_close(ours, nn.Dropout(share)(torch.ones(1000)))


def test_nothing_is_dropped_outside_training():
    x = torch.randn(3, 4)
    assert Dropout(0.5).eval()(x) is x
