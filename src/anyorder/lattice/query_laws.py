"""Query laws: distributions over questions p(x_query | x_given).

The paper's mask distribution M is the case of marginals, where nothing is given. Training on what a
query law induces on the lattice is the paper's insight (B): spend capacity on the questions that
will be asked.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.errors import (
    ConfigError,
    check_available,
    check_count,
    check_disjoint,
    check_sets,
    check_weights,
)
from anyorder.lattice.masks import CardinalityLaw, Fixed, MaskDistribution, UniformCardinality
from anyorder.lattice.random_sets import draws, redraw, source_device, subsets, uniform


class Query(NamedTuple):
    """A batch of questions: two disjoint sets a row, booleans of shape ``(batch, vars)``."""

    given: Tensor
    query: Tensor


class QueryLaw(ABC):
    """A law over (given, query)."""

    num_variables: int

    @property
    @abstractmethod
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""

    asks_rest: bool = False
    """Whether every question asks all that is not given, rather than giving nothing."""

    gives_part: bool = False
    """Whether some of what is not asked is given: in a question that asks c variables, g others
    with a probability proportional to 1 / (g + c + 1)."""

    @property
    def size_law(self) -> CardinalityLaw | None:
        """The law of the set that is drawn, where sets of one size are alike; else None.

        It is the asked set, or the given one where all the rest is asked.
        """
        return None

    @property
    def listed(self) -> tuple[Query, Tensor] | None:
        """The questions of a law that has few of them, and their probabilities; else None."""
        return None

    def log_asked_sizes(self, num_available: int) -> Tensor | None:
        """The law of the number asked, where questions of one size are alike; else None.

        Args:
            num_available: Among how many variables the questions are restricted to (a).

        Returns:
            Log probabilities of the sizes 0..a, shape ``(a + 1,)``.
        """
        if self.size_law is None:
            return None
        sizes = self.size_law.log_restricted(num_available)
        return sizes.flip(0) if self.asks_rest else sizes

    def sample(
        self,
        batch: int,
        *,
        available: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Query:
        """Draws questions, one a row.

        Args:
            batch: How many.
            available: Booleans ``(batch, vars)``: the variables that each row has. Both sets are
                then intersected with them, given that something is left to ask.
            generator: The source of randomness.
        """
        check_count("batch", batch)
        if available is None:
            return self._draw(batch, source_device(generator), generator)
        have = check_available(available, self.num_variables, batch)
        device = have.device

        def draw(rows: Tensor) -> tuple[Tensor, ...]:
            given, query = self._draw(len(rows), device, generator)
            return given & have[rows], query & have[rows]

        return Query(*redraw(draw, lambda _, drawn: drawn[1].any(dim=1), batch, device=device))

    def log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        """The log probability of each question, float64 of shape ``(batch,)``."""
        check_sets("given", given, self.num_variables)
        check_sets("query", query, self.num_variables)
        check_disjoint(given, query)
        return self._log_prob(given, query)

    @abstractmethod
    def _draw(
        self, batch: int, device: torch.device, generator: torch.Generator | None
    ) -> Query: ...

    @abstractmethod
    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor: ...


class MarginalQueries(QueryLaw):
    """Marginals p(x_S) with S from a mask distribution: nothing is given.

    Args:
        masks: The law of S.
    """

    def __init__(self, masks: MaskDistribution) -> None:
        self.masks = _check_masks("masks", masks)
        self.num_variables = masks.num_variables

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        return 0, self.masks.max_cardinality

    @property
    def size_law(self) -> CardinalityLaw | None:
        """The law of S, where sets of one size are alike; else None."""
        return self.masks if isinstance(self.masks, CardinalityLaw) else None

    @property
    def listed(self) -> tuple[Query, Tensor] | None:
        """The questions of a law of few sets, and their probabilities; else None."""
        if not isinstance(self.masks, Fixed):
            return None
        return Query(torch.zeros_like(self.masks.sets), self.masks.sets), self.masks.probabilities

    def _draw(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        query = self.masks._draw(batch, device, generator)
        return Query(torch.zeros_like(query), query)

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        return self.masks._log_prob(query).masked_fill(given.any(dim=1), -math.inf)

    def __repr__(self) -> str:
        return f"MarginalQueries({self.masks!r})"


class ConditionalQueries(QueryLaw):
    """Conditionals p(x_rest | x_given): all that is not given is asked.

    Args:
        num_variables: N.
        given: The law of the given set; by default its size is uniform on 0..N-1.
    """

    asks_rest = True

    def __init__(self, num_variables: int, given: MaskDistribution | None = None) -> None:
        self.num_variables = check_count("num_variables", num_variables)
        anything = UniformCardinality(num_variables, low=0, high=num_variables - 1)
        self.given = anything if given is None else _check_masks("given", given)
        if self.given.num_variables != num_variables:
            raise ConfigError(
                f"`given` must be a law over {num_variables} variables; "
                f"it is over {self.given.num_variables}."
            )

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        return self.given.max_cardinality, self.num_variables - self.given.min_cardinality

    @property
    def size_law(self) -> CardinalityLaw | None:
        """The law of the given set, where sets of one size are alike; else None."""
        return self.given if isinstance(self.given, CardinalityLaw) else None

    @property
    def listed(self) -> tuple[Query, Tensor] | None:
        """The questions of a law of few given sets, and their probabilities; else None."""
        if not isinstance(self.given, Fixed):
            return None
        return Query(self.given.sets, ~self.given.sets), self.given.probabilities

    def _draw(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        given = self.given._draw(batch, device, generator)
        return Query(given, ~given)

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        complete = (given | query).all(dim=1)
        return self.given._log_prob(given).masked_fill(~complete, -math.inf)

    def __repr__(self) -> str:
        return f"ConditionalQueries({self.num_variables}, given={self.given!r})"


class PartialQueries(QueryLaw):
    r"""Conditionals p(x_query | x_given) with the rest unknown.

    The size s of the set that a question is about is uniform on 0..N, and the number of these that
    are asked is uniform on 0..s, given that it is not 0: so P(s) is proportional to s / (s + 1).
    Restricted to a row's variables it is the same law with a of them instead of N.

    Args:
        num_variables: N.
    """

    gives_part = True

    def __init__(self, num_variables: int) -> None:
        self.num_variables = check_count("num_variables", num_variables)

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        return self.num_variables - 1, self.num_variables

    def log_asked_sizes(self, num_available: int) -> Tensor:
        """The law of the number asked: P(c > 0) is the sum over s >= c of 1 / (s + 1), scaled."""
        n, a = self.num_variables, num_available
        sizes = torch.arange(1, a + 1, dtype=torch.float64)
        tails = (1 / (sizes + 1)).flip(0).cumsum(0).flip(0) / (a + 1)
        # Something is asked with this probability before the condition.
        asked = _partial_sizes(n).sum() / (n + 1)
        return torch.cat([(1 - tails.sum() / asked).clamp(min=0)[None], tails / asked]).log()

    def _draw(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        everything = torch.ones(batch, self.num_variables, dtype=torch.bool, device=device)
        weights = _partial_sizes(self.num_variables).to(device)
        sizes = 1 + draws(weights, batch, generator=generator)
        about = subsets(sizes, everything, generator=generator)
        asked = uniform((batch,), device=device, generator=generator) * sizes
        query = subsets(1 + asked.long(), about, generator=generator)
        return Query(about & ~query, query)

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        asked = query.sum(dim=1).double()
        size = asked + given.sum(dim=1)
        logs = -(size + 1).log() - _partial_sizes(self.num_variables).sum().log()
        logs = logs - _log_choose(self.num_variables, size) - _log_choose(size, asked)
        return torch.where(asked > 0, logs, -math.inf)

    def __repr__(self) -> str:
        return f"PartialQueries({self.num_variables})"


class QueryList(QueryLaw):
    """The questions that will really be asked, with their weights.

    Args:
        num_variables: N.
        queries: Triples (given, query, weight); the sets are the indices of their variables.

    Example:
        >>> law = QueryList(3, [([0], [2], 3.0), ([], [0, 1], 1.0)])
        >>> law.weights.tolist()
        [0.75, 0.25]
    """

    def __init__(
        self, num_variables: int, queries: Iterable[tuple[Iterable[int], Iterable[int], float]]
    ) -> None:
        self.num_variables = check_count("num_variables", num_variables)
        try:
            triples = [(tuple(given), tuple(query), weight) for given, query, weight in queries]
        except (TypeError, ValueError):
            raise ConfigError(
                "`queries` must be a list of triples (given, query, weight), the first two lists "
                f"of variables; got {queries!r}."
            ) from None
        if not triples:
            raise ConfigError("`queries` must hold at least one (given, query, weight); got none.")
        given, query, weights = zip(*triples, strict=True)
        self.given = torch.stack([_members("given", members, num_variables) for members in given])
        self.query = torch.stack([_members("query", members, num_variables) for members in query])
        check_disjoint(self.given, self.query)
        if not self.query.any(dim=1).all():
            raise ConfigError("Every query of `queries` must ask at least one variable.")
        self.weights = check_weights("weights", weights, size=len(triples))

    @property
    def listed(self) -> tuple[Query, Tensor] | None:
        """The questions and their probabilities."""
        return Query(self.given, self.query), self.weights

    @property
    def queries(self) -> list[tuple[list[int], list[int], float]]:
        """The questions as they were given, with weights that sum to 1."""
        sets = zip(self.given, self.query, self.weights.tolist(), strict=True)
        return [
            (g.nonzero().flatten().tolist(), q.nonzero().flatten().tolist(), w) for g, q, w in sets
        ]

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        asked = self.weights > 0
        return int(self.given[asked].sum(dim=1).max()), int(self.query[asked].sum(dim=1).max())

    def _draw(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        choice = draws(self.weights.to(device), batch, generator=generator)
        return Query(self.given.to(device)[choice], self.query.to(device)[choice])

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        asked = torch.cat([given, query], dim=1)[:, None]
        listed = torch.cat([self.given, self.query], dim=1).to(asked.device)
        return ((asked == listed).all(dim=2) * self.weights.to(asked.device)).sum(dim=1).log()

    def __repr__(self) -> str:
        return f"QueryList({self.num_variables}, {len(self.weights)} queries)"


def as_query_law(law: QueryLaw | MaskDistribution) -> QueryLaw:
    """A mask distribution is the law of marginal queries; a query law is itself."""
    if isinstance(law, QueryLaw):
        return law
    if isinstance(law, MaskDistribution):
        return MarginalQueries(law)
    raise ConfigError(
        f"A query law must be a QueryLaw or a MaskDistribution; got {type(law).__name__}."
    )


def _partial_sizes(n: int) -> Tensor:
    """The odds s / (s + 1) of the sizes s = 1 .. n."""
    sizes = torch.arange(1, n + 1, dtype=torch.float64)
    return sizes / (sizes + 1)


def _log_choose(n: Tensor | int, k: Tensor) -> Tensor:
    total = torch.as_tensor(n, dtype=torch.float64, device=k.device)
    return torch.lgamma(total + 1) - torch.lgamma(k + 1) - torch.lgamma(total - k + 1)


def _check_masks(name: str, masks: object) -> MaskDistribution:
    if not isinstance(masks, MaskDistribution):
        raise ConfigError(f"`{name}` must be a MaskDistribution; got {type(masks).__name__}.")
    return masks


def _members(name: str, members: Iterable[int], num_variables: int) -> Tensor:
    row = torch.zeros(num_variables, dtype=torch.bool)
    for member in members:
        row[check_count(name, member, low=0, high=num_variables - 1)] = True
    return row
