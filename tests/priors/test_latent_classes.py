"""Latent classes: against enumeration over the classes, frequencies, and refits without a row."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

import anyorder as ao
from anyorder import Schema, Variable
from anyorder.inference.queries import log_prob
from anyorder.priors import class_fit, latent_classes
from anyorder.priors.contract import Prior
from anyorder.priors.latent import FOLDS, UNSEEN, row_keys
from anyorder.priors.latent_classes import LatentClasses
from tests.oracle import class_weights, normal_density

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


@pytest.fixture(params=[True, False], ids=["joint", "alone"])
def prior(request, generator, monkeypatch):
    monkeypatch.setattr(LatentClasses, "_kinds", lambda *_: [request.param])
    found = LatentClasses(SCHEMA)
    found.fit(*some_missing(sampled(400, generator), generator))
    assert found.joint == request.param
    assert found.classes > 1
    return found.eval()


def as_oracle(prior):
    """Shares, tables and normals as lists; elsewhere is the first level of an atom's category."""
    shares, tables = prior.logs.double().exp().tolist(), prior.tables.double().exp()
    sizes = [size for size in prior.sizes if size]
    by_class = [[part.tolist() for part in one[:-1].split(sizes)] for one in tables.T]
    normals = []
    for center, variance, block in zip(
        prior.centers.double(), prior.variances.double(), prior.covariances.double(), strict=True
    ):
        covariance = variance.diag()
        if prior.joint:
            covariance[:2, :2] = block
        normals.append((center.tolist(), covariance.tolist()))
    return shares, by_class, normals


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


def test_messages_are_those_of_all_classes_spelled_out(prior, generator):
    shares, tables, normals = as_oracle(prior)
    x = sampled(6, generator)
    sets = [known for size in range(5) for known in itertools.combinations(range(5), size)]
    for row, known in itertools.product(x, sets):
        given = torch.zeros(1, 5, dtype=torch.bool)
        given[0, list(known)] = True
        levels, numbers = evidence_of(row, known)
        weights = class_weights(shares, tables, normals, levels, numbers)
        for target in set(range(5)) - set(known):
            found = prior.ask(prior.encode(row[None], given), torch.tensor([[target]]))[0, 0]
            if target in CATEGORIES:
                place = CATEGORIES.index(target)
                expected = [
                    sum(w * table[place][level] for w, table in zip(weights, tables, strict=True))
                    for level in range(prior.sizes[target])
                ]
                said = found.levels.exp()[: prior.sizes[target]].tolist()
                assert said == pytest.approx(expected, abs=1e-6)
            if target in NUMBERS:
                place, value = NUMBERS.index(target), 0.3
                beside = [t[2][0] if target == 4 else 1.0 for t in tables]
                there = [w * b for w, b in zip(weights, beside, strict=True)]
                ratio = [
                    normal_density(*normal, numbers | {place: value})
                    / normal_density(*normal, numbers)
                    for normal in normals
                ]
                expected = sum(t * r for t, r in zip(there, ratio, strict=True)) / sum(there)
                assert density(found, value) == pytest.approx(expected, rel=1e-4)


def density(message, value):
    logs, means, log_deviations = (part.double() for part in message.components)
    away = (value - means) / log_deviations.exp()
    terms = logs - 0.5 * away.square() - log_deviations - 0.5 * math.log(2 * math.pi)
    return terms.logsumexp(dim=-1).exp().item()


@pytest.mark.parametrize("training", [False, True])
def test_a_sweep_has_the_message_of_every_step(prior, generator, training):
    prior.train(training)
    x = sampled(30, generator)
    kind = torch.rand(30, 5, generator=generator)
    given, query = kind < 0.3, kind > 0.5
    rank = torch.rand(30, 5, generator=generator).argsort(dim=1)
    fast = prior.along(x, query=query, given=given, rank=rank)
    slow = Prior.along(prior, x, query=query, given=given, rank=rank)
    for name in ("levels", "location", "log_scale", "log_weights", "means", "log_deviations"):
        found, expected = (getattr(part, name)[query] for part in (fast, slow))
        if name in ("log_weights", "means", "log_deviations"):
            is_number = prior.is_number.expand(30, -1)[query]
            found, expected = found[is_number], expected[is_number]
        tolerance = 2e-3 if training else 1e-4  # single precision
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


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
    prior = LatentClasses(SCHEMA)
    prior.fit(x, have, weights)
    found = prior.eval().alone()
    for variable, size in ((0, 2), (2, 3)):
        there = have[:, variable]
        counts = x[there, variable].long().bincount(weights[there].double(), minlength=size)
        expected = (counts + UNSEEN) / (counts + UNSEEN).sum()
        torch.testing.assert_close(
            found.levels[variable, :size].exp().double(), expected, atol=1e-6, rtol=0
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
        total = found.log_weights[:, list(NUMBERS)].logsumexp(dim=-1)
        torch.testing.assert_close(total, torch.zeros_like(total), atol=1e-5, rtol=0)


@pytest.fixture
def two_classes(monkeypatch):
    """A row that is left out must not change how many there are."""
    monkeypatch.setattr(latent_classes, "MOST_CLASSES", 2)
    monkeypatch.setattr(latent_classes, "PSEUDO_COUNTS", (0.3,))
    monkeypatch.setattr(LatentClasses, "_kinds", lambda *_: [True])


@pytest.mark.usefixtures("two_classes")
def test_in_training_a_row_gets_the_message_of_a_fit_without_it(generator):
    x, have = some_missing(sampled(200, generator), generator)
    prior, nothing = LatentClasses(SCHEMA), torch.zeros(1, 5, dtype=torch.bool)
    prior.fit(x, have)
    for row in range(5):
        others = torch.arange(200) != row
        without = LatentClasses(SCHEMA)
        without.fit(x[others], have[others])
        given = nothing.clone()
        given[0, row] = have[row, row]
        every = torch.arange(5)[None]
        one, two = (p.train().ask(p.encode(x[row, None], given), every) for p in (prior, without))
        torch.testing.assert_close(one.levels, two.levels)
        torch.testing.assert_close(one.location, two.location)
        seen = prior.eval().ask(prior.encode(x[row, None], given), every)
        assert not torch.allclose(one.location, seen.location, atol=1e-6)
        with prior.leaving_out():
            told = prior.ask(prior.encode(x[row, None], given), every)
        torch.testing.assert_close(told.levels, one.levels, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("two_classes")
def test_a_fold_is_fitted_to_all_other_rows(generator):
    x, have = some_missing(sampled(200, generator), generator)
    prior = LatentClasses(SCHEMA)
    prior.fit(x, have)
    fold = row_keys(x) % FOLDS
    assert fold.bincount(minlength=FOLDS).min() > 200 / FOLDS / 2
    for number in range(FOLDS):
        cells = prior._cells(x, have, torch.ones(200).double()).at(fold != number)
        fit = class_fit.ClassFit(cells, prior._layout(prior.joint), 0.3)
        expected = prior._fitted(fit, prior.classes)
        own = [part[number] for part in prior._folds]
        for found, part in zip(own, expected, strict=True):
            torch.testing.assert_close(found, part.float())


def test_equal_rows_are_dealt_to_all_folds():
    """Left out together, they would make what is common rare."""
    schema = Schema((Variable.categorical("a", [0, 1]), Variable.categorical("b", [0, 1])))
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).repeat_interleave(torch.tensor([90, 10]), dim=0)
    prior = LatentClasses(schema)
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


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_few_rows_are_enough(rows, generator):
    x = sampled(5, generator)[:rows]
    prior = LatentClasses(SCHEMA)
    prior.fit(x, torch.ones_like(x).bool())
    found = prior.train().alone()
    assert all(part.isfinite().all() for part in (found.levels, found.location, found.log_scale))


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
