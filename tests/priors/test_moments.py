"""Covariances of many columns with gaps, by pairs."""

import pytest
import torch

from anyorder.priors.moments import FILLED, MOST, in_rows, normal_moments


def test_many_columns_with_gaps_are_known_by_pairs(generator):
    """About as well as by rows without gaps: half of the pairs are there."""
    size, rows = FILLED + 20, MOST
    mixing = torch.randn(3, size, generator=generator).double()
    z = torch.randn(rows, 3, generator=generator).double() @ mixing
    z = z + torch.randn(rows, size, generator=generator).double()
    z = (z - z.mean(dim=0)) / z.std(dim=0)
    have = torch.rand(z.shape, generator=generator) < 0.7
    weights = torch.ones(rows)
    (_, whole), _, _ = normal_moments(z, torch.ones_like(have), weights)
    (center, found), _, _ = normal_moments(z.masked_fill(~have, torch.nan), have, weights)
    assert center.abs().max() < 0.1
    # Correlations of half of 4000 rows have standard errors of 0.02.
    assert (found - whole).abs().max() < 0.1


def test_pairs_that_contradict_each_other_are_a_covariance(generator):
    """a goes with b and b with c, but c goes against a where both are seen."""
    size, rows = FILLED + 2, 900
    z = 0.1 * torch.randn(rows, size, generator=generator).double()
    a = torch.randn(rows, generator=generator).double()
    have = torch.ones_like(z, dtype=torch.bool)
    for part, (left, right, sign) in enumerate(((0, 1, 1), (1, 2, 1), (0, 2, -1))):
        mine = torch.arange(rows) % 3 == part
        z[mine, left], z[mine, right] = a[mine], sign * a[mine]
        have[mine, 3 - left - right] = False
    (_, found), _, _ = normal_moments(z, have, torch.ones(rows))
    assert torch.linalg.cholesky(found).isfinite().all()
    assert found[0, 1] > 0
    assert found[0, 2] < 0


def test_weights_are_worth_rows_whatever_their_unit():
    weights = torch.tensor([1.0, 1.0, 0.0, 2.0])
    for unit in (1.0, 1e-12, 1e9):
        found = in_rows(weights * unit)
        assert found.sum().item() == pytest.approx(16 / 6)  # the square of the sum by the squares'
        torch.testing.assert_close(found / found[0], weights.double())
    assert in_rows(torch.zeros(2)).tolist() == [0, 0]
