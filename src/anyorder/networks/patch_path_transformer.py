"""Path network for images: a trunk over patches, and a small decoder inside each patch.

A token for each variable would be 3072 tokens for an image of 32 x 32 x 3. Here the path goes patch
by patch: the trunk attends over patches, and the decoder over the places of one patch (both are in
`patch_layers.py`), as in MegaByte (Yu et al., 2023). `Patches` is the partition of an image.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from anyorder.errors import ConfigError, QueryError, SchemaError
from anyorder.lattice.protocols import edge_places, patch_major, patch_sides
from anyorder.networks.blocks import INITIAL_SCALE, check_shape
from anyorder.networks.contracts import PathFeatures, PathNetwork, samples_of
from anyorder.networks.patch_layers import (
    DecoderState,
    FinishedPatches,
    PatchDecoder,
    PatchState,
    PatchTrunk,
    PendingQuery,
    TrunkMemory,
    stacked,
)
from anyorder.networks.paths import mask_unread, pick
from anyorder.variables import Schema


class PatchPathTransformer(PathNetwork[PatchState]):
    r"""Path network for images: every factor of any conditional in one pass over patches.

    A path goes through patches, and inside each through its variables. The *trunk* is a
    `PathTransformer` over patches: E is the given part of a patch, U the queried part with its
    values, and Q the query of a patch::

        E attends to E;   U_k to E, U_1..U_k;   Q_k to E, U_1..U_{k-1} and itself.

    The *decoder*, narrow and shallow, is a `SingleStreamPathTransformer` inside the patch: it
    attends to the evidence there value by value, and the features of Q_k condition each of its
    queries on the rest of the image. An image of 32 x 32 x 3 variables in patches of 4 x 4 has 64
    tokens of each kind in the trunk instead of 3072.

    Q_k does not depend on which variables of its patch are queried, because later steps of a path
    must not change a factor. A path must finish a patch before the next one, in any order of the
    patches, such as that of `patch_major`; other paths are refused.

    Args:
        schema: Variables of one type, numbered as in `raster`; context comes last.
        image_shape: Height, width and channels of an image.
        patch: Side of a square patch, or its height and width; they divide those of the image.
        trunk_layers: Number of blocks of the trunk.
        trunk_width: Size of the tokens of patches.
        trunk_heads: Number of attention heads of the trunk; ``trunk_width / trunk_heads`` must be a
            multiple of 4.
        layers: Number of blocks of the decoder.
        width: Size of the features, and of the tokens inside a patch.
        heads: Number of attention heads of the decoder; ``width / heads`` must be a multiple of 4.
        dropout: Dropout rate of each branch's output.

    Reference:
        Shih, Sadigh and Ermon (2022), Alg. 1 and 2 in one pass. The hierarchy of a trunk over
        patches and a decoder inside them follows Yu et al. (2023), MegaByte.

    Example:
        >>> from anyorder.variables import Variable
        >>> schema = Schema([Variable.categorical(f"pixel{i}", range(16)) for i in range(8)])
        >>> shape = {"trunk_layers": 2, "trunk_width": 16, "trunk_heads": 2}
        >>> network = PatchPathTransformer(schema, image_shape=(2, 4, 1), patch=2, **shape, width=8)
        >>> x, given = torch.zeros(1, 8).long(), torch.tensor([[True] * 3 + [False] * 5])
        >>> rank = torch.tensor([0, 1, 4, 5, 2, 3, 6, 7])  # the order of patch_major(2, 4, patch=2)
        >>> network(x, query=~given, given=given, rank=rank).target
        tensor([4, 5, 3, 6, 7])
    """

    walks_any_order = False

    def __init__(
        self,
        schema: Schema,
        *,
        image_shape: Sequence[int],
        patch: int | Sequence[int],
        trunk_layers: int,
        trunk_width: int,
        trunk_heads: int,
        layers: int = 2,
        width: int = 128,
        heads: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_shape(layers, width, heads)
        check_shape(trunk_layers, trunk_width, trunk_heads, part="trunk_")
        self.schema, self.image_shape, self.patch = schema, image_shape, patch
        self.trunk_layers, self.trunk_heads = trunk_layers, trunk_heads
        self.trunk_width, self.dropout = trunk_width, dropout
        self.layers, self.width, self.heads = layers, width, heads
        self.patches = Patches(image_shape, patch)
        _check_size(schema, self.patches)
        self.decoder = PatchDecoder(
            patch_schema(schema, self.patches.size),
            layers=layers,
            width=width,
            heads=heads,
            coordinates=self.patches.pixels.tolist(),
            dropout=dropout,
        )
        self.trunk = PatchTrunk(
            schema.variables[schema.num_variables :],
            patches=self.patches.number,
            coordinates=self.patches.grid.tolist(),
            layers=trunk_layers,
            width=trunk_width,
            heads=trunk_heads,
            dropout=dropout,
        )
        self.summary = PatchSummary(self.patches.size * width, trunk_width)
        self.condition = nn.Linear(trunk_width, self.patches.size * width)
        _init_at_embedding_scale(self.condition)

    def forward(self, x: Tensor, query: Tensor, given: Tensor, rank: Tensor) -> PathFeatures:
        """Returns the features of every factor in one pass; see `PathNetwork.forward`."""
        queried, known, ranks = map(self.patches.split, (query, given, rank.expand_as(query)))
        patch_ranks = self.patches.ranks(queried, ranks)
        values = self.patches.split(mask_unread(x, query | given))
        rows = self.trunk.rows(
            x[:, query.shape[1] :], self._vectors(values, known), self._vectors(values, queried)
        )
        outer = self.trunk(rows, queried.any(dim=2), known.any(dim=2), patch_ranks)
        visit = outer.row, outer.target  # a row of the decoder for each patch on a path
        condition = self._condition(outer.features)
        inner = self.decoder(
            self.decoder.rows(values[visit], condition), queried[visit], known[visit], ranks[visit]
        )
        row, step = edge_places(query.sum(dim=1))
        target = self.patches.members[outer.target[inner.row], inner.target]
        return PathFeatures(inner.features, row, step, target)

    def encode(self, x: Tensor, given: Tensor) -> PatchState:
        """Encodes the evidence; see `PathNetwork.encode`."""
        values, known = self.patches.split(mask_unread(x, given)), self.patches.split(given)
        rows = self.trunk.rows(x[:, given.shape[1] :], self._vectors(values, known))
        trunk = self.trunk.encode(rows, known.any(dim=2))
        finished = torch.zeros_like(known[:, :, 0])
        return PatchState(values, known, trunk.evidence, trunk.known, finished)

    def ask(self, state: PatchState, variables: Tensor) -> Tensor:
        """Returns features of variables; see `PathNetwork.ask`."""
        variables = variables.expand(len(state.finished), -1)
        patches, places = self.patches.patch_of[variables], self.patches.place_of[variables]
        returns = state.finished.gather(1, patches).nonzero()
        if len(returns):
            row, token = returns[0].tolist()
            refuse_return(row, int(patches[row, token]))
        if variables.shape[1] != 1:
            return self._features_many(state, patches, places)
        inside, left = self._enter(state, patches[:, 0])
        features, tokens = self.decoder.query_features(inside, places)
        state.query = PendingQuery(variables, inside, left, tokens[..., 0, :])
        return features

    def tell(self, state: PatchState, variables: Tensor, values: Tensor) -> PatchState:
        """Stores known values, in place, as those of queries; see `PathNetwork.tell`."""
        for variable, value in zip(
            variables.expand_as(values).split(1, dim=1), values.split(1, dim=1), strict=True
        ):
            if state.query is None or not torch.equal(state.query.variables, variable):
                self.ask(state, variable)
            state.observe(self.patches.place_of[variable], value)
        return state

    def _features_many(self, state: PatchState, patches: Tensor, places: Tensor) -> Tensor:
        """Returns features of many variables: each queried patch is run as a sample of its row."""
        queried, index = patches.unique(return_inverse=True)
        batch, size = len(patches), self.patches.size
        inside, _ = self._enter(state.expand(len(queried)), queried.repeat(batch))
        everywhere = torch.arange(size, device=places.device).expand(len(inside.patch), -1)
        features, _ = self.decoder.query_features(inside, everywhere)
        return pick(features.view(batch, -1, self.width), index * size + places)

    def _enter(
        self, state: PatchState, patch: Tensor
    ) -> tuple[DecoderState, FinishedPatches | None]:
        """Returns the decoder state in `patch (batch,)`, and the patches finished for it."""
        if state.inside is None:
            queried, none = patch[:, None].tensor_split([1], dim=1)  # no patch is left
            vectors = torch.zeros(len(patch), 0, self.trunk_width, device=patch.device)
            features = self.trunk.query_features(TrunkMemory(state), queried, none, vectors)
            return self._decoder_state(state, patch, features), None
        leaves = patch != state.inside.patch
        rows = leaves.unflatten(0, (-1, state.samples)).any(dim=1).nonzero().squeeze(1)
        if not len(rows):
            return state.inside, None
        samples = samples_of(rows, state.samples)
        chosen = leaves[samples].nonzero().squeeze(1)
        inside, tokens = self._move(state.select(rows), patch[samples])
        left = FinishedPatches(samples[chosen], tokens[chosen])
        return state.inside.put(left.samples, inside.at(chosen)), left

    def _move(self, state: PatchState, patch: Tensor) -> tuple[DecoderState, Tensor]:
        """Returns the decoder state in the next patches, and the tokens of the finished ones."""
        assert state.inside is not None
        memory, left = TrunkMemory(state), state.inside.patch[:, None]
        vectors = self._vectors(state.inside.values[:, None], state.inside.past[:, None])
        features = self.trunk.query_features(memory, patch[:, None], left, vectors)
        return self._decoder_state(state, patch, features), stacked(memory.new)[..., 0, :]

    def _decoder_state(self, state: PatchState, patch: Tensor, features: Tensor) -> DecoderState:
        """Returns the decoder state on entering patches, from the trunk's features of them."""
        # Samples of a row that enter the same patch share its evidence.
        visits, index = (state.row * self.patches.number + patch).unique(return_inverse=True)
        visit = visits // self.patches.number, visits % self.patches.number
        values, given = state.values[visit], state.given[visit]
        memory, seen = self.decoder.read(values, given)
        return DecoderState(
            patch,
            values=torch.zeros_like(values)[index],
            past=torch.zeros_like(given)[index],
            last=torch.full_like(patch[:, None], self.patches.size),
            condition=self._condition(features),
            memory=memory[index],
            seen=seen[index],
        )

    def _vectors(self, values: Tensor, known: Tensor) -> Tensor:
        """Returns summaries of patches, zeros if nothing is known: ``(batch, patches, width)``.

        Args:
            values: Values. Shape ``(batch, patches, size)``.
            known: True for known values. Shape ``(batch, patches, size)``.
        """
        holds = known.any(dim=2)
        places = torch.arange(self.patches.size, device=values.device)
        tokens = self.decoder.embedding.value_tokens(values[holds], places)
        blank = self.decoder.embedding.query_tokens(places)
        found = self.summary(torch.where(known[holds][..., None], tokens, blank))
        vectors = found.new_zeros(*holds.shape, self.trunk_width)
        return vectors.index_put((holds,), found)

    def _condition(self, features: Tensor) -> Tensor:
        """Returns the condition of each place of a patch. Shape ``(batch, size, width)``."""
        return self.condition(features).unflatten(1, (self.patches.size, self.width))


class PatchSummary(nn.Module):
    """Summary of a patch: the tokens of its places, concatenated, through a perceptron."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(inputs)
        self.inner = nn.Linear(inputs, width)
        self.out = nn.Linear(width, width)
        _init_at_embedding_scale(self.out)

    def forward(self, vectors: Tensor) -> Tensor:
        """Maps ``(patches, size, width)`` to ``(patches, width)``."""
        return self.out(nn.functional.gelu(self.inner(self.norm(vectors.flatten(1)))))


def _init_at_embedding_scale(linear: nn.Linear) -> None:
    """Initialises a layer whose output is added to embeddings, at their scale."""
    nn.init.normal_(linear.weight, std=INITIAL_SCALE * linear.in_features**-0.5)
    nn.init.zeros_(linear.bias)


class Patches(nn.Module):
    """Partition of the variables of an image into patches of one size.

    Patches are numbered row by row, and the *places* of a patch as in `patch_major`.

    `patch` is the side of a square, or a height and a width.
    """

    members: Tensor  # (patches, size) variables
    patch_of: Tensor  # (vars,) patch of each variable
    place_of: Tensor  # (vars,) place of each variable in its patch

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
        """Gathers ``(batch, vars or more)`` -> ``(batch, patches, size)``."""
        return columns[:, self.members]

    def ranks(self, query: Tensor, rank: Tensor) -> Tensor:
        """Returns the rank of each patch on the path of its row. Shape ``(batch, patches)``.

        Both arguments have the shape ``(batch, patches, size)``.
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
    """Refuses a path that returns to a finished patch."""
    raise QueryError(
        f"A path must finish a patch before it goes on to the next; row {row} leaves patch {patch} "
        "and comes back to it. Use a protocol like RemoveGreatest(patch_major(...))."
    )


def patch_schema(schema: Schema, size: int) -> Schema:
    """Returns the variables of one patch, and refuses variables of different types."""
    first, *others = schema.variables[: schema.num_variables]
    for other in others:
        kinds = [(v.kind, v.levels, v.atoms, v.context) for v in (first, other)]
        if kinds[0] != kinds[1]:
            raise SchemaError(
                "The variables of an image must have one type, and context comes after them; "
                f'"{other.name}" differs from "{first.name}".'
            )
    return Schema(schema.variables[:size])


def _grid(rows: int, columns: int) -> Tensor:
    return torch.cartesian_prod(torch.arange(rows), torch.arange(columns))


def _check_size(schema: Schema, patches: Patches) -> None:
    if patches.members.numel() != schema.num_variables:
        raise ConfigError(
            f"`image_shape` must hold the {schema.num_variables} variables of the schema; it holds "
            f"{patches.members.numel()}."
        )
