"""Tables: fit a frame once, then ask for likelihoods, draws or quantiles of any of its columns."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import TransformerTags
from torch import Tensor

from anyorder.checkpoint import SavedModel, load_saved, save_model
from anyorder.conditionals.heads import Head
from anyorder.data.frames import as_frame
from anyorder.data.table import TableSchema
from anyorder.errors import (
    CheckpointError,
    ConfigError,
    check_choice,
    check_count,
    check_fraction,
)
from anyorder.estimators.table_answers import TableAnswers
from anyorder.estimators.table_fitting import (
    Missing,
    Network,
    Shape,
    TableData,
    build,
    split,
    table_queries,
    train,
)
from anyorder.estimators.table_questions import column_set
from anyorder.masks import MaskDistribution
from anyorder.query_laws import QueryLaw, QueryList, as_query_law
from anyorder.training.settings import TrainingSettings, default_device

Question = tuple[Sequence[str], Sequence[str], float]


class TableModel(TableAnswers, BaseEstimator):  # type: ignore[misc]
    """A model of a table that answers p(these columns | those columns).

    Args:
        queries: The questions that it is trained for: "any", a query law, or a list of (given,
            query, weight), the first two lists of column names.
        context: Columns that are always given and never asked.
        order: Columns that come first in the canonical order; the others follow as they stand.
        types: What a column is, where its values do not say it: "number", "category", "boolean",
            "datetime" or "ignore".
        missing_values: What stands for a gap besides NaN and None, such as "?" or -999.
        missing: "mcar" takes gaps to be random; "mar" allows for gaps that depend on what is
            observed, by completing them again and again while training.
        network: "path" answers a question in one pass; "mlp" is the masked perceptron of ACE.
        streams: Of a path network: 2 keeps what is told and what is asked apart, and predicts
            single columns better; 1 has half the tokens, and learns whole rows sooner.
        layers: Blocks of the network.
        width: Of the network.
        heads: Of its attention; divides the width.
        head: Of densities: "mixture", "spline" or "energy".
        dropout: Share that is dropped in training.
        minutes: The longest that training may take; None leaves it to the steps.
        max_steps: The most steps of training; by default, enough for some dozens of rounds.
        batch: Rows of a step.
        learning_rate: The greatest.
        validation_share: Of the rows, held out to stop in time.
        patience: Evaluations without improvement after which training stops.
        warm_start: Whether `fit` goes on with what was learnt before.
        random_state: Of everything random in training.
        progress: Whether a line shows how training goes.

    Example:
        >>> model = TableModel(max_steps=5, layers=1, width=8, heads=2)
        >>> frame = pd.DataFrame({"age": [41, 30, 22], "job": ["nurse", "clerk", None]})
        >>> model.fit(frame).impute(frame)["job"].notna().all()
        np.True_
    """

    def __init__(
        self,
        *,
        queries: str | QueryLaw | MaskDistribution | Iterable[Question] = "any",
        context: Sequence[str] = (),
        order: Sequence[str] | None = None,
        types: Mapping[str, str] | None = None,
        missing_values: Sequence[Any] = (),
        missing: Missing = "mcar",
        network: Network = "path",
        streams: int = 2,
        layers: int = 3,
        width: int = 96,
        heads: int = 4,
        head: Head = "mixture",
        dropout: float = 0.1,
        minutes: float | None = 6.0,
        max_steps: int | None = None,
        batch: int = 64,
        learning_rate: float = 2e-3,
        validation_share: float = 0.1,
        patience: int = 10,
        warm_start: bool = False,
        random_state: int | None = 0,
        progress: bool = False,
    ) -> None:
        self.queries, self.context, self.order = queries, context, order
        self.types, self.missing_values, self.missing = types, missing_values, missing
        self.network, self.streams = network, streams
        self.layers, self.width, self.heads = layers, width, heads
        self.head, self.dropout = head, dropout
        self.minutes, self.max_steps, self.batch = minutes, max_steps, batch
        self.learning_rate, self.validation_share = learning_rate, validation_share
        self.patience, self.warm_start, self.random_state = patience, warm_start, random_state
        self.progress = progress

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        sample_weight: Any = None,
        folder: str | Path | None = None,
    ) -> Self:
        """Trains on a table.

        Args:
            X: A frame (pandas, polars, pyarrow), an array, or a dictionary of columns.
            y: One more column, as scikit-learn gives targets; `predict` then predicts it.
            sample_weight: How much each row counts.
            folder: Where checkpoints go; the same call goes on from the last one.
        """
        frame = as_frame(X)
        self.target_ = None
        if y is not None:
            self.target_ = str(getattr(y, "name", None) or "target")
            frame = frame.assign(**{self.target_: np.asarray(y)})
        seed = self._seed()
        if not (self.warm_start and hasattr(self, "table_")):
            self.table_ = TableSchema.infer(
                frame,
                types=self.types,
                missing_values=self.missing_values,
                context=self.context,
                order=self.order,
            )
            self.queries_ = self._query_law()
            self.model_ = build(self.table_.schema, self._shape(), seed).to(default_device())
        self.feature_names_in_ = np.array(list(as_frame(X).columns), dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        x, missing = self.table_.encode(frame)
        data = TableData(x, missing, _weights(sample_weight, len(frame)))
        share = check_fraction("validation_share", self.validation_share)
        kept, held_out = split(len(x), share, seed)
        self.fit_ = train(
            self.model_,
            data.at(kept),
            self.queries_,
            settings=self._settings(len(kept), len(held_out)),
            held_out=data.at(held_out),
            missing=self.missing,
            folder=None if folder is None else Path(folder),
            notes=self._notes(),
            progress=self.progress,
        )
        return self

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> pd.DataFrame:  # noqa: N803
        """Fits, then fills gaps by their best guesses."""
        return self.fit(X, y, **options).transform(X)

    def save(self, folder: str | Path) -> None:
        """Saves the model with its columns and the questions that it was trained for."""
        self._fitted()
        save_model(folder, self.model_, law=self.queries_, notes=self._notes())

    @classmethod
    def load(cls, folder: str | Path) -> "TableModel":
        """Loads what `save` saved, onto the GPU if there is one."""
        return cls.from_saved(load_saved(folder, device=default_device()), folder)

    @classmethod
    def from_saved(cls, saved: SavedModel, folder: str | Path) -> "TableModel":
        """The model of what was read from a folder; `folder` is for messages only."""
        if saved.notes.get("domain") != "table":
            raise CheckpointError(f'"{folder}" does not hold a model of a table.')
        loaded = cls(**saved.notes["options"])
        loaded.table_ = TableSchema.from_description(saved.notes["table"])
        loaded.target_ = saved.notes["target"]
        loaded.model_, loaded.queries_ = saved.model, as_query_law(saved.law)  # type: ignore[arg-type]
        columns = [name for name in loaded.table_.layout if name != loaded.target_]
        loaded.feature_names_in_ = np.array(columns, dtype=object)
        loaded.n_features_in_ = len(columns)
        return loaded

    save_pretrained = save
    from_pretrained = load

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags = TransformerTags()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _seed(self) -> int:
        return (
            0
            if self.random_state is None
            else check_count("random_state", self.random_state, low=0)
        )

    def _shape(self) -> Shape:
        check_choice("network", self.network, get_args(Network))
        check_count("streams", self.streams, high=2)
        return Shape(
            self.network,
            self.streams,
            self.layers,
            self.width,
            self.heads,
            self.head,
            check_fraction("dropout", self.dropout),
        )

    def _query_law(self) -> QueryLaw:
        check_choice("missing", self.missing, get_args(Missing))
        names, queries = self.table_.names, self.queries
        if isinstance(queries, str):
            check_choice("queries", queries, ("any",))
            return table_queries(len(names))
        if isinstance(queries, QueryLaw | MaskDistribution):
            law = as_query_law(queries)
            if law.num_variables != len(names):
                raise ConfigError(
                    f"`queries` must be a law over the {len(names)} columns that can be asked; it "
                    f"is over {law.num_variables}."
                )
            return law
        entries = []
        for given, query, weight in queries:
            known, asked = (
                column_set(self.table_, part, argument="queries").nonzero().flatten().tolist()
                for part in (given, query)
            )
            entries.append((known, asked, weight))
        return QueryList(len(names), entries)

    def _settings(self, rows: int, held_out: int) -> TrainingSettings:
        batch = min(check_count("batch", self.batch), max(rows, 1))
        steps = self.max_steps or min(max(1500, 60 * rows // batch), 50_000)
        evaluate_every = min(max(rows // batch, 50), 400) if held_out else None
        return TrainingSettings(
            batch=batch,
            steps=steps,
            minutes=self.minutes,
            learning_rate=self.learning_rate,
            warmup=min(100, steps // 4),
            weight_decay=0.01,
            seed=self._seed(),
            evaluate_every=evaluate_every,
            patience=self.patience if held_out else None,
            checkpoint_minutes=2.0,
        )

    def _notes(self) -> dict[str, Any]:
        options = {k: v for k, v in self.get_params(deep=False).items() if k != "queries"}
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
        return {
            "domain": "table",
            "table": self.table_.describe(),
            "options": plain,
            "target": self.target_,
        }


def _weights(sample_weight: Any, rows: int) -> Tensor | None:
    if sample_weight is None:
        return None
    weights = torch.as_tensor(np.asarray(sample_weight, dtype=np.float64))
    if weights.shape != (rows,) or not (weights >= 0).all() or not weights.sum() > 0:
        raise ConfigError(
            f"`sample_weight` must hold {rows} numbers, none negative and not all zero."
        )
    return weights
