"""Building blocks that the networks share: embeddings, the pre-LN block, rotary positions, dropout.

A network reads *tokens*. A **value token** embeds a variable and its value: evidence, or a query
value that later factors condition on. A **query token** embeds a variable without a value: a query
of the two-stream path network, or the absorbing ("masked") token of a masked network. Both kinds of
network are built from these two methods of `VariableEmbedding`, so a new kind of variable is added
here and nowhere else. Context variables, which are always given, become a few tokens a row.

A categorical value is a row of an embedding table. A continuous value is a linear map of its
piecewise-linear encoding (Gorishniy et al., 2022). If the value is one of the variable's *atoms* (a
value with positive probability: a zero, a count, a rounded reading), a row of the table is added.
`AtomTable` finds atoms by comparing values bit by bit as float32, so a value written into `x` as an
atom is always recognised.

A `Block` has three methods instead of one ``forward``, because the networks differ only in which
token attends to which: make queries, make keys and values, update the residual stream with the
result of attention. A path network makes keys for some tokens only, and skips all three for tokens
that nothing reads any more.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.errors import ConfigError, SchemaError, check_count
from anyorder.variables import Schema, Variable

MLP_RATIO = 4
"""Width of the block's perceptron, relative to the residual stream."""

ROTARY_BASE = 10_000.0
"""Longest wavelength of the rotary positions, divided by 2 pi (Su et al., 2021)."""

BYTE = 256
"""Values of a byte: the resolution of `Dropout` on a CPU."""


class Block(nn.Module):
    """Pre-LN Transformer block: attention, then a perceptron, added to the residual stream.

    Args:
        width: Size of the residual stream.
        heads: Number of attention heads; must divide ``width``.
        depth: Number of blocks of the network, for the initial scale of each branch.
        dropout: Dropout rate of each branch's output.
    """

    def __init__(self, *, width: int, heads: int, depth: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, MLP_RATIO * width)
        self.mlp_out = nn.Linear(MLP_RATIO * width, width)
        self.gelu = nn.GELU()
        self.dropout = Dropout(dropout)
        self._initialise(depth)

    def _initialise(self, depth: int) -> None:
        for linear in (self.query, self.key_value, self.attention_out, self.mlp_in, self.mlp_out):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)
        with torch.no_grad():  # the sum of 2 * depth branches then starts at the scale of one
            self.attention_out.weight.mul_((2 * depth) ** -0.5)
            self.mlp_out.weight.mul_((2 * depth) ** -0.5)

    def normalise(self, hidden: Tensor) -> Tensor:
        """Returns the input of queries, keys and values. Shape ``(batch, tokens, width)``."""
        return self.attention_norm(hidden)

    def queries(self, normed: Tensor, rotation: Tensor | None = None) -> Tensor:
        """Returns rotated queries. Shape ``(batch, heads, tokens, head_dim)``."""
        query = self.query(normed).unflatten(-1, (self.heads, -1))
        return _rotate(query, rotation).transpose(1, 2)

    def keys_values(self, normed: Tensor, rotation: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns rotated keys, and values, both shaped like ``queries``."""
        key, value = self.key_value(normed).unflatten(-1, (2, self.heads, -1)).unbind(-3)
        return _rotate(key, rotation).transpose(1, 2), value.transpose(1, 2)

    def update(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """Returns the residual stream after attention and perceptron.

        Args:
            hidden: Residual stream. Shape ``(batch, tokens, width)``.
            attended: Output of attention. Shape ``(batch, heads, tokens, head_dim)``.
        """
        attended = attended.transpose(1, 2).flatten(2)  # (batch, tokens, width)
        hidden = hidden + self.dropout(self.attention_out(attended))
        inner = self.gelu(self.mlp_in(self.mlp_norm(hidden)))
        return hidden + self.dropout(self.mlp_out(inner))


def _rotate(heads: Tensor, rotation: Tensor | None) -> Tensor:
    """Rotates channel pairs by one complex product: half the time of the real form on a CPU."""
    if rotation is None:
        return heads
    pairs = heads.to(torch.promote_types(heads.dtype, torch.float32)).unflatten(-1, (-1, 2))
    return torch.view_as_real(torch.view_as_complex(pairs) * rotation).flatten(-2).type_as(heads)


class Rotary(nn.Module):
    r"""Rotary positions: attention depends on the relative positions of two variables.

    Channel pair f of a query or key of variable i is rotated by the angle ``coordinate(i) *
    frequency(f)``. Several axes (row and column of an image) share the pairs. One more position,
    ``no_position``, has angle zero: it is for tokens that belong to no variable.

    Args:
        num_variables: Number of variables.
        coordinates: Position of each variable, ``(vars,)`` or ``(vars, axes)``; its index by
            default.
        head_dim: Channels of a head, a multiple of ``2 * axes``.

    Reference:
        Su et al. (2021), RoFormer. With absolute positions alone a path network learns marginals
        well and conditionals badly, because it finds evidence by its position relative to the
        query.
    """

    def __init__(
        self, num_variables: int, coordinates: Sequence[Any] | None = None, *, head_dim: int
    ) -> None:
        super().__init__()
        places = torch.arange(num_variables) if coordinates is None else torch.tensor(coordinates)
        if len(places) != num_variables:
            raise ConfigError(
                f"`coordinates` must hold a position of each of {num_variables} variables; "
                f"got {len(places)} positions."
            )
        places = places.reshape(num_variables, -1).float()  # (vars, axes)
        axes = places.shape[1]
        if head_dim % (2 * axes):
            raise ConfigError(
                f"`width` / `heads` must be a multiple of {2 * axes} with {axes} axes; "
                f"got {head_dim}."
            )
        pairs = head_dim // (2 * axes)
        frequency = ROTARY_BASE ** -(torch.arange(pairs) / pairs)
        angle = (places[:, :, None] * frequency).flatten(1)  # (vars, head_dim / 2)
        self.no_position = num_variables
        # Angles, not complex numbers: a change of the module's dtype drops an imaginary part.
        self.register_buffer(
            "angle", torch.cat([angle, angle.new_zeros(1, head_dim // 2)]), persistent=False
        )

    def forward(self, variables: Tensor) -> Tensor:
        """Returns complex rotations. Shape ``variables.shape + (1, head_dim / 2)``."""
        angle = self.angle[variables].float().unsqueeze(-2)
        return torch.polar(torch.ones_like(angle), angle)


class Dropout(nn.Dropout):
    """Dropout that is cheap on a CPU, where its rate is rounded to a multiple of 1/256.

    A mask takes one random byte a number instead of one float. This saves about a tenth of a
    training step of a table's network.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Returns `input` with random entries set to zero and the rest rescaled, in training."""
        if not self.training:
            return input
        threshold = round(BYTE * self.p)
        if input.device.type != "cpu" or not 0 < threshold < BYTE:
            return super().forward(input)
        words = torch.empty(-(-input.numel() // 8), dtype=torch.int64)
        words.random_(torch.iinfo(torch.int64).min, None)  # over the full range: 64 random bits
        kept = words.view(torch.uint8)[: input.numel()].view(input.shape) >= threshold
        return input * kept.to(input.dtype).mul_(BYTE / (BYTE - threshold))


def check_shape(layers: int, width: int, heads: int, *, part: str = "") -> None:
    """Refuses sizes below 1, and a `width` that is no multiple of `heads`.

    `part` is a prefix of these names in messages, such as "trunk_".
    """
    for name, value in (("layers", layers), ("width", width), ("heads", heads)):
        check_count(part + name, value)
    if width % heads:
        raise ConfigError(f"`{part}heads` must divide `{part}width`; got {heads} and {width}.")


INITIAL_SCALE = 0.02
"""Standard deviation of new embeddings, as in GPT-2. They are only read through a LayerNorm, so it
sets how fast they change under Adam, not the scale of the first layer's input."""

CONTEXT_TOKENS = 4
"""Largest number of tokens that the context variables are encoded into."""

KNOTS = 24
"""Number of pieces of the piecewise-linear encoding; knots are normal quantiles."""


class VariableEmbedding(nn.Module):
    r"""Embeddings of variables with and without their values.

    value_tokens(i, x_i) = value(i, x_i) + variable(i),  query_tokens(i) = blank + variable(i).

    Categorical variables with the same levels (the characters of a text, the pixels of an image)
    share one table of values if there are no others; otherwise each variable has rows of its own in
    one long table. Both are a single lookup, at ``offset[variable] + code``.

    Args:
        schema: Variables, in the order of the columns of ``x``; context comes last.
        width: Size of the tokens.
        variables: True adds an embedding of the variable. Networks that know the variable from
            positions alone learn faster if variables differ in nothing else, as in text.
        shared: True lets variables with the same levels share their rows. Use False for a table,
            whose columns may have the same levels by chance.

    Example:
        >>> schema = Schema(tuple(Variable.categorical(name, [1, 2, 3]) for name in "xyz"))
        >>> embedding = VariableEmbedding(schema, width=8)
        >>> variables, values = torch.tensor([0, 2]), torch.tensor([[1, 0]])
        >>> embedding.value_tokens(values, variables).shape, embedding.query_tokens(variables).shape
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
        self.context = ContextEncoder(len(schema) - self.num_variables, width=width)

    def value_tokens(self, values: Tensor, variables: Tensor) -> Tensor:
        """Returns the tokens of variables whose values are known.

        Args:
            values: Values; codes for categorical variables. Shape ``(batch, tokens)``.
            variables: Their variables, shared by the batch or per row.
                Shape ``(tokens,)`` or ``(batch, tokens)``.

        Returns:
            Shape ``(batch, tokens, width)``.
        """
        tokens = self._values(values, variables)
        return tokens if self.variable is None else tokens + self.variable(variables)

    def _values(self, values: Tensor, variables: Tensor) -> Tensor:
        if self.continuous is None:
            # Long also when x is floating: codes are exact in float32 up to 2**24.
            return self.value(self.offset[variables] + values.long())
        smooth = self.is_continuous[variables].expand_as(values)
        # With continuous variables, row 0 is that of values that are no atoms.
        codes = torch.where(smooth, self.continuous.atoms.place(variables, values), values.long())
        rows = (self.offset[variables] + codes).masked_fill(codes < 0, 0)
        return self.value(rows) + self.continuous(values, variables) * smooth.unsqueeze(-1)

    def query_tokens(self, variables: Tensor) -> Tensor:
        """Returns tokens of variables without values. Shape ``variables.shape + (width,)``."""
        if self.variable is None:
            return self.blank.expand(*variables.shape, -1)
        return self.blank + self.variable(variables)

    def context_tokens(self, x: Tensor) -> Tensor:
        """Returns the tokens of each row's context. Shape ``(batch, tokens, width)``."""
        end = self.num_variables + self.context.num_variables
        variables = torch.arange(self.num_variables, end, device=x.device)
        return self.context(self.value_tokens(x[:, self.num_variables :], variables))


class ContinuousValues(nn.Module):
    """Embedding of continuous values: a linear map of their piecewise-linear encoding.

    The map is shared by all variables; its output is scaled for each variable.
    """

    def __init__(self, variables: Sequence[Variable], *, width: int) -> None:
        super().__init__()
        self.atoms = AtomTable(variables)
        self.encoding = PiecewiseLinear()
        self.pieces = nn.Linear(PiecewiseLinear.features, width)
        self.scale = nn.Parameter(torch.ones(len(variables), width))
        nn.init.normal_(self.pieces.weight, std=INITIAL_SCALE)

    def forward(self, values: Tensor, variables: Tensor) -> Tensor:
        """Returns embeddings of values. Shape ``values.shape + (width,)``."""
        return self.pieces(self.encoding(values)) * self.scale[variables]


class PiecewiseLinear(nn.Module):
    """Piecewise-linear encoding of numbers on a standard scale.

    Feature k is the share of piece k that lies below the value, from 0 to 1; the last feature is
    asinh of the value. A linear map of the features is a piecewise-linear function of the value,
    with a slope for each piece.

    Example:
        >>> encoded = PiecewiseLinear()(torch.tensor([-9.0, 0.0, 9.0]))
        >>> encoded.shape, encoded[:, :-1].sum(dim=-1)
        (torch.Size([3, 25]), tensor([ 0., 12., 24.]))

    Reference:
        Gorishniy, Rubachev and Babenko (2022), On Embeddings for Numerical Features.
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
        """Returns the encoding of values. Shape ``values.shape + (features,)``."""
        values = values.to(self.step.dtype).unsqueeze(-1)
        pieces = ((values - self.low) / self.step).clamp(0, 1)
        # Beyond the knots only this last feature changes, and ever more slowly.
        return torch.cat([pieces, values.asinh()], dim=-1)


class AtomTable(nn.Module):
    """Atoms of the variables in one sorted list, for lookup by value.

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
        """Returns the index of each value among its variable's atoms, -1 for none."""
        place = self.place(variables, values)
        return torch.where(place < 0, place, place - self.first[variables])

    def place(self, variables: Tensor, values: Tensor) -> Tensor:
        """Returns the index of each value in the list of all atoms, -1 for none."""
        if not len(self.values):
            return torch.full(values.shape, -1, device=values.device)
        wanted = _keys(variables.expand_as(values), values)
        place = torch.searchsorted(self.keys, wanted).clamp(max=len(self.keys) - 1)
        return place.masked_fill(self.keys[place] != wanted, -1)


def _keys(variables: Tensor, values: Tensor) -> Tensor:
    """Returns one integer for a variable and a float32, sorted by variable, then by value."""
    bits = (values.float() + 0.0).contiguous().view(torch.int32).long()  # + 0: no negative zero
    ordered = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    return (variables.long() << 33) + ordered


class ContextEncoder(nn.Module):
    """Encoder of a row's context: its value tokens, concatenated, through a perceptron.

    Without context variables there are no tokens and no weights.
    """

    def __init__(self, num_variables: int, *, width: int) -> None:
        super().__init__()
        self.num_variables = num_variables
        self.num_tokens = min(num_variables, CONTEXT_TOKENS)
        self.norm = nn.LayerNorm(width) if num_variables else nn.Identity()
        self.inner = nn.Linear(num_variables * width, 2 * width) if num_variables else nn.Identity()
        self.out = nn.Linear(2 * width, self.num_tokens * width) if num_variables else nn.Identity()

    def forward(self, values: Tensor) -> Tensor:
        """Returns tokens ``(batch, tokens, width)`` from value tokens of that form."""
        if not self.num_variables:
            return values
        hidden = nn.functional.gelu(self.inner(self.norm(values).flatten(1)))
        return self.out(hidden).unflatten(-1, (self.num_tokens, -1))


def _check_context_is_last(schema: Schema) -> None:
    kinds = [variable.context for variable in schema]
    if kinds != sorted(kinds):
        raise SchemaError("Context variables must come after all others: reorder the schema.")
    if all(kinds):
        raise SchemaError("A schema must hold a variable that can be queried; all are context.")


def _offsets(variables: Sequence[Variable], *, shared: bool) -> tuple[list[int], int]:
    """Returns the first row of each variable in the table of values, and the number of rows."""
    if shared and all(
        v.kind == "categorical" and v.levels == variables[0].levels for v in variables
    ):
        return [0] * len(variables), variables[0].num_levels
    has_continuous = any(variable.kind == "continuous" for variable in variables)
    atoms = sum(len(variable.atoms) for variable in variables)
    # Row 0 is for values that are no atoms, then come all atoms in the order of `AtomTable`.
    offsets, end = [], (1 if has_continuous else 0) + atoms
    for variable in variables:
        offsets.append(1 if variable.kind == "continuous" else end)
        end += variable.num_levels
    return offsets, end
