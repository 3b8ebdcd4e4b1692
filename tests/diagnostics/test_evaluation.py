"""Bits are those of the oracle."""

import math

import pytest
import torch

from anyorder import RemoveGreatest
from anyorder.diagnostics.evaluation import (
    Estimate,
    conditional_bits,
    half_given,
    joint_bits,
    marginal_bits,
    marginal_questions,
)
from tests.laws import assert_drawn_from
from tests.toys import all_values, toy_joint, toy_model

MAC = RemoveGreatest([2, 0, 3, 1])


def test_joint_bits_are_for_each_variable():
    bits = joint_bits(toy_model("path", MAC), all_values())
    expected = [-math.log2(p) / 4 for p in toy_joint().values()]
    torch.testing.assert_close(bits.rows, torch.tensor(expected, dtype=torch.float64))
    assert bits.value == pytest.approx(sum(expected) / len(expected))
    spread = torch.tensor(expected).std() / len(expected) ** 0.5
    assert bits.se == pytest.approx(float(spread), rel=1e-5)


def test_both_contracts_see_the_same_questions():
    for bits in (marginal_bits, conditional_bits):
        masked, path = (
            bits(toy_model(kind, MAC), all_values(), seed=3) for kind in ("masked", "path")
        )
        difference = masked.minus(path)
        assert difference.value == pytest.approx(0, abs=1e-12)
        assert difference.se == pytest.approx(0, abs=1e-12)


def test_marginal_questions_have_all_sizes_evenly():
    query = marginal_questions(10, 1_000, seed=0).query
    assert torch.bincount(query.sum(dim=1), minlength=11).tolist() == [0] + [100] * 10
    assert_drawn_from(query.nonzero()[:, 1], torch.full((10,), 0.1).double())


def test_half_is_given_and_the_rest_asked():
    given, query = half_given(7, 4_000, seed=0)
    assert torch.equal(query, ~given)
    assert query.any(dim=1).all()
    # 28,000 fair coins: 5 standard errors
    assert abs(given.double().mean() - 0.5) < 5 * 0.5 / 28_000**0.5 + 1 / 2**8


def test_one_row_has_no_standard_error():
    assert math.isnan(Estimate(torch.tensor([1.0])).se)
    assert str(Estimate(torch.tensor([1.0]))) == "1.0000"
    assert repr(Estimate(torch.tensor([1.0]))) == "1.00"
    assert str(Estimate(torch.tensor([1.0, 2.0]))) == "1.5000 ± 0.5000"
