"""Work on the rows of a file in bounded memory: impute, score, evaluate and check.

A file is read in parts, one after another. `Completion` and `Scoring` work on a part in this
process, in others on this machine, or in a Dask cluster; results are yielded in the order of the
parts, so that the output is the same as that of one process. Only a few parts are in flight at a
time: memory stays flat however long the file is. The result of a part depends on nothing but its
rows and its seed, so that a part whose worker died is done again.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from anyorder.cli.console import note, plain, print_json, records, show
from anyorder.cli.options import EvaluateOptions
from anyorder.diagnostics.check import SEEN, check_model
from anyorder.diagnostics.evaluation import RowSample, Sampling
from anyorder.domains import Checked, Grid, load, of_domain
from anyorder.errors import (
    AnyOrderError,
    ConfigError,
    QueryError,
    SchemaError,
    check_count,
    check_seed,
    nearest,
)
from anyorder.lattice.masks import Bernoulli
from anyorder.lattice.query_laws import ConditionalQueries
from anyorder.tables.answers import CHECKED_ROWS, How
from anyorder.tables.columns import CategoryColumn, Column
from anyorder.tables.csv_dialect import CsvHints
from anyorder.tables.engine import log_prob_in_units
from anyorder.tables.evaluation import (
    GUESSED_ROWS,
    HEADINGS,
    Skill,
    column_skill,
    count_conditionals,
)
from anyorder.tables.files import column_names, read_chunks
from anyorder.tables.model import TableModel
from anyorder.tables.questions import column_set, is_for_any, named_sets, read_names
from anyorder.tables.schema import TableSchema, as_frame
from anyorder.training.batches import RowPrint

Item = TypeVar("Item")
Result = TypeVar("Result")

WorkerPool = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
"""Applies a function to each part, in order."""

AHEAD = 2
"""Parts in flight for each worker: one that it works on, and one that waits for it."""

PATIENCE = 10
"""Seconds within which a scheduler must answer."""

RETRIES = 3
"""Number of times that a part is done again whose worker died."""


@contextmanager
def worker_pool(*, workers: int = 1, cluster: str | None = None) -> Iterator[WorkerPool]:
    """Opens a pool of workers, and closes it at the end of the `with` block.

    Args:
        workers: Number of processes on this machine; 1 is this process itself.
        cluster: Address of a Dask scheduler, such as "tcp://10.0.0.1:8786", in place of these. Its
            workers need anyorder, and the folder of the model under the same path.
    """
    check_count("workers", workers)
    if cluster is None and workers == 1:
        yield map
        return
    distributed = _distributed()
    with _client(distributed, workers, cluster) as client:
        ahead = AHEAD * max(1, sum(client.nthreads().values()))
        yield lambda function, parts: in_order(client, function, parts, ahead=ahead)


def in_order(
    client: Any, function: Callable[[Item], Result], parts: Iterable[Item], *, ahead: int
) -> Iterator[Result]:
    """Yields the results of workers in the order of the parts, at most `ahead` in flight."""
    in_flight: deque[Any] = deque()
    for part in parts:
        in_flight.append(client.submit(function, part, retries=RETRIES, pure=False))
        if len(in_flight) >= ahead:
            yield _result(in_flight.popleft())
    while in_flight:
        yield _result(in_flight.popleft())


@lru_cache(maxsize=1)
def loaded(folder: str) -> Any:
    """Returns the model of a folder, read once in each process."""
    return load(Path(folder))


def _client(distributed: Any, workers: int, cluster: str | None) -> Any:
    if cluster is None:
        # torch has threads of its own, so each process has one.
        local = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        return distributed.Client(distributed.LocalCluster(**local, processes=True))
    try:
        return distributed.Client(cluster, timeout=PATIENCE)
    except (OSError, ValueError, TypeError, AssertionError) as error:  # the last: it is late
        raise ConfigError(
            f'`cluster` must be the address of a Dask scheduler that runs; got "{cluster}" '
            f"({' '.join(str(error).split())[:200]}). Start one with: dask scheduler. It says its "
            'address, such as "tcp://10.0.0.1:8786".'
        ) from None


def _result(future: Any) -> Any:
    try:
        return future.result()
    except AnyOrderError:
        raise
    except _distributed().scheduler.KilledWorker as error:
        raise ConfigError(
            f"A part of the table ended its worker {RETRIES} times: it may need more memory."
        ) from error
    finally:
        future.release()


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise ConfigError('Several workers need Dask: pip install "anyorder[scale]".') from None
    return distributed


def table_chunks(table: TableSchema, file: Path, *, rows: int) -> Iterator[pd.DataFrame]:
    """Reads a file for a model in frames of at most so many rows, counted from 0 in the index."""
    names, start = column_names(file), 0
    if names and not set(names) & set(table.layout):
        raise SchemaError(
            f'"{file}" has no column of the model, which begin with "{table.layout[0]}"; it has '
            f'"{names[0]}"{" and others" if names[1:] else ""}.'
        )
    hints, known = csv_hints(table, file), {c.name for c in (*table.query, *table.context)}
    _warn_misspelt(names, table, file)
    for chunk in read_chunks(
        file,
        rows=rows,
        missing_values=hints.missing_values,
        text=hints.text,
        untouched=[name for name in names if name not in known],
        decimals=hints.known,
    ):
        frame = as_frame(chunk)
        yield frame.set_axis(range(start, start + len(frame)))
        start += len(frame)


def _warn_misspelt(names: Sequence[str], table: TableSchema, file: Path) -> None:
    """Warns of columns that look like ones of the model that the file lacks."""
    lacking = [name for name in table.layout if name not in names]
    for name in names:
        hint = "" if name in table.layout else nearest(name, lacking)
        if hint:
            note(
                f'warning: "{file.name}" has a column "{name}" that the model does not know.{hint} '
                "That column is read as missing in every row."
            )


def csv_hints(table: TableSchema, file: Path) -> CsvHints:
    """Returns hints for reading a file: markers of missing values, text columns, decimals."""
    numbers = {c.name for c in (*table.query, *table.context) if not _is_text(c)}
    text = [name for name in column_names(file) if name not in numbers]
    return CsvHints(table.missing_values, text, table.decimals)


def _is_text(column: Column) -> bool:
    """Returns whether a column holds text to the model, even if it looks like numbers, as 01234."""
    return isinstance(column, CategoryColumn) and any(isinstance(v, str) for v in column.levels)


class Part(NamedTuple):
    """Some rows of a table, and the seed of their samples."""

    frame: pd.DataFrame
    seed: int


def parts(table: TableSchema, file: Path, *, rows: int, seed: int = 0) -> Iterator[Part]:
    """Yields a file in parts; samples depend on the part, not on the worker."""
    for number, frame in enumerate(table_chunks(table, file, rows=rows)):
        yield Part(frame, seed + number)


def table_run(run: Path) -> tuple[TableSchema, str]:
    """Returns the schema of a saved model, and its folder as other processes find it."""
    folder = str(run.absolute()) if run.is_dir() else str(run)
    return of_domain(loaded(folder), run, "table").table_, folder


@dataclass(frozen=True)
class Completion:
    """Imputes the missing values of a part."""

    run: str
    draws: int
    how: How

    def __call__(self, part: Part) -> tuple[pd.DataFrame, int]:
        """Returns the columns of the file, then those it lacks; and the count of missing values."""
        model: TableModel = loaded(self.run)
        table, frame = model.table_, part.frame
        filled = model.impute(frame, draws=self.draws, how=self.how, random_state=part.seed)
        for name in frame.columns:
            if name not in table.layout:
                filled[name] = pd.concat([frame[name]] * self.draws).array
        lacking = [name for name in table.names if name not in frame.columns]
        missing = int(frame.reindex(columns=list(table.names)).isna().to_numpy().sum())
        filled = filled[[*frame.columns, *lacking]]
        return filled if self.draws == 1 else _numbered(filled), missing


@dataclass(frozen=True)
class Scoring:
    """Scores each row of a part by its log-likelihood."""

    run: str
    query: Sequence[str] | None
    given: Sequence[str] | None

    def __call__(self, part: Part) -> tuple[pd.DataFrame, int]:
        """Returns row numbers and log-likelihoods; and how many rows lack a queried value: NaN."""
        model: TableModel = loaded(self.run)
        frame, asked = part.frame, [name for name in self.query or () if name in part.frame.columns]
        whole = frame[asked].notna().all(axis=1).to_numpy()
        found = np.full(len(frame), np.nan)
        if whole.any():
            found[whole] = model.log_prob(frame[whole], query=self.query, given=self.given)
        scores = pd.DataFrame({"row": frame.index, "log_prob": found})
        return scores, int(np.isnan(found).sum())


def _numbered(filled: pd.DataFrame) -> pd.DataFrame:
    """Puts the number of the imputation and that of the row in front."""
    for name in ("draw", "row"):
        if name in filled.columns:
            raise ConfigError(
                f'Several imputations are numbered by a column "{name}", which the table has '
                "already. Rename it, or take one."
            )
    return filled.reset_index()


ROWS_AT_ONCE = 16_384
"""Rows of the file in memory."""

WORST_COUNTS = 8
"""Conditionals that are listed beside counts."""

MOST_ROWS = 5000
"""Greatest number of rows of a report."""

LITTLE, FEWEST_CELLS = 0.05, 30
"""Share of a column's errors below which the rest of its row helps little, and the least number of
cells to judge it by."""


@dataclass
class RunningMean:
    """Mean and standard error of values that come in parts.

    Example:
        >>> running = RunningMean()
        >>> running.add(torch.tensor([1.0, 2.0]))
        >>> running.add(torch.tensor([6.0]))
        >>> running.mean, round(running.se, 4)
        (3.0, 1.5275)
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: Tensor) -> None:
        """Adds values, by the update of Chan, Golub and LeVeque (1979)."""
        if not len(values):
            return
        number, mean = len(values), float(values.double().mean())
        apart, total = mean - self.mean, self.count + number
        spread = float((values.double() - mean).square().sum())
        self.squares += spread + apart**2 * self.count * number / total
        self.mean += apart * number / total
        self.count = total

    @property
    def se(self) -> float:
        """Standard error of the mean."""
        if self.count < 2:
            return math.nan
        return math.sqrt(self.squares / (self.count - 1) / self.count)

    def to_json(self) -> dict[str, float | int | None]:
        """Returns plain values."""
        return {"value": self.mean, "se": self.se if self.count > 1 else None, "n": self.count}

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.se:.4f}"


def evaluate_table(model: TableModel, file: Path, options: EvaluateOptions) -> None:
    """Prints the log-likelihood of a file's rows; see `anyorder evaluate --help`."""
    seed = check_seed(options.seed)
    asked = read_names(options.query, option="--query")
    known = read_names(options.given, option="--given")
    if known and not asked:
        raise QueryError("`--given` needs `--query`: name the columns to query.")
    found: dict[str, RunningMean] = {}
    rows, sample = RowPrint(), RowSample(GUESSED_ROWS, seed=seed)
    for number, frame in enumerate(table_chunks(model.table_, file, rows=ROWS_AT_ONCE)):
        if asked:
            parts = {"query": _stated(model, frame, asked, known)}
        else:
            parts = _all_and_half(model, frame, seed + number)
        for name, part in parts.items():
            found.setdefault(name, RunningMean()).add(part)
        x, missing = model.table_.encode(frame)
        rows.add(x, missing)
        sample.add(x, missing)
    if not any(running.count for running in found.values()):
        raise SchemaError(f'"{file}" has no row with all queried columns.')
    seen = rows.to_json() == model.trained_on_
    skill = [] if asked else _skill(model, sample)
    if options.json:
        nats = {name: part.to_json() for name, part in found.items()}
        document = {"data": file.name, "rows": rows.rows, "trained_on": seen, "nats": nats}
        if skill:
            document["columns"] = {one.column: one.to_json() for one in skill}
        print_json(document)
        return
    questions = {
        "joint": "all that a row has",
        "conditional": "a random half of it, given the other",
        "query": ", ".join(asked) + (f" given {', '.join(known)}" if known else ""),
    }
    show(
        ["query", "nats a row", "rows"],
        [[questions[name], str(part), f"{part.count:,}"] for name, part in found.items()],
        title=f"{file.name}: log-likelihoods of {rows.rows:,} rows; more is better",
        numbers=["nats a row", "rows"],
    )
    if skill:
        _show_skill(skill)
    if seen:
        note(SEEN)


def check_table(
    model: TableModel, file: Path, *, rows: int | None, target: str | None, seed: int
) -> Checked:
    """Checks a model on a random sample of a file's rows; see `anyorder check --help`."""
    if target is not None:
        column_set(model.table_, target, argument="--target", allow_context=False)
        if not isinstance(model.table_[target], CategoryColumn):
            raise QueryError(f'`--target` must be a category; "{target}" is a number.')
    sample, fingerprint = RowSample(CHECKED_ROWS if rows is None else rows, seed=seed), RowPrint()
    for frame in table_chunks(model.table_, file, rows=ROWS_AT_ONCE):
        x, missing = model.table_.encode(frame)
        sample.add(x, missing)
        fingerprint.add(x, missing)
    found = check_model(model.model_, sample.x, sample.missing, seed=seed, progress=True)
    seen = fingerprint.to_json() == model.trained_on_
    document, grids = _counts(model, sample)
    if target is not None:
        told, grid = _reliability(model, sample, target)
        document, grids = {**document, "target": told}, [*grids, grid]
    return Checked(found, f"{found.rows:,} of {sample.seen:,} rows", seen, document, grids)


def _counts(model: TableModel, sample: RowSample) -> tuple[dict[str, Any], list[Grid]]:
    """Returns conditionals of one column beside the shares of rows, the worst in full."""
    found = count_conditionals(model.model_, model.table_, sample.x, sample.missing)
    if not found:
        return {}, []
    worst = sorted(found, key=lambda one: -abs(one.z))[:WORST_COUNTS]
    mean = math.sqrt(sum(one.z**2 for one in found) / len(found))
    document = {
        "conditionals": len(found),
        "rms_z": mean,
        "worst": [{**vars(one), "z": one.z} for one in worst],
    }
    title = (
        f"Answers beside counts: {len(found):,} probabilities given nothing or one category, off "
        f"by {mean:.2f} standard errors of the share (1 is chance, on new rows); the worst"
    )
    cells = [
        [
            f"p({one.event} | {one.given})" if one.given else f"p({one.event})",
            f"{one.probability:.1%}",
            f"{one.share:.1%}",
            f"{one.rows:,}",
            f"{one.z:+.1f}",
        ]
        for one in worst
    ]
    headings = ("probability", "model", "share of rows", "rows", "standard errors")
    return {"counts": document}, [Grid(title, headings, cells)]


def _reliability(model: TableModel, sample: RowSample, target: str) -> tuple[dict[str, Any], Grid]:
    """Returns the reliability of one category given the rest of its row, by tenths of the rows."""
    found = model.reliability(model.table_.decode(sample.x, sample.missing), target)
    level = found["level"].iloc[0]
    cells = [
        [f"{place}", f"{one.predicted:.1%}", f"{one.share:.1%} ± {one.se:.1%}", f"{one.rows:,}"]
        for place, one in enumerate(found.itertuples(), start=1)
    ]
    title = f"p({target}={level} | the rest of the row), by tenths of the rows"
    told = {
        "column": target,
        "level": plain(level),
        "deciles": records(found.drop(columns="level")),
    }
    return told, Grid(title, ("tenth", "predicted", "happened", "rows"), cells)


def sampled_rows(model: TableModel, file: Path, *, seed: int) -> tuple[pd.DataFrame, bool]:
    """Returns random rows of a file, and whether the model was trained on the file.

    They are in random order, and the first of them are those that `check` takes with the same seed.
    """
    sampling, kept, rows = Sampling(MOST_ROWS, seed=seed), pd.DataFrame(), RowPrint()
    for frame in table_chunks(model.table_, file, rows=ROWS_AT_ONCE):
        kept = pd.concat([kept, frame]).iloc[sampling.keep(len(frame)).numpy()]
        rows.add(*model.table_.encode(frame))
    return kept, rows.to_json() == model.trained_on_


def _skill(model: TableModel, sample: RowSample) -> list[Skill]:
    """Returns the skill of columns, of a model that was trained for any query."""
    if not is_for_any(model.queries_):
        return []
    return column_skill(model.model_, model.table_, sample.x, sample.missing)


def _show_skill(skill: Sequence[Skill]) -> None:
    rows = [[one.column, f"{one.cells:,}", *one.words] for one in skill]
    title = "Prediction of each column from the others, and the share of its error that they save"
    show(HEADINGS, rows, title=title, numbers=HEADINGS[1:])
    gains = [one.gain for one in skill if one.gain is not None and one.cells >= FEWEST_CELLS]
    if gains and max(gains) < LITTLE:
        note(
            "warning: no column is predicted better from the rest of its row than without. Either "
            "the columns are independent, or the training was too short: fit the model again with "
            "more `--minutes`."
        )


def _stated(
    model: TableModel, frame: pd.DataFrame, asked: Sequence[str], known: Sequence[str]
) -> Tensor:
    """Returns the log-likelihoods of one query, of the rows that have all its columns."""
    table = model.table_
    query, given = named_sets(table, asked, known, prefix="--")
    x, missing = table.encode(frame, needs=asked)
    rows = ~(missing & query).any(dim=1)
    frame, x, missing = frame[rows.numpy()], x[rows], missing[rows]
    sets = {"query": query.expand_as(missing), "given": given & ~missing}
    return log_prob_in_units(model.model_, table, frame, x, **sets)


def _all_and_half(model: TableModel, frame: pd.DataFrame, seed: int) -> dict[str, Tensor]:
    """Returns the log-likelihoods of all that a row has, and of a random half given the other."""
    x, missing = model.table_.encode(frame)
    rows = ~missing.all(dim=1)
    frame, x, have = frame[rows.numpy()], x[rows], ~missing[rows]
    if not len(frame):
        return {}
    law = ConditionalQueries(have.shape[1], Bernoulli(have.shape[1], 0.5))
    generator = torch.Generator().manual_seed(seed)
    half = law.sample(len(have), available=have, generator=generator)
    sets = {"joint": (have, torch.zeros_like(have)), "conditional": (half.query, half.given)}
    return {
        name: log_prob_in_units(model.model_, model.table_, frame, x, query=query, given=given)
        for name, (query, given) in sets.items()
    }
