"""Cutting images into patches: which variables a patch has, and where they are."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from anyorder.errors import ConfigError, QueryError, SchemaError
from anyorder.protocols import patch_major, patch_sides
from anyorder.variables import Schema


class Patches(nn.Module):
    """A partition of the variables of an image into patches of one size.

    Patches are numbered row by row, and the *places* of a patch as in `patch_major`.

    Args:
        image_shape: Height, width and channels.
        patch: The side of a patch, or its height and width.
    """

    members: Tensor  # (patches, size) variables
    patch_of: Tensor  # (vars,)
    place_of: Tensor  # (vars,) inside its patch

    def __init__(self, image_shape: Sequence[int], patch: int | Sequence[int]) -> None:
        super().__init__()
        if len(image_shape) != 3:
            raise ConfigError(
                f"`image_shape` must be a height, a width and channels; got {image_shape!r}."
            )
        height, width, channels = image_shape
        order = patch_major(height, width, channels, patch=patch)
        rows, columns = patch_sides(height, width, patch)
        self.size = rows * columns * channels
        self.number = len(order) // self.size
        self.grid = _grid(height // rows, width // columns)
        """Row and column of each patch."""
        self.pixels = _grid(rows, columns).repeat_interleave(channels, dim=0)
        """Row and column of each place in its patch."""
        position = order.argsort()
        self.register_buffer("members", order.view(-1, self.size), persistent=False)
        self.register_buffer("patch_of", position // self.size, persistent=False)
        self.register_buffer("place_of", position % self.size, persistent=False)

    def split(self, columns: Tensor) -> Tensor:
        """``(batch, vars)``, and more behind, -> ``(batch, patches, size)``."""
        return columns[:, self.members]

    def ranks(self, query: Tensor, rank: Tensor) -> Tensor:
        """The place of each patch on the path of its row. Shape ``(batch, patches)``.

        Args:
            query: By patch. Shape ``(batch, patches, size)``.
            rank: By patch. Shape ``(batch, patches, size)``.
        """
        first = rank.masked_fill(~query, torch.iinfo(rank.dtype).max).amin(dim=2)
        last = rank.masked_fill(~query, -1).amax(dim=2)
        order = first.argsort(dim=1)
        overlap = last.gather(1, order)[:, :-1] > first.gather(1, order)[:, 1:]
        if overlap.any():
            row, place = overlap.nonzero()[0].tolist()
            refuse_return(row, int(order[row, place]))
        return first


def refuse_return(row: int, patch: int) -> None:
    """Refuses a path that goes back to a patch."""
    raise QueryError(
        f"A path must finish a patch before it goes on to the next; row {row} leaves patch {patch} "
        "and comes back to it. Use a protocol like RemoveGreatest(patch_major(...))."
    )


def patch_schema(schema: Schema, size: int) -> Schema:
    """The variables of one patch, which are those of every other, or an error."""
    first, *others = schema.variables[: schema.num_variables]
    for other in others:
        kinds = [(v.kind, v.levels, v.atoms, v.context) for v in (first, other)]
        if kinds[0] != kinds[1]:
            raise SchemaError(
                "The variables of an image must be alike, and context comes after them; "
                f'"{other.name}" is unlike "{first.name}".'
            )
    return Schema(schema.variables[:size])


def _grid(rows: int, columns: int) -> Tensor:
    return torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
