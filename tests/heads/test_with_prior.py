"""Heads beside priors: where they start, and what atoms make of it."""

import math

import pytest
import torch

from anyorder import Schema, Variable
from anyorder.heads.atoms import AtomicConditionals
from anyorder.heads.mixture import Mixture
from anyorder.heads.spline import Spline
from anyorder.heads.with_prior import (
    SLIP,
    AtomTilt,
    DensitiesWithPrior,
    _fewer,
    mixture_at,
)
from tests.oracle import normal_density
from tests.priors import message_of


def message_with(components):
    """A message of moments 0 and some components.

    Args:
        components: Log weights, means and log deviations. Shape ``(3, edges, components)``.
    """
    return message_of(torch.cat([torch.zeros(components.shape[1], 2), *components], dim=1))


def nothing(edges=1):
    """The features of a network that has learned nothing."""
    return torch.zeros(edges, 3)


def test_atoms_are_as_probable_as_bayes_has_it(generator):
    """What has some bells without evidence, and others given it, is so on atoms too."""
    shares = torch.randn(4, 2, generator=generator).log_softmax(dim=1)
    means, logs = torch.randn(4, 2, generator=generator), -torch.rand(4, 2, generator=generator)
    message, tilt = message_with(torch.stack([shares, means, logs])), AtomTilt(2, width=3)
    atoms, variables = torch.randn(2, 7, generator=generator), torch.tensor([0, 1, 1, 0])
    usual = torch.tensor([[-1.0, -0.5, 0.5, 0.0, 0.3, 0.1], [0.0, -9.0, 1.0, 2.0, 0.0, 1.0]])
    known = mixture_at(*usual.unflatten(1, (3, 2)).unbind(dim=1), atoms)
    found = tilt(nothing(4), variables, message, atoms=atoms, usual=known)

    def density(shares, means, logs, value):
        parts = zip(shares.softmax(dim=0).tolist(), means.tolist(), logs.tolist(), strict=True)
        return sum(
            share * normal_density([mean], [[math.exp(2 * log)]], {0: value})
            for share, mean, log in parts
        )

    for row, variable in enumerate(variables):
        for place in range(7):
            value = atoms[variable, place].item()
            told = density(shares[row], means[row], logs[row], value)
            alone = density(*usual[variable].unflatten(0, (3, 2)), value)
            expected = math.log(told / alone)
            # The bounds of scales are soft, and move them by up to a thousandth.
            assert found[row, place].item() == pytest.approx(expected, rel=5e-3, abs=5e-3)


def sampled_components(count, generator):
    numbers = torch.randn(3, 1, count, generator=generator)
    return torch.stack([numbers[0].log_softmax(dim=1), 3 * numbers[1], numbers[2]])


def test_atoms_of_another_column_have_no_say(generator):
    """Columns have places for as many atoms as that with the most has."""
    schema = Schema(
        (Variable.continuous("a", atoms=(-1.0, 1.0)), Variable.continuous("b", atoms=range(4)))
    )
    conditionals = AtomicConditionals(schema, width=3, components=2)
    numbers = torch.randn(5, 11, generator=generator)
    features, message = numbers[:, :3], message_of(numbers[:, 3:])
    conditionals.tilt = Tilted(torch.tensor([1.0, -1.0, 1e5, 1e5]))
    found = conditionals(features, torch.zeros(5, dtype=torch.long), message).branches.log_probs
    conditionals.tilt = Tilted(torch.tensor([1.0, -1.0, 0.0, 0.0]))
    expected = conditionals(features, torch.zeros(5, dtype=torch.long), message).branches.log_probs
    torch.testing.assert_close(found, expected)


class Tilted(torch.nn.Module):
    """A prior that says the same of every edge."""

    def __init__(self, tilt):
        super().__init__()
        self.told = tilt

    def forward(self, _features, variables, _prior, **_places):
        return self.told.expand(*variables.shape, -1)


def test_without_evidence_atoms_stay_as_probable_as_they_were(generator):
    bells = sampled_components(9, generator)
    tilt, atoms = AtomTilt(1, width=3), torch.linspace(-9, 9, 50)[None]
    usual = mixture_at(*bells, atoms)
    found = tilt(nothing(), torch.tensor([0]), message_with(bells), atoms=atoms, usual=usual)
    torch.testing.assert_close(found, torch.zeros(1, 50), atol=1e-4, rtol=0)


def test_the_least_bells_as_one_have_their_moments(generator):
    bells = sampled_components(9, generator)
    exact = Mixture(*bells)
    fewer = Mixture(*_fewer(bells, 4))
    assert fewer.means.shape == (1, 5)
    torch.testing.assert_close(fewer.logits.logsumexp(dim=-1), torch.zeros(1))
    for power in (1, 2):
        one, other = ((w * v**power).sum(dim=0) for v, w in (exact.nodes(), fewer.nodes()))
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_a_guide_that_is_wrong_leaves_every_atom_possible():
    """Beside the atom that a prior is sure of, others have what may slip of their share before."""
    schema = Schema((Variable.continuous("a", atoms=(-3.0, 0.0, 3.0)),))
    atoms = AtomicConditionals(schema, width=3, components=1)
    atoms.count(torch.tensor([[-3.0], [0.0], [3.0]]), torch.ones(3, 1).bool(), torch.ones(3))
    sure = torch.tensor([[[0.0]], [[3.0]], [[math.log(1e-3)]]]).requires_grad_()
    found = atoms(nothing(), torch.tensor([0]), message_with(sure)).branches.log_probs[0]
    share = 1.5 / 5
    assert found[:2].exp().tolist() == pytest.approx([SLIP * share] * 2, rel=1e-3)
    assert found[2].exp().item() == pytest.approx(1 - SLIP * (1 - share), abs=1e-3)
    found[2].backward()
    assert sure.grad.isfinite().all()


def test_the_density_beside_atoms_follows_the_guide_only_where_it_is_taught():
    """A sure prior, and a value that no row to train on had: it is unlikely, not impossible."""
    grid = (-2.0, -1.9, -1.8)
    schema = Schema((Variable.continuous("a", atoms=grid),))
    atoms, said = AtomicConditionals(schema, width=3, components=1), [-1.9, math.log(0.01)]
    sure = message_of(torch.tensor([[*said, 0.0, *said]]))
    unseen = atoms(nothing(), torch.tensor([0]), sure).log_prob(torch.tensor([1.0]))
    assert unseen.item() > -25  # moved wholly, it would be at 290 deviations


def test_densities_are_moved(generator):
    numbers = torch.randn(3, 4, 5, generator=generator).double()
    mean, log_scale, value = torch.randn(3, 4, generator=generator).double()
    mixture = Mixture(*numbers)
    spline = Spline(*numbers[:2], numbers[2][..., :-1], *torch.randn(2, 4).double())
    for bare in (mixture, spline):
        moved = bare.moved(mean, log_scale)
        there = mean + log_scale.exp() * value
        torch.testing.assert_close(moved.log_prob(there), bare.log_prob(value) - log_scale)
        torch.testing.assert_close(moved.cdf(there), bare.cdf(value))


def test_a_mixture_starts_at_the_bells_that_are_said(generator):
    """But for a twentieth of the mass, which the head's own bells have, at the prior's moments."""
    schema = Schema((Variable.continuous("a"), Variable.continuous("b")))
    heads, bells = (
        DensitiesWithPrior(schema, width=3, head="mixture", components=2),
        sampled_components(2, generator),
    )
    found = heads(nothing(), torch.tensor([1]), message_with(bells))
    own = heads.bare(torch.zeros(1, 3), torch.tensor([1]))
    values = torch.linspace(-4, 4, 30)[:, None]
    said = Mixture(*bells).log_prob(values).exp()
    expected = 0.95 * said + 0.05 * own.log_prob(values).exp()
    # The bounds of scales are soft, and move them by up to a thousandth.
    torch.testing.assert_close(found.log_prob(values).exp(), expected, atol=1e-3, rtol=5e-3)


def test_a_guide_that_is_wrong_leaves_every_value_possible():
    """A thousand deviations away from what is said: as improbable as a slip, no more."""
    schema = Schema((Variable.continuous("a"),))
    heads = DensitiesWithPrior(schema, width=3, head="mixture", components=1)
    sure = message_of(torch.tensor([[2.0, math.log(1e-3), 0.0, 2.0, math.log(1e-3)]]))
    found, only = heads(nothing(), torch.tensor([0]), sure), torch.tensor([1.0])
    slip = math.log(SLIP) + math.log(normal_density([0.0], [[1.0]], {0: 1.0}))
    assert found.log_prob(only).item() == pytest.approx(slip, abs=1e-3)
    below = SLIP * torch.special.ndtr(only.double()).item()
    assert found.cdf(only.double()).item() == pytest.approx(below, rel=1e-3)


def test_a_table_whose_only_number_has_no_bells(generator):
    """Priors of categories say two features of everything, and nothing of numbers."""
    schema = Schema((Variable.continuous("a"),))
    features, only = torch.randn(5, 3, generator=generator), torch.zeros(5, dtype=torch.long)
    message = message_of(torch.zeros(5, 2))
    for head in ("mixture", "spline"):
        heads = DensitiesWithPrior(schema, width=3, head=head, components=0)
        values = torch.randn(5, generator=generator)
        expected = heads.bare(features, only).log_prob(values)
        torch.testing.assert_close(heads(features, only, message).log_prob(values), expected)


def test_atoms_and_elsewhere_start_from_how_often_they_are():
    schema = Schema(
        (Variable.continuous("a", atoms=(0.0, 1.0)), Variable.continuous("b", atoms=(2.0,)))
    )
    atoms = AtomicConditionals(schema, width=3, components=1)
    values = torch.tensor([[0.0, 2.0], [0.0, 0.5], [1.0, 2.0], [0.3, 7.0], [9.0, 2.0]])
    have = torch.ones(5, 2, dtype=torch.bool)
    have[4, 0] = False
    atoms.count(values, have, torch.tensor([1.0, 1.0, 2.0, 1.0, 1.0]))
    standard = message_of(torch.zeros(2, 5))
    found = atoms(nothing(2), torch.tensor([0, 1]), standard).branches.log_probs.exp().detach()
    torch.testing.assert_close(found[0], torch.tensor([2.5, 2.5, 1.5]) / 6.5, atol=1e-3, rtol=0)
    assert found[1, 0] / found[1, 2] == pytest.approx(4.5 / 2.5, abs=1e-2)
    assert found[1, 1] == 0
