"""Heads of continuous variables: they integrate to one, invert, and draw what they say."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import kstest

from anyorder.errors import QueryError
from anyorder.heads.atoms import AtomicDistribution, AtomLevels
from anyorder.heads.distributions import Categorical, bounded, mean_rule, stacked
from anyorder.heads.energy import BASE_SCALE, REACH, EnergyDistribution
from anyorder.heads.levels import LogisticLevels
from anyorder.heads.mixed import MixedConditionals
from anyorder.heads.mixture import Mixture
from anyorder.heads.spline import Spline
from anyorder.heads.with_prior import HEADS
from anyorder.networks.blocks import AtomTable
from anyorder.variables import Schema, Variable

EDGES, ATOMS = 4, (-1.0, 0.0, 2.5)


def random(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def mixture(component="gaussian"):
    return Mixture(random(EDGES, 3), 2 * random(EDGES, 3), 0.5 * random(EDGES, 3), component)


def spline():
    return Spline(
        random(EDGES, 8), random(EDGES, 8), random(EDGES, 7), random(EDGES), 0.5 * random(EDGES)
    )


def energy(samples=None):
    tilt = random(EDGES)

    def wave(values):
        return 2 * (1.5 * values + tilt).sin() + 0.3 * values

    return EnergyDistribution(wave, mixture(), samples)


def atomic():
    atoms = torch.tensor(ATOMS).repeat(EDGES, 1)
    atoms[1, 2] = torch.inf  # edge 1 has two atoms
    logits = random(EDGES, len(ATOMS) + 1)
    logits[1, 2] = -torch.inf
    return AtomicDistribution(Categorical(logits), atoms, mixture())


SMOOTH = {
    "gaussians": mixture,
    "logistics": lambda: mixture("logistic"),
    "spline": spline,
    "energy": energy,
}
HEAD = [pytest.param(make, id=name) for name, make in SMOOTH.items()]


def grid(points=200_001, reach=80.0):
    line = torch.linspace(-reach, reach, points, dtype=torch.float64)
    return line[:, None].expand(-1, EDGES), float(line[1] - line[0])


@pytest.mark.parametrize("make", HEAD)
def test_a_head_integrates_to_one_and_its_cdf_is_the_integral(make):
    values, step = grid()
    density, head = make().log_prob(values).exp(), make()
    # The trapezoidal rule; a spline's density has kinks of slope, which cost it the most.
    torch.testing.assert_close(density.sum(0) * step, torch.ones(EDGES).double(), rtol=0, atol=1e-6)
    below = (density.cumsum(0) - density / 2) * step
    torch.testing.assert_close(head.cdf(values)[::997], below[::997], rtol=0, atol=1e-4)


@pytest.mark.parametrize(("make", "place"), [(mixture, "means"), (spline, "location")])
def test_stacked_distributions_answer_each_for_itself(make, place):
    one = make()
    parts = [one, replace(one, **{place: getattr(one, place) + 1})]
    values = random(2, EDGES)
    expected = torch.stack([part.log_prob(v) for part, v in zip(parts, values, strict=True)])
    torch.testing.assert_close(stacked(parts).log_prob(values), expected)


@pytest.mark.parametrize("make", HEAD)
def test_quantiles_invert_the_cdf(make):
    head = make()
    share = torch.linspace(1e-6, 1 - 1e-6, 201, dtype=torch.float64)[:, None].expand(-1, EDGES)
    torch.testing.assert_close(head.cdf(head.icdf(share)), share, rtol=0, atol=1e-8)


@pytest.mark.parametrize("make", HEAD)
def test_draws_pass_a_kolmogorov_test(make):
    head, generator = make(), torch.Generator().manual_seed(0)
    drawn = torch.stack([head.sample(generator=generator) for _ in range(2000)])
    for edge, share in enumerate(head.cdf(drawn).T):
        assert kstest(share.numpy(), "uniform").pvalue > 1e-3, edge


@pytest.mark.parametrize("make", HEAD)
def test_mean_mode_and_entropy_are_those_of_the_density(make):
    head = make()
    values, step = grid()
    log_density = head.log_prob(values)
    density = log_density.exp()
    mean, entropy = (density * values).sum(0) * step, -(density * log_density).sum(0) * step
    # From 512 quantiles: the tails' share of them is coarse, and the table of an energy too.
    torch.testing.assert_close(head.mean(), mean, rtol=0, atol=5e-3)
    torch.testing.assert_close(head.entropy(), entropy, rtol=0, atol=2e-2)
    highest = log_density.amax(0)
    torch.testing.assert_close(head.log_prob(head.mode()), highest, rtol=0, atol=1e-3)


@pytest.mark.parametrize("make", [*HEAD, pytest.param(atomic, id="atoms")])
def test_sums_over_nodes_are_expectations(make):
    head = make()
    values, weights = head.nodes()
    torch.testing.assert_close(weights.sum(0), torch.ones(EDGES).double())
    line, step = grid()
    density = head.elsewhere if make is atomic else head
    for function in (torch.sin, torch.tanh, lambda v: (0.3 * v).exp().clamp(max=50)):
        found = (density.log_prob(line).exp() * function(line)).sum(0) * step
        if make is atomic:
            masses = head.branches.log_probs.exp()
            atoms = function(head.atoms.double()).masked_fill(head.atoms.isinf(), 0)
            found = masses[:, -1] * found + (masses[:, :-1] * atoms).sum(1)
        # Quantiles are coarser than Gauss's nodes, which a clamp costs some digits.
        torch.testing.assert_close((weights * function(values)).sum(0), found, rtol=0, atol=1e-2)


def test_the_normalizer_of_an_energy_is_that_of_a_fine_grid():
    head = energy()
    values, step = grid(2_000_001, REACH)
    logs = -head.energy(values) - 0.5 * (values / BASE_SCALE).square()
    fine = logs.logsumexp(0) + math.log(step)
    torch.testing.assert_close(head.log_normalizer(), fine, rtol=0, atol=1e-10)


def test_the_sampled_normalizer_is_unbiased_before_its_log():
    wide = Mixture(*torch.tensor([0.0, 0.0, 1.3]).double().repeat(EDGES, 1)[:, :, None].unbind(1))
    head, generator = EnergyDistribution(energy().energy, wide), torch.Generator().manual_seed(0)
    sampled = torch.stack(
        [head.sampled_log_normalizer(4, generator=generator) for _ in range(2000)]
    )
    truth, error = head.log_normalizer(), sampled.exp().std(0) / 2000**0.5
    assert ((sampled.exp().mean(0) - truth.exp()).abs() < 4 * error).all()
    assert (sampled.mean(0) < truth - 0.1).all()


def test_in_training_an_energy_estimates_and_its_proposal_learns():
    means = torch.zeros(EDGES, 1, dtype=torch.float64, requires_grad=True)
    proposal = Mixture(torch.zeros_like(means), means, torch.ones_like(means))
    values = random(EDGES)
    torch.manual_seed(0)
    EnergyDistribution(lambda v: v**2, proposal, samples=8).log_prob(values).sum().backward()
    torch.testing.assert_close(means.grad[:, 0], values * math.exp(-2))  # of log N(v; mean, e)


def test_atoms_and_density_add_up_to_one():
    head = atomic()
    values, step = grid()
    density = head.log_prob(values + step / 3).exp().sum(0) * step
    masses = torch.stack([head.log_prob(torch.full((EDGES,), atom)).exp() for atom in ATOMS])
    masses[2, 1] = 0  # not an atom of edge 1
    torch.testing.assert_close(
        density + masses.sum(0), torch.ones(EDGES).double(), rtol=0, atol=1e-6
    )


def test_quantiles_of_atoms_are_the_generalised_inverse():
    head, generator = atomic(), torch.Generator().manual_seed(0)
    share = torch.rand(3000, EDGES, dtype=torch.float64, generator=generator)
    found = head.icdf(share)
    assert (head.cdf(found) >= share - 1e-9).all()
    assert (head.cdf(found - 1e-7) <= share + 1e-6).all()
    assert (found[:, 0] == 2.5).double().mean() == pytest.approx(
        float(head.branches.log_probs[0, 2].exp()), abs=0.03
    )
    # Equally probable quantiles and draws have the same mean.
    torch.testing.assert_close(head.mean(), found.mean(0), rtol=0, atol=0.15)
    drawn = torch.stack([head.sample(generator=generator) for _ in range(3000)])
    torch.testing.assert_close(drawn.mean(0), head.mean(), rtol=0, atol=0.15)


def test_the_mode_is_an_atom_where_atoms_weigh_most():
    head = atomic()
    heavy = head.branches.log_probs[:, -1].exp() < 0.5
    is_atom = (head.mode()[:, None] == torch.tensor(ATOMS)).any(1)
    assert torch.equal(is_atom, heavy)
    assert heavy.any()


def test_a_mode_is_searched_only_where_no_atom_weighs_most(monkeypatch):
    logits = torch.zeros(EDGES, len(ATOMS) + 1)
    logits[1::2, -1] = 9.0
    head = AtomicDistribution(Categorical(logits), torch.tensor(ATOMS).repeat(EDGES, 1), mixture())
    smooth = torch.arange(1, EDGES, 2)
    asked, at = [], Mixture.at
    monkeypatch.setattr(Mixture, "at", lambda self, edges: asked.append(edges) or at(self, edges))
    found = head.mode()
    assert torch.equal(asked[0], smooth)
    expected = head.elsewhere.mode()[smooth].to(found)
    torch.testing.assert_close(found[smooth], expected, rtol=0, atol=1e-3)


def test_near_atoms_start_out_alike_and_can_learn_to_differ():
    torch.manual_seed(0)
    codes = tuple(torch.linspace(-2, 2, 41).tolist())
    few, many = Variable.continuous("few", atoms=[0.0]), Variable.continuous("many", atoms=codes)
    levels = AtomLevels(Schema((few, many)), width=16)
    features, count = torch.randn(64, 16), torch.ones(64, dtype=torch.long)
    logits = levels(features, count).logits[:, :-1]
    near = (logits[:, 1:] - logits[:, :-1]).abs().mean()
    assert near < 0.2 * (logits - logits.flip(1)).abs().mean()
    with torch.no_grad():
        levels.weight[1, 20] = 1.0
    raised = levels(features, count).logits[:, :-1] - logits
    torch.testing.assert_close(raised[:, 20], features.sum(1))
    assert not raised[:, torch.arange(41) != 20].any()


def test_atoms_are_found_bit_by_bit():
    values = (-3.5, -0.0, 1e-30, 1.0)
    table = AtomTable(
        [Variable.continuous("a", atoms=values), Variable.continuous("b", atoms=(1.0,))]
    )
    asked = torch.tensor([*values, 0.0, 1.0000001, -1e-30])
    assert table.find(torch.zeros(7, dtype=torch.long), asked).tolist() == [0, 1, 2, 3, 1, -1, -1]
    assert table.find(torch.ones(7, dtype=torch.long), asked).tolist() == [
        -1,
        -1,
        -1,
        0,
        -1,
        -1,
        -1,
    ]


SCHEMA = Schema(
    (
        Variable.continuous("smooth"),
        Variable.continuous("spiked", atoms=(0.0, 1.0)),
        Variable.categorical("colour", ["red", "green", "blue"]),
        Variable.categorical("city", range(40)),
        Variable.continuous("count", atoms=tuple(float(i) for i in range(30))),
        Variable.continuous("more"),
        Variable.categorical("region", ["north"], context=True),
    )
)


@pytest.fixture(params=HEADS)
def mixed(request):
    torch.manual_seed(0)
    return MixedConditionals(SCHEMA, width=8, head=request.param).double()


def edges():
    variables = torch.arange(6).repeat(5, 1)
    return random(5, 6, 8), variables


@torch.no_grad()
def test_mixed_edges_are_answered_by_the_head_of_their_variable(mixed):
    mixed.eval()
    features, variables = edges()
    together = mixed(features, variables)
    values = together.sample(generator=torch.Generator().manual_seed(0))
    assert values.shape == (5, 6)
    assert set(values[:, 2].tolist()) <= {0, 1, 2}
    answers = {method: getattr(together, method)(values) for method in ("log_prob", "cdf")}
    for row in range(5):
        for variable in range(6):
            alone = mixed(features[row, variable][None], variables[row, variable][None])
            here = values[row, variable]
            for method, got in answers.items():
                expected = getattr(alone, method)(here[None])[0]
                torch.testing.assert_close(got[row, variable], expected)


def test_probabilities_of_levels_sum_to_one(mixed):
    mixed.eval()
    features, variables = edges()
    conditional = mixed(features[:, 3], variables[:, 3])
    total = sum(conditional.log_prob(torch.full((5,), level)).exp() for level in range(40))
    torch.testing.assert_close(total, torch.ones(5).double())


@pytest.mark.parametrize("extreme", [0.0, 1.0, 1e-6, 30.0, -1e4])
def test_gradients_are_finite_at_extremes(mixed, extreme):
    mixed = mixed.float().train()
    features, variables = edges()
    features = (1e3 * features).float().requires_grad_()
    values = torch.full((5, 6), extreme)
    values[:, 2:4] = 0
    mixed(features, variables).log_prob(values).sum().backward()
    assert features.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in mixed.parameters())


def test_temperature_sharpens_a_mixture_and_is_refused_elsewhere():
    one = Mixture(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1))
    assert one.tempered(0.25).log_scales.exp() == 0.5
    with pytest.raises(QueryError, match="no temperature"):
        spline().tempered(0.5)
    with pytest.raises(QueryError, match="`top_k` is for categorical"):
        one.tempered(1.0, top_k=2)


FLOATS = {
    "categories": lambda: Categorical(random(EDGES, 5).float()),
    "gaussians": lambda: floats(mixture()),
    "logistics": lambda: floats(mixture("logistic")),
    "atoms": lambda: replace(
        atomic(), branches=floats(atomic().branches), elsewhere=floats(mixture())
    ),
    "levels": lambda: floats(
        LogisticLevels(random(EDGES, 3), 4 + 3 * random(EDGES, 3), random(EDGES, 3), 9)
    ),
}


def floats(law):
    changed = {name: value.float() for name, value in vars(law).items() if hasattr(value, "float")}
    return replace(law, **changed)


@pytest.mark.parametrize("temperature", [1e-60, 1e-300, 5e-324])
@pytest.mark.parametrize("kind", FLOATS)
def test_a_tiny_temperature_draws_what_is_greatest(kind, temperature):
    law = FLOATS[kind]()
    cold = law.tempered(temperature)
    draws = torch.stack([cold.sample() for _ in range(5)])
    assert (draws == draws[0]).all()
    torch.testing.assert_close(draws[0].double(), cold.mode().double())
    assert not cold.log_prob(draws[0]).isnan().any()
    if kind in ("categories", "levels"):
        assert torch.equal(draws[0], law.mode())
    if kind in ("gaussians", "logistics"):
        greatest = law.means.gather(-1, law.logits.argmax(-1, keepdim=True))[..., 0]
        torch.testing.assert_close(draws[0], greatest, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("temperature", [1e39, 1e300])
@pytest.mark.parametrize("kind", FLOATS)
def test_a_huge_temperature_draws_numbers_and_nothing_impossible(kind, temperature):
    hot = FLOATS[kind]().tempered(temperature)
    draws = hot.sample()
    assert draws.double().isfinite().all()
    assert hot.log_prob(draws).isfinite().all()


@pytest.mark.parametrize("kind", ["spline", "energy"])
def test_densities_without_a_temperature_refuse_tiny_ones(kind):
    with pytest.raises(QueryError, match="no temperature"):
        SMOOTH[kind]().tempered(1e-300)


def test_float32_draws_are_finite_far_out():
    head = Spline(*(torch.zeros(1000, n) for n in (4, 4, 3)), torch.zeros(1000), torch.zeros(1000))
    generator = torch.Generator().manual_seed(0)
    assert all(head.sample(generator=generator).isfinite().all() for _ in range(200))


def test_quantiles_of_atoms_are_finite_up_to_one():
    for seed in range(50):
        torch.manual_seed(seed)
        branches = Categorical(torch.randn(1, 4))
        bell = Mixture(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1))
        head = AtomicDistribution(branches, torch.tensor([[-1.0, 0.0, 1.0]]), bell)
        assert head.icdf(torch.tensor([1 - 1e-9]).double()).isfinite()


def test_a_narrow_peak_does_not_hide_the_mode():
    weights = torch.tensor([[0.9975, 0.0025]]).double().log()
    head = Mixture(
        weights, torch.tensor([[0.0, 3.0]]).double(), torch.tensor([[0.0, -6.9]]).double()
    )
    assert head.mode() == pytest.approx(3.0, abs=1e-3)


def test_means_of_skewed_columns_are_not_cut():
    shares, weights = mean_rule()
    assert weights.sum() == pytest.approx(1)
    scores = torch.special.ndtri(shares)
    for spread, error in ((1.0, 0.01), (2.0, 0.03)):
        mean = float((weights * (spread * scores).exp()).sum())
        assert mean == pytest.approx(math.exp(spread**2 / 2), rel=error)


@pytest.mark.parametrize("spread", [0.1, 0.03, 0.02])
def test_narrow_energies_are_normalised(spread):
    centres = torch.linspace(-1, 1, 41).double()
    bell = EnergyDistribution(
        lambda v: 0.5 * ((v - centres) / spread) ** 2 - 0.5 * (v / BASE_SCALE) ** 2,
        Mixture(*torch.zeros(3, 41, 1).double().unbind(0)),
    )
    wanted = -math.log(spread) - 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(
        bell.log_prob(centres), torch.full_like(centres, wanted), rtol=0, atol=1e-6
    )


def test_scales_are_bounded_with_a_gradient_everywhere():
    wanted = torch.tensor([-100.0, -3.0, 0.0, 3.0, 100.0], requires_grad=True)
    found = bounded(wanted)
    found.sum().backward()
    assert (found > math.log(0.99e-4)).all()
    assert (found < math.log(1.01e3)).all()
    torch.testing.assert_close(found[1:4], wanted[1:4], rtol=0, atol=0.05)
