"""How the models of the text experiments are built and measured: all alike.

All have the same blocks and are trained for the same time on the same text. Masked networks have
rotary positions too, so that a comparison with path networks is fair.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from anyorder.conditionals.categorical import CategoricalConditionals
from anyorder.data.text import Text, embedded_text, load_text8, text_schema
from anyorder.evaluation import Estimate, conditional_bits, joint_bits, marginal_bits
from anyorder.masks import UniformCardinality
from anyorder.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.path_transformer import PathTransformer
from anyorder.networks.single_stream import SingleStreamPathTransformer
from anyorder.networks.transformer import Transformer
from anyorder.protocols import RemoveRandom
from anyorder.reproduce.catalogue import Entry
from anyorder.stratified import stratified_log_prob
from anyorder.training.settings import TrainingSettings

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


@lru_cache(maxsize=1)  # an experiment asks for it again and again
def read_text(data: Path | None) -> Text:
    """Text8 from a path, or the embedded text."""
    return embedded_text() if data is None else load_text8(data)
