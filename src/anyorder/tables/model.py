"""TableModel: fit a frame once, then query likelihoods, samples or quantiles of any columns.

`read_table_notes` validates the columns in `model.json` when a model is loaded: a checksum catches
accidents, not deliberate changes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from torch import Tensor

from anyorder.errors import (
    CheckpointError,
    ConfigError,
    Device,
    SchemaError,
    check_choice,
    check_count,
    check_device,
    check_flag,
    check_fraction,
    renamed,
)
from anyorder.estimator import Parameters
from anyorder.heads.with_prior import Head
from anyorder.inference.model import AnyOrderModel
from anyorder.lattice.protocols import RemoveRandom
from anyorder.lattice.query_laws import QueryLaw, as_query_law
from anyorder.saving.checkpoint import SavedModel, load_saved, make_folder, replace_text, save_model
from anyorder.tables.answers import TableAnswers
from anyorder.tables.csv_dialect import VERBATIM, CsvHints
from anyorder.tables.engine import KeptRows
from anyorder.tables.ensemble import joined, members_for, members_of, train_members
from anyorder.tables.fitting import (
    MOST_MINUTES,
    Missing,
    Network,
    Shape,
    TableData,
    build,
    default_size,
    evaluations_for,
    fit_prior,
    minutes_for,
    network_for,
    rows_of_a_step,
    single_columns,
    split,
    train,
)
from anyorder.tables.large_files import CodesOnDisk, TableFile
from anyorder.tables.orders import EXPLORED, Order, chosen_order, is_chosen, share_of
from anyorder.tables.parsing import SIGNS
from anyorder.tables.questions import Queries, check_any_order, law_of
from anyorder.tables.schema import TableSchema, as_frame, row_weights, with_target
from anyorder.training.batches import RowPrint
from anyorder.training.loop import Fit, now, verdict
from anyorder.training.progress import shows
from anyorder.training.settings import (
    Clock,
    TrainingSettings,
    is_first_process,
    training_settings,
)
from anyorder.variables import Schema

SPREAD = (-3.0, -1.0, 0.0, 1.0, 3.0)
"""Normal scores with which the columns of a loaded model are tried."""


def read_table_notes(description: Any, schema: Schema) -> TableSchema:
    """Returns the columns of a model, or raises an error of any kind if they were altered.

    Args:
        description: Description of the columns.
        schema: Variables of the model, which the columns must have.
    """
    table = TableSchema.from_description(description)
    if table.schema.to_json() != schema.to_json():
        raise SchemaError("its columns are not those of its network")
    names = [column.name for column in (*table.query, *table.context)]
    names += [column.name for column in table.ignored]
    if sorted(names) != sorted(table.layout):
        raise SchemaError("its columns are not those of its layout")
    if not {*table.decimals.values()} <= {*SIGNS}:
        raise SchemaError("its decimals have other signs than points and commas")
    table.summary()
    codes = torch.zeros(len(SPREAD), len(schema))
    for place, variable in enumerate(schema):
        if variable.kind == "continuous":
            codes[:, place] = torch.tensor(SPREAD)
    frame = table.decode(codes)
    x, _ = table.encode(frame)
    if not x.isfinite().all():
        raise SchemaError("its values are no numbers")
    table.log_density_factors(frame)
    return table


AVERAGE = 0.99
"""Decay of the moving average of weights: where few rows stop the training early, the weights of a
single step answer queries with little evidence at random."""

SPEED_UP = 4
"""Steps of a perceptron in the time of a Transformer's, about: 1.5 on diamonds, 8 on plants."""

OLD_NAMES = {"guide": "prior"}
"""Options that had another name in version 0.1.0, in the notes of its models too."""

TABLE_SETTINGS = TrainingSettings(
    minutes=MOST_MINUTES, learning_rate=2e-3, ema=AVERAGE, schedule="trapezoid"
)
"""Default training settings of tables; batch, steps and evaluations depend on the rows."""


class TableModel(TableAnswers, Parameters):
    """A model of a table that answers p(these columns | those columns).

    As scikit-learn has it, parameters are stored as they are given, and checked by `fit`.

    Args:
        queries: Queries to train for: "any", a query law, or a list of (given, query, weight),
            the first two lists of column names. A law is over the columns that can be queried, in
            the order of the frame, whatever `order` is.
        context: Columns that are always given and never queried.
        order: Columns that come first in the canonical order; the others follow as they stand. Or
            "complete" (the most complete columns first), "dependence" (dependent columns follow
            each other) or "learned" (the order along which a model of random orders predicts
            held-out rows best; a quarter of the time goes into that model). None is the
            order of the frame.
        types: Types of columns by name, where values do not tell: "number", "category", "boolean",
            "datetime", "dmy" or "mdy" (dates with the day or the month first) or "ignore".
        missing_values: Markers of missing values besides NaN and None, such as "?" or -999.
        missing: Missingness: "mcar" takes missing values to be missing completely at random; "mar"
            allows them to depend on what is observed, by imputing them repeatedly in training.
        network: "perceptron" and "path", a Transformer, answer a query in one pass; "auto" is the
            first up to 256 columns, and the second beyond; "mlp" is the masked perceptron of ACE;
            None is the prior alone, a latent tree, fitted in seconds.
        streams: Streams of a Transformer: 2 keeps given and queried columns apart, and predicts
            single columns better; 1 has half the tokens, and learns whole rows sooner.
        layers: Number of blocks; None is 2 for a perceptron and 3 for others.
        width: Width of the network, 96 by default; of a perceptron, hidden units for each column,
            by default 10 to 40, fewer where columns are many.
        heads: Number of attention heads of a Transformer; must divide `width`.
        head: Family of densities: "mixture", "spline" or "energy".
        dropout: Share of features dropped in training.
        prior: If True, the network starts from a prior in closed form, fitted to the rows first, so
            that linear relations and clusters need not be learnt.
        members: Number of ensemble members, trained apart, each for its share of the time, and
            averaged. By default several where the table is small for the time, and one where the
            budget is in steps.
        clock: Clock of `minutes`: "wall", or "processor" for the time spent computing, which is
            the same on a busy machine.
        max_steps: Greatest number of training steps; by default, enough for some dozens of epochs.
        batch: Rows in a step; by default 64, and fewer where columns are many.
        learning_rate: Greatest learning rate.
        validation_share: Share of the rows held out for early stopping.
        patience: Evaluations without improvement before training stops; None, the default, stops
            where the gain of a third of the evaluations over the third before is below its standard
            error, and lets the learning rate decay before.
        warm_start: If True, `fit` continues from the fitted model.
        keep_rows: If True, the model keeps the rows it was fitted to, and saves them: answers then
            say how many of them match the evidence. More than 4 million cells are never kept.
        random_state: Seed of everything random in training; None is 0.
        minutes: Budget of `fit` in minutes, in all. None is until held-out likelihood stops
            improving, at most a minute for every 250,000 cells, and a quarter of a minute to 7; no
            limit where `max_steps` is given.
        settings: All training settings, in place of `minutes`, `clock`, `max_steps`, `batch`,
            `learning_rate` and `patience`, which are then not read. `settings.seed` takes the place
            of `random_state`.
        progress: Whether a line on standard error shows how training goes; by default it does in
            terminals and notebooks.
        device: Device to train on: "cpu", "cuda", "mps" or a torch.device; None is the GPU if there
            is one.

    Example:
        >>> model = TableModel(max_steps=5, layers=1, width=8, heads=2)
        >>> frame = pd.DataFrame({"age": [41, 30, 22], "job": ["nurse", "clerk", None]})
        >>> model.fit(frame).impute(frame)["job"].notna().all()
        np.True_
    """

    domain: ClassVar[str] = "table"

    @renamed(**OLD_NAMES)
    def __init__(
        self,
        *,
        queries: Queries = "any",
        context: Sequence[str] = (),
        order: Sequence[str] | Order | None = None,
        types: Mapping[str, str] | None = None,
        missing_values: Sequence[Any] = (),
        missing: Missing = "mcar",
        network: Network | None = "auto",
        streams: int = 2,
        layers: int | None = None,
        width: int | None = None,
        heads: int = 4,
        head: Head = "mixture",
        dropout: float = 0.1,
        prior: bool = True,
        members: int | None = None,
        clock: Clock = "wall",
        max_steps: int | None = None,
        batch: int | None = None,
        learning_rate: float = 2e-3,
        validation_share: float = 0.1,
        patience: int | None = None,
        warm_start: bool = False,
        keep_rows: bool = True,
        random_state: int | None = 0,
        minutes: float | None = None,
        settings: TrainingSettings | None = None,
        progress: bool | None = None,
        device: Device = None,
    ) -> None:
        self.queries, self.context, self.order = queries, context, order
        self.types, self.missing_values, self.missing = types, missing_values, missing
        self.network, self.streams = network, streams
        self.layers, self.width, self.heads = layers, width, heads
        self.head, self.dropout, self.prior, self.members = head, dropout, prior, members
        self.clock, self.max_steps, self.batch = clock, max_steps, batch
        self.learning_rate, self.validation_share = learning_rate, validation_share
        self.patience, self.warm_start, self.keep_rows = patience, warm_start, keep_rows
        self.random_state, self.minutes, self.settings = random_state, minutes, settings
        self.progress, self.device = progress, device

    @renamed(**OLD_NAMES)
    def set_params(self, **params: Any) -> Self:
        """Sets parameters by name, as scikit-learn's searches do; `fit` checks them."""
        super().set_params(**params)
        return self

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        sample_weight: Any = None,
        folder: str | Path | None = None,
    ) -> Self:
        """Fits the model to a table.

        Args:
            X: A frame (pandas, polars, pyarrow), an array, a dictionary of columns, or the path of
                a .csv, .tsv or .parquet file, which may be larger than memory.
            y: One more column, as scikit-learn gives targets; `predict` then predicts it.
            sample_weight: Weights of the rows.
            folder: Folder for checkpoints; the same call resumes from the last one.
        """
        self._budget()  # checked before anything is read
        keeps = check_flag("keep_rows", self.keep_rows)
        started = now(self._clock())
        file = self._file(X)
        large = file if file is not None and file.is_large else None
        if large is not None and (y is not None or sample_weight is not None):
            raise ConfigError("`y` and `sample_weight` need rows in memory: make them columns.")
        features = as_frame(X if file is None else file.frame(self._budget().seed))
        frame, target = with_target(features, y)
        weights = row_weights(sample_weight, len(frame))
        is_warm = self.warm_start and hasattr(self, "model_")
        if is_warm:
            table, law = self.table_, self.queries_
            if list(frame.columns) != list(table.layout):
                raise ConfigError("A warm start needs the columns of before: fit a new model.")
        else:
            table = self._table(frame, weights, None if folder is None else Path(folder), started)
            law = self._query_law(table)
        seen = RowPrint()
        if large is None:
            rows, held_out = self._split(table, frame, weights)
            for part in (rows, held_out):
                seen.add(part.x, part.missing)
        else:
            table, rows, held_out, seen = self._encoded(large, table, law, frame.attrs["rows"])
        if is_warm:
            table = table.widened(rows.x, ~rows.missing)
            members = members_of(self.model_.to(check_device(self.device)))
        else:
            members = self._new_members(table, rows, held_out)
        model = joined(members)
        settings = self._settings(rows, held_out)
        if isinstance(self.order, str) and self.order == "learned":
            settings = share_of(settings, 1 - EXPLORED)
        singles = single_columns(rows.missing.numel()) if isinstance(self.queries, str) else 0.0

        def training(
            member: AnyOrderModel, own: TrainingSettings, place: Path | None, spent: float
        ) -> Fit:
            return train(
                member,
                rows,
                law,
                settings=own,
                held_out=held_out,
                missing=self.missing,
                columns=singles,
                folder=place,
                notes={**self._notes(table, target, seen.to_json()), "members": len(members)},
                progress=self.progress,
                spent=spent,
            )

        place = None if folder is None else Path(folder)
        spent = now(self._clock()) - started
        done = train_members(
            members, training, settings, place, progress=self.progress, spent=spent
        )
        # Only now: what fails leaves the model that was there.
        self.table_, self.queries_, self.model_ = table, law, model
        self.target_, self.fit_, self.trained_on_ = target, done, seen.to_json()
        self.rows_ = None
        if keeps and large is None:
            every = rows.with_rows(held_out)
            self.rows_ = KeptRows.of(every.x, every.missing, every.weights)
        self.feature_names_in_ = np.array(list(features.columns), dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        if shows(self.progress) and is_first_process() and (line := verdict(done)):
            Console(stderr=True, highlight=False, soft_wrap=True).print(line)
        return self

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> pd.DataFrame:  # noqa: N803
        """Fits, then imputes missing values by their best guesses."""
        return self.fit(X, y, **options).transform(X)

    def save(self, folder: str | Path) -> None:
        """Saves the model with its columns and its query law."""
        self._fitted()
        notes = self._notes(self.table_, self.target_, self.trained_on_)
        beside = None if self.rows_ is None else self.rows_.tensors
        save_model(folder, self.model_, law=self.queries_, notes=notes, beside=beside)

    @classmethod
    def load(cls, folder: str | Path, *, device: Device = None) -> "TableModel":
        """Loads a saved model, or the last checkpoint of a training.

        Args:
            folder: Folder that `save` wrote.
            device: Device to load it to, as for `TableModel`.
        """
        loaded = cls.from_saved(load_saved(folder, device=check_device(device)), folder)
        return loaded.set_params(device=device)

    @classmethod
    def from_saved(cls, saved: SavedModel, folder: str | Path) -> "TableModel":
        """Returns the model of what was read from a folder; `folder` is for messages only."""
        if saved.notes.get("domain") != "table":
            raise CheckpointError(f'"{folder}" does not hold a model of a table.')
        try:
            loaded = cls(**_read_options(saved.notes["options"]))
            loaded.table_ = read_table_notes(saved.notes["table"], saved.model.schema)
            loaded.target_ = saved.notes["target"]
            loaded.trained_on_ = saved.notes.get("trained_on", {})
            if loaded.target_ is not None and loaded.target_ not in loaded.table_.layout:
                raise SchemaError(f"its target, {loaded.target_!r}, is no column")
            loaded.queries_ = as_query_law(saved.law)  # type: ignore[arg-type]
            loaded.rows_ = KeptRows.loaded(saved.beside, len(loaded.table_.schema))
        except Exception as error:  # whatever notes that were tampered with may set off
            raise CheckpointError(
                f'"{folder}" was altered, or written by another version ({error!r}).'
            ) from error
        loaded.model_ = saved.model
        columns = [name for name in loaded.table_.layout if name != loaded.target_]
        loaded.feature_names_in_ = np.array(columns, dtype=object)
        loaded.n_features_in_ = len(columns)
        return loaded

    save_pretrained = save
    from_pretrained = load

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _budget(self) -> TrainingSettings:
        """Returns the settings that do not depend on the rows; checks what all estimators share."""
        found = training_settings(TABLE_SETTINGS, self)
        if self.settings is not None or self.max_steps is None:
            return found
        steps = check_count("max_steps", self.max_steps)
        return replace(found, steps=steps, minutes=self.minutes)

    def _network(self, columns: int) -> Network | None:
        """Returns the kind of network for so many columns."""
        if self.network is None:
            return None
        check_choice("network", self.network, get_args(Network))
        return network_for(columns) if self.network == "auto" else self.network

    def _shape(self, columns: int, *, any_order: bool = False) -> Shape:
        """Returns kind and size of the network; a perceptron walks one order only in one pass."""
        check_count("streams", self.streams, high=2)
        network, layers, width = self._network(columns), self.layers, self.width
        if any_order and network == "perceptron":
            network, layers, width = "path", None, None
        blocks, units = default_size(network, columns)
        return Shape(
            network,
            int(self.streams),
            check_count("layers", blocks if layers is None else layers),
            check_count("width", units if width is None else width),
            check_count("heads", self.heads),
            self.head,
            check_fraction("dropout", self.dropout),
            check_flag("prior", self.prior),
            self.missing,
        )

    def _new_members(
        self, table: TableSchema, data: TableData, held_out: TableData
    ) -> list[AnyOrderModel]:
        """Returns untrained ensemble members; their prior is fitted to the rows."""
        first, device = self._budget().seed, check_device(self.device)
        rows = len(data.x) + len(held_out.x)
        seeds = range(first, first + self._num_members(rows, len(table.names)))
        shape = self._shape(len(table.names))
        members = [build(table.schema, shape, seed).to(device) for seed in seeds]
        read = data.sampled(first) if isinstance(data, CodesOnDisk) else data
        fit_prior(members, read, table.in_units, held_out)
        return members

    def _num_members(self, rows: int, columns: int) -> int:
        """Returns the number of ensemble members: as set, or as many as the time allows."""
        if self.members is not None:
            return check_count("members", self.members)
        budget, minutes = self._budget(), self._minutes(rows, columns)
        network, batch = self._network(columns), self._batch(columns)
        is_path = network in ("perceptron", "path")
        if not is_path or self.head != "mixture" or budget.steps is not None:
            return 1
        if minutes is None:
            return 1
        speed = SPEED_UP if network == "perceptron" else 1
        return members_for(rows, columns, speed * minutes, batch=batch)

    def _minutes(self, rows: int, columns: int) -> float | None:
        """Returns the most minutes of a fit to so many rows."""
        is_set = self.settings is not None or self.minutes is not None
        if is_set or self.max_steps is not None:
            return self._budget().minutes
        return minutes_for(rows, columns)

    def _clock(self) -> Clock:
        return self.clock if self.settings is None else self.settings.clock

    def _batch(self, columns: int) -> int:
        if self.settings is not None:
            return self.settings.batch
        return rows_of_a_step(columns) if self.batch is None else check_count("batch", self.batch)

    def _table(
        self, frame: pd.DataFrame, weights: Tensor | None, folder: Path | None, started: float
    ) -> TableSchema:
        """Infers the columns, in their canonical order."""

        def infer(order: Any) -> TableSchema:
            return TableSchema.infer(
                frame,
                types=self.types,
                missing_values=_listed(self.missing_values),
                context=_listed(self.context),
                order=None if order is None else [str(name) for name in _listed(order)],
            )

        kind = self.order
        if not isinstance(kind, str) or not is_chosen(kind, frame.columns):
            return infer(self.order)
        # A run that is gone on with has its order already, and a search would find another.
        kept = None if folder is None else folder / "order.json"
        if kept is not None and kept.exists():
            return infer(json.loads(kept.read_text()))
        table, seed = infer(None), self._budget().seed
        rows, held_out = self._split(table, frame, weights)

        def explorer() -> AnyOrderModel:
            shape = self._shape(len(table.names), any_order=True)
            model = build(table.schema, shape, seed, RemoveRandom())
            fit_prior([model.to(check_device(self.device))], rows, table.in_units)
            return model

        law, settings = self._query_law(table), self._settings(rows, held_out)
        check_any_order(law)
        spent = now(self._clock()) - started
        order = chosen_order(
            kind,
            table.schema,
            explorer,
            rows,
            held_out,
            law,
            settings,
            spent=spent,
        )
        names = [table.names[place] for place in order.tolist()]
        if kept is not None:
            make_folder(kept.parent)
            replace_text(kept, json.dumps(names))
        return table.ordered(names)

    def _split(
        self, table: TableSchema, frame: pd.DataFrame, weights: Tensor | None
    ) -> tuple[TableData, TableData]:
        """Splits the rows into training and held-out rows."""
        share = check_fraction("validation_share", self.validation_share)
        data = TableData(*table.encode(frame), weights)
        kept, held_out = split(len(data.x), share, self._budget().seed)
        if weights is not None and not weights[kept].any():
            raise ConfigError(
                "`sample_weight` leaves no row to train on: all of positive weight are held out."
            )
        return data.at(kept), data.at(held_out)

    def _file(self, source: Any) -> TableFile | None:
        """Returns the file of a path, if it is one."""
        if isinstance(source, str | Path):
            text = [name for name, kind in (self.types or {}).items() if kind in VERBATIM]
            return TableFile(Path(source), CsvHints(_listed(self.missing_values), text))
        return source if isinstance(source, TableFile) else None

    def _encoded(
        self, file: TableFile, table: TableSchema, law: QueryLaw, rows: int
    ) -> tuple[TableSchema, CodesOnDisk, TableData, RowPrint]:
        """Splits the rows of a large file; see `_split`."""
        share = check_fraction("validation_share", self.validation_share)
        found = file.encoded(table, law, rows, held_out=share, seed=self._budget().seed)
        if self.missing == "mar" and found[1].missing.any():
            raise ConfigError('missing="mar" needs rows in memory: fit a sample of the file.')
        return found

    def _query_law(self, table: TableSchema) -> QueryLaw:
        check_choice("missing", self.missing, get_args(Missing))
        return law_of(self.queries, table)

    def _settings(self, data: TableData, held_out: TableData) -> TrainingSettings:
        found, watched = self._budget(), len(held_out.x) > 0
        if self.settings is not None:
            return found if watched else replace(found, patience=None)
        rows, columns = data.missing.shape
        batch = min(self._batch(columns), max(rows, 1))
        steps = found.steps or min(max(1500, 60 * rows // batch), 50_000)
        patience = None if self.patience is None else check_count("patience", self.patience)
        return replace(
            found,
            minutes=self._minutes(rows + len(held_out.x), columns),
            batch=batch,
            steps=steps,
            clock=self.clock,
            learning_rate=_plain(self.learning_rate),
            warmup=min(100, steps // 4),
            evaluate_every=evaluations_for(rows // batch) if watched else None,
            patience=patience if watched else None,
        )

    def _notes(self, table: TableSchema, target: str | None, seen: Any) -> dict[str, Any]:
        options = self.get_params(deep=False)
        del options["queries"], options["device"]  # the law is saved by itself; a device is not
        if self.settings is not None:
            options["settings"] = asdict(self.settings)
        plain = {k: _plain(v) for k, v in options.items()}
        found = {"domain": "table", "table": table.describe(), "options": plain, "target": target}
        return {**found, "trained_on": seen}


def _read_options(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters of a saved model, of this version or of 0.1.0."""
    options = {OLD_NAMES.get(name, name): value for name, value in notes.items()}
    if options.get("settings") is not None:
        options["settings"] = TrainingSettings(**options["settings"])
    return options


def _listed(names: Any) -> list[Any]:
    """Returns one marker or name, or several, as a list."""
    if names is None:
        return []
    return [names] if isinstance(names, str | int | float) else list(names)


def _plain(value: Any) -> Any:
    """Returns an option as JSON holds it: numpy's numbers as Python's, iterables as lists."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return value
    return [_plain(item) for item in value]
