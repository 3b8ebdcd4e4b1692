"""The decoder of a patch network: a path network over the places of one patch."""

import torch
from torch import Tensor, nn

from anyorder.networks.patch_state import DecoderMemory, Inside, stacked
from anyorder.networks.patch_trunk import pick
from anyorder.networks.path_streams import Tokens
from anyorder.networks.single_stream import SingleStreamPathTransformer


class PatchDecoder(SingleStreamPathTransformer):
    """Features of the variables of a patch along the path; see `SingleStreamPathTransformer`.

    What the rest of the image says of each place, a vector, is added to the token that asks for it.
    A row of its ``x`` is the values of a patch and then these vectors.
    """

    def rows(self, values: Tensor, condition: Tensor) -> Tensor:
        """The ``x`` of patches with a vector for each place ``(batch, size, width)``."""
        # Not in a narrower type than 32 bits, which would round the codes of levels.
        wide = torch.promote_types(condition.dtype, torch.float32)
        return torch.cat([values.to(wide), condition.flatten(1).to(wide)], dim=1)

    def read(self, values: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """What is remembered of evidence inside patches: `Inside.memory` and `Inside.seen`.

        Args:
            values: Shape ``(batch, size)``.
            given: Shape ``(batch, size)``.
        """
        places = torch.arange(given.shape[1], device=given.device).expand_as(given)
        seen = nn.functional.pad(given, (1, 0), value=True)
        cache = self._evidence_cache(self._evidence_tokens(values, places), seen)
        return stacked(cache), seen

    def answers(self, inside: Inside, places: Tensor) -> tuple[Tensor, Tensor]:
        """Features of places, each as if it alone were asked, and the tokens that ask.

        Args:
            inside: What is known in the patch.
            places: Shape ``(batch, questions)``.

        Returns:
            Shapes ``(batch, questions, width)`` and ``(batch, blocks, 2, heads, questions,
            head_dim)``.
        """
        begins = inside.last == self.nowhere
        last = inside.last.masked_fill(begins, 0)
        told = self.embedding.told(inside.values.gather(1, last), last)
        told = torch.where(begins[..., None], self.embedding.blank, told)
        questions = places.shape[1]
        tokens = self._tokens(told.expand(-1, questions, -1), inside.last.expand_as(places), places)
        tokens = _with(tokens, inside.condition, places)
        memory = DecoderMemory(inside, questions)
        return self._step(memory, tokens, asked=questions), stacked(memory.new)

    def _evidence_tokens(self, x: Tensor, evidence: Tensor) -> Tokens:
        return super()._evidence_tokens(x[:, : self.nowhere], evidence)

    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        values, condition = x.tensor_split([self.nowhere], dim=1)
        tokens, asked = super()._path_tokens(values, path)
        return _with(tokens, condition.unflatten(1, (-1, self.width)), path), asked


def _with(tokens: Tokens, condition: Tensor, places: Tensor) -> Tokens:
    """Tokens with what is said of the places that they ask for."""
    said = pick(condition, places).type_as(tokens.hidden)
    return tokens._replace(hidden=tokens.hidden + said)
