"""Gaps are zero for conditionals of one joint, and what enumeration says for others."""

import json
import math
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from scipy import stats

from anyorder import (
    AnyOrderModel,
    MixedConditionals,
    RemoveGreatest,
    RemoveRandom,
    ResidualMlp,
    Schema,
    TableModel,
    Variable,
)
from anyorder.diagnostics.calibration import (
    LEVELS,
    CategoryCalibration,
    NumberCalibration,
    by_column,
    coverage_p_value,
    ks_distance,
    ks_p_value,
    off_p_value,
    predictions,
)
from anyorder.diagnostics.check import (
    SUSPICIOUS,
    _categories_sentence,
    _numbers_sentence,
    _rows,
    _stages,
    check_model,
    smallest_noticed,
)
from anyorder.diagnostics.consistency import (
    EncodingGap,
    Gap,
    MarginalisationGap,
    OrderSpread,
    PathGap,
    RatioGap,
    encoding_differences,
    has_mass,
    marginalisation_differences,
    order_log_probs,
    path_differences,
    random_subsets,
    walk_and_ratio,
)
from anyorder.diagnostics.plots import coverage_figure
from anyorder.errors import ConfigError, QueryError
from tests import oracle
from tests.line_toys import (
    BUMP,
    CENTRES,
    FIRST,
    OTHERS,
    SECOND,
    atomic_model,
    bumpy_model,
    gaussian_model,
)
from tests.toys import (
    SCHEMA,
    SIZES,
    ReadOff,
    TwoFacedPath,
    all_values,
    disagreeing_model,
    disagreeing_rule,
    toy_joint,
    toy_model,
)

ORDER = [2, 0, 3, 1]
PROTOCOLS = {"canonical": RemoveGreatest(ORDER), "random": RemoveRandom()}
MODELS = ("masked", "path")


def holding(members, rows):
    have = torch.zeros(rows, len(SIZES), dtype=torch.bool)
    have[:, list(members)] = True
    return have


def near_one(found, options):
    """Whether a number is one of those that the oracle allows."""
    return any(found == pytest.approx(option, abs=1e-9) for option in options)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", MODELS)
def test_conditionals_of_one_joint_have_no_gaps(kind, protocol, generator):
    model, x = toy_model(kind, PROTOCOLS[protocol]), all_values()
    have = torch.rand(x.shape, generator=generator) < 0.8
    have[:, :2] = True
    walk, ratio, is_mass = walk_and_ratio(model, x, have, generator=generator)
    gaps = [
        path_differences(model, x, have, generator=generator),
        marginalisation_differences(model, x, have, generator=generator),
        encoding_differences(model, x, have, generator=generator),
        ratio - walk,
    ]
    for gap in gaps:
        torch.testing.assert_close(gap, torch.zeros_like(gap), atol=1e-9, rtol=0)
    logs = order_log_probs(model, x, have, orders=3, generator=generator)
    torch.testing.assert_close(logs, logs[:1].expand(4, -1))
    assert is_mass.all()
    assert (walk <= 0).all()


@pytest.mark.parametrize("kind", MODELS)
def test_other_orders_are_those_of_the_oracle(kind, generator):
    model, x = disagreeing_model(kind, RemoveGreatest(ORDER)), all_values()
    for members in combinations(range(4), 3):
        found = order_log_probs(
            model, x, holding(members, len(x)), orders=2, generator=generator
        ).T.tolist()
        own = sorted(members, key=ORDER.index)
        for values, (first, *others) in zip(x.tolist(), found, strict=True):
            expected = oracle.path_log_prob(disagreeing_rule, tuple(values), own)
            assert first == pytest.approx(expected, abs=1e-9)
            paths = [
                oracle.path_log_prob(disagreeing_rule, tuple(values), path)
                for path in permutations(members)
            ]
            assert all(near_one(other, paths) for other in others)


@pytest.mark.parametrize("kind", MODELS)
def test_a_pair_has_one_other_order(kind, generator):
    model, x = disagreeing_model(kind, RemoveGreatest(ORDER)), all_values()
    found = path_differences(model, x, holding((0, 2), len(x)), generator=generator)
    turned = 0
    for values, gap in zip(x.tolist(), found.tolist(), strict=True):
        own, other = (
            oracle.path_log_prob(disagreeing_rule, tuple(values), path) for path in ((2, 0), (0, 2))
        )
        assert near_one(gap, (0.0, other - own))
        turned += abs(gap) > 1e-6
    assert 0 < turned < len(x)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("size", [2, 3])
def test_summing_out_is_what_enumeration_says(kind, size, generator):
    model, x = disagreeing_model(kind, RemoveGreatest(ORDER)), all_values()
    for members in combinations(range(4), size):
        have = holding(members, len(x))
        found = marginalisation_differences(model, x, have, generator=generator)
        assert len(found) == len(x)
        path = sorted(members, key=ORDER.index)
        for values, gap in zip(x.tolist(), found.tolist(), strict=True):
            # Sets of two or more of these, and all of their variables but the last of the path.
            options = [
                oracle.summed_out(disagreeing_rule, tuple(values), part, j, SIZES[j])
                for count in range(2, size + 1)
                for part in combinations(path, count)
                for j in part[:-1]
            ]
            assert near_one(gap, options)


def test_many_levels_are_not_summed_out(monkeypatch, generator):
    model, x = disagreeing_model("path", RemoveGreatest(ORDER)), all_values()
    monkeypatch.setattr("anyorder.diagnostics.consistency.MOST_VALUES", 2)
    have = holding((1, 3), len(x))  # x3 comes first
    assert len(marginalisation_differences(model, x, have, generator=generator)) == len(x)
    monkeypatch.setattr("anyorder.diagnostics.consistency.MOST_VALUES", 1)
    assert not len(marginalisation_differences(model, x, have, generator=generator))


@pytest.mark.parametrize("kind", MODELS)
def test_ratios_are_those_of_the_oracle_and_can_exceed_one(kind, generator):
    model, x = disagreeing_model(kind, RemoveGreatest(ORDER)), all_values()
    walk, ratio, is_mass = walk_and_ratio(model, x, holding((0, 2), len(x)), generator=generator)
    for values, *found in zip(x.tolist(), walk.tolist(), ratio.tolist(), strict=True):
        pairs = []
        for target, given in ((0, 2), (2, 0)):
            direct = math.log(disagreeing_rule(tuple(values), frozenset({given}), target))
            both = oracle.path_log_prob(disagreeing_rule, tuple(values), [2, 0])
            alone = oracle.path_log_prob(disagreeing_rule, tuple(values), [given])
            pairs.append((direct, both - alone))
        assert any(found == pytest.approx(pair, abs=1e-9) for pair in pairs)
    gap = RatioGap(ratio - walk, ratio[is_mass])
    assert gap.share_above_one.value == pytest.approx(float((ratio > 0).double().mean()))
    assert "of such probabilities would exceed 1" in gap.sentence


def test_the_encoding_gap_is_between_what_is_given_and_what_is_told(generator):
    joints = toy_joint(0), toy_joint(1)
    protocol = RemoveGreatest(ORDER)
    model = type(toy_model("path", protocol))(SCHEMA, TwoFacedPath(*joints), ReadOff(), protocol)
    x = all_values()
    found = encoding_differences(model, x, holding((1, 3), len(x)), generator=generator)
    for values, gap in zip(x.tolist(), found.tolist(), strict=True):
        given, told = (
            oracle.conditional(joint, tuple(values), frozenset({1}), frozenset({3}))
            for joint in joints
        )
        assert gap == pytest.approx(math.log(given) - math.log(told), abs=1e-9)


def test_gaussians_of_one_covariance_have_no_gaps(generator):
    model, x = gaussian_model(), torch.randn(40, 3, generator=generator).double()
    have = torch.ones(40, 3, dtype=torch.bool)
    for differences in (path_differences, marginalisation_differences):
        gap = differences(model, x, have, generator=generator)
        torch.testing.assert_close(gap, torch.zeros_like(gap), atol=1e-6, rtol=0)
    walk, ratio, is_mass = walk_and_ratio(model, x, have, generator=generator)
    torch.testing.assert_close(walk, ratio)
    assert not is_mass.any()
    assert RatioGap(ratio - walk, ratio[is_mass]).share_above_one is None


def test_a_density_is_integrated_out(generator):
    """Against a fine grid: x0 and x1, of which x0 is integrated out, with other conditionals."""
    model, x = gaussian_model(odd=SECOND), torch.randn(8, 3, generator=generator).double()
    have = torch.tensor([True, True, False]).expand(8, -1)
    found = marginalisation_differences(model, x, have, generator=generator)
    grid = torch.linspace(-12, 12, 20_001).double()
    slope = SECOND[0, 1] / SECOND[0, 0]
    scale = (SECOND[1, 1] - slope * SECOND[0, 1]).sqrt()
    first = torch.distributions.Normal(0.0, FIRST[0, 0].sqrt()).log_prob(grid)
    for gap, value in zip(found, x[:, 1], strict=True):
        second = torch.distributions.Normal(slope * grid, scale).log_prob(value)
        exact = torch.trapezoid((first + second).exp(), grid).log()
        alone = torch.distributions.Normal(0.0, FIRST[1, 1].sqrt()).log_prob(value)
        assert float(gap) == pytest.approx(float(exact - alone), abs=1e-4)


def test_a_density_of_several_modes_is_integrated_out(generator):
    """Against a fine grid: a is integrated out of bumps that have moved once something is known."""
    model = bumpy_model()
    bump = torch.randint(3, (60,), generator=generator)
    x = CENTRES[bump] + 1.5 * BUMP * torch.randn(60, 2, generator=generator).double()
    have = torch.ones(60, 2, dtype=torch.bool)
    found = marginalisation_differences(model, x, have, generator=generator)
    grid = torch.linspace(-6, 6, 20_001).double()
    bells = torch.distributions.Normal(CENTRES[:, 0, None], BUMP).log_prob(grid)  # (bumps, grid)
    others = torch.distributions.Normal(OTHERS[:, 0, None], BUMP).log_prob(grid).softmax(dim=0)
    exact = []
    for value in x[:, 1]:
        given = torch.distributions.Normal(OTHERS[:, 1], BUMP).log_prob(value).exp() @ others
        joint = torch.trapezoid(bells.exp().mean(dim=0) * given, grid)
        alone = torch.distributions.Normal(CENTRES[:, 1], BUMP).log_prob(value).exp().mean()
        exact.append(joint.log() - alone.log())
    gap, error = torch.stack(exact).abs().mean(), (found - torch.stack(exact)).abs()
    # About a hundredth of the gap. With 25 even scores of each density it was off by a twelfth.
    assert gap > 0.7
    assert error.mean() < 0.015 * gap
    assert error.max() < 0.1


def test_atoms_are_summed_and_the_density_beside_them_integrated(generator):
    model, have = atomic_model(), torch.ones(6, 2, dtype=torch.bool)
    x = torch.tensor([[0.0, 0], [0.0, 1], [-1.5, 0], [0.3, 1], [2.0, 1], [4.0, 0]]).double()
    assert has_mass(model, x).tolist()[1:3] == [[True, True], [False, True]]
    gaps = [
        differences(model, x, have, generator=generator)
        for differences in (marginalisation_differences, path_differences)
    ]
    for gap in gaps:
        torch.testing.assert_close(gap, torch.zeros_like(gap), atol=1e-6, rtol=0)


def test_statistics_of_gaps_and_orders():
    gap = Gap(torch.tensor([0.1, -0.3, 0.2, 0.0]).double())
    assert gap.size.value == pytest.approx(0.15)
    assert gap.bias.value == pytest.approx(0.0, abs=1e-7)
    assert gap.quantile_90 == pytest.approx(0.27)
    assert "by 1.00 nats on average" in PathGap(torch.ones(1)).sentence  # one row has no error
    assert Gap(torch.ones(1)).to_json()["size"] == {"value": 1.0, "se": None, "n": 1}
    logs = torch.tensor([[-1.0, -2.0], [-1.5, -2.0], [-0.5, -4.0]]).double()
    spread = OrderSpread(logs)
    expected = [math.log(sum(math.exp(v) for v in row) / 3) - row[0] for row in logs.T.tolist()]
    assert spread.mixture_gain.rows.tolist() == pytest.approx(expected)
    assert spread.spread.rows.tolist() == pytest.approx([math.sqrt(0.5), math.sqrt(2.0)])


def test_sentences_say_how_much_it_matters():
    def repeated(size):
        return torch.full((10,), size).double()

    assert "orders hardly matter" in PathGap(repeated(0.02)).sentence
    assert "by 0.020 ± 0.000 nats" in PathGap(repeated(0.02)).sentence
    assert "orders matter a little" in PathGap(repeated(0.2)).sentence
    assert "compare only" in PathGap(repeated(2.0)).sentence
    assert "as good as summing it out" in MarginalisationGap(repeated(0.02)).sentence
    assert "no encoding gap" in EncodingGap(repeated(0.0), False).sentence
    assert "0.20 ± 0.00 nats worse" in EncodingGap(repeated(-0.2), True).sentence
    flat, up = torch.zeros(9, 5).double(), torch.zeros(9, 5).double()
    assert "gain nothing" in OrderSpread(flat).sentence
    up[1:] = 1.0
    assert "a mixture of 9 paths would gain 0.93 ± 0.00" in OrderSpread(up).sentence
    up[1:] = -1.0
    assert "keep to it" in OrderSpread(up).sentence


def test_random_sets_have_every_size_as_often(generator):
    have = torch.ones(6000, 4, dtype=torch.bool)
    have[:, 3] = False
    sets = random_subsets(have, least=2, generator=generator)
    sizes = torch.bincount(sets.sum(dim=1), minlength=4)
    assert sizes[:2].tolist() == [0, 0]
    assert abs(int(sizes[2]) - 3000) < 5 * 6000**0.5 / 2  # fair coins: 5 standard errors
    assert not sets[:, 3].any()


@pytest.mark.parametrize("n", [20, 200])
def test_distance_and_p_value_are_those_of_kolmogorov_and_smirnov(n, generator):
    for power in (1.0, 1.2, 2.0):
        pit = torch.rand(n, generator=generator).double() ** power
        test = stats.kstest(pit.numpy(), "uniform")
        assert ks_distance(pit) == pytest.approx(oracle.ks_distance(pit.tolist()))
        assert ks_distance(pit) == pytest.approx(test.statistic)
        assert ks_p_value(ks_distance(pit), n) == pytest.approx(test.pvalue, abs=0.02)
    assert ks_p_value(0.001, n) == 1.0


def test_coverage_counts_what_lies_in_central_intervals():
    found = NumberCalibration(
        torch.tensor([0.01, 0.06, 0.3, 0.5, 0.74, 0.76, 0.99, 1.0]), *torch.zeros(2, 8)
    )
    counts = [sum(abs(p - 0.5) <= level / 2 for p in found.pit.tolist()) for level in (0.5, 0.9)]
    assert [found.coverage(level).value for level in (0.5, 0.9)] == [n / 8 for n in counts]
    assert counts == [3, 5]
    assert found.histogram().sum() == pytest.approx(1)
    assert found.histogram()[-1] == pytest.approx(2 / 8)


def test_reliability_is_that_of_the_oracle(generator):
    confidence = torch.rand(500, generator=generator).double()
    confidence[0] = 1.0
    hit = torch.rand(500, generator=generator) < confidence**2
    found = CategoryCalibration(confidence, confidence, hit, *torch.zeros(2, 500))
    expected = oracle.calibration_error(confidence.tolist(), hit.tolist(), 10)
    assert found.expected_error == pytest.approx(expected)
    assert sum(part.n for part in found.reliability()) == 500
    fair = [
        replace(found, hit=torch.rand(500, generator=generator) < confidence).expected_error
        for _ in range(400)
    ]
    # Bins of some 50 predictions: the normal approximation is good to a few percent.
    assert sum(fair) / 400 == pytest.approx(found.expected_by_chance, rel=0.08)


def said_of(confidence, hit):
    """Categories with as many amounts of evidence as there are rows of tensors."""
    return {
        str(place): CategoryCalibration(said, said, right, *torch.zeros(2, len(said)))
        for place, (said, right) in enumerate(zip(confidence, hit, strict=True))
    }


@pytest.mark.parametrize("low", [0.5, 0.88, 0.98])
def test_calibrated_categories_are_blamed_no_more_often_than_is_said(low, generator):
    """Confidences of one bin or two, of 40 rows that are asked with five amounts of evidence."""
    alarms, cases = 0, 130
    for _ in range(cases):
        confidence = low + (1 - low) * torch.rand(5, 40, generator=generator).double() ** 2
        # The same draw decides on a row with all amounts of evidence: they are dependent.
        hit = torch.rand(1, 40, generator=generator) < confidence
        alarms += "more than a perfect model" in _categories_sentence(said_of(confidence, hit))
    # At a level of 0.01 there are 1.3 on average, and 6 or more with a probability of 0.002.
    assert alarms <= 5


def test_the_p_value_of_hits_is_uniform_where_they_are_as_probable_as_was_said(generator):
    found = []
    for _ in range(300):
        confidence = 0.6 + 0.2 * torch.rand(80, generator=generator).double()
        hit = torch.rand(80, generator=generator) < confidence
        (part,) = said_of(confidence[None], hit[None]).values()
        found.append(part.hit_p_value)
    for level in (0.05, 0.2):
        share = sum(p <= level for p in found) / len(found)
        assert abs(share - level) < 3 * (level * (1 - level) / 300) ** 0.5  # standard errors


def test_categories_that_are_off_are_blamed(generator):
    confidence = 0.8 + 0.2 * torch.rand(3, 1500, generator=generator).double()
    hit = torch.rand(3, 1500, generator=generator) < confidence
    for shift, words in ((0.035, "that is real, but too little"), (0.25, "do not take them")):
        wrong = hit.clone()
        wrong[2] = torch.rand(1500, generator=generator) < confidence[2] - shift
        sentence = _categories_sentence(said_of(confidence, wrong))
        assert "With 2 given, it is said to be in" in sentence
        assert words in sentence
    # As often right as was said over all, but not where it was said: bins are off to both sides.
    crossed = torch.where(confidence < 0.9, confidence + 0.1, confidence - 0.1)
    assert "at their word" in _categories_sentence(
        said_of(confidence, torch.rand(3, 1500, generator=generator) < crossed)
    )


def calibrated(pits):
    """Numbers with as many amounts of evidence as there are tensors."""
    return {
        str(place): NumberCalibration(pit, *torch.zeros(2, len(pit)))
        for place, pit in enumerate(pits)
    }


def test_calibrated_numbers_are_told_as_their_plot_has_them(generator):
    """Few rows are far off by chance: the sentence names no amount of evidence then."""
    found = calibrated([torch.rand(n, generator=generator).double() for n in (60, 30, 12)])
    sentence = _numbers_sentence(found)
    shares = [part.coverage(0.9).value for part in found.values()]
    dots = np.concatenate([line.get_xdata() for line in coverage_figure(found).axes[0].lines])
    assert {min(shares), max(shares)} <= set(dots)
    assert f"({min(shares):.1%} to {max(shares):.1%}, depending on how much" in sentence
    missed = smallest_noticed(12, 0.9, 2 * 3)
    assert (
        f"with 12 cells each, errors below {100 * missed:.1f} percentage points would" in sentence
    )
    assert "given," not in sentence


def test_errors_that_would_be_noticed_are_found_as_often_as_said():
    """A two-sided test at 1% finds an error of that size in about four of five simulated checks."""
    cells, rate = 500, 0.9
    error = smallest_noticed(cells, rate, 1)
    source = np.random.default_rng(0)
    shares = source.binomial(cells, rate - error, 4000) / cells
    found = np.abs(shares - rate) > 2.5758 * np.sqrt(rate * (1 - rate) / cells)
    # The spread at the lower rate is larger than at the tested one, which the formula leaves out.
    assert 0.70 < found.mean() < 0.90


def test_the_check_of_numbers_finds_hardly_more_than_it_says(generator):
    """Intervals are too narrow for one of five amounts of evidence, in simulated checks."""
    cells, rate, checks = 500, 0.9, 400
    held = rate - smallest_noticed(cells, rate, 2 * 5)
    u = torch.rand(checks, cells, generator=generator).double()
    inside = 0.05 + 0.9 * u / held
    outside = (u - held) / (1 - held) * 0.1
    pits = torch.where(u < held, inside, torch.where(outside < 0.05, outside, outside + 0.9))
    found = sum(5 * off_p_value(pit, cells) < 0.01 for pit in pits) / checks
    # 0.8 but for the spread at the lower rate; 0.02 is the standard error.
    assert 0.64 < found < 0.84


def test_what_chance_seldom_does_is_no_proof():
    pit = torch.linspace(0.1, 1, 200).double()
    assert 0.01 < ks_p_value(ks_distance(pit), 200) < 0.1
    sentence = _numbers_sentence(calibrated([pit]))
    assert "would look as far off in up to 7% of such checks: that is no proof" in sentence


@pytest.mark.parametrize(("inside", "n"), [(3, 13), (13, 13), (180, 200), (189, 200), (0, 1)])
def test_how_odd_a_coverage_is(inside, n):
    expected = oracle.binomial_p_value(inside, n, LEVELS[-1])
    assert coverage_p_value(inside / n, n) == pytest.approx(expected)


def test_intervals_that_are_too_narrow_are_blamed_though_the_distance_is_small():
    ends = torch.linspace(0.001, 0.04, 7).double()
    pit = torch.cat([ends, torch.linspace(0.3, 0.7, 6).double(), 1 - ends])
    assert ks_p_value(ks_distance(pit), 20) > SUSPICIOUS
    assert "more than a perfect model would be" in _numbers_sentence(calibrated([pit]))


def test_numbers_that_are_off_are_blamed(generator):
    even = torch.rand(3, 4000, generator=generator).double()
    for power, words in ((1.08, "too little to matter"), (2.0, "do not take them at their word")):
        bent = [even[0], even[1] ** power, even[2]]
        sentence = _numbers_sentence(calibrated(bent))
        distance = ks_distance(bent[1])
        assert (
            f"With 1 given, stated probabilities are off by up to {100 * distance:.1f}" in sentence
        )
        assert "more than a perfect model would be in 99% of such checks" in sentence
        assert words in sentence


@pytest.mark.parametrize("kind", MODELS)
def test_the_pit_of_a_level_lies_on_its_step(kind, generator):
    model, x, joint = toy_model(kind, RemoveGreatest(ORDER)), all_values(), toy_joint()
    found = predictions(
        model, x, holding((1,), len(x)), kind="categorical", share=1.0, generator=generator
    )
    levels = [oracle.marginal(joint, (0, v, 0, 0), frozenset({1})) for v in range(3)]
    assert (found.variable == 1).all()
    lists = [part.tolist() for part in found[:3]]
    for values, pit, confidence, hit in zip(x.tolist(), *lists, strict=True):
        below = sum(levels[: values[1]])
        assert below - 1e-9 <= pit <= below + levels[values[1]] + 1e-9
        assert confidence == pytest.approx(max(levels))
        assert hit == (values[1] == levels.index(max(levels)))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_rows_of_the_joint_are_calibrated_and_others_are_not(share, generator):
    model, weights = toy_model("masked", RemoveGreatest(ORDER)), toy_joint()
    drawn = torch.multinomial(
        torch.tensor(list(weights.values())), 1500, replacement=True, generator=generator
    )
    everything = torch.ones(1500, 4, dtype=torch.bool)
    options = {"kind": "categorical", "share": share, "generator": generator}
    for rows, calibrated in ((drawn, True), (drawn // 2, False)):
        found = CategoryCalibration(*predictions(model, all_values()[rows], everything, **options))
        assert (found.p_value > 0.01) == calibrated


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_along_the_path_all_that_comes_before_is_known(share, monkeypatch, generator):
    model, asked = toy_model("masked", RemoveGreatest(ORDER)), []
    predict = model.predict
    monkeypatch.setattr(model, "predict", lambda *a: asked.append(a) or predict(*a))
    everything = torch.ones(200, 4, dtype=torch.bool)
    x = all_values()[torch.arange(200) % len(all_values())]
    options = {"kind": "categorical", "share": share, "along_path": True}
    predictions(model, x, everything, **options, generator=generator)
    ((_, known, targets),) = asked
    place = torch.tensor(ORDER).argsort()
    before = place < place[targets]
    assert (known | ~before).all()
    assert not known.gather(1, targets).any()
    # What comes later is known if it was given, and nothing was at a share of 0.
    assert bool((known & ~before).any()) == (share > 0)


def test_the_pit_at_an_atom_is_spread_over_its_mass(generator):
    """Values of the model's own: uniform with atoms too, though 25% of the values are one."""
    model = atomic_model()
    x = torch.zeros(3000, 2).double()
    level = torch.rand(3000, generator=generator) < 0.7
    smooth = torch.randn(3000, generator=generator) * torch.where(level, 1.0, 0.5)
    is_atom = torch.rand(3000, generator=generator) < torch.where(level, 0.1, 0.6)
    x[:, 0] = torch.where(is_atom, 0.0, smooth + torch.where(level, 2.0, -1.0)).double()
    x[:, 1] = level.double()
    have = torch.ones(3000, 2, dtype=torch.bool)
    for share in (0.0, 1.0):
        pit = predictions(model, x, have, kind="continuous", share=share, generator=generator).pit
        assert ks_p_value(ks_distance(pit), len(pit)) > 0.01


def test_the_column_that_is_off_is_found(generator):
    pit, variable = torch.rand(900, generator=generator), torch.arange(900) % 3
    pit[variable == 1] *= 0.8
    row = torch.arange(900) // 6  # 150 rows, of which each column is in both parts
    parts = [NumberCalibration(pit[i::2], variable[i::2], row[i::2]) for i in range(2)]
    found = by_column(parts, ["a", "b", "c"])
    assert [column.n for column in found] == [300] * 3
    assert [column.n_effective for column in found] == pytest.approx([150] * 3)
    assert found[0].name == "b"
    assert found[0].distance == pytest.approx(ks_distance(pit[variable == 1]))
    assert found[0].p_value == off_p_value(pit[variable == 1], 150)
    assert found[0].p_value < 1e-3 < 0.01 < found[1].p_value
    assert by_column([], []) == []


def test_a_calibrated_column_is_off_no_more_often_than_is_said(generator):
    """A column that depends on no other, in all rows with nothing given, in fewer with more."""
    shares, rows, cases, alarms = (1.0, 0.75, 0.5, 0.25, 0.05), 200, 400, 0
    for _ in range(cases):
        pit, parts = torch.rand(rows, generator=generator), []
        for share in shares:
            row = (torch.rand(rows, generator=generator) < share).nonzero().squeeze(1)
            parts.append(NumberCalibration(pit[row], torch.zeros_like(row), row))
        (found,) = by_column(parts, ["a"])
        counts = torch.bincount(torch.cat([part.row for part in parts])).double()
        assert found.n_effective == pytest.approx(float(counts.sum() ** 2 / (counts**2).sum()))
        alarms += found.p_value < 0.05
    # With the largest part counted as independent they were 7%. 3 standard errors of 5%.
    assert 0.02 < alarms / cases < 0.05 + 3 * (0.05 * 0.95 / cases) ** 0.5


@pytest.mark.parametrize("kind", MODELS)
def test_a_check_has_all_parts(kind, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("anyorder.diagnostics.check.CELLS_AT_ONCE", 300)
    model, x = disagreeing_model(kind, RemoveGreatest(ORDER)), all_values()
    missing = torch.zeros(x.shape, dtype=torch.bool)
    missing[0] = True
    missing[1, 1:] = True
    found = check_model(model, x, missing, seed=3, progress=True)
    assert found.rows == len(x)
    assert len(found.path.rows) == len(x) - 2
    assert found.path.size.value > 0.01
    assert found.orders.log_probs.shape == (9, len(x) - 2)
    assert found.encoding.size.value == pytest.approx(0, abs=1e-9)  # they depend on the set only
    assert found.encoding.to_json()["by_construction"] == (kind == "masked")
    assert set(found.categories) == {
        "nothing",
        "a quarter",
        "half",
        "three quarters",
        "all but one",
    }
    assert not found.numbers
    for part in found.categories.values():  # rows keep their numbers, however they were split
        assert part.row.tolist() == sorted({*part.row.tolist()})
        assert part.row[0] > 0
        assert not missing[part.row, part.variable].any()
    assert found.categories["nothing"].row.tolist() == list(range(1, len(x)))
    assert len(found.sentences()) == 7
    assert repr(found).splitlines() == found.sentences()
    again = check_model(model, x, missing, seed=3)
    assert json.dumps(found.to_json(), allow_nan=False) == json.dumps(again.to_json())
    assert list(found.plot(tmp_path / "new")) == ["reliability"]
    assert (tmp_path / "new" / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert not capsys.readouterr().out


def test_energies_are_checked_on_few_rows():
    schema = Schema((Variable.continuous("a"), Variable.continuous("b")))
    network = ResidualMlp(schema, blocks=1, width=8)
    protocol = RemoveGreatest([0, 1])
    stages = {}
    for head in ("mixture", "energy"):
        conditionals = MixedConditionals(schema, width=8, head=head)
        model = AnyOrderModel(schema, network, conditionals, protocol)
        stages[head] = _stages(model, torch.Generator())
        rows = _rows(model, stages[head]["path"], torch.ones(5000, 2, dtype=torch.bool))
        assert len(rows) == (5000 if head == "mixture" else 30)
    assert set(stages["mixture"]) - set(stages["energy"]) == {"marginalisation"}


def test_rows_of_one_cell_have_no_gaps_to_tell_of():
    model, x = toy_model("path", RemoveGreatest(ORDER)), all_values()
    found = check_model(model, x, ~holding((1,), len(x)))
    assert found.path is found.marginalisation is found.orders is found.encoding is None
    assert len(found.sentences()) == 2
    assert found.to_json()["path"] is None
    with pytest.raises(QueryError, match="needs a row that has a value"):
        check_model(model, x, torch.ones(x.shape, dtype=torch.bool))


def test_what_cannot_be_checked_is_refused():
    model, x = toy_model("path", RemoveGreatest(ORDER)), all_values()
    with pytest.raises(QueryError, match="`missing` must have shape"):
        check_model(model, x, torch.zeros(len(x), 3, dtype=torch.bool))
    with pytest.raises(QueryError, match="must hold codes of levels"):
        check_model(model, x + 5, torch.zeros(x.shape, dtype=torch.bool))
    with pytest.raises(QueryError, match="call `fit` or `load` first"):
        TableModel().check([{"a": 1}])
    with pytest.raises(ConfigError, match="`rows` must be a whole number, 1 or more"):
        TableModel().check([{"a": 1}], rows=0)
