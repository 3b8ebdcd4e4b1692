"""The map to normal scores is increasing, smooth, invertible, and survives every column."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from anyorder.tables.numbers import Gaussianizer

RANDOM = np.random.default_rng(20221128)
SANE = {
    "normal": RANDOM.normal(size=5000),
    "uniform": RANDOM.uniform(-3, 100, size=5000),
    "lognormal": np.exp(2 * RANDOM.normal(size=5000)),
    "cauchy": RANDOM.standard_cauchy(size=5000),
    "shifted": 1e6 + 1e3 * RANDOM.normal(size=5000),
}
HARD = {
    "one value": [3.0],
    "constant": [5.0] * 10,
    "constant and huge": [1e300] * 10,
    "two values": [0.0, 1.0] * 10,
    "a rare value": [0.0] * 99 + [1.0],
    "half zeros": [0.0] * 500 + list(RANDOM.lognormal(size=500)),
    "all doubles apart": [1.7e308, -1.7e308, 1e300, -1e300],
    "tiny": [1e-300, 2e-300, 5e-324],
    "huge and tiny": [1e-300, 1e300] * 5 + [0.0],
    "tiny with huge outliers": list(1e-300 * RANDOM.normal(size=900)) + [1e300, -1e300] * 50,
    "last digits": list(1 + 2.3e-16 * np.arange(100)),
}
DOUBLES = np.array([0, 1, -1, 1e300, -1e300, 1.7e308, -1.7e308, 5e-324, 1e-300, 3.14])


@pytest.mark.parametrize("name", SANE)
def test_looks_normal(name):
    z = Gaussianizer.fit(SANE[name]).forward(SANE[name])
    # In sample, so closer than chance: the Kolmogorov distance of 5000 normal draws is near 0.012.
    assert stats.kstest(z, "norm").statistic < 0.012


@pytest.mark.parametrize("name", SANE)
def test_inverse_undoes_forward(name):
    fitted = Gaussianizer.fit(SANE[name])
    z = np.linspace(-6, 6, 2001)
    assert np.abs(fitted.forward(fitted.inverse(z)) - z).max() < 1e-8
    np.testing.assert_allclose(fitted.inverse(fitted.forward(SANE[name])), SANE[name], rtol=1e-9)


@pytest.mark.parametrize("name", SANE)
def test_derivative_is_the_slope_everywhere_and_continuous(name):
    fitted = Gaussianizer.fit(SANE[name])
    x = np.sort(fitted.inverse(np.linspace(-5, 5, 301)))
    step = 1e-6 * np.exp(-fitted.log_derivative(x))  # a millionth in z
    slope = (fitted.forward(x + step) - fitted.forward(x - step)) / ((x + step) - (x - step))
    np.testing.assert_allclose(np.exp(fitted.log_derivative(x)), slope, rtol=2e-3)
    at = fitted._unbend(np.array(fitted.knots))
    span = 1e-8 * np.exp(-fitted.log_derivative(at))
    either = fitted.log_derivative(at - span) - fitted.log_derivative(at + span)
    assert np.abs(either).max() < 1e-3


@pytest.mark.parametrize("name", [*SANE, *HARD])
def test_survives_every_column_and_every_double(name):
    values = np.asarray({**SANE, **HARD}[name], dtype=float)
    fitted = Gaussianizer.fit(values)
    x = np.sort(np.concatenate([values, DOUBLES]))
    z = fitted.forward(x)
    assert np.abs(z).max() < 1e4
    assert (np.diff(z) >= 0).all()
    assert np.isfinite(fitted.log_derivative(x)).all()
    assert (np.array(fitted.slopes) > 0).all()
    assert np.isfinite(fitted.inverse(np.linspace(-1e4, 1e4, 999))).all()
    assert len(fitted.knots) <= 33


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_doubles_at_all(values, x):
    fitted = Gaussianizer.fit(values)
    for array in (fitted.forward([*values, x]), fitted.log_derivative([*values, x])):
        assert np.isfinite(array).all()
    assert np.isfinite(fitted.inverse([-1e4, -1, 0, 1, 1e4])).all()
    assert np.abs(fitted.forward(x)) < 1e4


def test_distinct_values_keep_distinct_scores():
    assert (np.diff(Gaussianizer.fit([0.0] * 99 + [1.0]).forward([0.0, 0.5, 1.0])) > 0).all()
    assert Gaussianizer.fit([7.0]).forward(7.0) == 0


def test_json_keeps_it():
    fitted = Gaussianizer.fit(SANE["lognormal"])
    entries = json.loads(json.dumps(asdict(fitted)))
    back = Gaussianizer(**{k: tuple(v) if isinstance(v, list) else v for k, v in entries.items()})
    assert back == fitted
