"""Saved models: round trips, and what is refused."""

import json
import logging

import pytest
import torch
from torch import nn

from anyorder.errors import CheckpointError, ConfigError
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.heads.mixed import MixedConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.lattice.masks import UniformCardinality
from anyorder.lattice.protocols import RemoveRandom
from anyorder.lattice.query_laws import MarginalQueries
from anyorder.networks.contracts import MaskedNetwork
from anyorder.saving.checkpoint import (
    Pair,
    RunFolder,
    build_model,
    describe_model,
    difference,
    load_model,
    load_saved,
    read_pair,
    save_model,
    upgraded,
    write_pair,
)
from anyorder.variables import Schema, Variable

NUM_VARIABLES, NUM_LEVELS = 5, 3
SCHEMA = Schema(
    tuple(Variable.categorical(f"v{i}", range(NUM_LEVELS)) for i in range(NUM_VARIABLES))
)


class ToyNetwork(MaskedNetwork):
    """The smallest network with an embedding, a norm and dropout."""

    def __init__(self, schema: Schema, *, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.dropout = dropout
        self.value = nn.Embedding(NUM_LEVELS + 1, width)
        self.variable = nn.Embedding(len(schema), width)
        self.mix = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, observed, targets=None):
        told = self.value(torch.where(observed, x, NUM_LEVELS))
        seen = torch.tanh(self.mix(told + self.variable.weight)).mean(dim=1, keepdim=True)
        features = self.norm(seen + self.variable.weight)
        features = nn.functional.dropout(features, self.dropout, self.training)
        if targets is None:
            return features
        return features.gather(1, targets[..., None].expand(-1, -1, self.width))


def toy_model(*, seed: int = 0, width: int = 8, dropout: float = 0.0) -> AnyOrderModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ToyNetwork(SCHEMA, width=width, dropout=dropout)
        conditionals = CategoricalConditionals(SCHEMA, width=width)
    return AnyOrderModel(SCHEMA, network, conditionals, RemoveRandom(NUM_VARIABLES))


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    for (name, a), (_, b) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(a, b), name


def test_a_model_comes_back_with_its_law_and_notes(tmp_path):
    model = toy_model()
    law = MarginalQueries(UniformCardinality(NUM_VARIABLES))
    save_model(tmp_path / "a" / "b", model, law=law, notes={"data": "toy", "rows": 3})
    saved = load_saved(tmp_path / "a" / "b")
    assert_same_weights(model, saved.model)
    assert saved.model.schema == SCHEMA
    assert repr(saved.law) == repr(law)
    assert saved.notes == {"data": "toy", "rows": 3}
    assert not saved.model.training
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == [
        "model.json",
        "weights.safetensors",
    ]


def test_loading_leaves_the_global_generator_alone(tmp_path):
    save_model(tmp_path, toy_model())
    before = torch.get_rng_state()
    load_model(tmp_path)
    assert torch.equal(before, torch.get_rng_state())


def test_tied_weights_are_stored_once(tmp_path):
    model = toy_model()
    model.network.again = model.network.mix
    save_model(tmp_path, model)
    names = read_pair(tmp_path, "model").tensors
    assert "network.mix.weight" in names
    assert "network.again.weight" not in names


def test_what_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be saved as JSON"):
        save_model(tmp_path, toy_model(), notes={"tensor": torch.zeros(1)})


def cut(path):
    path.write_bytes(path.read_bytes()[:-10])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def rewrite(path, key, value):
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))


DAMAGES = {
    "truncated weights": (
        lambda folder: cut(folder / "weights.safetensors"),
        "weights.safetensors is damaged",
    ),
    "a flipped bit": (
        lambda folder: flip(folder / "weights.safetensors"),
        "weights.safetensors is damaged",
    ),
    "no weights": (
        lambda folder: (folder / "weights.safetensors").unlink(),
        "weights.safetensors is missing",
    ),
    "truncated document": (lambda folder: cut(folder / "model.json"), "is cut off"),
    "no document": (lambda folder: (folder / "model.json").unlink(), "model.json is missing"),
    "altered document": (
        lambda folder: rewrite(folder / "model.json", "notes", {"a": 1}),
        "was altered",
    ),
    "another format": (
        lambda folder: rewrite(folder / "model.json", "format", 2),
        "has format 2 and this version of anyorder reads 1: install anyorder",
    ),
    "not a document": (lambda folder: (folder / "model.json").write_text("[]"), "is cut off"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused(tmp_path, damage):
    save_model(tmp_path, toy_model())
    harm, sentence = DAMAGES[damage]
    harm(tmp_path)
    with pytest.raises(CheckpointError, match=sentence):
        load_model(tmp_path)


def test_there_is_no_model_where_nothing_was_saved(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        load_model(tmp_path / "nowhere")


def test_weights_that_do_not_fit_are_named(tmp_path):
    document = describe_model(toy_model(width=8))
    write_pair(tmp_path, "model", document, toy_model(width=4).state_dict())
    with pytest.raises(CheckpointError, match=r'of "network.value.weight" there is shape \(4, 4\)'):
        load_model(tmp_path)


def test_an_unknown_class_is_named():
    document = describe_model(toy_model())
    document["network"]["type"] = "ToyNetwrk"
    with pytest.raises(CheckpointError, match='Did you mean "ToyNetwork"'):
        build_model(document)


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize("moment", range(1, 8))
def test_replacing_a_model_can_be_cut_off_at_any_moment(tmp_path, monkeypatch, moment):
    """Whatever the moment, the old model or the new one is there, and can be replaced again."""
    old, new, newest = (toy_model(seed=seed) for seed in range(3))
    save_model(tmp_path, old)
    moments = iter(range(1, 100))

    def flush(path):
        del path
        if next(moments) == moment:
            raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr("anyorder.saving.checkpoint._flush", flush)
        try:
            save_model(tmp_path, new)
        except PowerCut:
            survivor = load_model(tmp_path)
            same = [
                torch.equal(survivor.network.mix.weight, m.network.mix.weight) for m in (old, new)
            ]
            assert any(same)
    save_model(tmp_path, newest)
    assert_same_weights(load_model(tmp_path), newest)


def test_a_replacement_cut_off_between_its_renames_is_ended(tmp_path, monkeypatch):
    old, new, newest = (toy_model(seed=seed) for seed in range(3))
    save_model(tmp_path, new)
    (tmp_path / "weights.safetensors").rename(tmp_path / "weights.next.safetensors")
    save_model(tmp_path / "old", old)
    (tmp_path / "old" / "weights.safetensors").rename(tmp_path / "weights.safetensors")
    assert_same_weights(load_model(tmp_path), new)

    def cut_off(path):
        raise PowerCut(path)

    with monkeypatch.context() as patch:
        patch.setattr("anyorder.saving.checkpoint._flush", cut_off)
        with pytest.raises(PowerCut):
            save_model(tmp_path, newest)
    assert_same_weights(load_model(tmp_path), new)
    save_model(tmp_path, newest)
    assert_same_weights(load_model(tmp_path), newest)


def pairs(seed: int) -> dict[str, Pair]:
    model = toy_model(seed=seed)
    return {"model": Pair(describe_model(model), dict(model.state_dict()))}


def test_a_run_keeps_the_last_two_and_passes_over_a_damaged_one(tmp_path, caplog):
    run = RunFolder(tmp_path)
    assert run.load("model") is None
    for step in (1, 2, 3):
        run.save(step, pairs(step))
    assert RunFolder(tmp_path).names() == ["step-00000003", "step-00000002"]
    assert_same_weights(load_model(tmp_path), toy_model(seed=3))
    flip(tmp_path / "step-00000003" / "weights.safetensors")
    with caplog.at_level(logging.WARNING):
        assert_same_weights(load_model(tmp_path), toy_model(seed=2))
    assert "The one before it is tried" in caplog.text
    again = RunFolder(tmp_path)
    again.load("model")
    again.save(3, pairs(4))
    assert again.names() == ["step-00000003-2", "step-00000002"]
    assert not (tmp_path / "step-00000003").exists()
    assert_same_weights(load_model(tmp_path), toy_model(seed=4))


def test_a_run_without_a_complete_checkpoint_says_so(tmp_path):
    RunFolder(tmp_path).save(1, pairs(1))
    cut(tmp_path / "step-00000001" / "weights.safetensors")
    with pytest.raises(CheckpointError, match="To train from the start, delete the folder"):
        load_model(tmp_path)


def test_a_run_whose_pointer_is_damaged_is_found(tmp_path):
    run = RunFolder(tmp_path)
    for step in (9, 10):
        run.save(step, pairs(step))
    (tmp_path / "latest").write_bytes(b"\xff\xfe")
    assert_same_weights(load_model(tmp_path), toy_model(seed=10))


def test_difference_names_the_first_field_that_differs():
    saved = {"network": {"layers": 2, "width": 8}, "seed": 0}
    assert difference(saved, saved) is None
    now = {"network": {"layers": 3, "width": 8}, "seed": 0}
    assert difference(saved, now) == "`network.layers` is 2 there and 3 now"


def test_a_network_of_other_variables_is_refused():
    model = toy_model()
    other = Schema(tuple(Variable.categorical(v.name, range(7)) for v in model.schema))
    with pytest.raises(ConfigError, match="`conditionals` was built for other variables"):
        AnyOrderModel(other, model.network, model.conditionals, model.protocol)


def test_heads_of_an_older_version_without_a_prior_are_built():
    heads = MixedConditionals(SCHEMA, width=8)
    model = AnyOrderModel(SCHEMA, ToyNetwork(SCHEMA), heads, RemoveRandom(NUM_VARIABLES))
    old = describe_model(model)
    del old["conditionals"]["components"]
    old["conditionals"]["guided"] = False
    assert upgraded(old, {}) == (describe_model(model), {})
