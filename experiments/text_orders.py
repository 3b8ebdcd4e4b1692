"""Comparison of canonical orders on text: left to right, strided, learned, and random.

    python -m experiments.text_orders --data text8 --steps 4000

Every model is the same path network with the same steps, trained on any query. An order is learned
from a model of random orders, which takes a quarter of the steps. The search starts from the order
of the text, or "blind" from the first random one. Chunks are short, so that the search is feasible.
Differences are paired, from the order of the text, in nats per chunk.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from cyclopts import App
from torch import Tensor

from anyorder.cli.app import run
from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import check_count, seeded
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.lattice.protocols import (
    DecompositionProtocol,
    RemoveGreatest,
    RemoveRandom,
    lexicographic,
    strided,
)
from anyorder.lattice.query_laws import any_queries
from anyorder.networks.path_transformer import PathTransformer
from anyorder.reproduce.record import Record, check_record
from anyorder.tables.orders import EXPLORED, learned_order
from anyorder.text.data import Crops, Text, chunks, load_text8, text_schema
from anyorder.training.loop import fit
from anyorder.training.losses import PathLoss
from anyorder.training.settings import TrainingSettings
from benchmarks.table_networks import questions
from benchmarks.table_variants import differences, rows_of, show

LAYERS, WIDTH, HEADS = 3, 96, 4
SETTINGS = TrainingSettings(batch=32, steps=4000, learning_rate=2e-3, warmup=100)
JUDGED = 256
"""Chunks of validation text on which orders are compared."""

app = App(name="text_orders", help=__doc__)


@app.default
def measure(
    *,
    data: Path,
    length: int = 32,
    steps: int = 4000,
    rows: int = 1000,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Trains a model along every order, and measures the same test queries.

    Args:
        data: File, folder or archive of text8.
        length: Characters of a chunk.
        steps: Training steps for each order.
        rows: Number of test chunks.
        json: Print one JSON object, the last line of the output.
        record: File to which the numbers are written with the command and the commit.
    """
    for name, count in (("length", length), ("steps", steps), ("rows", rows)):
        check_count(name, count, low=2)
    check_record(record)
    text = load_text8(data)
    test = chunks(text.test, length, rows)
    settings = replace(SETTINGS, steps=steps, warmup=min(SETTINGS.warmup, steps))
    found = {name: scores(make(), test) for name, make in variants(text, length, settings).items()}
    kept = Record(
        f"python -m experiments.text_orders --data DIR --length {length} --steps {steps}",
        {"batch": settings.batch, "layers": LAYERS, "width": WIDTH, "heads": HEADS},
        rows_of("text8", found),
        differences("text8", found),
    )
    if kept.publish(record, json=json):
        show(kept.rows, kept.paired)


def variants(
    text: Text, length: int, settings: TrainingSettings
) -> Mapping[str, Callable[[], AnyOrderModel]]:
    """Returns constructors of a trained model along each order."""
    shuffled = [torch.randperm(length, generator=seeded(seed)) for seed in (0, 1)]

    def along(order: Tensor) -> Callable[[], AnyOrderModel]:
        return lambda: trained(text, length, RemoveGreatest(order), settings)

    def learned(start: Tensor) -> Callable[[], AnyOrderModel]:
        def make() -> AnyOrderModel:
            spent = round(EXPLORED * settings.steps) if settings.steps else 1
            explorer = trained(text, length, RemoveRandom(), replace(settings, steps=spent))
            judged, law = chunks(text.valid, length, JUDGED), any_queries(length)
            found = learned_order(explorer, judged, law, start=start, generator=seeded(0))
            rest = replace(settings, steps=settings.steps and settings.steps - spent)
            return trained(text, length, RemoveGreatest(found.order), rest)

        return make

    return {
        "along": along(lexicographic(length)),
        "strided_2": along(strided(length, 2)),
        "strided_8": along(strided(length, 8)),
        "learned": learned(lexicographic(length)),
        "learned_blind": learned(shuffled[0]),
        **{f"random_{seed}": along(order) for seed, order in enumerate(shuffled)},
    }


def trained(
    text: Text, length: int, protocol: DecompositionProtocol, settings: TrainingSettings
) -> AnyOrderModel:
    """Returns a path network that is trained on any query along an order."""
    schema = text_schema(text.alphabet, length)
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        network = PathTransformer(
            schema, layers=LAYERS, width=WIDTH, heads=HEADS, positions="rotary"
        )
        conditionals = CategoricalConditionals(schema, width=WIDTH)
    model = AnyOrderModel(schema, network, conditionals, protocol)
    fit(model, Crops(text.train, length), PathLoss(any_queries(length)), settings=settings)
    return model.eval()


def scores(model: AnyOrderModel, test: Tensor) -> dict[str, Estimate]:
    """Returns log-likelihoods of test queries, one for each row and kind, equal for all orders."""
    found = {}
    for name, law in questions(model.num_variables).items():
        given, query = law.sample(len(test), generator=seeded(0))
        found[name] = Estimate(log_prob(model, test, query=query, given=given))
    return found


if __name__ == "__main__":
    run(app)
