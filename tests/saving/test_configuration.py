"""Nouns come back from JSON as they were, and nothing else comes back at all."""

import json

import pytest
import torch

import anyorder as ao
from anyorder import CheckpointError
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.path_transformer import PathTransformer, SingleStreamPathTransformer
from anyorder.networks.transformer import Transformer
from anyorder.saving.checkpoint import build, describe
from tests.networks.conftest import schema_of

LAWS = [
    ao.UniformCardinality(5, low=2),
    ao.FixedCardinality(5, 2),
    ao.Bernoulli(5, 0.25),
    ao.CardinalityLaw([0.25, 0.25, 0, 0, 0, 0.5]),
    ao.FirstK(5, 2),
    ao.Fixed(torch.eye(5).bool()),
    ao.Rectangle(1, 5, inside=False),
    ao.MarginalQueries(ao.Bernoulli(5, 0.25)),
    ao.ConditionalQueries(5, ao.FirstK(5, 2)),
    ao.QueryList(5, [([0], [1, 2], 3), ([], [4], 1)]),
    ao.MixtureQueries([ao.UniformCardinality(5), ao.any_queries(5)], [1, 3]),
]
KINDS = (ao.MaskDistribution, ao.QueryLaw)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_laws_round_trip(law):
    text = json.dumps(describe(law))
    back = build(json.loads(text), *KINDS)
    assert type(back) is type(law)
    assert describe(back) == describe(law)
    first, second = (
        one.sample(20, generator=torch.Generator().manual_seed(0)) for one in (law, back)
    )
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("protocol", [ao.RemoveRandom(), ao.RemoveGreatest([1, 0, 2])], ids=repr)
def test_protocols_round_trip(protocol):
    back = build(json.loads(json.dumps(describe(protocol))), ao.DecompositionProtocol)
    assert repr(back) == repr(protocol)


@pytest.mark.parametrize("cls", [Transformer, PathTransformer, SingleStreamPathTransformer])
def test_networks_round_trip(cls):
    schema = schema_of(3, 3)
    network = cls(schema, layers=1, width=8, heads=2, coordinates=[[0, 1], [2, 3]], dropout=0.1)
    document = json.loads(json.dumps(describe(network)))
    back = build(document, MaskedNetwork, PathNetwork, schema=schema)
    assert describe(back) == describe(network)
    assert {n: p.shape for n, p in back.named_parameters()} == {
        n: p.shape for n, p in network.named_parameters()
    }


def test_what_is_not_a_noun_is_refused():
    with pytest.raises(CheckpointError, match='class "Popen" that is not known here'):
        build({"type": "Popen", "args": "rm"}, *KINDS)
    with pytest.raises(CheckpointError, match='Did you mean "Bernoulli"'):
        build({"type": "Bernouli"}, *KINDS)
    with pytest.raises(CheckpointError, match="The description of Bernoulli does not fit it"):
        build({"type": "Bernoulli", "q": 1}, *KINDS)
    with pytest.raises(CheckpointError, match="does not describe a part of a model"):
        build(["Bernoulli"], *KINDS)  # type: ignore[arg-type]
