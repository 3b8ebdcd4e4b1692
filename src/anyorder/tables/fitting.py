"""Fitting a table: the model, the held-out rows, the objective, and stochastic EM under "mar"."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from anyorder.errors import ConfigError
from anyorder.heads.mixed import MixedConditionals
from anyorder.heads.with_prior import Head
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import answering
from anyorder.lattice.masks import FixedCardinality, MaskDistribution
from anyorder.lattice.protocols import DecompositionProtocol, RemoveGreatest, lexicographic
from anyorder.lattice.query_laws import ConditionalQueries, MixtureQueries, QueryLaw, any_queries
from anyorder.lattice.query_samplers import row_masses
from anyorder.networks.contracts import MaskedNetwork, PathNetwork, PriorMessage
from anyorder.networks.no_network import NoNetwork
from anyorder.networks.path_perceptron import PathPerceptron
from anyorder.networks.path_transformer import PathTransformer, SingleStreamPathTransformer
from anyorder.networks.residual_mlp import ResidualMlp
from anyorder.priors.contract import NetworkWithPrior, Prior, StackedPrior, Units
from anyorder.priors.latent_tree import LatentTree
from anyorder.priors.moments import in_rows
from anyorder.priors.normals import MOST_COLUMNS, NormalPrior
from anyorder.saving.checkpoint import RunFolder, save_model
from anyorder.tables.engine import fill_gaps
from anyorder.training.batches import Rows
from anyorder.training.loop import Fit, fit
from anyorder.training.losses import (
    ArdmLoss,
    CompletedLoss,
    EitherLoss,
    MacLoss,
    Objective,
    PathLoss,
    whole_first,
)
from anyorder.training.settings import TrainingSettings, leaving
from anyorder.variables import Schema

Network = Literal["auto", "perceptron", "path", "mlp"]
Missing = Literal["mcar", "mar"]

STREAMS = {1: SingleStreamPathTransformer, 2: PathTransformer}
"""Path networks by their number of streams."""

MOST_FOR_PERCEPTRON = 256
"""Most columns of a table whose default network is a perceptron: its weights grow with the square
of their number, and a Transformer's do not."""

HIDDEN, FEWEST_UNITS, MOST_UNITS = 600, 10, 40
"""Hidden units of a perceptron, and the fewest and most for each column."""

LAYERS, WIDTH, BLOCKS = 3, 96, 2
"""Default sizes of a Transformer, and blocks of a perceptron."""

BATCH, FEWEST_ROWS, STEP_CELLS = 64, 8, 4096
"""Rows of a step, and the fewest where columns are many: about so many cells."""

VALID_ROWS, VALID_CELLS = 2000, 64_000
"""At most so many rows are held out, and so many rows and cells are read at an evaluation."""

FEWEST_HELD_OUT = 8
"""With fewer held-out rows their likelihood says nothing: then none are held out."""

MOST_SINGLE, LEAST_SINGLE, MANY_CELLS = 0.5, 0.1, 16_000
"""Shares of steps that ask for single columns, and the number of cells between few and many."""

CELLS_OF_A_MINUTE = 250_000
"""Cells for each minute of a fit without `minutes`."""

LEAST_MINUTES: float = 0.24
MOST_MINUTES: float = 7.0
"""The least and the most minutes of a fit without `minutes`."""

MAR_ROUNDS = 8
"""Rounds of imputation and training under missing="mar"."""

STAGES = (0.5, *[0.5 / MAR_ROUNDS] * MAR_ROUNDS)
"""Shares of the budget: half for the observed sets, the rest for the rounds of completed rows."""


def table_queries(num_variables: int) -> QueryLaw:
    """Returns the law of "any" for tables: joints, marginals, conditionals, some partial.

    Whole rows are often queried, and they teach the other queries too: with three tenths of them
    dna, diamonds and plants gain on joints, and conditionals lose next to nothing.
    """
    return any_queries(num_variables, conditional_share=0.4, partial_share=0.2, whole_share=0.3)


def single_columns(cells: int) -> float:
    """Returns the share of steps under queries="any" that query single columns, given any others.

    They keep answers with little evidence calibrated where a table is small (p(sex | species) of
    300 penguins was off by up to 0.4 without them); where it is large, of many rows or columns,
    time is short and whole rows suffer for them.
    """
    return max(LEAST_SINGLE, MOST_SINGLE / (1 + cells / MANY_CELLS))


def minutes_for(rows: int, columns: int) -> float:
    """Returns the most minutes of a fit without `minutes`: one for each `CELLS_OF_A_MINUTE`.

    A fit ends before where held-out likelihood has stopped improving.

    Example:
        >>> minutes_for(344, 7), minutes_for(30_000, 15), minutes_for(1_000_000, 20)
        (0.24, 1.8, 7.0)
    """
    return min(MOST_MINUTES, max(LEAST_MINUTES, rows * columns / CELLS_OF_A_MINUTE))


def evaluations_for(epoch: int) -> int:
    """Returns the steps between evaluations, of so many steps an epoch: a quarter of it, 25 to 100.

    Of a few hundred rows there is more to overfit than to learn after a hundred steps; of many, an
    evaluation takes the time of several steps.
    """
    return min(max(epoch // 4, 25), 100)


def rows_of_a_step(columns: int) -> int:
    """Returns the rows of a step: fewer for many columns, whose number squared a pass takes.

    Example:
        >>> rows_of_a_step(10), rows_of_a_step(180), rows_of_a_step(5000)
        (64, 22, 8)
    """
    return max(FEWEST_ROWS, min(BATCH, STEP_CELLS // max(1, columns)))


def prior_of(schema: Schema, *, alone: bool, balanced: bool) -> Prior:
    """Returns a latent tree, and beside it normal mixtures for the relations between numbers."""
    numbers = sum(v.kind == "continuous" for v in schema if not v.context)
    tree = LatentTree(schema, balanced=balanced)
    if alone or not 2 <= numbers <= MOST_COLUMNS:
        return tree
    return StackedPrior(schema, tree, NormalPrior(schema))


def network_for(columns: int) -> Network:
    """Returns the default network of a table: a perceptron, or a Transformer for many columns."""
    return "perceptron" if columns <= MOST_FOR_PERCEPTRON else "path"


def default_size(network: Network | None, columns: int) -> tuple[int, int]:
    """Returns the number of blocks and the width of a network: for a perceptron, units a column.

    Example:
        >>> default_size("perceptron", 8), default_size("perceptron", 100), default_size("path", 8)
        ((2, 40), (2, 10), (3, 96))
    """
    if network != "perceptron":
        return LAYERS, WIDTH
    return BLOCKS, max(FEWEST_UNITS, min(MOST_UNITS, HIDDEN // columns))


@dataclass(frozen=True)
class Shape:
    """Kind and size of the network."""

    network: Network | None
    streams: int
    layers: int
    width: int
    heads: int
    head: Head
    dropout: float
    guide: bool
    missing: Missing = "mcar"

    def prior(self, schema: Schema) -> Prior | None:
        """Prior of the columns, if the model can have one."""
        alone = self.network is None
        if not alone and (not self.guide or self.network == "mlp" or self.head == "energy"):
            return None
        return prior_of(schema, alone=alone, balanced=self.missing == "mcar")


def build(
    schema: Schema, shape: Shape, seed: int, protocol: DecompositionProtocol | None = None
) -> AnyOrderModel:
    """Builds the untrained model of a table; the default canonical order is that of its columns."""
    network: MaskedNetwork | PathNetwork[Any]
    prior = shape.prior(schema)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if shape.network is None:
            assert prior is not None
            network = NetworkWithPrior(schema, NoNetwork(schema), prior)
        elif shape.network == "path":
            network = STREAMS[shape.streams](
                schema,
                layers=shape.layers,
                width=shape.width,
                heads=shape.heads,
                positions="absolute",
                shared=False,
                dropout=shape.dropout,
            )
            if prior is not None:
                network = NetworkWithPrior(schema, network, prior)
        elif shape.network == "perceptron":
            network = PathPerceptron(
                schema, units=shape.width, blocks=shape.layers, dropout=shape.dropout
            )
            if prior is not None:
                network = NetworkWithPrior(schema, network, prior)
        else:
            network = ResidualMlp(
                schema,
                width=shape.width,
                hidden=4 * shape.width,
                blocks=shape.layers,
                dropout=shape.dropout,
            )
        conditionals = MixedConditionals(
            schema,
            width=network.width,
            head="mixture" if shape.network is None else shape.head,
            components=None if prior is None else prior.components,
            gated=prior is not None,
        )
    natural = RemoveGreatest(lexicographic(schema.num_variables))
    return AnyOrderModel(schema, network, conditionals, protocol or natural)


def split(rows: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Returns the numbers of the training rows and of the held-out rows."""
    if share == 1:
        raise ConfigError("`validation_share` must be below 1: training needs rows too.")
    shuffled = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    held_out = min(int(share * rows), VALID_ROWS)
    if held_out < FEWEST_HELD_OUT:
        held_out = 0
    return shuffled[held_out:], shuffled[:held_out]


@dataclass(frozen=True)
class TableData:
    """A table as tensors.

    Args:
        x: Values. Shape ``(rows, columns)``.
        missing: True for missing values. Shape ``(rows, vars)``.
        weights: Weights of the rows, or None. Shape ``(rows,)``.
    """

    x: Tensor
    missing: Tensor
    weights: Tensor | None = None

    def at(self, rows: Tensor) -> "TableData":
        """Selects rows."""
        weights = None if self.weights is None else self.weights[rows]
        return TableData(self.x[rows], self.missing[rows], weights)

    def with_rows(self, other: "TableData") -> "TableData":
        """These rows and others."""
        weights = None
        if self.weights is not None and other.weights is not None:
            weights = torch.cat([self.weights, other.weights])
        x, missing = ([getattr(p, name) for p in (self, other)] for name in ("x", "missing"))
        return TableData(torch.cat(x), torch.cat(missing), weights)

    def asking(self, law: QueryLaw | MaskDistribution) -> Tensor:
        """Returns the numbers of the rows of which the law queries anything."""
        some = ~self.missing.all(dim=1)
        if self.missing.any() and some.any():
            some[some.clone()] = row_masses(law, ~self.missing[some], weighting="edge") > 0
        return some.nonzero().squeeze(1)

    def rows(self, law: QueryLaw | MaskDistribution, seed: int) -> Rows:
        """Returns the rows to train on; those of which nothing can be queried are left out."""
        kept = self.at(self.asking(law))
        available = ~kept.missing if kept.missing.any() else None
        return Rows(kept.x, available=available, weights=kept.weights, seed=seed)


def fit_prior(
    models: Sequence[AnyOrderModel],
    data: TableData,
    units: Units | None = None,
    held_out: TableData | None = None,
) -> None:
    """Fits one prior, if the untrained models have any, to the rows of training; all share it.

    One that is cross-fitted reads held-out rows too, which are evaluated without their own folds:
    so its frequencies are those of the whole table.
    """
    networks = [m.network for m in models if isinstance(m.network, NetworkWithPrior)]
    if not networks:
        return
    prior, device = networks[0].prior, models[0].device
    every = data if held_out is None else data.with_rows(held_out)
    for part in [prior.tree, prior.normals] if isinstance(prior, StackedPrior) else [prior]:
        read = every if part.is_cross_fitted else data
        own = None if read.weights is None else read.weights.to(device)
        part.fit(read.x.to(device), ~read.missing.to(device), own, units=units)

    def counted(rows: TableData) -> tuple[Tensor, Tensor, Tensor]:
        """Values, where they are, and weights in rows."""
        weights = torch.ones(len(rows.x)) if rows.weights is None else rows.weights
        return rows.x.to(device), ~rows.missing.to(device), in_rows(weights.to(device))

    prior.eval()  # all rows are counted by what all rows say
    networks[0].count(*counted(every))
    cells = counted(data)
    for model, network in zip(models, networks, strict=True):
        network.prior, network.pairs = prior, networks[0].pairs
        assert isinstance(model.conditionals, MixedConditionals)
        model.conditionals.count(*cells)
        model.conditionals.measure(prior)


def train(
    model: AnyOrderModel,
    data: TableData,
    law: QueryLaw,
    *,
    settings: TrainingSettings,
    held_out: TableData,
    missing: Missing = "mcar",
    columns: float = 0.0,
    folder: Path | None = None,
    notes: dict[str, Any] | None = None,
    progress: bool | None = False,
    spent: float = 0.0,
) -> Fit:
    """Trains a model on a table, and stops where the held-out likelihood stops rising.

    With missing="mar" and missing values, this is stochastic EM. The first stage trains on the
    whole observed set of each row, which is maximum likelihood if missingness depends on observed
    values only, and on parts of it given the rest, for imputation. The other stages impute the
    missing values by samples and train on the completed rows with the queries of `law`. A prior
    alone is fitted already: nothing is left to train.
    """
    valid = None
    if len(held_out.asking(law)):
        valid = surprise_of_rows(held_out) if missing == "mar" else surprise_of(held_out, law)
    if isinstance(getattr(model.network, "network", None), NoNetwork):
        bits = None if valid is None else float(valid(model).mean())
        if folder is not None:
            save_model(folder, model, law=law, notes=notes)
        model.eval()
        return Fit(held_out=bits, best=bits, ending="budget")
    options: dict[str, Any] = {"valid": valid, "notes": notes, "progress": progress}
    if missing == "mcar" or not data.missing.any():
        rows = data.rows(law, settings.seed)
        objective = objective_of(model, law, columns=columns)
        return fit(model, rows, objective, settings=settings, folder=folder, spent=spent, **options)
    n, stages = model.num_variables, _stages(settings)
    some = data.at((~data.missing).any(dim=1).nonzero().squeeze(1))  # of nothing nothing is learnt
    gaps = ConditionalQueries(n)  # always trained on, because gaps are drawn by them
    first = MixtureQueries([FixedCardinality(n, n), gaps])
    whole = objective_of(model, first, every_edge=True)
    free: Objective = CompletedLoss(MixtureQueries([law, gaps], [0.75, 0.25]))
    if not model.is_one_pass:
        free = objective_of(model, MixtureQueries([law, gaps], [0.75, 0.25]))
    parts = [f"stage-{i}" for i in range(len(stages))]
    if folder is not None:
        RunFolder(folder).refuse_another(parts)
    places = [None if folder is None else folder / part for part in parts]
    rows = data.rows(first, settings.seed)
    before = leaving(settings, spent, STAGES[0])
    found = fit(model, rows, whole, settings=stages[0], folder=places[0], spent=before, **options)
    for number, (stage, place) in enumerate(zip(stages[1:], places[1:], strict=True), start=1):
        spent += found.seconds - found.setup
        before = leaving(settings, spent, STAGES[number] / sum(STAGES[number:]))
        source = torch.Generator().manual_seed(stage.seed)
        completed = fill_gaps(model, some.x, some.missing, draws=1, generator=source)[:, 0]
        if isinstance(model.network, NetworkWithPrior):
            model.network.prior.stand_in(completed.to(model.device), some.x.to(model.device))
        if model.is_one_pass:
            have = ~some.missing
            rows = Rows(completed, available=have, weights=some.weights, seed=stage.seed)
        else:
            whole_rows = TableData(completed, torch.zeros_like(some.missing), some.weights)
            rows = whole_rows.rows(law, stage.seed)
        found = fit(model, rows, free, settings=stage, folder=place, spent=before, **options)
    return found


def objective_of(
    model: AnyOrderModel, law: Any, *, every_edge: bool = False, columns: float = 0.0
) -> Objective:
    """Returns the objective: Alg. 1 in one pass for path networks, Eq. 7 for masked ones.

    With `every_edge` masked networks weight every edge equally, too: a likelihood. `columns` is the
    share of steps that query every column outside a random set, each by itself; beside them whole
    rows are asked first, where a table is large (abalone and penguins lost by it). Batches of one
    size spare a Transformer padding; a perceptron has none, and learns more from all sizes.
    """
    bare = getattr(model.network, "network", model.network)
    one_size = not isinstance(bare, PathPerceptron)
    if columns and isinstance(model.network, PathNetwork) and model.network.asks_many:
        is_large = columns <= LEAST_SINGLE
        whole = (
            whole_first(law, one_size=one_size) if is_large else PathLoss(law, one_size=one_size)
        )
        return EitherLoss([whole, ArdmLoss(one_size=one_size)], [1 - columns, columns])
    if model.is_one_pass:
        return PathLoss(law, one_size=one_size)
    return MacLoss(law, weighting="edge", reweight=False) if every_edge else MacLoss(law)


Surprise = Callable[[AnyOrderModel], Tensor]
"""Function from a model to the losses of held-out rows ``(rows,)``; their mean is bits a cell."""


def surprise_of(held_out: TableData, law: QueryLaw) -> Surprise:
    """Returns the held-out loss of fixed queries from the law of training."""
    asking, columns = held_out.asking(law), held_out.missing.shape[1]
    most = max(FEWEST_HELD_OUT, min(VALID_ROWS, VALID_CELLS // columns))
    copies = max(1, most // max(len(asking), 1))
    data = held_out.at(asking[:most].repeat(copies))
    have = ~data.missing if data.missing.any() else None
    generator = torch.Generator().manual_seed(0)
    given, query = law.sample(len(data.x), available=have, generator=generator)
    return _surprise(data, query, given, copies=copies)


def surprise_of_rows(held_out: TableData) -> Surprise:
    """Returns the held-out loss of all that each row has.

    For missing="mar": likelihoods of parts of a row are biased by the missingness.
    """
    have = ~held_out.missing
    return _surprise(held_out, have, torch.zeros_like(have))


def _surprise(data: TableData, query: Tensor, given: Tensor, *, copies: int = 1) -> Surprise:
    equal = torch.ones(len(query), dtype=torch.float64)
    weights = equal if data.weights is None else data.weights
    cells = (weights * query.sum(dim=1)).sum().clamp(min=1e-9)
    messages: dict[tuple[bytes, ...], PriorMessage] = {}

    @answering
    def surprise(model: AnyOrderModel) -> Tensor:
        network = getattr(model, "network", None)
        with ExitStack() as stack:
            if isinstance(network, NetworkWithPrior):
                stack.enter_context(network.prior.leaving_out())
                stack.enter_context(network.remembering(messages))
            x, asked, known = (part.to(model.device) for part in (data.x, query, given))
            # Not by `log_prob`, which hides what is neither queried nor given: the folds of a prior
            # go by all values of a row.
            factors = model.factors(x, query=asked, given=known, rank=model.protocol.rank(asked))
            logs = factors.totals(len(x)).cpu()
        losses = (-weights * logs / cells / math.log(2)).view(copies, -1).sum(dim=0)
        return losses * len(losses)

    return surprise


def _stages(settings: TrainingSettings) -> list[TrainingSettings]:
    """Splits the steps; the minutes are split as they are spent."""
    return [
        replace(
            settings,
            steps=settings.steps and max(1, int(share * settings.steps)),
            warmup=int(share * settings.warmup),
            seed=settings.seed + number,
        )
        for number, share in enumerate(STAGES)
    ]
