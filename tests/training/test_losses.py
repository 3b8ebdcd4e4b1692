"""The losses are the equations: averaged over what can be drawn, they are the oracle's sums."""

import math
from itertools import product

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
    edge_weights,
)
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.lattice.enumeration import _all_queries, all_sets, edge_law, node_law
from anyorder.lattice.query_laws import as_query_law
from anyorder.networks.path_transformer import PathTransformer
from anyorder.training.losses import (
    ArdmLoss,
    EitherLoss,
    MacLoss,
    PathLoss,
    informative,
    whole_first,
)
from anyorder.variables import Schema, Variable
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


def by_mass(law, weighting, reweight):
    """All questions, and their shares when they are drawn by the mass of their edges."""
    given, query = _all_queries(N)
    shares = law.log_prob(given, query).exp()
    c, g = query.sum(dim=1).double(), given.sum(dim=1).double()
    shares = shares * (c if weighting == "edge" else 1) * (1 + g + (c - 1) / 2 if reweight else 1)
    shares = shares * (c > 0)
    return given, query, shares / shares.sum()


@pytest.mark.parametrize("reweight", [False, True])
@pytest.mark.parametrize("weighting", ["path", "edge"])
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("kind", ["path", "masked"])
def test_one_pass_is_the_law_over_edges(kind, name, weighting, reweight):
    """Over all questions, in the shares in which they are drawn, the path loss is Eq. 6."""
    law = as_query_law(LAWS[name])
    given, query, shares = by_mass(law, weighting, reweight)
    given, query, shares = (t[shares > 0] for t in (given, query, shares))
    objective = PathLoss(law, weighting=weighting, reweight=reweight)
    drawn = (query, given, MAC.rank(query), torch.ones(len(query)))
    losses = objective.loss(toy_model(kind, MAC), X.expand(len(query), -1), drawn)
    expected = -expected_log_p(law, weighting=weighting, reweight=reweight)
    assert float(shares @ losses) == pytest.approx(expected)


@pytest.mark.parametrize("one_size", [False, True])
@pytest.mark.parametrize("reweight", [False, True])
@pytest.mark.parametrize("weighting", ["path", "edge"])
@pytest.mark.parametrize("name", LAWS)
def test_questions_are_drawn_by_mass(name, weighting, reweight, one_size, generator):
    law, model = as_query_law(LAWS[name]), toy_model("path", MAC)
    objective = PathLoss(law, weighting=weighting, reweight=reweight, one_size=one_size)
    rows = 3 if one_size else 3_000
    found = []
    for _ in range(3_000 // rows if not one_size else 3_000):
        query, given, _, mass = objective.draw(model, rows, generator=generator)
        assert (mass == 1).all()
        if one_size and name != "list":
            assert len(query.sum(dim=1).unique()) == 1
        found.append((query.long() + 2 * given.long())[: 1 if one_size else None])
    codes = torch.cat(found) @ (3 ** torch.arange(N))
    assert_drawn_from(codes, by_mass(law, weighting, reweight)[2])


def test_rows_with_gaps_count_by_the_mass_of_their_edges(generator):
    available = torch.tensor([[True] * 4, [True, False, False, True]])
    model = toy_model("path", MAC)
    for weighting, expected in (("edge", [1, 0.5]), ("path", [1, 1])):
        objective = PathLoss(UniformCardinality(N), weighting=weighting)
        query, _, _, mass = objective.draw(model, 2, available=available, generator=generator)
        assert mass.tolist() == pytest.approx(expected)
        assert not (query & ~available).any()
        masked = MacLoss(UniformCardinality(N), weighting=weighting, reweight=False)
        _, weights = masked.draw(model, 2, available=available, generator=generator)
        assert weights.sum(dim=1).tolist() == pytest.approx(expected)


def test_random_protocols_draw_random_paths(generator):
    model = toy_model("path", RemoveRandom())
    query, given, rank, _ = PathLoss(UniformCardinality(N)).draw(model, 50, generator=generator)
    assert len(rank[query.all(dim=1)].unique(dim=0)) != 1
    assert not given.any()


def test_a_path_network_is_asked_for_many_variables_at_once(generator):
    schema = Schema(tuple(Variable.categorical(f"v{i}", [0, 1, 2]) for i in range(N)))
    network = PathTransformer(schema, layers=2, width=16, heads=2)
    model = AnyOrderModel(schema, network, CategoricalConditionals(schema, width=16), MAC)
    x = torch.randint(3, (6, N), generator=generator)
    for one_size in (False, True):
        objective = ArdmLoss(one_size=one_size)
        observed, weights = drawn = objective.draw(model, 6, generator=generator)
        assert not one_size or len(observed.sum(dim=1).unique()) == 1
        losses = objective.loss(model, x, drawn)
        for row in range(6):  # one question after another, each a path of one edge
            asked = [
                -weights[row, i] * log_prob(model, x[[row]], query=[i], given=observed[row])[0]
                for i in (~observed[row]).nonzero().flatten().tolist()
            ]
            assert losses[row].item() == pytest.approx(sum(asked).item(), abs=1e-5)
        losses.sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_sizes_of_one_size_batches_are_uniform(generator):
    model = toy_model("masked", MAC)
    sizes = [
        int(ArdmLoss(one_size=True).draw(model, 2, generator=generator)[0][0].sum())
        for _ in range(4000)
    ]
    shares = torch.tensor(sizes).bincount(minlength=N) / 4000
    torch.testing.assert_close(shares, torch.full((N,), 1 / N), atol=0.04, rtol=0)


def test_either_loss_takes_each_as_often_as_it_should(generator):
    model = toy_model("path", MAC)
    path = PathLoss(UniformCardinality(N))
    either = EitherLoss([path, ArdmLoss()], [3, 1])
    assert either.law is path.law
    chosen = []
    for _ in range(2000):
        choice, *rest = drawn = either.draw(model, 3, generator=generator)
        assert len(choice.unique()) == 1
        chosen.append(int(choice[0]))
    torch.testing.assert_close(
        either.loss(model, X.expand(3, -1), drawn),
        either.objectives[chosen[-1]].loss(model, X.expand(3, -1), tuple(rest)),
    )
    assert sum(chosen) / 2000 == pytest.approx(0.25, abs=0.04)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.25, 0.5), (0.5, 0.0), (1.0, 0.0)])
def test_whole_rows_come_first(share, expected):
    law, model = LAWS["list"], toy_model("path", MAC)  # never asks for whole rows
    objective = EitherLoss([whole_first(law), ArdmLoss()], [3, 1]).after(share)
    assert objective.law is law
    generator = torch.Generator().manual_seed(0)
    singles = wholes = 0
    for _ in range(400):
        choice, *drawn = objective.draw(model, 4, generator=generator)
        if choice[0]:
            singles += 1
        else:
            query = drawn[1]
            wholes += bool(query.all())
    assert singles / 400 == pytest.approx(0.25, abs=0.07)  # whatever comes first beside them
    assert wholes / (400 - singles) == pytest.approx(expected, abs=0.15)


def test_odd_options_are_refused():
    with pytest.raises(ConfigError, match="`weights` must hold 1 numbers"):
        EitherLoss([ArdmLoss()], [1, 2])
    with pytest.raises(ConfigError, match='`targets` must be one of "uniform", "exact", "drawn"'):
        MacLoss(UniformCardinality(N), targets="all")


def test_edges_of_completed_rows_that_count_are_those_of_the_definition():
    """By brute force: an imputed target counts unless all observed values are in its context."""
    source = torch.Generator().manual_seed(0)
    observed, given, query = (torch.rand(200, 5, generator=source) < 0.5 for _ in range(3))
    query = (query | (torch.arange(5) == 2)) & ~given
    rank = torch.rand(200, 5, generator=source).argsort(dim=1)
    found = informative(observed, query, given, rank)
    for row in range(200):
        for target in query[row].nonzero().flatten().tolist():
            before = query[row] & (rank[row] < rank[row, target])
            context = given[row] | before
            seen_all = bool((context | ~observed[row]).all())
            assert found[row, target] == (bool(observed[row, target]) or not seen_all)


def test_wrong_imputations_leave_conditionals_that_are_observed_right():
    """Exactly, by enumeration: x2 = x1 in 0.9; x2 is observed in 0.9 if x1 = 0, in 0.1 if x1 = 1.

    Whatever x2 is imputed as, p(x2 | x1) is estimated from observed values alone; p(x2) uses both.
    """
    imputed = {0: 0.4, 1: 0.3}  # a bad model of p(x2 = 1 | x1)
    path = torch.tensor([[0, 1]])
    both = torch.ones(1, 2, dtype=torch.bool)
    nothing = torch.zeros_like(both)
    mass = {"given x1": torch.zeros(2, 2), "alone": torch.zeros(2)}
    for x1, is_observed, x2 in product((0, 1), (True, False), (0, 1)):
        truth = 0.9 if x2 == x1 else 0.1
        chance = 0.5 * ((0.9, 0.1) if is_observed else (0.1, 0.9))[x1]
        guessed = imputed[x1] if x2 else 1 - imputed[x1]
        chance *= truth if is_observed else guessed
        observed = torch.tensor([[True, is_observed]])
        if informative(observed, both, nothing, path)[0, 1]:
            mass["given x1"][x1, x2] += chance
        second = torch.tensor([[False, True]])
        if informative(observed, second, nothing, path)[0, 1]:
            mass["alone"][x2] += chance
    shares = mass["given x1"][:, 1] / mass["given x1"].sum(dim=1)
    assert shares.tolist() == pytest.approx([0.1, 0.9])
    assert float(mass["alone"].sum()) == pytest.approx(1.0)
    expected = 0.5 * (0.9 * 0.1 + 0.1 * 0.4) + 0.5 * (0.1 * 0.9 + 0.9 * 0.3)
    assert float(mass["alone"][1]) == pytest.approx(expected)
