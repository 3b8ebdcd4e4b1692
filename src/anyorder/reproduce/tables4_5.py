"""Tables 4 and 5 of the paper: marginal and conditional likelihoods on the UCI data sets.

Both tables query the models of `UCI_MODELS` on the same data sets. Sizes and settings are those of
ACE, which the paper keeps, with three exceptions: an energy tilts a wide normal density instead of
being clipped to [0, 30], it is trained from the first step on, and it has no regulariser on power.

Networks see standardised columns. Likelihoods are in the units of MAF's files, as published ones
are, so the log of each queried column's scale is subtracted.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from time import process_time
from typing import Any, ClassVar

import torch
from rich.console import Console
from torch import Tensor

from anyorder.cli.console import note
from anyorder.diagnostics.evaluation import Estimate, half_given
from anyorder.errors import ConfigError, check_choice
from anyorder.heads.distributions import Conditionals
from anyorder.heads.energy import EnergyConditionals
from anyorder.heads.mixture import MixtureConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.lattice.masks import subsets
from anyorder.lattice.protocols import RemoveRandom
from anyorder.lattice.query_laws import Query, any_queries
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.path_transformer import PathTransformer
from anyorder.networks.residual_mlp import ResidualMlp
from anyorder.reproduce.options import TablesOptions
from anyorder.reproduce.record import Entry, Paired, cell, mac_protocol, report_table
from anyorder.reproduce.study import Outcome, SetsTable, Study
from anyorder.reproduce.uci_data import (
    ARCHIVE,
    UCI,
    Numbers,
    bundled_numbers,
    found_uci,
    load_uci,
)
from anyorder.tables.fitting import table_queries
from anyorder.training.batches import Rows
from anyorder.training.loop import Validation
from anyorder.training.losses import ArdmLoss, MacLoss, PathLoss
from anyorder.training.settings import TrainingSettings
from anyorder.variables import Schema, Variable

UCI_MODELS: Mapping[str, Entry] = {
    "ace": Entry(
        "ACE: MLP with energies, trained on uniform masks, queried in random orders",
        "masked", lambda _: ArdmLoss(), lambda _: RemoveRandom(), "energy",
    ),
    "mac": Entry(
        "MAC: the same, trained on the masks of its queries (D^CR), half of them conditional",
        "masked", lambda n: MacLoss(any_queries(n)), mac_protocol, "energy",
    ),
    "mac_mixture": Entry(
        "MAC with mixtures in place of energies: exactly normalised, in training too",
        "masked", lambda n: MacLoss(any_queries(n)), mac_protocol, "mixture",
    ),
    "path": Entry(
        "path network with mixtures, any queries: TableModel without its prior",
        "path", lambda n: PathLoss(table_queries(n)), mac_protocol, "mixture",
    ),
}  # fmt: skip


PATH_DROPOUT = 0.1
"""Largest dropout of path networks; the MLPs need far more."""


@dataclass(frozen=True)
class UciScale:
    """Sizes of the models, the training and the test of an experiment.

    `hidden`, `blocks` and `features` (ACE's context) are those of the residual MLPs,
    `energy_hidden` and `energy_blocks` of the energies, `layers`, `width` and `heads` of path
    networks. The noise on training rows is in the units of the data.
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
        # The whole budget is used, unless the validation loss stalls for most of it.
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
    """Settings of ACE for one data set."""

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
    """Returns a scale by its name, with ACE's settings; dataset None is the bundled table."""
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


VALID_ROWS, VALID_BATCH = 512, 16
"""Validation rows during training, and their batch size. Batches are small because an objective
may sample queries of one size for a batch."""

PARTS = 8
"""Parts of the test rows, each timed by itself."""

MILLISECONDS = "milliseconds"
"""Metric of time: CPU milliseconds for all queries of a row."""

Queries = Callable[[int, int, int], dict[str, Query]]
"""Maps N, a number of rows and a seed to queries by metric; picklable."""


@dataclass(frozen=True)
class UciStudy(Study):
    """Builds, trains and measures models of one UCI data set."""

    dataset: str | None
    scale: UciScale
    data: Path | None
    queries: Queries

    catalogue: ClassVar[Mapping[str, Entry]] = UCI_MODELS
    unit: ClassVar[str | None] = None

    @property
    def numbers(self) -> Numbers:
        """Rows of the data set."""
        return read_numbers(self.dataset, self.data)

    @property
    def data_name(self) -> str:
        """Name of the data set in tables."""
        return self.numbers.name

    @property
    def num_variables(self) -> int:
        """Number of columns."""
        return self.numbers.train.shape[1]

    @property
    def schema(self) -> Schema:
        """Variables of a row."""
        return Schema(tuple(Variable.continuous(f"x{i}") for i in range(self.num_variables)))

    def network(self, entry: Entry, schema: Schema) -> MaskedNetwork | PathNetwork[Any]:
        """Returns the MLP of ACE, or a path network."""
        scale = self.scale
        if entry.network == "path":
            return PathTransformer(
                schema,
                layers=scale.layers,
                width=scale.width,
                heads=scale.heads,
                positions="absolute",
                shared=False,
                dropout=min(scale.dropout, PATH_DROPOUT),
            )
        return ResidualMlp(
            schema,
            width=scale.features,
            hidden=scale.hidden,
            blocks=scale.blocks,
            dropout=scale.dropout,
        )

    def conditionals(self, entry: Entry, schema: Schema, width: int) -> Conditionals:
        """Returns energies, or mixtures."""
        if entry.head == "mixture":
            return MixtureConditionals(schema, width=width)
        sizes = {"hidden": self.scale.energy_hidden, "blocks": self.scale.energy_blocks}
        return EnergyConditionals(schema, width=width, **sizes)

    def rows(self) -> Rows:
        """Returns the training rows, with noise."""
        noise = self.scale.noise / self._spread()
        return Rows(self._scaled(self.numbers.train), seed=self.settings.seed, noise=noise)

    def held_out(self, entry: Entry) -> Validation:
        """Returns the training objective on validation rows, in bits per variable."""
        x, objective = self._scaled(evenly(self.numbers.valid, VALID_ROWS)), entry.objective

        @torch.no_grad()
        def loss(model: AnyOrderModel) -> float:
            trained, source = objective(self.num_variables), torch.Generator().manual_seed(0)
            # Energies are normalised as in training: quadrature would take longer than training.
            model.conditionals.train()
            losses = []
            for rows in x.split(VALID_BATCH):
                sampled = trained.draw(model, len(rows), generator=source)
                there = tuple(part.to(model.device) for part in sampled)
                losses.append(trained.loss(model, rows.to(model.device), there))
            model.conditionals.eval()
            return float(torch.cat(losses).mean()) / math.log(2)

        return loss

    def measure(self, model: AnyOrderModel, seed: int) -> dict[str, Estimate]:
        """Returns log-likelihoods of the queries in nats, and their CPU time."""
        x = self._scaled(evenly(self.numbers.test, self.scale.rows))
        queries = self.queries(self.num_variables, len(x), seed)
        generator, log_spread = torch.Generator().manual_seed(seed), self._spread().double().log()
        nats: dict[str, list[Tensor]] = {metric: [] for metric in queries}
        times = []
        for part in torch.arange(len(x)).tensor_split(min(PARTS, len(x))):
            began = process_time()
            for metric, (given, query) in queries.items():
                sets = {"query": query[part], "given": given[part], "generator": generator}
                logs = log_prob(model, x[part], **sets).cpu()  # type: ignore[arg-type]
                nats[metric].append(logs - query[part].double() @ log_spread)
            times.append(1000 * (process_time() - began) / len(part))
        found = {metric: Estimate(torch.cat(logs)) for metric, logs in nats.items()}
        return found | {MILLISECONDS: Estimate(torch.tensor(times, dtype=torch.float64))}

    def _scaled(self, x: Tensor) -> Tensor:
        return (x - self.numbers.train.mean(dim=0)) / self._spread()

    def _spread(self) -> Tensor:
        return self.numbers.train.std(dim=0)


@lru_cache(maxsize=1)  # studies read it for every model
def read_numbers(dataset: str | None, folder: Path | None) -> Numbers:
    """Reads a UCI data set, or the table that ships with scikit-learn."""
    if dataset is None or folder is None:
        return bundled_numbers()
    return load_uci(dataset, folder)


def evenly(x: Tensor, rows: int) -> Tensor:
    """Returns at most `rows` rows, evenly spaced."""
    return x[torch.linspace(0, len(x) - 1, min(rows, len(x))).round().long()]


PAIRS = (
    ("mac", "ace"),
    ("mac_mixture", "mac"),
    ("path", "mac"),
    ("path", "mac_mixture"),
    ("path", "ace"),
)
"""Paired differences a - b in the tables: positive is better for a."""

BUNDLED = "bundled"
"""Name of the folder of runs on the table that ships with scikit-learn."""

Printed = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Numbers of the paper by data set, model and metric."""


def run_table(
    name: str, title: str, queries: Queries, printed: Printed, options: TablesOptions
) -> None:
    """Trains and queries the models on each data set, and prints them beside the paper's."""
    options.check(SCALES, UCI_MODELS)
    studies = {
        dataset or BUNDLED: UciStudy(
            dataset, scale_of(options.scale, dataset), options.data, queries
        )
        for dataset in _datasets(options)
    }
    for study in studies.values():
        data_name = study.data_name  # raises before any work if a file cannot be read
        if study.dataset is None:
            note(f"Without --data, {data_name} replaces the data sets of the paper.")
    heading = f"{title} at scale {options.scale}: nats; more is better"
    SetsTable(name, heading, _paired, partial(_show, printed)).run(studies, options)


def _datasets(options: TablesOptions) -> list[str | None]:
    """Returns the chosen data sets; None is the table that ships with scikit-learn."""
    if options.data is None:
        if options.sets or options.scale == "paper":
            raise ConfigError(
                f"`data` must be the folder into which data.tar.gz of {ARCHIVE} was unpacked."
            )
        return [None]
    found = found_uci(options.data)
    for name in options.sets or ():
        check_choice("sets", name, UCI)
        if name not in found:
            load_uci(name, options.data)  # raises, and names the missing file
    if not found:
        raise ConfigError(
            f'There is none of {", ".join(UCI)} in "{options.data}": unpack data.tar.gz of '
            f"{ARCHIVE} there."
        )
    return [*dict.fromkeys(options.sets or found)]


def _paired(outcome: Outcome) -> list[Paired]:
    return outcome.differences(PAIRS, _metrics(outcome))


def _metrics(outcome: Outcome) -> list[str]:
    """Returns the metrics that are likelihoods."""
    first = next(iter(outcome.estimates.values()))
    return [metric for metric in first if metric != MILLISECONDS]


def _show(printed: Printed, console: Console, outcome: Outcome, study: UciStudy) -> None:
    paper = printed.get(study.dataset or BUNDLED, {}) if study.numbers.is_public_test else {}
    console.print(f"\n{outcome.data}")
    titles = {
        metric: metric.removesuffix("_nats").replace("_", " ") for metric in _metrics(outcome)
    }
    found = outcome.estimates
    table = report_table("nats", *found, *(f"paper:\n{name}" for name in paper))
    for metric, title in titles.items():
        cells = [
            cell(estimates[metric].value, estimates[metric].se, digits=2)
            for estimates in found.values()
        ]
        cells += [f"{v[metric]:.2f}" if metric in v else "" for v in paper.values()]
        table.add_row(title, *cells)
    table.add_row("ms per row", *(f"{found[name][MILLISECONDS].value:,.1f}" for name in found))
    table.add_row("steps", *(f"{outcome.steps(name):,}" for name in found))
    console.print(table)
    differences = {(p.a, p.b, p.metric): p for p in _paired(outcome)}
    pairs = list(dict.fromkeys((a, b) for a, b, _ in differences))
    if pairs:
        table = report_table("a - b: positive\nis better for a", *(f"{a}\n- {b}" for a, b in pairs))
        for metric, title in titles.items():
            row = [differences[a, b, metric] for a, b in pairs]
            table.add_row(title, *(cell(p.difference, p.se, sign="+", digits=2) for p in row))
        console.print(table)


SIZES = (3, 5, 10)
"""Numbers of queried variables; at most all of them."""


def table4(options: TablesOptions) -> None:
    """Trains models of the UCI data sets, and prints marginal likelihoods."""
    title = "Table 4, marginals of the first variables and of any,"
    run_table("table4", title, marginals, PRINTED_MARGINALS, options)


def marginals(num_variables: int, rows: int, seed: int) -> dict[str, Query]:
    """Returns queries of the first k variables, as in the paper, and of k random ones."""
    generator, found = torch.Generator().manual_seed(seed), {}
    everything = torch.ones(rows, num_variables, dtype=torch.bool)
    for size in dict.fromkeys(min(size, num_variables) for size in SIZES):
        first = (torch.arange(num_variables) < size).expand(rows, -1)
        found[f"first_{size}_nats"] = Query(torch.zeros_like(first), first)
    for size in (size for size in SIZES if size < num_variables):
        sizes = torch.full((rows,), size)
        chosen = subsets(sizes, everything, generator=generator)
        found[f"any_{size}_nats"] = Query(torch.zeros_like(chosen), chosen)
    return found


def _printed_marginals(
    last: int, **models: tuple[float, float, float]
) -> dict[str, dict[str, float]]:
    names = [f"first_{size}_nats" for size in (3, 5, last)]
    return {name: dict(zip(names, values, strict=True)) for name, values in models.items()}


PRINTED_MARGINALS: Printed = {
    "power": _printed_marginals(
        6,
        SPFlow=(-0.63, 1.01, -0.12),
        ACFlow=(-0.57, 1.34, 0.42),
        ACE=(-0.56, 1.42, 0.58),
        MAC=(-0.55, 1.43, 0.61),
    ),
    "gas": _printed_marginals(
        8,
        SPFlow=(0.68, 1.88, 4.81),
        ACFlow=(0.78, 3.01, 10.13),
        ACE=(1.31, 4.31, 12.20),
        MAC=(1.59, 4.98, 13.02),
    ),
    "hepmass": _printed_marginals(
        10,
        SPFlow=(-4.01, -6.58, -13.38),
        ACFlow=(-4.03, -6.19, -11.58),
        ACE=(-4.00, -5.91, -10.72),
        MAC=(-4.00, -5.90, -10.69),
    ),
    "miniboone": _printed_marginals(
        10,
        SPFlow=(-2.21, -4.31, -9.85),
        ACFlow=(-2.76, -5.31, -10.36),
        ACE=(-2.13, -3.80, -7.94),
        MAC=(-2.12, -3.76, -7.76),
    ),
    "bsds": _printed_marginals(
        10,
        SPFlow=(-2.87, -4.42, -8.15),
        ACFlow=(5.06, 9.26, 19.60),
        ACE=(5.10, 9.37, 20.31),
        MAC=(5.10, 9.37, 20.33),
    ),
}
"""Means over whole test sets, of models trained for up to 1.6 million steps."""


METRIC = "conditional_nats"


def table5(options: TablesOptions) -> None:
    """Trains models of the UCI data sets, and prints conditional likelihoods."""
    title = "Table 5, the rest given a random half,"
    run_table("table5", title, conditionals, PRINTED_CONDITIONALS, options)


def conditionals(num_variables: int, rows: int, seed: int) -> dict[str, Query]:
    """Returns queries in which each variable is given with probability 1/2."""
    return {METRIC: half_given(num_variables, rows, seed=seed)}


def _printed_conditionals(**models: float) -> dict[str, dict[str, float]]:
    return {name: {METRIC: value} for name, value in models.items()}


PRINTED_CONDITIONALS: Printed = {
    "power": _printed_conditionals(SPFlow=-1.03, ACFlow=0.56, ACE=0.63, MAC=0.65),
    "gas": _printed_conditionals(SPFlow=4.30, ACFlow=8.09, ACE=9.64, MAC=9.77),
    "hepmass": _printed_conditionals(SPFlow=-12.78, ACFlow=-8.20, ACE=-3.86, MAC=-3.05),
    "miniboone": _printed_conditionals(SPFlow=-18.34, ACFlow=-0.97, ACE=0.31, MAC=0.07),
    "bsds": _printed_conditionals(SPFlow=-24.15, ACFlow=81.83, ACE=86.70, MAC=86.05),
}
"""Means over whole test sets, of models trained for up to 1.6 million steps."""
