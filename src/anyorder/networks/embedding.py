"""Value + variable -> vector: how a network learns what a number means and whose it is.

A network sees *tokens*. A token is either **told** (a variable and its value: evidence, or a query
value that later factors condition on) or **asked** (a variable alone: the question of the
two-stream path network, the absorbing token of the masked one). Both kinds of network are built
from these two calls, so a new kind of variable is added here and nowhere else. Context variables,
which are always given, become a few tokens made once from the row, neither told nor asked.

Where the atoms of continuous variables are: which values are atoms, and which of them.

An atom is a value that a continuous variable takes with positive probability: a zero, a count, a
rounded reading. Values are compared bit by bit, as float32: what is written into `x` as an atom is
read as one.

Numbers seen piece by piece: the line of continuous values, cut at fixed knots.

Networks read known values so, and the heads of atoms spread probability so: what is near on the
line is alike until the data say otherwise.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from anyorder.errors import SchemaError
from anyorder.variables import Schema, Variable


class AtomTable(nn.Module):
    """The atoms of some variables, in one sorted list.

    Args:
        variables: Continuous; those without atoms have none here.

    Example:
        >>> rain = Variable.continuous("rain", atoms=(0.0, 2.5))
        >>> table = AtomTable([Variable.continuous("wind"), rain])
        >>> table.find(torch.tensor([0, 1, 1, 1]), torch.tensor([0.0, 0.0, 1.0, 2.5]))
        tensor([-1,  0, -1,  1])
    """

    values: Tensor
    first: Tensor
    keys: Tensor

    def __init__(self, variables: Sequence[Variable]) -> None:
        super().__init__()
        sizes = torch.tensor([len(variable.atoms) for variable in variables])
        atoms = [atom for variable in variables for atom in variable.atoms]
        values = torch.tensor(atoms, dtype=torch.float32)
        owners = torch.arange(len(variables)).repeat_interleave(sizes)
        self.register_buffer("values", values, persistent=False)
        self.register_buffer("first", sizes.cumsum(0) - sizes, persistent=False)
        self.register_buffer("keys", _keys(owners, values), persistent=False)

    def __len__(self) -> int:
        return len(self.values)

    def find(self, variables: Tensor, values: Tensor) -> Tensor:
        """Which atom of its variable each value is, -1 for none. Shape of `values`."""
        place = self.place(variables, values)
        return torch.where(place < 0, place, place - self.first[variables])

    def place(self, variables: Tensor, values: Tensor) -> Tensor:
        """The place of each value in the list of all atoms, -1 for values that are none."""
        if not len(self.values):
            return torch.full(values.shape, -1, device=values.device)
        wanted = _keys(variables.expand_as(values), values)
        place = torch.searchsorted(self.keys, wanted).clamp(max=len(self.keys) - 1)
        return place.masked_fill(self.keys[place] != wanted, -1)


def _keys(variables: Tensor, values: Tensor) -> Tensor:
    """One whole number for a variable and a float32, in the order of both."""
    bits = (values.float() + 0.0).contiguous().view(torch.int32).long()  # + 0: no negative zero
    ordered = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    return (variables.long() << 33) + ordered


KNOTS = 24
"""Pieces of the line: normal quantiles, for standard values."""


class Line(nn.Module):
    """How much of each piece lies below a value, from 0 to 1, and how far out the value is.

    A linear function of these is a piecewise linear one of the value, with a slope for each piece.

    Example:
        >>> seen = Line()(torch.tensor([-9.0, 0.0, 9.0]))
        >>> seen.shape, seen[:, :-1].sum(dim=-1)
        (torch.Size([3, 25]), tensor([ 0., 12., 24.]))

    Reference:
        Gorishniy, Rubachev and Babenko (2022), piecewise linear encoding.
    """

    features = KNOTS + 1
    low: Tensor
    step: Tensor

    def __init__(self) -> None:
        super().__init__()
        knots = torch.special.ndtri(torch.linspace(0.001, 0.999, KNOTS + 1))
        self.register_buffer("low", knots[:-1], persistent=False)
        self.register_buffer("step", knots.diff(), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """What is seen of values. Shape ``values.shape + (features,)``."""
        values = values.to(self.step.dtype).unsqueeze(-1)
        pieces = ((values - self.low) / self.step).clamp(0, 1)
        # Beyond the knots only this last feature moves, and ever more slowly.
        return torch.cat([pieces, values.asinh()], dim=-1)


# GPT-2's scale. Embeddings are only ever read through a LayerNorm, so this sets how fast they turn
# under Adam, not what the first layer sees.
INITIAL_SCALE = 0.02

CONTEXT_TOKENS = 4
"""As many tokens as all context variables are at most encoded into."""


class VariableEmbedding(nn.Module):
    r"""Vectors for told and asked variables.

    told(i, x_i) = value(i, x_i) + variable(i),  asked(i) = blank + variable(i).

    Categorical variables with the same levels (the characters of a text, the pixels of an image)
    share one table of values if there are no others; otherwise each variable has rows of its own in
    one long table. Both are a single lookup, at ``offset[variable] + code``. A continuous value is
    a point on the line, seen piece by piece, and a row of the table too where it is an atom.

    Args:
        schema: Describes the variables; their order is the order of the columns of ``x``.
        width: Size of the vectors.
        variables: Whether a vector says which variable it is of. Networks that know this from
            positions alone learn faster where variables differ in nothing else, as in text.
        shared: Whether variables with the same levels share their rows; not for columns of a table
            that happen to have the same levels.

    Example:
        >>> schema = Schema(tuple(Variable.categorical(name, [1, 2, 3]) for name in "xyz"))
        >>> embedding = VariableEmbedding(schema, width=8)
        >>> variables, values = torch.tensor([0, 2]), torch.tensor([[1, 0]])
        >>> embedding.told(values, variables).shape, embedding.asked(variables).shape
        (torch.Size([1, 2, 8]), torch.Size([2, 8]))
    """

    def __init__(
        self, schema: Schema, *, width: int, variables: bool = True, shared: bool = True
    ) -> None:
        super().__init__()
        _check_context_is_last(schema)
        offsets, num_rows = _offsets(schema.variables, shared=shared)
        self.num_variables = schema.num_variables
        self.width = width
        self.value = nn.Embedding(num_rows, width)
        self.variable = nn.Embedding(len(schema), width) if variables else None
        self.blank = nn.Parameter(torch.empty(width))
        self.register_buffer("offset", torch.tensor(offsets), persistent=False)
        for table in (self.value.weight, self.blank):
            nn.init.normal_(table, std=INITIAL_SCALE)
        if self.variable is not None:
            nn.init.normal_(self.variable.weight, std=INITIAL_SCALE)
        continuous = torch.tensor([variable.kind == "continuous" for variable in schema])
        self.register_buffer("is_continuous", continuous, persistent=False)
        numbers = ContinuousValues(schema.variables, width=width) if continuous.any() else None
        self.continuous = numbers
        self.context = Context(len(schema) - self.num_variables, width=width)

    def told(self, values: Tensor, variables: Tensor) -> Tensor:
        """Vectors of variables whose values are known.

        Args:
            values: The values, codes for categoricals. Shape ``(batch, tokens)``.
            variables: Which variables they are of, shared by the batch or per row.
                Shape ``(tokens,)`` or ``(batch, tokens)``.

        Returns:
            Shape ``(batch, tokens, width)``.
        """
        told = self._values(values, variables)
        return told if self.variable is None else told + self.variable(variables)

    def _values(self, values: Tensor, variables: Tensor) -> Tensor:
        if self.continuous is None:
            # Long also when x is floating: codes are exact in float32 up to 2**24.
            return self.value(self.offset[variables] + values.long())
        smooth = self.is_continuous[variables].expand_as(values)
        # Row 0 is nobody's where there are continuous variables: that of values that are no atoms.
        codes = torch.where(smooth, self.continuous.atoms.place(variables, values), values.long())
        rows = (self.offset[variables] + codes).masked_fill(codes < 0, 0)
        return self.value(rows) + self.continuous(values, variables) * smooth.unsqueeze(-1)

    def asked(self, variables: Tensor) -> Tensor:
        """Vectors of variables without their values. Shape ``variables.shape + (width,)``."""
        if self.variable is None:
            return self.blank.expand(*variables.shape, -1)
        return self.blank + self.variable(variables)

    def context_tokens(self, x: Tensor) -> Tensor:
        """The context of each row, a few tokens. Shape ``(batch, tokens, width)``."""
        end = self.num_variables + self.context.num_variables
        variables = torch.arange(self.num_variables, end, device=x.device)
        return self.context(self.told(x[:, self.num_variables :], variables))


class ContinuousValues(nn.Module):
    """Continuous values by where they are on the line, bent and scaled for each variable.

    Args:
        variables: All variables; of those that are not continuous nothing is read.
        width: Size of the vectors.
    """

    def __init__(self, variables: Sequence[Variable], *, width: int) -> None:
        super().__init__()
        self.atoms = AtomTable(variables)
        self.line = Line()
        self.pieces = nn.Linear(Line.features, width)
        self.scale = nn.Parameter(torch.ones(len(variables), width))
        nn.init.normal_(self.pieces.weight, std=INITIAL_SCALE)

    def forward(self, values: Tensor, variables: Tensor) -> Tensor:
        """Vectors of values. Shape ``values.shape + (width,)``."""
        return self.pieces(self.line(values)) * self.scale[variables]


class Context(nn.Module):
    """Context variables of a row as a few tokens: their vectors side by side, projected.

    Args:
        num_variables: Of the context; without any there are no tokens and no weights.
        width: Size of the tokens.
    """

    def __init__(self, num_variables: int, *, width: int) -> None:
        super().__init__()
        self.num_variables = num_variables
        self.num_tokens = min(num_variables, CONTEXT_TOKENS)
        self.norm = nn.LayerNorm(width) if num_variables else nn.Identity()
        self.inner = nn.Linear(num_variables * width, 2 * width) if num_variables else nn.Identity()
        self.out = nn.Linear(2 * width, self.num_tokens * width) if num_variables else nn.Identity()

    def forward(self, told: Tensor) -> Tensor:
        """Tokens from the vectors of a row's context. Shape ``(batch, tokens, width)``."""
        if not self.num_variables:
            return told
        seen = nn.functional.gelu(self.inner(self.norm(told).flatten(1)))
        return self.out(seen).unflatten(-1, (self.num_tokens, -1))


def _check_context_is_last(schema: Schema) -> None:
    kinds = [variable.context for variable in schema]
    if kinds != sorted(kinds):
        raise SchemaError("Context variables must come after all others: reorder the schema.")
    if all(kinds):
        raise SchemaError("A schema must hold a variable that can be asked; all are context.")


def _offsets(variables: Sequence[Variable], *, shared: bool) -> tuple[list[int], int]:
    """First row of every variable in the table of values, and the number of rows."""
    if shared and all(
        v.kind == "categorical" and v.levels == variables[0].levels for v in variables
    ):
        return [0] * len(variables), variables[0].num_levels
    has_line = any(variable.kind == "continuous" for variable in variables)
    atoms = sum(len(variable.atoms) for variable in variables)
    # Row 0 is for values that are no atoms, then all atoms, which are found by their own table.
    offsets, end = [], (1 if has_line else 0) + atoms
    for variable in variables:
        offsets.append(1 if variable.kind == "continuous" else end)
        end += variable.num_levels
    return offsets, end
