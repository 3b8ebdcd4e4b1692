"""Ensembles: averages of models that were trained separately.

The members of an ensemble share one canonical order, and their conditionals are averaged: the
result is one model with one path to every set. `TableMixture` combines fitted models of different
orders, as a mixture of their joint distributions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console

from anyorder.errors import ConfigError, QueryError, check_count, check_seed
from anyorder.heads.mixed import AveragedConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.networks.contracts import EnsembleNetwork, MaskedNetwork, PathNetwork
from anyorder.priors.contract import NetworkWithPrior, Prior
from anyorder.saving.checkpoint import RunFolder
from anyorder.tables.answers import TableAnswers
from anyorder.tables.columns import CategoryColumn, NumberColumn
from anyorder.tables.questions import Names, listed_names, read_evidence
from anyorder.tables.schema import TableSchema
from anyorder.training.loop import Fit
from anyorder.training.progress import shows
from anyorder.training.settings import TrainingSettings, is_first_process, leaving

Training = Callable[[AnyOrderModel, TrainingSettings, Path | None, float], Fit]
"""Trains one ensemble member in a folder, after so many seconds were spent."""

EPOCHS = 13
"""Epochs of an ensemble member before another member pays."""

STEPS = 1200
"""Steps of an ensemble member before another pays, however few the rows: the average of several
underfitted members is worse than one that is trained longer. On penguins two perceptrons of 80
steps are as good as one of 160 or 300, and steadier: over three seeds, validation rows, joint
-3.951, -3.970 and -3.953, conditional -1.849, -1.914 and -1.917."""

CELLS_A_MINUTE = 1.3e6
"""Cells that are trained on in a minute of two cores, at the default size, or somewhat fewer."""

MOST_MEMBERS = 4


def members_for(rows: int, columns: int, minutes: float, *, batch: int = 64) -> int:
    """Returns the number of ensemble members that the time allows, at `EPOCHS` and `STEPS` each.

    One model of a small table begins to overfit while there is time left; the average of several
    predicts better than one that is trained longer. The work is counted, not timed, so that the
    number is the same on every machine.

    Example:
        >>> members_for(300, 8, minutes=7), members_for(30_000, 15, minutes=7)
        (4, 1)
        >>> members_for(300, 8, minutes=1), members_for(300, 8, minutes=2)
        (2, 4)
    """
    cells = max(EPOCHS * rows, STEPS * batch) * columns
    return max(1, min(MOST_MEMBERS, int(minutes * CELLS_A_MINUTE / cells)))


def train_members(
    models: list[AnyOrderModel],
    training: Training,
    settings: TrainingSettings,
    folder: Path | None,
    *,
    progress: bool | None = False,
    spent: float = 0.0,
) -> Fit:
    """Trains each ensemble member for its part of the time; returns the outcome of the last one.

    Args:
        models: The ensemble members, trained in place.
        training: Function that trains one member.
        settings: Settings of the whole training; a budget in steps is that of each member.
        folder: Folder of checkpoints; each of several members has a subfolder.
        progress: True prints which member is next.
        spent: Seconds that were spent before.
    """
    if len(models) == 1:
        return training(models[0], settings, folder, leaving(settings, spent))
    parts = [f"member-{number}" for number in range(len(models))]
    if folder is not None:
        RunFolder(folder).refuse_another(parts)
    for number, model in enumerate(models):
        own = replace(settings, seed=settings.seed + number)
        subfolder = None if folder is None else folder / parts[number]
        if shows(progress) and is_first_process():
            Console(stderr=True).print(f"model {number + 1} of {len(models)}, to be averaged")
        fit = training(model, own, subfolder, leaving(own, spent, 1 / (len(models) - number)))
        spent += fit.seconds - fit.setup
    return fit


def joined(models: list[AnyOrderModel]) -> AnyOrderModel:
    """Returns one model of all ensemble members."""
    first = models[0]
    if len(models) == 1:
        return first
    if isinstance(first.network, MaskedNetwork):
        raise ConfigError('Several members need network="path" or "perceptron"; "mlp" has one.')
    if getattr(first.conditionals, "head", "mixture") != "mixture":
        raise ConfigError('Several members need head="mixture": others have no average.')
    schema, parts = first.schema, [_parted(model.network) for model in models]
    network: PathNetwork[Any] = EnsembleNetwork(schema, [part for part, _ in parts])
    if (prior := parts[0][1]) is not None:
        network = NetworkWithPrior(schema, network, prior)  # all members have the same
    conditionals = AveragedConditionals(schema, [model.conditionals for model in models])
    return AnyOrderModel(schema, network, conditionals, first.protocol).eval()


def members_of(model: AnyOrderModel) -> list[AnyOrderModel]:
    """Returns the ensemble members of a model: itself, if it is a single one."""
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
    """Returns a network without its prior, and the prior."""
    is_joined = isinstance(network, NetworkWithPrior)
    return (network.network, network.prior) if is_joined else (network, None)


class TableMixture:
    r"""The mixture p(x) = (p_1(x) + ... + p_k(x)) / k of fitted models.

    Every model has its own path to a set. The evidence weights the models by Bayes' rule,

        p(u | e) = sum_k w_k(e) p_k(u | e),    w_k(e) proportional to p_k(e),

    so that p(u, e) = p(e) p(u | e) holds as far as it does for the models, and every conditional
    sums to one. An average of log-likelihoods over orders is a lower bound that sums to less.

    Args:
        models: Models fitted on the same table, most usefully with different values of `order`.
            They must agree on what has a probability: categories, their levels, and the repeated
            values of numbers.
    """

    def __init__(self, models: Sequence[TableAnswers]) -> None:
        self.models = list(models) if isinstance(models, Sequence) else []
        if not self.models or not all(isinstance(model, TableAnswers) for model in self.models):
            raise ConfigError(
                f"`models` must be a list of one fitted TableModel or more; got {models!r}."
            )
        first, *others = (model._fitted() for model in self.models)
        for other in others:
            _check_alike(first, other)

    def log_prob(self, X: Any, *, query: Names = None, given: Names = None) -> NDArray[np.float64]:  # noqa: N803
        """Returns the log-likelihood of each row; see `TableModel.log_prob`."""
        frame = self.models[0]._frame(X)
        logs = [model.log_prob(frame, query=query, given=given) for model in self.models]
        return np.asarray(np.logaddexp.reduce(logs + self._log_weights(frame, given), axis=0))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Returns the mean log-likelihood of rows."""
        del y
        return float(self.log_prob(X).mean())

    def sample(
        self,
        n_samples: int = 1,
        *,
        given: Mapping[str, Any] | None = None,
        random_state: int | None = None,
    ) -> pd.DataFrame:
        """Samples rows given values: for each a model by its weight, then a row from that model."""
        check_count("n_samples", n_samples)
        seed = None if random_state is None else check_seed(random_state, "random_state")
        source = np.random.default_rng(seed)
        if read_evidence(self.models[0].table_, given).regions:
            raise QueryError("`given` must hold values here, no intervals or lists.")
        known = pd.DataFrame({name: [value] for name, value in (given or {}).items()}, index=[0])
        weights = np.exp(self._log_weights(known, list(known.columns))[:, 0])
        counts = source.multinomial(n_samples, weights / weights.sum())
        parts = [
            model.sample(int(count), given=given, random_state=int(source.integers(2**31)))
            for model, count in zip(self.models, counts, strict=True)
            if count
        ]
        sampled = pd.concat(parts, ignore_index=True).iloc[source.permutation(n_samples)]
        return sampled.reset_index(drop=True)

    def _log_weights(self, frame: pd.DataFrame, given: Names) -> NDArray[np.float64]:
        """Returns the log posterior weight of each model given evidence. ``(models, rows)``."""
        names = listed_names(given, argument="given")
        if not names:
            return np.full((len(self.models), len(frame)), -np.log(len(self.models)))
        context = [column.name for column in self.models[0].table_.context]
        known = frame[[name for name in frame.columns if name in (*names, *context)]]
        logs = np.stack([model.log_prob(known) for model in self.models])
        return np.asarray(logs - np.logaddexp.reduce(logs, axis=0))


def _check_alike(first: TableSchema, other: TableSchema) -> None:
    """Refuses tables whose likelihoods cannot be added: a density here, a probability there."""
    if first.layout != other.layout:
        raise ConfigError("`models` must be fitted on the same columns; theirs differ.")
    if set(first.missing_values) != set(other.missing_values):
        raise ConfigError("`models` must be fitted with the same `missing_values`; theirs differ.")
    for name in first.layout:
        (kind, given, masses), (kind_2, given_2, masses_2) = (
            _measure(t, name) for t in (first, other)
        )
        if kind != kind_2:
            found = f"is of type {kind} in one and {kind_2} in another"
        elif given != given_2:
            found = "is always given (`context`) in one of them only"
        elif masses != masses_2:
            value = min(masses ^ masses_2, key=repr)
            found = f"has the level or repeated value {value!r} in one of them only"
        else:
            continue
        raise ConfigError(
            f'`models` must agree on the type of columns; "{name}" {found}. '
            "Fit all of them on the same rows, with the same `types` and `context`."
        )


def _measure(table: TableSchema, name: str) -> tuple[str, bool, frozenset[Any]]:
    """Returns the type of a column, if it is always given, and which values have a probability."""
    if any(name == ignored.name for ignored in table.ignored):
        return "ignored", False, frozenset()
    column = table[name]
    if isinstance(column, NumberColumn):
        # As values: the numbers of times and of large integers have an origin of their own.
        values = column.restore(np.array(column.atom_values)).tolist() if column.atom_values else ()
        return column.kind, column.context, frozenset(values)
    assert isinstance(column, CategoryColumn)
    return column.kind, column.context, frozenset(column.levels)
