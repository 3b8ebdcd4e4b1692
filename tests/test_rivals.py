"""The workers of rivals, and the probabilities of cells under models that have densities only."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from scipy.stats import multivariate_normal, norm

from benchmarks.rivals import gaussian_mixture, iterative_imputer
from benchmarks.rivals.cells import Box, log_box_prob, log_normal, spread
from benchmarks.rivals.task import Answers, Column, Task, read_answers

MEAN = np.array([0.2, -0.5, 0.1])
STEPS = [1.0, None, None]
COVARIANCE = np.array([[1.0, 0.7, -0.4], [0.7, 2.0, 0.3], [-0.4, 0.3, 0.5]])


def box_prob(box, *, mean=MEAN, covariance=COVARIANCE, draws=64, seed=0):
    return log_box_prob(mean, covariance, box, draws=draws, rng=np.random.default_rng(seed))


def repeated(low, high, rows=500):
    return Box(np.tile(low, (rows, 1)), np.tile(high, (rows, 1)))


def test_normal_cells_keep_their_digits_in_both_tails():
    low = np.array([-0.5, 8.0, -9.0, 30.0, -np.inf, -np.inf])
    found = log_normal(Box(low, np.append(low[:4] + 1, [1.0, np.inf])))
    upper = np.log(norm.sf(8) - norm.sf(9))
    expected = [np.log(0.3829249225480262), upper, upper, norm.logsf(30), norm.logcdf(1), 0.0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(log_normal(Box(low[:4], low[:4])), norm.logpdf(low[:4]))


def test_boxes_of_independent_columns_are_exact():
    rng = np.random.default_rng(0)
    mean, scale = rng.normal(size=6), rng.uniform(0.5, 2, size=6)
    values = rng.normal(size=(40, 6)) * 5  # some lie far out
    box = Box.around(values, [1.0, 0.1, None, 2.0, None, 1.0])
    box.low[::2, 3], box.high[::2, 3] = np.nan, np.nan
    box.high[::3, 0] = np.inf
    found = box_prob(box, mean=mean, covariance=np.diag(scale**2), draws=2)
    each = log_normal(box.standard(mean, scale)) - box.points * np.log(scale)
    np.testing.assert_allclose(found, np.nansum(each, axis=1), rtol=1e-10)


def integral(low, high, places=60):
    """The density in a box of three columns, summed up by Gauss-Legendre quadrature."""
    nodes, weights = leggauss(places)
    ends = np.clip(np.array([low, high]), -12, 12)  # eight standard deviations are far enough
    center, half = ends.mean(axis=0), np.diff(ends, axis=0)[0] / 2
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1) * half + center
    density = multivariate_normal(MEAN, COVARIANCE).pdf(grid)
    return np.einsum("ijk,i,j,k", density, weights, weights, weights) * half.prod()


def test_the_integral_of_a_box_is_what_scipy_says():
    low, high = np.array([-0.3, -1.0, 0.2]), np.array([0.9, 0.4, 1.5])
    expected = multivariate_normal(MEAN, COVARIANCE).cdf(high, lower_limit=low)
    assert integral(low, high) == pytest.approx(expected, abs=1e-5)  # its own tolerance


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([-0.3, -1.0, 0.2], [0.9, 0.4, 1.5]),
        ([2.0, -4.0, 1.0], [3.0, -3.0, 2.0]),  # where hardly anything is
        ([-np.inf, -np.inf, 0.2], [0.5, 1.0, np.inf]),
    ],
)
def test_boxes_are_right_on_average(low, high):
    found = np.exp(box_prob(repeated(low, high)) - np.log(integral(low, high)))
    assert found.std() < 0.4  # of one row at 64 draws, and 0.05 where there is some mass
    assert found.mean() == pytest.approx(1, abs=4 * found.std() / len(found) ** 0.5)


def test_points_have_densities_beside_cells():
    low, high = np.array([0.4, -1.0, np.nan]), np.array([0.4, 0.4, np.nan])
    gain = COVARIANCE[1, 0] / COVARIANCE[0, 0]
    given = norm(MEAN[1] + gain * (0.4 - MEAN[0]), (COVARIANCE[1, 1] - gain * 0.7) ** 0.5)
    expected = norm.logpdf(0.4, MEAN[0]) + np.log(given.cdf(0.4) - given.cdf(-1))
    # Only one cell is left, and that is exact.
    np.testing.assert_allclose(box_prob(repeated(low, high, 3), draws=1), expected, rtol=1e-10)
    values = np.random.default_rng(0).normal(size=(5, 3))
    law = multivariate_normal(MEAN, COVARIANCE)
    np.testing.assert_allclose(box_prob(Box(values, values), draws=1), law.logpdf(values))


def test_many_rows_are_the_same_in_parts(monkeypatch):
    box = repeated([-0.3, -1.0, 0.2], [0.9, 0.4, 1.5], rows=7)
    whole = box_prob(box, draws=20_000)
    monkeypatch.setattr("benchmarks.rivals.cells.NUMBERS", 120_000)  # two rows at a time
    np.testing.assert_allclose(box_prob(box, draws=20_000, seed=1), whole, atol=0.03)


def shared_factor(box, share):
    """Boxes under columns with one common factor, by quadrature over it."""
    places, weights = hermegauss(200)
    left = (1 - share) ** 0.5
    logs = [log_normal(box.standard(share**0.5 * place, left)).sum(axis=1) for place in places]
    return np.logaddexp.reduce(np.array(logs) + np.log(weights / weights.sum())[:, None])


def test_a_hundred_columns_cost_hundredths_of_a_nat():
    columns, share = 100, 0.3
    covariance = np.full((columns, columns), share) + (1 - share) * np.eye(columns)
    rng = np.random.default_rng(0)
    values = rng.multivariate_normal(np.zeros(columns), covariance, size=50, method="cholesky")
    box = Box.around(np.where(values > 0, 0.85, -0.85), [1.7] * columns)
    found = box_prob(box, mean=np.zeros(columns), covariance=covariance, draws=256)
    error = found - shared_factor(box, share)
    # The bias is -0.01, and a row is off by 0.1: 0.015 for the mean. At 16 random places it was -6.
    assert error.mean() == pytest.approx(0, abs=0.07)
    assert error.std() < 0.3


@pytest.fixture
def telling():
    """A category of three levels that a number tells: 0 at -1, 2 at 0 and 1 at 1."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 3, 300).astype(float)
    number = np.array([-1.0, 1.0, 0.0])[level.astype(int)] + rng.normal(size=300) * 0.1
    rows = np.stack([number, level], axis=1)
    gaps = rows[200:].copy()
    gaps[:, 1] = np.nan
    columns = [Column("number", "number"), Column("level", "category", levels=3)]
    return Task(columns, rows[:200], rows[200:], gaps, ~np.isnan(gaps), 10, 0)


@pytest.mark.parametrize("worker", [iterative_imputer, gaussian_mixture])
def test_workers_use_the_evidence_for_categories(worker, telling, tmp_path):
    worker.answer(telling, Answers(tmp_path))
    found = read_answers(tmp_path)[0]
    draws, truth = found["draws"][:, :, 1], telling.test[:, 1]
    assert set(np.unique(draws)) == {0.0, 1.0, 2.0}
    assert (draws != draws[0]).any()  # draws, not one answer again and again
    outer = truth != 2  # which a line through three levels can tell
    assert (found["point"][outer, 1] == truth[outer]).mean() > 0.6


def test_levels_add_up_to_one_in_a_gaussian_mixture(telling, tmp_path):
    rows = np.repeat(telling.test[:20], 3, axis=0)
    rows[:, 1] = np.tile([0.0, 1.0, 2.0], 20)
    given = np.tile([True, False], (60, 1))
    gaussian_mixture.answer(telling._replace(test=rows, given=given), Answers(tmp_path))
    logs = read_answers(tmp_path)[0]["conditional"].reshape(20, 3)
    # A single cell is exact.
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1, atol=1e-9)


def test_what_is_given_to_a_gaussian_mixture_are_cells(tmp_path):
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 2000)
    second = np.where(rng.random(2000) < 0.8, first, 1 - first)
    rows = np.stack([first, second], axis=1).astype(float)
    test = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    columns = [Column(name, "category", levels=2) for name in ("first", "second")]
    given = np.tile([True, False], (4, 1))
    task = Task(columns, rows, test, test, given, 1, 0)
    gaussian_mixture.answer(task, Answers(tmp_path))
    found = {name: np.exp(logs) for name, logs in read_answers(tmp_path)[0].items()}
    pairs = found["joint"].reshape(2, 2)
    expected = pairs / pairs.sum(axis=1, keepdims=True)
    # Bayes' rule holds up to the draws, which are off by 0.0002; with points it was off by 0.018.
    np.testing.assert_allclose(found["conditional"].reshape(2, 2), expected, atol=0.002)


def test_a_gaussian_mixture_answers_by_bayes_rule(telling, tmp_path):
    gaussian_mixture.answer(telling, Answers(tmp_path))
    found = read_answers(tmp_path)[0]
    known = telling._replace(given=np.zeros_like(telling.given))
    (tmp_path / "all").mkdir()
    gaussian_mixture.answer(known, Answers(tmp_path / "all"))
    again = read_answers(tmp_path / "all")[0]
    # With nothing given the conditional is the joint, by other draws: a few thousandths a row.
    np.testing.assert_allclose(again["conditional"], found["joint"], atol=0.02)
    assert (found["point"][:, 1] == telling.test[:, 1]).mean() > 0.9


def test_a_sum_product_network_has_the_masses_of_its_cells():
    pytest.importorskip("spflow", reason="SPFlow has an environment of its own")
    from benchmarks.rivals import sum_product

    rng = np.random.default_rng(0)
    whole = rng.integers(0, 6, 300).astype(float)
    kind = (whole + rng.normal(size=300) > 3).astype(float)
    rows = np.stack([whole, rng.normal(size=300) + whole, kind], axis=1)
    columns = [Column("whole", "number", 1.0), Column("real", "number")]
    columns.append(Column("kind", "category", levels=2))
    task = Task(columns, rows, rows, rows, np.zeros(rows.shape, dtype=bool), 1, 0)
    network = sum_product.Network(task, spread(rows, STEPS, rng))

    def probs(values, steps=STEPS):
        return np.exp(network.log_prob(Box.around(values, steps)))

    places = (np.arange(1000) + 0.5) / 1000 - 0.5
    for row in rows[:5]:
        inside = row + places[:, None] * np.array([1.0, 0.0, 0.0])
        mean = probs(inside, [None] * 3).mean()  # of densities: the midpoint rule
        assert probs(row[None])[0] == pytest.approx(mean, rel=1e-5)
    grid = np.array([[x, np.nan, level] for x in range(-30, 40) for level in (0.0, 1.0)])
    assert probs(grid).sum() == pytest.approx(1, abs=1e-5)  # weights are in single precision
    far = network.log_prob(Box.around(np.array([[200.0, np.nan, np.nan]]), STEPS))
    assert -1e6 < far[0] < np.log(1e-40)
