"""The models that the text experiments compare: what differs is the network and what it trains on.

All have the same blocks and are trained for the same time on the same text. Masked networks have
rotary positions too, so that a comparison with path networks is fair.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from anyorder.conditionals.categorical import CategoricalConditionals
from anyorder.data.text import Crops, Text, chunks, embedded_text, load_text8, text_schema
from anyorder.estimators.text import text_queries
from anyorder.evaluation import (
    Estimate,
    conditional_bits,
    joint_bits,
    marginal_bits,
    stratified_log_prob,
)
from anyorder.losses import ArdmLoss, MacLoss, Objective, PathLoss
from anyorder.masks import FixedCardinality, UniformCardinality
from anyorder.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.path_transformer import PathTransformer
from anyorder.networks.single_stream import SingleStreamPathTransformer
from anyorder.networks.transformer import Transformer
from anyorder.protocols import (
    DecompositionProtocol,
    RemoveGreatest,
    RemoveRandom,
    lexicographic,
    strided,
)
from anyorder.training.fit import fit
from anyorder.training.settings import TrainingSettings, default_device

STRIDES = 10
"""Rounds of the strided order: a stride of 25 at length 250, that of the published commands."""

ORDERS = (1, 8, 32)
"""How many random orders a random protocol is evaluated with."""

VALID_ROWS, VALID_STEPS = 32, 32
"""Chunks and steps of the walk that held-out bits are estimated from while training."""


@dataclass(frozen=True)
class Scale:
    """How large an experiment is."""

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
            batch=8, minutes=20, clock="processor", warmup=100, learning_rate=2e-3,
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


@dataclass(frozen=True)
class Entry:
    """One model: what it is in words; its contract, objective and protocol, for N variables."""

    meaning: str
    network: Literal["masked", "path", "single_stream"]
    objective: Callable[[int], Objective]
    protocol: Callable[[int], DecompositionProtocol]


def mac_protocol(n: int) -> DecompositionProtocol:
    """The protocol of MAC along the text."""
    return RemoveGreatest(lexicographic(n))


TABLE1: Mapping[str, Entry] = {
    "ardm": Entry(
        "ARDM: masked, trained on all masks alike",
        "masked", lambda _: ArdmLoss(), lambda _: RemoveRandom(),
    ),
    "mac": Entry(
        "MAC: masked, trained on the masks of its questions (D^CR)",
        "masked", lambda n: MacLoss(UniformCardinality(n)), mac_protocol,
    ),
    "mac_strided": Entry(
        "MAC in a strided order, as the published command",
        "masked",
        lambda n: MacLoss(UniformCardinality(n)),
        lambda n: RemoveGreatest(strided(n, max(2, n // STRIDES))),
    ),
    "path": Entry(
        "path network, two streams, marginal questions",
        "path", lambda n: PathLoss(UniformCardinality(n)), mac_protocol,
    ),
    "path_mix": Entry(
        "path network, two streams, any questions: what TextModel is",
        "path", lambda n: PathLoss(text_queries(n)), mac_protocol,
    ),
    "path_rnd": Entry(
        "path network, two streams, random orders",
        "path", lambda n: PathLoss(FixedCardinality(n, n)), lambda _: RemoveRandom(),
    ),
    "path_one_stream": Entry(
        "path network, one stream, marginal questions",
        "single_stream", lambda n: PathLoss(UniformCardinality(n)), mac_protocol,
    ),
    "path_mix_one_stream": Entry(
        "path network, one stream, any questions",
        "single_stream", lambda n: PathLoss(text_queries(n)), mac_protocol,
    ),
    "left_to_right": Entry(
        "an ordinary language model: one stream, the joint only",
        "single_stream", lambda n: PathLoss(FixedCardinality(n, n)), mac_protocol,
    ),
}  # fmt: skip


def build(entry: Entry, scale: Scale, alphabet: str) -> AnyOrderModel:
    """The untrained model; its weights depend on the seed of the settings only."""
    schema = text_schema(alphabet, scale.length)
    shape: dict[str, Any] = {"layers": scale.layers, "width": scale.width, "heads": scale.heads}
    network: MaskedNetwork | PathNetwork[Any]
    with torch.random.fork_rng():
        torch.manual_seed(scale.settings.seed)
        if entry.network == "path":
            network = PathTransformer(schema, positions="rotary", **shape)
        elif entry.network == "single_stream":
            network = SingleStreamPathTransformer(schema, positions="rotary", **shape)
        else:
            network = Transformer(schema, positions=scale.positions, **shape)
        conditionals = CategoricalConditionals(schema, width=scale.width)
    return AnyOrderModel(schema, network, conditionals, entry.protocol(scale.length))


def train(
    entry: Entry, scale: Scale, text: Text, *, folder: Path | None = None, progress: bool = False
) -> AnyOrderModel:
    """Trains one model, or goes on with its training in `folder`."""
    model = build(entry, scale, text.alphabet).to(default_device())
    held_out = chunks(text.valid, scale.length, VALID_ROWS)
    fit(
        model,
        Crops(text.train, scale.length),
        entry.objective(scale.length),
        settings=scale.settings,
        valid=lambda trained: held_out_bits(trained, held_out),
        folder=folder,
        progress=progress,
    )
    return model.eval()


def held_out_bits(model: AnyOrderModel, x: Tensor) -> float:
    """Marginal bits of held-out chunks, estimated from a few steps of each walk."""
    generator = torch.Generator().manual_seed(0)
    query = UniformCardinality(model.num_variables).sample(len(x), generator=generator)
    logs = stratified_log_prob(model, x, query=query, steps=VALID_STEPS, generator=generator)
    return -float(logs.mean()) / (math.log(2) * model.num_variables)


def evaluate(model: AnyOrderModel, x: Tensor, seed: int = 0) -> dict[str, Estimate]:
    """Full likelihoods: joint, marginal and conditional bits, of whole paths."""
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
    """Joint bits from 1, 8 and 32 random orders, the same ones: their mean, and their mixture."""
    walks = torch.stack([joint_bits(model, x, generator=generator).rows for _ in range(ORDERS[-1])])
    logs = -walks * (math.log(2) * model.num_variables)
    found = {}
    for k in ORDERS:
        mixture = (logs[:k].logsumexp(dim=0) - math.log(k)) / (math.log(2) * model.num_variables)
        found[f"joint_elbo_{k}"] = Estimate(walks[:k].mean(dim=0))
        found[f"joint_mixture_{k}"] = Estimate(-mixture)
    return found


def identity(scale: Scale, text: Text, seed: int) -> dict[str, Any]:
    """What the numbers of an experiment depend on, in plain values."""
    shape = {name: value for name, value in asdict(scale).items() if name != "settings"}
    data = {"name": text.name, "sha256": Crops(text.train, scale.length).describe()["sha256"]}
    return {"data": data, "seed": seed, **shape, "settings": asdict(scale.settings)}


def read_text(data: Path | None) -> Text:
    """Text8 from a path, or the embedded text."""
    return embedded_text() if data is None else load_text8(data)


@dataclass(frozen=True)
class TextJob:
    """Trains and measures one model of an experiment; can be sent to another process.

    Args:
        entry: From the name of a model to what it is; a function of a module.
        measure: From a trained model, test rows and a seed to estimates; likewise.
        scale: How large.
        data: Where the text is; see `read_text`.
        seed: Of the questions that are asked.
    """

    entry: Callable[[str], Entry]
    measure: Callable[[AnyOrderModel, Tensor, int], dict[str, Estimate]]
    scale: Scale
    data: Path | None
    seed: int

    def __call__(self, name: str, folder: Path) -> dict[str, Estimate]:
        """Trains, or goes on training, then measures."""
        text = read_text(self.data)
        model = train(self.entry(name), self.scale, text, folder=folder)
        return self.measure(model, chunks(text.test, self.scale.length, self.scale.rows), self.seed)


def with_minutes(scale: Scale, minutes: float | None) -> Scale:
    """The same scale with another budget of training."""
    if minutes is None:
        return scale
    return replace(scale, settings=replace(scale.settings, steps=None, minutes=minutes))
