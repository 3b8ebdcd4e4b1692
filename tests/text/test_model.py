"""TextModel fits, answers, saves and loads; wrong text gets a sentence."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from anyorder import (
    CheckpointError,
    ConfigError,
    QueryError,
    TextModel,
    TrainingSettings,
    UniformCardinality,
    load,
    log_prob,
    save_model,
)
from anyorder.domains import read_run
from anyorder.errors import AnyOrderWarning
from anyorder.text.data import TEXT8_ALPHABET, Text, decode, embedded_text, encode
from anyorder.text.model import SHIPPED


@pytest.fixture(scope="module")
def model():
    settings = TrainingSettings(steps=25, batch=8, warmup=5, learning_rate=3e-3)
    shape = {"length": 12, "layers": 1, "width": 32, "heads": 2}
    return TextModel(**shape, settings=settings).fit(embedded_text())


def test_fills_keep_what_is_known(model):
    fills = model.infill("th_ st_te", n=4, random_state=0)
    assert len(fills) == 4
    for fill in fills:
        assert len(fill) == 9
        assert (fill[:2], fill[3:6], fill[7:]) == ("th", " st", "te")
        assert set(fill) <= set(TEXT8_ALPHABET)
    assert fills == model.infill("th_ st_te", n=4, random_state=0)
    assert model.infill("a_", how="greedy") == model.infill("a_", top_k=1, random_state=3)


def test_several_texts_are_answered_at_once(model):
    texts, given = ["the state", "a", "of_"], ["the______", "_", "o__"]
    apart = [model.log_prob(t, given=g) for t, g in zip(texts, given, strict=True)]
    np.testing.assert_allclose(model.log_prob(texts, given=given), apart, rtol=1e-5)
    np.testing.assert_allclose(
        model.log_prob(texts), [model.log_prob(text) for text in texts], rtol=1e-5
    )
    holed = ["th_ st_te", "_", "of__"]
    assert model.infill(holed, how="greedy") == [model.infill(t, how="greedy") for t in holed]
    fills = model.infill(holed, n=3, random_state=0)
    assert [[len(fill) for fill in row] for row in fills] == [[9] * 3, [1] * 3, [4] * 3]


def test_a_string_a_text_and_codes_are_evaluated_alike(model):
    text = embedded_text()
    codes = model.evaluate(text.test, rows=4)["joint"].value
    assert model.evaluate(decode(text.test, text.alphabet), rows=4)["joint"].value == codes
    assert model.evaluate(text, rows=4)["joint"].value == codes
    # The codes of another alphabet are not those of the model: characters are what counts.
    other = TEXT8_ALPHABET[::-1]
    turned = encode(decode(text.test, text.alphabet), other)
    turned_text = Text("turned", other, turned, turned, turned)
    assert model.evaluate(turned_text, rows=4)["joint"].value == codes


def test_estimates_and_models_say_what_they_are(model):
    bits = model.evaluate(embedded_text().test, rows=8)["joint"]
    assert repr(bits) == f"{bits.value:.2f} ± {bits.se:.2f}"
    assert repr(TextModel()) == "<TextModel: 128 characters, 4 layers of width 128, not fitted>"
    assert repr(model).startswith("<TextModel: 12 characters, 1 layers of width 32, ")
    assert f'weights, alphabet "{TEXT8_ALPHABET}", hole "_">' in repr(model)


def test_saved_models_know_how_they_were_trained(model, tmp_path):
    model.save(tmp_path)
    assert TextModel.load(tmp_path).settings == model.settings
    notes = {"domain": "text", "alphabet": TEXT8_ALPHABET}
    save_model(tmp_path, model.model_, notes=notes)  # an older one, which does not say it
    assert TextModel.load(tmp_path).settings == TextModel().settings
    save_model(tmp_path, model.model_, notes={**notes, "settings": {"speed": 3}})
    with pytest.raises(CheckpointError, match="has settings that cannot be read"):
        TextModel.load(tmp_path)


def test_weights_can_be_read_by_whoever_can_read_the_rest(model, tmp_path):
    model.save(tmp_path)
    modes = {(tmp_path / name).stat().st_mode for name in ("model.json", "weights.safetensors")}
    assert len(modes) == 1


def test_a_training_of_another_text_is_refused_in_words(tmp_path):
    settings = TrainingSettings(steps=1, batch=4, warmup=1)
    shape = {"layers": 1, "width": 8, "heads": 2, "settings": settings}
    text = embedded_text()
    TextModel(length=8, **shape).fit(text, folder=tmp_path)
    others = {
        "holds another run: it is of another text. Train": replace(text, train=text.train[:999]),
        "holds another run: it has another alphabet": replace(text, alphabet=text.alphabet + "é"),
    }
    for sentence, other in others.items():
        with pytest.raises(CheckpointError, match=sentence):
            TextModel(length=8, **shape).fit(other, folder=tmp_path)
    with pytest.raises(CheckpointError, match="its chunks have another `length`"):
        TextModel(length=9, **shape).fit(text, folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"`model\.network\.layers` is 1 there and 2 now"):
        TextModel(length=8, **{**shape, "layers": 2}).fit(text, folder=tmp_path)


def test_samples_are_whole_chunks(model):
    assert [len(text) for text in model.sample(3, random_state=1)] == [12, 12, 12]


def test_the_walk_is_consistent_with_itself(model):
    joint = model.log_prob("the state")
    first, rest = model.log_prob("the______"), model.log_prob("the state", given="the______")
    # A path network encodes evidence in its own way, so these agree only after long training;
    # but both are probabilities.
    assert first + rest < 0
    assert joint < first < 0


def test_likelihoods_of_all_values_of_a_hole_sum_to_one(model):
    total = sum(torch.tensor(model.log_prob(f"th{c}", given="th_")).exp() for c in TEXT8_ALPHABET)
    assert float(total) == pytest.approx(1, abs=1e-5)


def test_training_is_better_than_guessing(model):
    bits = model.evaluate(embedded_text().test, rows=32)
    assert set(bits) == {"joint", "marginal", "conditional"}
    assert bits["joint"].value < torch.tensor(27.0).log2()


def test_saved_models_answer_alike_in_another_process(model, tmp_path):
    model.save(tmp_path / "run")
    expected = model.infill("a_c", n=3, random_state=5)
    code = (
        "import sys, anyorder\n"
        "print(anyorder.TextModel.load(sys.argv[1]).infill('a_c', n=3, random_state=5))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(expected)


BAD_TEXT = {
    "upper": (lambda m: m.infill("Th_"), "'T' (place 0) is none of"),
    "long": (lambda m: m.infill("_" * 13), "must have 1 to 12 characters; it has 13. Split it"),
    "empty": (lambda m: m.infill(""), "must have 1 to 12 characters; it has 0"),
    "no hole": (lambda m: m.infill("the"), 'must have a hole to fill, written "_"; it has none'),
    "given": (lambda m: m.log_prob("the", given="ca_"), "`given` must be `text` with holes"),
    "longer given": (lambda m: m.log_prob("the", given="the_"), "must be `text` with holes"),
    "cold": (lambda m: m.infill("t_e", temperature=0), "`temperature` must be above 0"),
    "unfitted": (lambda _: TextModel().infill("t_e"), "call `fit` or `load` first"),
    "two holes": (lambda _: TextModel(hole="__"), "`hole` must be one character; got '__'"),
    "hole in the text": (
        lambda _: TextModel(hole="a").fit(embedded_text()),
        'The text holds "a", which stands for a hole',
    ),
    "another hole": (
        lambda _: TextModel(hole="a").fit(embedded_text()),
        'such as hole="@" (--hole "@")',
    ),
    "capitals": (lambda m: m.infill("Th_"), "It knows no capitals: write it in lower case."),
    "many": (lambda m: m.infill(["t_e", "the"]), "it has none (text 1)"),
    "no texts": (lambda m: m.log_prob([]), "`text` must hold a text or more"),
    "one given": (lambda m: m.log_prob(["a", "b"], given="a"), "must be `text` with holes"),
    "bytes to evaluate": (lambda m: m.evaluate(b"the"), "`text` must be a string, a Text, or"),
    "the wrapper": (lambda m: log_prob(m, torch.zeros(1, 12)), "TextModel: use its `.model_`."),
    "a string to fit": (lambda _: TextModel().fit("book.txt"), "must come from `load_text`"),
    "bytes": (lambda m: m.infill(b"t_e"), "`text` must be a string; got bytes"),
    "given hole": (lambda m: m.log_prob("th_", given="__ "), "`given` must be `text` with holes"),
    "infinite": (lambda m: m.infill("t_e", temperature=float("inf")), "above 0 and finite"),
    "other law": (
        lambda _: TextModel(length=8, queries=UniformCardinality(5)),
        "must be a law over 8 variables, the `length`; it is over 5",
    ),
    "queries": (lambda _: TextModel(queries="all"), '`queries` must be "any" or a query law'),
}


@pytest.mark.parametrize("name", BAD_TEXT)
def test_wrong_text_is_refused_in_a_sentence(name, model):
    ask, sentence = BAD_TEXT[name]
    with pytest.raises(QueryError) as caught:
        ask(model)
    assert sentence in str(caught.value)


def test_a_stopped_training_can_be_asked(tmp_path):
    settings = TrainingSettings(steps=4, batch=4, warmup=1, evaluate_every=2, checkpoint_every=1)
    shape = {"length": 8, "layers": 1, "width": 8, "heads": 2}
    TextModel(**shape, settings=settings).fit(embedded_text(), folder=tmp_path / "training")
    with pytest.warns(AnyOrderWarning, match="stopped before its end"):
        model = read_run(tmp_path, "text")
    assert len(model.infill("a_", random_state=0)[0]) == 2


def test_seeds_are_checked(model):
    with pytest.raises(ConfigError, match="`random_state` must be a whole number"):
        model.infill("t_e", random_state=1.5)


def test_other_models_are_not_text(tmp_path, model):
    save_model(tmp_path, model.model_, notes={"domain": "table"})
    with pytest.raises(CheckpointError, match="does not hold a model of text"):
        TextModel.load(tmp_path)


def test_the_shipped_model_is_small_and_can_spell():
    shipped = TextModel.load("shipped")
    assert load("shipped").log_prob("the") == shipped.log_prob("the")
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 2_000_000
    assert shipped.infill("the st_tement", how="greedy") == ["the statement"]
    # Half of the characters are given: a guess by frequency would take about 4 bits.
    assert shipped.evaluate(embedded_text().test, rows=16)["conditional"].value < 2.6
