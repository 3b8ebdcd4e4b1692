"""Latent trees: against all assignments of states, frequencies, and refits without a row."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

import anyorder as ao
from anyorder import Schema, Variable
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob
from anyorder.priors import latent_tree, tree_fit
from anyorder.priors.contract import Prior
from anyorder.priors.latent_tree import FOLDS, LatentTree, row_keys
from anyorder.priors.tree_fit import UNSEEN, TreeFit, cut
from tests.oracle import normal_density, tree_beliefs

ATOMS = (-1.0, 0.5)
SCHEMA = Schema(
    (
        Variable.categorical("a", ["no", "yes"]),
        Variable.continuous("u"),
        Variable.categorical("b", [0, 1, 2]),
        Variable.continuous("v"),
        Variable.continuous("w", atoms=ATOMS),
    )
)
CATEGORIES, NUMBERS = (0, 2, 4), (1, 3, 4)


def sampled(rows, generator):
    """Two clusters; w is often one of two values."""
    z = (torch.rand(rows, generator=generator) < 0.4).float()
    noise = torch.randn(rows, 3, generator=generator)
    coins = torch.rand(rows, 3, generator=generator)
    a = (coins[:, 0] < 0.2 + 0.6 * z).float()
    b = (3 * coins[:, 1] ** (1 + z)).floor()
    u = 2 * z - 1 + 0.4 * noise[:, 0]
    v = 0.8 * noise[:, 0] + 0.3 * noise[:, 1] - z
    w = torch.where(coins[:, 2] < 0.3, ATOMS[0], torch.where(coins[:, 2] < 0.6, ATOMS[1], z))
    w = torch.where(coins[:, 2] < 0.6, w, noise[:, 2] + z)
    return torch.stack([a, u, b, v, w], dim=1)


def some_missing(x, generator):
    have = torch.rand(x.shape, generator=generator) < 0.9
    return x.masked_fill(~have, 0), have


def evidence_of(row, known):
    """Levels and numbers that are known, as the oracle has them."""
    levels, numbers = {}, {}
    for variable in known:
        value = row[variable].item()
        if variable in (0, 2):
            levels[CATEGORIES.index(variable)] = int(value)
        elif variable == 4 and value in ATOMS:
            levels[2] = 1 + ATOMS.index(value)
        else:
            numbers[NUMBERS.index(variable)] = value
            if variable == 4:
                levels[2] = 0
    return levels, numbers


def density(message, value):
    logs, means, log_deviations = message.states.double()  # of one edge
    away = (value - means) / log_deviations.exp()
    terms = logs - 0.5 * away.square() - log_deviations - 0.5 * math.log(2 * math.pi)
    return terms.logsumexp(dim=-1).exp().item()


def mixed_frame(rows=300, seed=0):
    source = np.random.default_rng(seed)
    kind = source.choice(["x", "y", "z"], rows, p=[0.5, 0.3, 0.2])
    size = (kind == "x") + source.normal(size=rows).round(3)
    return pd.DataFrame(
        {
            "kind": kind,
            "flag": source.random(rows) < 0.2 + 0.6 * (kind == "y"),
            "size": size,
            "count": source.poisson(1 + 2.0 * (kind == "z")),
        }
    )


@pytest.fixture
def few_states(monkeypatch):
    """So few that all assignments can be listed."""
    monkeypatch.setattr(tree_fit, "STATES", 3)
    monkeypatch.setattr(tree_fit, "MOST_CODES", 3)
    monkeypatch.setattr(tree_fit, "FEWEST_STEPS", 20)


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
            start = int(prior.columns.start[variable])
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
                start, size = int(prior.columns.start[target]), prior.columns.sizes[target]
                expected = tables[start : start + size] @ weights
                torch.testing.assert_close(
                    found.levels[:size].exp().double(), expected, atol=1e-6, rtol=0
                )
            if target in NUMBERS:
                place, value = NUMBERS.index(target), 0.3
                if target == 4:  # of what is elsewhere
                    weights = weights * tables[int(prior.columns.start[4])]
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
@pytest.mark.parametrize("kind_of_order", ["shared", "columns", "own"])
def test_a_walk_has_the_message_of_every_step(
    prior, generator, training, kind_of_order, monkeypatch
):
    """Along one order of all rows, along that of the columns, and along one of each."""
    prior.train(training)
    x = sampled(30, generator)
    kind = torch.rand(30, 5, generator=generator)
    given, query = kind < 0.3, kind > 0.5
    rank = torch.rand(30, 5, generator=generator).argsort(dim=1)
    if kind_of_order == "shared":
        rank = rank[:1]
    if kind_of_order == "columns":  # steps are counted among the queried variables of each row
        rank = (query.cumsum(dim=1) - 1).masked_fill(~query, 9)
    slow = Prior.along(prior, x, query=query, given=given, rank=rank)
    if kind_of_order != "own":
        monkeypatch.setattr(Prior, "along", None)  # not taken
    fast = prior.along(x, query=query, given=given, rank=rank)
    for name in ("levels", "states"):
        found, expected = (getattr(part, name)[query] for part in (fast, slow))
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
        logs, means, _ = found.states[variable]
        torch.testing.assert_close(logs.exp() @ means, mean, atol=1e-5, rtol=1e-5)


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
    cells = prior.columns.cells(x, have, torch.ones(200).double())
    codes, sizes = cut(x, have, prior.columns.codes_of)
    for number in range(FOLDS):
        others = fold != number
        own = cells.at(others), codes[others], sizes
        expected = TreeFit(prior.columns, prior.tree, *own, balanced=True).fitted()
        for found, part in zip(prior._folds, expected, strict=True):
            torch.testing.assert_close(found[number], part.float())


def test_completed_rows_have_the_folds_of_the_rows_that_were_read(generator):
    x = sampled(500, generator)
    raw, have = some_missing(x, generator)
    prior = LatentTree(SCHEMA, balanced=False)
    prior.fit(raw, have)
    folds = prior.eval()._fold(raw)
    assert not torch.equal(prior._fold(x), folds)
    prior.stand_in(x, raw)
    assert torch.equal(prior._fold(x), folds)
    assert torch.equal(prior._fold(raw), folds)


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
    assert all(part.isfinite().all() for part in (found.levels, found.states))


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


def test_equal_rows_are_dealt_to_all_folds():
    """Left out together, they would make what is common rare."""
    schema = Schema((Variable.categorical("a", [0, 1]), Variable.categorical("b", [0, 1])))
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).repeat_interleave(torch.tensor([90, 10]), dim=0)
    prior = LatentTree(schema)
    prior.fit(x, torch.ones_like(x).bool())
    folds = prior._dealt(x)
    assert folds[:90].bincount(minlength=FOLDS).tolist() == [18] * FOLDS
    assert folds[90:].bincount(minlength=FOLDS).tolist() == [2] * FOLDS
    torch.manual_seed(0)
    drawn = prior.train()._fold(x[:1].expand(1000, -1)).bincount(minlength=FOLDS)
    assert (drawn - 200).abs().max() < 70
    nothing = torch.zeros(100, 2, dtype=torch.bool)
    every = torch.arange(2).expand(100, -1)
    found = prior.ask(prior.encode(x, nothing), every).levels.exp()
    torch.testing.assert_close(found[..., 0], torch.full((100, 2), 0.9), atol=0.01, rtol=0)


@pytest.fixture(scope="module")
def alone():
    return ao.TableModel(network=None).fit(mixed_frame())


def test_a_prior_alone_agrees_with_itself_on_every_path(alone):
    frame, names = mixed_frame(20, seed=1), ["kind", "flag", "size", "count"]
    joint = alone.log_prob(frame)
    for size in (1, 2, 3):
        for given in itertools.combinations(names, size):
            query = [name for name in names if name not in given]
            marginal = alone.log_prob(frame, query=list(given))
            conditional = alone.log_prob(frame, query=query, given=list(given))
            assert marginal + conditional == pytest.approx(joint, abs=2e-5)  # path, and ratio


def test_a_prior_alone_sums_over_what_is_left_out(alone):
    frame = mixed_frame(10, seed=2)
    expected = np.exp(alone.log_prob(frame, query=["flag", "count"]))
    by_levels = sum(
        np.exp(alone.log_prob(frame.assign(kind=kind), query=["kind", "flag", "count"]))
        for kind in "xyz"
    )
    assert by_levels == pytest.approx(expected, rel=1e-5)
    model, place = alone.model_, alone.table_.schema.index("size")
    x, _ = alone.table_.encode(frame)
    query = torch.ones(4, dtype=torch.bool)
    grid = torch.linspace(-12, 12, 4001)
    many = x.repeat_interleave(len(grid), dim=0)
    many[:, place] = grid.repeat(len(x))
    logs = log_prob(model, many, query=query).view(len(x), -1)
    mass = torch.trapezoid(logs.exp(), grid.double())
    query[place] = False
    marginal = log_prob(model, x, query=query).exp()
    torch.testing.assert_close(mass, marginal, atol=0, rtol=1e-4)


def test_a_prior_alone_is_saved(alone, tmp_path):
    frame = mixed_frame(10, seed=3)
    alone.save(tmp_path)
    assert ao.TableModel.load(tmp_path).log_prob(frame) == pytest.approx(alone.log_prob(frame))
    folder = tmp_path / "run"
    ao.TableModel(network=None).fit(mixed_frame(), folder=folder)
    assert ao.TableModel.load(folder).log_prob(frame) == pytest.approx(alone.log_prob(frame))
    assert len(alone.sample(7, given={"kind": "x"}, random_state=0)) == 7


@pytest.mark.parametrize("members", [1, 2])
def test_without_evidence_a_trained_model_has_the_frequencies(members, tmp_path):
    frame = mixed_frame().astype({"flag": object})
    frame.loc[::7, "flag"] = None
    model = ao.TableModel(max_steps=30, layers=1, width=16, heads=2, members=members).fit(frame)
    model.save(tmp_path)
    for found in (model, ao.TableModel.load(tmp_path)):
        for name in ("kind", "flag"):
            counts = frame[name].value_counts() + UNSEEN
            said = found.conditional(name).probabilities()
            assert said.reindex(counts.index).to_numpy() == pytest.approx(
                (counts / counts.sum()).to_numpy(), abs=1e-6
            )
    logs = model.log_prob(frame.iloc[:50])
    assert np.isfinite(logs).all()


def test_gaps_that_depend_on_what_is_seen_are_filled():
    """The example of the mathematics: x2 = x1 in 0.9; seen in 0.9 if x1 = 0 and 0.1 if x1 = 1."""
    source = np.random.default_rng(0)
    x1 = source.integers(0, 2, 4000)
    x2 = np.where(source.random(4000) < 0.9, x1, 1 - x1).astype(float)
    seen = source.random(4000) < np.where(x1 == 0, 0.9, 0.1)
    frame = pd.DataFrame({"x1": x1.astype(bool), "x2": np.where(seen, x2, np.nan)})
    frame["x2"] = frame["x2"].astype("boolean")
    model = ao.TableModel(network=None, missing="mar").fit(frame)
    found = [model.conditional("x2", given=g).probabilities()[True] for g in (None, *given_x1())]
    assert found == pytest.approx([0.5, 0.1, 0.9], abs=0.03)


def given_x1():
    return {"x1": False}, {"x1": True}


def test_held_out_rows_are_evaluated_without_their_folds(monkeypatch):
    """Whatever is queried: the fold of a row goes by all its values, so none may be hidden."""
    random = np.random.default_rng(0)
    table = pd.DataFrame({name: random.choice(list("pqrs"), 300) for name in "abcde"})
    seen, evaluated = [], []
    fold = LatentTree._fold

    def noted(prior, x):
        (evaluated if prior.leaves_out else seen).append(x)
        return fold(prior, x)

    monkeypatch.setattr(LatentTree, "_fold", noted)
    model = ao.TableModel(layers=1, width=8, max_steps=2, validation_share=0.3).fit(table)
    x, _ = model.table_.encode(table)
    known = set(row_keys(x.float()).tolist())
    assert evaluated
    assert all(set(row_keys(part.float()).tolist()) <= known for part in evaluated)
