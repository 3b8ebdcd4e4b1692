"""Models of one table along different orders, as one proper mixture of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anyorder.data.frames import as_frame
from anyorder.errors import ConfigError, QueryError, check_count, check_seed
from anyorder.estimators.table_answers import TableAnswers
from anyorder.estimators.table_questions import Names, listed_names, read_evidence


class TableMixture:
    r"""The mixture p(x) = (p_1(x) + ... + p_k(x)) / k of fitted models.

    Every model has one path to a set, its own, and the mixture has one law for each: what is known
    weights the models, as Bayes has it,

        p(u | e) = sum_k w_k(e) p_k(u | e),    w_k(e) proportional to p_k(e),

    so that p(u, e) = p(e) p(u | e) holds as far as it does for the models, and every answer sums to
    one. Averages of log-likelihoods over orders are bounds below it, and sum to less.

    Args:
        models: Fitted on the same table, most usefully with different values of `order`.
    """

    def __init__(self, models: Sequence[TableAnswers]) -> None:
        self.models = list(models)
        if not self.models:
            raise ConfigError("`models` must hold a fitted model or more; got none.")
        layouts = {tuple(model._fitted().layout) for model in self.models}
        if len(layouts) > 1:
            raise ConfigError("`models` must be fitted on the same columns; theirs differ.")

    def log_prob(self, X: Any, *, query: Names = None, given: Names = None) -> NDArray[np.float64]:  # noqa: N803
        """The log-likelihood of each row; see `TableModel.log_prob`."""
        frame = as_frame(X)
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
        seed = None if random_state is None else check_seed(random_state)
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


def _log_sum_exp(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.logaddexp.reduce(logs, axis=0)
