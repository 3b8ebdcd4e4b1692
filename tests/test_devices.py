"""Networks, priors and losses on one device: nothing they compute with stays behind on the CPU."""

import pytest
import torch

from anyorder import AnyOrderModel, TableModel
from anyorder.heads.mixed import MixedConditionals
from anyorder.lattice.masks import UniformCardinality
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.training.losses import ArdmLoss, BlindLoss, CompletedLoss, MacLoss, PathLoss
from tests.networks.conftest import (
    BATCH,
    NUM_VARIABLES,
    masked_network,
    path_network,
    x,
)
from tests.saved_runs.write import people
from tests.simulated_device import DEVICE, Simulated, simulated

__all__ = ["masked_network", "path_network", "x"]

LOSSES = {
    "ardm": ArdmLoss(),
    "blind": BlindLoss(),
    "mac": MacLoss(UniformCardinality(NUM_VARIABLES)),
    "exact": MacLoss(UniformCardinality(NUM_VARIABLES), targets="exact"),
    "path": PathLoss(UniformCardinality(NUM_VARIABLES)),
    "sizes": PathLoss(UniformCardinality(NUM_VARIABLES), one_size=False),
    "completed": CompletedLoss(UniformCardinality(NUM_VARIABLES)),
}


def learns(model, objective, x, available=None):
    """One forward and backward pass on the simulated device; every weight has a gradient there."""
    drawn = objective.draw(
        model, len(x), available=available, generator=torch.Generator().manual_seed(0)
    )
    model.train()
    with simulated(model):
        assert model.device == DEVICE
        own = tuple(part.to(DEVICE) for part in drawn)
        loss = objective.loss(model, x.to(DEVICE), own)
        assert isinstance(loss, Simulated)
        loss.sum().backward()
        grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert grads
    assert all(isinstance(grad, Simulated) and grad.own.isfinite().all() for grad in grads)


def model_of(network):
    schema = network.schema
    heads = MixedConditionals(schema, width=network.width)
    order = RemoveGreatest(lexicographic(schema.num_variables))
    return AnyOrderModel(schema, network, heads, order)


@pytest.mark.parametrize("loss", ["ardm", "mac", "path", "sizes", "completed"])
def test_path_networks_learn_on_one_device(path_network, x, loss):
    learns(model_of(path_network), LOSSES[loss], x.float())


@pytest.mark.parametrize("loss", ["ardm", "blind", "mac", "exact"])
def test_masked_networks_learn_on_one_device(masked_network, x, loss):
    learns(model_of(masked_network), LOSSES[loss], x.float())


@pytest.mark.parametrize("head", ["mixture", "spline", "energy"])
@pytest.mark.parametrize("network", ["perceptron", "path"])
def test_priors_and_heads_of_tables_learn_on_one_device(network, head):
    size = {"layers": 1, "width": 16, "heads": 2, "max_steps": 1, "validation_share": 0.0}
    table = TableModel(network=network, head=head, **size).fit(people(60))
    x, missing = table.table_.encode(people(BATCH))
    learns(table.model_, PathLoss(table.queries_), x, ~missing)


def test_a_planted_tensor_of_the_cpu_is_caught(x):
    from anyorder.networks.path_perceptron import PathPerceptron
    from tests.networks.conftest import mixed_schema

    network = PathPerceptron(mixed_schema(), units=8, blocks=2)
    forward, planted = network.forward, torch.ones(network.width)
    network.forward = lambda *inputs: (found := forward(*inputs))._replace(
        features=found.features * planted
    )
    with pytest.raises(RuntimeError, match="tensors of the device and of the CPU"):
        learns(model_of(network), LOSSES["path"], x.float())
