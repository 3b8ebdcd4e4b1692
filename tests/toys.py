"""Networks that know a joint distribution by heart, in place of trained ones.

They answer every conditional exactly, so all that is left to test is the walk.
"""

from itertools import product

import torch
from torch import Tensor, nn

from anyorder import Schema, Variable
from anyorder.heads.distributions import Categorical, Conditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.networks.contracts import MaskedNetwork, PathFeatures, PathNetwork
from tests import oracle

SIZES = (2, 3, 2, 2)
SCHEMA = Schema(tuple(Variable.categorical(f"x{i}", range(s)) for i, s in enumerate(SIZES)))


def toy_joint(seed: int = 0) -> oracle.Joint:
    worlds = list(product(*(range(size) for size in SIZES)))
    weights = torch.rand(len(worlds), generator=torch.Generator().manual_seed(seed)).double() ** 2
    return dict(zip(worlds, (weights / weights.sum()).tolist(), strict=True))


def all_values() -> Tensor:
    return torch.tensor(list(product(*(range(size) for size in SIZES))))


class Table(nn.Module):
    """p(x_i | x_known) for all i by summing a table."""

    def __init__(self, joint: oracle.Joint) -> None:
        super().__init__()
        table = torch.tensor(list(joint.values()), dtype=torch.float64)
        self.table = nn.Parameter(table.view(SIZES), requires_grad=False)

    def logits(self, x: Tensor, known: Tensor, variable: int) -> Tensor:
        """For one row: ``(levels,)``, padded with -inf."""
        index = tuple(int(x[i]) if known[i] else slice(None) for i in range(len(SIZES)))
        left = [i for i in range(len(SIZES)) if not known[i]]
        result = torch.full((max(SIZES),), -torch.inf, dtype=torch.float64)
        if known[variable]:
            result[int(x[variable])] = 0.0
            return result
        others = tuple(place for place, i in enumerate(left) if i != variable)
        values = self.table[index].sum(dim=others) if others else self.table[index]
        result[: SIZES[variable]] = values.log()
        return result


class ToyMasked(MaskedNetwork):
    """The masked contract."""

    width = max(SIZES)

    def __init__(self, joint: oracle.Joint) -> None:
        super().__init__()
        self.table = Table(joint)
        self.passes = 0

    def forward(self, x: Tensor, observed: Tensor, targets: Tensor | None = None) -> Tensor:
        self.passes += len(x)
        wanted = torch.arange(len(SIZES)).expand(len(x), -1) if targets is None else targets
        return torch.stack(
            [
                torch.stack([self.table.logits(values, known, int(i)) for i in row])
                for values, known, row in zip(x, observed, wanted, strict=True)
            ]
        )


class ToyState:
    """What was given and told, a row a draw."""

    def __init__(self, x: Tensor, known: Tensor, draws: int = 1) -> None:
        self.x, self.known, self.draws = x.clone(), known.clone(), draws

    def expand(self, draws: int) -> "ToyState":
        x, known = (t.repeat_interleave(draws, 0) for t in (self.x, self.known))
        return ToyState(x, known, self.draws * draws)

    def select(self, rows: Tensor) -> "ToyState":
        places = (rows[:, None] * self.draws + torch.arange(self.draws)).flatten()
        return ToyState(self.x[places], self.known[places], self.draws)


class ToyPath(PathNetwork[ToyState]):
    """The path contract."""

    width = max(SIZES)

    def __init__(self, joint: oracle.Joint) -> None:
        super().__init__()
        self.table = Table(joint)
        self.passes = 0

    def encode(self, x: Tensor, given: Tensor) -> ToyState:
        return ToyState(x, given)

    def ask(self, state: ToyState, variables: Tensor) -> Tensor:
        self.passes += 1
        wanted = variables.expand(len(state.x), -1)
        return torch.stack(
            [
                torch.stack([self.table.logits(values, known, int(i)) for i in row])
                for values, known, row in zip(state.x, state.known, wanted, strict=True)
            ]
        )

    def tell(self, state: ToyState, variables: Tensor, values: Tensor) -> ToyState:
        wanted = variables.expand_as(values)
        state.x.scatter_(1, wanted, values)
        state.known.scatter_(1, wanted, True)
        return state

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        self.passes += 1
        features, edges = [torch.zeros(0, self.width, dtype=torch.float64)], []
        for row in range(len(x)):
            known = given[row].clone()
            ranks = rank.expand_as(query)[row]
            path = sorted(query[row].nonzero().flatten().tolist(), key=lambda i: int(ranks[i]))
            for step, i in enumerate(path):
                features.append(self.table.logits(x[row], known, i)[None])
                edges.append((row, step, i))
                known[i] = True
        columns = torch.tensor(edges, dtype=torch.long).view(-1, 3).T
        return PathFeatures(torch.cat(features), *columns)


class ReadOff(Conditionals):
    """Conditionals for networks whose features are log probabilities."""

    def forward(self, features: Tensor, variables: Tensor) -> Categorical:
        del variables
        return Categorical(features)


def toy_model(kind: str, protocol: object, seed: int = 0) -> AnyOrderModel:
    network = {"masked": ToyMasked, "path": ToyPath}[kind](toy_joint(seed))
    return AnyOrderModel(SCHEMA, network, ReadOff(), protocol)  # type: ignore[arg-type]


class DisagreeingTable(Table):
    """Conditionals that belong to one joint or to another, by how much is known: no chain rule."""

    def __init__(self, joint: oracle.Joint, other: oracle.Joint) -> None:
        super().__init__(joint)
        self.other = Table(other)

    def logits(self, x: Tensor, known: Tensor, variable: int) -> Tensor:
        odd = int(known.sum()) % 2
        return self.other.logits(x, known, variable) if odd else super().logits(x, known, variable)


def disagreeing_rule(x: oracle.Values, known: oracle.Set, variable: int) -> float:
    """The conditionals of `disagreeing_model`, for the oracle."""
    joint = toy_joint(len(known) % 2)
    return oracle.conditional(joint, x, frozenset({variable}), known)


def disagreeing_model(kind: str, protocol: object) -> AnyOrderModel:
    model = toy_model(kind, protocol)
    model.network.table = DisagreeingTable(toy_joint(0), toy_joint(1))
    return model


class TwoFacedPath(ToyPath):
    """A path network for which evidence means one joint, and what it is told another."""

    def __init__(self, joint: oracle.Joint, told: oracle.Joint) -> None:
        super().__init__(joint)
        self.evident, self.told = Table(joint), Table(told)

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        self.table = self.evident if given.any() else self.told
        return super().forward(x, query, given, rank)
