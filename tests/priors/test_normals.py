"""The joint normal distribution beside a network: the slow way, one pass, and step by step."""

import math

import pytest
import torch

from anyorder import Schema, Variable
from anyorder.heads.mixed import MixedConditionals
from anyorder.heads.mixture import Mixture
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob, sample, univariates
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.networks.path_transformer import PathTransformer, SingleStreamPathTransformer
from anyorder.priors.contract import NetworkWithPrior, Prior
from anyorder.priors.normal_mixture import READ
from anyorder.priors.normals import NO_WEIGHT, NormalPrior, unread
from tests.oracle import bells_given, normal_density
from tests.priors import flat

NAMES = "abcdef"


@pytest.fixture
def schema():
    """Numbers and, among them, a category and a number with an atom."""
    kinds = [Variable.continuous(name) for name in NAMES]
    kinds[2] = Variable.categorical("c", ["no", "yes"])
    kinds[4] = Variable.continuous("e", atoms=(0.0,))
    return Schema(tuple(kinds))


@pytest.fixture
def x(generator):
    """Rows with linear relations, off center."""
    mixing = torch.randn(6, 6, generator=generator)
    rows = torch.randn(400, 6, generator=generator) @ mixing + 0.5
    rows[:, 2] = (rows[:, 2] > 0).float()
    return rows


@pytest.fixture
def bent(x):
    """The same rows, of which half lie about a plane of their own."""
    other = x[::2].clone()
    other[:, 0] = 2 - other[:, 0]
    other[:, 3] = 1 - 2 * other[:, 5] + 0.2 * other[:, 1]
    return torch.cat([x, other])


@pytest.fixture(params=["one normal", "several"])
def prior(request, schema, x, bent):
    """One normal alone, and several."""
    prior, rows = NormalPrior(schema), x if request.param == "one normal" else bent
    if request.param == "one normal":
        prior = single(prior)
    prior.fit(rows, torch.ones_like(rows, dtype=torch.bool))
    assert (len(normals(prior)) > 1) == (request.param == "several")
    return prior.eval()


def single(prior):
    """A prior that has room for one normal only."""
    for name in ("weights", "centers", "covariances", "rows", "pseudo_counts"):
        prior.register_buffer(name, getattr(prior, name)[:1])
    prior.components = 1
    return prior


def normals(prior):
    """As the oracle takes them."""
    parts = (prior.weights, prior.centers, prior.covariances)
    return [n for n in zip(*(part.tolist() for part in parts), strict=True) if n[0] > 0]


def slow(prior, row, known, target):
    """Mean and log deviation, then bells, by the oracle; of what is no number zeros."""
    if target not in prior.numbers:
        return [0.0] * (2 + 3 * prior.components)
    place = {variable: i for i, variable in enumerate(prior.numbers.tolist())}
    values = {place[i]: row[i].item() for i in place if known[i]}
    low, high = prior.seen[:, place[target]].tolist()
    bells = []
    for (share, mean, variance), (_, _, alone) in zip(
        bells_given(normals(prior), values, place[target]), normals(prior), strict=True
    ):
        held = min(max(mean, low), high)
        wide = min(variance + (mean - held) ** 2, alone[place[target]][place[target]])
        bells.append((math.log(max(share, 1e-300)), held, 0.5 * math.log(wide)))
    shares = [math.exp(log) for log, _, _ in bells]
    mean = sum(s * m for s, (_, m, _) in zip(shares, bells, strict=True))
    second = sum(s * (math.exp(2 * d) + m**2) for s, (_, m, d) in zip(shares, bells, strict=True))
    bells += [(NO_WEIGHT, 0.0, 0.0)] * (len(prior.weights) - len(bells))
    return [mean, 0.5 * math.log(second - mean**2), *torch.tensor(bells).T.flatten().tolist()]


def same(found, expected):
    """Alike, but for bells that have no share to speak of."""
    found, expected = found.tolist(), list(expected)
    count = (len(expected) - 2) // 3
    for bell in range(count):
        if expected[2 + bell] < -20:
            assert found[2 + bell] < -15
            found[2 + bell] = expected[2 + bell]
    assert found == pytest.approx(expected, abs=2e-4)


def sets(generator, rows=20):
    given = torch.rand(rows, 6, generator=generator) < 0.4
    return given, ~given & (torch.rand(rows, 6, generator=generator) < 0.7)


def test_a_path_is_walked_by_one_decomposition(prior, x, generator):
    given, query = sets(generator)
    rank = torch.stack([torch.randperm(6, generator=generator) for _ in given])
    said = flat(prior.along(x[:20], query=query, given=given, rank=rank))
    for row in range(20):
        for target in query[row].nonzero().flatten().tolist():
            known = given[row] | (query[row] & (rank[row] < rank[row, target]))
            same(said[row, target], slow(prior, x[row], known, target))


def test_the_default_walk_of_a_prior_is_that_of_one_decomposition(prior, x, generator):
    """A prior that has only `fit` and `ask` walks by what is known at each edge."""
    given, query = sets(generator)
    rank = torch.stack([torch.randperm(6, generator=generator) for _ in given])
    asked = {"query": query, "given": given, "rank": rank}
    found, fast = (flat(walk(prior, x[:20], **asked)) for walk in (Prior.along, NormalPrior.along))
    # Components without weight differ by rounding, in both what they weigh and where they are.
    torch.testing.assert_close(found[query][:, :2], fast[query][:, :2], atol=2e-4, rtol=1e-3)
    assert (found[~query] == 0).all()


def test_what_is_told_step_by_step_is_believed(prior, x, generator):
    given, _ = sets(generator)
    state = prior.encode(x[:20], given)
    order = torch.randperm(6, generator=generator)
    for place, target in enumerate(order):
        said = flat(prior.ask(state, order.expand(20, -1)))
        for row in (~given[:, target]).nonzero().flatten().tolist():
            same(said[row, place], slow(prior, x[row], given[row], int(target)))
        state = prior.tell(state, target.expand(20, 1), x[:20, target, None])
        given = given.clone()
        given[:, target] = True


def test_lines_lead_nowhere_that_nothing_was_seen_of(prior, x, bent):
    far = 50 * x[:1]
    given = torch.tensor([[True, True, True, False, True, True]])
    read = (x if len(normals(prior)) == 1 else bent)[:, 3]
    highest, lowest = read.max().item(), read.min().item()
    said = [prior.ask(prior.encode(far, given), torch.tensor([[3]])).location.item()]
    along = prior.along(far, query=~given, given=given, rank=torch.arange(6))
    said.append(along.location[0, 3].item())
    assert said[0] == pytest.approx(said[1])
    assert said[0] in (pytest.approx(highest), pytest.approx(lowest))


def test_in_training_a_row_is_told_of_by_all_others(schema, x, monkeypatch, generator):
    """What one normal says of a row is what it would say had it read all rows but this one."""
    monkeypatch.setattr("anyorder.priors.moments.PRIORS", (10.0,))
    x, have = x[:60], torch.ones(60, 6, dtype=torch.bool)
    prior, (given, query) = single(NormalPrior(schema)), sets(generator, 60)
    prior.fit(x, have)
    asked = {"query": query, "given": given, "rank": torch.arange(6)}
    found = flat(prior.train().along(x, **asked))
    for row in range(60):
        others = single(NormalPrior(schema)).eval()
        rest = torch.arange(60) != row
        others.fit(x[rest], have[rest])
        others.seen.copy_(prior.seen)
        one = {name: part if part.ndim == 1 else part[row, None] for name, part in asked.items()}
        alone = flat(others.along(x[row, None], **one))
        torch.testing.assert_close(found[row, query[row]], alone[0, query[row]], atol=1e-3, rtol=0)


def test_of_several_normals_each_forgets_its_share_of_a_row(x, generator):
    """Moments of rows that count in part are those without a row, once its part is taken off."""
    rows, weights = x.double(), torch.rand(2, len(x), generator=generator).double()
    prior, usual = 3.0, torch.eye(6).double()

    def moments(weights):
        total = weights.sum(dim=1)
        centers = weights @ rows / total[:, None]
        away = rows - centers[:, None]
        scatters = (weights[:, :, None] * away).mT @ away + prior * usual
        return centers, scatters / (total + prior)[:, None, None]

    others = weights.clone()
    others[:, 7] = 0
    centers, covariances = moments(weights)
    middle, lower, away = unread(
        centers[:, None],
        covariances[:, None],
        (rows[7] - centers)[:, None],
        weights[:, 7, None],
        others.sum(dim=1)[:, None],
        torch.tensor([[prior]]).double(),
    )
    expected, covariances = moments(others)
    torch.testing.assert_close(middle[:, 0], expected)
    torch.testing.assert_close(away[:, 0], rows[7] - expected)
    torch.testing.assert_close((lower @ lower.mT)[:, 0], covariances)


def test_a_normal_of_one_row_is_forgotten_with_it(schema):
    prior, far = NormalPrior(schema), torch.full((1, 6), 9.0)
    prior.weights[:2] = torch.tensor([40 / 41, 1 / 41])
    prior.centers[1] = 9
    prior.rows[:2], prior.pseudo_counts[:2] = torch.tensor([40.0, 1.0]), 3.0
    given = torch.zeros(1, 6, dtype=torch.bool)
    said = prior.train().along(far, query=~given, given=given, rank=torch.arange(6))
    assert said.log_weights[0, 0, 1].item() < math.log(1e-8)


def test_rows_are_forgotten_as_some_of_all_though_few_with_gaps_are_read(
    schema, x, monkeypatch, generator
):
    monkeypatch.setattr("anyorder.priors.moments.MOST", 50)
    monkeypatch.setattr("anyorder.priors.moments.PRIORS", (10.0,))
    prior, have = single(NormalPrior(schema)), torch.rand(400, 6, generator=generator) < 0.9
    prior.fit(x, have)
    assert prior.rows[0].item() == pytest.approx(400 / 50 * (50 + 10))


def test_a_row_is_of_the_normals_that_it_may_be_of(prior, x, generator):
    known = (torch.rand(9, 6, generator=generator) < 0.6)[:, prior.numbers]
    shares = prior._shares(x[:9], known, *prior._normals())
    for row, there, expected in zip(x[:9], known, shares.T, strict=True):
        places = enumerate(prior.numbers.tolist())
        values = {i: row[v].item() for i, v in places if there[i]}
        masses = [w * normal_density(c, s, values) for w, c, s in normals(prior)]
        assert expected.tolist() == pytest.approx([m / sum(masses) for m in masses], abs=1e-4)


def test_a_row_that_none_was_like_is_told_of_as_it_is(schema, x):
    prior, have = single(NormalPrior(schema)), torch.ones(40, 6, dtype=torch.bool)
    prior.fit(x[:40], have)
    far, given = 1e3 * x[:2], torch.zeros(2, 6, dtype=torch.bool)
    asked = {"query": ~given, "given": given, "rank": torch.arange(6)}
    found = [flat(prior.train(mode).along(far, **asked)) for mode in (True, False)]
    torch.testing.assert_close(*found)


def test_weights_count_as_repeated_rows(schema, x):
    twice, repeated = single(NormalPrior(schema)), single(NormalPrior(schema))
    weights = torch.ones(400)
    weights[:100] = 2
    twice.fit(x, torch.ones_like(x, dtype=torch.bool), weights)
    rows = torch.cat([x, x[:100]])
    repeated.fit(rows, torch.ones_like(rows, dtype=torch.bool))
    torch.testing.assert_close(twice.covariances, repeated.covariances, atol=0.02, rtol=0.01)
    torch.testing.assert_close(twice.centers, repeated.centers, atol=0.01, rtol=0.01)
    unit = single(NormalPrior(schema))
    unit.fit(x, torch.ones_like(x, dtype=torch.bool), weights * 1e-12)
    torch.testing.assert_close(unit.covariances, twice.covariances)
    # Each row, not each that weights are worth, is forgotten as one of as many as were read.
    torch.testing.assert_close(unit.rows[:1], twice.rows[:1])
    assert twice.rows[0] == pytest.approx(400, rel=0.05)


def test_rows_that_break_a_law_are_not_taken_for_ones_that_know_none(generator):
    """Ten columns are nearly one, but in a few rows: no bell scatters more than all rows do."""
    schema = Schema(tuple(Variable.continuous(f"c{i}") for i in range(10)))
    x = torch.randn(800, 1, generator=generator) + 0.01 * torch.randn(800, 10, generator=generator)
    x[:4, 0] += torch.tensor([3.0, -3.0, 4.0, -4.0])
    prior = NormalPrior(schema)
    prior.fit(x, torch.ones(800, 10, dtype=torch.bool))
    deviations = prior.covariances[prior.weights > 0].diagonal(dim1=1, dim2=2).sqrt()
    assert len(deviations) > 1
    assert deviations[:, 1:].max() < 1.2  # of all rows 1; without a bound it was 3.1


def test_gaps_are_filled_by_what_is_believed(schema, x, generator):
    """Maximum likelihood has no gradient at its moments but that of the few rows of the prior."""
    have = torch.rand(x.shape, generator=generator) < 0.7
    prior, whole = single(NormalPrior(schema)), single(NormalPrior(schema))
    prior.fit(x.masked_fill(~have, torch.nan), have)
    whole.fit(x, torch.ones_like(have))
    scale = whole.covariances[0].diagonal().sqrt()
    off = (prior.covariances - whole.covariances) / scale / scale[:, None]
    assert off.abs().max() < 0.2  # 400 rows, half of which have both
    have[:, 0] = False  # a column of which no row to train on has anything
    prior.fit(x, have)
    said = prior.ask(prior.encode(x[:3], have[:3]), torch.tensor([[0]] * 3))
    assert flat(said)[..., :2].abs().max() < 1e-6


@pytest.mark.parametrize("there", [1.0, 0.8])
def test_several_normals_are_found_where_there_are_several(there, generator):
    """Rows that were not read are more probable by far, and nearly as probable as by the truth."""
    schema = Schema(tuple(Variable.continuous(name) for name in "abc"))

    def drawn(rows):
        a, noise = torch.randn(2, rows, generator=generator)
        turned = torch.rand(rows, generator=generator) < 0.3
        b = torch.where(turned, -a, a) + 0.3 * noise
        return torch.stack([a, b, torch.randn(rows, generator=generator)], dim=1)

    x, fresh = drawn(1000), drawn(1000)
    have = torch.rand(x.shape, generator=generator) < there
    one, several = single(NormalPrior(schema)), NormalPrior(schema)
    for prior in (one, several):
        prior.fit(x.masked_fill(~have, torch.nan), have)
    line = [[1.0, 1.0, 0.0], [1.0, 1.09, 0.0], [0.0, 0.0, 1.0]]
    turned = [[1.0, -1.0, 0.0], [-1.0, 1.09, 0.0], [0.0, 0.0, 1.0]]
    truth = [(0.7, [0.0] * 3, line), (0.3, [0.0] * 3, turned)]
    means = [float(nats(found, fresh).mean()) for found in (normals(one), normals(several), truth)]
    # Measured: the truth is 0.6 above one normal; several are 0.02 below it, 0.05 with gaps.
    assert means[0] < means[2] - 0.4
    assert means[1] > means[2] - 0.1


def nats(parts, rows):
    """Log-likelihoods by the oracle."""
    known = [dict(enumerate(row)) for row in rows.tolist()]
    return torch.tensor(
        [math.log(sum(w * normal_density(c, s, k) for w, c, s in parts)) for k in known]
    )


@pytest.mark.parametrize(("rows", "there"), [(40, 1.0), (300, 0.5), (300, 0.15)])
def test_chance_is_not_taken_for_law(rows, there, generator):
    """Columns without relations: a prior from few rows or many gaps must not invent any."""
    schema = Schema(tuple(Variable.continuous(f"c{i}") for i in range(30)))
    prior, x = NormalPrior(schema).eval(), torch.randn(rows, 30, generator=generator)
    prior.fit(x, torch.rand(x.shape, generator=generator) < there)
    fresh = torch.randn(200, 30, generator=generator)
    nothing = torch.zeros_like(fresh, dtype=torch.bool)
    said = prior.along(fresh, query=~nothing, given=nothing, rank=torch.arange(30))
    means, logs = said.location, said.log_scale
    nats = 0.5 * ((fresh - means) * (-logs).exp()).square() + logs + 0.5 * math.log(2 * math.pi)
    truth = 0.5 * (1 + math.log(2 * math.pi))
    assert float(nats.mean()) < truth + 0.2


def test_a_mean_that_is_held_back_is_less_sure(schema, x):
    """Where one number says where another is, beyond all that was seen, it is not certain."""
    x = x[:, :1].expand(-1, 6) + 0.02 * x
    prior, given = NormalPrior(schema), torch.tensor([[True, False, False, False, False, False]])
    prior.fit(x, torch.ones_like(x, dtype=torch.bool))
    beyond = (x[:, 0].max() + 2.0).expand(1, 6)
    for row in (x[:1], beyond):
        said = prior.ask(prior.encode(row, given), torch.tensor([[1]]))[0, 0]
        mean, log_deviation = said.location, said.log_scale
        assert abs(row[0, 1] - mean.item()) < 4 * log_deviation.exp().item()


def test_evidence_that_contradicts_itself_leaves_numbers_where_they_were():
    """b follows a, and c what they differ by: where they differ as never before, c is not known."""
    schema = Schema(tuple(Variable.continuous(name) for name in "abc"))
    source = torch.Generator().manual_seed(0)
    a, c = torch.randn(2, 400, generator=source)
    x = torch.stack([a, a + 0.02 * c, c + 0.1 * torch.randn(400, generator=source)], dim=1)
    prior, row = NormalPrior(schema).eval(), torch.tensor([[1.0, -1.0, 0.0]])
    prior.fit(x, torch.ones_like(x, dtype=torch.bool))
    given = torch.tensor([[True, True, False]])
    found = [prior.ask(prior.encode(row, given), torch.tensor([[2]]))[0, 0]]
    found.append(prior.along(row, query=~given, given=given, rank=torch.arange(3))[0, 2])
    for said in found:
        assert said.location.item() == pytest.approx(x[:, 2].min().item())
        assert said.log_scale.item() < 0.3  # it was 4.6: draws a hundred deviations away


def test_columns_that_say_the_same_are_not_taken_for_known(schema, x):
    x = x[:, :1].expand(-1, 6).contiguous()
    prior = NormalPrior(schema)
    prior.fit(x, torch.ones_like(x, dtype=torch.bool))
    known = torch.tensor([[True, True, False, True, False, False]])
    said = prior.ask(prior.encode(x[:1], known), torch.tensor([[4]]))
    assert math.log(1e-4) < said.log_scale.item() < math.log(0.1)


@pytest.mark.parametrize("kind", [PathTransformer, SingleStreamPathTransformer])
@pytest.mark.parametrize("head", ["mixture", "spline"])
def test_one_pass_and_steps_agree(kind, head, schema, x, generator):
    model = model_with_prior(kind, head, schema, x)
    given = sets(generator)[0]
    x, query = x[:20], ~given
    found = log_prob(model, x, query=query, given=given)
    slowly = torch.zeros(20)
    for row in range(20):
        state = model.network.encode(x[row, None], given[row, None]).expand(1)
        for variable in query[row].nonzero().flatten():
            features = model.ask(state, variable[None])
            value = x[row, variable].view(1, 1)
            said = model.distribution(features, variable.view(1, 1))
            slowly[row] += said.log_prob(value)[0, 0].detach()
            state = model.network.tell(state, variable[None], value)
    torch.testing.assert_close(found.float(), slowly, atol=1e-4, rtol=1e-4)


def test_states_are_expanded_and_selected(schema, x):
    network = model_with_prior(PathTransformer, "mixture", schema, x).network
    given = torch.zeros(3, 6, dtype=torch.bool)
    state = network.encode(x[:3], given).expand(2)
    told = network.tell(state, torch.tensor([0]), torch.arange(6.0)[:, None])
    means = network.message(told, torch.tensor([1])).location[:, 0]
    kept = told.select(torch.tensor([2, 0]))
    some = network.message(kept, torch.tensor([1])).location[:, 0]
    torch.testing.assert_close(some, means[[4, 5, 0, 1]])
    assert len(means.unique()) == 6


def model_with_prior(kind, head, schema, x, units=None):
    torch.manual_seed(0)
    inner = kind(schema, layers=1, width=16, heads=2, positions="absolute", shared=False)
    prior = NormalPrior(schema)
    network = NetworkWithPrior(schema, inner, prior)
    prior.fit(x, torch.ones_like(x, dtype=torch.bool), units=units)
    conditionals = MixedConditionals(
        schema, width=network.width, head=head, components=prior.components
    )
    conditionals.measure(prior)
    return AnyOrderModel(
        schema, network, conditionals, RemoveGreatest(lexicographic(len(schema)))
    ).eval()


def test_an_untrained_model_knows_linear_relations(schema, x):
    """The densities of numbers without atoms are about those of the joint normal distribution."""
    model = model_with_prior(PathTransformer, "mixture", schema, x)
    given = torch.tensor([[True, True, True, False, True, True]]).expand(len(x), -1)
    logs = log_prob(model, x, query=~given, given=given)
    said = model.network.prior.along(x, query=~given, given=given, rank=torch.arange(6))
    prior = Mixture(*said[:, 3].components)
    # The bells of the head itself have a twentieth of the mass.
    assert float(logs.mean()) == pytest.approx(float(prior.log_prob(x[:, 3]).mean()), abs=0.05)


def test_draws_follow_the_guide(schema, x):
    model = model_with_prior(PathTransformer, "spline", schema, x)
    given = torch.tensor([[True, True, True, False, True, False]])
    drawn = sample(
        model, x[:1], query=~given, given=given, n=2000, generator=torch.Generator().manual_seed(0)
    )[0]
    mean, log_deviation, *_ = slow(model.network.prior, x[0], given[0], 3)
    assert float(drawn[:, 3].mean()) == pytest.approx(mean, abs=0.3 * math.exp(log_deviation))


def test_an_untrained_model_knows_where_atoms_are(generator):
    """A rounded number that follows another; atoms start out alike, so that means lie too far."""
    grid = tuple(i / 4 for i in range(-12, 13))
    schema = Schema((Variable.continuous("a"), Variable.continuous("b", atoms=grid)))
    a = torch.randn(2000, generator=generator)
    b = ((0.9 * a + 0.4 * torch.randn(2000, generator=generator)) * 4).round().clamp(-12, 12) / 4
    x = torch.stack([a, b], dim=1)
    model = model_with_prior(PathTransformer, "mixture", schema, x)
    asked = torch.tensor([[False, True]]).expand(2000, -1)
    said = univariates(model, x, ~asked).parts[-1][1]
    off = (said.mean() - 0.9 * a).abs().mean()
    assert float(off) < 0.35  # without a prior 0.7: all means are about 0


def test_rows_without_weight_do_not_hide_the_others(bent, schema):
    have = torch.ones(len(bent), 6, dtype=torch.bool)
    hidden, plain = NormalPrior(schema), NormalPrior(schema)
    nothing = torch.zeros(READ, 6)
    weights = torch.cat([torch.zeros(READ), torch.ones(len(bent))])
    rows = torch.cat([nothing, bent])
    hidden.fit(rows, torch.ones_like(rows, dtype=torch.bool), weights)
    plain.fit(bent, have)
    torch.testing.assert_close(hidden.covariances, plain.covariances)
