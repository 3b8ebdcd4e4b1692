r"""Latent tree: every column has a hidden state, and the states are a tree.

The state z_i of column i depends on that of its parent in the tree alone, and the column on its own
state:

    p(x, z) = p(z_root) p(x_root | z_root) prod_i p(z_i | z_parent(i)) p(x_i | z_i).

It is a hidden Chow-Liu tree (Liu and Van den Broeck, 2021). p(x_i | x_e) is exact for any evidence
by belief propagation (`trees.py`), what is missing is not in the product, and answers agree with
each other: they are conditionals of one joint distribution. `tree_fit.py` fits it in seconds.

A row must not see itself: in training it gets the message of parameters that were fitted without
the part of the rows (*fold*) that it is in (cross-fitting; Chernozhukov et al., 2018). Its fold
follows from all its values: nobody has to hand it on, and none of them may be hidden. Rows with
equal values are dealt to different folds, and take one of these at random: to leave out all of them
would make what is common rare.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.networks.contracts import PriorMessage
from anyorder.priors.contract import Prior, Units
from anyorder.priors.moments import in_rows
from anyorder.priors.tree_fit import READ, TreeFit, chow_liu, cut, mutual_information
from anyorder.priors.trees import (
    NO_LEVEL,
    Beliefs,
    Tree,
    TreeColumns,
    TreeParameters,
    code_pairs,
    tree_of,
)
from anyorder.variables import Schema

FOLDS, FEW_FOLDS, MANY_ROWS = 5, 2, 5000
"""Folds, those of many rows, and from how many on these are enough: a row hardly changes what is
fitted to so many."""


@dataclass
class TreeState:
    """What is known of each row.

    Args:
        own: Log-likelihood of the states by each known value. Shape ``(rows, vars, states)``.
        fold: Parameters of each row. Shape ``(rows,)``.
        found: The parameters, an axis of folds first.
        beliefs: Beliefs by all of it, while all rows go along one path.
    """

    own: Tensor
    fold: Tensor
    found: TreeParameters
    beliefs: Beliefs | None = None

    def at(self, rows: Tensor) -> "TreeState":
        """Selects rows."""
        beliefs = None if self.beliefs is None else self.beliefs.select(rows)
        return TreeState(self.own[rows], self.fold[rows], self.found, beliefs)


class LatentTree(Prior):
    """Tree of hidden states; see the module.

    Args:
        schema: The variables; context is not read.
        states: Number of states of a column; `fit` chooses it.
        balanced: True if states are moved to the frequencies and means of what rows have. False
            for values that are missing depending on others: there maximum likelihood knows better.

    Example:
        >>> from anyorder.variables import Variable
        >>> prior = LatentTree(Schema(tuple(Variable.categorical(n, [0, 1]) for n in "ab")))
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]).repeat(500, 1)
        >>> prior.fit(x, torch.ones_like(x, dtype=torch.bool))
        >>> state = prior.eval().encode(x[:1], torch.tensor([[True, False]]))
        >>> prior.ask(state, torch.tensor([[1]])).levels.exp().round(decimals=2)
        tensor([[[1., 0.]]])
    """

    is_cross_fitted = True

    parent: Tensor
    root: Tensor
    branch: Tensor
    tables: Tensor
    centers: Tensor
    variances: Tensor

    def __init__(self, schema: Schema, *, states: int = 1, balanced: bool = True) -> None:
        super().__init__(schema)
        self.balanced, self.columns = balanced, TreeColumns(schema)
        self.counts_pairs = balanced
        self.register_buffer("parent", torch.arange(-1, len(self.columns) - 1))
        self._keep(TreeParameters.even(self.columns, states))
        self.folds = FOLDS
        self._repeated: tuple[Tensor, Tensor] | None = None
        self._folds: TreeParameters | None = None  # stacked
        self._imputed: tuple[Tensor, Tensor] | None = None  # keys and folds of completed rows

    def _keep(self, found: TreeParameters) -> None:
        """Takes over parameters; those of a fit may be of another number of states than before."""
        self.states = len(found.root)
        for name, part in zip(found._fields, found, strict=True):
            self.register_buffer(name, part.float())

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
        cells, fold = self.columns.cells(x, have, weights), self._dealt(x)
        codes, sizes = cut(x, have, self.columns.codes_of, weights)
        pairs = code_pairs(codes[:READ], weights[:READ], sizes)
        self.parent[:] = torch.tensor(chow_liu(mutual_information(pairs, sizes)))

        def fitted(rows: Tensor) -> TreeParameters:
            own, balanced = cells.at(rows), self.balanced
            return TreeFit(
                self.columns, self.tree, own, codes[rows], sizes, balanced=balanced
            ).fitted()

        self._keep(fitted(fold >= 0))
        folds = [fitted(fold != number) for number in range(self.folds)]
        self._folds = TreeParameters(
            *(torch.stack(part).float() for part in zip(*folds, strict=True))
        )

    # Folds

    def _dealt(self, x: Tensor) -> Tensor:
        """Fold of each row of the fit; rows with the same values go to different ones."""
        keys = row_keys(x)
        distinct, which, counts = keys.unique(return_inverse=True, return_counts=True)
        order = which.argsort(stable=True)
        first = counts.cumsum(dim=0) - counts
        turn = torch.empty_like(which)
        turn[order] = torch.arange(len(x), device=x.device) - first[which[order]]
        self._repeated = distinct[counts > 1], counts[counts > 1]
        return (keys + turn) % self.folds

    def _fold(self, x: Tensor) -> Tensor:
        """Fold of each row in training; of several with the same values, that of any."""
        keys = row_keys(x)
        turn = torch.zeros_like(keys)
        assert self._repeated is not None
        repeated, counts = (part.to(x.device) for part in self._repeated)
        if len(repeated):
            place = torch.searchsorted(repeated, keys).clamp(max=len(repeated) - 1)
            copies = counts[place].where(repeated[place] == keys, 1)
            if self.training:  # evaluations are the same every time
                turn = (torch.rand(len(x), device=x.device) * copies).long()
        fold = (keys + turn) % self.folds
        if self._imputed is not None:
            imputed, folds = (part.to(x.device) for part in self._imputed)
            place = torch.searchsorted(imputed, keys).clamp(max=len(imputed) - 1)
            fold = folds[place].where(imputed[place] == keys, fold)
        return fold

    def stand_in(self, completed: Tensor, x: Tensor) -> None:
        """Completed rows get the folds of the rows that were read; see `Prior.stand_in`."""
        self._imputed = None
        keys, order = row_keys(completed).sort()
        self._imputed = keys, self._fold(x)[order]

    @property
    def _takes_folds(self) -> bool:
        return (self.training or self.leaves_out) and self._folds is not None

    def _stack(self) -> TreeParameters:
        """Parameters with an axis of folds, or of one fit.

        Doubles where the device has them, and nothing is trained: answers are to agree.
        """
        device = self.root.device
        kind = torch.float32 if self.training or device.type == "mps" else torch.float64
        own = (getattr(self, name)[None] for name in TreeParameters._fields)
        found = self._folds if self._takes_folds and self._folds is not None else own
        return TreeParameters(*(part.to(device, kind) for part in found))

    # Messages

    def along(self, x: Tensor, *, query: Tensor, given: Tensor, rank: Tensor) -> PriorMessage:
        """Message about each variable of a path; see `Prior.along`.

        Rows that share an order of the variables go along it together.
        """
        shared = _shared_order(query, rank.expand(query.shape))
        if shared is None:
            return super().along(x, query=query, given=given, rank=rank)
        state, is_given = self.encode(x, given | query), given[..., None]
        told, evidence = state.own.masked_fill(is_given, 0), state.own.masked_fill(~is_given, 0)
        asked = query.any(dim=0).tolist()
        order = [variable for variable in shared if asked[variable]]
        variables = torch.arange(len(self.columns), device=x.device).expand(query.shape)
        return self._said(replace(state, own=evidence), variables, told, order)

    def encode(self, x: Tensor, given: Tensor) -> TreeState:
        """Keeps the log-likelihood of the states by the evidence; see `Prior.encode`."""
        fold = torch.zeros(len(x), dtype=torch.long, device=x.device)
        fold = self._fold(x) if self._takes_folds else fold
        variables = torch.arange(len(self.columns), device=x.device).expand(given.shape)
        found = self._stack()
        own = self._told(found, fold, variables, x[:, : len(self.columns)])
        return TreeState(own.masked_fill(~given[..., None], 0), fold, found)

    def tell(self, state: TreeState, variables: Tensor, values: Tensor) -> TreeState:
        """Adds known values; see `Prior.tell`."""
        told = self._told(state.found, state.fold, variables, values)
        place, beliefs = variables[..., None].expand(told.shape), state.beliefs
        one = _only(variables)
        if beliefs is not None and one is not None:
            beliefs.tell(one, told[:, 0])
        own = state.own.scatter(1, place, told.to(state.own))
        return replace(state, own=own, beliefs=None if one is None else beliefs)

    def ask(self, state: TreeState, variables: Tensor) -> PriorMessage:
        """Message about variables; see `Prior.ask`."""
        one = _only(variables)
        if one is None or len(state.found.root) > 1:
            return self._said(state, variables)
        if state.beliefs is None:
            state.beliefs = self._beliefs(state.found, state.own.movedim(1, 0)[:, None])
        logs = state.beliefs.at(one)[0] - state.own[:, one]
        return self._message(state.found, state.fold, variables, logs[:, None].log_softmax(-1))

    def _told(
        self, found: TreeParameters, fold: Tensor, variables: Tensor, values: Tensor
    ) -> Tensor:
        """Log probability of values with each state. Shape ``(rows, tokens, states)``."""
        columns = self.columns
        codes = columns.codes(variables, values)
        told = found.tables[fold[:, None], columns.level[variables, codes]]
        if not len(columns.numbers):
            return told
        means, deviations = self._normals(found, fold, variables)
        away = (values.to(means)[..., None] - means) / deviations
        counts = columns.is_number[variables] & (codes == 0)
        return told + (-0.5 * away.square() - deviations.log()).where(counts[..., None], 0)

    def _normals(
        self, found: TreeParameters, fold: Tensor, variables: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Means and deviations of numbers with each state. Shapes ``(rows, tokens, states)``."""
        place = self.columns.place[variables]
        mean, variance = (
            part.mT[fold[:, None], place] for part in (found.centers, found.variances)
        )
        return mean, variance.sqrt()

    def _beliefs(self, found: TreeParameters, own: Tensor) -> Beliefs:
        """Beliefs by evidence ``(vars, folds, rows of a fold, states)``."""
        return Beliefs(self.tree, own, found.root[:, None], found.branch.transpose(0, 1))

    def _said(
        self,
        state: TreeState,
        variables: Tensor,
        told: Tensor | None = None,
        order: Sequence[int] = (),
    ) -> PriorMessage:
        """Message about variables from the beliefs about their states.

        Args:
            state: The evidence.
            variables: Shape ``(rows, tokens)``.
            told: Log-likelihood by the values that are told at their turns. Shape of `state.own`.
            order: The turns; none if nothing is told.
        """
        found, fold = state.found, state.fold
        place, into = _by_fold(fold, len(found.root))

        def arranged(own: Tensor) -> Tensor:
            """From rows to folds: ``(vars, folds, rows of a fold, states)``."""
            empty = own.new_zeros(into[0] * into[1], *own.shape[1:])
            return empty.index_copy(0, place, own).unflatten(0, into).movedim(2, 0)

        evidence = arranged(state.own)
        beliefs = self._beliefs(found, evidence)
        logs = beliefs.total - evidence
        if told is not None:
            values = arranged(told)
            for variable in order:
                logs[variable] = beliefs.at(variable)
                beliefs.tell(variable, values[variable])
        logs = logs.movedim(0, 2).flatten(0, 1)[place]  # (rows, vars, states)
        logs = logs.gather(1, variables[..., None].expand(*variables.shape, logs.shape[2]))
        return self._message(found, fold, variables, logs.log_softmax(-1))

    def _message(
        self, found: TreeParameters, fold: Tensor, variables: Tensor, logs: Tensor
    ) -> PriorMessage:
        """Message from the log probabilities of states ``(rows, tokens, states)``."""
        columns = self.columns
        levels = self._levels(found, fold, variables, logs.exp())
        zero = torch.zeros_like(levels[..., 0])
        none = zero[..., None][..., :0]
        silent = PriorMessage(zero, zero, none, none, none, levels)
        if not len(columns.numbers):
            return silent
        means, deviations = self._normals(found, fold, variables)
        if columns.has_atoms.any():  # the density is that of what is elsewhere
            place = columns.start[variables].masked_fill(~columns.has_atoms[variables], -1)
            logs = (logs + found.tables[fold[:, None], place]).log_softmax(dim=-1)
        states = torch.stack([logs, means, deviations.log()], dim=-2).float()
        gone = ~columns.is_number[variables]
        return replace(silent, states=states.masked_fill(gone[..., None, None], 0))

    def _levels(
        self, found: TreeParameters, fold: Tensor, variables: Tensor, weights: Tensor
    ) -> Tensor:
        """Log probability of each level. Shape ``(rows, tokens, most levels)``."""
        columns, tables = self.columns, found.tables
        levels = weights.new_zeros(*variables.shape, columns.most_levels)
        every = torch.arange(len(fold), device=fold.device)
        for one in fold.unique().tolist():
            rows = every if len(tables) == 1 else (fold == one).nonzero()[:, 0]
            own = variables[rows]
            if (own == own[:1]).all():
                table = tables[one][columns.level[own[0]]].exp()  # (tokens, levels, states)
                levels[rows] = (weights[rows].movedim(0, 1) @ table.mT).movedim(0, 1)
                continue
            for variable in own.unique().tolist():
                row, token = (own == variable).nonzero(as_tuple=True)
                share = weights[rows[row], token]
                levels[rows[row], token] = share @ tables[one][columns.level[variable]].exp().T
        return levels.log().masked_fill(~columns.inside[variables], NO_LEVEL).float()


def _only(variables: Tensor) -> int | None:
    """The one variable of all rows, if there is no other."""
    if variables.shape[1] != 1 or not len(variables):
        return None
    low, high = (int(end) for end in variables.aminmax())
    return low if low == high else None


def _shared_order(query: Tensor, rank: Tensor) -> list[int] | None:
    """Order of the variables in which all rows go, empty where each has one step; None if none."""
    if not len(query) or int(query.sum(dim=1).max()) <= 1:
        return []
    when = rank.masked_fill(~query, -1)
    if ((when == when.cummax(dim=1).values) | ~query).all():  # the order of the schema
        return list(range(query.shape[1]))
    return rank[0].argsort().tolist() if (rank == rank[:1]).all() else None


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


MIX = 0x9E3779B97F4A7C15 - 2**64
"""An odd number without pattern, by which keys are multiplied."""


def row_keys(x: Tensor) -> Tensor:
    """A number of 31 bits that depends on all values of a row. Shape ``(rows,)``."""
    key = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for column in (x.float() + 0.0).contiguous().view(torch.int32).long().unbind(dim=1):
        key = (key ^ column) * MIX
        key = key ^ (key >> 29)
    return (key >> 32) & (2**31 - 1)
