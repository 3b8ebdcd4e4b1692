"""What is said of intervals is what the model's own rows, rounded as the columns are, show."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from anyorder.errors import QueryError
from anyorder.inference.queries import sample
from anyorder.tables.model import TableModel

DRAWS = 20_000
START = pd.Timestamp("2020-01-01")


@pytest.fixture(scope="module")
def model():
    rng, rows = np.random.default_rng(0), 1500
    whole = rng.normal(500, 60, rows).round().astype(int)
    frame = pd.DataFrame({"whole": whole, "cents": rng.normal(3, 0.4, rows).round(1)})
    frame["day"] = START + pd.to_timedelta(rng.normal(100, 8, rows).round(), unit="D")
    frame["took"] = pd.to_timedelta(rng.normal(60, 5, rows).round(), unit="min")
    frame["spent"] = np.where(rng.random(rows) < 0.4, 0, rng.normal(20, 9, rows).round().clip(1))
    frame["spent"] = frame["spent"].astype(int)
    frame["small"] = rng.poisson(1.5, rows).astype(np.uint8)
    frame["job"] = np.where(whole > 500, "nurse", "clerk")
    tiny = {"layers": 1, "width": 16, "heads": 2, "dropout": 0.0}
    return TableModel(**tiny, max_steps=40, validation_share=0.0).fit(frame)


@pytest.fixture(scope="module")
def drawn(model):
    """Each column by itself: in whole rows a column of a model of 40 steps has another law."""
    table, found = model.table_, {}
    for place, name in enumerate(table.names):
        asked = torch.arange(len(table.names)) == place
        x = torch.zeros(1, len(table.names))
        generator = torch.Generator().manual_seed(place)
        codes = sample(model.model_, x, query=asked, n=DRAWS, generator=generator)[0]
        found[name] = table.decode(codes)[name]
    return found


INTERVALS = {
    "whole": [(500, 500), (495, 505), (None, 480), (560, None), (500.2, 501.9), (499, 10**9)],
    "cents": [(3.0, 3.0), (2.8, 3.1), (None, 2.5), (3.35, None)],
    "day": [
        (START + pd.Timedelta(100, "D"), START + pd.Timedelta(100, "D")),
        (START + pd.Timedelta(95, "D"), "2020-04-13"),
        (None, START + pd.Timedelta(100, "D")),
    ],
    "took": [(pd.Timedelta(60, "min"), pd.Timedelta(62, "min")), (pd.Timedelta(66, "min"), None)],
    "spent": [(0, 0), (1, 20), (20, 20), (None, 0), (-5, 12), (1, None)],
    "small": [(0, 0), (0, 2), (2, None), (None, 1), (1, 1)],
}
CASES = [(name, ends) for name, listed in INTERVALS.items() for ends in listed]


def share_inside(series, ends):
    inside = pd.Series(True, index=series.index)
    if ends[0] is not None:
        inside &= series >= (pd.Timestamp(ends[0]) if isinstance(ends[0], str) else ends[0])
    if ends[1] is not None:
        inside &= series <= (pd.Timestamp(ends[1]) if isinstance(ends[1], str) else ends[1])
    return float(inside.mean())


@pytest.mark.parametrize(("name", "ends"), CASES)
def test_the_probability_of_an_interval_is_its_share_of_draws(model, drawn, name, ends):
    found = model.conditional("job", given={name: ends}).evidence
    said, share = math.exp(found.log_probability), share_inside(drawn[name], ends)
    error = math.sqrt(share * (1 - share) / DRAWS)
    assert 0 < share < 1
    assert said == pytest.approx(share, abs=4 * error)


@pytest.mark.parametrize(("name", "ends"), CASES)
def test_draws_given_an_interval_are_inside_it(model, name, ends):
    rows = model.sample(400, given={name: ends}, random_state=0)
    assert share_inside(rows[name], ends) == 1


def test_intervals_that_touch_leave_nothing_out(model):
    def probability(column, ends):
        found = model.conditional("job", given={column: ends}).evidence
        return math.exp(found.log_probability)

    for column, edge in (("whole", 500), ("spent", 0), ("spent", 12), ("small", 1)):
        both = probability(column, (None, edge)) + probability(column, (edge + 1, None))
        assert both == pytest.approx(1, abs=1e-6)


def test_the_cdf_is_the_share_of_draws_up_to_a_value(model, drawn):
    days = START + pd.to_timedelta([90, 100, 104], unit="D")
    asked = {"whole": [420, 500, 560.5], "cents": [2.5, 3.0], "day": days, "spent": [-1, 0, 12]}
    for name, values in asked.items():
        shares = [float((drawn[name] <= value).mean()) for value in values]
        # 4 standard errors of a share, at most.
        np.testing.assert_allclose(model.conditional(name).cdf(values), shares, atol=0.0142)
    whole = model.conditional("whole")
    step = whole.cdf(500) - whole.cdf(499)
    alone = model.conditional("job", given={"whole": (500, 500)}).evidence.log_probability
    assert step[0] == pytest.approx(math.exp(alone), rel=1e-3)
    assert whole.cdf(whole.quantile(0.3)) >= 0.3
    assert np.isnan(whole.cdf([None, 500])).tolist() == [True, False]


def test_an_interval_between_two_steps_is_refused(model):
    with pytest.raises(QueryError, match=r'"whole" must hold a value .* number, whole; got'):
        model.sample(1, given={"whole": (500.2, 500.8)})
    with pytest.raises(QueryError, match="must ascend"):
        model.sample(1, given={"whole": (501, 500)})
