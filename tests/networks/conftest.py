"""A schema and networks small enough to check by hand."""

import pytest
import torch

from anyorder import Schema, Variable
from anyorder.networks.path_transformer import PathTransformer
from anyorder.networks.single_stream import SingleStreamPathTransformer
from anyorder.networks.transformer import Transformer

NUM_VARIABLES = 9
BATCH = 7
PATH_NETWORKS = {"two": PathTransformer, "one": SingleStreamPathTransformer}


def schema_of(*sizes: int) -> Schema:
    return Schema(tuple(Variable.categorical(f"x{i}", range(size)) for i, size in enumerate(sizes)))


def wake(network: torch.nn.Module) -> torch.nn.Module:
    """Draws every parameter afresh: at their first values biases and norms would hide mistakes."""
    torch.manual_seed(3)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network.eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randint(5, (BATCH, NUM_VARIABLES), generator=torch.Generator().manual_seed(0))


@pytest.fixture(
    params=[(network, positions) for network in PATH_NETWORKS for positions in ("both", "rotary")],
    ids="-".join,
)
def path_network(request) -> torch.nn.Module:
    network, positions = request.param
    shape = {"layers": 3, "width": 16, "heads": 2, "positions": positions}
    return wake(PATH_NETWORKS[network](schema_of(*[5] * NUM_VARIABLES), **shape))


@pytest.fixture(params=["absolute", "rotary", "both"])
def masked_network(request) -> torch.nn.Module:
    schema = schema_of(*[5] * NUM_VARIABLES)
    return wake(Transformer(schema, layers=3, width=16, heads=2, positions=request.param))


@pytest.fixture
def sets() -> tuple[torch.Tensor, torch.Tensor]:
    """Random disjoint (query, given), rows of every length, among them a row that asks nothing and
    one that is told nothing."""
    draw = torch.rand(BATCH, NUM_VARIABLES, generator=torch.Generator().manual_seed(1))
    query, given = draw < 0.5, draw > 0.6
    query[1], given[2] = False, False
    query[0], given[0] = True, False
    return query, given
