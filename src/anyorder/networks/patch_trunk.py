"""The trunk of a patch network: a path network whose variables are patches."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.networks.path_state import Memory
from anyorder.networks.path_streams import Tokens
from anyorder.networks.path_transformer import PathTransformer
from anyorder.variables import Schema, Variable


class PatchTrunk(PathTransformer):
    r"""A question about each patch, given evidence and earlier patches; see `PathTransformer`.

    What a patch holds is a vector, not a level: its variable has one level, and the vector is added
    to the token. A row of its ``x`` is that level for each patch, the context, and then the vectors
    of all patches, once as evidence and, if there is a path, once as they are told on it: a patch
    of which a part is given and a part asked is in both.

    Args:
        context: Context variables.
        patches: How many.
        coordinates: Where they are. Shape ``(patches, axes)``.
        shape: Layers, width, heads and dropout.
    """

    def __init__(
        self,
        context: Sequence[Variable],
        *,
        patches: int,
        coordinates: Sequence[Any],
        **shape: Any,
    ) -> None:
        one_level = (Variable.categorical(f"patch {i}", [0]) for i in range(patches))
        super().__init__(Schema((*one_level, *context)), coordinates=coordinates, **shape)

    def rows(self, context: Tensor, *vectors: Tensor) -> Tensor:
        """The ``x`` of rows whose patches hold vectors ``(batch, patches, width)``."""
        levels = context.new_zeros(len(context), self.schema.num_variables)
        # Not in a narrower type than 32 bits, which would round the context.
        wide = torch.promote_types(vectors[0].dtype, torch.float32)
        columns = (levels, context, *(each.flatten(1) for each in vectors))
        return torch.cat([column.to(wide) for column in columns], dim=1)

    def question(self, memory: Memory, patch: Tensor, left: Tensor, vectors: Tensor) -> Tensor:
        """Features of a patch after those that are left now, one or none. Shape ``(batch, width)``.

        Args:
            memory: Evidence and the patches that were left before.
            patch: Which patch is asked. Shape ``(batch, 1)``.
            left: Which patches are left. Shape ``(batch, left)``.
            vectors: What they hold. Shape ``(batch, left, width)``.
        """
        told = self.embedding.told(torch.zeros_like(left), left) + vectors
        return self._step(memory, self._tokens(told, left, patch), asked=1)[:, 0]

    def _evidence_tokens(self, x: Tensor, evidence: Tensor) -> Tokens:
        tokens = super()._evidence_tokens(x[:, : len(self.schema)], evidence)
        held = pick(self._vectors(x)[:, 0], evidence).type_as(tokens.hidden)
        hidden = tokens.hidden + nn.functional.pad(held, (0, 0, self._front, 0))
        return tokens._replace(hidden=hidden)

    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        tokens, asked = super()._path_tokens(x[:, : len(self.schema)], path)
        held = pick(self._vectors(x)[:, -1], path[:, :-1]).type_as(tokens.hidden)
        hidden = tokens.hidden + nn.functional.pad(held, (0, 0, 0, asked))
        return tokens._replace(hidden=hidden), asked

    def _vectors(self, x: Tensor) -> Tensor:
        """Shape ``(batch, 1 or 2, patches, width)``."""
        return x[:, len(self.schema) :].unflatten(1, (-1, self.schema.num_variables, self.width))


def pick(vectors: Tensor, places: Tensor) -> Tensor:
    """``(batch, n, width)`` at ``(batch, m)`` -> ``(batch, m, width)``."""
    return vectors.gather(1, places[..., None].expand(-1, -1, vectors.shape[2]))
