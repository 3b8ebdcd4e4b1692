"""A fifth domain, in one file: melodies of four notes, a line of a .notes file each."""

# ruff: noqa: ARG002 (the contract has arguments that so small a domain has no use for)

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fastapi import APIRouter

from anyorder.cli.console import print_json
from anyorder.cli.options import EvaluateOptions, FitOptions
from anyorder.diagnostics.check import check_model
from anyorder.domains import Checked, Description, Domain
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.lattice.masks import UniformCardinality
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.networks.path_transformer import PathTransformer
from anyorder.saving.checkpoint import save_model
from anyorder.training.loop import fit
from anyorder.training.losses import PathLoss
from anyorder.training.settings import TrainingSettings
from anyorder.variables import Schema, Variable

NOTES, LENGTH = list("cdefgab"), 4


class MelodyModel:
    """The estimator: what `load` returns."""

    domain = "melody"

    def __init__(self, model: AnyOrderModel, key: str) -> None:
        self.model_, self.key = model, key

    def save(self, folder: Path) -> None:
        save_model(folder, self.model_, notes={"domain": self.domain, "key": self.key})


@dataclass(frozen=True, kw_only=True)
class MelodyFitOptions:
    """The options of `fit` for melodies.

    Args:
        key: Melodies: the key that they are in.
    """

    key: str | None = None


class Melodies(Domain):
    name, noun, plural = "melody", "melodies", "melodies"
    command = "transpose"
    sources = ("melodies (.notes)",)
    fit_options = MelodyFitOptions
    width = 8

    def recognises(self, source: str) -> bool:
        return source.endswith(".notes")

    def fit(self, source: str, shared: FitOptions, own: MelodyFitOptions) -> None:
        notes = [Variable.categorical(str(place), NOTES) for place in range(LENGTH)]
        schema = Schema(tuple(notes))
        network = PathTransformer(schema, layers=1, width=8, heads=2)
        heads = CategoricalConditionals(schema, width=8)
        model = AnyOrderModel(schema, network, heads, RemoveGreatest(lexicographic(LENGTH)))
        settings = TrainingSettings(steps=shared.steps or 5, batch=4, warmup=1, seed=shared.seed)
        fit(model, read(source), PathLoss(UniformCardinality(LENGTH)), settings=settings)
        MelodyModel(model, own.key or "C").save(shared.out)

    def open(self, saved: Any, folder: str | Path) -> MelodyModel:
        return MelodyModel(saved.model, saved.notes["key"])

    def evaluate(
        self, model: MelodyModel, run: Path, source: str, options: EvaluateOptions
    ) -> None:
        print_json({"nats": float(log_prob(model.model_, read(source)).mean())})

    def check(
        self, model: MelodyModel, source: str, *, rows: int | None, target: str | None, seed: int
    ) -> Checked:
        x = read(source)[:rows]
        missing = torch.zeros(x.shape, dtype=torch.bool)
        return Checked(check_model(model.model_, x, missing, seed=seed), f"{len(x)} melodies")

    def describe(self, model: MelodyModel) -> Description:
        names = model.model_.schema.names
        return Description({"key": model.key}, facts=[("key", model.key)], names=names)

    def routes(self, model: MelodyModel, dispatcher: Any, *, name: str, run: str) -> APIRouter:
        router = APIRouter()

        @router.get("/v1/model")
        async def read_model() -> dict[str, str]:
            return {"domain": self.name, "name": name, "key": model.key}

        return router


def read(source: str) -> torch.Tensor:
    lines = Path(source).read_text().split()
    return torch.tensor([[NOTES.index(note) for note in line] for line in lines])
