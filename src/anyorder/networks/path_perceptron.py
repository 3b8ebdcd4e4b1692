r"""Path perceptron: the features of all factors of p(x_u | x_e) in one pass, without tokens.

A masked autoregressive perceptron (Germain et al., 2015, MADE) with two groups of inputs. Its pass
is a few products of matrices, which for few variables take far less time than a Transformer's.

- Inputs E are the values of the *given* variables; every unit reads them.
- Inputs U are the values of the *queried* variables. Each hidden unit has a degree d in 0..N-1, as
  many units for each degree. It reads U_j for j < d, and hidden units of degree at most d.
- A unit reads a value with the same weights, whether it is given or queried.
- The features of variable i are its units, those of degree i.

So the features of i depend on e and on the part of u before i, and on nothing else: they are those
of the factor p(x_i | x_e, x_{u<i}) along the canonical order, which is the order of the schema.
Without inputs U every feature is that of p(x_i | x_e).

Along other orders each factor is a row of its own, whose evidence is all that is known by then.

Step by step, the units of degree d never change once the variables before d are told. The state
keeps them (`KnownUnits`), so that a whole path costs about as much as one pass.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyorder.errors import check_count
from anyorder.lattice.protocols import edge_places, path_lists
from anyorder.networks.blocks import AtomTable, Dropout, PiecewiseLinear
from anyorder.networks.contracts import PathFeatures, PathNetwork, RowState
from anyorder.variables import Schema


class ValueEncoding(nn.Module):
    """All values of a row side by side: levels one-hot, numbers piecewise-linear with their atoms.

    Args:
        schema: The variables, context included.

    Example:
        >>> from anyorder.variables import Variable
        >>> levels = {"x": [1, 2, 3], "y": [0, 1]}
        >>> schema = Schema(tuple(Variable.categorical(*item) for item in levels.items()))
        >>> ValueEncoding(schema)(torch.tensor([[2, 0]]))
        tensor([[0., 0., 1., 1., 0.]])
    """

    owner: Tensor
    first: Tensor
    numbers: Tensor
    levels: Tensor
    pieces: Tensor
    atom_places: Tensor

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.encoding, self.atoms = PiecewiseLinear(), AtomTable(schema.variables)
        smooth = PiecewiseLinear.features + 1  # one more feature says that there is a number
        is_number = torch.tensor([variable.kind == "continuous" for variable in schema])
        sizes = torch.tensor(
            [smooth + len(v.atoms) if v.kind == "continuous" else v.num_levels for v in schema]
        )
        first, numbers = sizes.cumsum(0) - sizes, is_number.nonzero().flatten()
        counts = torch.tensor([len(variable.atoms) for variable in schema])
        within = torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(
            counts
        )
        parts = {
            "owner": torch.arange(len(schema)).repeat_interleave(sizes),
            "first": first,
            "numbers": numbers,
            "levels": (~is_number).nonzero().flatten(),
            "pieces": (first[numbers, None] + torch.arange(smooth)).flatten(),
            "atom_places": first.repeat_interleave(counts) + smooth + within,
        }
        for name, part in parts.items():
            self.register_buffer(name, part, persistent=False)

    def __len__(self) -> int:
        return len(self.owner)

    def add(self, encoded: Tensor, variables: Tensor, values: Tensor) -> None:
        """Adds one value of each row to an encoding, in place.

        Args:
            encoded: Encoding without the values. Shape ``(rows, features)``.
            variables: Shape ``(rows,)``.
            values: Shape ``(rows,)``.
        """
        is_number = (self.numbers == variables[:, None]).any(dim=1)
        level, number = (part.nonzero()[:, 0] for part in (~is_number, is_number))
        first = self.first[variables]
        if len(level):
            encoded[level, first[level] + values[level].long()] = 1.0
        if len(number):
            smooth = F.pad(self.encoding(values[number]), (0, 1), value=1.0)
            pieces = torch.arange(smooth.shape[1], device=values.device)
            encoded[number[:, None], first[number, None] + pieces] = smooth
        if len(self.atoms) and len(number):
            place = self.atoms.place(variables[number], values[number])
            hit = place >= 0
            encoded[number[hit], self.atom_places[place[hit]]] = 1.0

    def forward(self, x: Tensor) -> Tensor:
        """Returns the encoding of rows. Shape ``(rows, features)``."""
        found = torch.zeros(len(x), len(self.owner) + 1, device=x.device)  # the last is not read
        if len(self.levels):
            found.scatter_(1, self.first[self.levels] + x[:, self.levels].long(), 1.0)
        if len(self.numbers):
            values = x[:, self.numbers].float()
            smooth = F.pad(self.encoding(values), (0, 1), value=1.0)
            found[:, self.pieces] = smooth.flatten(1)
        if len(self.atoms):
            place = self.atoms.place(self.numbers, values)
            found.scatter_(1, F.pad(self.atom_places, (0, 1), value=len(self.owner))[place], 1.0)
        return found[:, :-1]


class MaskedLinear(nn.Linear):
    """Linear layer with some of its weights fixed at zero.

    Args:
        mask: True for the weights that there are. Shape ``(out, in)``.
    """

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask.float(), persistent=False)
        with torch.no_grad():
            # As if each unit had as many inputs as its mask leaves.
            reads = self.mask.sum(dim=1, keepdim=True).clamp(min=1)
            self.weight *= (mask.shape[1] / reads).sqrt() * self.mask

    def forward(self, inputs: Tensor, outputs: slice = slice(None)) -> Tensor:
        """Returns some of the outputs, from the first inputs: the weights of others must be zero.

        Shape ``(..., outputs)``.
        """
        part = outputs, slice(inputs.shape[-1])
        return F.linear(inputs, self.weight[part] * self.mask[part], self.bias[outputs])


class DegreeBlock(nn.Module):
    """Residual block: normalisation within each degree, GELU, and a masked layer.

    Args:
        num_variables: Number of degrees.
        units: Number of units for each degree.
        dropout: Dropout rate of the inner units.
    """

    def __init__(self, num_variables: int, units: int, dropout: float) -> None:
        super().__init__()
        degree = torch.arange(num_variables).repeat_interleave(units)
        self.norm = DegreeNorm(num_variables, units)
        self.layer = MaskedLinear(degree <= degree[:, None])
        self.dropout = Dropout(dropout)
        with torch.no_grad():
            self.layer.weight *= 0.5

    def forward(self, hidden: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the residual stream after the block, and what its layer read, of some degrees.

        Args:
            hidden: Residual stream. Shape ``(rows, degrees, units)``.
            lower: What the layer read of all lower degrees. Shape ``(rows, units of them)``.
        """
        units = hidden.shape[2]
        first = lower.shape[1] // units
        inner = self.dropout(F.gelu(self.norm(hidden, first))).flatten(1)
        inner = torch.cat([lower, inner], dim=1) if first else inner
        found = self.layer(inner, slice(lower.shape[1], inner.shape[1]))
        return hidden + found.view_as(hidden), inner


class DegreeNorm(nn.Module):
    """LayerNorm within each degree, which has a gain and a shift of its own for each unit.

    Args:
        num_variables: Number of degrees.
        units: Number of units for each degree.
    """

    def __init__(self, num_variables: int, units: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(num_variables, units))
        self.shift = nn.Parameter(torch.zeros(num_variables, units))

    def forward(self, hidden: Tensor, first: int = 0) -> Tensor:
        """Returns normalised units of some degrees, from `first` on.

        Shape ``(rows, degrees, units)``.
        """
        degrees = slice(first, first + hidden.shape[1])
        return F.layer_norm(hidden, hidden.shape[-1:]) * self.gain[degrees] + self.shift[degrees]


@dataclass
class KnownUnits(RowState):
    """State of a path perceptron: all that is known of each row, and the units that read it.

    Args:
        x: Values, context included. Shape ``(rows, columns)``.
        known: Evidence, and variables of the path so far. Shape ``(rows, vars)``.
        last: Greatest variable of the path so far; -1 for none. Shape ``(rows,)``.
        start: First units by the evidence alone. Shape ``(rows, all units)``.
        path: Encoding of the values of the path so far. Shape ``(rows, features)``.
        inner: What the layer of each block read of degrees. Shapes ``(rows, units of them)``.
        done: Number of degrees, from 0, for which `inner` is valid.
    """

    x: Tensor
    known: Tensor
    last: Tensor
    start: Tensor
    path: Tensor
    inner: list[Tensor] = field(default_factory=list)
    done: int = 0

    def _each(self, change: Callable[[Tensor], Tensor], samples: int) -> "KnownUnits":
        found = super()._each(change, samples)
        found.inner, found.done = [change(part) for part in self.inner], self.done
        return found


class PathPerceptron(PathNetwork[KnownUnits]):
    r"""Masked autoregressive perceptron that answers any query in one pass.

    Args:
        schema: Variables in canonical order; context comes last and is always given.
        units: Number of hidden units for each variable.
        blocks: Number of residual blocks.
        dropout: Dropout rate of the hidden units.

    Reference:
        Shih, Sadigh and Ermon (2022), Alg. 1 and 2 in one pass; Germain, Gregor, Murray and
        Larochelle (2015), MADE.

    Example:
        >>> from anyorder.variables import Schema, Variable
        >>> schema = Schema(tuple(Variable.categorical(name, [1, 2, 3]) for name in "wxyz"))
        >>> network = PathPerceptron(schema, units=4, blocks=1)
        >>> x, given = torch.tensor([[0, 1, 2, 0]]), torch.tensor([[True, False, False, False]])
        >>> network(x, query=~given, given=given, rank=torch.arange(4)).features.shape
        torch.Size([3, 8])
    """

    before: Tensor

    def __init__(
        self, schema: Schema, *, units: int = 16, blocks: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__()
        for name, value in (("units", units), ("blocks", blocks)):
            check_count(name, value)
        self.schema, self.units, self.blocks, self.dropout = schema, units, blocks, dropout
        self.width = 2 * units
        num_variables = schema.num_variables
        self.values = ValueEncoding(schema)
        degree = torch.arange(num_variables).repeat_interleave(units)
        self.evidence = nn.Linear(len(self.values), len(degree))
        before = (self.values.owner < degree[:, None]).float()
        self.register_buffer("before", before, persistent=False)
        self.inner = nn.ModuleList(
            DegreeBlock(num_variables, units, dropout) for _ in range(blocks)
        )
        self.norm = DegreeNorm(num_variables, units)

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Returns features of every factor; see `PathNetwork.forward`."""
        path, asked = path_lists(query, rank.expand(query.shape))
        row, step = edge_places(asked)
        target = path[row, step]
        features = self._features(self._known(x, given, query), 0, query.shape[1])[row, target]
        some = _off_order(row, target)
        if len(some):
            rows, targets = row[some], target[some]
            rank = rank.expand(query.shape)
            told = query[rows] & (rank[rows] < rank[rows, targets, None])
            found = self.ask(self._known(x[rows], given[rows], told), targets[:, None])[:, 0]
            features = features.index_copy(0, some, found)
        return PathFeatures(features, row, step, target)

    def encode(self, x: Tensor, given: Tensor) -> KnownUnits:
        """Encodes the evidence; see `PathNetwork.encode`."""
        return self._known(x, given, torch.zeros_like(given))

    def ask(self, state: KnownUnits, variables: Tensor) -> Tensor:
        """Returns features of variables; see `PathNetwork.ask`.

        Variables that come before one that was told read all that is known as evidence.
        """
        variables = variables.expand(len(state.x), -1)
        low, high = (int(end) for end in variables.aminmax())
        first = min(low, state.done)
        places = (variables - first)[..., None].expand(*variables.shape, self.width)
        found = self._features(state, first, high + 1).gather(1, places)
        is_before = variables < state.last[:, None]
        if not is_before.any():
            return found
        everything = self._features(self.encode(state.x, state.known), 0, high + 1)
        places = variables[..., None].expand(*variables.shape, self.width)
        return everything.gather(1, places).where(is_before[..., None], found)

    def tell(self, state: KnownUnits, variables: Tensor, values: Tensor) -> KnownUnits:
        """Adds known values; see `PathNetwork.tell`."""
        variables = variables.expand_as(values)
        kind = torch.promote_types(state.x.dtype, values.dtype)
        state.x = state.x.to(kind).scatter(1, variables, values.to(kind))
        state.known = state.known.scatter(1, variables, True)
        for variable, value in zip(variables.unbind(1), values.unbind(1), strict=True):
            self.values.add(state.path, variable, value)
        state.last = torch.maximum(state.last, variables.amax(dim=1))
        state.done = min(state.done, int(variables.min()) + 1)
        return state

    def _known(self, x: Tensor, given: Tensor, told: Tensor) -> KnownUnits:
        """Returns the state of rows of which variables are told beside the evidence."""
        context = x.shape[1] - given.shape[1]
        known, asked = F.pad(given, (0, context), value=True), F.pad(told, (0, context))
        values = self.values(x.masked_fill(~(known | asked), 0))
        owner = self.values.owner
        variables = torch.arange(given.shape[1], device=x.device)
        return KnownUnits(
            x=x,
            known=given | told,
            last=variables.where(told, -1).amax(dim=1),
            start=self.evidence(values * known[:, owner]),
            path=values * asked[:, owner],
            inner=[values[:, :0]] * self.blocks,
        )

    def _features(self, state: KnownUnits, first: int, end: int) -> Tensor:
        """Returns features of variables from `first` to `end`, and keeps their units.

        Shape ``(rows, end - first, width)``.
        """
        degrees = slice(first * self.units, end * self.units)
        # A unit of the last of these degrees reads what comes before its variable.
        values = state.path[:, : int(self.values.first[end - 1])]
        part = degrees, slice(values.shape[1])
        path = F.linear(values, self.evidence.weight[part] * self.before[part])
        hidden = (state.start[:, degrees] + path).unflatten(1, (-1, self.units))
        for place, block in enumerate(self.inner):
            lower = state.inner[place][:, : degrees.start]
            hidden, state.inner[place] = block(hidden, lower)
        state.done = end
        # Linear effects of the values pass by the last GELU.
        return torch.cat([F.gelu(self.norm(hidden, first)), hidden], dim=-1)


def _off_order(row: Tensor, target: Tensor) -> Tensor:
    """Returns the numbers of the edges of rows whose path leaves the order of the schema."""
    back = (row[1:] == row[:-1]) & (target[1:] < target[:-1])
    return torch.isin(row, row[1:][back]).nonzero().flatten()
