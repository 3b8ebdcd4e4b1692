"""The normal distribution that priors categories: numbers for levels, logits, and its limits."""

import math

import pytest
import torch

from anyorder import Schema, Variable
from anyorder.heads.mixed import MixedConditionals
from anyorder.heads.with_prior import CategoricalWithPrior
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.networks.path_transformer import PathTransformer
from anyorder.priors.contract import NetworkWithPrior
from anyorder.priors.levels import (
    MOST_COLUMNS,
    SHARE,
    SUREST,
    LevelPrior,
    default_prior,
    level_scores,
)
from anyorder.priors.normals import NormalPrior
from tests.oracle import normal_given
from tests.priors import flat, message_of

BINARY, COLOUR = ("no", "yes"), ("red", "green", "blue")


@pytest.fixture
def schema():
    return Schema(
        (
            Variable.categorical("a", BINARY),
            Variable.continuous("b"),
            Variable.categorical("c", COLOUR),
            Variable.categorical("d", BINARY),
            Variable.continuous("e"),
        )
    )


@pytest.fixture
def x(generator):
    """Columns that follow two hidden numbers; blue lies between red and green."""
    hidden = torch.randn(600, 2, generator=generator)
    rows = hidden @ torch.randn(2, 5, generator=generator)
    rows = rows + 0.7 * torch.randn(rows.shape, generator=generator)
    rows[:, 0] = (rows[:, 0] > 0.5).float()
    rows[:, 2] = torch.tensor([0.0, 2.0, 1.0])[(rows[:, 2] > -0.5).long() + (rows[:, 2] > 0.5)]
    rows[:, 3] = (rows[:, 3] > -0.2).float()
    return rows


@pytest.fixture
def prior(schema, x):
    found = LevelPrior(schema)
    found.fit(x, torch.ones_like(x, dtype=torch.bool))
    return found.eval()


def slow(prior, row, known, target):
    """What the prior says by the oracle: of the second of two levels a logit, 0 of numbers."""
    if target in (1, 4):
        return 0.0, 0.0
    numbers = prior._as_numbers(row[None])[0].tolist()
    center, covariance = (part[0].tolist() for part in prior.normal._parts()[1:])
    told = {i: numbers[i] for i in range(5) if known[i]}
    mean, variance = normal_given(center, covariance, told, target)
    low, high = prior.normal.seen[:, target].tolist()
    held = min(max(mean, low), high)
    wide = min(variance + (mean - held) ** 2, covariance[target][target])
    log_deviation = 0.5 * math.log(wide)
    if target == 2:
        return held, log_deviation
    no, yes = prior.scores[prior.place[target], :2].tolist()
    usual = -no / (yes - no)
    least, most = min(SUREST, SHARE * usual), 1 - min(SUREST, SHARE * (1 - usual))
    share = min(max((held - no) / (yes - no), least), most)
    return math.log(share / (1 - share)), log_deviation


def test_paths_and_steps_are_those_of_the_oracle(prior, x, generator):
    given = torch.rand(20, 5, generator=generator) < 0.4
    rank = torch.stack([torch.randperm(5, generator=generator) for _ in given])
    said = flat(prior.along(x[:20], query=~given, given=given, rank=rank))
    for row in range(20):
        state, known = prior.encode(x[row, None], given[row, None]), given[row].clone()
        for target in rank[row].argsort().tolist():
            if given[row, target]:
                continue
            asked = torch.tensor([[target]])
            expected = pytest.approx(slow(prior, x[row], known, target), abs=1e-4)
            assert tuple(said[row, target].tolist()) == expected
            assert tuple(flat(prior.ask(state, asked)).flatten().tolist()) == expected
            state = prior.tell(state, asked, x[row, target].view(1, 1))
            known[target] = True


def test_what_is_not_known_is_not_read(prior, x):
    given = torch.tensor([[True, False, False, True, False]]).expand(50, -1)
    other = x[:50].clone()
    other[:, 1:3] = torch.tensor([9.0, 0.0])
    asked = torch.tensor([[2]]).expand(50, -1)
    for rows in (x[:50], other):
        rows[:, 4] = -3.0
    said = [flat(prior.ask(prior.encode(rows, given), asked)) for rows in (x[:50], other)]
    assert torch.equal(*said)


def test_levels_are_numbered_as_all_else_follows_them_best(generator):
    """No other numbers of mean 0 and deviation 1 have larger squared covariances with the rest."""
    rows = 4000
    codes = torch.randint(4, (rows, 2), generator=generator)
    codes[:, 1] = torch.where(torch.rand(rows, generator=generator) < 0.5, codes[:, 0], codes[:, 1])
    numbers = torch.randn(rows, 2, generator=generator)
    numbers[:, 0] += torch.tensor([0.0, 2.0, -1.0, 0.5])[codes[:, 0]]
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    have = torch.ones(rows, 4, dtype=torch.bool)
    found = level_scores(codes, numbers, have, sizes=[4, 4])
    shares = torch.stack([(codes == level).double().mean(0) for level in range(4)], dim=1)
    hit = torch.nn.functional.one_hot(codes[:, 1], 4).double()
    facets = torch.cat([numbers.double(), (hit - shares[1]) / shares[1].sqrt()], dim=1)

    def followed(scores):
        return float((scores[codes[:, 0]] @ facets / rows).square().sum())

    assert float(shares[0] @ found[0]) == pytest.approx(0, abs=1e-3)
    assert float(shares[0] @ found[0].square()) == pytest.approx(1, abs=1e-3)
    for _ in range(300):
        other = torch.randn(4, generator=generator).double()
        other = other - shares[0] @ other
        other = other / (shares[0] @ other.square()).sqrt()
        assert followed(other) < followed(found[0]) * 1.001


def test_columns_of_another_mean_and_gaps_do_not_number_levels(generator):
    """Zeros that are far from the mean, and gaps that depend on the level, say nothing of it."""
    rows, places = 3000, torch.tensor([-1.2, 0.0, 1.2])
    codes = torch.randint(3, (rows, 1), generator=generator)
    follows = places[codes] + 0.5 * torch.randn(rows, 1, generator=generator)
    spike = torch.where(torch.rand(rows, 1, generator=generator) < 0.9, -2.2, 0.3)
    gappy = 3 + torch.randn(rows, 1, generator=generator)
    have = torch.ones(rows, 4, dtype=torch.bool)
    have[:, 3] = torch.rand(rows, generator=generator) < torch.tensor([0.9, 0.1, 0.9])[codes[:, 0]]
    found = level_scores(codes, torch.cat([follows, spike, gappy], dim=1), have, sizes=[3])[0]
    found = found * found[2].sign()
    torch.testing.assert_close(found.float(), places, atol=0.15, rtol=0)


def test_one_row_of_great_weight_leaves_numbers_of_deviation_1(generator):
    codes = torch.randint(3, (2000, 1), generator=generator)
    numbers = codes + torch.randn(2000, 1, generator=generator)
    weights = torch.ones(2000)
    weights[0] = 100
    have = torch.ones(2000, 2, dtype=torch.bool)
    found = level_scores(codes, numbers, have, weights, sizes=[3])[0]
    spread = (weights @ found[codes[:, 0]].square().float()) / weights.sum()
    assert float(spread) == pytest.approx(1, abs=0.1)


def test_weights_have_no_unit_and_gaps_are_not_read(schema, x, generator):
    have = torch.rand(x.shape, generator=generator) < 0.8
    weights = torch.rand(len(x), generator=generator)
    priors = [LevelPrior(schema) for _ in range(3)]
    priors[0].fit(x, have, weights)
    priors[1].fit(x, have, weights * 1e-9)
    priors[2].fit(x.masked_fill(~have, torch.nan), have, weights)
    for other in priors[1:]:
        for name, buffer in priors[0].state_dict().items():
            torch.testing.assert_close(buffer, other.state_dict()[name])


def test_a_level_without_rows_is_possible_and_a_column_without_any_says_nothing(schema, x):
    have = torch.ones_like(x, dtype=torch.bool)
    have[:, 2] = False
    x[:, 0] = 0
    prior = LevelPrior(schema)
    prior.fit(x, have)
    given = torch.tensor([[False, True, False, True, True]]).expand(30, -1)
    for target in (0, 2, 3):
        said = prior.ask(prior.encode(x[:30], given), torch.tensor([[target]]).expand(30, -1))
        assert flat(said).isfinite().all()
    said = prior.ask(prior.encode(x[:30], given), torch.tensor([[0]]).expand(30, -1))
    assert (said.location.sigmoid() < 0.02).all()


def test_an_untrained_model_knows_pairs_of_categories(generator):
    """The best linear guess of one indicator from another is the share of rows, exactly."""
    schema = Schema(tuple(Variable.categorical(name, BINARY) for name in "ab"))
    a = (torch.rand(4000, generator=generator) < 0.3).float()
    b = (torch.rand(4000, generator=generator) < torch.where(a == 1, 0.9, 0.2)).float()
    x = torch.stack([a, b], dim=1)
    torch.manual_seed(0)
    inner = PathTransformer(schema, layers=1, width=16, heads=2, positions="absolute", shared=False)
    prior = default_prior(schema)
    prior.fit(x, torch.ones_like(x, dtype=torch.bool))
    network = NetworkWithPrior(schema, inner, prior)
    conditionals = MixedConditionals(schema, width=16, components=prior.components)
    model = AnyOrderModel(schema, network, conditionals, RemoveGreatest(lexicographic(2))).eval()
    asked = torch.tensor([[False, True]]).expand(2, -1)
    rows = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    found = log_prob(model, rows, query=asked, given=~asked).exp()
    truth = torch.stack([b[a == 0].mean(), b[a == 1].mean()])
    # The head says little of its own at first: a tenth of features of deviation one.
    torch.testing.assert_close(found.float(), truth, atol=0.08, rtol=0)


def test_heads_believe_two_levels_and_learn_to_read_several():
    """At first the logit is added to two levels; a gradient leads to the reading of three."""
    schema = Schema((Variable.categorical("a", BINARY), Variable.categorical("b", COLOUR)))
    heads = CategoricalWithPrior(schema, width=4)
    variables, odds = torch.tensor([0, 0, 1]), torch.tensor([1.5, -2.0, 1.5])
    message = message_of(torch.stack([odds, torch.zeros(3)], dim=1))
    logs = heads(torch.zeros(3, 4), variables, message).log_probs
    ratio = logs[:2, 1] - logs[:2, 0]
    torch.testing.assert_close(ratio, odds[:2], atol=1e-5, rtol=0)
    assert (logs[:2, 2] == -math.inf).all()
    torch.testing.assert_close(logs[2].exp(), torch.full((3,), 1 / 3))
    torch.testing.assert_close(logs.exp().sum(dim=1), torch.ones(3))
    logs[2, 1].backward()
    assert heads.reading.grad[1, 1, 0] > 0
    assert heads.gate.bias.grad[0] == 0


def kinds(schema):
    prior = default_prior(schema)
    return [] if prior is None else [type(part) for part in prior.priors]


def test_which_priors_there_are():
    number, category = Variable.continuous, Variable.categorical
    numbers = [number(f"n{i}") for i in range(3)]
    categories = [category(f"c{i}", BINARY) for i in range(MOST_COLUMNS)]
    assert kinds(Schema(tuple(numbers))) == [NormalPrior]
    assert kinds(Schema(tuple(categories))) == [LevelPrior]
    assert kinds(Schema((*numbers, *categories[:2]))) == [NormalPrior, LevelPrior]
    assert kinds(Schema((*numbers[:1], *categories[:1]))) == [LevelPrior]
    assert kinds(Schema(tuple(categories[:1]))) == []
    assert kinds(Schema((*numbers, *categories))) == [NormalPrior]
    context = category("always given", BINARY, context=True)
    assert kinds(Schema((*numbers[:1], context))) == []
