r"""Counts of pairs: p(category | one category), as a user counts it in the rows.

A tree says much about pairs that are neighbours in it, and less about others. Here the answer is

    p(a | b) = (n_ab + m p_prior(a | b)) / (n_b + m),

with n_ab rows that have both levels, and n_b that have b and any level of the other column. It is
averaged over m: each of `STRENGTHS` weighs share(m) times the likelihood of the counts beside b
under m (Dirichlet and multinomial), and the shares of a pair of columns are those under which all
its counts are likeliest (expectation maximisation). So where the prior is right about a pair, rare
evidence is smoothed by it; where it is wrong, rows count.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyorder.networks.contracts import PriorMessage
from anyorder.variables import Schema

STRENGTHS = torch.logspace(0, 6, 13, dtype=torch.float64).unbind()
"""Numbers of rows that a prior may stand for."""

ROUNDS = 20
"""Rounds of expectation maximisation of their shares."""

MOST_LEVELS = 1000
"""Pairs of more levels in all are not counted: their table would have millions of cells."""

ROWS, CELLS = 8192, 2**22
"""Rows, and cells of answers, that are in memory at a time."""

LEAST, NO_CHANCE = 1e-12, -1e4

Levels = Callable[[Tensor, Tensor], Tensor]
"""Log probability of each level of each variable, from values ``(rows, columns)`` and which of them
are given. Shape ``(rows, vars, levels)``."""


class PairCounts(nn.Module):
    """Answers about categories where one category is all that is known.

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
        if sum(sizes) > MOST_LEVELS:
            sizes = [0] * len(sizes)
        total, start = sum(sizes), torch.tensor([0, *sizes]).cumsum(dim=0)[:-1]
        levels, counts = torch.arange(max([1, *sizes])), torch.tensor(sizes)[:, None]
        own = {
            "start": start,
            "is_category": counts[:, 0] > 0,
            "column": torch.arange(len(sizes)).repeat_interleave(counts[:, 0]),
            "level": (start[:, None] + levels).where(levels < counts, total),
        }
        for name, part in own.items():
            self.register_buffer(name, part, persistent=False)
        self.register_buffer("fitted", torch.tensor(False))
        # Log probability of each level by one that is known; the last column is of no level.
        self.register_buffer("table", torch.zeros(total, total + 1))

    def fit(self, prior: Levels, x: Tensor, have: Tensor, weights: Tensor) -> None:
        """Counts rows.

        Args:
            prior: What a prior says.
            x: Values. Shape ``(rows, columns)``.
            have: False for missing values. Shape ``(rows, vars)``.
            weights: Weights of the rows, in rows. Shape ``(rows,)``.
        """
        column = self.column
        if not len(column):
            return
        counts = torch.zeros(len(column), len(column), dtype=torch.float64, device=x.device)
        own = torch.arange(len(column), device=x.device) - self.start[column]
        for rows in torch.arange(len(x), device=x.device).split(ROWS):
            values = x[rows][:, column].long()
            hits = ((values == own) & have[rows][:, column]).double()
            counts += hits.T @ (hits * weights[rows, None])
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
        for _ in range(ROUNDS):
            shares = weights.new_zeros(len(logs), *[len(self.start)] * 2)
            shares = shares.index_add(1, column, weights).clamp(min=LEAST).log()
            weights = (logs + shares[:, column]).softmax(dim=0)
        answers = torch.zeros_like(counts)
        for strength, weight in zip(STRENGTHS, weights, strict=True):
            smoothed = (counts + strength * says) / (rows_of[:, column] + strength)
            answers += weight[:, column] * smoothed
        self.table.copy_(F.pad(answers.log(), (0, 1), value=NO_CHANCE))
        self.fitted.fill_(True)

    def _says(self, prior: Levels) -> Tensor:
        """Probability of each level given each, by a prior. Shape ``(levels, levels)``."""
        column = self.column
        own = torch.arange(len(column), device=column.device) - self.start[column]
        given = F.one_hot(column, len(self.start)).bool()
        x = given * own[:, None].float()
        at_once = max(1, CELLS // (len(self.start) * self.level.shape[1]))
        pairs = zip(x.split(at_once), given.split(at_once), strict=True)
        found = [prior(*pair)[:, column, own].double().exp() for pair in pairs]
        return torch.cat(found).clamp(min=LEAST)

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
        levels = F.pad(levels, (0, more), value=NO_CHANCE)
        return replace(message, levels=levels.where(counts[..., None], message.levels))
