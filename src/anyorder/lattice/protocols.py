"""Decomposition protocols w: the order in which the variables of a query are predicted.

A query p(x_S | x_e) is decomposed by removing one variable of S at a time, down to the evidence e
(Shih, Sadigh and Ermon 2022, Definition 1). Read backwards, a protocol ranks the members of S: the
variable of rank 0 is predicted first, from the evidence alone. ARDM removes a random variable, so a
set has |S|! paths (`RemoveRandom`). MAC removes the greatest one under a canonical order, so a set
has exactly one path (`RemoveGreatest`). `path_lists` and `edge_places` turn ranks into the lists of
variables and of edges that networks walk. The canonical orders are the functions at the end.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from anyorder.errors import ConfigError, check_count, check_permutation, check_sets
from anyorder.lattice.masks import uniform


class DecompositionProtocol(ABC):
    """Decomposition of a set of variables into univariate conditionals."""

    @abstractmethod
    def rank(self, members: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Returns the position of each variable on the path of its row's set.

        Args:
            members: Sets, booleans of shape ``(batch, vars)``.
            generator: Source of randomness, for protocols with random paths.

        Returns:
            Whole numbers of shape ``(batch, vars)``: members are ranked 0, 1, ... in the order in
            which they are predicted, all others after them.
        """

    @abstractmethod
    def removal(self, members: Tensor) -> Tensor:
        """Returns the probability w_e(j) that j is removed next from the set e (Definition 1).

        Args:
            members: Sets e, booleans of shape ``(batch, vars)``.

        Returns:
            float64 of shape ``(batch, vars)``; a row sums to 1 unless its set is empty.
        """


class RemoveRandom(DecompositionProtocol):
    """Removes a random variable (the protocol of ARDM and ACE, the paper's w-RND).

    A set of c variables has c! paths, so its probability has c! definitions. The log-likelihood of
    one path is, in expectation, a lower bound of that of their mixture (appendix A of the paper).

    Args:
        num_variables: N; needed only where no set gives the number of variables.
    """

    def __init__(self, num_variables: int | None = None) -> None:
        if num_variables is not None:
            check_count("num_variables", num_variables)
        self.num_variables = num_variables

    def rank(self, members: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Returns a random order of the members; see `DecompositionProtocol.rank`."""
        _check_members(members, self.num_variables)
        # Doubles, because equal keys would favour the variables that a sort leaves in front.
        keys = uniform(members.shape, device=members.device, generator=generator)
        return (keys + ~members).argsort(dim=1).argsort(dim=1)

    def removal(self, members: Tensor) -> Tensor:
        """Returns equal probabilities of the members; see `DecompositionProtocol.removal`."""
        _check_members(members, self.num_variables)
        return members.double() / members.sum(dim=1, keepdim=True).clamp(min=1)

    def __repr__(self) -> str:
        return "RemoveRandom()"


class RemoveGreatest(DecompositionProtocol):
    r"""Removes the greatest variable first (the protocol of MAC).

    A set is decomposed by removing its greatest element under a fixed canonical order, so every set
    has exactly one path to the empty set, hence one definition of its probability.

    Args:
        canonical_order: Permutation of the variables, least first. Shape ``(vars,)``.

    Reference:
        Shih, Sadigh and Ermon (2022), section 3.2 (A).

    Example:
        >>> RemoveGreatest(lexicographic(4)).rank(torch.tensor([[True, False, True, True]]))
        tensor([[0, 3, 1, 2]])
    """

    def __init__(self, canonical_order: Sequence[int] | Tensor) -> None:
        self.canonical_order = check_permutation("canonical_order", canonical_order)
        self.num_variables = len(self.canonical_order)
        self.position = self.canonical_order.argsort()
        """Position of each variable in the canonical order: the inverse permutation."""

    def rank(self, members: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Returns the canonical order of the members; see `DecompositionProtocol.rank`."""
        del generator  # there is one path
        check_sets("members", members, self.num_variables)
        ordered = members[:, self.canonical_order.to(members.device)]
        inside = ordered.cumsum(dim=1) - 1
        outside = (~ordered).cumsum(dim=1) + inside[:, -1:]
        return torch.where(ordered, inside, outside)[:, self.position.to(members.device)]

    def removal(self, members: Tensor) -> Tensor:
        """Returns probability 1 for the greatest member; see `DecompositionProtocol.removal`."""
        last = members.sum(dim=1, keepdim=True) - 1
        return (members & (self.rank(members) == last)).double()

    def __repr__(self) -> str:
        return f"RemoveGreatest({self.canonical_order.tolist()})"


def path_lists(query: Tensor, rank: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the queried variables first, by rank, and their number.

    Shapes ``(batch, vars)`` and ``(batch,)``.
    """
    behind = torch.iinfo(rank.dtype).max
    return rank.expand_as(query).masked_fill(~query, behind).argsort(dim=1), query.sum(1)


def alike(query: Tensor, given: Tensor) -> Tensor:
    """Returns an order of rows that joins queries of equal sizes. Shape ``(batch,)``."""
    return (query.sum(dim=1) * (given.shape[1] + 1) + given.sum(dim=1)).argsort(stable=True)


def edge_places(num_query: Tensor) -> tuple[Tensor, Tensor]:
    """Returns row and step of every edge, in order. Shapes ``(edges,)``."""
    row = torch.arange(len(num_query), device=num_query.device).repeat_interleave(num_query)
    first = num_query.cumsum(0) - num_query
    return row, torch.arange(len(row), device=row.device) - first[row]


def lexicographic(num_variables: int) -> Tensor:
    """Returns the order 0, 1, 2, ..."""
    return torch.arange(check_count("num_variables", num_variables))


def strided(num_variables: int, stride: int) -> Tensor:
    """Returns the order 0, stride, 2 stride, ..., 1, 1 + stride, ...: coarse to fine.

    It is a permutation for every `num_variables` and `stride`.

    Example:
        >>> strided(7, 3)
        tensor([0, 3, 6, 1, 4, 2, 5])
    """
    variables = lexicographic(num_variables)
    return (variables % check_count("stride", stride)).argsort(stable=True)


def raster(height: int, width: int, channels: int = 1) -> Tensor:
    """Returns the order channel by channel, each row by row: that of the variables' numbers."""
    return lexicographic(_num_pixels(height, width) * check_count("channels", channels))


def channel_interleaved(height: int, width: int, channels: int = 1) -> Tensor:
    """Returns the order pixel by pixel, row by row, with the channels of a pixel in a run.

    Example:
        >>> channel_interleaved(1, 2, 3)
        tensor([0, 2, 4, 1, 3, 5])
    """
    return raster(height, width, channels).view(channels, height * width).T.flatten()


def patch_major(
    height: int, width: int, channels: int = 1, *, patch: int | Sequence[int]
) -> Tensor:
    """Returns the order patch by patch, row by row; inside a patch as `channel_interleaved`.

    Args:
        height: Height of the image.
        width: Width of the image.
        channels: Number of channels of a pixel.
        patch: Side of a square patch, or its height and width; they divide the image's.

    Example:
        >>> patch_major(2, 4, patch=2)
        tensor([0, 1, 4, 5, 2, 3, 6, 7])
    """
    pixels = channel_interleaved(height, width, channels)
    rows, columns = patch_sides(height, width, patch)
    grid = pixels.view(height // rows, rows, width // columns, columns, channels)
    return grid.transpose(1, 2).flatten()


def patch_sides(height: int, width: int, patch: int | Sequence[int]) -> tuple[int, int]:
    """Returns height and width of a patch, checked against those of the image."""
    sides = tuple(patch) if isinstance(patch, Sequence) else (patch, patch)
    if len(sides) != 2:
        raise ConfigError(f"`patch` must be one number, or a height and a width; got {patch!r}.")
    rows, columns = (check_count("patch", side) for side in sides)
    if height % rows or width % columns:
        raise ConfigError(
            f"`patch` must divide the height and the width of the image; got patches of {rows} x "
            f"{columns} for {height} x {width} pixels."
        )
    return rows, columns


def _num_pixels(height: int, width: int) -> int:
    return check_count("height", height) * check_count("width", width)


def _check_members(members: object, num_variables: int | None) -> None:
    width = members.shape[-1] if isinstance(members, Tensor) and members.ndim else 1
    check_sets("members", members, num_variables or width)
