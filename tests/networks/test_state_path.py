"""The one-pass network for robots: a set of known dimensions, and a state that is read once."""

import pytest
import torch

from anyorder import ConfigError, Schema, SchemaError, Variable
from anyorder.networks.state_path import StatePath
from tests.networks.conftest import schema_of, wake

ACTION = [Variable.continuous(f"action {i}") for i in range(4)]
SEEN = [Variable.continuous(f"seen {i}", context=True) for i in range(3)]
SCHEMA = Schema((*ACTION, *SEEN))
RANK = torch.arange(4)
SHAPE = {"width": 8, "hidden": 12, "blocks": 1}


@pytest.fixture
def network():
    return wake(StatePath(SCHEMA, **SHAPE))


@pytest.fixture
def rows():
    return torch.randn(5, len(SCHEMA), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_what_is_known_is_a_set(network, rows):
    """Given or told, and in whatever order: the features of a dimension are the same."""
    given = torch.tensor([True, False, True, False]).expand(5, -1)
    asked, found = torch.tensor([3]), []
    for first in (torch.zeros_like(given), given & (RANK == 0), given & (RANK == 2), given):
        later = (given & ~first)[0].nonzero()[:, 0].flip(0)
        state = network.tell(network.encode(rows, first), later, rows[:, later])
        found.append(network.ask(state, asked))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-6)


@torch.no_grad()
def test_every_number_of_the_state_is_read(network, rows):
    nothing = torch.zeros(5, 4, dtype=torch.bool)
    before = network(rows, ~nothing, nothing, RANK).features
    for place in range(len(ACTION), len(SCHEMA)):
        other = rows.clone()
        other[:, place] += 0.5
        moved = (network(other, ~nothing, nothing, RANK).features - before).abs().amax(dim=1)
        assert (moved > 1e-4).all()


@torch.no_grad()
def test_the_state_is_read_once(network, rows):
    passes = []
    network.enter.register_forward_hook(lambda *_: passes.append(1))
    nothing = torch.zeros(5, 4, dtype=torch.bool)
    network(rows, ~nothing, nothing, RANK)
    assert len(passes) == 1
    state = network.encode(rows, nothing).expand(3)
    for variable in RANK[:, None]:
        network.ask(state, variable)
        state = network.tell(state, variable, torch.zeros(15, 1))
    assert len(passes) == 2


def test_it_needs_numbers_and_a_state():
    with pytest.raises(SchemaError, match="numbers only"):
        StatePath(schema_of(2, 2), **SHAPE)
    with pytest.raises(SchemaError, match="must hold a variable with context=True"):
        StatePath(Schema(tuple(ACTION)), **SHAPE)
    with pytest.raises(ConfigError, match="`decoder_blocks` must be a whole number, 1 or more"):
        StatePath(SCHEMA, **SHAPE, decoder_blocks=0)
