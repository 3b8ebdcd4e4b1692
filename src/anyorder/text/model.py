"""TextModel: fit a text, then infill holes, score any of its characters, or sample new text."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.diagnostics.check import Check
from anyorder.diagnostics.evaluation import Estimate, Sampling, conditional_bits
from anyorder.errors import (
    AnotherRunError,
    CheckpointError,
    ConfigError,
    Device,
    QueryError,
    check_count,
    check_device,
    renamed,
    seeded,
)
from anyorder.estimator import LevelEstimator, evaluation_seed
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import Draw, log_prob, sample
from anyorder.lattice.masks import MaskDistribution
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.lattice.query_laws import QueryLaw, any_queries, as_query_law
from anyorder.networks.path_transformer import PathTransformer
from anyorder.saving.checkpoint import SavedModel, save_model
from anyorder.text import SHIPPED
from anyorder.text.data import HOLE, Crops, Text, chunks, decode, encode, shown, text_schema
from anyorder.training.loop import fit
from anyorder.training.losses import PathLoss, whole_first
from anyorder.training.settings import TrainingSettings

CHECKED_CHUNKS = 256
"""Default number of chunks of a check."""


VALID_ROWS = 64
"""Chunks of the validation text for early stopping."""

TEXT_SETTINGS = TrainingSettings(minutes=10, batch=8, learning_rate=2e-3)
"""Default training settings of text."""

HOLES = "@%^=+" + "".join(map(chr, range(0x25A0, 0x2600)))
"""Characters to propose for a hole: those that need no quotes in a shell first, then squares."""

OTHER_RUNS = {
    r"`model\.schema\.variables` .*": "its chunks have another `length`",
    r"`model\.schema\..*": "it has another alphabet, so it is of another text",
    r"`data\..*": "it is of another text",
}
"""Descriptions of how two trainings differ, by the field that differs."""


def text_queries(length: int) -> QueryLaw:
    """Returns the law of "any" for text: three quarters of the queries fill holes."""
    return any_queries(length, conditional_share=0.75)


class TextModel(LevelEstimator):
    """A model of text that answers p(these characters | those characters) of a chunk.

    Parameters are checked here, and again by `fit`, since attributes can be set in between.

    Args:
        length: Number of characters in a chunk.
        layers: Number of blocks of the network.
        width: Width of the network.
        heads: Number of attention heads; must divide `width`.
        queries: Queries to train for: "any", or a query law over `length` variables.
        hole: Character that marks a hole; must not occur in the text.
        random_state: Seed of everything random in training; None is 0.
        minutes: Training budget in minutes; None is 10.
        settings: All training settings, in place of `TEXT_SETTINGS` and `minutes`. `settings.seed`
            takes the place of `random_state`.
        progress: Whether a line on standard error shows how training goes; by default it does in
            terminals and notebooks.
        device: Device to train on: "cpu", "cuda", "mps" or a torch.device; None is the GPU if there
            is one.

    Example:
        >>> from anyorder.text.data import embedded_text
        >>> settings = TrainingSettings(steps=2, batch=4, warmup=1)
        >>> model = TextModel(length=16, layers=1, width=16, heads=2, settings=settings)
        >>> len(model.fit(embedded_text()).infill("th_ st_tement", random_state=0)[0])
        13
    """

    domain: ClassVar[str] = "text"
    defaults: ClassVar[TrainingSettings] = TEXT_SETTINGS

    def __init__(
        self,
        *,
        length: int = 128,
        layers: int = 4,
        width: int = 128,
        heads: int = 4,
        queries: QueryLaw | MaskDistribution | str = "any",
        hole: str = HOLE,
        random_state: int | None = 0,
        minutes: float | None = None,
        settings: TrainingSettings | None = None,
        progress: bool | None = None,
        device: Device = None,
    ) -> None:
        self.length = check_count("length", length)
        self.layers, self.width, self.heads = layers, width, heads
        if isinstance(queries, str) and queries != "any":
            raise QueryError(f'`queries` must be "any" or a query law; got "{queries}".')
        self.asks_any = isinstance(queries, str)
        self.queries = text_queries(length) if isinstance(queries, str) else as_query_law(queries)
        if self.queries.num_variables != length:
            raise QueryError(
                f"`queries` must be a law over {length} variables, the `length`; it is over "
                f"{self.queries.num_variables}."
            )
        if not isinstance(hole, str) or len(hole) != 1:
            raise QueryError(f"`hole` must be one character; got {hole!r}.")
        self.hole = hole
        self.random_state, self.minutes, self.settings = random_state, minutes, settings
        self.progress, self.device = progress, device
        self.training_settings()  # checks them
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

    @renamed(progress="self.progress")
    def fit(self, text: Text, *, folder: str | Path | None = None) -> Self:
        """Fits the model to a text, from the start: an earlier fit is dropped.

        Args:
            text: Text from `load_text8`, `load_text` or `embedded_text`. The first 90% of it are
                for training, the next 5% for validation, and the last 5% for `evaluate`.
            folder: Folder for checkpoints; the same call resumes from the last one.
        """
        settings = self.training_settings()
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
            torch.manual_seed(settings.seed)
            network = PathTransformer(
                schema,
                layers=self.layers,
                width=self.width,
                heads=self.heads,
                positions="rotary",
            )
            conditionals = CategoricalConditionals(schema, width=self.width)
        held_out = chunks(text.valid, self.length, VALID_ROWS)
        protocol = RemoveGreatest(lexicographic(self.length))
        model = AnyOrderModel(schema, network, conditionals, protocol).to(check_device(self.device))
        try:
            fit(
                model,
                Crops(text.train, self.length),
                whole_first(self.queries) if self.asks_any else PathLoss(self.queries),
                settings=settings,
                valid=lambda trained: conditional_bits(trained, held_out).value,
                folder=folder,
                notes=self._notes(text.alphabet),
                progress=self.progress,
            )
        except AnotherRunError as error:
            raise AnotherRunError(_in_words(str(error))) from None
        self.model_, self.alphabet_ = model.eval(), text.alphabet
        return self

    def _notes(self, alphabet: str) -> dict[str, Any]:
        settings = asdict(self.training_settings())
        return {"domain": "text", "alphabet": alphabet, "hole": self.hole, "settings": settings}

    def save(self, folder: str | Path) -> None:
        """Saves the model with its query law."""
        notes = self._notes(self.alphabet_)
        save_model(folder, self.fitted(), law=self.queries, notes=notes)

    @classmethod
    def load(cls, folder: str | Path, *, device: Device = None) -> Self:
        """Loads a saved model, or the last checkpoint of a training.

        Args:
            folder: Folder that `save` wrote; "shipped" is the model that comes with the package.
            device: Device to load it to, as for `TextModel`.
        """
        return super().load(SHIPPED if str(folder) == "shipped" else folder, device=device)

    @classmethod
    def from_saved(cls, saved: SavedModel, folder: str | Path) -> Self:
        """Returns the model of what was read from a folder; `folder` is for messages only."""
        levels = saved.model.schema.variables[0].levels
        notes, alphabet = saved.notes, saved.notes.get("alphabet")
        if (
            notes.get("domain") != "text"
            or not isinstance(alphabet, str)
            or tuple(alphabet) != levels
        ):
            raise CheckpointError(f'"{folder}" does not hold a model of text.')
        network: Any = saved.model.network
        settings = _settings(notes, folder)
        loaded = cls(
            length=saved.model.num_variables,
            layers=network.layers,
            width=network.width,
            heads=network.heads,
            queries=saved.law if saved.law is not None else "any",
            hole=notes.get("hole", HOLE),
            random_state=settings.seed if settings else 0,
            settings=settings,
        )
        loaded.model_, loaded.alphabet_ = saved.model, alphabet
        return loaded

    @classmethod
    def shipped(cls) -> Self:
        """Loads the small model that comes with the package, of the text that ships with Python."""
        return cls.load(SHIPPED)

    @overload
    def log_prob(self, text: str, *, given: str | None = None) -> float: ...

    @overload
    def log_prob(
        self, text: list[str], *, given: list[str] | None = None
    ) -> NDArray[np.float64]: ...

    def log_prob(
        self, text: str | list[str], *, given: str | list[str] | None = None
    ) -> float | NDArray[np.float64]:
        """Returns the log-likelihood, in nats, of the characters of `text` that are not holes.

        A text is the start of a chunk; holes and what would follow it are marginalised. Its place
        matters: the same word elsewhere in a chunk is another query.

        Args:
            text: Text of at most `length` characters, or several; `hole` marks a character to
                marginalise.
            given: Evidence: `text` with holes in place of the characters that are queried. One for
                each of several texts.

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
        random_state: int | None = None,
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
        random_state: int | None = None,
    ) -> list[list[str]]: ...

    @renamed(seed="random_state")
    def infill(
        self,
        text: str | list[str],
        *,
        n: int = 1,
        how: Draw = "sample",
        temperature: float = 1.0,
        top_k: int | None = None,
        random_state: int | None = None,
    ) -> list[str] | list[list[str]]:
        """Fills the holes of a text, given its other characters.

        Args:
            text: Text of at most `length` characters, or several; `hole` marks a hole.
            n: Number of fills.
            how: "sample", or "greedy" for the most probable character at each step.
            temperature: Temperature of sampling; below 1 favours probable characters.
            top_k: Number of most probable characters to sample from at each step; None is all.
            random_state: Seed of the samples; None is fresh randomness.

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
            generator=seeded(random_state),
        )
        found = [
            [decode(row[: len(one)], self.alphabet_) for row in rows]
            for one, rows in zip(texts, filled, strict=True)
        ]
        return found[0] if isinstance(text, str) else found

    @renamed(seed="random_state")
    def sample(
        self, n: int = 1, *, temperature: float = 1.0, random_state: int | None = None
    ) -> list[str]:
        """Samples chunks of text.

        Args:
            n: Number of chunks.
            temperature: Temperature of sampling; below 1 favours probable characters.
            random_state: Seed of the samples; None is fresh randomness.
        """
        nothing = self.hole * self.length
        return self.infill(nothing, n=n, temperature=temperature, random_state=random_state)

    @renamed(seed="random_state")
    def evaluate(
        self, text: str | Text | Tensor, *, rows: int = 256, random_state: int | None = 0
    ) -> dict[str, Estimate]:
        """Estimates the bits per character of joints, marginals and conditionals.

        Those of the joint and of marginals (a random set of each chunk, of a random size) are
        divided by all characters of the chunk, as in the paper; those of a random half given the
        other by the characters queried.

        Args:
            text: A string or codes of a chunk or more; or a `Text`, of which the test part is read.
            rows: Number of chunks of `length` characters, spread evenly over it.
            random_state: Seed of the sets that are queried; None is 0.
        """
        self.fitted()
        return self._bits(chunks(self._codes(text), self.length, rows), random_state)

    @renamed(seed="random_state")
    def check(
        self,
        text: str | Text | Tensor,
        *,
        rows: int = CHECKED_CHUNKS,
        random_state: int | None = 0,
        progress: bool = False,
    ) -> Check:
        """Checks how far the model agrees with itself and with a text it was not trained on.

        Args:
            text: Text as for `evaluate`.
            rows: Number of chunks of `length` characters, spread evenly over it.
            random_state: Seed of the queries; None is 0.
            progress: If True, a line on standard error shows how far it is.

        Returns:
            The findings: `.sentences()`, `.to_json()` and `.plot()`.
        """
        self.fitted()
        x = chunks(self._codes(text), self.length, rows)
        shuffled = Sampling(len(x), seed=evaluation_seed(random_state)).keep(len(x))
        return self._check(x[shuffled], random_state, progress=progress)

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

    def read(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """Returns values of texts with holes, and True where known; both ``(batch, length)``."""
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
        """Returns the codes of a text; the error for an unknown capital says so."""
        try:
            return encode(text, self.alphabet_)
        except QueryError as error:
            fits = set(text.lower()) <= {*self.alphabet_, self.hole}
            hint = " It knows no capitals: write it in lower case." if fits else ""
            raise QueryError(f"{error}{hint}") from None


def _listed(text: str | list[str]) -> list[str]:
    """Returns one text or several as a list; other types are refused where they are read."""
    if not isinstance(text, list | tuple):
        return [text]
    if not text:
        raise QueryError("`text` must hold a text or more; got none.")
    return list(text)


def _settings(notes: dict[str, Any], folder: str | Path) -> TrainingSettings | None:
    """Returns the training settings of a saved model; None for old ones, which lack them."""
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
    """Describes a difference between trainings without the names of fields."""
    for field, words in OTHER_RUNS.items():
        refusal = re.sub(rf"(holds another run: ){field}\. Train", rf"\g<1>{words}. Train", refusal)
    return refusal
