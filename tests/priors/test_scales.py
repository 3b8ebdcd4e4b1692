"""Normal scores and units: there, back, and which of them a prior takes."""

import math

import pytest
import torch

from anyorder import Schema, Variable
from anyorder.heads.mixture import Mixture
from anyorder.heads.with_prior import OnScale
from anyorder.priors.contract import BEYOND, POINTS, UnitScales
from anyorder.priors.moments import chosen_units
from anyorder.priors.normal_mixture import normal_mixture
from anyorder.priors.normals import NormalPrior
from tests.priors import flat


@pytest.fixture
def z(generator):
    return torch.randn(500, 2, generator=generator).double().clamp(-2.5, 2.5)


def units(z):
    """A bend and a line, none of it four deviations from the mean."""
    return torch.stack([(z[:, 0] / 3).exp(), 100 + 3 * z[:, 1]], dim=1)


def measured(z):
    scales = UnitScales(2)
    scales.measure(z, torch.ones_like(z, dtype=torch.bool), units)
    return scales


def test_units_have_mean_0_and_deviation_1_and_lead_back(z):
    scales = measured(z)
    found, exact = scales.to_units(z), units(z)
    exact = (exact - exact.mean(dim=0)) / exact.std(dim=0, correction=0)
    # Lines between points of a bend: the square of a step times an eighth of the second derivative.
    step = (z[:, 0].max() - z[:, 0].min() + 2 * BEYOND) / (POINTS - 1)
    bend = units(z)[:, 0].max() / 9 / units(z)[:, 0].std(correction=0)
    assert (found - exact).abs().max() < step**2 / 8 * bend + 1e-5
    back = scales.to_scores(found)
    torch.testing.assert_close(back, z, atol=1e-4, rtol=1e-4)
    places = torch.tensor([1, 0, 1])
    each = scales.to_units(z[[0, 1, 2], places], places)
    torch.testing.assert_close(each, found[[0, 1, 2], places])


def test_beyond_what_was_seen_scales_go_on_as_lines(z):
    scales = measured(z)
    far = torch.tensor([[20.0, 20.0], [-20.0, -20.0]]).double()
    back = scales.to_scores(scales.to_units(far))
    torch.testing.assert_close(back, far, atol=1e-3, rtol=1e-3)


def test_slopes_are_those_of_the_scale(z):
    scales = measured(z)
    slopes = scales.log_slopes(z)
    deviation = units(z).std(dim=0, correction=0)
    expected = z[:, 0] / 3 - (3 * deviation[0]).log()
    torch.testing.assert_close(slopes[:, 0], expected, atol=0.02, rtol=0)
    torch.testing.assert_close(
        slopes[:, 1], (3 / deviation[1]).log().expand(500), atol=1e-3, rtol=0
    )
    small = 1e-3
    found = scales.to_scores(scales.to_units(z) + small) - z
    torch.testing.assert_close((small / found).log(), slopes, atol=0.03, rtol=0)


def test_what_is_far_out_counts_by_its_logarithm(z):
    """Four deviations, and the logarithm of what is beyond them; the way back is the same."""
    z = z[:, :1]
    far = torch.cat([z, torch.tensor([[6.0]]).double()])
    scales, have = UnitScales(1), torch.ones_like(far, dtype=torch.bool)
    scales.measure(far, have, lambda z: torch.where(z > 5, 5 + 1e3 * (z - 5), z))
    found = scales.to_units(far)
    deviations = 1000 / far.masked_fill(far > 5, 1005).std().item() - 4
    assert found[-1].item() == pytest.approx(4 + math.log1p(deviations), abs=0.1)
    torch.testing.assert_close(scales.to_scores(found), far, atol=1e-3, rtol=0)


def test_until_they_are_measured_units_are_normal_scores(z):
    scales = UnitScales(2)
    torch.testing.assert_close(scales.to_units(z), z)
    changed = measured(z)
    changed.reset()
    torch.testing.assert_close(changed.to_units(z), z)
    torch.testing.assert_close(changed.to_scores(z), z)


def test_what_did_not_vary_stays_a_normal_score(z):
    """A mean of 0.1 over many rows is not exactly 0.1: that is no deviation."""
    z[:, 1] = 0.25
    scales = UnitScales(2)
    scales.measure(z, torch.ones_like(z, dtype=torch.bool), lambda z: torch.full_like(z, 0.1))
    torch.testing.assert_close(scales.to_units(z), z)
    nothing = torch.zeros_like(z, dtype=torch.bool)
    scales.measure(z, nothing, units)
    torch.testing.assert_close(scales.to_units(z), z)
    scales.measure(z, ~nothing, units)
    torch.testing.assert_close(scales.to_units(z)[:, 1], z[:, 1])
    assert (scales.to_units(z)[:, 0] - z[:, 0]).abs().max() > 0.3


def test_learning_anew_forgets_the_units(generator):
    schema = Schema(tuple(Variable.continuous(name) for name in "abc"))
    z = sums(generator).float()
    prior, have = NormalPrior(schema).eval(), torch.ones_like(z, dtype=torch.bool)
    prior.fit(z, have, units=torch.exp)
    prior.fit(z, have)
    assert torch.equal(prior.scales.units, UnitScales(3).units)


def sums(generator, rows=1500):
    """Two skewed measures and their sum, nearly, as normal scores and back."""
    parts = torch.randn(rows, 2, generator=generator).double().exp()
    whole = parts.sum(dim=1) * (1 + 0.01 * torch.randn(rows, generator=generator))
    return torch.cat([parts, whole[:, None]], dim=1).log()


def test_a_guide_takes_the_units_where_measures_add_up(generator):
    """A sum of two measures is a line in their units, and bent in normal scores."""
    schema = Schema(tuple(Variable.continuous(name) for name in "abc"))
    z = sums(generator).float()
    have = torch.ones_like(z, dtype=torch.bool)
    plain, prior = NormalPrior(schema).eval(), NormalPrior(schema).eval()
    plain.fit(z, have)
    prior.fit(z, have, units=torch.exp)
    assert torch.equal(plain.scales.units, UnitScales(3).units)
    assert not torch.equal(prior.scales.units, plain.scales.units)
    fresh = sums(generator, 300).float()
    nothing = torch.zeros_like(fresh, dtype=torch.bool)
    nats = []
    for found in (plain, prior):
        said = found.along(fresh, query=~nothing, given=nothing, rank=torch.arange(3))
        bells = Mixture(*said[:, 2].components)
        density = OnScale(bells, found.scales, torch.full((300,), 2))
        nats.append(float(density.log_prob(fresh[:, 2]).mean()))
    assert nats[1] > nats[0] + 0.2  # measured: 0.6 nats more of the sum given its parts


@pytest.mark.parametrize("tail", [3.2, 40.0])
def test_a_long_tail_does_not_keep_others_from_their_units(tail, generator):
    """Measures that add up, and beside them a number that has to stay a normal score."""
    schema = Schema(tuple(Variable.continuous(name) for name in "abcd"))
    z = torch.cat([sums(generator), torch.randn(1500, 1, generator=generator)], dim=1).float()
    have = torch.ones_like(z, dtype=torch.bool)
    prior = NormalPrior(schema)
    prior.fit(z, have, units=lambda z: (z * torch.tensor([1, 1, 1, tail])).exp())
    is_score = (prior.scales.units == UnitScales(4).units).all(dim=1)
    assert is_score.tolist() == [False, False, False, True]


def test_the_unit_of_weights_does_not_choose_units(generator):
    z, weights = sums(generator), torch.rand(1500, generator=generator)
    units, have = (z.exp() - z.exp().mean(dim=0)) / z.exp().std(dim=0), torch.ones_like(z).bool()
    slopes = z - z.exp().std(dim=0).log()
    found = [chosen_units(z, units, slopes, have, unit * weights).tolist() for unit in (1, 1e-6)]
    assert found[0] == found[1] == [True, True, True]


def test_units_are_chosen_by_left_out_rows_of_one_normal_too(generator):
    z = torch.randn(200, 60, generator=generator).double()  # one normal suffices
    rest = torch.ones_like(z, dtype=torch.bool), torch.ones(200)
    one, several = (
        normal_mixture(z, *rest, most=most, log_slopes=torch.zeros_like(z))[1] for most in (1, 2)
    )
    assert one == several


def test_a_guide_keeps_normal_scores_where_tails_are_long(generator):
    schema = Schema(tuple(Variable.continuous(name) for name in "ab"))
    z = torch.randn(1000, 2, generator=generator)
    z[:, 1] = z[:, 0] + 0.1 * z[:, 1]
    have = torch.ones_like(z, dtype=torch.bool)
    for long in (lambda z: (3 * z).exp(), lambda z: torch.where(z > 2, 1e300, z.double())):
        prior, plain = NormalPrior(schema), NormalPrior(schema)
        prior.fit(z, have, units=long)
        plain.fit(z, have)
        for name, buffer in plain.state_dict().items():
            assert torch.equal(buffer, prior.state_dict()[name])


def test_one_pass_and_steps_agree_in_units(generator):
    schema = Schema(tuple(Variable.continuous(name) for name in "abc"))
    z = sums(generator).float()
    prior, have = NormalPrior(schema).eval(), torch.ones_like(z, dtype=torch.bool)
    prior.fit(z, have, units=torch.exp)
    given = torch.tensor([[True, False, False]]).expand(40, -1)
    said = flat(prior.along(z[:40], query=~given, given=given, rank=torch.arange(3)))
    state = prior.encode(z[:40], given)
    for target in (1, 2):
        asked = torch.full((40, 1), target)
        same = {"atol": 1e-4, "rtol": 1e-4}
        torch.testing.assert_close(flat(prior.ask(state, asked))[:, 0], said[:, target], **same)
        state = prior.tell(state, asked, z[:40, target, None])
