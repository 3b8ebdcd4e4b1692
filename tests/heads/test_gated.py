"""Heads beside a prior: what is said with little evidence, and how the network comes in."""

import math

import pytest
import torch

from anyorder import Schema, Variable
from anyorder.errors import ConfigError
from anyorder.heads.atoms import AtomicConditionals
from anyorder.heads.mixed import MixedConditionals
from anyorder.heads.mixture import Mixture
from anyorder.heads.with_prior import GatedLevels, PriorDensities, continuous_conditionals
from anyorder.networks.contracts import PriorMessage

EDGES = 6


def message(known, generator, *, levels=4, components=3):
    numbers = torch.randn(EDGES, 2, generator=generator)
    parts = torch.randn(3, EDGES, components, generator=generator)
    said = torch.randn(EDGES, levels, generator=generator).log_softmax(dim=-1)
    return PriorMessage(
        numbers[:, 0],
        numbers[:, 1],
        parts[0].log_softmax(dim=-1),
        parts[1],
        0.3 * parts[2],
        said,
        torch.full((EDGES,), known),
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


@pytest.mark.parametrize("known", [0, 1])
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
    which, rate = torch.zeros(EDGES, dtype=torch.long), (5.0 * head.rate[0]).exp().item()
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


def test_a_density_alone_is_the_priors(features, generator):
    schema = Schema((Variable.continuous("a"), Variable.continuous("b")))
    said, values = message(3, generator), torch.randn(EDGES, generator=generator)
    found = PriorDensities(schema, width=3)(features, torch.arange(EDGES) % 2, said)
    weights, deviations = said.log_weights.exp(), said.log_deviations.exp()
    away = (values[:, None] - said.means) / deviations
    density = (weights * (-0.5 * away.square()).exp() / deviations / math.sqrt(2 * math.pi)).sum(1)
    torch.testing.assert_close(found.log_prob(values).exp(), density, atol=1e-5, rtol=1e-4)


def test_atoms_are_the_priors_where_nothing_is_known(features, generator):
    schema = Schema(
        (Variable.continuous("a", atoms=(-1.0, 0.0, 1.0)), Variable.continuous("b", atoms=(2.0,)))
    )
    head = AtomicConditionals(schema, width=3, components=3, alone=True)
    head, said = disturbed(head, generator), message(0, generator)
    found = head(features, torch.arange(EDGES) % 2, said)
    elsewhere_last = said.levels[::2].roll(-1, dims=1)
    torch.testing.assert_close(found.branches.log_probs[::2], elsewhere_last)
    own = torch.stack([said.levels[1::2, 1], said.levels[1::2, 0]], dim=1).log_softmax(dim=-1)
    torch.testing.assert_close(found.branches.log_probs[1::2][:, [0, 3]], own)
    values = torch.full((EDGES,), 0.4)
    smooth = Mixture(*said.components).log_prob(values)
    torch.testing.assert_close(found.elsewhere.log_prob(values), smooth, atol=1e-4, rtol=1e-4)


def test_only_mixtures_can_be_mixed_with_a_prior():
    schema = Schema((Variable.continuous("a"),))
    with pytest.raises(ConfigError, match="mixture"):
        continuous_conditionals(schema, width=3, head="spline", alone=True)
    mixed = MixedConditionals(schema, width=3, components=1, joined="alone")
    assert isinstance(mixed.groups[0], PriorDensities)
