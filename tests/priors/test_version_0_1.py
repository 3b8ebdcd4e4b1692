"""The prior of saved models of version 0.1.0: numbers for levels, logits, and their limits."""

import math

import pytest
import torch

from anyorder import Schema, Variable
from anyorder.errors import ConfigError
from anyorder.heads.with_prior import CategoricalWithPrior
from anyorder.priors.normals import NormalPrior
from anyorder.priors.version_0_1 import SHARE, SUREST, LevelPrior, prior_of_0_1
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
    """Scores of mean 0 and deviation 1, and the normal of these."""
    found = LevelPrior(schema)
    for place, variable in enumerate((0, 2, 3)):
        order = torch.tensor([0.0, 2.0, 1.0] if variable == 2 else [0.0, 1.0])
        own = order[x[:, variable].long()]
        found.scores[place, : len(order)] = (order - own.mean()) / own.std()
    found.normal.fit(found._as_numbers(x), torch.ones_like(x, dtype=torch.bool))
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


def test_a_prior_of_0_1_has_normals_for_numbers_and_lines_for_categories():
    numbers = [Variable.continuous(name) for name in "xyz"]
    categories = [Variable.categorical(name, BINARY) for name in "ab"]

    def kinds(variables):
        return [type(part) for part in prior_of_0_1(Schema(tuple(variables))).priors]

    assert kinds(numbers) == [NormalPrior]
    assert kinds(categories) == [LevelPrior]
    assert kinds([*numbers, *categories]) == [NormalPrior, LevelPrior]
    assert kinds([*numbers[:1], *categories[:1]]) == [LevelPrior]


def test_it_cannot_be_fitted(schema, x):
    for prior in (LevelPrior(schema), prior_of_0_1(schema)):
        with pytest.raises(ConfigError, match="fit a new one"):
            prior.fit(x, torch.ones_like(x, dtype=torch.bool))


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
