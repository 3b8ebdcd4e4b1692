"""TextModel: fit a text, then fill its holes, score any of its characters, or draw new ones.

What a model of text answers: likelihoods of characters, fills of holes, draws, bits.
"""

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.diagnostics.check import Check, check_model
from anyorder.diagnostics.evaluation import (
    Estimate,
    RowSample,
    conditional_bits,
    joint_bits,
    marginal_bits,
)
from anyorder.errors import AnotherRunError, CheckpointError, ConfigError, QueryError, check_count
from anyorder.heads.categorical import CategoricalConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import Draw, log_prob, sample
from anyorder.lattice.masks import MaskDistribution
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.lattice.query_laws import QueryLaw, as_query_law
from anyorder.lattice.query_mixtures import any_queries
from anyorder.lattice.random_sets import seeded
from anyorder.networks.path_transformer import PathTransformer
from anyorder.saving.checkpoint import SavedModel, load_saved, save_model
from anyorder.text import SHIPPED
from anyorder.text.data import HOLE, Crops, Text, chunks, decode, encode, shown, text_schema
from anyorder.training.loop import fit
from anyorder.training.losses import PathLoss
from anyorder.training.settings import TrainingSettings, default_device

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


VALID_ROWS = 64
"""Chunks of the validation text that tell when training gets no better."""


TEXT_SETTINGS = TrainingSettings(minutes=10, batch=8, learning_rate=2e-3)
"""How text is trained unless told otherwise."""

HOLES = "@%^=+" + "".join(map(chr, range(0x25A0, 0x2600)))
"""Characters to propose for a hole: what needs no quotes in a shell first, then squares."""

OTHER_RUNS = {
    r"`model\.schema\.variables` .*": "its chunks have another `length`",
    r"`model\.schema\..*": "it has another alphabet, so it is of another text",
    r"`data\..*": "it is of another text",
}
"""What differs between two trainings, by the field that was found to differ, in words."""


def text_queries(length: int) -> QueryLaw:
    """What "any" means for text: filling holes is asked more often than anything else."""
    return any_queries(length, conditional_share=0.75)


class TextModel(TextAnswers):
    """A model of all questions about chunks of text.

    Args:
        length: Characters of a chunk.
        layers: Blocks of the network.
        width: Of the network.
        heads: Of its attention; divides `width`.
        queries: The questions that it is trained for: "any", or a law over `length` variables.
        hole: The character that stands for an unknown one; not one of the text's own.
        minutes: Of training.
        settings: How it is trained, all of it, in place of `minutes`; `TEXT_SETTINGS` by default.

    Example:
        >>> from anyorder.text.data import embedded_text
        >>> settings = TrainingSettings(steps=2, batch=4, warmup=1)
        >>> model = TextModel(length=16, layers=1, width=16, heads=2, settings=settings)
        >>> len(model.fit(embedded_text()).infill("th_ st_tement", seed=0)[0])
        13
    """

    domain: ClassVar[str] = "text"

    def __init__(
        self,
        *,
        length: int = 128,
        layers: int = 4,
        width: int = 128,
        heads: int = 4,
        queries: QueryLaw | MaskDistribution | str = "any",
        hole: str = HOLE,
        minutes: float | None = None,
        settings: TrainingSettings | None = None,
    ) -> None:
        self.length = check_count("length", length)
        self.layers, self.width, self.heads = layers, width, heads
        if isinstance(queries, str) and queries != "any":
            raise QueryError(f'`queries` must be "any" or a query law; got "{queries}".')
        self.queries = text_queries(length) if isinstance(queries, str) else as_query_law(queries)
        if self.queries.num_variables != length:
            raise QueryError(
                f"`queries` must be a law over {length} variables, the `length`; it is over "
                f"{self.queries.num_variables}."
            )
        if not isinstance(hole, str) or len(hole) != 1:
            raise QueryError(f"`hole` must be one character; got {hole!r}.")
        self.hole = hole
        if minutes is not None and settings is not None:
            raise ConfigError("`minutes` and `settings` exclude each other: set settings.minutes.")
        self.settings = settings or replace(TEXT_SETTINGS, minutes=minutes or TEXT_SETTINGS.minutes)
        self.model_ = None
        self.alphabet_ = ""

    def __repr__(self) -> str:
        shape = f"{self.length} characters, {self.layers} layers of width {self.width}"
        if self.model_ is None:
            return f"<TextModel: {shape}, not fitted>"
        return (
            f"<TextModel: {shape}, {self.model_.num_parameters:,} weights, "
            f'alphabet {shown(self.alphabet_)}, hole "{self.hole}">'
        )

    def fit(self, text: Text, *, folder: str | Path | None = None, progress: bool = False) -> Self:
        """Trains on a text, from the start: what was learnt before is dropped.

        Args:
            text: From `load_text8`, `load_text` or `embedded_text`. The first 90% of it are learnt,
                the next 5% tell how training goes, and the last 5% are left for `evaluate`.
            folder: Where checkpoints go; the same call with the same folder goes on from the last.
            progress: Whether to show a line of progress.
        """
        if not isinstance(text, Text):
            raise QueryError(
                "`text` must come from `load_text`, `load_text8` or `embedded_text`; "
                f"got {type(text).__name__}."
            )
        if self.hole in text.alphabet:
            free = next((c for c in HOLES if c not in text.alphabet), None)
            such = "" if free is None else f', such as hole="{free}" (--hole "{free}")'
            raise QueryError(
                f'The text holds "{self.hole}", which stands for a hole. Choose another `hole`, '
                f"a character that is not in the text{such}."
            )
        schema = text_schema(text.alphabet, self.length)
        with torch.random.fork_rng():
            torch.manual_seed(self.settings.seed)
            network = PathTransformer(
                schema,
                layers=self.layers,
                width=self.width,
                heads=self.heads,
                positions="rotary",
            )
            conditionals = CategoricalConditionals(schema, width=self.width)
        protocol = RemoveGreatest(lexicographic(self.length))
        model = AnyOrderModel(schema, network, conditionals, protocol).to(default_device())
        held_out = chunks(text.valid, self.length, VALID_ROWS)
        try:
            fit(
                model,
                Crops(text.train, self.length),
                PathLoss(self.queries),
                settings=self.settings,
                valid=lambda trained: conditional_bits(trained, held_out).value,
                folder=folder,
                notes=self._notes(text.alphabet),
                progress=progress,
            )
        except AnotherRunError as error:
            raise AnotherRunError(_in_words(str(error))) from None
        self.model_, self.alphabet_ = model.eval(), text.alphabet
        return self

    def _notes(self, alphabet: str) -> dict[str, Any]:
        settings = asdict(self.settings)
        return {"domain": "text", "alphabet": alphabet, "hole": self.hole, "settings": settings}

    def save(self, folder: str | Path) -> None:
        """Saves the model with the questions that it was trained for."""
        notes = self._notes(self.alphabet_)
        save_model(folder, self.fitted(), law=self.queries, notes=notes)

    @classmethod
    def load(cls, folder: str | Path) -> "TextModel":
        """Loads what `save` saved, onto the GPU if there is one.

        A training that was stopped is loaded from its last checkpoint. "shipped" is the model that
        comes with the package.
        """
        return cls.from_saved(
            load_saved(SHIPPED if str(folder) == "shipped" else folder, device=default_device()),
            folder,
        )

    @classmethod
    def from_saved(cls, saved: SavedModel, folder: str | Path) -> "TextModel":
        """The model of what was read from a folder; `folder` is for messages only."""
        levels = saved.model.schema.variables[0].levels
        notes, alphabet = saved.notes, saved.notes.get("alphabet")
        if (
            notes.get("domain") != "text"
            or not isinstance(alphabet, str)
            or tuple(alphabet) != levels
        ):
            raise CheckpointError(f'"{folder}" does not hold a model of text.')
        network: Any = saved.model.network
        loaded = cls(
            length=saved.model.num_variables,
            layers=network.layers,
            width=network.width,
            heads=network.heads,
            queries=saved.law if saved.law is not None else "any",
            hole=notes.get("hole", HOLE),
            settings=_settings(notes, folder),
        )
        loaded.model_, loaded.alphabet_ = saved.model, alphabet
        return loaded

    @classmethod
    def shipped(cls) -> "TextModel":
        """The small model that comes with the package, of the text that ships with Python."""
        return cls.load(SHIPPED)


def _settings(notes: dict[str, Any], folder: str | Path) -> TrainingSettings | None:
    """How a saved model was trained; older ones do not say it."""
    if "settings" not in notes:
        return None
    try:
        return TrainingSettings(**notes["settings"])
    except (TypeError, ConfigError) as error:
        raise CheckpointError(
            f'"{folder}" has settings that cannot be read ({error}). Load it with the version of '
            "anyorder that saved it."
        ) from None


def _in_words(refusal: str) -> str:
    """A refusal to go on with another training, without the names of fields."""
    for field, words in OTHER_RUNS.items():
        refusal = re.sub(rf"(holds another run: ){field}\. Train", rf"\g<1>{words}. Train", refusal)
    return refusal
