"""Trees over variables: belief propagation, how states read columns, and pairs that are counted.

Every variable i has a hidden state, which depends on the state of its parent alone. What is known
of i is a log-likelihood of its states. *Messages* along the edges carry it through the tree: the
one over an edge is all that is known on its far side. Two sweeps, from the leaves to the root and
back, give the belief about every variable.

Along a path, what is known grows by a variable at a time. Only messages on the way from one
variable of the path to the next change what is known there: `Beliefs` walk from one to the next and
renew these. So a path takes as many products with a transition matrix as the walk has edges, where
two sweeps for each factor would take twice the number of variables.

Beside trees, two columns alone are counted (`PairCounts`).

Hidden states read rows as `Cells`: the levels of categories, and numbers. A number with repeated
values (atoms) has a category of its own, which value or *elsewhere*, and a normal for what is
elsewhere.

Reference:
    Pearl (1988), chapter 4: belief propagation.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyorder.networks.contracts import PriorMessage
from anyorder.variables import Schema

LEAST = 1e-30
"""Least probability of a state by a message: its logarithm is finite."""

MOST_COUNTED, ANSWER_CELLS = 1000, 2**22
"""Levels in all above which pairs are not counted: their table would have millions of cells; and
cells of a prior's answers that are in memory at a time."""

STRENGTHS = torch.logspace(0, 6, 13, dtype=torch.float64).unbind()
"""Numbers of rows that a prior may stand for beside counts."""

SHARE_ROUNDS = 20
"""Rounds of expectation maximisation of their shares."""

LEAST_SAID, NO_LEVEL = 1e-12, -1e4
"""Least probability of a level by a prior, and the logarithm of that of no level."""


class Tree:
    """A rooted tree.

    Args:
        parent: Parent of each variable; -1 for the root.

    Example:
        >>> tree = Tree([1, -1, 1, 2])
        >>> tree.root, [nodes.tolist() for nodes, _ in tree.levels]
        (1, [[0, 2], [3]])
        >>> list(tree.walk(0, 3))
        [(0, 1), (1, 2), (2, 3)]
    """

    def __init__(self, parent: Sequence[int]) -> None:
        self.parent = list(parent)
        self.root = self.parent.index(-1)
        self.depth = [-1] * len(parent)
        self.depth[self.root] = 0
        children = [[i for i, p in enumerate(parent) if p == node] for node in range(len(parent))]
        self.levels: list[tuple[Tensor, Tensor]] = []  # below the root: variables, parents
        level = [self.root]
        while level := [child for node in level for child in children[node]]:
            for node in level:
                self.depth[node] = self.depth[parent[node]] + 1
            self.levels.append((torch.tensor(level), torch.tensor([parent[i] for i in level])))

    def walk(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yields the edges on the way from one variable to another."""
        down = []
        while start != end:
            if self.depth[start] >= self.depth[end]:
                yield start, self.parent[start]
                start = self.parent[start]
            else:
                down.append((self.parent[end], end))
                end = self.parent[end]
        yield from reversed(down)


@lru_cache(maxsize=16)
def tree_of(parent: tuple[int, ...]) -> Tree:
    """Returns the tree, which is built once."""
    return Tree(parent)


def swept(tree: Tree, own: Tensor, root: Tensor, branch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Messages of two sweeps.

    Args:
        tree: The tree.
        own: Log-likelihood of the states by what is known of each variable.
            Shape ``(vars, ..., rows, states)``.
        root: Log probability of the root's states. Shape ``(..., 1, states)``.
        branch: p(state | state of the parent). Shape ``(vars, ..., parent's states, states)``.

    Returns:
        Log-likelihood by what is known of a variable and all below it; the message to the parent,
        0 of the root; and the message from the parent, of the root its probability. Shape of `own`.
    """
    inner, up, down = own.clone(), torch.zeros_like(own), torch.empty_like(own)
    down[tree.root] = root
    levels = [(nodes.to(own.device), parents.to(own.device)) for nodes, parents in tree.levels]
    for nodes, parents in reversed(levels):
        up[nodes] = through(inner[nodes], branch[nodes].mT)
        inner.index_add_(0, parents, up[nodes])
    for nodes, parents in levels:
        down[nodes] = through(inner[parents] + down[parents] - up[nodes], branch[nodes])
    return inner, up, down


def through(logs: Tensor, matrix: Tensor) -> Tensor:
    """Log-likelihood of the states at the other end of an edge. Shape of `logs`."""
    most = logs.amax(dim=-1, keepdim=True)
    return ((logs - most).exp() @ matrix).clamp(min=LEAST).log() + most


class Beliefs:
    """Beliefs about one variable after another, while the values of some are told.

    Args:
        tree: The tree.
        evidence: Log-likelihood of the states by the evidence.
            Shape ``(vars, ..., rows, states)``.
        root: See `swept`.
        branch: See `swept`.
    """

    def __init__(self, tree: Tree, evidence: Tensor, root: Tensor, branch: Tensor) -> None:
        self.tree, self.branch, self.place = tree, branch, tree.root
        inner, self.up, self.down = swept(tree, evidence, root, branch)
        self.total = inner + self.down  # of all variables, until one is told

    def at(self, variable: int) -> Tensor:
        """Log weights of the states of a variable given all that is known.

        Shape ``(..., rows, states)``.
        """
        total, up, down = self.total, self.up, self.down
        for start, end in self.tree.walk(self.place, variable):
            if self.tree.parent[end] == start:
                new = through(total[start] - up[end], self.branch[end])
                total[end] += new - down[end]
                down[end] = new
            else:
                new = through(total[start] - down[start], self.branch[start].mT)
                total[end] += new - up[start]
                up[start] = new
        self.place = variable
        return total[variable]

    def tell(self, variable: int, told: Tensor) -> None:
        """Adds the log-likelihood of the states by a value. Shape ``(..., rows, states)``."""
        self.at(variable).add_(told)

    def select(self, rows: Tensor) -> "Beliefs":
        """Returns the beliefs about some rows."""
        found = copy(self)
        for name in ("total", "up", "down"):
            setattr(found, name, getattr(self, name)[..., rows, :])
        return found


class Cells(NamedTuple):
    """Rows as hidden states read them.

    Args:
        places: Place of each category's level among all levels; the last is "missing".
            Shape ``(rows, categories)``.
        z: Numbers, 0 where they do not count. Shape ``(rows, numbers)``.
        there: True where they count. Shape ``(rows, numbers)``.
        weights: Weights of the rows, in rows. Shape ``(rows,)``.
    """

    places: Tensor
    z: Tensor
    there: Tensor
    weights: Tensor

    def at(self, rows: Tensor | slice) -> "Cells":
        """Selects rows."""
        return Cells(*(part[rows] for part in self))


def numbered(sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Numbers the levels of all variables: the first of each, and all of each side by side.

    Example:
        >>> [part.tolist() for part in numbered([2, 0, 1])]
        [[0, 2, 2], [[0, 1], [3, 3], [2, 3]]]
    """
    levels, counts = torch.arange(max([1, *sizes])), torch.tensor(sizes)
    start = counts.cumsum(dim=0) - counts
    return start, (start[:, None] + levels).where(levels < counts[:, None], sum(sizes))


class TreeColumns(nn.Module):
    """How a latent tree reads the columns of a table: levels, numbers, and both for atoms.

    Args:
        schema: The variables; context is not read.
    """

    start: Tensor
    level: Tensor
    inside: Tensor
    numbers: Tensor
    has_levels: Tensor
    has_atoms: Tensor
    is_number: Tensor
    category: Tensor
    place: Tensor

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        asked = [variable for variable in schema if not variable.context]
        sizes = [v.num_levels or (len(v.atoms) + 1 if v.atoms else 0) for v in asked]
        self.atoms = [torch.tensor(v.atoms) for v in asked]
        self.sizes, self.most_levels = sizes, max([1, *sizes])
        self.codes_of = [variable.num_levels for variable in asked]  # 0 of a number; see `cut`
        numbers = [i for i, v in enumerate(asked) if v.kind == "continuous"]
        has_levels = [i for i, size in enumerate(sizes) if size]
        start, level = numbered(sizes)
        place = torch.zeros(len(asked), dtype=torch.long)
        place[numbers] = torch.arange(len(numbers))
        own = {
            # Of each variable: its first level, and that of its atoms is "elsewhere".
            "start": start,
            "level": level,
            "inside": level < sum(sizes),
            "has_atoms": torch.tensor([bool(v.atoms) for v in asked]),
            "is_number": torch.tensor([v.kind == "continuous" for v in asked]),
            "place": place,
            "numbers": torch.tensor(numbers, dtype=torch.long),
            "has_levels": torch.tensor(has_levels, dtype=torch.long),
            # Of each level: its place in `has_levels`.
            "category": torch.arange(len(has_levels)).repeat_interleave(
                torch.tensor([size for size in sizes if size], dtype=torch.long)
            ),
        }
        for name, part in own.items():
            self.register_buffer(name, part, persistent=False)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def elsewhere(self) -> Tensor:
        """Level that a number must have to count, or -1. Shape ``(numbers,)``."""
        return self.start[self.numbers].masked_fill(~self.has_atoms[self.numbers], -1)

    def cells(self, x: Tensor, have: Tensor, weights: Tensor) -> Cells:
        """Returns rows as cells.

        Args:
            x: Values. Shape ``(rows, columns)``.
            have: False for missing values. Shape ``(rows, vars)``.
            weights: Weights of the rows, in rows. Shape ``(rows,)``.
        """
        variables = torch.arange(len(self), device=x.device)
        x = x[:, : len(self)]
        codes = self.codes(variables.expand(x.shape), x)
        places = (self.start + codes).masked_fill(~have, len(self.category))
        there = (have & ((codes == 0) | ~self.has_atoms))[:, self.numbers]
        z = x[:, self.numbers].double().masked_fill(~there, 0)
        return Cells(places[:, self.has_levels], z, there, weights)

    def codes(self, variables: Tensor, values: Tensor) -> Tensor:
        """Code of each value: of a level, or of an atom, after 0 for elsewhere.

        Args:
            variables: Shape ``(rows, tokens)``.
            values: Shape ``(rows, tokens)``.
        """
        most = torch.tensor(self.sizes, device=values.device).clamp(min=1) - 1
        codes = values.nan_to_num().clamp(min=0).long().minimum(most[variables])
        codes = codes.masked_fill(self.is_number[variables], 0)
        for variable in variables[self.has_atoms[variables]].unique().tolist():
            mine = variables == variable
            own, atoms = values[mine].float(), self.atoms[variable].to(values.device)
            place = torch.searchsorted(atoms, own).clamp(max=len(atoms) - 1)
            codes[mine] = torch.where(atoms[place] == own, place + 1, 0)
        return codes


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

    @staticmethod
    def even(columns: TreeColumns, states: int) -> "TreeParameters":
        """Returns those before any row is read: equal states and levels, standard normals."""
        sizes = torch.tensor([float(size) for size in columns.sizes if size])
        tables = F.pad(-sizes.log()[columns.category], (0, 1))[:, None].repeat(1, states)
        root, numbers = torch.full((states,), 1 / states), len(columns.numbers)
        branch = root.repeat(len(columns), states, 1)
        return TreeParameters(
            root.log(), branch, tables, torch.zeros(states, numbers), torch.ones(states, numbers)
        )


def code_pairs(codes: Tensor, weights: Tensor, sizes: Sequence[int]) -> Tensor:
    """Weight of the rows that have each pair of codes of two variables.

    Args:
        codes: Codes, of variable i below ``sizes[i]``, of missing values -1. Shape
            ``(rows, vars)``.
        weights: Shape ``(rows,)``.
        sizes: Number of codes of each variable.

    Returns:
        Shape ``(sum of sizes, sum of sizes)``.
    """
    total = sum(sizes)
    start = F.pad(torch.tensor(sizes).cumsum(dim=0), (1, -1)).to(codes.device)
    found = torch.zeros(total, total, device=codes.device)
    for rows in torch.arange(len(codes), device=codes.device).split(4096):
        hits = torch.zeros(len(rows), total + 1, device=codes.device)
        places = (start + codes[rows]).masked_fill(codes[rows] < 0, total)
        hits = hits.scatter_(1, places, 1.0)[:, :-1]
        found += (hits * weights[rows, None].float()).T @ hits
    return found


Says = Callable[[Tensor, Tensor], Tensor]


class PairCounts(nn.Module):
    r"""Counts of pairs: p(category | one category), as a user counts it in the rows.

    A tree says much about pairs that are neighbours in it, and less about others. Here the answer
    is

        p(a | b) = (n_ab + m p_prior(a | b)) / (n_b + m),

    with n_ab rows that have both levels, and n_b that have b and any level of the other column. It
    is averaged over m: each of `STRENGTHS` weighs share(m) times the likelihood of the counts
    beside b under m (Dirichlet and multinomial), and the shares of a pair of columns are those
    under which all its counts are likeliest (expectation maximisation). So where the prior is right
    about a pair, rare evidence is smoothed by it; where it is wrong, rows count.

    Args:
        schema: The variables.
    """

    fitted: Tensor
    table: Tensor
    start: Tensor
    column: Tensor
    level: Tensor
    is_category: Tensor

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        asked = [variable for variable in schema if not variable.context]
        sizes = [variable.num_levels for variable in asked]  # 0 of a number
        if sum(sizes) > MOST_COUNTED:
            sizes = [0] * len(sizes)
        self.sizes = sizes
        counts, (start, level) = torch.tensor(sizes), numbered(sizes)
        own = {
            "start": start,
            "is_category": counts > 0,
            "column": torch.arange(len(sizes)).repeat_interleave(counts),
            "level": level,
        }
        for name, part in own.items():
            self.register_buffer(name, part, persistent=False)
        self.register_buffer("fitted", torch.tensor(False))
        # Log probability of each level by one that is known; the last column is of no level.
        self.register_buffer("table", torch.zeros(sum(sizes), sum(sizes) + 1))

    def fit(self, prior: Says, x: Tensor, have: Tensor, weights: Tensor) -> None:
        """Counts rows.

        Args:
            prior: From values and which are given to log probabilities ``(rows, vars, levels)``.
            x: Values. Shape ``(rows, columns)``.
            have: False for missing values. Shape ``(rows, vars)``.
            weights: Weights of the rows, in rows. Shape ``(rows,)``.
        """
        column = self.column
        if not len(column):
            return
        codes = x[:, : len(self.sizes)].long().masked_fill(~(have & self.is_category), -1)
        counts = code_pairs(codes, weights, self.sizes).double()
        says = self._says(prior)

        def of_columns(cells: Tensor) -> Tensor:
            """Sums over the levels of each column. Shape ``(levels, vars)``."""
            sums = cells.new_zeros(len(cells), len(self.start))
            return sums.index_add(1, column, cells)

        rows_of = of_columns(counts)  # that have a level, and any of a column
        likelihood = []  # of each strength ``(levels that are known, vars)``
        for strength in STRENGTHS:
            each = of_columns((counts + strength * says).lgamma() - (strength * says).lgamma())
            likelihood.append(each + strength.lgamma() - (rows_of + strength).lgamma())
        logs = torch.stack(likelihood)
        weights = logs.softmax(dim=0)
        for _ in range(SHARE_ROUNDS):
            shares = weights.new_zeros(len(logs), *[len(self.start)] * 2)
            shares = shares.index_add(1, column, weights).clamp(min=LEAST).log()
            weights = (logs + shares[:, column]).softmax(dim=0)
        answers = torch.zeros_like(counts)
        for strength, weight in zip(STRENGTHS, weights, strict=True):
            smoothed = (counts + strength * says) / (rows_of[:, column] + strength)
            answers += weight[:, column] * smoothed
        self.table.copy_(F.pad(answers.log(), (0, 1), value=NO_LEVEL))
        self.fitted.fill_(True)

    def _says(self, prior: Says) -> Tensor:
        """Probability of each level given each, by a prior. Shape ``(levels, levels)``."""
        column = self.column
        own = torch.arange(len(column), device=column.device) - self.start[column]
        given = F.one_hot(column, len(self.start)).bool()
        x = given * own[:, None].float()
        at_once = max(1, ANSWER_CELLS // (len(self.start) * self.level.shape[1]))
        pairs = zip(x.split(at_once), given.split(at_once), strict=True)
        found = [prior(*pair)[:, column, own].double().exp() for pair in pairs]
        return torch.cat(found).clamp(min=LEAST_SAID)

    def answered(
        self, message: PriorMessage, variables: Tensor, known: Tensor, first: Tensor
    ) -> PriorMessage:
        """The message, by counts where one category is known, and another is asked.

        Args:
            message: Message of the prior.
            variables: Variables that are asked. Shape ``(...)``.
            known: Number of known variables. Shape ``(...)``.
            first: One of them, and its value. Shape ``(..., 2)``.
        """
        if not len(self.column):
            return message
        assert message.levels is not None
        one, value = first.unbind(dim=-1)
        counts = self.is_category[variables] & self.is_category[one] & (known == 1) & self.fitted
        place = (self.start[one] + value).where(counts, 0)
        levels = self.table[place[..., None], self.level[variables]]
        more = message.levels.shape[-1] - levels.shape[-1]
        levels = F.pad(levels, (0, more), value=NO_LEVEL)
        return replace(message, levels=levels.where(counts[..., None], message.levels))
