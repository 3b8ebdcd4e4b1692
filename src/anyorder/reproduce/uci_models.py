"""How the models of the public tables are built: sizes and settings of ACE, which the paper keeps.

What is not ACE's: an energy tilts a wide normal density instead of being clipped to [0, 30], it is
trained from the first step on, and it has no regulariser on power.

The models of tables of numbers that are compared: Tables 4 and 5 share them.

The experiments with the public tables: what Tables 4 and 5 train and measure.

Networks see columns with mean 0 and deviation 1; likelihoods are in the units of MAF's files, in
which published numbers are, so that the log of each asked column's scale is taken off.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from time import process_time
from typing import Any, ClassVar

import torch
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate
from anyorder.heads.distributions import Conditionals
from anyorder.heads.energy import EnergyConditionals
from anyorder.heads.mixture import MixtureConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.lattice.protocols import RemoveRandom
from anyorder.lattice.query_laws import Query
from anyorder.lattice.query_mixtures import any_queries
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.path_transformer import PathTransformer
from anyorder.networks.residual_mlp import ResidualMlp
from anyorder.reproduce.record import Entry, mac_protocol
from anyorder.reproduce.study import Study
from anyorder.reproduce.uci_data import Numbers, bundled_numbers, load_uci
from anyorder.tables.fitting import table_queries
from anyorder.training.batches import Rows
from anyorder.training.loop import Validation
from anyorder.training.losses import ArdmLoss, MacLoss, PathLoss
from anyorder.training.settings import TrainingSettings
from anyorder.variables import Schema, Variable

UCI_MODELS: Mapping[str, Entry] = {
    "ace": Entry(
        "ACE: perceptron with energies, trained on all masks alike, asked in random orders",
        "masked", lambda _: ArdmLoss(), lambda _: RemoveRandom(), "energy",
    ),
    "mac": Entry(
        "MAC: the same, on the masks of its questions (D^CR), half of them conditional",
        "masked", lambda n: MacLoss(any_queries(n)), mac_protocol, "energy",
    ),
    "mac_mixture": Entry(
        "MAC with mixtures in place of energies: exactly normalised, in training too",
        "masked", lambda n: MacLoss(any_queries(n)), mac_protocol, "mixture",
    ),
    "path": Entry(
        "path network with mixtures, any questions: TableModel without its guide",
        "path", lambda n: PathLoss(table_queries(n)), mac_protocol, "mixture",
    ),
}  # fmt: skip


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


VALID_ROWS, VALID_BATCH = 512, 16
"""Held-out rows while training, and how many of them questions are drawn for at a time: an
objective may draw questions of one size at a time."""

PARTS = 8
"""Of the test rows, each timed by itself."""

MILLISECONDS = "milliseconds"
"""The metric of time: of the processor, for all questions about a row."""

Questions = Callable[[int, int, int], dict[str, Query]]
"""From N, a number of rows and a seed to questions by their names; a function of a module."""


@dataclass(frozen=True)
class UciStudy(Study):
    """Models of one table of numbers.

    Args:
        dataset: Which one; None is the table that ships with scikit-learn.
        scale: How large.
        data: The folder with the data sets.
        questions: What is asked about the test rows.
    """

    dataset: str | None
    scale: UciScale
    data: Path | None
    questions: Questions

    catalogue: ClassVar[Mapping[str, Entry]] = UCI_MODELS
    unit: ClassVar[str | None] = None

    @property
    def numbers(self) -> Numbers:
        """The table."""
        return read_numbers(self.dataset, self.data)

    @property
    def data_name(self) -> str:
        """What to call the table."""
        return self.numbers.name

    @property
    def num_variables(self) -> int:
        """The columns."""
        return self.numbers.train.shape[1]

    def build(self, entry: Entry) -> AnyOrderModel:
        """See `uci_models.build`."""
        return build(entry, self.scale, self.num_variables)

    def rows(self) -> Rows:
        """The training rows, with noise."""
        noise = self.scale.noise / self._spread()
        return Rows(self._scaled(self.numbers.train), seed=self.settings.seed, noise=noise)

    def held_out(self, entry: Entry) -> Validation:
        """The loss that the model is trained on, in bits a variable."""
        x, objective = self._scaled(evenly(self.numbers.valid, VALID_ROWS)), entry.objective

        @torch.no_grad()
        def surprise(model: AnyOrderModel) -> float:
            asked, source = objective(self.num_variables), torch.Generator().manual_seed(0)
            # Energies are normalised as in training: quadrature would take longer than it.
            model.conditionals.train()
            losses = []
            for rows in x.split(VALID_BATCH):
                drawn = asked.draw(model, len(rows), generator=source)
                there = tuple(part.to(model.device) for part in drawn)
                losses.append(asked.loss(model, rows.to(model.device), there))
            model.conditionals.eval()
            return float(torch.cat(losses).mean()) / math.log(2)

        return surprise

    def measure(self, model: AnyOrderModel, seed: int) -> dict[str, Estimate]:
        """Log-likelihoods of the questions in nats, and the time that they took."""
        x = self._scaled(evenly(self.numbers.test, self.scale.rows))
        questions = self.questions(self.num_variables, len(x), seed)
        generator, log_spread = torch.Generator().manual_seed(seed), self._spread().double().log()
        nats: dict[str, list[Tensor]] = {metric: [] for metric in questions}
        times = []
        for part in torch.arange(len(x)).tensor_split(min(PARTS, len(x))):
            began = process_time()
            for metric, (given, query) in questions.items():
                asked = {"query": query[part], "given": given[part], "generator": generator}
                logs = log_prob(model, x[part], **asked).cpu()  # type: ignore[arg-type]
                nats[metric].append(logs - query[part].double() @ log_spread)
            times.append(1000 * (process_time() - began) / len(part))
        found = {metric: Estimate(torch.cat(logs)) for metric, logs in nats.items()}
        return found | {MILLISECONDS: Estimate(torch.tensor(times, dtype=torch.float64))}

    def _scaled(self, x: Tensor) -> Tensor:
        return (x - self.numbers.train.mean(dim=0)) / self._spread()

    def _spread(self) -> Tensor:
        return self.numbers.train.std(dim=0)


@lru_cache(maxsize=1)  # an experiment asks for it again and again
def read_numbers(dataset: str | None, folder: Path | None) -> Numbers:
    """One of the public data sets, or the table that ships with scikit-learn."""
    if dataset is None or folder is None:
        return bundled_numbers()
    return load_uci(dataset, folder)


def evenly(x: Tensor, rows: int) -> Tensor:
    """At most so many rows, evenly spread."""
    return x[torch.linspace(0, len(x) - 1, min(rows, len(x))).round().long()]
