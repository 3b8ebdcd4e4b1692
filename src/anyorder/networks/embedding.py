"""Value + variable -> vector: how a network learns what a number means and whose it is.

A network sees *tokens*. A token is either **told** (a variable and its value: evidence, or a query
value that later factors condition on) or **asked** (a variable alone: the question of the
two-stream path network, the absorbing token of the masked one). Both kinds of network are built
from these two calls, so a new kind of variable is added here and nowhere else:

* a continuous variable is told by its value instead of a row of the table, same signature;
* context variables become a few tokens made once from the row, neither told nor asked.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from anyorder.errors import SchemaError
from anyorder.variables import Level, Schema, Variable

# GPT-2's scale. Embeddings are only ever read through a LayerNorm, so this sets how fast they turn
# under Adam, not what the first layer sees.
INITIAL_SCALE = 0.02


class VariableEmbedding(nn.Module):
    r"""Vectors for told and asked variables.

    told(i, x_i) = value(i, x_i) + variable(i),  asked(i) = blank + variable(i).

    Variables with the same levels (the characters of a text, the pixels of an image) share one
    table of values; otherwise each variable has rows of its own in one long table. Both are a
    single lookup, at ``offset[variable] + code``.

    Args:
        schema: Describes the variables; their order is the order of the columns of ``x``.
        width: Size of the vectors.
        variables: Whether a vector says which variable it is of. Networks that know this from
            positions alone learn faster where variables differ in nothing else, as in text.

    Example:
        >>> schema = Schema(tuple(Variable.categorical(name, [1, 2, 3]) for name in "xyz"))
        >>> embedding = VariableEmbedding(schema, width=8)
        >>> variables, values = torch.tensor([0, 2]), torch.tensor([[1, 0]])
        >>> embedding.told(values, variables).shape, embedding.asked(variables).shape
        (torch.Size([1, 2, 8]), torch.Size([2, 8]))
    """

    def __init__(self, schema: Schema, *, width: int, variables: bool = True) -> None:
        super().__init__()
        _check_categorical(schema.variables)
        offsets = _offsets([variable.levels or () for variable in schema.variables])
        self.num_variables = len(schema.variables)
        self.width = width
        self.value = nn.Embedding(offsets[-1], width)
        self.variable = nn.Embedding(self.num_variables, width) if variables else None
        self.blank = nn.Parameter(torch.empty(width))
        self.register_buffer("offset", torch.tensor(offsets[:-1]), persistent=False)
        for table in (self.value.weight, self.blank):
            nn.init.normal_(table, std=INITIAL_SCALE)
        if self.variable is not None:
            nn.init.normal_(self.variable.weight, std=INITIAL_SCALE)

    def told(self, values: Tensor, variables: Tensor) -> Tensor:
        """Vectors of variables whose values are known.

        Args:
            values: The values, codes for categoricals. Shape ``(batch, tokens)``.
            variables: Which variables they are of, shared by the batch or per row.
                Shape ``(tokens,)`` or ``(batch, tokens)``.

        Returns:
            Shape ``(batch, tokens, width)``.
        """
        # Long also when x is floating because it holds continuous columns too: codes are exact in
        # float32 up to 2**24.
        told = self.value(self.offset[variables] + values.long())
        return told if self.variable is None else told + self.variable(variables)

    def asked(self, variables: Tensor) -> Tensor:
        """Vectors of variables without their values. Shape ``variables.shape + (width,)``."""
        if self.variable is None:
            return self.blank.expand(*variables.shape, -1)
        return self.blank + self.variable(variables)


def _check_categorical(variables: Sequence[Variable]) -> None:
    for variable in variables:
        if variable.kind != "categorical" or variable.context:
            kind = "context" if variable.context else variable.kind
            raise SchemaError(
                "VariableEmbedding takes categorical variables that can be queried; "
                f"got {variable.name!r}, which is {kind}."
            )


def _offsets(levels: Sequence[tuple[Level, ...]]) -> list[int]:
    """First row of every variable in the table of values, then the number of rows."""
    if all(one == levels[0] for one in levels):
        return [0] * len(levels) + [len(levels[0])]
    offsets = [0]
    for one in levels:
        offsets.append(offsets[-1] + len(one))
    return offsets
