"""Latent trees: against all assignments of states, frequencies, and refits without a row."""

import itertools

import pytest
import torch

import anyorder as ao
from anyorder import Schema, Variable
from anyorder.inference.model import AnyOrderModel
from anyorder.priors import latent_tree
from anyorder.priors.contract import Prior
from anyorder.priors.latent import FOLDS, UNSEEN, row_keys
from anyorder.priors.latent_tree import LatentTree, TreeFit
from anyorder.priors.trees import cut
from tests.oracle import normal_density, tree_beliefs
from tests.priors.test_latent_classes import (
    ATOMS,
    CATEGORIES,
    NUMBERS,
    SCHEMA,
    density,
    evidence_of,
    mixed_frame,
    sampled,
    some_missing,
)


@pytest.fixture
def few_states(monkeypatch):
    """So few that all assignments can be listed."""
    monkeypatch.setattr(latent_tree, "STATES", 3)
    monkeypatch.setattr(latent_tree, "MOST_CODES", 3)
    monkeypatch.setattr(latent_tree, "FEWEST_STEPS", 20)


@pytest.fixture
def prior(few_states, generator):  # noqa: ARG001
    found = LatentTree(SCHEMA)
    found.fit(*some_missing(sampled(400, generator), generator))
    return found.eval()


def likelihoods(prior, levels, numbers):
    """Of the evidence about each variable given its state."""
    tables = prior.tables.double().exp()
    found = []
    for variable in range(5):
        own = torch.ones(prior.states, dtype=torch.float64)
        if variable in CATEGORIES and CATEGORIES.index(variable) in levels:
            start = int(prior.start[variable])
            own = own * tables[start + levels[CATEGORIES.index(variable)]]
        if variable in NUMBERS and NUMBERS.index(variable) in numbers:
            place = NUMBERS.index(variable)
            own = own * torch.tensor(
                [
                    normal_density(
                        [float(prior.centers[state, place])],
                        [[float(prior.variances[state, place])]],
                        {0: numbers[place]},
                    )
                    for state in range(prior.states)
                ],
                dtype=torch.float64,
            )
        found.append(own.tolist())
    return found


def test_messages_are_those_of_all_assignments(prior, generator):
    x, tables = sampled(4, generator), prior.tables.double().exp()
    root, branch = prior.root.double().exp(), prior.branch.double()
    sets = [known for size in range(5) for known in itertools.combinations(range(5), size)]
    for row, known in itertools.product(x, sets):
        given = torch.zeros(1, 5, dtype=torch.bool)
        given[0, list(known)] = True
        beliefs = tree_beliefs(
            prior.parent.tolist(),
            root.tolist(),
            branch.tolist(),
            likelihoods(prior, *evidence_of(row, known)),
        )
        for target in set(range(5)) - set(known):
            found = prior.ask(prior.encode(row[None], given), torch.tensor([[target]]))[0, 0]
            weights = torch.tensor(beliefs[target], dtype=torch.float64)
            if target in CATEGORIES:
                start, size = int(prior.start[target]), prior.sizes[target]
                expected = tables[start : start + size] @ weights
                torch.testing.assert_close(
                    found.levels[:size].exp().double(), expected, atol=1e-6, rtol=0
                )
            if target in NUMBERS:
                place, value = NUMBERS.index(target), 0.3
                if target == 4:  # of what is elsewhere
                    weights = weights * tables[int(prior.start[4])]
                    weights = weights / weights.sum()
                expected = sum(
                    float(weight)
                    * normal_density(
                        [float(prior.centers[state, place])],
                        [[float(prior.variances[state, place])]],
                        {0: value},
                    )
                    for state, weight in enumerate(weights)
                )
                assert density(found, value) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_a_walk_has_the_message_of_every_step(prior, generator, training, shared):
    """Along one order of all rows, and along one of each."""
    prior.train(training)
    x = sampled(30, generator)
    kind = torch.rand(30, 5, generator=generator)
    given, query = kind < 0.3, kind > 0.5
    rank = torch.rand(1 if shared else 30, 5, generator=generator).argsort(dim=1)
    fast = prior.along(x, query=query, given=given, rank=rank)
    slow = Prior.along(prior, x, query=query, given=given, rank=rank)
    for name in ("levels", "location", "log_scale", "log_weights", "means", "log_deviations"):
        found, expected = (getattr(part, name)[query] for part in (fast, slow))
        if name != "levels":
            is_number = prior.is_number.expand(30, -1)[query]
            found, expected = found[is_number], expected[is_number]
        tolerance = 2e-3 if training else 1e-4  # single precision
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def test_single_questions_take_no_walk(prior, generator):
    x = sampled(30, generator)
    query = torch.zeros(30, 5, dtype=torch.bool)
    query[torch.arange(30), torch.arange(30) % 5] = True
    rank = torch.rand(30, 5, generator=generator).argsort(dim=1)
    fast = prior.along(x, query=query, given=~query, rank=rank)
    slow = Prior.along(prior, x, query=query, given=~query, rank=rank)
    torch.testing.assert_close(fast.levels[query], slow.levels[query], atol=1e-5, rtol=1e-5)


def test_no_message_reads_what_comes_later(prior, generator):
    x, other = sampled(20, generator), sampled(20, generator)
    query, rank = torch.ones(20, 5, dtype=torch.bool), torch.tensor([2, 0, 4, 1, 3])
    first = prior.along(x, query=query, given=~query, rank=rank)
    for variable in range(5):
        later = rank >= rank[variable]
        second = prior.along(other.where(later, x), query=query, given=~query, rank=rank)
        torch.testing.assert_close(first.levels[:, variable], second.levels[:, variable])


def test_what_is_told_counts_as_what_was_given(prior, generator):
    x, every = sampled(20, generator), torch.arange(5).expand(20, -1)
    nothing = torch.zeros(20, 5, dtype=torch.bool)
    order = torch.tensor([3, 0, 4, 1])
    state = prior.encode(x, nothing)
    for variable in order:
        state = prior.tell(state, variable.expand(20, 1), x[:, variable, None])
    given = nothing.clone()
    given[:, order] = True
    told, known = (prior.ask(s, every[:, 2:3]) for s in (state, prior.encode(x, given)))
    torch.testing.assert_close(told.levels, known.levels, atol=1e-5, rtol=1e-5)
    picked = prior.ask(state.at(torch.tensor([4, 4, 7])), every[:3, 2:3])
    torch.testing.assert_close(picked.levels, told.levels[[4, 4, 7]])


def test_without_evidence_levels_have_their_frequencies_and_numbers_their_means(generator):
    x, have = some_missing(sampled(300, generator), generator)
    weights = torch.rand(300, generator=generator)
    weights = weights * weights.sum() / weights.square().sum()  # as many rows as they are worth
    prior = LatentTree(SCHEMA)
    prior.fit(x, have, weights)
    found = prior.eval().alone()
    for variable, size in ((0, 2), (2, 3)):
        there = have[:, variable]
        counts = x[there, variable].long().bincount(weights[there].double(), minlength=size)
        expected = (counts + UNSEEN) / (counts + UNSEEN).sum()
        torch.testing.assert_close(
            found.levels[variable, :size].exp().double(), expected, atol=2e-6, rtol=0
        )
    for variable in NUMBERS:
        there = have[:, variable] & ~torch.isin(x[:, variable], torch.tensor(ATOMS))
        there = there if variable == 4 else have[:, variable]
        mean = (weights * x[:, variable])[there].sum() / weights[there].sum()
        torch.testing.assert_close(found.location[variable], mean, atol=1e-5, rtol=1e-5)


def test_every_message_sums_to_one(prior, generator):
    x, every = sampled(50, generator), torch.arange(5).expand(50, -1)
    given = torch.rand(50, 5, generator=generator) < 0.5
    for training in (False, True):
        found = prior.train(training).ask(prior.encode(x, given), every)
        total = found.levels[:, list(CATEGORIES)].exp().sum(dim=-1)
        torch.testing.assert_close(total, torch.ones_like(total), atol=1e-5, rtol=0)


@pytest.mark.usefixtures("few_states")
def test_in_training_a_row_gets_the_message_of_a_fit_to_the_other_folds(generator):
    x, have = some_missing(sampled(200, generator), generator)
    prior = LatentTree(SCHEMA)
    prior.fit(x, have)
    fold, every = row_keys(x) % FOLDS, torch.arange(5).expand(200, -1)
    given = have & (torch.rand(200, 5, generator=generator) < 0.5)
    mine = prior.train().ask(prior.encode(x, given), every)
    seen = prior.eval().ask(prior.encode(x, given), every)
    assert not torch.allclose(mine.levels, seen.levels, atol=1e-4)
    with prior.leaving_out():
        told = prior.ask(prior.encode(x, given), every)
    torch.testing.assert_close(told.levels, mine.levels, atol=1e-4, rtol=1e-4)
    # The tree and the cuts are those of all rows; the parameters of a fold have not seen its rows.
    cells = prior._cells(x, have, torch.ones(200).double())
    levels = [0 if n else s for n, s in zip(prior.is_number.tolist(), prior.sizes, strict=True)]
    codes, sizes = cut(x, have, levels)
    for number in range(FOLDS):
        others = fold != number
        expected = TreeFit(prior, cells.at(others), codes[others], sizes).fitted()
        for found, part in zip(prior._folds, expected, strict=True):
            torch.testing.assert_close(found[number], part.float())


def test_of_many_rows_two_folds_are_enough(generator, monkeypatch):
    monkeypatch.setattr(latent_tree, "MANY_ROWS", 100)
    x, have = some_missing(sampled(200, generator), generator)
    prior = LatentTree(SCHEMA)
    prior.fit(x, have)
    assert len(prior._folds.root) == 2
    assert set(prior.train()._fold(x).tolist()) == {0, 1}


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_few_rows_are_enough(rows, generator):
    x = sampled(5, generator)[:rows]
    prior = LatentTree(SCHEMA)
    prior.fit(x, torch.ones_like(x).bool())
    found = prior.train().alone()
    assert all(part.isfinite().all() for part in (found.levels, found.location, found.log_scale))


def test_one_column_is_its_frequencies():
    prior = LatentTree(Schema((Variable.categorical("a", list("xyz")),)))
    x = torch.tensor([[0.0], [1.0], [1.0], [2.0]])
    prior.fit(x, torch.ones_like(x).bool())
    expected = torch.tensor([1.5, 2.5, 1.5]) / 5.5
    torch.testing.assert_close(prior.eval().alone().levels[0].exp(), expected)


def test_a_chain_is_learned_from_few_rows(generator):
    """Each of eight columns is as the one before in nine of ten rows; counted and known."""
    keeps = torch.rand(2000, 8, generator=generator) < 0.9
    x = torch.zeros(2000, 8)
    x[:, 0] = (torch.rand(2000, generator=generator) < 0.5).float()
    for i in range(1, 8):
        x[:, i] = x[:, i - 1].where(keeps[:, i], 1 - x[:, i - 1])
    prior = LatentTree(Schema(tuple(Variable.categorical(f"c{i}", [0, 1]) for i in range(8))))
    prior.fit(x, torch.ones_like(x).bool())
    assert all(abs(i - p) == 1 for i, p in enumerate(prior.parent.tolist()) if p >= 0)
    given = torch.zeros(1, 8, dtype=torch.bool)
    given[0, 2] = True
    for target, away in ((3, 1), (5, 3)):
        state = prior.eval().encode(torch.ones(1, 8), given)
        found = prior.ask(state, torch.tensor([[target]])).levels[0, 0, 1].exp()
        share = x[x[:, 2] == 1, target].mean()
        error = (share * (1 - share) / (x[:, 2] == 1).sum()).sqrt()
        assert abs(found - share) < 2 * error
        assert abs(found - 0.5 * (1 + 0.8**away)) < 3 * error


def test_a_tree_alone_agrees_with_itself_on_every_path_and_is_saved(tmp_path):
    frame = mixed_frame()[["kind", "flag"]].assign(other=mixed_frame(seed=5)["kind"])
    model = ao.TableModel(network=None).fit(frame)
    assert isinstance(model.model_, AnyOrderModel)
    assert isinstance(model.model_.network.prior, LatentTree)
    rows, names = frame[:20], list(frame)
    joint = model.log_prob(rows)
    for given in names:
        query = [name for name in names if name != given]
        parts = model.log_prob(rows, query=[given]) + model.log_prob(
            rows, query=query, given=[given]
        )
        assert parts == pytest.approx(joint, abs=2e-5)
    model.save(tmp_path)
    assert ao.TableModel.load(tmp_path).log_prob(rows) == pytest.approx(joint)
