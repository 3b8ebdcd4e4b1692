r"""Fit of a latent tree: that of Chow and Liu (1968), then expectation maximisation.

`chow_liu` finds the tree of most mutual information, numbers cut at quantiles. Expectation
maximisation starts from it: a state stands for a level, several states for the same one, and
transitions are the frequencies of pairs, times noise by which states of a level come apart. From
there, and not from noise alone, it finds much better trees: alarm 2.6 instead of 27 nats of excess
a hundred rows. It goes by batches of rows, whose sums are kept with a fading weight (Cappe and
Moulines, 2009). At last tables and centers are moved, as little as possible, so that without
evidence a level has the smoothed frequency of its column and a number its mean, exactly.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from anyorder.priors.trees import Cells, Tree, TreeColumns, TreeParameters, code_pairs, swept

BINS, CODES, MOST_CODES = 8, 8192, 32
"""Bins of a number, codes of all columns together (wide tables have fewer bins), and most codes of
a category: its rarest levels share one."""

CUT_ROWS = 20_000
"""Rows whose quantiles are taken."""

STATES = MOST_CODES
"""States of a column: at first one or several for each of its codes."""

READ, AT_ONCE = 20_000, 2**24
"""Most rows that are read, and most triples of column, row and state at a time; frequencies and
means are of all rows."""

BATCH, EPOCHS, FEWEST_STEPS = 64, 4, 100
"""Rows of a batch, rounds over all rows, and the fewest batches."""

AT_LAST, MOST_AT_LAST, ROWS_AT_LAST = 2, 20, 80_000
"""Rounds over all rows at once, at last; and the most, and rows in all, where values are missing
depending on others: the less is seen, the slower expectation maximisation is."""

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

UNSEEN = 0.5
"""Rows that a level counts for before any is seen: none is impossible."""

BALANCED, CLOSE = 1000, 1e-12
"""Most rounds in which tables are moved to frequencies, and how close these are reached."""

LEAST = 1e-30


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


class TreeFit:
    """Expectation maximisation on some rows.

    Args:
        columns: The columns.
        tree: Their tree.
        cells: The rows.
        codes: Codes of the columns; see `cut`. Shape ``(rows, vars)``.
        sizes: Number of codes of each column.
        balanced: True to move tables and centers to frequencies and means at last.
    """

    def __init__(
        self,
        columns: TreeColumns,
        tree: Tree,
        cells: Cells,
        codes: Tensor,
        sizes: list[int],
        *,
        balanced: bool,
    ) -> None:
        self.columns, self.tree, self.sizes, self.balanced = columns, tree, sizes, balanced
        levels, self.category = len(columns.category), columns.category
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
        rounds = AT_LAST if len(self.codes) else 0
        if rounds and not self.balanced:
            rounds = max(rounds, min(MOST_AT_LAST, ROWS_AT_LAST // len(self.codes)))
        for _ in range(rounds):
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
        columns, states = self.columns, shares.shape[-1]
        levels = shares.new_zeros(len(self.category) + 1, states)
        levels.index_add_(0, cells.places.T.flatten(), shares[columns.has_levels].flatten(0, 1))
        mine = shares[columns.numbers] * cells.there.T[..., None]  # (numbers, rows, states)
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
        shares = self.shares if self.balanced else self._completed(sums)
        tables = sums.levels[:-1] + more * shares[:, None].to(root)
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

    def _completed(self, sums: Sums) -> Tensor:
        """Shares of levels in all rows, those too where they are missing. Shape ``(levels,)``."""
        states = sums.pairs.sum(dim=1)
        states[self.tree.root] = sums.root
        states = states[self.columns.has_levels][self.category]
        tables = sums.levels[:-1] + LEAST
        shares = (tables / by_category(tables, self.category) * states).sum(dim=1)
        return shares / by_category(shares, self.category)

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
        columns = self.columns
        own = found.tables.new_zeros(len(columns), len(cells.weights), len(found.root))
        own[columns.has_levels] = found.tables[cells.places.T]
        away = cells.z.T[..., None].to(own) - found.centers.T[:, None]
        variances = found.variances.T[:, None]
        logs = -0.5 * (away.square() / variances + variances.log())
        own[columns.numbers] += logs.where(cells.there.T[..., None], 0)
        return own

    def _finished(self, found: TreeParameters) -> TreeParameters:
        """Moved to frequencies and means, in doubles."""
        found, columns = TreeParameters(*(part.double() for part in found)), self.columns
        if not self.balanced:
            return found
        nothing = found.tables.new_zeros(len(self.sizes), 1, len(found.root))
        _, _, down = swept(self.tree, nothing, found.root[None], found.branch)
        states = down[:, 0].log_softmax(dim=-1)  # log probability of each state of each column
        of_levels = states[columns.has_levels][self.category]
        tables = balanced(found.tables, of_levels, self.shares, self.category)
        beside = tables[columns.elsewhere].masked_fill((columns.elsewhere < 0)[:, None], 0)
        weights = (states[columns.numbers] + beside).softmax(dim=1)  # (numbers, states)
        off = self.mean - (weights * found.centers.T).sum(dim=1)
        return found._replace(tables=tables, centers=found.centers + off)


def balanced(tables: Tensor, states: Tensor, shares: Tensor, category: Tensor) -> Tensor:
    """Moves tables so that without evidence levels have their shares.

    The probabilities of state and level are scaled in turns to the shares of both (Sinkhorn): of
    all that have these shares, those are the nearest.

    Args:
        tables: Log probability of each level; the last is "missing". Shape
            ``(levels + 1, states)``.
        states: Log probability of the states without evidence, of the column of each level. Shape
            ``(levels, states)``.
        shares: Share of each level in its column. Shape ``(levels,)``.
        category: Column of each level. Shape ``(levels,)``.
    """
    weights, shares = states.exp(), shares[:, None]
    both = tables[:-1].exp() * weights
    for _ in range(BALANCED):
        off = both.sum(dim=1, keepdim=True) / shares
        if not off.numel() or (off - 1).abs().max() < CLOSE:
            break
        both = both / off
        both = both * weights / by_category(both, category)
    return F.pad((both / weights).log(), (0, 0, 0, 1))


def by_category(levels: Tensor, category: Tensor) -> Tensor:
    """Sum over the levels of each category, for each level. Shape of `levels`."""
    count = int(category[-1]) + 1 if len(category) else 0
    sums = levels.new_zeros(count, *levels.shape[1:])
    return sums.index_add_(0, category, levels)[category]


def cut(
    x: Tensor, have: Tensor, levels: Sequence[int], weights: Tensor | None = None
) -> tuple[Tensor, list[int]]:
    """Codes of the values, -1 for missing ones, and the number of codes of each variable.

    The levels of a category come by their frequency; numbers are cut at quantiles.

    Args:
        x: Values. Shape ``(rows, vars)``.
        have: False for missing values. Shape ``(rows, vars)``.
        levels: Number of levels of each category; 0 for a number.
        weights: Weights of the rows; equal by default. Shape ``(rows,)``.
    """
    bins = max(2, min(BINS, CODES // len(levels)))
    cuts = torch.arange(1, bins, device=x.device) / bins
    weights = torch.ones(len(x), device=x.device) if weights is None else weights
    codes, sizes = torch.full(have.shape, -1, device=x.device), []
    for variable, size in enumerate(levels):
        there = have[:, variable]
        own = x[there, variable].float()
        if size:
            known = own.long().clamp(0, size - 1)
            counts = known.bincount(weights[there], minlength=size)
            place = counts.argsort(descending=True, stable=True).argsort()
            found, count = place.clamp(max=MOST_CODES - 1)[known], min(size, MOST_CODES)
        else:
            edges = own[:CUT_ROWS].quantile(cuts).unique() if len(own) else own
            found, count = torch.bucketize(own, edges), len(edges) + 1
        codes[there, variable] = found
        sizes.append(count)
    return codes, sizes


def mutual_information(pairs: Tensor, sizes: Sequence[int]) -> Tensor:
    """Mutual information of each two variables in nats, less what chance alone would show.

    Args:
        pairs: Result of `code_pairs`.
        sizes: Number of codes of each variable.
    """
    counts = torch.tensor(sizes, device=pairs.device)
    owner = torch.arange(len(sizes), device=pairs.device).repeat_interleave(counts)
    is_mine = F.one_hot(owner, len(sizes)).float()
    sums = pairs @ is_mine  # rows that have the code, and any code of the other
    rows = is_mine.T @ sums  # rows that have both variables
    own, others = sums[:, owner], sums[:, owner].T
    ratio = pairs * rows[owner][:, owner] / (own * others).clamp(min=LEAST)
    terms = is_mine.T @ torch.xlogy(pairs, ratio) @ is_mine
    by_chance = 0.5 * (counts - 1)[:, None] * (counts - 1)
    return (terms - by_chance) / rows.clamp(min=1)


def dependence(x: Tensor, have: Tensor, levels: Sequence[int]) -> Tensor:
    """Mutual information of each two variables of a table in nats; at least 0, and 0 with itself.

    Shape ``(vars, vars)``; see `cut` for the arguments.
    """
    codes, sizes = cut(x, have, levels)
    pairs = code_pairs(codes, torch.ones(len(x), device=x.device), sizes)
    return mutual_information(pairs, sizes).fill_diagonal_(0).clamp(min=0)


def chow_liu(information: Tensor) -> list[int]:
    """Parents in the spanning tree of most information, rooted at its middle.

    Args:
        information: Mutual information of each two variables. Shape ``(vars, vars)``.

    Example:
        >>> chow_liu(torch.tensor([[0.0, 5.0, 4.0], [5.0, 0.0, 1.0], [4.0, 1.0, 0.0]]))
        [-1, 0, 0]
    """
    count = len(information)
    near: list[list[int]] = [[] for _ in range(count)]
    best, source = information[0].clone(), torch.zeros(count, dtype=torch.long)
    inside = torch.zeros(count, dtype=torch.bool, device=information.device)
    inside[0] = True
    for _ in range(count - 1):  # the algorithm of Prim
        new = int(best.masked_fill(inside, -torch.inf).argmax())
        old = int(source[new])
        near[old].append(new)
        near[new].append(old)
        inside[new] = True
        closer = (information[new] > best).cpu()
        best, source[closer] = torch.maximum(best, information[new]), new
    end = _parents(near, 0)[0][-1]
    order, parent = _parents(near, end)
    way = [order[-1]]
    while parent[way[-1]] >= 0:
        way.append(parent[way[-1]])
    return _parents(near, way[len(way) // 2])[1]


def preorder(parent: Sequence[int], information: Tensor) -> list[int]:
    """Order in which each variable follows its parent, and relatives follow each other.

    Args:
        parent: Parent of each variable; -1 for the root.
        information: Mutual information of each two variables: the child with most comes first, and
            one that has none with its parent after all others.

    Example:
        >>> preorder([-1, 0, 0], torch.tensor([[0.0, 4.0, 5.0], [4.0, 0.0, 0.0], [5.0, 0.0, 0.0]]))
        [0, 2, 1]
    """
    children = [[i for i, p in enumerate(parent) if p == node] for node in range(len(parent))]
    order, near, apart = list[int](), [list(parent).index(-1)], list[int]()
    while near or apart:
        node = near.pop() if near else apart.pop(0)
        order.append(node)
        for child in sorted(children[node], key=lambda child: float(information[node, child])):
            (near if information[node, child] > 0 else apart).append(child)
    return order


def _parents(near: list[list[int]], root: int) -> tuple[list[int], list[int]]:
    """Variables by their distance from a root, and the parent of each."""
    order, parent = [root], [-2] * len(near)
    parent[root] = -1
    for node in order:
        for other in near[node]:
            if parent[other] == -2:
                parent[other] = node
                order.append(other)
    return order, parent
