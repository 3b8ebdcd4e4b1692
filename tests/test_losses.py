"""The losses are the equations: averaged over what can be drawn, they are the oracle's sums."""

import math

import pytest
import torch

from anyorder import (
    ConditionalQueries,
    ConfigError,
    QueryList,
    RemoveGreatest,
    RemoveRandom,
    UniformCardinality,
    any_queries,
)
from anyorder.enumeration import all_sets, edge_law, node_law
from anyorder.losses import ArdmLoss, MacLoss, PathLoss
from anyorder.query_laws import as_query_law
from tests import oracle
from tests.laws import as_set, assert_drawn_from
from tests.toys import toy_joint, toy_model

N = 4
X = torch.tensor([1, 2, 0, 1])
ORDER = [2, 0, 3, 1]
MAC = RemoveGreatest(ORDER)
JOINT = toy_joint()
LAWS = {
    "marginal": UniformCardinality(N),
    "conditional": ConditionalQueries(N),
    "any": any_queries(N),
    "list": QueryList(N, [([0], [1, 3], 2), ([], [2, 3], 1)]),
}


def log_p(i, e):
    return math.log(oracle.conditional(JOINT, tuple(X.tolist()), frozenset({i}), frozenset(e)))


def expected_log_p(law, **options):
    """The mean of log p(x_i | x_e) over the exact law of edges."""
    edges = edge_law(law, MAC, **options)
    return sum(
        float(mass) * log_p(i, as_set(all_sets(N)[e]))
        for e, row in enumerate(edges)
        for i, mass in enumerate(row)
        if mass > 0
    )


@pytest.mark.parametrize("reweight", [False, True])
@pytest.mark.parametrize("weighting", ["path", "edge"])
@pytest.mark.parametrize("name", ["marginal", "conditional", "any"])
def test_exact_weights_give_the_law_over_edges(name, weighting, reweight):
    """Over all masks, in their shares, Eq. 7 with exact weights is Eq. 6."""
    from anyorder import edge_weights

    law = LAWS[name]
    options = {"weighting": weighting, "reweight": reweight}
    nodes = node_law(edge_law(law, MAC, **options))
    visited = nodes > 0
    observed = all_sets(N)[visited]
    weights = edge_weights(law, MAC, observed, weighting=weighting)
    model = toy_model("masked", MAC)
    losses = MacLoss(law, **options).loss(model, X.expand(len(observed), -1), (observed, weights))
    assert float(nodes[visited] @ losses) == pytest.approx(-expected_log_p(law, **options))


@pytest.mark.parametrize("targets", ["uniform", "exact", "drawn"])
@pytest.mark.parametrize("name", LAWS)
def test_mac_draws_masks_and_weights_that_sum_to_one(name, targets, generator):
    if name == "list" and targets == "exact":
        with pytest.raises(ConfigError, match="has no closed form"):
            MacLoss(LAWS[name], targets=targets).draw(toy_model("masked", MAC), 8)
        return
    objective = MacLoss(LAWS[name], targets=targets)
    observed, weights = objective.draw(toy_model("masked", MAC), 200, generator=generator)
    torch.testing.assert_close(weights.sum(dim=1).double(), torch.ones(200).double())
    assert not weights[observed].any()
    if targets == "uniform":
        assert ((weights > 0) == ~observed).all()
    if targets == "drawn":
        assert ((weights > 0).sum(dim=1) == 1).all()


def test_ardm_draws_every_cardinality_alike(generator):
    observed, weights = ArdmLoss().draw(toy_model("masked", MAC), 40_000, generator=generator)
    sizes = observed.sum(dim=1)
    assert_drawn_from(sizes, torch.full((N,), 1 / N).double())
    assert_drawn_from(
        observed[sizes == 2].long() @ (2 ** torch.arange(N)),
        (all_sets(N).sum(dim=1) == 2).double() / 6,
    )
    assert ((weights > 0) == ~observed).all()


def test_ardm_leaves_missing_values_alone(generator):
    available = torch.tensor([[True, False, True, True]]).expand(500, -1)
    observed, weights = ArdmLoss().draw(
        toy_model("masked", MAC), 500, available=available, generator=generator
    )
    assert not (observed & ~available).any()
    assert not weights[~available].any()


@pytest.mark.parametrize("reweight", [False, True])
@pytest.mark.parametrize("weighting", ["path", "edge"])
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("kind", ["path", "masked"])
def test_one_pass_is_the_law_over_edges(kind, name, weighting, reweight):
    """Over all questions, in their shares, the path loss is Eq. 6, up to its constant."""
    from anyorder.enumeration import _all_questions

    law = as_query_law(LAWS[name])
    given, query = _all_questions(N)
    shares = law.log_prob(given, query).exp()
    asked = shares > 0
    given, query, shares = given[asked], query[asked], shares[asked]
    objective = PathLoss(law, weighting=weighting, reweight=reweight)
    model = toy_model(kind, MAC)
    drawn = (query, given, MAC.rank(query))
    losses = objective.loss(model, X.expand(len(query), -1), drawn)
    c, g = query.sum(dim=1).double(), given.sum(dim=1).double()
    mass = (c if weighting == "edge" else torch.ones_like(c)) * (
        1 + g + (c - 1) / 2 if reweight else 1
    )
    total = float(shares @ mass) / objective._constant(N)
    expected = -expected_log_p(law, weighting=weighting, reweight=reweight) * total
    assert float(shares @ losses) == pytest.approx(expected)


@pytest.mark.parametrize("name", LAWS)
def test_questions_of_one_size_have_the_same_law(name, generator):
    law = as_query_law(LAWS[name])
    digits = []
    for _ in range(6_000):
        given, query = law.sample_one_size(3, generator=generator)
        assert name == "list" or len(query.sum(dim=1).unique()) == 1
        digits.append((query.long() + 2 * given.long())[0])
    codes = torch.stack(digits) @ (3 ** torch.arange(N))
    from anyorder.enumeration import _all_questions

    given, query = _all_questions(N)
    assert_drawn_from(codes, law.log_prob(given, query).exp())


def test_random_protocols_draw_random_paths(generator):
    model = toy_model("path", RemoveRandom())
    query, given, rank = PathLoss(UniformCardinality(N)).draw(model, 50, generator=generator)
    assert len(rank[query.all(dim=1)].unique(dim=0)) != 1
    assert not given.any()


def test_masked_losses_refuse_path_networks():
    with pytest.raises(ConfigError, match="ArdmLoss trains masked networks; use `PathLoss`"):
        ArdmLoss().loss(
            toy_model("path", MAC), X[None], (torch.zeros(1, N).bool(), torch.ones(1, N))
        )
    with pytest.raises(ConfigError, match='`targets` must be one of "uniform", "exact", "drawn"'):
        MacLoss(UniformCardinality(N), targets="all")
