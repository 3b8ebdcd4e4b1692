"""Densities of units, of which values are normal scores."""

import pytest
import torch

from anyorder.heads.mixed import averaged
from anyorder.heads.mixture import Mixture
from anyorder.heads.spline import Spline
from anyorder.heads.with_prior import OnScale
from anyorder.priors.contract import UnitScales


@pytest.fixture
def scales(generator):
    """A bend, a line, and normal scores."""
    scores = torch.randn(400, 3, generator=generator).double().clamp(-2.5, 2.5)
    found, have = UnitScales(3).double(), torch.ones_like(scores, dtype=torch.bool)
    found.measure(
        scores,
        have,
        lambda z: torch.stack([z[:, 0] + z[:, 0].exp(), 3 * z[:, 1], z[:, 2]], dim=1),
    )
    found.reset(keep=torch.tensor([True, True, False]))
    return found


@pytest.fixture(params=["mixture", "spline"])
def inner(request, generator):
    numbers = torch.randn(3, 4, 5, generator=generator).double()
    if request.param == "mixture":
        return Mixture(numbers[0], numbers[1], 0.3 * numbers[2] - 1)
    return Spline(*numbers[:2], numbers[2][..., :-1], *torch.zeros(2, 4).double())


@pytest.fixture
def found(inner, scales):
    return OnScale(inner, scales, torch.tensor([0, 1, 2, 0]))


def test_densities_integrate_to_one_and_to_the_cdf(found):
    grid = torch.linspace(-12, 12, 40_001).double()[:, None].expand(-1, 4)
    below = torch.cumulative_trapezoid(found.log_prob(grid).exp(), grid, dim=0)
    torch.testing.assert_close(below[-1], torch.ones(4).double(), atol=1e-3, rtol=0)
    places = torch.tensor([15_000, 20_000, 23_000])
    torch.testing.assert_close(below[places - 1], found.cdf(grid[places]), atol=1e-3, rtol=0)


def test_quantiles_are_where_the_cdf_reaches_them(found):
    shares = torch.tensor([1e-4, 0.3, 0.5, 0.99]).double()[:, None].expand(-1, 4)
    torch.testing.assert_close(found.cdf(found.icdf(shares)), shares, atol=1e-6, rtol=1e-4)


def test_means_are_those_of_many_draws(found):
    source = torch.Generator().manual_seed(0)
    draws = torch.stack([found.sample(generator=source) for _ in range(20_000)])
    error = draws.std(dim=0) / len(draws) ** 0.5
    assert ((found.mean() - draws.mean(dim=0)).abs() < 4 * error).all()


def test_an_average_is_one_on_the_scale(scales, generator):
    parts = [
        OnScale(
            Mixture(*torch.randn(3, 4, 5, generator=generator).double()),
            scales,
            torch.arange(4) % 3,
        )
        for _ in range(2)
    ]
    values = torch.randn(4, generator=generator).double()
    expected = sum(part.log_prob(values).exp() for part in parts) / 2
    torch.testing.assert_close(averaged(parts).log_prob(values).exp(), expected)


def test_a_temperature_is_that_of_the_units(scales, generator):
    inner = Mixture(*torch.randn(3, 4, 1, generator=generator).double())
    sharp = OnScale(inner, scales, torch.arange(4) % 3).tempered(0.5)
    torch.testing.assert_close(
        sharp.inner.log_scales, inner.log_scales - 0.5 * torch.tensor(2.0).log()
    )


def test_a_narrow_bell_between_quantiles_is_the_mode(scales):
    logits, logs = torch.tensor([[0.001, 0.999]]).log(), torch.tensor([[1e-4, 1.0]]).log()
    narrow = Mixture(logits.double(), torch.tensor([[2.0, 0.0]]).double(), logs.double())
    found = OnScale(narrow, scales, torch.tensor([2]))  # scores
    assert found.mode().item() == pytest.approx(2, abs=1e-3)


def test_the_mode_is_the_densest_point_of_a_fine_grid(scales, generator):
    """A scale has pieces, and the density of scores jumps between them."""
    logits, means, logs = torch.randn(3, 30, 6, generator=generator).double()
    found = OnScale(Mixture(logits, means, logs - 1), scales, torch.arange(30) % 3)
    line = torch.linspace(-9, 9, 50_001).double()[:, None].expand(-1, 30)
    best = found.log_prob(line).amax(dim=0)
    assert (found.log_prob(found.mode()) > best - 1e-3).all()
    some = torch.tensor([4, 20])
    torch.testing.assert_close(found.mode_at(some), found.mode()[some])
