"""How the models of the public tables are built: sizes and settings of ACE, which the paper keeps.

What is not ACE's: an energy tilts a wide normal density instead of being clipped to [0, 30], it is
trained from the first step on, and it has no regulariser on power.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from anyorder.conditionals.contracts import Conditionals
from anyorder.conditionals.heads import EnergyConditionals, MixtureConditionals
from anyorder.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.path_transformer import PathTransformer
from anyorder.networks.residual_mlp import ResidualMlp
from anyorder.reproduce.catalogue import Entry
from anyorder.training.settings import TrainingSettings
from anyorder.variables import Schema, Variable

PATH_DROPOUT = 0.1
"""At most, for path networks: perceptrons bear, and need, far more."""


@dataclass(frozen=True)
class UciScale:
    """How large an experiment is.

    Args:
        hidden: Width of the perceptrons.
        blocks: Their residual blocks.
        features: Numbers that a perceptron gives the head of each variable (ACE's context).
        energy_hidden: Width of the energies.
        energy_blocks: Their residual blocks.
        layers: Of path networks.
        width: Of path networks.
        heads: Of path networks.
        rows: Test rows that are asked about.
        noise: The scale of the noise on the rows that are trained on, in the units of the data.
        dropout: Share that is dropped in training.
        settings: Of the training.
    """

    hidden: int
    blocks: int
    features: int
    energy_hidden: int
    energy_blocks: int
    layers: int
    width: int
    heads: int
    rows: int
    noise: float
    dropout: float
    settings: TrainingSettings


TINY = UciScale(
    hidden=32, blocks=1, features=8, energy_hidden=8, energy_blocks=1,
    layers=1, width=16, heads=2, rows=8, noise=0.005, dropout=0.1,
    settings=TrainingSettings(batch=16, steps=12, warmup=4, learning_rate=3e-3),
)  # fmt: skip

SMALL = UciScale(
    hidden=256, blocks=4, features=32, energy_hidden=64, energy_blocks=2,
    layers=3, width=96, heads=4, rows=128, noise=0.005, dropout=0.2,
    settings=TrainingSettings(
        batch=64, minutes=5, warmup=100, learning_rate=1e-3,
        # All of the budget is used, unless nothing gets better for most of it.
        evaluate_every=200, patience=50, checkpoint_minutes=2,
    ),
)  # fmt: skip

PAPER = UciScale(
    hidden=512, blocks=4, features=64, energy_hidden=128, energy_blocks=4,
    layers=4, width=192, heads=6, rows=10_000, noise=0.005, dropout=0.2,
    settings=TrainingSettings(
        batch=2048, steps=1_000_000, warmup=0, learning_rate=1e-3, schedule="linear",
        betas=(0.9, 0.999), weight_decay=0.0, clip=None, evaluate_every=5_000, patience=1_000,
    ),
)  # fmt: skip

SCALES: Mapping[str, UciScale] = {"tiny": TINY, "small": SMALL, "paper": PAPER}


@dataclass(frozen=True)
class Recipe:
    """What ACE sets for one data set."""

    batch: int
    learning_rate: float
    steps: int
    noise: float
    dropout: float
    hidden: int = 512


RECIPES: Mapping[str, Recipe] = {
    "power": Recipe(512, 1e-4, 1_600_000, 0.005, 0.2),
    "gas": Recipe(2048, 1e-3, 1_000_000, 0.001, 0.0),
    "hepmass": Recipe(2048, 5e-4, 1_000_000, 0.003, 0.2),
    "miniboone": Recipe(2048, 1e-3, 15_000, 0.005, 0.5),
    "bsds": Recipe(2048, 1e-3, 1_000_000, 0.001, 0.2, hidden=1024),
}


def scale_of(name: str, dataset: str | None) -> UciScale:
    """A scale by its name, with what ACE sets for the data set; None is the bundled table."""
    scale = SCALES[name]
    if dataset is None or name == "tiny":
        return scale
    recipe = RECIPES[dataset]
    scale = replace(scale, noise=recipe.noise, dropout=recipe.dropout)
    if name == "small":
        return scale
    settings = replace(
        scale.settings,
        batch=recipe.batch,
        learning_rate=recipe.learning_rate,
        steps=recipe.steps,
        evaluate_every=min(5_000, recipe.steps // 15),
    )
    return replace(scale, hidden=recipe.hidden, settings=settings)


def build(entry: Entry, scale: UciScale, num_variables: int) -> AnyOrderModel:
    """The untrained model; its weights depend on the seed of the settings only."""
    schema = Schema(tuple(Variable.continuous(f"x{i}") for i in range(num_variables)))
    network: MaskedNetwork | PathNetwork[Any]
    with torch.random.fork_rng():
        torch.manual_seed(scale.settings.seed)
        if entry.network == "path":
            network = PathTransformer(
                schema,
                layers=scale.layers,
                width=scale.width,
                heads=scale.heads,
                positions="absolute",
                shared=False,
                dropout=min(scale.dropout, PATH_DROPOUT),
            )
        else:
            network = ResidualMlp(
                schema,
                width=scale.features,
                hidden=scale.hidden,
                blocks=scale.blocks,
                dropout=scale.dropout,
            )
        conditionals = _conditionals(entry, scale, schema, network.width)
    return AnyOrderModel(schema, network, conditionals, entry.protocol(num_variables))


def _conditionals(entry: Entry, scale: UciScale, schema: Schema, width: int) -> Conditionals:
    if entry.head == "energy":
        return EnergyConditionals(
            schema, width=width, hidden=scale.energy_hidden, blocks=scale.energy_blocks
        )
    return MixtureConditionals(schema, width=width)
