"""TextModel: fit a text, then fill its holes, score any of its characters, or draw new ones."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from anyorder.checkpoint import SavedModel, load_saved, save_model
from anyorder.conditionals.categorical import CategoricalConditionals
from anyorder.data.text import HOLE, Crops, Text, chunks, decode, encode, text_schema
from anyorder.errors import CheckpointError, ConfigError, QueryError, check_count, check_seed
from anyorder.evaluation import Estimate, conditional_bits, joint_bits, marginal_bits
from anyorder.losses import PathLoss
from anyorder.masks import MaskDistribution
from anyorder.model import AnyOrderModel
from anyorder.networks.path_transformer import PathTransformer
from anyorder.protocols import RemoveGreatest, lexicographic
from anyorder.queries import Draw, log_prob, sample
from anyorder.query_laws import QueryLaw, as_query_law
from anyorder.query_mixtures import any_queries
from anyorder.training.fit import fit
from anyorder.training.settings import TrainingSettings, default_device

SHIPPED = Path(__file__).parent.parent / "models" / "pydoc"
"""Fitted by `python -m experiments.shipped_text_model`."""

VALID_ROWS = 64
"""Chunks of the validation text that tell when training gets no better."""


TEXT_SETTINGS = TrainingSettings(minutes=10, batch=8, learning_rate=2e-3)
"""How text is trained unless told otherwise: small batches were best in every trial."""


def text_queries(length: int) -> QueryLaw:
    """What "any" means for text: filling holes is asked more often than anything else."""
    return any_queries(length, conditional_share=0.75)


class TextModel:
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
        >>> from anyorder.data.text import embedded_text
        >>> settings = TrainingSettings(steps=2, batch=4, warmup=1)
        >>> model = TextModel(length=16, layers=1, width=16, heads=2, settings=settings)
        >>> len(model.fit(embedded_text()).infill("th_ st_tement", seed=0)[0])
        13
    """

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
        self.model_: AnyOrderModel | None = None
        self.alphabet_ = ""

    def fit(self, text: Text, *, folder: Path | None = None, progress: bool = False) -> Self:
        """Trains on a text, from the start: what was learnt before is dropped.

        Args:
            text: From `load_text8`, `load_text` or `embedded_text`.
            folder: Where checkpoints go; the same call with the same folder goes on from the last.
            progress: Whether to show a line of progress.
        """
        if not isinstance(text, Text):
            raise QueryError(
                "`text` must come from `load_text`, `load_text8` or `embedded_text`; "
                f"got {type(text).__name__}."
            )
        if self.hole in text.alphabet:
            raise QueryError(
                f'The text holds "{self.hole}", which stands for a hole. Choose another `hole`, '
                "a character that is not in the text."
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
        self.model_, self.alphabet_ = model.eval(), text.alphabet
        return self

    def _notes(self, alphabet: str) -> dict[str, Any]:
        settings = asdict(self.settings)
        return {"domain": "text", "alphabet": alphabet, "hole": self.hole, "settings": settings}

    def log_prob(self, text: str, *, given: str | None = None) -> float:
        """The log-likelihood, in nats, of the characters of `text` that are not holes.

        Args:
            text: At most `length` characters; `hole` marks a hole and is marginalised.
            given: As long as `text`: its characters that are not holes are given, and must be those
                of `text`.
        """
        x, known = self._read(text)
        evidence = torch.zeros_like(known)
        if given is not None:
            e, evidence = self._read(given)
            known_alike = not (evidence & ~known).any() and torch.equal(e[evidence], x[evidence])
            if len(given) != len(text) or not known_alike:
                raise QueryError("`given` must be `text` with holes: as long, and alike elsewhere.")
        query = known & ~evidence
        return float(log_prob(self._fitted(), x, query=query, given=evidence))

    def infill(
        self,
        text: str,
        *,
        n: int = 1,
        how: Draw = "sample",
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
    ) -> list[str]:
        """Fills the holes of a text.

        Args:
            text: At most `length` characters; `hole` marks a hole.
            n: How many fills.
            how: "sample", or "greedy" for the most probable character at each step.
            temperature: Below 1 is more cautious.
            top_k: Only the k most probable characters at each step.
            seed: The same seed gives the same fills.
        """
        x, known = self._read(text)
        holes = (torch.arange(self.length) < len(text)) & ~known
        if not holes.any():
            raise QueryError(
                f'`text` must have a hole to fill, written "{self.hole}"; it has none.'
            )
        filled = sample(
            self._fitted(),
            x,
            query=holes,
            given=known,
            n=n,
            how=how,
            temperature=temperature,
            top_k=top_k,
            generator=_generator(seed),
        )
        return [decode(row[: len(text)], self.alphabet_) for row in filled[0]]

    def sample(self, n: int = 1, *, temperature: float = 1.0, seed: int | None = None) -> list[str]:
        """Draws chunks of text."""
        return self.infill(self.hole * self.length, n=n, temperature=temperature, seed=seed)

    def evaluate(self, codes: Tensor, *, rows: int = 256, seed: int = 0) -> dict[str, Estimate]:
        """Bits for each character: of the joint, of marginals, and of one half given the other."""
        model, x = self._fitted(), chunks(codes, self.length, rows)
        return {
            "joint": joint_bits(model, x),
            "marginal": marginal_bits(model, x, seed=seed),
            "conditional": conditional_bits(model, x, seed=seed),
        }

    def save(self, folder: str | Path) -> None:
        """Saves the model with the questions that it was trained for."""
        notes = self._notes(self.alphabet_)
        save_model(folder, self._fitted(), law=self.queries, notes=notes)

    @classmethod
    def load(cls, folder: str | Path) -> "TextModel":
        """Loads what `save` saved, onto the GPU if there is one.

        A training that was stopped is loaded from its last checkpoint.
        """
        return cls.from_saved(load_saved(folder, device=default_device()), folder)

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
        )
        loaded.model_, loaded.alphabet_ = saved.model, alphabet
        return loaded

    @classmethod
    def shipped(cls) -> "TextModel":
        """The small model that comes with the package, of the text that ships with Python."""
        return cls.load(SHIPPED)

    def _fitted(self) -> AnyOrderModel:
        if self.model_ is None:
            raise QueryError("This model knows nothing yet: call `fit` or `load` first.")
        return self.model_

    def _read(self, text: str) -> tuple[Tensor, Tensor]:
        """A text with holes as values ``(1, length)`` and what is known ``(1, length)``."""
        self._fitted()
        if not isinstance(text, str):
            raise QueryError(f"`text` must be a string; got {type(text).__name__}.")
        if not 1 <= len(text) <= self.length:
            raise QueryError(
                f"`text` must have 1 to {self.length} characters; it has {len(text)}. "
                "Split it, or fit a model with a longer `length`."
            )
        known = torch.zeros(1, self.length, dtype=torch.bool)
        known[0, : len(text)] = torch.tensor([character != self.hole for character in text])
        x = torch.zeros(1, self.length, dtype=torch.long)
        x[known] = encode(text.replace(self.hole, self.alphabet_[0]), self.alphabet_)[
            known[0, : len(text)]
        ]
        return x, known


def _generator(seed: int | None) -> torch.Generator | None:
    return None if seed is None else torch.Generator().manual_seed(check_seed(seed))
