"""Every question of a known joint is answered exactly, whatever the network's contract."""

import math

import pytest
import torch

from anyorder import AnyOrderError, ConfigError, QueryError, RemoveGreatest, RemoveRandom
from anyorder.inference.queries import entropy, information_gain, log_prob, sample, univariates
from anyorder.lattice.enumeration import _all_queries
from tests import oracle
from tests.laws import as_set, assert_drawn_from
from tests.toys import SIZES, all_values, toy_joint, toy_model

KINDS = pytest.mark.parametrize("kind", ["masked", "path"])
MAC = RemoveGreatest([2, 0, 3, 1])
PROTOCOLS = pytest.mark.parametrize("protocol", [MAC, RemoveRandom()], ids=["mac", "rnd"])
JOINT = toy_joint()


@KINDS
@PROTOCOLS
@pytest.mark.parametrize("method", ["walk", "ratio"])
def test_every_marginal_and_conditional_equals_enumeration(kind, protocol, method, generator):
    model = toy_model(kind, protocol)
    given, query = _all_queries(len(SIZES))
    x = all_values()[torch.randint(len(JOINT), (len(given),), generator=generator)]
    expected = [
        math.log(oracle.conditional(JOINT, tuple(row.tolist()), as_set(q), as_set(g)))
        for row, q, g in zip(x, query, given, strict=True)
    ]
    answers = log_prob(
        model, x, query=query, given=given, method=method, max_batch=37, generator=generator
    )
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(answers, expected, atol=1e-10, rtol=0)


@KINDS
def test_the_joint_sums_to_one(kind):
    total = log_prob(toy_model(kind, MAC), all_values()).exp().sum()
    torch.testing.assert_close(total, torch.tensor(1.0, dtype=torch.float64))


@KINDS
def test_orders_of_an_exact_model_agree(kind, generator):
    model = toy_model(kind, RemoveRandom())
    expected = torch.tensor([math.log(p) for p in JOINT.values()], dtype=torch.float64)
    for combine in ("elbo", "mixture"):
        answers = log_prob(model, all_values(), orders=3, combine=combine, generator=generator)
        torch.testing.assert_close(answers, expected)


@KINDS
def test_a_walk_takes_one_pass_or_one_an_edge(kind):
    model = toy_model(kind, MAC)
    log_prob(model, all_values()[:5], query=torch.tensor([True, True, False, True]))
    assert model.network.passes == (1 if kind == "path" else 5 * 3)


@KINDS
def test_univariates_are_all_conditionals_at_once(kind):
    observed = torch.tensor([False, True, False, False])
    answers = univariates(toy_model(kind, MAC), all_values(), observed).log_probs.exp()
    for row, x in enumerate(all_values().tolist()):
        for i in (0, 2, 3):
            for level in range(SIZES[i]):
                value = [*x[:i], level, *x[i + 1 :]]
                expected = oracle.conditional(JOINT, tuple(value), frozenset({i}), frozenset({1}))
                assert answers[row, i, level].item() == pytest.approx(expected)


@KINDS
@PROTOCOLS
@pytest.mark.parametrize("cache", [True, False])
def test_samples_follow_the_conditional(kind, protocol, cache, generator):
    model = toy_model(kind, protocol)
    x = torch.tensor([[1, 2, 0, 0]])
    query, given = (
        torch.tensor([True, False, False, True]),
        torch.tensor([False, True, False, False]),
    )
    draws = sample(model, x, query=query, given=given, n=3_000, cache=cache, generator=generator)[0]
    assert (draws[:, 1] == 2).all()
    assert (draws[:, 2] == 0).all(), "what is not asked is left alone"
    expected = torch.tensor(
        [
            oracle.conditional(JOINT, (a, 2, 0, d), frozenset({0, 3}), frozenset({1}))
            for a in range(2)
            for d in range(2)
        ],
        dtype=torch.float64,
    )
    assert_drawn_from(draws[:, 0] * 2 + draws[:, 3], expected)


@KINDS
def test_greedy_and_top_1_take_the_most_probable_level(kind, generator):
    model = toy_model(kind, MAC)
    x = all_values()
    query, given = (
        torch.tensor([False, True, False, False]),
        torch.tensor([True, False, True, True]),
    )
    greedy = sample(model, x, query=query, given=given, how="greedy")[:, 0]
    top = sample(model, x, query=query, given=given, top_k=1, generator=generator)[:, 0]
    cold = sample(model, x, query=query, given=given, temperature=1e-4, generator=generator)[:, 0]
    best = univariates(model, x, given).log_probs[:, 1].argmax(dim=1)
    assert torch.equal(greedy[:, 1], best)
    assert torch.equal(top, greedy)
    assert torch.equal(cold, greedy)


@KINDS
def test_rows_of_different_length_are_drawn_together(kind, generator):
    model = toy_model(kind, MAC)
    query = torch.tensor([[True, False, False, False], [True, True, True, True], [False] * 4])
    given = torch.tensor([[False, True, True, True], [False] * 4, [True] * 4])
    draws = sample(model, all_values()[:3], query=query, given=given, n=2, generator=generator)
    assert draws.shape == (3, 2, 4)
    assert (draws[0, :, 1:] == all_values()[0, 1:]).all()
    assert (draws[2] == all_values()[2]).all()


@KINDS
def test_entropy_and_information_gain(kind):
    model = toy_model(kind, MAC)
    x = torch.tensor([[0, 2, 1, 0]])
    given = torch.tensor([False, False, True, False])

    def h(members, evidence):
        total = 0.0
        for values in JOINT:
            if values[2] == 1:
                p = oracle.conditional(JOINT, values, frozenset(members), frozenset(evidence))
                weight = oracle.marginal(JOINT, values, frozenset({0, 1, 2, 3}))
                total -= weight * math.log(p)
        return total / oracle.marginal(JOINT, (0, 2, 1, 0), frozenset({2}))

    assert entropy(model, x, 1, given=given).item() == pytest.approx(h({1}, {2}))
    gain = information_gain(model, x, 1, 3, given=given)
    assert gain.item() == pytest.approx(h({1}, {2}) - h({1}, {2, 3}))


X = all_values()[:2]
BAD_QUESTIONS = {
    "both": (
        {"query": torch.tensor([True] * 4), "given": torch.tensor([True] + [False] * 3)},
        "both",
    ),
    "width": ({"query": torch.ones(2, 3).bool()}, "`query` must have shape (batch, 4)"),
    "rows": ({"given": torch.ones(3, 4).bool()}, "`given` must have shape (2, 4)"),
    "dtype": ({"given": torch.ones(2, 4)}, "`given` must be a boolean tensor"),
    "names": ({"query": ["x00"]}, 'There is no variable "x00". Did you mean "x0"?'),
    "number": ({"query": [4]}, "`variable` must be a whole number, from 0 to 3"),
    "one path": ({"orders": 2}, "`orders` needs random orders (RemoveRandom)"),
    "method": ({"method": "bayes"}, '`method` must be one of "walk", "ratio"'),
    "orders": ({"orders": 0}, "`orders` must be a whole number, 1 or more"),
}


@pytest.mark.parametrize("name", BAD_QUESTIONS)
def test_unsound_questions_are_refused(name):
    options, sentence = BAD_QUESTIONS[name]
    with pytest.raises(AnyOrderError) as caught:
        log_prob(toy_model("path", MAC), X, **options)
    assert sentence in str(caught.value)


def test_unknown_codes_are_refused_where_they_are_used():
    model = toy_model("masked", MAC)
    x = torch.tensor([[0, 0, 7, 0]])
    with pytest.raises(QueryError, match='"x2" has 2 levels and row 0 holds 7'):
        log_prob(model, x)
    unused = torch.tensor([True, True, False, True])
    assert log_prob(model, x, query=unused).isfinite().all()
    with pytest.raises(QueryError, match=r"shape \(batch, 4\) with a row or more; got \(0, 4\)"):
        log_prob(model, x[:0])
    for temperature in (0, math.inf, math.nan, "1"):
        with pytest.raises(QueryError, match="`temperature` must be above 0 and finite"):
            sample(model, X, query=unused, temperature=temperature)
    with pytest.raises(QueryError, match="`x` must hold numbers"):
        log_prob(model, X.bool())
    for strange in (0.5, math.nan):
        with pytest.raises(QueryError, match=f'"x0" has 2 levels and row 0 holds {strange}'):
            log_prob(model, torch.full((1, 4), strange))
    with pytest.raises(QueryError, match="`model` must be an AnyOrderModel; got str"):
        log_prob("model", X)
    with pytest.raises(ConfigError, match=r"must be a torch\.Generator; got int"):
        sample(model, X, generator=0)
    with pytest.raises(QueryError, match="both are variable 1"):
        information_gain(model, X, 1, 1)


def test_sets_may_be_lists_of_names_or_numbers():
    model, x = toy_model("path", MAC), all_values()
    asked, known = torch.tensor([[False, True, False, True]]), torch.tensor([[True] + [False] * 3])
    wanted = log_prob(model, x, query=asked.expand(len(x), -1), given=known.expand(len(x), -1))
    assert torch.equal(log_prob(model, x, query=["x1", "x3"], given=["x0"]), wanted)
    assert torch.equal(log_prob(model, x, query=[1, 3], given=(0,)), wanted)
    assert torch.equal(entropy(model, x, "x2", given=["x0"]), entropy(model, x, 2, given=[0]))
