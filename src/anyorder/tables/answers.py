"""Queries of a fitted table model: likelihoods, conditionals, samples, imputation, checks.

Frames may lack columns and have missing values: these are marginalised, not imputed.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.diagnostics.check import Check, check_model
from anyorder.diagnostics.evaluation import RowSample
from anyorder.errors import QueryError, check_choice, check_count, seeded
from anyorder.inference.model import AnyOrderModel
from anyorder.lattice.query_laws import QueryLaw
from anyorder.tables.columns import CategoryColumn, NumberColumn
from anyorder.tables.conditional import Conditional
from anyorder.tables.engine import (
    Count,
    KeptRows,
    Question,
    answer,
    best_predictions,
    cell_nll,
    fill_gaps,
    information_gains,
    level_probabilities,
    log_prob_in_units,
    row_log_prob,
    sample_rows,
)
from anyorder.tables.evaluation import (
    PrivacyCheck,
    column_skill,
    count_conditionals,
    nearest_records,
    reliability,
)
from anyorder.tables.parsing import marked
from anyorder.tables.questions import (
    Names,
    column_set,
    column_sets,
    listed_names,
    named_sets,
    query_frame,
    read_evidence,
    warn_untrained,
)
from anyorder.tables.schema import TableSchema

How = Literal["sample", "mean", "mode"]

SOFT_DRAWS = 1024
"""Samples that stand for evidence by intervals and sets of levels."""

CHECKED_ROWS = 2000
"""Default number of rows of a check: enough for errors of a percent, within about a minute."""


@cache
def _unfitted_error() -> type[QueryError]:
    """Returns the error of a query of a model that is not fitted: scikit-learn's error too."""
    from sklearn.exceptions import NotFittedError

    return type("UnfittedError", (QueryError, NotFittedError), {"__module__": __name__})


def __getattr__(name: str) -> Any:
    """Imports scikit-learn only for those who ask for its error."""
    if name == "UnfittedError":
        return _unfitted_error()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class TableAnswers:
    """Queries of a table; `TableModel` adds fitting."""

    table_: TableSchema
    model_: AnyOrderModel
    target_: str | None
    queries_: QueryLaw
    rows_: KeptRows | None
    feature_names_in_: NDArray[Any]

    def log_prob(self, X: Any, *, query: Names = None, given: Names = None) -> NDArray[np.float64]:  # noqa: N803
        """Returns the log-likelihood of each row, in nats and in the units of the columns.

        Args:
            X: Rows. It may lack columns that the query does not use.
            query: Queried columns; by default, all that a row has and that are not given.
            given: Columns of the evidence; values missing there are marginalised.
        """
        frame, table = self._frame(X), self._fitted()
        named = named_sets(table, query, given)  # names are checked before cells are read
        if query is not None:
            warn_untrained(self.queries_, self.model_.protocol, *named)
        x, missing = table.encode(frame, needs=listed_names(query, argument="query"))
        queried, known = column_sets(table, missing, query=query, given=given)
        found = log_prob_in_units(self.model_, table, frame, x, query=queried, given=known)
        return found.numpy()

    def score_samples(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Returns the log-likelihood of all values that each row has."""
        return self.log_prob(X)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Returns the mean log-likelihood of rows."""
        frame = self._frame(X)
        if y is not None and self.target_ is not None:
            frame = frame.assign(**{self.target_: np.asarray(y)})
        return float(self.log_prob(frame).mean())

    def sample(
        self,
        n_samples: int = 1,
        *,
        given: Mapping[str, Any] | None = None,
        random_state: int | None = None,
    ) -> pd.DataFrame:
        """Samples rows, given values, intervals `(low, high)` or lists of levels.

        Returns:
            A frame like the one that was fitted. With intervals or lists, `attrs` holds the
            `effective_sample_size` of the importance sampling behind it; see `soft_evidence`.
        """
        check_count("n_samples", n_samples)
        generator = seeded(random_state)
        draws = max(SOFT_DRAWS, 4 * n_samples)
        known = read_evidence(self._fitted(), given).sampled(self.model_, draws, generator)
        x = known.x[known.resampled(n_samples, generator=generator)] if known.is_drawn else known.x
        warn_untrained(self.queries_, self.model_.protocol, ~known.known, known.known)
        sampled = sample_rows(self.model_, x, known.known, n=n_samples, generator=generator)
        frame = self.table_.decode(sampled)
        for name, value in (given or {}).items():  # as it was given, not as float32 has it
            if isinstance(value, float | np.floating) and frame[name].dtype == np.float64:
                frame[name] = float(value)
        if known.is_drawn:
            frame.attrs["effective_sample_size"] = min(known.effective_sample_size, n_samples)
        return frame

    def conditional(
        self,
        column: str,
        *,
        given: Mapping[str, Any] | None = None,
        random_state: int | None = 0,
    ) -> Conditional:
        """Returns p(column | given): values, intervals `(low, high)` or lists of levels.

        Args:
            column: Queried column.
            given: Evidence by column.
            random_state: Seed of the samples that stand for intervals and lists.
        """
        column = str(column)  # as `fit` took the names of columns
        return self.conditionals([column], given=given, random_state=random_state)[column]

    def conditionals(
        self,
        columns: Sequence[str] | None = None,
        *,
        given: Mapping[str, Any] | None = None,
        random_state: int | None = 0,
    ) -> dict[str, Conditional]:
        """Returns the distributions of several columns, each by itself, from one encoding.

        Args:
            columns: Queried columns; by default, all that are not given.
            given: Evidence; see `conditional`.
            random_state: Seed of the samples that stand for intervals and lists.
        """
        names = listed_names(columns, argument="columns")
        argument = "column" if len(names) == 1 else "columns"
        column_set(self._fitted(), names, argument=argument, allow_context=False)
        evidence = read_evidence(self.table_, given)
        known = evidence.sampled(self.model_, SOFT_DRAWS, seeded(random_state))
        queried = self._queried(None if columns is None else names, known.known)
        question = Question(known, [self.table_.names.index(name) for name in queried], evidence)
        (found,) = self._answered([question])
        return dict(zip(queried, found, strict=True))

    def impute(
        self,
        X: Any,  # noqa: N803
        *,
        draws: int = 1,
        how: How = "sample",
        random_state: int | None = None,
    ) -> pd.DataFrame:
        """Imputes the missing values of a frame, given all values that each row has.

        Args:
            X: Rows with missing values; columns that it lacks are missing too.
            draws: Number of completed frames.
            how: "sample" samples the missing values of a row jointly; "mean" and "mode" predict
                each by itself (a category has no mean: its mode).
            random_state: Seed of the samples.

        Returns:
            The frame with the dtypes and the columns of training; with several draws, under an
            index of (draw, row).
        """
        check_choice("how", how, get_args(How))
        check_count("draws", draws)
        frame = self._frame(X)
        x, missing = self._fitted().encode(frame)
        if how != "sample":
            return self._predicted(frame, x, missing, mean=how == "mean")
        generator = seeded(random_state)
        filled = fill_gaps(self.model_, x, missing, draws=draws, generator=generator)
        frames = [self._framed(self.table_.decode(filled[:, i]), frame) for i in range(draws)]
        if draws == 1:
            return frames[0]
        rows = frame.index.names if frame.index.nlevels > 1 else ["row"]
        return pd.concat(frames, keys=range(draws), names=["draw", *rows])

    def transform(self, X: Any) -> pd.DataFrame:  # noqa: N803
        """Imputes missing values by their predictions, for pipelines."""
        return self.impute(X, how="mean")

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Returns the columns of `transform`, for pipelines."""
        del input_features
        return np.array(self._fitted().layout, dtype=object)

    def predict(self, X: Any, *, target: str | None = None) -> NDArray[Any]:  # noqa: N803
        """Returns the mean of a number or the most probable level, given the rest of each row."""
        name, x, known = self._without_target(X, target)
        query = (torch.arange(known.shape[1]) == self.table_.names.index(name)).expand_as(known)
        (found,) = best_predictions(self.model_, self.table_, x, known, query, mean=True).values()
        return found.to_numpy()

    def predict_proba(self, X: Any, *, target: str | None = None) -> pd.DataFrame:  # noqa: N803
        """Returns the probability of each level of a column, given the rest of each row."""
        name, x, known = self._without_target(X, target)
        column = self.table_[name]
        if not isinstance(column, CategoryColumn):
            raise QueryError(f'"{name}" is no category: `conditional` returns its distribution.')
        found = level_probabilities(self.model_, x, known, self.table_.names.index(name))
        return pd.DataFrame(found.numpy(), index=self._frame(X).index, columns=list(column.levels))

    @property
    def classes_(self) -> NDArray[Any]:
        """Levels of the column that `fit` was given as `y`, in the order of `predict_proba`."""
        target = getattr(self, "target_", None)
        column = None if target is None else self.table_[target]
        if not isinstance(column, CategoryColumn):
            raise AttributeError("Only a model that was fitted with a category as `y` has classes.")
        return np.array(column.levels)

    def outliers(self, X: Any) -> pd.DataFrame:  # noqa: N803
        """Returns the negative log-likelihood (surprise) of each row and each cell, in nats.

        Numbers are measured in normal scores, so that columns can be compared. A cell's is that of
        its value given all other cells of its row; a row's is the mean of its cells along the
        canonical path.

        Returns:
            A column "row" ("row_" if there is one of that name already), and one for each column of
            the model; NaN for missing values.
        """
        frame = self._frame(X)
        x, missing = self._fitted().encode(frame)
        have = ~missing
        rows = -row_log_prob(self.model_, x, query=have, given=torch.zeros_like(have))
        cells = cell_nll(self.model_, x, missing)
        whole = "row"
        while whole in self.table_.names:
            whole += "_"
        found = {whole: rows / have.sum(dim=1)}
        found |= dict(zip(self.table_.names, cells.T, strict=True))
        return pd.DataFrame({name: part.numpy() for name, part in found.items()}, index=frame.index)

    def skill(self, X: Any) -> pd.DataFrame:  # noqa: N803
        """Returns how well each column is predicted from the rest of its row.

        Args:
            X: Rows that the model was not trained on.

        Returns:
            A row for each column: the kind of its errors ("distance", of times "seconds", or shares
            "wrong"), the number of predicted `cells`, the mean `error`, that of one prediction for
            all rows (`alone`), the share of it that is saved (`gain`) and its standard error
            (`se`).
        """
        table = self._fitted()
        x, missing = table.encode(self._frame(X))
        found = column_skill(self.model_, table, x, missing)
        return pd.DataFrame({one.column: one.to_json() for one in found}).T.infer_objects()

    def check_counts(self, X: Any) -> pd.DataFrame:  # noqa: N803
        """Compares every p(column | one category) with the fraction of rows that it should equal.

        Args:
            X: Rows to count, of training or not.

        Returns:
            A row for each conditional whose evidence at least 30 rows match, the worst first: its
            `given` and `event`, the number of matching `rows`, their `share`, the `probability` of
            the model, its probability `tie` of the median itself, which counts half, the standard
            error `se` of the share, and the difference `z` in those. The root mean square of `z` is
            about 1 for a model that is right, on rows that it was not trained on.
        """
        table = self._fitted()
        found = count_conditionals(self.model_, table, *table.encode(self._frame(X)))
        frame = pd.DataFrame([{**vars(one), "se": one.se, "z": one.z} for one in found])
        if not len(frame):
            return frame
        return frame.sort_values("z", key=abs, ascending=False, ignore_index=True)

    def reliability(self, X: Any, target: str, *, level: Any = None) -> pd.DataFrame:  # noqa: N803
        """Compares predictions of one category, given the rest of the row, with what happened.

        Args:
            X: Rows that the model was not trained on.
            target: A category.
            level: Predicted level; by default the rarest in `X`.

        Returns:
            A row for each tenth of `X` by predicted probability: the number of `rows`, the mean
            `predicted` probability, the `share` of rows with the level, its standard error `se`
            if the predictions are right, and the `level`.
        """
        probabilities = self.predict_proba(X, target=target)
        x, missing = self._fitted().encode(self._frame(X))
        place = self.table_.names.index(str(target))
        there = ~missing[:, place]
        if not there.any():
            raise QueryError(f'`X` must have values of "{target}" to compare with; it has none.')
        codes, column = x[there, place].long(), self.table_[str(target)]
        counts = torch.bincount(codes, minlength=probabilities.shape[1])
        code = int(counts.masked_fill(counts == 0, len(codes) + 1).argmin())
        if level is not None:
            code = int(column.encode(pd.Series([level], name=str(target)))[0][0])
        predicted = torch.from_numpy(probabilities.to_numpy(copy=True)[there.numpy(), code])
        found = reliability(predicted, codes == code)
        frame = pd.DataFrame([{**vars(one), "se": one.se} for one in found])
        return frame.assign(level=probabilities.columns[code])

    def privacy(
        self, samples: Any, train: Any, held_out: Any, *, random_state: int | None = 0
    ) -> PrivacyCheck:
        """Compares distances of samples to training rows with those to held-out rows.

        Args:
            samples: Sampled rows.
            train: Training rows.
            held_out: Rows of the same distribution that were not trained on.
            random_state: Seed of the choice of as many training rows as there are held-out ones.
        """
        frames = [self._frame(rows) for rows in (samples, train, held_out)]
        encoded = [self._fitted().encode(frame) for frame in frames]
        return nearest_records(self.table_.schema, *encoded, generator=seeded(random_state))

    def check(
        self,
        X: Any,  # noqa: N803
        *,
        rows: int = CHECKED_ROWS,
        random_state: int | None = 0,
        progress: bool = False,
    ) -> Check:
        """Measures how consistent the model is, and how well it fits rows it was not trained on.

        Args:
            X: Rows; values may be missing.
            rows: Greatest number of them that is used; chosen at random.
            random_state: Seed of that choice and of the queries.
            progress: Shows a progress bar.

        Returns:
            The findings, by `.sentences()`, `.to_json()` and `.plot()`.
        """
        seed = 0 if random_state is None else random_state
        sample = RowSample(rows, seed=seed)
        sample.add(*self._fitted().encode(self._frame(X)))
        return check_model(self.model_, sample.x, sample.missing, seed=seed, progress=progress)

    def information_gain(self, target: str, *, given: Mapping[str, Any] | None = None) -> pd.Series:
        """Returns the expected information gain of each other column about `target`, in nats."""
        evidence = read_evidence(self._fitted(), given)
        if evidence.regions:
            raise QueryError("`given` must hold values here, no intervals or lists.")
        query = column_set(self.table_, target, argument="target", allow_context=False)
        place = int(query.nonzero()[0])
        if evidence.given[place]:
            raise QueryError(f'"{target}" is both queried and given: drop it from `given`.')
        gains = information_gains(self.model_, evidence, place)
        found = {self.table_.names[i]: gain for i, gain in gains.items()}
        return pd.Series(found, name="nats", dtype=float).sort_values(ascending=False)

    def _fitted(self) -> TableSchema:
        if not hasattr(self, "model_"):
            raise _unfitted_error()("This model is not fitted yet: call `fit` or `load` first.")
        return self.table_

    def _frame(self, X: Any) -> pd.DataFrame:  # noqa: N803
        return query_frame(X, self._fitted(), list(self.feature_names_in_))

    def _answered(self, questions: Sequence[Question]) -> list[list[Conditional]]:
        """Returns the distributions of a batch of questions."""
        columns, model, found = self.table_.query, self.model_, answer(self.model_, questions)
        return [
            [
                Conditional(columns[place], place, model, features, one.evidence, count)
                for place, features, count in zip(
                    one.variables, own, self._counts(one), strict=True
                )
            ]
            for one, own in zip(questions, found, strict=True)
        ]

    def _counts(self, question: Question) -> Sequence[Count | None]:
        """Returns the training rows that match a question, for each of its variables."""
        if self.rows_ is None:
            return [None] * len(question.variables)
        return self.rows_.counts(question.given, question.variables, self.table_.query)

    def _queried(self, columns: Sequence[str] | None, known: Tensor) -> list[str]:
        """Returns the queried columns, none of which may be given; by default all that are not."""
        names, given = self.table_.names, known.cpu()
        free = [name for place, name in enumerate(names) if not given[place]]
        queried = free if columns is None else list(columns)
        for name in queried:
            if name not in free:
                raise QueryError(f'"{name}" is both queried and given: drop it from `given`.')
            alone = torch.arange(len(names)) == names.index(name)
            warn_untrained(self.queries_, self.model_.protocol, alone, given)
        return queried

    def _without_target(self, X: Any, target: str | None) -> tuple[str, Tensor, Tensor]:  # noqa: N803
        """Returns the column to predict, the codes, and the other cells that the rows have."""
        self._fitted()
        name = self.target_ if target is None else str(target)
        if name is None:
            raise QueryError("`target` must name the column to predict: fit without `y` has none.")
        query = column_set(self.table_, name, argument="target", allow_context=False)
        x, missing = self.table_.encode(self._frame(X).drop(columns=name, errors="ignore"))
        warn_untrained(self.queries_, self.model_.protocol, query, ~missing.all(dim=0))
        return name, x, ~missing

    def _predicted(
        self, frame: pd.DataFrame, x: Tensor, missing: Tensor, *, mean: bool
    ) -> pd.DataFrame:
        """Returns the frame with the prediction of each missing value."""
        x = x.clone()
        found = best_predictions(self.model_, self.table_, x, ~missing, missing, mean=mean)
        for place, predictions in found.items():
            codes, _ = self.table_.query[place].encode(predictions)
            x[missing[:, place], place] = torch.from_numpy(codes).to(x)
        return self._framed(self.table_.decode(x), frame)

    def _framed(self, filled: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
        """Returns completed rows under the frame's index; its own values stay as they were."""
        found = filled.set_index(frame.index)
        ignored = {name for name, _, _ in self.table_.ignored}
        for name in (name for name in self.table_.layout if name in frame.columns):
            series = frame[name]
            there = ~(marked(series, self.table_.missing_values) | series.isna().to_numpy())
            if name in ignored or (there.all() and found[name].dtype == series.dtype):
                found[name] = series
            elif found[name].dtype == series.dtype:
                found[name] = series.where(there, found[name])
            elif isinstance(column := self.table_[name], NumberColumn):
                # Not by their codes, whose float32 does not hold long numbers and times.
                kept = column.kept(series[there])
                if kept.dtype != found[name].dtype:
                    found[name] = found[name].astype(kept.dtype)
                found.loc[there, name] = kept.array
        return found
