"""The query engine of tables: a batch of questions in, answers out, all of them as codes.

A question asks for p(variable | evidence) of some variables. Evidence is encoded once per distinct
evidence set: rows with the same values of the same variables share a pass of the network, whatever
is queried. `rows_at_once` alone decides how many evidence sets a pass has.

Distributions are answered many at once too (`anyorder.inference.univariates`). Where samples stand
for the evidence (intervals and sets of levels), a distribution is the mixture over them;
`code_range` turns an interval of values into one of codes. `KeptRows` counts the rows of training
that match the evidence, to put them beside the answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.errors import SchemaError
from anyorder.heads.atoms import AtomicDistribution, log_masses_at
from anyorder.heads.distributions import Categorical, ContinuousDistribution, Distribution
from anyorder.heads.mixed import MixedDistribution
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import (
    GAIN_NODES,
    Interval,
    Levels,
    SoftEvidence,
    answering,
    log_prob,
    sample,
    soft_evidence,
)
from anyorder.inference.univariates import Edges, Levelled, Numbers
from anyorder.lattice.protocols import alike
from anyorder.networks.contracts import Features
from anyorder.priors.normals import MOST_ENTRIES
from anyorder.tables.columns import CategoryColumn, Column, NumberColumn
from anyorder.tables.parsing import BoolArray, FloatArray
from anyorder.tables.schema import TableSchema

CELLS_AT_ONCE, ROWS_AT_ONCE = 262_144, 2048
"""Greatest numbers of cells and of rows in a pass."""

COVARIANCES_AT_ONCE = 2**25
"""Greatest number of covariances in a pass: in a prior each row may have its own, of all pairs of
columns or of the normals of fewer."""

SAMPLES_AT_ONCE = 2048
"""Rows that are sampled together."""


def rows_at_once(columns: int) -> int:
    """Returns the number of rows in a pass over so many columns: what memory allows."""
    return max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // columns, _rows_with_prior(columns)))


def parts(rows: int, columns: int) -> Iterator[slice]:
    """Returns the rows of a table as slices of at most `rows_at_once`."""
    size = rows_at_once(columns)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _rows_with_prior(columns: int) -> int:
    return max(1, COVARIANCES_AT_ONCE // max(MOST_ENTRIES, columns**2))


@dataclass(frozen=True)
class Evidence:
    """Evidence about one row.

    Args:
        x: Values. Shape ``(1, columns)``.
        given: Variables whose values are given. Shape ``(vars,)``.
        regions: Intervals or sets of levels that hold other variables.
    """

    x: Tensor
    given: Tensor
    regions: Mapping[int, Interval | Levels]

    def sampled(
        self, model: AnyOrderModel, n: int, generator: torch.Generator | None
    ) -> SoftEvidence:
        """Returns `n` weighted samples of the regions; without regions the values, and no pass."""
        if not self.regions:
            alone = torch.zeros(1, dtype=torch.float64)
            return SoftEvidence(self.x, self.given, alone, is_drawn=False)
        return soft_evidence(
            model, self.x, given=self.given, regions=self.regions, n=n, generator=generator
        )


@dataclass(frozen=True)
class Question:
    """p(variable | evidence) of some variables, each by itself.

    Args:
        evidence: Weighted samples of the evidence.
        variables: Numbers of the variables.
        given: The evidence itself, by which training rows are counted.
    """

    evidence: SoftEvidence
    variables: Sequence[int]
    given: Evidence


@answering
def answer(model: AnyOrderModel, questions: Sequence[Question]) -> list[list[Features]]:
    """Answers a batch of questions, with one encoding of each distinct evidence set.

    Returns:
        The features of p(variable | evidence), for each question and each of its variables, as
        `Edges` takes them. Shapes ``(samples, width)``.
    """
    if not any(question.variables for question in questions):
        return [[] for _ in questions]
    rows, variables, start = [], [], 0
    for question in questions:  # by variable, then by sample
        samples = len(question.evidence.x)
        queried = torch.tensor(question.variables, dtype=torch.long)
        rows.append(torch.arange(start, start + samples).repeat(len(queried)))
        variables.append(queried.repeat_interleave(samples))
        start += samples
    x = torch.cat([question.evidence.x.cpu() for question in questions])
    known = torch.cat([q.evidence.known.cpu().expand(len(q.evidence.x), -1) for q in questions])
    with torch.inference_mode():  # cheaper than no gradients
        found = _features(model, x, known, torch.cat(rows), torch.cat(variables))
    answers, start = [], 0
    for question in questions:
        samples = len(question.evidence.x)
        ends = [start + samples * place for place in range(len(question.variables) + 1)]
        answers.append([found[low:high] for low, high in pairwise(ends)])
        start = ends[-1]
    return answers


def _features(
    model: AnyOrderModel, x: Tensor, known: Tensor, rows: Tensor, variables: Tensor
) -> Features:
    """Returns the features of edges, in their order; see `passes`. Shape ``(edges, width)``."""
    order, found = zip(*passes(model, x, known, rows, variables), strict=True)
    return Features.cat(found)[torch.cat(order).argsort().to(found[0].device)]


def passes(
    model: AnyOrderModel, x: Tensor, known: Tensor, rows: Tensor, variables: Tensor
) -> Iterator[tuple[Tensor, Features]]:
    """Yields the features of p(variable | evidence of a row), some evidence sets at a time.

    Args:
        model: The model, in evaluation mode.
        x: Values. Shape ``(rows, columns)``.
        known: Evidence of each row. Shape ``(rows, vars)``.
        rows: Row of each edge. Shape ``(edges,)``.
        variables: Variable of each edge. Shape ``(edges,)``.

    Yields:
        Places among the edges, and their features. Shapes ``(some,)`` and ``(some, width)``.
    """
    if not len(rows):
        return
    first, group = _distinct(x, known, rows)
    # Each variable that is queried of an evidence set once, in the order of the sets.
    pairs, edge = (group * model.num_variables + variables).unique(return_inverse=True)
    owner, variable = pairs // model.num_variables, pairs % model.num_variables
    counts = owner.bincount(minlength=len(first))
    place = torch.arange(len(pairs)) - (counts.cumsum(0) - counts)[owner]
    by_pair, edges_of = edge.argsort(stable=True), edge.bincount(minlength=len(pairs))
    widest = int(counts.max())
    for some in parts(len(first), x.shape[1] + widest):
        begin, end = torch.searchsorted(owner, torch.tensor([some.start, some.stop])).tolist()
        targets = torch.zeros(some.stop - some.start, int(counts[some].max()), dtype=torch.long)
        mine, at = owner[begin:end] - some.start, place[begin:end]
        targets[mine, at] = variable[begin:end]
        sets = first[some]
        found = model.features(*(part.to(model.device) for part in (x[sets], known[sets], targets)))
        repeats = edges_of[begin:end]
        skipped, taken = int(edges_of[:begin].sum()), int(repeats.sum())
        mine, at = (part.repeat_interleave(repeats).to(found.device) for part in (mine, at))
        yield by_pair[skipped : skipped + taken], found[mine, at]


def _distinct(x: Tensor, known: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a row of each distinct evidence set, and the set of each entry of `rows`."""
    queried, inverse = rows.unique(return_inverse=True)
    if len(queried) == 1:
        return queried, inverse
    seen, sets = x[queried].clone(), known[queried]
    seen[:, : sets.shape[1]].masked_fill_(~sets, 0)
    lines = np.concatenate([seen.numpy().view(np.uint8), sets.numpy().view(np.uint8)], axis=1)
    whole = np.ascontiguousarray(lines).view(f"V{lines.shape[1]}")[:, 0]
    _, first, group = np.unique(whole, return_index=True, return_inverse=True)
    # In the order of the rows, so that a batch is computed as it was written.
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return queried[np.sort(first)], torch.from_numpy(rank[group.ravel()])[inverse]


def row_log_prob(model: AnyOrderModel, x: Tensor, *, query: Tensor, given: Tensor) -> Tensor:
    """Returns the log-likelihood of each row's question, in normal scores. Shape ``(rows,)``."""
    found = [
        log_prob(model, x[rows], query=query[rows], given=given[rows]).cpu()
        for rows in parts(len(x), x.shape[1])
    ]
    return torch.cat([torch.zeros(0, dtype=torch.float64), *found])


def log_prob_in_units(
    model: AnyOrderModel,
    table: TableSchema,
    frame: pd.DataFrame,
    x: Tensor,
    *,
    query: Tensor,
    given: Tensor,
) -> Tensor:
    """Returns the same in the units of the columns, for the rows of a frame and their codes `x`."""
    factors = table.log_density_factors(frame)
    return row_log_prob(model, x, query=query, given=given) + (factors * query).sum(dim=1)


def cell_nll(model: AnyOrderModel, x: Tensor, missing: Tensor) -> Tensor:
    """Returns negative log-likelihoods of cells given the rest of their rows; NaN if missing."""
    have, cells = ~missing, torch.full(missing.shape, torch.nan, dtype=torch.float64)
    for place in range(missing.shape[1]):
        alone = torch.arange(missing.shape[1]) == place
        rows = have[:, place].nonzero().squeeze(1)
        if len(rows):
            query = alone.expand(len(rows), -1)
            given = have[rows] & ~query
            cells[rows, place] = -row_log_prob(model, x[rows], query=query, given=given)
    return cells


def sample_rows(
    model: AnyOrderModel,
    x: Tensor,
    known: Tensor,
    *,
    n: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Samples rows: all from one row of evidence, or one from each. Shape ``(n, columns)``."""
    if known.all():
        return x.expand(n, -1)
    if len(x) == 1:
        counts = [len(part) for part in torch.arange(n).split(SAMPLES_AT_ONCE)]
        found = [sample(model, x, given=known, n=count, generator=generator)[0] for count in counts]
    else:
        found = [
            sample(model, part, given=known, generator=generator)[:, 0]
            for part in x.split(SAMPLES_AT_ONCE)
        ]
    return torch.cat(found).cpu()


def fill_gaps(
    model: AnyOrderModel,
    x: Tensor,
    missing: Tensor,
    *,
    draws: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Returns rows with missing values sampled together. Shape ``(rows, draws, columns)``."""
    filled = x[:, None].repeat(1, draws, 1)
    incomplete = missing.any(dim=1).nonzero().squeeze(1)
    incomplete = incomplete[alike(missing[incomplete], ~missing[incomplete])]  # little is padded
    most = max(1, min(SAMPLES_AT_ONCE // draws, _rows_with_prior(x.shape[1])))
    for rows in incomplete.split(most) if len(incomplete) else ():
        query = missing[rows]
        found = sample(model, x[rows], query=query, given=~query, n=draws, generator=generator)
        filled[rows] = found.to(filled)
    return filled


@answering
def level_probabilities(model: AnyOrderModel, x: Tensor, known: Tensor, place: int) -> Tensor:
    """Returns the probability of each level of a category. Shape ``(rows, levels)``."""
    found = torch.zeros(len(x), model.schema.variables[place].num_levels)
    for rows, _, conditional in _columns(model, x, known, _column(known, place)):
        assert isinstance(conditional, Categorical)
        found[rows] = conditional.log_probs.exp()[:, : found.shape[1]].cpu()
    return found


@answering
def central_codes(
    model: AnyOrderModel, x: Tensor, known: Tensor, place: int
) -> NDArray[np.float64]:
    """Returns medians of a number, or most probable levels, as codes. Shape ``(rows,)``."""
    found = torch.zeros(len(x), dtype=torch.float64)
    for rows, _, conditional in _columns(model, x, known, _column(known, place)):
        is_category = isinstance(conditional, Categorical)
        half = torch.full((len(rows),), 0.5, dtype=torch.float64, device=model.device)
        codes = conditional.mode() if is_category else conditional.icdf(half)
        found[rows] = codes.double().cpu()
    return found.numpy()


@answering
def medians(model: AnyOrderModel, x: Tensor, known: Tensor, place: int) -> Tensor:
    """Returns medians m of a number as codes, P(X < m) + P(X = m) / 2, and P(X = m).

    An atom may be the median, and then the second is not one half. Shape ``(rows, 3)``.
    """
    found = torch.zeros(len(x), 3, dtype=torch.float64)
    for rows, _, conditional in _columns(model, x, known, _column(known, place)):
        half = torch.full((len(rows),), 0.5, dtype=torch.float64, device=model.device)
        median, tie = conditional.icdf(half).double(), torch.zeros_like(half)
        if isinstance(conditional, AtomicDistribution):
            tie = log_masses_at(median, conditional.branches, conditional.atoms)[0].exp()
        below = conditional.cdf(median) - tie / 2
        found[rows] = torch.stack([median, below, tie], dim=-1).to(found)
    return found


@answering
def best_predictions(
    model: AnyOrderModel, table: TableSchema, x: Tensor, known: Tensor, query: Tensor, *, mean: bool
) -> dict[int, pd.Series]:
    """Returns the mean of a number, or the most probable value, of every queried cell by itself.

    Returns:
        The predictions of each column with queried cells, in the order of the rows.
    """
    found = torch.zeros(query.shape, dtype=torch.float64)
    for rows, place, conditional in _columns(model, x, known, query):
        predicted = _prediction(table.query[place], conditional, mean=mean)
        found[rows, place] = torch.from_numpy(predicted)
    places = query.any(dim=0).nonzero().squeeze(1).tolist()
    predictions = {place: found[query[:, place], place].numpy() for place in places}
    return {
        place: column.unrounded(values)
        if mean and isinstance(column := table.query[place], NumberColumn)
        else table.query[place].decode(values)
        for place, values in predictions.items()
    }


def _column(known: Tensor, place: int) -> Tensor:
    return (torch.arange(known.shape[1]) == place).expand_as(known)


def _columns(
    model: AnyOrderModel, x: Tensor, known: Tensor, query: Tensor
) -> Iterator[tuple[Tensor, int, Distribution]]:
    """Yields rows, a column, and its distribution in them, for all queried cells."""
    row, variable = query.nonzero(as_tuple=True)
    for edges, features in passes(model, x, known, row, variable):
        queried = variable[edges]
        for place in queried.unique().tolist():
            mine = (queried == place).nonzero().squeeze(1)
            own = features[mine.to(features.device)]
            which = torch.full((len(own),), place, device=own.device)
            conditional = model.distribution(own, which)
            assert isinstance(conditional, MixedDistribution)
            yield row[edges[mine]], place, conditional.only


def _prediction(column: Column, conditional: Distribution, *, mean: bool) -> NDArray[np.float64]:
    """Returns means in the units of the column, or the codes of the most probable values.

    Numbers are clipped to the range of training: a long tail without data would dominate the mean.
    """
    if not (mean and isinstance(column, NumberColumn)):
        return conditional.mode().double().cpu().numpy()
    assert isinstance(conditional, ContinuousDistribution | AtomicDistribution)
    codes, weights = (part.double().cpu().numpy() for part in conditional.nodes())
    numbers = column.numbers(codes.ravel()).reshape(codes.shape)
    found: NDArray[np.float64] = (weights * np.clip(numbers, *column.seen)).sum(axis=0)
    return found


@answering
def information_gains(model: AnyOrderModel, evidence: Evidence, target: int) -> dict[int, float]:
    """Returns the expected information gain of each other variable about `target`, in nats.

    As `queries.information_gain`, for all variables together: one pass for their distributions, and
    one for `target` given each of their values.
    """
    others = [i for i in range(model.num_variables) if i != target and not evidence.given[i]]
    if not others:
        return {}
    known, nothing = evidence.given[None], torch.zeros(len(others) + 1, dtype=torch.long)
    first = torch.tensor([target, *others])
    before, valued = 0.0, []
    for numbers, group in _single(model, evidence.x, known, nothing, first):
        codes, weights = _values(group)
        for at, number in enumerate(numbers):
            if number == 0:
                before = float(group.entropy()[at])
                continue
            likely = weights[:, at] > 0
            learned = torch.full((int(likely.sum()),), others[number - 1])
            valued.append((learned, codes[likely, at], weights[likely, at]))
    learned, value, weight = (torch.cat(part) for part in zip(*valued, strict=True))
    rows = torch.arange(len(learned))
    x, sets = (part.repeat(len(rows), 1) for part in (evidence.x, known))
    x[rows, learned], sets[rows, learned] = value.to(x), True
    ((_, group),) = _single(model, x, sets, rows, torch.full_like(rows, target))
    after = torch.zeros(model.num_variables, dtype=torch.float64)
    after.index_add_(0, learned, weight * group.entropy())
    return {other: before - float(after[other]) for other in others}


def _single(
    model: AnyOrderModel, x: Tensor, known: Tensor, rows: Tensor, variables: Tensor
) -> Iterator[tuple[list[int], Levelled | Numbers]]:
    """Yields the distributions of edges, each by itself; see `passes`."""
    features, alone = _features(model, x, known, rows, variables), torch.ones(len(rows))
    return Edges(features, variables, torch.arange(len(rows)), alone.double()).groups(model)


def _values(group: Levelled | Numbers) -> tuple[Tensor, Tensor]:
    """Returns codes that stand for distributions, and their weights: ``(codes, count)`` both."""
    if isinstance(group, Levelled):
        weights = group.probabilities.T
        return torch.arange(len(weights))[:, None].expand_as(weights), weights
    codes = group.quantiles((torch.arange(GAIN_NODES) + 0.5) / GAIN_NODES)
    return codes, torch.full_like(codes, 1 / GAIN_NODES)


MOST_CELLS = 4_000_000
"""Cells that are kept at most: 16 MB, and milliseconds a question. Rows of larger tables are not
kept, and their answers are not counted."""


@dataclass(frozen=True)
class Count:
    """Training rows that match some evidence and have a value of the queried column.

    Attributes:
        rows: Number of rows.
        shares: Share of each level among them, weighted as in training; None for a number, and
            where there are no rows.
    """

    rows: int
    shares: FloatArray | None


@dataclass(frozen=True)
class KeptRows:
    """Codes of the rows that a model was fitted to, held-out rows among them.

    A row matches evidence if it has every given value, and a value in every interval and set of
    levels. The share of matching rows with a level is what the model's probability should be close
    to, as far as there are enough of them.

    Args:
        codes: Codes of each column, NaN where a value is missing. Shape ``(columns, rows)``.
        weights: Weights of the rows. Shape ``(rows,)``, float64.
    """

    codes: Tensor
    weights: Tensor

    @classmethod
    def of(cls, x: Tensor, missing: Tensor, weights: Tensor | None) -> "KeptRows | None":
        """Returns rows of positive weight, or None if they are too many to keep.

        Args:
            x: Values. Shape ``(rows, columns)``.
            missing: Missing values. Shape ``(rows, vars)``.
            weights: Weights of the rows; None for equal ones.
        """
        if x.numel() > MOST_CELLS:
            return None
        weights = torch.ones(len(x), dtype=torch.float64) if weights is None else weights
        codes = x.clone()
        codes[:, : missing.shape[1]].masked_fill_(missing, torch.nan)
        return cls(codes[weights > 0].T.contiguous(), weights[weights > 0])

    @classmethod
    def loaded(cls, tensors: Mapping[str, Tensor], columns: int) -> "KeptRows | None":
        """Returns the rows that `tensors` saved, or None if there are none."""
        if not tensors:
            return None
        found = cls(**tensors)
        if found.codes.shape != (columns, len(found.weights)):
            raise SchemaError("its rows are not those of its columns")
        return found

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Tensors to save."""
        return {"codes": self.codes, "weights": self.weights}

    def counts(
        self, evidence: Evidence, variables: Sequence[int], columns: Sequence[Column]
    ) -> list[Count]:
        """Returns the matching rows that have a value of each variable.

        Args:
            evidence: Evidence.
            variables: Numbers of the queried variables.
            columns: Columns of all variables.
        """
        matching = self._matching(evidence)
        return [
            self._count(self.codes[place, matching], matching, columns[place])
            for place in variables
        ]

    def _matching(self, evidence: Evidence) -> Tensor:
        """Returns the numbers of the rows that match."""
        found = torch.ones(self.codes.shape[1], dtype=torch.bool)
        context = range(len(evidence.given), len(self.codes))
        for place in (*evidence.given.nonzero().flatten().tolist(), *context):
            found &= self.codes[place] == evidence.x[0, place]
        for place, region in evidence.regions.items():
            own = self.codes[place]
            if isinstance(region, Interval):
                # Rounded to float32, the code of an end itself may be the next one outside.
                ends = torch.tensor([region.low, region.high], dtype=own.dtype)
                low, high = ends.nextafter(torch.tensor([-torch.inf, torch.inf]))
                found &= (own >= low) & (own <= high)
            else:
                found &= torch.isin(own, torch.tensor(region.codes, dtype=own.dtype))
        return found.nonzero().squeeze(1)

    def _count(self, codes: Tensor, matching: Tensor, column: Column) -> Count:
        there = ~codes.isnan()
        rows = int(there.sum())
        if not rows or not isinstance(column, CategoryColumn):
            return Count(rows, None)
        weights = self.weights[matching[there]]
        sums = torch.bincount(codes[there].long(), weights, minlength=len(column.levels))
        return Count(rows, (sums / weights.sum()).numpy())


OUTERMOST = int(np.float32(1e5).view(np.int32))
"""Index of a code beyond all others (see `Gaussianizer`) among the float32 numbers."""


AT_ONCE = 1024
"""Codes that are decoded together: hardly slower than one, and four rounds find an end."""


def codes_up_to(column: NumberColumn, numbers: FloatArray) -> FloatArray:
    """Returns the greatest code that decodes to each number or to less."""
    return _codes(_places(column, numbers, np.zeros(len(numbers), dtype=bool)))


def code_range(
    column: NumberColumn, low: float | None, high: float | None
) -> tuple[float, float] | None:
    """Returns the least and the greatest code that decode to a number from `low` to `high`.

    Decoding rounds: every code within half a step of 500 is 500, and what is beyond a dtype's range
    is at its end. So the codes of an interval are more than those between the codes of its ends.
    They are found by bisection over the float32 numbers, because `decode` is monotone. A sample
    between them decodes into the interval, the atoms between them are those of the interval, and
    adjacent intervals, such as 1 to 3 and 4 to 6, leave nothing out.

    None is no bound; the result is None if the column has no value in between.
    """
    ends = np.array([np.nan if end is None else end for end in (low, high)])
    before, last = _places(column, ends, np.array([True, False]))
    first, last = _codes(np.array([before + 1, last])).tolist()
    if low is not None and high is not None and first > last:
        return _between_codes(column, ends)
    return -np.inf if low is None else first, np.inf if high is None else last


def _between_codes(column: NumberColumn, ends: FloatArray) -> tuple[float, float] | None:
    """Returns the codes of the ends, if any: steps of large numbers are finer than float32."""
    rounded = column.rounded(ends)
    inside = (rounded >= ends[0]) & (rounded <= ends[1])
    codes = column.encode(column.restore(ends))[0][inside]
    return (float(codes.min()), float(codes.max())) if len(codes) else None


def _places(column: NumberColumn, numbers: FloatArray, is_open: BoolArray) -> NDArray[np.int64]:
    """Returns the index of the last code that decodes below each number, or to it if not open."""
    wanted = column.measurement.held(numbers)[:, None]
    low, high = np.full(len(numbers), -OUTERMOST), np.full(len(numbers), OUTERMOST)
    parts = max(2, AT_ONCE // max(1, len(numbers)))
    while (high - low > 1).any():
        edges = low[:, None] + (high - low)[:, None] * np.arange(parts + 1) // parts
        inner = edges[:, 1:-1]  # (numbers, parts - 1)
        decoded = column.rounded(column.numbers(_codes(inner.flatten()))).reshape(inner.shape)
        fits = np.where(is_open[:, None], decoded < wanted, decoded <= wanted)
        last = fits.sum(axis=1, keepdims=True)
        low, high = (np.take_along_axis(edges, last + i, axis=1)[:, 0] for i in (0, 1))
    return low


def _codes(places: NDArray[np.int64]) -> FloatArray:
    """Returns float32 numbers by index: 0 has index 0, the next ones 1 and -1."""
    sizes = np.abs(places).astype(np.int32).view(np.float32).astype(np.float64)
    return np.where(places < 0, -sizes, sizes)
