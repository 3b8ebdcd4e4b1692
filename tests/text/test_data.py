"""Text comes in as codes, is split in order, and says what it is."""

import zipfile

import pytest
import torch

from anyorder import ConfigError, QueryError, SchemaError
from anyorder.text.data import (
    TEXT8_ALPHABET,
    Crops,
    chunks,
    decode,
    embedded_text,
    encode,
    load_text,
    load_text8,
    text_schema,
)

TEXT = " anarchism originated as a term of abuse" * 25  # 1000 characters


def test_text8_raw_zipped_and_by_folder(tmp_path):
    (tmp_path / "text8").write_text(TEXT)
    raw = load_text8(tmp_path / "text8")
    assert raw.name == "text8, first 0.0M"
    assert [len(part) for part in (raw.train, raw.valid, raw.test)] == [900, 50, 50]
    assert decode(torch.cat([raw.train, raw.valid, raw.test]), TEXT8_ALPHABET) == TEXT
    with zipfile.ZipFile(tmp_path / "text8.zip", "w") as archive:
        archive.writestr("text8", TEXT)
    assert torch.equal(load_text8(tmp_path / "text8.zip").train, raw.train)
    assert torch.equal(load_text8(tmp_path).test, raw.test)


def test_the_whole_of_text8_is_called_so(tmp_path, monkeypatch):
    monkeypatch.setattr("anyorder.text.data.TEXT8_LENGTH", 1000)
    (tmp_path / "text8").write_text(TEXT)
    assert load_text8(tmp_path).name == "text8"


def test_any_text_has_its_own_alphabet(tmp_path):
    (tmp_path / "poem.txt").write_text("Grüße, 世界!\n" * 10, encoding="utf-8")
    text = load_text(tmp_path / "poem.txt")
    assert text.alphabet == "".join(sorted(set("Grüße, 世界!\n")))
    assert decode(text.train[:6], text.alphabet) == "Grüße,"


def test_embedded_text_needs_no_file():
    text = embedded_text()
    assert len(text.train) > 200_000
    assert "statement" in decode(text.train, text.alphabet)
    assert text.alphabet == TEXT8_ALPHABET


def test_codes_round_trip():
    assert decode(encode("a quick fox", TEXT8_ALPHABET), TEXT8_ALPHABET) == "a quick fox"
    schema = text_schema(TEXT8_ALPHABET, 5)
    assert schema.num_variables == 5
    assert schema["char3"].levels == tuple(TEXT8_ALPHABET)


def test_crops_begin_anywhere(generator):
    codes = torch.arange(20, dtype=torch.int16)
    x, available = Crops(codes, 5).batch(0, 5_000, generator=generator)
    assert available is None
    assert x.dtype == torch.long
    assert (x.diff(dim=1) == 1).all()
    assert torch.bincount(x[:, 0]).min() > 200
    assert int(x[:, 0].max()) == 15


def test_chunks_are_spread_and_apart():
    rows = chunks(torch.arange(103, dtype=torch.int16), 10, 4)
    assert rows[:, 0].tolist() == [0, 30, 60, 90]
    assert len(chunks(torch.arange(25), 10, 4)) == 2


def test_wrong_text_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "empty").touch()
    (tmp_path / "upper").write_text("Hello")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("enwik8", TEXT)
    with pytest.raises(SchemaError, match=r"is not UTF-8 text \(byte 3\)"):
        load_text(tmp_path / "latin")
    with pytest.raises(SchemaError, match="is empty"):
        load_text(tmp_path / "empty")
    with pytest.raises(SchemaError, match="must hold only a-z and spaces"):
        load_text8(tmp_path / "upper")
    with pytest.raises(SchemaError, match="must hold a file called text8"):
        load_text8(tmp_path / "other.zip")
    with pytest.raises(ConfigError, match=r"Put text8 or text8\.zip there"):
        load_text8(tmp_path)
    with pytest.raises(QueryError, match=r"'Q' \(place 2\) is none of"):
        encode("a Quick fox", TEXT8_ALPHABET)
    with pytest.raises(ConfigError, match="it has 3 characters and a chunk 5"):
        Crops(torch.arange(3), 5)
    with pytest.raises(ConfigError, match="must hold a chunk of 5; it has 3 characters"):
        chunks(torch.arange(3), 5, 1)
