"""Sampling step by step follows the conditionals of the likelihood, which takes one pass."""

import numpy as np
import pandas as pd
import pytest
import torch

from anyorder.inference.model import walk
from anyorder.tables.model import TableModel

ROWS = 12
NETWORKS = {
    "perceptron": {"network": "perceptron"},
    "two_streams": {"network": "path"},
    "one_stream": {"network": "path", "streams": 1},
    "prior": {"network": None},
}


@pytest.fixture(scope="module", params=NETWORKS)
def fitted(request):
    """A model of numbers, repeated values and categories with a prior, and its rows as codes."""
    rng = np.random.default_rng(0)
    age = rng.normal(40, 10, 300)
    columns = {
        "age": age,
        "income": np.exp(age / 40 + rng.normal(0, 0.3, 300)),
        "children": rng.poisson(age / 20),
        "job": np.where(rng.random(300) < age / 80, "nurse", "clerk"),
        "town": rng.choice(list("abcd"), 300),
    }
    shape = {"layers": 2, "width": 8, "heads": 2, **NETWORKS[request.param]}
    model = TableModel(max_steps=8, progress=False, **shape)
    frame = pd.DataFrame(columns)
    return model.fit(frame).model_.eval(), model.table_.encode(frame[:ROWS])[0]


@torch.no_grad()
@pytest.mark.parametrize("alike", [True, False], ids=["one_path", "a_path_each"])
@pytest.mark.parametrize("order", ["schema", "random"])
def test_steps_are_the_factors_of_the_likelihood(fitted, generator, alike, order):
    model, x = fitted
    count = model.num_variables
    draw = torch.rand(1 if alike else ROWS, count, generator=generator).expand(ROWS, -1)
    query, given = draw < 0.7, draw > 0.85
    rank = torch.arange(count) if order == "schema" else draw.argsort(dim=1)
    rank = rank.expand(ROWS, -1)
    factors = model.factors(x, query=query, given=given, rank=rank)
    found = torch.zeros(ROWS, count)
    # Each value is that of the row, where sampling would choose one.
    for rows, targets, conditional in walk(model, x.clone(), query=query, given=given, rank=rank):
        found[rows, targets] = conditional.log_prob(x[rows, targets]).float()
    expected = torch.zeros(ROWS, count)
    expected[factors.row, factors.target] = factors.log_prob.float()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
