"""Mixtures of logistics over levels: a law, whose parts agree with each other and with a sum."""

import math

import pytest
import torch

from anyorder import AnyOrderModel, RemoveGreatest, Schema, SchemaError, Variable, lexicographic
from anyorder.heads.levels import NARROWEST, LogisticLevelConditionals, LogisticLevels
from anyorder.inference.queries import log_prob
from anyorder.networks.path_transformer import PathTransformer
from anyorder.saving.checkpoint import load_model, save_model
from tests import oracle


def law(levels, *, scale=1.0, edges=5, components=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(levels)
    draw = lambda: torch.randn(edges, components, generator=generator, dtype=dtype)  # noqa: E731
    return LogisticLevels(draw(), (draw() + 0.5) * levels, draw() + math.log(scale), levels)


@pytest.mark.parametrize("levels", [1, 2, 17, 256])
@pytest.mark.parametrize("scale", [NARROWEST, 1.0, 50.0])
def test_probabilities_are_those_of_cells_and_sum_to_one(levels, scale):
    found = law(levels, scale=scale)
    logs = found.table().logits
    assert logs.isfinite().all()
    torch.testing.assert_close(logs.exp().sum(dim=-1), torch.ones(5, dtype=torch.float64))
    for edge in range(5):
        parts = [part[edge].tolist() for part in (found.logits, found.means, found.log_scales)]
        expected = oracle.logistic_levels(*parts, levels)
        torch.testing.assert_close(logs[edge].exp(), torch.tensor(expected, dtype=torch.float64))


def test_far_cells_keep_their_digits():
    found = LogisticLevels(*(torch.tensor([[v]]) for v in (0.0, 10.0, 0.0)), 256)
    logs = found.log_prob(torch.tensor([200]))
    # sigma(-189.5) - sigma(-190.5) in float32 is 0 - 0; its log is -190.5 + log(e - 1)
    torch.testing.assert_close(logs, torch.tensor([-190.5 + math.log(math.e - 1)]))


def test_cdf_and_quantiles_agree():
    found = law(17)
    codes = torch.arange(17)[:, None].expand(-1, 5)
    below = torch.stack([found.cdf(code) for code in codes])
    torch.testing.assert_close(below, found.table().logits.exp().cumsum(-1).T)
    assert (found.cdf(torch.full((5,), -1)) == 0).all()
    assert (found.icdf(below[4] - 1e-9) == 4).all()
    torch.testing.assert_close(found.mean(), found.table().mean())
    assert torch.equal(found.mode(), found.table().logits.argmax(-1))
    assert (found.entropy() > 0).all()
    assert (found.tempered(1e-6).sample() == found.mode()).all()


def test_draws_follow_the_law(generator):
    found, draws = law(9, edges=1), 20_000
    many = LogisticLevels(
        *(part.expand(draws, -1) for part in (found.logits, found.means, found.log_scales)), 9
    )
    counts = torch.bincount(many.sample(generator=generator), minlength=9).double()
    expected = found.table().logits[0].exp() * draws
    assert ((counts - expected) ** 2 / expected).sum() < 26.1  # chi-square, 8: one in a thousand


def test_a_model_of_levels_sums_to_one_is_trained_and_saved(tmp_path):
    schema = Schema(tuple(Variable.categorical(name, range(3)) for name in "abc"))
    network = PathTransformer(schema, layers=1, width=16, heads=2)
    head = LogisticLevelConditionals(schema, width=16, components=2)
    model = AnyOrderModel(schema, network, head, RemoveGreatest(lexicographic(3)))
    x = torch.cartesian_prod(*[torch.arange(3)] * 3)
    assert log_prob(model, x).exp().sum().item() == pytest.approx(1, abs=1e-5)
    model.predict(x, x > 5, torch.zeros(27, 1, dtype=torch.long)).log_prob(
        x[:, :1]
    ).sum().backward()
    assert all(p.grad.isfinite().all() for p in head.parameters())
    save_model(tmp_path, model)
    torch.testing.assert_close(log_prob(load_model(tmp_path), x), log_prob(model, x))


def test_levels_that_differ_are_refused():
    schema = Schema((Variable.categorical("a", range(3)), Variable.categorical("b", range(4))))
    with pytest.raises(SchemaError, match="the same number of levels"):
        LogisticLevelConditionals(schema, width=8)
