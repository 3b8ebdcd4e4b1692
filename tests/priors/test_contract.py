"""A prior that has only `fit` and `ask`: walked, sampled from, saved, and refused where unread."""

import pytest
import torch

from anyorder import Schema, Variable
from anyorder.errors import ConfigError
from anyorder.heads.mixed import MixedConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob, sample
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.networks.contracts import Features, PriorMessage
from anyorder.networks.path_transformer import PathTransformer
from anyorder.priors.contract import MUCH, NetworkWithPrior, Prior
from anyorder.priors.latent_tree import LatentTree
from anyorder.saving.checkpoint import load_model, save_model
from tests.priors import flat, message_of

SCHEMA = Schema(tuple(Variable.categorical(name, ["no", "yes"]) for name in "abcd"))


class Votes(Prior):
    """The log-odds of each variable are its own, and one more for each "yes" that is known."""

    def __init__(self, schema):
        super().__init__(schema)
        self.register_buffer("odds", torch.zeros(len(schema)))

    def fit(self, x, have, weights=None, *, units=None):  # noqa: ARG002
        self.odds.copy_((x.sum(dim=0) / have.sum(dim=0)).logit())

    def ask(self, state, variables):
        votes = (state.x * state.given).sum(dim=1, keepdim=True)
        location = self.odds[variables] + votes
        none = location.new_zeros(*location.shape, 0)
        return PriorMessage(location, torch.zeros_like(location), none, none, none)


@pytest.fixture
def x(generator):
    return (torch.rand(30, 4, generator=generator) < 0.4).float()


@pytest.fixture
def model(x):
    torch.manual_seed(0)
    inner = PathTransformer(SCHEMA, layers=1, width=8, heads=2, positions="absolute", shared=False)
    prior = Votes(SCHEMA)
    prior.fit(x, torch.ones_like(x, dtype=torch.bool))
    conditionals = MixedConditionals(SCHEMA, width=8, components=prior.components)
    protocol = RemoveGreatest(lexicographic(4))
    network = NetworkWithPrior(SCHEMA, inner, prior)
    return AnyOrderModel(SCHEMA, network, conditionals, protocol).eval()


def test_a_path_has_the_message_of_each_of_its_steps(model, x, generator):
    given = torch.rand(30, 4, generator=generator) < 0.3
    rank = torch.arange(4).expand(30, -1)
    path = model.network(x, ~given, given, rank)
    for row, target, found in zip(path.row, path.target, path.prior.location, strict=True):
        known = given[row] | (torch.arange(4) < target)
        assert found == model.network.prior.odds[target] + (x[row] * known).sum()


def test_walks_with_a_cache_and_without_agree(model, x):
    given = torch.tensor([[True, False, False, False]]).expand(30, -1)
    options = {"query": ~given, "given": given, "n": 3}
    sources = [torch.Generator().manual_seed(0) for _ in range(2)]
    pairs = zip((True, False), sources, strict=True)
    found = [sample(model, x, cache=cache, generator=s, **options) for cache, s in pairs]
    assert torch.equal(*found)


def test_a_prior_is_saved_by_its_name(model, x, tmp_path):
    save_model(tmp_path, model)
    everything = torch.ones(30, 4, dtype=torch.bool)
    found, expected = (
        log_prob(m, x, query=everything, given=~everything) for m in (load_model(tmp_path), model)
    )
    assert torch.equal(found, expected)
    assert isinstance(load_model(tmp_path).network.prior, Votes)


def test_heads_and_networks_have_a_prior_together(model):
    conditionals = MixedConditionals(SCHEMA, width=8)
    with pytest.raises(ConfigError, match="must both have a prior, or neither"):
        AnyOrderModel(SCHEMA, model.network, conditionals, model.protocol)
    with pytest.raises(ConfigError, match="must both have a prior, or neither"):
        AnyOrderModel(SCHEMA, model.network.network, model.conditionals, model.protocol)


def test_features_are_selected_and_joined_with_their_messages():
    numbers = torch.arange(40.0).view(2, 2, 10)
    whole = Features(numbers[..., :5], message_of(numbers[..., 5:]))
    parts = Features.cat([whole[:1], whole[1:]])
    assert torch.equal(parts.own, whole.own)
    assert torch.equal(flat(parts.prior), numbers[..., 5:])
    picked = whole[torch.tensor([1, 0]), torch.tensor([0, 1])]
    assert torch.equal(flat(picked.prior), numbers[[1, 0], [0, 1], 5:])
    assert Features(numbers)[0].prior is None


def test_messages_are_kept_for_queries_that_are_asked_again(model, x, generator, monkeypatch):
    kind = torch.rand(30, 4, generator=generator)
    parts = {"query": kind < 0.5, "given": kind > 0.7}
    expected, kept, asked = log_prob(model, x, **parts), {}, []
    along = Votes.along
    monkeypatch.setattr(Votes, "along", lambda *a, **k: asked.append(1) or along(*a, **k))
    with model.network.remembering(kept):
        first = log_prob(model, x, **parts)
        calls = len(asked)
        again = log_prob(model, x, **parts)
        assert len(asked) == calls > 0
        log_prob(model, 1 - x, **parts)
        assert len(asked) == 2 * calls
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(again, expected)
    log_prob(model, x, **parts)
    assert len(asked) == 3 * calls


def counted(schema, query, given):
    """Known variables as a network with a prior counts them, along the columns and step by step."""
    inner = PathTransformer(schema, layers=1, width=8, heads=2, positions="absolute", shared=False)
    network = NetworkWithPrior(schema, inner, LatentTree(schema)).eval()
    x = torch.zeros(len(query), len(schema))
    path = network(x, query, given, torch.arange(query.shape[1]))
    along = {
        (int(r), int(t)): int(k) for r, t, k in zip(*path[1:4:2], path.prior.known, strict=True)
    }
    for row in range(len(query)):
        state = network.encode(x[row, None], given[row, None])
        for target in query[row].nonzero().flatten().tolist():
            asked = torch.tensor([[target]])
            assert int(network.message(state, asked).known) == along[row, target]
            state = network.tell(state, asked, x[row, target].view(1, 1))
    return along


def test_known_variables_are_counted_and_a_number_opens_the_gate_to_another():
    kinds = Variable.categorical("a", [0, 1]), Variable.continuous("u"), Variable.continuous("v")
    schema = Schema((*kinds, Variable.categorical("b", [0, 1])))
    query = torch.tensor([[True, True, True, True], [True, False, True, True]])
    given = torch.tensor([[False] * 4, [False, True, False, False]])
    assert counted(schema, query, given) == {
        **{(0, 0): 0, (0, 1): 1, (0, 2): MUCH, (0, 3): 3},
        **{(1, 0): 1, (1, 2): MUCH, (1, 3): 3},
    }


def test_context_opens_the_gate_for_all():
    """A tree does not read context: the answer to p(a | context) is the network's."""
    schema = Schema(
        (
            Variable.categorical("a", [0, 1]),
            Variable.categorical("b", [0, 1]),
            Variable.categorical("c", [0, 1], context=True),
        )
    )
    query = torch.tensor([[True, True]])
    assert counted(schema, query, ~query) == {(0, 0): MUCH, (0, 1): MUCH}
