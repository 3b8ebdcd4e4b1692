"""Priors with hidden states: columns are independent given states that are never seen.

What priors of this kind share is here: how a state has the levels and the numbers of a column, how
rows are read, cross-fitting in folds, and the message about a variable from the probabilities of
its states. A number with repeated values (atoms) has a category of its own, which value or
*elsewhere*, and a normal for what is elsewhere.

A row must not see itself: in training it gets the message of states that were fitted without the
part of the rows (*fold*) that it is in. Its fold follows from its values, so nobody has to hand it
on. Rows with equal values are dealt to different folds, and take one of these at random: to leave
out all of them would make what is common rare.

Reference: Chernozhukov et al. (2018): cross-fitting.
"""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from anyorder.networks.contracts import PriorMessage
from anyorder.priors.contract import Prior
from anyorder.variables import Schema

FOLDS = 5
"""Number of folds; the first is left out to choose the number of states, too."""

UNSEEN = 0.5
"""Rows that a level counts for before any is seen: none is impossible."""

NO_CHANCE = -1e4
"""Log probability of a level that a variable does not have."""

BALANCED, CLOSE = 1000, 1e-12
"""Most rounds in which tables are moved to frequencies, and how close these are reached."""


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


class LatentPrior(Prior):
    """Prior with hidden states; see the module.

    The parameters of a subclass are a named tuple with at least

    - `tables`: log probability of each level given a state, ``(levels + 1, states)``, 0 for
      "missing";
    - `centers`, `variances`: moments of the numbers, ``(states, numbers)``.

    Args:
        schema: The variables; context is not read.
        densities: True for messages about numbers, too; numbers are evidence either way.
        balanced: True if states are moved to the frequencies and means of what rows have. False
            for values that are missing depending on others: there maximum likelihood knows better.
    """

    is_cross_fitted = True
    parameters_type: ClassVar[Any]

    start: Tensor
    level: Tensor
    inside: Tensor
    numbers: Tensor
    has_levels: Tensor
    has_atoms: Tensor
    is_number: Tensor
    category: Tensor
    values: Tensor
    place: Tensor

    def __init__(self, schema: Schema, *, balanced: bool, densities: bool) -> None:
        super().__init__(schema)
        self.balanced, self.densities = balanced, densities
        asked = [variable for variable in schema if not variable.context]
        sizes = [v.num_levels or (len(v.atoms) + 1 if v.atoms else 0) for v in asked]
        self.atoms = [torch.tensor(v.atoms) for v in asked]
        self.sizes, self.most_levels = sizes, max([1, *sizes])
        numbers = [i for i, v in enumerate(asked) if v.kind == "continuous"]
        start = torch.tensor([0, *sizes]).cumsum(dim=0)
        has_levels = [i for i, size in enumerate(sizes) if size]
        levels = torch.arange(self.most_levels)
        inside = levels < torch.tensor(sizes)[:, None]
        # An atom's levels begin with "elsewhere".
        table = (start[:-1, None] + levels).where(inside, int(start[-1]))
        own = {
            "start": start[:-1],
            "level": table,  # (vars, most levels), the last level where there is none
            "inside": inside,
            "numbers": torch.tensor(numbers, dtype=torch.long),
            "has_levels": torch.tensor(has_levels, dtype=torch.long),
            "has_atoms": torch.tensor([bool(v.atoms) for v in asked]),
            "is_number": torch.tensor([v.kind == "continuous" for v in asked]),
            "category": torch.arange(len(has_levels)).repeat_interleave(
                torch.tensor([size for size in sizes if size], dtype=torch.long)
            ),
        }
        none = float("nan")
        values = [[none, *v.atoms] if v.atoms else [none] * v.num_levels for v in asked]
        own["values"] = torch.tensor([v for part in values for v in part], dtype=torch.float64)
        place = torch.zeros(len(asked), dtype=torch.long)
        place[numbers] = torch.arange(len(numbers))
        own["place"] = place
        for name, part in own.items():
            self.register_buffer(name, part, persistent=False)
        self._repeated: tuple[Tensor, Tensor] | None = None
        self._folds: Any = None  # stacked parameters

        self.folds = FOLDS

    def _even(self, states: int) -> tuple[Tensor, Tensor, Tensor]:
        """Tables, centers and variances before any row is read: equal levels, standard normals."""
        even = -torch.tensor([float(s) for s in self.sizes if s]).log()[self.category]
        tables = nn.functional.pad(even, (0, 1))[:, None].repeat(1, states)
        zeros, ones = torch.zeros(states, len(self.numbers)), torch.ones(states, len(self.numbers))
        return tables, zeros, ones

    def _register(self, states: int, found: Any) -> None:
        """Takes over parameters; those of a fit may be of another number of states than before."""
        self.components = states if len(self.numbers) and self.densities else 0
        for name, part in zip(found._fields, found, strict=True):
            self.register_buffer(name, part.float())

    @property
    def _elsewhere(self) -> Tensor:
        """Level that a number must have to count, or -1. Shape ``(numbers,)``."""
        return self.start[self.numbers].masked_fill(~self.has_atoms[self.numbers], -1)

    def _cells(self, x: Tensor, have: Tensor, weights: Tensor) -> Cells:
        variables = torch.arange(len(self.start), device=x.device)
        x = x[:, : len(variables)]
        codes = self._codes(variables.expand(x.shape), x)
        places = (self.start + codes).masked_fill(~have, len(self.category))
        counts = (codes == 0) | ~self.has_atoms
        there = (have & counts)[:, self.numbers]
        z = x[:, self.numbers].double().masked_fill(~there, 0)
        return Cells(places[:, self.has_levels], z, there, weights)

    def _codes(self, variables: Tensor, values: Tensor) -> Tensor:
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
        return (keys + turn) % self.folds

    def _parameters_of(self, x: Tensor) -> tuple[Any, Tensor]:
        """Stacked parameters, and which of them each row has: one fit, or those of the folds."""
        fold = torch.zeros(len(x), dtype=torch.long, device=x.device)
        return self._stacked(), self._fold(x) if self._takes_folds else fold

    @property
    def _takes_folds(self) -> bool:
        return (self.training or self.leaves_out) and self._folds is not None

    def _stacked(self) -> Any:
        """Parameters with an axis of folds, or of one fit.

        Doubles where the device has them, and nothing is trained: answers are to agree.
        """
        device = self.start.device
        kind = torch.float32 if self.training or device.type == "mps" else torch.float64
        own = (getattr(self, name)[None] for name in self.parameters_type._fields)
        found = self._folds if self._takes_folds and self._folds is not None else own
        return self.parameters_type(*(part.to(device, kind) for part in found))

    # Messages

    def _told(self, states: Any, fold: Tensor, variables: Tensor, values: Tensor) -> Tensor:
        """Log probability of values with each state; joint numbers as if they were not.

        Shape ``(rows, tokens, states)``.
        """
        codes = self._codes(variables, values)
        levels = self.level[variables, codes]
        found = states.tables[fold[:, None], levels]
        if not len(self.numbers):
            return found
        means, deviations = self._normals(states, fold, variables)
        away = (values.to(means)[..., None] - means) / deviations
        logs = -0.5 * away.square() - deviations.log()
        counts = self.is_number[variables] & (codes == 0)
        return found + logs.where(counts[..., None], 0)

    def _normals(self, states: Any, fold: Tensor, variables: Tensor) -> tuple[Tensor, Tensor]:
        """Means and deviations of numbers with each state. Shapes ``(rows, tokens, states)``."""
        if not len(self.numbers):
            nothing = states.centers.new_zeros(*variables.shape, 0)
            return nothing, nothing
        place = self.place[variables]
        mean, variance = (
            part.mT[fold[:, None], place] for part in (states.centers, states.variances)
        )
        return mean, variance.sqrt()

    def _message(
        self,
        states: Any,
        fold: Tensor,
        variables: Tensor,
        logs: Tensor,
        means: Tensor,
        deviations: Tensor,
    ) -> PriorMessage:
        """Message from log weights, means and deviations ``(rows, tokens, states)``."""
        weights = logs.exp()
        levels = self._levels(states, fold, variables, weights)
        if not means.shape[-1] or not self.densities:
            zero, none = levels.new_zeros(variables.shape), means[..., :0].to(levels)
            return PriorMessage(zero, zero, none, none, none, levels)
        if self.has_atoms.any():  # the density is that of what is elsewhere
            place = self.start[variables].masked_fill(~self.has_atoms[variables], -1)
            beside = states.tables[fold[:, None], place]
            logs = (logs + beside).log_softmax(dim=-1)
            weights = logs.exp()
        mean = (weights * means).sum(dim=-1)
        spread = deviations.square() + (means - mean[..., None]).square()
        log_scale = 0.5 * (weights * spread).sum(dim=-1).log()
        gone = ~self.is_number[variables]
        location, log_scale = (part.masked_fill(gone, 0) for part in (mean, log_scale))
        parts = (location, log_scale, logs, means, deviations.log(), levels)
        return PriorMessage(*(part.float() for part in parts))

    def _levels(self, states: Any, fold: Tensor, variables: Tensor, weights: Tensor) -> Tensor:
        """Log probability of each level. Shape ``(rows, tokens, most levels)``."""
        found = weights.new_zeros(*variables.shape, self.most_levels)
        tables = states.tables.exp()
        every = torch.arange(len(fold), device=fold.device)
        for one in fold.unique().tolist():
            rows = every if len(tables) == 1 else (fold == one).nonzero()[:, 0]
            own = variables[rows]
            if (own == own[:1]).all():
                table = tables[one][self.level[own[0]]]  # (tokens, levels, classes)
                found[rows] = (weights[rows].movedim(0, 1) @ table.mT).movedim(0, 1)
                continue
            for variable in own.unique().tolist():
                row, token = (own == variable).nonzero(as_tuple=True)
                share = weights[rows[row], token]
                found[rows[row], token] = share @ tables[one][self.level[variable]].T
        return found.log().masked_fill(~self.inside[variables], NO_CHANCE).float()


def balanced(tables: Tensor, states: Tensor, shares: Tensor, category: Tensor) -> Tensor:
    """Moves tables so that without evidence levels have their shares.

    The probabilities of state and level are scaled in turns to the shares of both (Sinkhorn): of
    all that have these shares, those are the nearest.

    Args:
        tables: Log probability of each level; the last is "missing". Shape
            ``(levels + 1, states)``.
        states: Log probability of the states without evidence, of the column of each level. Shape
            ``(levels, states)`` or ``(1, states)``.
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
    return nn.functional.pad((both / weights).log(), (0, 0, 0, 1))


def centered(
    centers: Tensor, tables: Tensor, states: Tensor, mean: Tensor, elsewhere: Tensor
) -> Tensor:
    """Moves centers by one step for all states to the means of the rows.

    Args:
        centers: Shape ``(states, numbers)``.
        tables: See `balanced`.
        states: Log probability of the states without evidence. Shape ``(numbers, states)`` or
            ``(states,)``.
        mean: Mean of each number. Shape ``(numbers,)``.
        elsewhere: Level that a number must have to count, or -1. Shape ``(numbers,)``.
    """
    beside = tables[elsewhere].masked_fill((elsewhere < 0)[:, None], 0)
    weights = (states + beside).softmax(dim=1)  # (numbers, states)
    return centers + mean - (weights * centers.T).sum(dim=1)


def by_category(levels: Tensor, category: Tensor) -> Tensor:
    """Sum over the levels of each category, for each level. Shape of `levels`."""
    count = int(category[-1]) + 1 if len(category) else 0
    sums = levels.new_zeros(count, *levels.shape[1:])
    return sums.index_add_(0, category, levels)[category]


MIX = 0x9E3779B97F4A7C15 - 2**64
"""An odd number without pattern, by which keys are multiplied."""


def row_keys(x: Tensor) -> Tensor:
    """A number of 31 bits that depends on all values of a row. Shape ``(rows,)``."""
    key = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for column in (x.float() + 0.0).contiguous().view(torch.int32).long().unbind(dim=1):
        key = (key ^ column) * MIX
        key = key ^ (key >> 29)
    return (key >> 32) & (2**31 - 1)
