"""A model of several members that were trained apart: their conditionals are averaged."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from anyorder.errors import ConfigError
from anyorder.heads.mixed import AveragedConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.ensemble import EnsembleNetwork
from anyorder.priors.contract import NetworkWithPrior, Prior
from anyorder.saving.run_folder import RunFolder
from anyorder.training.loop import Fit
from anyorder.training.settings import TrainingSettings, is_first_process

Training = Callable[[AnyOrderModel, TrainingSettings, Path | None], Fit]
"""Trains one member in a folder."""


ROUNDS = 13
"""How often a member should see each row before another pays."""

STEPS = 2000
"""Steps of a member before another pays, however few the rows: the average of several that have
learnt little is worse than one that has learnt more."""

CELLS_A_MINUTE = 1.3e6
"""Cells that are trained on in a minute of two cores, at the default size, or somewhat fewer."""

MOST_MEMBERS = 4


def members_for(rows: int, columns: int, minutes: float, *, batch: int = 64) -> int:
    """How many members the time allows, each trained on every row `ROUNDS` times, in enough steps.

    One model of a small table begins to learn its rows by heart while there is time left; the
    average of several predicts better than one that is trained longer. Counted, not timed, so that
    it is the same on every machine.

    Example:
        >>> members_for(300, 8, minutes=7), members_for(30_000, 15, minutes=7)
        (4, 1)
        >>> members_for(300, 8, minutes=1), members_for(300, 8, minutes=2)
        (1, 2)
    """
    cells = max(ROUNDS * rows, STEPS * batch) * columns
    return max(1, min(MOST_MEMBERS, int(minutes * CELLS_A_MINUTE / cells)))


def train_members(
    models: list[AnyOrderModel],
    training: Training,
    settings: TrainingSettings,
    folder: Path | None,
    *,
    progress: bool = False,
) -> Fit:
    """Trains each member for its share of the time; gives how the last one went.

    Args:
        models: The members, trained in place.
        training: Trains one.
        settings: Of all together; a budget in steps is that of each.
        folder: Where checkpoints go; each of several members has a folder of its own in it.
        progress: Whether a line says which member is next.
    """
    if len(models) == 1:
        return training(models[0], settings, folder)
    minutes = None if settings.minutes is None else settings.minutes / len(models)
    parts = [f"member-{number}" for number in range(len(models))]
    if folder is not None:
        RunFolder(folder).refuse_another(parts)
    for number, model in enumerate(models):
        own = replace(settings, minutes=minutes, seed=settings.seed + number)
        place = None if folder is None else folder / parts[number]
        if progress and is_first_process():
            Console(stderr=True).print(f"model {number + 1} of {len(models)}, to be averaged")
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
    schema, parts = first.schema, [_parted(model.network) for model in models]
    network: PathNetwork[Any] = EnsembleNetwork(schema, [part for part, _ in parts])
    if (prior := parts[0][1]) is not None:
        network = NetworkWithPrior(schema, network, prior)  # all members have the same
    conditionals = AveragedConditionals(schema, [model.conditionals for model in models])
    return AnyOrderModel(schema, network, conditionals, first.protocol).eval()


def members_of(model: AnyOrderModel) -> list[AnyOrderModel]:
    """The members of a model: itself, if it is one."""
    schema, conditionals = model.schema, model.conditionals
    network, prior = _parted(model.network)
    if not isinstance(network, EnsembleNetwork):
        return [model]
    members = network.members
    if prior is not None:
        members = [NetworkWithPrior(schema, member, prior) for member in members]
    assert isinstance(conditionals, AveragedConditionals)
    pairs = zip(members, conditionals.members, strict=True)
    return [AnyOrderModel(schema, *pair, model.protocol) for pair in pairs]


def _parted(network: Any) -> tuple[Any, Prior | None]:
    """A network without its prior, and this."""
    is_joined = isinstance(network, NetworkWithPrior)
    return (network.network, network.prior) if is_joined else (network, None)
