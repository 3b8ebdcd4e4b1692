r"""Latent tree: every column has a hidden state, and the states are a tree.

The state z_i of column i depends on that of its parent in the tree alone, and the column on its own
state:

    p(x, z) = p(z_root) p(x_root | z_root) prod_i p(z_i | z_parent(i)) p(x_i | z_i).

It is a hidden Chow-Liu tree (Liu and Van den Broeck, 2021). p(x_i | x_e) is exact for any evidence
by belief propagation (`trees.py`), what is missing is not in the product, and answers agree with
each other: they are conditionals of one joint distribution.

The tree is that of Chow and Liu over the columns, numbers cut at quantiles. Expectation
maximisation starts from it: a state stands for a level, several states for the same one, and
transitions are the frequencies of pairs, times noise by which states of a level come apart. From
there, and not from noise alone, it finds much better trees: alarm 2.6 instead of 27 nats of excess
a hundred rows. It goes by batches of rows, whose sums are kept with a fading weight (Cappe and
Moulines, 2009). At last tables and centers are moved, as little as possible, so that without
evidence a level has the smoothed frequency of its column and a number its mean, exactly.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from anyorder.networks.contracts import PriorMessage
from anyorder.priors.latent import (
    FOLDS,
    UNSEEN,
    Cells,
    LatentPrior,
    balanced,
    by_category,
    centered,
)
from anyorder.priors.moments import in_rows
from anyorder.priors.scales import Units
from anyorder.priors.trees import (
    MOST_CODES,
    Tree,
    beliefs_along,
    chow_liu,
    code_pairs,
    cut,
    mutual_information,
    swept,
    tree_of,
)
from anyorder.variables import Schema

STATES = MOST_CODES
"""States of a column: at first one or several for each of its codes."""

READ, AT_ONCE = 20_000, 2**24
"""Most rows that are read, and most triples of column, row and state at a time; frequencies and
means are of all rows."""

BATCH, EPOCHS, FEWEST_STEPS = 64, 4, 100
"""Rows of a batch, rounds over all rows, and the fewest batches."""

AT_LAST = 2
"""Rounds over all rows at once, at last."""

FIRST, LAST = 0.5, 0.02
"""Weight of a batch beside all before, at first and at last."""

NOISE = 3.0
"""Deviation of the logarithms of transitions, by which states of the same level come apart."""

SHARP = 0.9
"""Share of its own levels in a state at first; the rest is as all rows are."""

PSEUDO_COUNTS = 0.05
"""Rows of each state, beside its own, that are as all rows are."""

NARROWEST = 0.02
"""Least deviation of a number in a state, in deviations of all rows."""

MANY_ROWS, FEW_FOLDS = 5000, 2
"""Rows of which two folds are enough: a row hardly changes what is fitted to so many."""

LEAST = 1e-30


class TreeParameters(NamedTuple):
    """Parameters of a latent tree.

    Args:
        root: Log probability of the root's states. Shape ``(states,)``.
        branch: p(state | state of the parent). Shape ``(vars, states, states)``.
        tables: Log probability of each level; 0 for "missing". Shape ``(levels + 1, states)``.
        centers: Means of the numbers. Shape ``(states, numbers)``.
        variances: Shape ``(states, numbers)``.
    """

    root: Tensor
    branch: Tensor
    tables: Tensor
    centers: Tensor
    variances: Tensor


class Sums(NamedTuple):
    """Expected sums over rows: all that the parameters depend on.

    Args:
        root: Rows in each state of the root. Shape ``(states,)``.
        pairs: Rows in each pair of states of parent and child. Shape of `branch`.
        levels: Rows with each level in each state. Shape ``(levels + 1, states)``.
        rows: Rows that have a number, in each state. Shape ``(numbers, states)``.
        sums: Sum of the number over them.
        squares: Sum of its square.
    """

    root: Tensor
    pairs: Tensor
    levels: Tensor
    rows: Tensor
    sums: Tensor
    squares: Tensor

    def towards(self, other: "Sums", share: float) -> "Sums":
        """Means of these and others, which have a share."""
        return Sums(*(torch.lerp(*both, share) for both in zip(self, other, strict=True)))

    @staticmethod
    def of(parts: "Iterable[Sums]") -> "Sums":
        """Sums over several parts of the rows."""
        return Sums(*(torch.stack(part).sum(dim=0) for part in zip(*parts, strict=True)))


@dataclass(frozen=True)
class TreeState:
    """What is known of each row.

    Args:
        own: Log-likelihood of the states by each known value. Shape ``(rows, vars, states)``.
        fold: Parameters of each row. Shape ``(rows,)``.
    """

    own: Tensor
    fold: Tensor

    def at(self, rows: Tensor) -> "TreeState":
        """Selects rows."""
        return TreeState(self.own[rows], self.fold[rows])


class LatentTree(LatentPrior):
    """Tree of hidden states; see the module.

    Args:
        schema: The variables; context is not read.
        states: Number of states of a column; `fit` chooses it.
        balanced: See `LatentPrior`.
        densities: See `LatentPrior`.

    Example:
        >>> from anyorder.variables import Variable
        >>> prior = LatentTree(Schema(tuple(Variable.categorical(n, [0, 1]) for n in "ab")))
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]).repeat(500, 1)
        >>> prior.fit(x, torch.ones_like(x, dtype=torch.bool))
        >>> state = prior.eval().encode(x[:1], torch.tensor([[True, False]]))
        >>> prior.ask(state, torch.tensor([[1]])).levels.exp().round(decimals=2)
        tensor([[[1., 0.]]])
    """

    parameters_type = TreeParameters

    parent: Tensor
    root: Tensor
    branch: Tensor
    tables: Tensor
    centers: Tensor
    variances: Tensor

    def __init__(
        self,
        schema: Schema,
        *,
        states: int = 1,
        balanced: bool = True,
        densities: bool = True,
    ) -> None:
        super().__init__(schema, balanced=balanced, densities=densities)
        count = len(self.start)
        self.register_buffer("parent", torch.arange(-1, count - 1))
        root = torch.full((states,), 1 / states)
        branch = root.expand(count, states, -1)
        self._keep(TreeParameters(root.log(), branch.clone(), *self._even(states)))

    def _keep(self, found: TreeParameters) -> None:
        self.states = len(found.root)
        self._register(self.states, found)

    @property
    def tree(self) -> Tree:
        """The tree of the columns."""
        return tree_of(tuple(self.parent.tolist()))

    def fit(
        self,
        x: Tensor,
        have: Tensor,
        weights: Tensor | None = None,
        *,
        units: Units | None = None,  # noqa: ARG002
    ) -> None:
        """Fits a tree to all rows, and its parameters to all but those of each fold, too.

        See `Prior.fit`. Numbers stay normal scores.
        """
        weights = torch.ones(len(x), device=x.device) if weights is None else weights
        used = weights > 0
        x, have, weights = x[used], have[used], in_rows(weights[used])
        self.folds = FEW_FOLDS if len(x) > MANY_ROWS else FOLDS
        cells, fold = self._cells(x, have, weights), self._dealt(x)
        levels = [0 if n else s for n, s in zip(self.is_number.tolist(), self.sizes, strict=True)]
        codes, sizes = cut(x, have, levels, weights)
        pairs = code_pairs(codes[:READ], weights[:READ], sizes)
        self.parent[:] = torch.tensor(chow_liu(mutual_information(pairs, sizes)))

        def fitted(rows: Tensor) -> TreeParameters:
            return TreeFit(self, cells.at(rows), codes[rows], sizes).fitted()

        self._keep(fitted(fold >= 0))
        folds = [fitted(fold != number) for number in range(self.folds)]
        self._folds = TreeParameters(
            *(torch.stack(part).float() for part in zip(*folds, strict=True))
        )

    # Messages

    def along(self, x: Tensor, *, query: Tensor, given: Tensor, rank: Tensor) -> PriorMessage:
        """Message about each variable of a path; see `Prior.along`.

        Rows that share an order of the variables go along it together.
        """
        rank = rank.expand(query.shape)
        alone = not len(query) or int(query.sum(dim=1).max()) <= 1
        if not (alone or (rank == rank[:1]).all()):
            return super().along(x, query=query, given=given, rank=rank)
        state, is_given = self.encode(x, given | query), given[..., None]
        told, evidence = state.own.masked_fill(is_given, 0), state.own.masked_fill(~is_given, 0)
        asked = query.any(dim=0).tolist()
        order = [] if alone else [v for v in rank[0].argsort().tolist() if asked[v]]
        variables = torch.arange(len(self.start), device=x.device).expand(query.shape)
        return self._said(TreeState(evidence, state.fold), variables, told, order)

    def encode(self, x: Tensor, given: Tensor) -> TreeState:
        """Keeps the log-likelihood of the states by the evidence; see `Prior.encode`."""
        states, fold = self._parameters_of(x)
        variables = torch.arange(len(self.start), device=x.device).expand(given.shape)
        own = self._told(states, fold, variables, x[:, : len(self.start)])
        return TreeState(own.masked_fill(~given[..., None], 0), fold)

    def tell(self, state: TreeState, variables: Tensor, values: Tensor) -> TreeState:
        """Adds known values; see `Prior.tell`."""
        told = self._told(self._stacked(), state.fold, variables, values)
        place = variables[..., None].expand(told.shape)
        return TreeState(state.own.scatter(1, place, told.to(state.own)), state.fold)

    def ask(self, state: TreeState, variables: Tensor) -> PriorMessage:
        """Message about variables; see `Prior.ask`."""
        return self._said(state, variables, torch.zeros_like(state.own), [])

    def _said(
        self, state: TreeState, variables: Tensor, told: Tensor, order: list[int]
    ) -> PriorMessage:
        """Message about variables from the beliefs about their states.

        Args:
            state: The evidence.
            variables: Shape ``(rows, tokens)``.
            told: Log-likelihood by the values that are told at their turns. Shape of `state.own`.
            order: The turns; none if nothing is told.
        """
        states, fold = self._stacked(), state.fold
        place, into = _by_fold(fold, len(states.root))

        def arranged(own: Tensor) -> Tensor:
            """From rows to folds: ``(vars, folds, rows of a fold, states)``."""
            empty = own.new_zeros(into[0] * into[1], *own.shape[1:])
            return empty.index_copy(0, place, own).unflatten(0, into).movedim(2, 0)

        root, branch = states.root[:, None], states.branch.transpose(0, 1)
        evidence = arranged(state.own)
        if order:
            logs = beliefs_along(self.tree, evidence, arranged(told), order, root, branch)
        else:
            inner, _, down = swept(self.tree, evidence, root, branch)
            logs = inner + down - evidence
        logs = logs.movedim(0, 2).flatten(0, 1)[place]  # (rows, vars, states)
        logs = logs.gather(1, variables[..., None].expand(*variables.shape, logs.shape[2]))
        means, deviations = self._normals(states, fold, variables)
        return self._message(states, fold, variables, logs.log_softmax(-1), means, deviations)


def _by_fold(fold: Tensor, count: int) -> tuple[Tensor, tuple[int, int]]:
    """Place of each row among those of its fold, all folds of one size; and the two sizes."""
    if count == 1:
        return torch.arange(len(fold), device=fold.device), (1, len(fold))
    order = fold.argsort(stable=True)
    sizes = fold.bincount(minlength=count)
    start = sizes.cumsum(dim=0) - sizes
    within = torch.empty_like(fold)
    within[order] = torch.arange(len(fold), device=fold.device) - start[fold[order]]
    most = int(sizes.max()) if len(fold) else 0
    return fold * most + within, (count, most)


class TreeFit:
    """Expectation maximisation on some rows.

    Args:
        prior: The columns and their tree.
        cells: The rows.
        codes: Codes of the columns; see `cut`. Shape ``(rows, vars)``.
        sizes: Number of codes of each column.
    """

    def __init__(self, prior: LatentTree, cells: Cells, codes: Tensor, sizes: list[int]) -> None:
        self.prior, self.tree, self.sizes = prior, prior.tree, sizes
        levels, self.category = len(prior.category), prior.category
        weights = cells.weights[:, None].expand(cells.places.shape).flatten()
        seen = cells.places.flatten().bincount(weights, minlength=levels + 1)[:-1]
        self.shares = (seen + UNSEEN) / by_category(seen + UNSEEN, self.category)
        rows = cells.weights @ cells.there.double()
        self.mean = cells.weights @ cells.z / rows.clamp(min=LEAST)
        away = (cells.z - self.mean).masked_fill(~cells.there, 0)
        self.variance = (cells.weights @ away.square() + 1) / (rows + 1)
        self.cells, self.codes = cells.at(slice(READ)), codes[:READ]
        self.cells = self.cells._replace(z=self.cells.z.float())

    def fitted(self) -> TreeParameters:
        """The parameters."""
        source = torch.Generator().manual_seed(0)
        found, kept = self._begun(source), None
        for share, batch in self._batches(source):
            new = self.expected(found, batch)
            kept = new if kept is None else kept.towards(new, share)
            found = self.improved(kept)
        parts = self._at_once(torch.arange(len(self.codes)))
        for _ in range(AT_LAST if len(self.codes) else 0):
            found = self.improved(Sums.of(self.expected(found, self.cells.at(p)) for p in parts))
        return self._finished(found)

    def _batches(self, source: torch.Generator) -> Iterator[tuple[float, Cells]]:
        """Yields batches of rows, which stand for all, and their weights beside all before."""
        rows = len(self.codes)
        steps = max(FEWEST_STEPS, EPOCHS * -(-rows // BATCH)) if rows else 0
        step = 0
        while step < steps:
            for batch in torch.randperm(rows, generator=source).split(BATCH)[: steps - step]:
                cells = self.cells.at(batch.to(self.codes.device))
                scale = self.cells.weights.sum() / cells.weights.sum()
                yield (
                    FIRST * (LAST / FIRST) ** (step / steps),
                    cells._replace(weights=scale * cells.weights),
                )
                step += 1

    def _at_once(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Rows in parts that fit into memory."""
        return rows.split(max(1, AT_ONCE // (len(self.sizes) * STATES)))

    def expected(self, found: TreeParameters, cells: Cells) -> Sums:
        """Expected sums over rows."""
        own = self._own(found, cells)
        inner, up, down = swept(self.tree, own, found.root[None], found.branch)
        shares = (inner + down).softmax(dim=-1) * cells.weights[:, None].to(own)
        pairs = torch.zeros_like(found.branch)
        for nodes, parents in self.tree.levels:
            above = inner[parents] + down[parents] - up[nodes]
            left = (above - above.amax(dim=-1, keepdim=True)).exp()
            right = (inner[nodes] - inner[nodes].amax(dim=-1, keepdim=True)).exp()
            chance = ((left @ found.branch[nodes]) * right).sum(dim=-1, keepdim=True)
            left = left * (cells.weights[:, None].to(own) / chance.clamp(min=LEAST))
            pairs[nodes] = found.branch[nodes] * (left.mT @ right)
        return self._sums(shares, pairs, cells)

    def _sums(self, shares: Tensor, pairs: Tensor, cells: Cells) -> Sums:
        prior, states = self.prior, shares.shape[-1]
        levels = shares.new_zeros(len(self.category) + 1, states)
        levels.index_add_(0, cells.places.T.flatten(), shares[prior.has_levels].flatten(0, 1))
        mine = shares[prior.numbers] * cells.there.T[..., None]  # (numbers, rows, states)
        z = cells.z.T[..., None].to(mine)
        sums, squares = ((mine * part).sum(dim=1) for part in (z, z.square()))
        return Sums(
            shares[self.tree.root].sum(dim=0), pairs, levels, mine.sum(dim=1), sums, squares
        )

    def improved(self, sums: Sums) -> TreeParameters:
        """The parameters by expected sums, with pseudo-counts as all rows are."""
        more = PSEUDO_COUNTS
        root = sums.root + more / len(sums.root)
        child = sums.pairs.sum(dim=1, keepdim=True)
        child = (child + LEAST) / (child + LEAST).sum(dim=-1, keepdim=True)
        branch = sums.pairs + more * child
        tables = sums.levels[:-1] + more * self.shares[:, None].to(root)
        tables = (tables / by_category(tables, self.category)).log()
        rows, mean = sums.rows + more, self.mean[:, None].to(root)
        variance = self.variance[:, None].to(root)
        centers = (sums.sums + more * mean) / rows
        squares = (sums.squares + more * (variance + mean.square())) / rows
        variances = (squares - centers.square()).maximum(NARROWEST**2 * variance)
        return TreeParameters(
            (root / root.sum()).log(),
            branch / branch.sum(dim=-1, keepdim=True),
            F.pad(tables, (0, 0, 0, 1)),
            centers.T,
            variances.T,
        )

    def _begun(self, source: torch.Generator) -> TreeParameters:
        """The tree of Chow and Liu, each code several states that noise sets apart."""
        rows = self._at_once(torch.arange(len(self.codes)))[0]
        cells, device = self.cells.at(rows), self.codes.device
        sizes = torch.tensor(self.sizes, device=device)[:, None]
        code = torch.arange(STATES, device=device) % sizes  # of each state. Shape (vars, states)
        hits = (self.codes[rows].T[..., None] == code[:, None]).float()  # (vars, rows, states)
        shares = hits / hits.sum(dim=-1, keepdim=True).clamp(min=1)
        shares = (SHARP * shares + (1 - SHARP) / STATES) * cells.weights[:, None].float()
        pairs = hits.new_zeros(len(sizes), STATES, STATES)
        for nodes, parents in self.tree.levels:
            both = hits[parents].mT @ shares[nodes]
            noise = torch.randn(both.shape, generator=source).to(both)
            pairs[nodes] = (both + both.mean(dim=1, keepdim=True) + LEAST) * (NOISE * noise).exp()
        branch = pairs / pairs.sum(dim=-1, keepdim=True).clamp(min=LEAST)
        return self.improved(self._sums(shares, pairs, cells))._replace(branch=branch)

    def _own(self, found: TreeParameters, cells: Cells) -> Tensor:
        """Log-likelihood of the states by each value. Shape ``(vars, rows, states)``."""
        prior = self.prior
        own = found.tables.new_zeros(len(prior.start), len(cells.weights), len(found.root))
        own[prior.has_levels] = found.tables[cells.places.T]
        away = cells.z.T[..., None].to(own) - found.centers.T[:, None]
        variances = found.variances.T[:, None]
        logs = -0.5 * (away.square() / variances + variances.log())
        own[prior.numbers] += logs.where(cells.there.T[..., None], 0)
        return own

    def _finished(self, found: TreeParameters) -> TreeParameters:
        """Moved to frequencies and means, in doubles."""
        found = TreeParameters(*(part.double() for part in found))
        if not self.prior.balanced:
            return found
        nothing = found.tables.new_zeros(len(self.sizes), 1, len(found.root))
        _, _, down = swept(self.tree, nothing, found.root[None], found.branch)
        states = down[:, 0].log_softmax(dim=-1)  # log probability of each state of each column
        of_levels = states[self.prior.has_levels][self.category]
        tables = balanced(found.tables, of_levels, self.shares, self.category)
        centers = centered(
            found.centers, tables, states[self.prior.numbers], self.mean, self.prior._elsewhere
        )
        return found._replace(tables=tables, centers=centers)
