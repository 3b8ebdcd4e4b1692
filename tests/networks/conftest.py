"""A schema and networks small enough to check by hand."""

import pytest
import torch

from anyorder import Schema, Variable
from anyorder.networks.patch_path_transformer import PatchPathTransformer
from anyorder.networks.path_perceptron import PathPerceptron
from anyorder.networks.path_transformer import PathTransformer, SingleStreamPathTransformer
from anyorder.networks.residual_mlp import ResidualMlp
from anyorder.networks.state_path import StatePath
from anyorder.networks.transformer import Transformer
from anyorder.networks.unet import Unet

NUM_VARIABLES = 9
BATCH = 7
PATH_NETWORKS = {
    "two": PathTransformer,
    "one": SingleStreamPathTransformer,
}


def schema_of(*sizes: int) -> Schema:
    return Schema(tuple(Variable.categorical(f"x{i}", range(size)) for i, size in enumerate(sizes)))


def wake(network: torch.nn.Module) -> torch.nn.Module:
    """Draws every parameter afresh: at their first values biases and norms would hide mistakes."""
    torch.manual_seed(3)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network.eval()


class SeeingNothing(StatePath):
    """Numbers and a state that never changes, for rows that have neither."""

    def __init__(self, num_variables: int, **shape):
        numbers = (Variable.continuous(f"x{i}") for i in range(num_variables))
        super().__init__(Schema((*numbers, Variable.continuous("s", context=True))), **shape)

    def forward(self, x, query, given, rank):
        return super().forward(_with_state(x), query, given, rank)

    def encode(self, x, given):
        return super().encode(_with_state(x), given)


def _with_state(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, 1), value=1)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randint(5, (BATCH, NUM_VARIABLES), generator=torch.Generator().manual_seed(0))


def mixed_schema(*context: Variable) -> Schema:
    """Columns of a table whose values can be 0..4: levels, real numbers, atoms."""
    levels = [Variable.categorical(f"level{i}", range(5)) for i in range(3)]
    smooth = [Variable.continuous(f"smooth{i}") for i in range(3)]
    spiked = [Variable.continuous(f"spiked{i}", atoms=(0.0, 3.0)) for i in range(3)]
    return Schema((*levels, *smooth, *spiked, *context))


SHAPE = {"layers": 3, "width": 16, "heads": 2}
ALIKE = schema_of(*[5] * NUM_VARIABLES)
TABLE = {"positions": "absolute", "shared": False}
# Lines of three pixels: the order 0, 1, 2, ... goes patch by patch.
PATCHES = {"image_shape": (3, 3, 1), "patch": (1, 3)}
TRUNK = {"trunk_layers": 2, "trunk_width": 8, "trunk_heads": 2}


@pytest.fixture(
    params=[(net, kind) for net in PATH_NETWORKS for kind in ("both", "rotary", "table")]
    + [("patch", "image"), ("state", "numbers"), ("perceptron", "table"), ("perceptron", "levels")],
    ids="-".join,
)
def path_network(request) -> torch.nn.Module:
    network, kind = request.param
    if network == "perceptron":
        schema = mixed_schema() if kind == "table" else ALIKE
        return wake(PathPerceptron(schema, units=8, blocks=2))
    if kind == "numbers":
        return wake(SeeingNothing(NUM_VARIABLES, width=16, hidden=12, blocks=2))
    if kind == "image":
        return wake(PatchPathTransformer(ALIKE, **PATCHES, **TRUNK, **SHAPE))
    if kind == "table":
        return wake(PATH_NETWORKS[network](mixed_schema(), **SHAPE, **TABLE))
    return wake(PATH_NETWORKS[network](ALIKE, **SHAPE, positions=kind))


@pytest.fixture(params=["absolute", "rotary", "both", "table", "perceptron", "unet"])
def masked_network(request) -> torch.nn.Module:
    if request.param == "unet":
        return wake(Unet(ALIKE, image_shape=(3, 3, 1), down=2, middle=1, width=16, heads=2))
    if request.param == "perceptron":
        return wake(ResidualMlp(mixed_schema(), width=16, hidden=24, blocks=2))
    if request.param == "table":
        return wake(Transformer(mixed_schema(), **SHAPE, **TABLE))
    return wake(Transformer(ALIKE, **SHAPE, positions=request.param))


@pytest.fixture
def sets() -> tuple[torch.Tensor, torch.Tensor]:
    """Random disjoint (query, given), rows of every length, among them a row that asks nothing and
    one that is told nothing."""
    draw = torch.rand(BATCH, NUM_VARIABLES, generator=torch.Generator().manual_seed(1))
    query, given = draw < 0.5, draw > 0.6
    query[1], given[2] = False, False
    query[0], given[0] = True, False
    return query, given
