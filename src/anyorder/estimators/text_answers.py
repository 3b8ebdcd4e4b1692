"""What a model of text answers: likelihoods of characters, fills of holes, draws, bits."""

from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.data.text import Text, chunks, decode, encode
from anyorder.diagnostics.check import check_model
from anyorder.diagnostics.report import Check
from anyorder.diagnostics.row_sample import RowSample
from anyorder.errors import QueryError
from anyorder.evaluation import Estimate, conditional_bits, joint_bits, marginal_bits
from anyorder.model import AnyOrderModel
from anyorder.queries import Draw, log_prob, sample
from anyorder.random_sets import seeded

CHECKED_CHUNKS = 256
"""Chunks of a check unless told otherwise."""


class TextAnswers:
    """The questions that can be asked of a model of text."""

    length: int
    hole: str
    alphabet_: str
    model_: AnyOrderModel | None

    @overload
    def log_prob(self, text: str, *, given: str | None = None) -> float: ...

    @overload
    def log_prob(
        self, text: list[str], *, given: list[str] | None = None
    ) -> NDArray[np.float64]: ...

    def log_prob(
        self, text: str | list[str], *, given: str | list[str] | None = None
    ) -> float | NDArray[np.float64]:
        """The log-likelihood, in nats, of the characters of `text` that are not holes.

        A text is the start of a chunk, and what would follow it is marginalised, as holes are. Its
        place matters: the same word elsewhere in a chunk is another question.

        Args:
            text: At most `length` characters; `hole` marks a hole and is marginalised. Or several
                such texts.
            given: As long as `text`: its characters that are not holes are given, and must be those
                of `text`. One for each of several texts.

        Returns:
            A number; of several texts, an array of them.
        """
        texts = _listed(text)
        x, known = self.read(texts)
        evidence = torch.zeros_like(known)
        if given is not None:
            hints = _listed(given)
            e, evidence = self.read(hints)
            alike = [len(one) for one in hints] == [len(one) for one in texts] and (
                not (evidence & ~known).any() and torch.equal(e[evidence], x[evidence])
            )
            if not alike:
                raise QueryError("`given` must be `text` with holes: as long, and alike elsewhere.")
        found = log_prob(self.fitted(), x, query=known & ~evidence, given=evidence)
        return float(found) if isinstance(text, str) else found.cpu().numpy()

    @overload
    def infill(
        self,
        text: str,
        *,
        n: int = 1,
        how: Draw = "sample",
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
    ) -> list[str]: ...

    @overload
    def infill(
        self,
        text: list[str],
        *,
        n: int = 1,
        how: Draw = "sample",
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
    ) -> list[list[str]]: ...

    def infill(
        self,
        text: str | list[str],
        *,
        n: int = 1,
        how: Draw = "sample",
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
    ) -> list[str] | list[list[str]]:
        """Fills the holes of a text.

        Args:
            text: At most `length` characters; `hole` marks a hole. Or several such texts.
            n: How many fills.
            how: "sample", or "greedy" for the most probable character at each step.
            temperature: Below 1 is more cautious.
            top_k: Only the k most probable characters at each step.
            seed: The same seed gives the same fills.

        Returns:
            The fills; of several texts, a list of fills for each.
        """
        texts = _listed(text)
        x, known = self.read(texts)
        lengths = torch.tensor([len(one) for one in texts])
        holes = (torch.arange(self.length) < lengths[:, None]) & ~known
        full = (~holes.any(dim=1)).nonzero()
        if len(full):
            which = "" if isinstance(text, str) else f" (text {int(full[0])})"
            raise QueryError(
                f'`text` must have a hole to fill, written "{self.hole}"; it has none{which}.'
            )
        filled = sample(
            self.fitted(),
            x,
            query=holes,
            given=known,
            n=n,
            how=how,
            temperature=temperature,
            top_k=top_k,
            generator=seeded(seed),
        )
        found = [
            [decode(row[: len(one)], self.alphabet_) for row in rows]
            for one, rows in zip(texts, filled, strict=True)
        ]
        return found[0] if isinstance(text, str) else found

    def sample(self, n: int = 1, *, temperature: float = 1.0, seed: int | None = None) -> list[str]:
        """Draws chunks of text."""
        return self.infill(self.hole * self.length, n=n, temperature=temperature, seed=seed)

    def evaluate(
        self, text: str | Text | Tensor, *, rows: int = 256, seed: int = 0
    ) -> dict[str, Estimate]:
        """Bits for each character: of the joint, of marginals, and of one half given the other.

        Those of the joint and of marginals (a random set of each chunk, of a random size) are
        divided by all characters of the chunk, as in the paper; those of one half given the other
        by the characters asked.

        Args:
            text: A string or codes of a chunk or more; or a `Text`, of which the test part is read.
            rows: How many chunks of `length` characters, spread evenly over it.
            seed: Of the sets that are asked.
        """
        model, x = self.fitted(), chunks(self._codes(text), self.length, rows)
        return {
            "joint": joint_bits(model, x),
            "marginal": marginal_bits(model, x, seed=seed),
            "conditional": conditional_bits(model, x, seed=seed),
        }

    def check(
        self,
        text: str | Text | Tensor,
        *,
        rows: int = CHECKED_CHUNKS,
        seed: int = 0,
        progress: bool = False,
    ) -> Check:
        """How far the model agrees with itself and with a text that it was not trained on.

        Args:
            text: As for `evaluate`.
            rows: How many chunks of `length` characters, spread evenly over it.
            seed: Of the questions that are asked.
            progress: Whether a line shows how far it is.

        Returns:
            What was found: `.sentences()`, `.to_json()` and `.plot()`.
        """
        model, x = self.fitted(), chunks(self._codes(text), self.length, rows)
        sample = RowSample(len(x), seed=seed)  # all of them, in random order
        sample.add(x, torch.zeros(x.shape, dtype=torch.bool))
        return check_model(model, sample.x, sample.missing, seed=seed, progress=progress)

    def _codes(self, text: str | Text | Tensor) -> Tensor:
        if isinstance(text, Text):
            text = decode(text.test, text.alphabet)
        if isinstance(text, str):
            return self._encode(text)
        if not isinstance(text, Tensor) or text.ndim != 1:
            raise QueryError(
                "`text` must be a string, a Text, or a tensor of codes (characters,); got "
                f"{type(text).__name__}."
            )
        return text

    def fitted(self) -> AnyOrderModel:
        """The model beneath; an error if there is none yet."""
        if self.model_ is None:
            raise QueryError("This model knows nothing yet: call `fit` or `load` first.")
        return self.model_

    def read(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """Texts with holes as values ``(batch, length)`` and what is known ``(batch, length)``."""
        self.fitted()
        known = torch.zeros(len(texts), self.length, dtype=torch.bool)
        x = torch.zeros(len(texts), self.length, dtype=torch.long)
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise QueryError(f"`text` must be a string; got {type(text).__name__}.")
            if not 1 <= len(text) <= self.length:
                raise QueryError(
                    f"`text` must have 1 to {self.length} characters; it has {len(text)}. "
                    "Split it, or fit a model with a longer `length`."
                )
            known[row, : len(text)] = torch.tensor([character != self.hole for character in text])
            x[row, : len(text)] = self._encode(text.replace(self.hole, self.alphabet_[0]))
        return x, known

    def _encode(self, text: str) -> Tensor:
        """The codes of a text, or an error that says what is wrong with it."""
        try:
            return encode(text, self.alphabet_)
        except QueryError as error:
            fits = set(text.lower()) <= {*self.alphabet_, self.hole}
            hint = " It knows no capitals: write it in lower case." if fits else ""
            raise QueryError(f"{error}{hint}") from None


def _listed(text: str | list[str]) -> list[str]:
    """One text or several as a list; what is neither is refused where it is read."""
    if not isinstance(text, list | tuple):
        return [text]
    if not text:
        raise QueryError("`text` must hold a text or more; got none.")
    return list(text)
