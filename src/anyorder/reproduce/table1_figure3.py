"""Text models of Table 1 and Figure 3: networks, training laws, and their study.

All models have the same blocks and are trained for the same time on the same text. Masked networks
have rotary positions too, so that the comparison with path networks is fair. Both experiments
share the models, under one name each, so that none is trained twice.

Table 1 compares models in bits per character, with path networks beside those of the paper. Figure
3 is the ablation of the law over training masks.
"""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from anyorder.diagnostics.evaluation import Estimate, conditional_bits, joint_bits, marginal_bits
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import stratified_log_prob
from anyorder.lattice.masks import FixedCardinality, UniformCardinality
from anyorder.lattice.protocols import (
    DecompositionProtocol,
    RemoveGreatest,
    RemoveRandom,
    strided,
)
from anyorder.lattice.query_laws import MarginalQueries, Query, QueryLaw
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.path_transformer import PathTransformer, SingleStreamPathTransformer
from anyorder.networks.transformer import Transformer
from anyorder.reproduce.options import ExperimentOptions
from anyorder.reproduce.record import (
    TOO_SHORT,
    Entry,
    Paired,
    cell,
    difference_table,
    legend,
    mac_protocol,
    report_console,
    report_table,
)
from anyorder.reproduce.study import Outcome, Study, run_experiment
from anyorder.text.data import Crops, Text, chunks, embedded_text, load_text8, text_schema
from anyorder.text.model import text_queries
from anyorder.training.loop import Validation
from anyorder.training.losses import ArdmLoss, MacLoss, PathLoss
from anyorder.training.progress import read_metrics
from anyorder.training.settings import TrainingSettings
from anyorder.variables import Schema

STRIDES = 10
"""Passes of the strided order: a stride of 25 at length 250, as in the published commands."""


def published_order(n: int) -> Tensor:
    """Returns the strided order of the published commands for text."""
    return strided(n, max(2, n // STRIDES))


def strided_protocol(n: int) -> DecompositionProtocol:
    """Returns the protocol of MAC in the strided order."""
    return RemoveGreatest(published_order(n))


TABLE1: Mapping[str, Entry] = {
    "ardm": Entry(
        "ARDM: masked, trained on uniform masks",
        "masked", lambda _: ArdmLoss(), lambda _: RemoveRandom(),
    ),
    "mac": Entry(
        "MAC: masked, trained on the masks of its queries (D^CR)",
        "masked", lambda n: MacLoss(UniformCardinality(n)), mac_protocol,
    ),
    "mac_strided": Entry(
        "MAC in a strided order, as the published command",
        "masked", lambda n: MacLoss(UniformCardinality(n)), strided_protocol,
    ),
    "mac_exact": Entry(
        "MAC, each prediction weighted as inference uses it",
        "masked",
        lambda n: MacLoss(UniformCardinality(n), targets="exact"),
        mac_protocol,
    ),
    "path": Entry(
        "path network, two streams, marginal queries",
        "path", lambda n: PathLoss(UniformCardinality(n)), mac_protocol,
    ),
    "path_mix": Entry(
        "path network, two streams, any queries: the default of TextModel",
        "path", lambda n: PathLoss(text_queries(n)), mac_protocol,
    ),
    "path_rnd": Entry(
        "path network, two streams, random orders",
        "path", lambda n: PathLoss(FixedCardinality(n, n)), lambda _: RemoveRandom(),
    ),
    "path_one_stream": Entry(
        "path network, one stream, marginal queries",
        "single_stream", lambda n: PathLoss(UniformCardinality(n)), mac_protocol,
    ),
    "path_mix_one_stream": Entry(
        "path network, one stream, any queries",
        "single_stream", lambda n: PathLoss(text_queries(n)), mac_protocol,
    ),
    "left_to_right": Entry(
        "ordinary language model: one stream, joint only",
        "single_stream", lambda n: PathLoss(FixedCardinality(n, n)), mac_protocol,
    ),
}  # fmt: skip


class LastEdges(QueryLaw):
    """Law of the last edge of the path of S ~ M: its greatest variable, given the rest of S.

    This is insight (A) without (B): one edge for each set, but each set as often as it is queried,
    not as often as paths visit it. The paper does not define its ablation; this is our reading.
    """

    def __init__(self, canonical_order: Sequence[int] | Tensor) -> None:
        self._protocol = RemoveGreatest(canonical_order)
        self.canonical_order = self._protocol.canonical_order
        self.num_variables = self._protocol.num_variables
        self._sets = MarginalQueries(UniformCardinality(self.num_variables))

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        return self.num_variables - 1, 1

    def _sample(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        members = self._sets._sample(batch, device, generator).query
        greatest = self._protocol.removal(members).bool()
        return Query(members & ~greatest, greatest)

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        last = (self._protocol.removal(given | query).bool() == query).all(dim=1)
        nothing = torch.zeros_like(given)
        return self._sets._log_prob(nothing, given | query).masked_fill(~last, -torch.inf)


FIGURE3: Mapping[str, Entry] = {
    "ardm": TABLE1["ardm"],
    "a_only": Entry(
        "insight A: one edge for each mask, masks as often as they are queried",
        "masked",
        lambda n: MacLoss(LastEdges(published_order(n)), reweight=False),
        strided_protocol,
    ),
    "b_only": Entry(
        "insight B: masks as often as inference visits them, in random orders",
        "masked",
        lambda n: MacLoss(UniformCardinality(n), reweight=False),
        lambda _: RemoveRandom(),
    ),
    "a_and_b": Entry(
        "A and B: masks as often as MAC visits them",
        "masked", lambda n: MacLoss(UniformCardinality(n), reweight=False), strided_protocol,
    ),
    "b_cr": Entry(
        "B with cardinality reweighting",
        "masked", lambda n: MacLoss(UniformCardinality(n)), lambda _: RemoveRandom(),
    ),
    "mac_strided": TABLE1["mac_strided"],
    "mac": TABLE1["mac"],
    "mac_exact": TABLE1["mac_exact"],
    "path": TABLE1["path"],
}  # fmt: skip


ORDERS = (1, 8, 32)
"""Numbers of random orders that a random protocol is evaluated with."""

VALID_ROWS, VALID_STEPS = 32, 32
"""Chunks and path steps of the estimate of held-out bits during training."""


@dataclass(frozen=True)
class Scale:
    """Sizes of the models, the training and the test of an experiment."""

    length: int
    layers: int
    width: int
    heads: int
    rows: int
    settings: TrainingSettings
    positions: Literal["absolute", "rotary"] = "rotary"


SCALES: Mapping[str, Scale] = {
    "tiny": Scale(
        length=24, layers=1, width=32, heads=2, rows=24,
        settings=TrainingSettings(batch=16, steps=12, warmup=4, learning_rate=3e-3),
    ),
    "small": Scale(
        length=250, layers=4, width=128, heads=4, rows=128,
        settings=TrainingSettings(
            batch=8, minutes=12, warmup=100, learning_rate=2e-3,
            evaluate_every=1000, checkpoint_minutes=2,
        ),
    ),
    "paper": Scale(
        length=250, layers=12, width=768, heads=12, rows=1000, positions="absolute",
        settings=TrainingSettings(
            batch=512, steps=500_000, warmup=5_000, learning_rate=5e-4, schedule="constant",
            betas=(0.9, 0.99), weight_decay=1e-3, clip=0.25, evaluate_every=5_000,
        ),
    ),
}  # fmt: skip


def held_out_bits(model: AnyOrderModel, x: Tensor) -> float:
    """Returns the marginal bits of held-out chunks, estimated from a few steps of each path."""
    generator = torch.Generator().manual_seed(0)
    query = UniformCardinality(model.num_variables).sample(len(x), generator=generator)
    logs = stratified_log_prob(model, x, query=query, steps=VALID_STEPS, generator=generator)
    return -float(logs.mean()) / (math.log(2) * model.num_variables)


def evaluate(model: AnyOrderModel, x: Tensor, seed: int = 0) -> dict[str, Estimate]:
    """Returns joint, marginal and conditional bits, summed over whole paths."""
    generator = torch.Generator().manual_seed(seed)
    found = _over_orders(model, x, generator) if _is_random_path(model) else {}
    return found | {
        "joint": joint_bits(model, x, generator=generator),
        "marginal": marginal_bits(model, x, seed=seed, generator=generator),
        "conditional": conditional_bits(model, x, seed=seed, generator=generator),
    }


def _is_random_path(model: AnyOrderModel) -> bool:
    return isinstance(model.protocol, RemoveRandom) and model.is_one_pass


def _over_orders(
    model: AnyOrderModel, x: Tensor, generator: torch.Generator
) -> dict[str, Estimate]:
    """Returns the mean and the mixture of joint likelihoods over 1, 8 and 32 random orders."""
    bits = torch.stack([joint_bits(model, x, generator=generator).rows for _ in range(ORDERS[-1])])
    logs = -bits * (math.log(2) * model.num_variables)
    found = {}
    for k in ORDERS:
        mixture = (logs[:k].logsumexp(dim=0) - math.log(k)) / (math.log(2) * model.num_variables)
        found[f"joint_elbo_{k}"] = Estimate(bits[:k].mean(dim=0))
        found[f"joint_mixture_{k}"] = Estimate(-mixture)
    return found


@lru_cache(maxsize=1)  # studies read it for every model
def read_text(data: Path | None) -> Text:
    """Reads text8 from a path; without one, the text that ships with Python."""
    return embedded_text() if data is None else load_text8(data)


CATALOGUE: Mapping[str, Entry] = {**TABLE1, **FIGURE3}

Measure = Callable[[AnyOrderModel, Tensor, int], dict[str, Estimate]]
"""Maps a trained model, test rows and a seed to estimates; picklable."""


def run_text_experiment(
    name: str, entries: Mapping[str, Entry], measure: Measure, options: ExperimentOptions
) -> Outcome:
    """Trains and measures the models of an experiment."""
    options.check(SCALES, entries)
    study = TextStudy(SCALES[options.scale], options.data, measure)
    names = options.models or list(entries)
    return run_experiment(name, names, study, options.out / options.scale, options)


@dataclass(frozen=True)
class TextStudy(Study):
    """Builds, trains and measures models of one text."""

    scale: Scale
    data: Path | None
    measurement: Measure

    catalogue: ClassVar[Mapping[str, Entry]] = CATALOGUE
    unit: ClassVar[str | None] = "bits"

    @property
    def data_name(self) -> str:
        """Name of the text in tables."""
        return read_text(self.data).name

    @property
    def num_variables(self) -> int:
        """Length of a chunk."""
        return self.scale.length

    @property
    def schema(self) -> Schema:
        """Characters of a chunk."""
        return text_schema(read_text(self.data).alphabet, self.scale.length)

    def network(self, entry: Entry, schema: Schema) -> MaskedNetwork | PathNetwork[Any]:
        """Returns a network of one of the three kinds."""
        scale = self.scale
        shape: dict[str, Any] = {"layers": scale.layers, "width": scale.width, "heads": scale.heads}
        if entry.network == "masked":
            return Transformer(schema, positions=scale.positions, **shape)
        two_streams = entry.network == "path"
        kind = PathTransformer if two_streams else SingleStreamPathTransformer
        return kind(schema, positions="rotary", **shape)

    def rows(self) -> Crops:
        """Returns chunks of the training text that begin anywhere."""
        return Crops(read_text(self.data).train, self.scale.length)

    def held_out(self, entry: Entry) -> Validation:
        """Returns the marginal bits, whatever the training objective is."""
        del entry
        x = chunks(read_text(self.data).valid, self.scale.length, VALID_ROWS)
        return lambda model: held_out_bits(model, x)

    def measure(self, model: AnyOrderModel, seed: int) -> dict[str, Estimate]:
        """Returns the metrics of the experiment on chunks of the test text."""
        x = chunks(read_text(self.data).test, self.scale.length, self.scale.rows)
        return self.measurement(model, x, seed)


PAPER = {"ardm": (1.48, 1.12), "mac_strided": (1.40, 1.09), "path_rnd": (1.64, None)}
"""Joint and marginal bits that the paper prints (3000 epochs; OA-Transformer for random orders).

Its command for text8 has a strided order."""

PAIRS = (
    ("mac", "ardm"),
    ("mac_strided", "ardm"),
    ("mac_exact", "ardm"),
    ("path", "mac"),
    ("path_mix", "mac"),
    ("path_mix", "mac_strided"),
    ("path_mix", "ardm"),
    ("path", "left_to_right"),
    ("path_one_stream", "left_to_right"),
    ("path_mix_one_stream", "path_mix"),
)
"""Paired differences a - b in the table: negative is better for a."""

ASKS_NO_CONDITIONALS = ("path", "path_rnd", "path_one_stream", "left_to_right")

NO_CONDITIONALS = "* not trained on conditional queries: its evidence encoder is untrained."

METRICS = ("joint", "marginal", "conditional")


def table1(options: ExperimentOptions) -> None:
    """Trains and evaluates the models of Table 1, and prints them beside the paper's numbers."""
    outcome = run_text_experiment("table1", TABLE1, evaluate, options)
    kept = outcome.record(options.command("table1"), outcome.differences(PAIRS, METRICS))
    if kept.publish(options.record, json=options.json):
        _show(options.scale, outcome)


def _show(scale: str, outcome: Outcome) -> None:
    console = report_console()
    console.print(f"Table 1 at scale {scale}: {outcome.data}, bits; less is better")
    table = report_table("model", *METRICS, "paper: joint,\nmarginal")
    for name, estimates in outcome.estimates.items():
        paper = ", ".join(f"{v:.2f}" for v in PAPER.get(name, ()) if v is not None)
        cells = [cell(estimates[metric].value, estimates[metric].se) for metric in METRICS]
        cells[-1] += "*" if name in ASKS_NO_CONDITIONALS else " "
        table.add_row(name, *cells, paper)
        for metric in (m for m in estimates if m not in METRICS):
            found = estimates[metric]
            table.add_row(f"  {metric}", cell(found.value, found.se), "", "", "")
    console.print(table)
    if any(name in ASKS_NO_CONDITIONALS for name in outcome.estimates):
        console.print(f"{NO_CONDITIONALS}\n")
    if differences := outcome.differences(PAIRS, METRICS):
        console.print(difference_table(differences, METRICS, "bits"))
    console.print(legend(TABLE1, outcome.estimates))
    if scale == "tiny":
        console.print(f"\n{TOO_SHORT}")


BASELINE = "ardm"
"""Law that differences are taken from: uniform cardinality, uniform masks of a cardinality."""


def measure(model: AnyOrderModel, x: Tensor, seed: int) -> dict[str, Estimate]:
    """Returns the marginal bits of test rows, summed over whole paths."""
    generator = torch.Generator().manual_seed(seed)
    return {"marginal": marginal_bits(model, x, seed=seed, generator=generator)}


def figure3(options: ExperimentOptions) -> None:
    """Trains a model on each law, and plots its marginal bits during training.

    `figure3.csv` and `figure3.png` are written beside the runs.
    """
    outcome = run_text_experiment("figure3", FIGURE3, measure, options)
    folder = outcome.folder
    curves = {name: read_curve(folder / name) for name in outcome.estimates}
    write_curves(folder / "figure3.csv", curves)
    kept = outcome.record(options.command("figure3"), _paired(outcome))
    plot = plot_curves(folder / "figure3.png", curves)
    if not kept.publish(options.record, json=options.json):
        return
    _show_curves(options.scale, outcome)
    picture = f" and {plot}" if plot else '. No plot: pip install "anyorder[plot]"'
    report_console().print(f"\nCurves: {folder / 'figure3.csv'}{picture}", soft_wrap=True)


def _paired(outcome: Outcome) -> list[Paired]:
    if BASELINE not in outcome.estimates:
        return []
    others = [name for name in outcome.estimates if name != BASELINE]
    return [outcome.difference(name, BASELINE, "marginal") for name in others]


def _show_curves(scale: str, outcome: Outcome) -> None:
    console = report_console()
    console.print(f"Figure 3 at scale {scale}: {outcome.data}, marginal bits; less is better")
    table = report_table("law", "bits", f"minus {BASELINE}")
    differences = {pair.a: pair for pair in _paired(outcome)}
    for name, found in outcome.estimates.items():
        pair = differences.get(name)
        difference = "" if pair is None else f"{pair.difference:+.4f} ± {pair.se:.4f}"
        table.add_row(name, str(found["marginal"]), difference)
    console.print(table)
    console.print(legend(FIGURE3, outcome.estimates))
    if scale == "tiny":
        console.print(f"\n{TOO_SHORT}")


def plot_curves(path: Path, curves: dict[str, list[tuple[int, float]]]) -> Path | None:
    """Plots the curves; returns None without matplotlib (the extra `plot`)."""
    if find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for law, curve in curves.items():
        last = curve[-1][0]
        shares, bits = [100 * step / last for step, _ in curve], [value for _, value in curve]
        axes.plot(shares, bits, label=law.replace("_", " "), marker="." if len(bits) < 9 else None)
    axes.set(xlabel="% of the training steps", ylabel="held-out marginal bits")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=160)
    return path


def read_curve(folder: Path) -> list[tuple[int, float]]:
    """Reads training steps and held-out marginal bits from the metrics of a run."""
    found = read_metrics(folder / "metrics.jsonl")
    return [(line["step"], line["held_out"]) for line in found if "held_out" in line]


def write_curves(path: Path, curves: dict[str, list[tuple[int, float]]]) -> None:
    """Writes a CSV file with columns law, step and marginal_bits."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["law", "step", "marginal_bits"])
        for law, curve in curves.items():
            writer.writerows([law, step, bits] for step, bits in curve)
