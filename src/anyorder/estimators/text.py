"""TextModel: fit a text, then fill its holes, score any of its characters, or draw new ones."""

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import torch

from anyorder.checkpoint import SavedModel, load_saved, save_model
from anyorder.conditionals.categorical import CategoricalConditionals
from anyorder.data.text import HOLE, Crops, Text, chunks, shown, text_schema
from anyorder.errors import (
    AnotherRunError,
    CheckpointError,
    ConfigError,
    QueryError,
    check_count,
)
from anyorder.estimators.text_answers import TextAnswers
from anyorder.evaluation import conditional_bits
from anyorder.losses import PathLoss
from anyorder.masks import MaskDistribution
from anyorder.model import AnyOrderModel
from anyorder.networks.path_transformer import PathTransformer
from anyorder.protocols import RemoveGreatest, lexicographic
from anyorder.query_laws import QueryLaw, as_query_law
from anyorder.query_mixtures import any_queries
from anyorder.training.fit import fit
from anyorder.training.settings import TrainingSettings, default_device

SHIPPED = Path(__file__).parent.parent / "models" / "pydoc"
"""Fitted by `python -m experiments.shipped_text_model --save`; `load("shipped")` loads it."""

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
        return cls.from_saved(load_saved(text_folder(folder), device=default_device()), folder)

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


def text_folder(folder: str | Path) -> Path:
    """The folder of a model; "shipped" is the one that comes with the package."""
    return SHIPPED if str(folder) == "shipped" else Path(folder)


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
