"""Models of one table along different orders, as one proper mixture of them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anyorder.errors import ConfigError, QueryError, check_count, check_seed
from anyorder.tables.answers import TableAnswers
from anyorder.tables.categories import CategoryColumn
from anyorder.tables.columns import NumberColumn
from anyorder.tables.questions import Names, listed_names, read_evidence
from anyorder.tables.schema import TableSchema


class TableMixture:
    r"""The mixture p(x) = (p_1(x) + ... + p_k(x)) / k of fitted models.

    Every model has one path to a set, its own, and the mixture has one law for each: what is known
    weights the models, as Bayes has it,

        p(u | e) = sum_k w_k(e) p_k(u | e),    w_k(e) proportional to p_k(e),

    so that p(u, e) = p(e) p(u | e) holds as far as it does for the models, and every answer sums to
    one. Averages of log-likelihoods over orders are bounds below it, and sum to less.

    Args:
        models: Fitted on the same table, most usefully with different values of `order`. What has
            a probability in one must have one in all: categories, their levels, and the values of
            numbers that repeat.
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
        """The log-likelihood of each row; see `TableModel.log_prob`."""
        frame = self.models[0]._frame(X)
        asked = [model.log_prob(frame, query=query, given=given) for model in self.models]
        return np.asarray(_log_sum_exp(np.stack(asked) + self._log_weights(frame, given)))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """The mean log-likelihood of rows."""
        del y
        return float(self.log_prob(X).mean())

    def sample(
        self,
        n_samples: int = 1,
        *,
        given: Mapping[str, Any] | None = None,
        random_state: int | None = None,
    ) -> pd.DataFrame:
        """Draws rows given values: for each a model by its weight, then a row from that model."""
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
        drawn = pd.concat(parts, ignore_index=True).iloc[source.permutation(n_samples)]
        return drawn.reset_index(drop=True)

    def _log_weights(self, frame: pd.DataFrame, given: Names) -> NDArray[np.float64]:
        """What the evidence of each row says for each model. Shape ``(models, rows)``."""
        names = listed_names(given, argument="given")
        if not names:
            return np.full((len(self.models), len(frame)), -np.log(len(self.models)))
        context = [column.name for column in self.models[0].table_.context]
        known = frame[[name for name in frame.columns if name in (*names, *context)]]
        logs = np.stack([model.log_prob(known) for model in self.models])
        return logs - _log_sum_exp(logs)


class _Measure(NamedTuple):
    """What a likelihood of a column is: a probability of these values, a density of others."""

    kind: str
    is_given: bool
    masses: frozenset[Any]


def _check_alike(first: TableSchema, other: TableSchema) -> None:
    """Refuses tables whose likelihoods cannot be added: one has a density where one has a mass."""
    if first.layout != other.layout:
        raise ConfigError("`models` must be fitted on the same columns; theirs differ.")
    if set(first.missing_values) != set(other.missing_values):
        raise ConfigError("`models` must be fitted with the same `missing_values`; theirs differ.")
    for name in first.layout:
        one, two = _measure(first, name), _measure(other, name)
        if one != two:
            raise ConfigError(
                f'`models` must take every column for the same; "{name}" {_difference(one, two)}. '
                "Fit all of them on the same rows, with the same `types` and `context`."
            )


def _measure(table: TableSchema, name: str) -> _Measure:
    if any(name == ignored.name for ignored in table.ignored):
        return _Measure("ignored", False, frozenset())
    column = table[name]
    if isinstance(column, NumberColumn):
        # As values: the numbers of times and of great integers count from an origin of their own.
        values = column.restore(np.array(column.atom_values)).tolist() if column.atom_values else ()
        return _Measure(column.kind, column.context, frozenset(values))
    assert isinstance(column, CategoryColumn)
    return _Measure(column.kind, column.context, frozenset(column.levels))


def _difference(one: _Measure, two: _Measure) -> str:
    if one.kind != two.kind:
        return f"is of the kind {one.kind} in one and {two.kind} in another"
    if one.is_given != two.is_given:
        return "is always given (`context`) in one of them only"
    value = min(one.masses ^ two.masses, key=repr)
    return f"has the level or repeated value {value!r} in one of them only"


def _log_sum_exp(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.logaddexp.reduce(logs, axis=0)
