"""A model of several members that were trained apart: their conditionals are averaged."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from anyorder.conditionals.averages import AveragedConditionals
from anyorder.errors import ConfigError
from anyorder.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork
from anyorder.networks.ensemble import EnsembleNetwork
from anyorder.training.fit import Fit
from anyorder.training.settings import TrainingSettings

Training = Callable[[AnyOrderModel, TrainingSettings, Path | None], Fit]
"""Trains one member in a folder."""


def train_members(
    models: list[AnyOrderModel], training: Training, settings: TrainingSettings, folder: Path | None
) -> Fit:
    """Trains each member for its share of the time; gives how the last one went.

    Args:
        models: The members, trained in place.
        training: Trains one.
        settings: Of all together; a budget in steps is that of each.
        folder: Where checkpoints go; each of several members has a folder of its own in it.
    """
    if len(models) == 1:
        return training(models[0], settings, folder)
    minutes = None if settings.minutes is None else settings.minutes / len(models)
    for number, model in enumerate(models):
        own = replace(settings, minutes=minutes, seed=settings.seed + number)
        place = None if folder is None else folder / f"member-{number}"
        done = training(model, own, place)
    return done


def joined(models: list[AnyOrderModel]) -> AnyOrderModel:
    """One model of all members."""
    first = models[0]
    if len(models) == 1:
        return first
    if isinstance(first.network, MaskedNetwork):
        raise ConfigError('Several members need network="path"; a perceptron has one.')
    if getattr(first.conditionals, "head", "mixture") != "mixture":
        raise ConfigError('Several members need head="mixture": others have no average.')
    schema, networks = first.schema, [model.network for model in models]
    conditionals = [model.conditionals for model in models]
    return AnyOrderModel(
        schema,
        EnsembleNetwork(schema, networks),  # type: ignore[arg-type]
        AveragedConditionals(schema, conditionals),
        first.protocol,
    ).eval()


def members_of(model: AnyOrderModel) -> list[AnyOrderModel]:
    """The members of a model: itself, if it is one."""
    network, conditionals = model.network, model.conditionals
    if not isinstance(network, EnsembleNetwork):
        return [model]
    assert isinstance(conditionals, AveragedConditionals)
    pairs = zip(network.members, conditionals.members, strict=True)
    return [AnyOrderModel(model.schema, *pair, model.protocol) for pair in pairs]
