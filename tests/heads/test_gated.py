"""Heads beside a prior: what is said with little evidence, and how the network comes in."""

import math

import pytest
import torch

from anyorder import Schema, Variable
from anyorder.heads.atoms import AtomicConditionals
from anyorder.heads.with_prior import SLIP, DensitiesWithPrior, GatedLevels
from anyorder.networks.contracts import PriorMessage
from tests.oracle import normal_density

EDGES = 6


def message(known, generator, *, levels=4, components=3):
    numbers = torch.randn(EDGES, 2, generator=generator)
    parts = torch.randn(3, EDGES, components, generator=generator)
    said = torch.randn(EDGES, levels, generator=generator).log_softmax(dim=-1)
    states = torch.randn(EDGES, 3, 2, generator=generator)
    states[:, 0] = 2 * states[:, 0].log_softmax(dim=-1)
    return PriorMessage(
        numbers[:, 0],
        numbers[:, 1],
        parts[0].log_softmax(dim=-1),
        parts[1],
        0.3 * parts[2],
        said,
        0.5 * states,
        None if known is None else torch.full((EDGES,), known),
    )


def disturbed(head, generator):
    """A head that has learned something."""
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=generator)
    return head.eval()


@pytest.fixture
def features(generator):
    return torch.randn(EDGES, 3, generator=generator)


@pytest.mark.parametrize("known", [None, 0, 1])
def test_levels_are_the_priors_where_at_most_one_is_known(features, generator, known):
    schema = Schema((Variable.categorical("a", range(4)), Variable.categorical("b", [0, 1])))
    head = disturbed(GatedLevels(schema, width=3), generator)
    which, said = torch.arange(EDGES) % 2, message(known, generator)
    found = head(features, which, said).log_probs
    torch.testing.assert_close(found[::2], said.levels[::2])
    torch.testing.assert_close(found[1::2, :2], said.levels[1::2, :2].log_softmax(dim=-1))
    assert found[1::2, 2:].isneginf().all()


def test_the_more_is_known_the_more_the_network_counts(features, generator):
    schema = Schema((Variable.categorical("a", range(4)),))
    head = disturbed(GatedLevels(schema, width=3), generator)
    source = generator.get_state()
    which, rate = torch.zeros(EDGES, dtype=torch.long), (5.0 * head.gate.rate[0]).exp().item()
    for known in (2, 5, 50):
        said = message(known, generator.set_state(source))
        gate = 1 - math.exp(-(((known - 1) * rate) ** 2))
        own = head.bare(features, which).logits
        expected = (said.levels + gate * own).log_softmax(dim=-1)
        torch.testing.assert_close(head(features, which, said).log_probs, expected)


def test_a_head_starts_as_the_prior(features, generator):
    schema = Schema((Variable.categorical("a", range(4)), Variable.categorical("b", [0, 1])))
    head, which = GatedLevels(schema, width=3), torch.arange(EDGES) % 2
    said = message(40, generator)
    found = head(features, which, said).log_probs
    torch.testing.assert_close(found[::2], said.levels[::2])
    found.exp().sum().backward()
    assert all(p.grad.isfinite().all() for p in head.parameters())


def tree_density(said, values):
    """Density of numbers by the states of the message, spelled out."""
    found = []
    for states, value in zip(said.states.double().tolist(), values.tolist(), strict=True):
        parts = zip(*states, strict=True)
        found.append(
            sum(
                math.exp(log) * normal_density([mean], [[math.exp(2 * wide)]], {0: value})
                for log, mean, wide in parts
            )
        )
    return torch.tensor(found)


@pytest.mark.parametrize("known", [None, 0, 1])
@pytest.mark.parametrize("cautious", [True, False])
def test_densities_are_the_trees_where_at_most_one_is_known(features, generator, known, cautious):
    schema = Schema((Variable.continuous("a"), Variable.continuous("b")))
    head = DensitiesWithPrior(
        schema, width=3, head="mixture", components=3, cautious=cautious, gated=True
    )
    head, said = disturbed(head, generator), message(known, generator)
    values = torch.randn(EDGES, generator=generator)
    found = head(features, torch.arange(EDGES) % 2, said).log_prob(values).exp()
    slip = 0.0 if known is None else 3 * SLIP
    torch.testing.assert_close(found, tree_density(said, values), atol=1e-5 + slip, rtol=1e-3)


def test_the_more_is_known_the_more_a_density_is_the_networks(features, generator):
    schema, which = Schema((Variable.continuous("a"),)), torch.zeros(EDGES, dtype=torch.long)
    head = DensitiesWithPrior(schema, width=3, head="mixture", components=3, gated=True)
    head, source = disturbed(head, generator), generator.get_state()
    rate = (5.0 * head.gate.rate[0]).exp().item()
    values = torch.randn(EDGES, generator=torch.Generator().manual_seed(1))
    for known in (2, 5, 50):
        said = message(known, generator.set_state(source))
        gate = SLIP + (1 - SLIP) * (1 - math.exp(-(((known - 1) * rate) ** 2)))
        share = gate * head.share(features, which)[:, 0].sigmoid()
        own = head._beside_normals(features, which, said).log_prob(values).exp()
        expected = (1 - share) * tree_density(said, values) + share * own
        found = head(features, which, said).log_prob(values).exp()
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("known", [None, 0, 1])
def test_atoms_are_the_trees_where_at_most_one_is_known(features, generator, known):
    schema = Schema(
        (Variable.continuous("a", atoms=(-1.0, 0.0, 1.0)), Variable.continuous("b", atoms=(2.0,)))
    )
    head = AtomicConditionals(schema, width=3, components=3, gated=True)
    head, said = disturbed(head, generator), message(known, generator)
    said.levels[1::2, 2:] = -1e4
    found = head(features, torch.arange(EDGES) % 2, said)
    elsewhere_last = said.levels[::2].roll(-1, dims=1)
    torch.testing.assert_close(found.branches.log_probs[::2], elsewhere_last)
    own = torch.stack([said.levels[1::2, 1], said.levels[1::2, 0]], dim=1).log_softmax(dim=-1)
    torch.testing.assert_close(found.branches.log_probs[1::2][:, [0, 3]], own)
    assert found.branches.log_probs[1::2, 1:3].isneginf().all()


def test_all_that_is_learned_has_a_gradient_where_little_is_known(features, generator):
    schema = Schema((Variable.continuous("a"), Variable.continuous("b", atoms=(0.0, 1.0))))
    for known in (0, 1, 2, 1000):
        said, values = message(known, generator, levels=3), torch.randn(EDGES, generator=generator)
        for head in (
            DensitiesWithPrior(schema, width=3, head="mixture", components=3, gated=True),
            AtomicConditionals(Schema(schema.variables[1:]), width=3, components=3, gated=True),
        ):
            logs = head(features, torch.zeros(EDGES, dtype=torch.long), said).log_prob(values)
            logs.sum().backward()
            grads = [p.grad for p in head.parameters() if p.grad is not None]
            assert grads
            assert all(grad.isfinite().all() for grad in grads)
