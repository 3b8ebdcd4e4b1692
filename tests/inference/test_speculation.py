"""Speculation draws from the same law, in at most as many passes."""

import pytest
import torch

from anyorder import ConfigError, RemoveGreatest, RemoveRandom
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.inference.speculation import speculative_sample
from anyorder.networks.path_transformer import PathTransformer
from tests.laws import assert_drawn_from
from tests.networks.conftest import schema_of, wake
from tests.toys import SIZES, all_values, toy_joint, toy_model

MAC = RemoveGreatest([2, 0, 3, 1])


def codes(x):
    places = torch.tensor([SIZES[1] * SIZES[2] * SIZES[3], SIZES[2] * SIZES[3], SIZES[3], 1])
    return x @ places


@pytest.mark.parametrize("protocol", [MAC, RemoveRandom()], ids=["mac", "rnd"])
def test_draws_follow_the_joint(protocol, generator):
    model = toy_model("path", protocol)
    drawn = [speculative_sample(model, all_values()[:1], generator=generator) for _ in range(1_500)]
    assert max(one.passes for one in drawn) <= 4
    assert min(one.passes for one in drawn) >= 2
    expected = torch.tensor(list(toy_joint().values()), dtype=torch.float64)
    assert_drawn_from(codes(torch.cat([one.x for one in drawn])), expected)


def test_rows_that_advance_together_keep_their_laws(generator):
    model = toy_model("path", MAC)
    batches = [speculative_sample(model, all_values()[:6], generator=generator) for _ in range(250)]
    expected = torch.tensor(list(toy_joint().values()), dtype=torch.float64)
    assert_drawn_from(codes(torch.cat([one.x for one in batches])), expected)


def test_evidence_is_kept_and_rows_may_differ_in_length(generator):
    model = toy_model("path", MAC)
    query = torch.tensor([[True, False, False, True], [True, True, True, True], [False] * 4])
    given = torch.tensor([[False, True, False, False], [False] * 4, [True] * 4])
    x = all_values()[[5, 9, 20]]
    drawn = speculative_sample(model, x, query=query, given=given, generator=generator).x
    assert torch.equal(drawn[0, 1:3], x[0, 1:3])
    assert torch.equal(drawn[2], x[2])


def test_a_network_draws_from_its_own_law(generator):
    schema = schema_of(2, 2, 2)
    network = wake(PathTransformer(schema, layers=2, width=16, heads=2))
    head = CategoricalConditionals(schema, width=16)
    torch.nn.init.normal_(head.weight, std=0.4)
    model = AnyOrderModel(schema, network, head, RemoveGreatest([0, 1, 2])).eval()
    worlds = torch.cartesian_prod(*[torch.arange(2)] * 3)
    expected = log_prob(model, worlds).exp()
    drawn = speculative_sample(model, worlds[:1].expand(1, 3), generator=generator)
    draws = [speculative_sample(model, worlds[:1], generator=generator).x for _ in range(1_000)]
    assert drawn.passes <= 3
    assert_drawn_from(torch.cat(draws) @ torch.tensor([4, 2, 1]), expected)


def test_masked_networks_are_refused():
    with pytest.raises(ConfigError, match="needs a path network"):
        speculative_sample(toy_model("masked", MAC), all_values()[:1])
