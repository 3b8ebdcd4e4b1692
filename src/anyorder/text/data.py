"""Text as codes of characters; a row of the model is a chunk of them.

There are three sources: text8, any text file with its own alphabet, and the text that ships with
Python itself (the language reference behind ``help()``), so that everything runs with no download.
"""

import hashlib
import string
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from anyorder.errors import ConfigError, QueryError, SchemaError, check_count
from anyorder.variables import Schema, Variable

TEXT8_LENGTH = 100_000_000
TEXT8_ALPHABET = " " + string.ascii_lowercase
TEXT8_ARCHIVE = "http://mattmahoney.net/dc/text8.zip"
SPLIT = (0.90, 0.05, 0.05)
"""Train, validation and test, in the order of the text: the public split of text8."""

HOLE = "_"
"""Marker of a queried character in text that people type."""


@dataclass(frozen=True)
class Text:
    """A text as codes, split in its own order.

    Args:
        name: Name in tables; it says so if this is not all of a public data set.
        alphabet: The characters, in the order of their codes.
        train: Codes of the training part. Shape ``(length,)``.
        valid: Codes of the validation part.
        test: Codes of the test part.
    """

    name: str
    alphabet: str
    train: Tensor
    valid: Tensor
    test: Tensor


def load_text8(path: str | Path) -> Text:
    """Reads text8: the raw file, its zip, or the folder that holds either of them."""
    path = Path(path)
    if path.is_dir():
        found = [path / name for name in ("text8", "text8.zip") if (path / name).exists()]
        if not found:
            raise ConfigError(
                f'There is no text8 in "{path}". Put text8 or text8.zip there; '
                f"it comes from {TEXT8_ARCHIVE}."
            )
        path = found[0]
    raw = _text8_bytes(path)
    if not raw or set(raw) - set(TEXT8_ALPHABET.encode()):
        raise SchemaError(f'"{path}" is not text8: it must hold only a-z and spaces, and some.')
    name = "text8" if len(raw) == TEXT8_LENGTH else f"text8, first {len(raw) / 1e6:.1f}M"
    return _split(name, TEXT8_ALPHABET, raw.decode())


def _text8_bytes(path: Path) -> bytes:
    if not zipfile.is_zipfile(path):
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        if "text8" not in archive.namelist():
            raise SchemaError(f'"{path}" must hold a file called text8.')
        return archive.read("text8")


def load_text(path: str | Path) -> Text:
    """Reads any UTF-8 text; its alphabet is its distinct characters."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SchemaError(
            f'"{path}" is not UTF-8 text (byte {error.start}). Convert it to UTF-8 first.'
        ) from error
    if not text:
        raise SchemaError(f'"{path}" is empty.')
    return _split(path.name, "".join(sorted(set(text))), text)


def embedded_text() -> Text:
    """Returns the language reference that ships with Python, in the alphabet of text8."""
    from pydoc_data.topics import topics

    letters = "".join(topics[name] for name in sorted(topics)).lower()
    kept = "".join(c if c in string.ascii_lowercase else " " for c in letters)
    return _split("pydoc topics", TEXT8_ALPHABET, " ".join(kept.split()))


def text_schema(alphabet: str, length: int) -> Schema:
    """Returns the variables of a chunk: its characters, by position."""
    check_count("length", length)
    return Schema(tuple(Variable.categorical(f"char{i}", tuple(alphabet)) for i in range(length)))


def encode(text: str, alphabet: str) -> Tensor:
    """Returns the codes of characters. Shape ``(length,)``."""
    codes = {character: code for code, character in enumerate(alphabet)}
    for place, character in enumerate(text):
        if character not in codes:
            raise QueryError(
                f"The text must hold only characters of the model; {character!r} (place {place}) "
                f"is none of {shown(alphabet)}."
            )
    return torch.tensor([codes[character] for character in text], dtype=torch.long)


def decode(codes: Tensor, alphabet: str) -> str:
    """Returns the text of codes."""
    return "".join(alphabet[code] for code in codes.tolist())


def shown(alphabet: str) -> str:
    """Formats an alphabet for people."""
    return f'"{alphabet}"' if len(alphabet) <= 40 else f'"{alphabet[:37]}..."'


class Crops:
    """Random chunks of a text, for training."""

    def __init__(self, codes: Tensor, length: int) -> None:
        check_count("length", length)
        if len(codes) < length:
            raise ConfigError(
                f"The text must be at least as long as a chunk; it has {len(codes)} characters and "
                f"a chunk {length}."
            )
        self.codes, self.length = codes, length

    def describe(self) -> dict[str, str | int]:
        """Returns what identifies the text: its length and a hash of its codes."""
        digest = hashlib.sha256(self.codes.to(torch.int32).numpy().tobytes()).hexdigest()
        return {"characters": len(self.codes), "length": self.length, "sha256": digest}

    def batch(
        self, step: int, size: int, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """Samples chunks ``(size, length)``; no character is missing."""
        del step  # the generator is seeded for it
        starts = torch.randint(len(self.codes) - self.length + 1, (size, 1), generator=generator)
        return self.codes[starts + torch.arange(self.length)].long(), None


def chunks(codes: Tensor, length: int, rows: int) -> Tensor:
    """Returns at most `rows` chunks, evenly spaced and disjoint, for evaluation."""
    check_count("rows", rows)
    whole = len(codes) // length
    if whole < 1:
        raise ConfigError(
            f"A part of the text (train, validation or test) must hold a chunk of {length}; it has "
            f"{len(codes)} characters. Use a longer text, or a smaller `length`."
        )
    picked = torch.linspace(0, whole - 1, min(rows, whole)).round().long()
    return codes[: whole * length].view(whole, length)[picked].long()


def _split(name: str, alphabet: str, text: str) -> Text:
    table = {ord(character): code for code, character in enumerate(alphabet)}
    kind = torch.int16 if len(alphabet) < 2**15 else torch.int32
    codes = torch.tensor([table[ord(character)] for character in text], dtype=kind)
    first, second = int(SPLIT[0] * len(codes)), int((SPLIT[0] + SPLIT[1]) * len(codes))
    return Text(name, alphabet, codes[:first], codes[first:second], codes[second:])
