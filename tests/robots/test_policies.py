"""Policies on the toy of the kitchen: what they are told they do, and nothing leaks."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from anyorder.errors import CheckpointError, ConfigError, QueryError, SchemaError
from anyorder.heads.mixture import MeanConditionals
from anyorder.lattice.query_laws import Query
from anyorder.networks.residual_mlp import StateMlp
from anyorder.networks.state_path import StatePath
from anyorder.robots.episodes import rollout, rollouts
from anyorder.robots.kitchen import JOINTS, MOVE, POSITIONS, SCORED, ToyKitchen, toy_demonstrations
from anyorder.robots.policies import (
    CloningPolicy,
    ConditionalPolicy,
    SharedAutonomy,
    action_queries,
)
from anyorder.robots.scaling import Scaling, SteeredRows
from anyorder.saving.checkpoint import load_saved
from anyorder.training.losses import BlindLoss, MacLoss, PathLoss
from anyorder.training.settings import TrainingSettings
from anyorder.variables import Schema, Variable

SETTINGS = TrainingSettings(batch=32, steps=30, warmup=5, learning_rate=3e-3)
SMALL = {"hidden": 24, "blocks": 1, "settings": SETTINGS}


@pytest.fixture(scope="module")
def demonstrations():
    return toy_demonstrations(30)


@pytest.fixture(scope="module")
def cloning(demonstrations):
    return CloningPolicy(**SMALL).fit(demonstrations)


@pytest.fixture(scope="module")
def conditional(demonstrations):
    return ConditionalPolicy(how="sample", **SMALL).fit(demonstrations)


class Fixed:
    """Does the same whatever happens, and remembers what it was told."""

    def __init__(self, value):
        self.value, self.told = value, []

    def start(self, seed):
        self.seed = seed

    def act(self, _, told=None):
        self.told.append(told)
        return np.full(JOINTS, self.value, dtype=np.float32)


def test_shared_autonomy_puts_two_actions_together():
    operator, assistant = Fixed(0.5), Fixed(-0.5)
    shared = SharedAutonomy(operator, assistant, (1, 4))
    shared.start(7)
    assert (operator.seed, assistant.seed) == (7, 7)
    action = shared.act(np.zeros(POSITIONS))
    assert action.tolist() == [0.5 if i in (1, 4) else -0.5 for i in range(JOINTS)]
    assert assistant.told == [{1: 0.5, 4: 0.5}]
    blind = SharedAutonomy(operator, assistant, (1, 4), tells=False)
    assert blind.act(np.zeros(POSITIONS)).tolist() == action.tolist()
    assert assistant.told[-1] is None
    assert shared.act(np.zeros(POSITIONS), told={4: 0.0, 8: 1.0})[[4, 8]].tolist() == [0, 1]


def test_dimensions_are_operated_once():
    with pytest.raises(ConfigError, match="each once"):
        SharedAutonomy(Fixed(0), Fixed(0), (1, 1))


@pytest.mark.parametrize("name", ["cloning", "conditional"])
def test_what_is_told_is_done(name, request, demonstrations):
    policy, told = request.getfixturevalue(name), {0: 0.25, 5: -0.75}
    policy.start(0)
    action = policy.act(demonstrations.observations[0], told)
    assert action.shape == (JOINTS,)
    assert (action[0], action[5]) == (0.25, -0.75)
    assert (np.abs(action) <= 1).all()


def test_the_cloning_policy_is_blind_and_the_conditional_one_is_not(
    cloning, conditional, demonstrations
):
    seen = demonstrations.observations[0]
    rest = list(range(1, JOINTS))
    assert np.array_equal(cloning.act(seen, {0: 1.0})[rest], cloning.act(seen, {0: -1.0})[rest])
    found = []
    for value in (1.0, -1.0):
        conditional.start(0)
        found.append(conditional.act(seen, {0: value})[rest])
    assert not np.allclose(*found)


def test_a_decision_reads_the_state_once(conditional, demonstrations):
    network, passes = conditional.model_.network, []
    hook = network.enter.register_forward_hook(lambda *_: passes.append(1))
    conditional.act(demonstrations.observations[0])
    hook.remove()
    assert len(passes) == 1


def test_means_are_those_of_one_question_after_another(conditional, demonstrations):
    """The walk with what it remembers is `predict` with all that is known, step by step."""
    model, scaling = conditional.fitted()
    seen, told = demonstrations.observations[3], {2: 0.4, 7: -0.1}
    x, known = scaling.question(seen, told)
    for target in (~known[0]).nonzero()[:, 0].tolist():
        with torch.no_grad():
            x[:, target] = model.predict(x, known, torch.tensor([[target]])).mean()[:, 0]
        known[:, target] = True
    conditional.how = "mean"
    action = conditional.act(seen, told)
    conditional.how = "sample"
    assert np.allclose(action, scaling.action(x[0], told), atol=1e-5)


@pytest.mark.parametrize(
    ("network", "kind", "objective"),
    [("path", StatePath, PathLoss), ("perceptron", StateMlp, MacLoss)],
)
def test_both_networks_are_trained_on_the_same_edges(network, kind, objective, demonstrations):
    """One draws questions, with all of their factors, the other single factors of them."""
    policy = ConditionalPolicy(network=network, **SMALL).fit(demonstrations)
    assert isinstance(policy.model_.network, kind)
    found = policy._objective(JOINTS)
    assert isinstance(found, objective)
    source, every = torch.Generator().manual_seed(0), torch.arange(JOINTS)
    if network == "path":
        query, *_ = found.draw(policy.model_, 20_000, generator=source)
        shares = torch.zeros(JOINTS).double()
        for size in range(1, JOINTS + 1):  # sizes of what is known, each counted once a factor
            known = JOINTS - size + every[:size]
            shares[known] += (query.sum(dim=1) == size).double().mean() / size
    else:
        observed, weights = found.draw(policy.model_, 20_000, generator=source)
        assert (weights.sum(dim=1) == 1).all()
        first = (~observed).int().argmax(dim=1)
        assert torch.equal(weights.argmax(dim=1), first)  # the next on the path, and no other
        shares = torch.bincount(observed.sum(dim=1), minlength=JOINTS) / 20_000
    # Every factor of a whole action counts 1/2, and of the rest of a random set of c given, 1/18.
    whole, rest = torch.full((JOINTS,), 0.5).double(), (every + 1) / 18
    expected = (whole + rest) / (whole + rest).sum()
    # A share's standard error is below 0.003.
    torch.testing.assert_close(shares.double(), expected.double(), rtol=0, atol=0.012)


@pytest.mark.parametrize("how", ["sample", "likeliest", "mean"])
def test_an_episode_is_a_function_of_its_seed(how, conditional, demonstrations):
    seen, policy = demonstrations.observations[5], conditional
    policy.how = how
    actions = []
    for seed in (1, 1, 2):
        policy.start(seed)
        actions.append(policy.act(seen))
    policy.how = "sample"
    assert np.array_equal(actions[0], actions[1])
    assert np.array_equal(actions[0], actions[2]) == (how == "mean")


def test_the_likeliest_of_many_is_likelier_than_one(conditional, demonstrations):
    steps = demonstrations.chosen([0])
    everything = torch.ones(1, JOINTS, dtype=torch.bool)
    logs = {"sample": [], "likeliest": []}
    for how, found in logs.items():
        conditional.how = how
        conditional.start(0)
        for seen in steps.observations:
            action = conditional.act(seen)
            one = replace(steps, observations=seen[None], actions=action[None], lengths=(1,))
            question = Query(~everything, everything)
            found.append(float(conditional.log_prob(one, question)))
    conditional.how = "sample"
    assert np.mean(logs["likeliest"]) > np.mean(logs["sample"])


def test_likelihoods_are_densities_of_actions_in_their_own_units(conditional, demonstrations):
    """The density of dimension 3 given some others integrates to one over its values."""
    step, grid = demonstrations.chosen([0]), np.linspace(-6, 6, 4001, dtype=np.float32)
    actions = np.repeat(step.actions[:1], len(grid), axis=0)
    actions[:, 3] = grid
    rows = replace(
        step,
        observations=np.repeat(step.observations[:1], len(grid), axis=0),
        actions=actions,
        lengths=(len(grid),),
    )
    query = torch.zeros(len(grid), JOINTS, dtype=torch.bool)
    query[:, 3] = True
    given = torch.zeros_like(query)
    given[:, [0, 5]] = True
    density = conditional.log_prob(rows, Query(given, query)).exp()
    assert float(torch.trapezoid(density, torch.from_numpy(grid).double())) == pytest.approx(
        1, abs=1e-3
    )


def test_questions_that_make_no_sense(conditional, demonstrations):
    with pytest.raises(QueryError, match="30 numbers"):
        conditional.act(np.zeros(59))
    for broken in (np.nan, np.inf):
        with pytest.raises(QueryError, match="finite"):
            conditional.act(np.full(30, broken))
    for told in ({0: 50.0}, {0: np.nan}, {0: "x"}):
        with pytest.raises(QueryError, match="numbers from -1 to 1; dimension 0"):
            conditional.act(np.zeros(30), told=told)
    with pytest.raises(QueryError, match="must be a dict"):
        conditional.act(np.zeros(30), told=[1, 2])
    with pytest.raises(QueryError, match="0 to 8"):
        conditional.act(demonstrations.observations[0], {9: 0.0})
    with pytest.raises(ConfigError, match="not fitted"):
        ConditionalPolicy().act(demonstrations.observations[0])
    with pytest.raises(ConfigError, match='"sample"'):
        ConditionalPolicy(how="best")
    with pytest.raises(ConfigError, match='how="mean"'):
        ConditionalPolicy(temperature=0)
    with pytest.raises(ConfigError, match='"perceptron"'):
        ConditionalPolicy(network="mlp")


def test_a_training_that_was_stopped_is_a_policy_too(demonstrations, tmp_path):
    policy = ConditionalPolicy(head="spline", **SMALL).fit(demonstrations, folder=tmp_path)
    loaded, seen = ConditionalPolicy.load(tmp_path), demonstrations.observations[0]
    assert loaded.head == "spline"
    assert np.array_equal(loaded.act(seen), policy.act(seen))


def test_a_saved_policy_acts_as_before(conditional, demonstrations, tmp_path):
    conditional.save(tmp_path)
    loaded = ConditionalPolicy.load(tmp_path)
    assert loaded.settings == conditional.settings
    assert repr(load_saved(tmp_path).law) == repr(action_queries(JOINTS))
    for policy in (conditional, loaded, pickle.loads(pickle.dumps(conditional))):
        policy.start(3)
    seen = demonstrations.observations[0]
    assert np.array_equal(loaded.act(seen, {1: 0.5}), conditional.act(seen, {1: 0.5}))
    with pytest.raises(CheckpointError, match="does not hold a CloningPolicy"):
        CloningPolicy.load(tmp_path)


def test_cloning_is_least_squares(demonstrations):
    """The loss of the mean head is half the squared error, and a constant."""
    scaling = Scaling.of(demonstrations)
    model = CloningPolicy(**SMALL)._build(scaling)
    x = scaling.rows(demonstrations.observations[:8], demonstrations.actions[:8])
    loss = BlindLoss().loss(model, x, BlindLoss().draw(model, len(x)))
    every = torch.arange(JOINTS).expand(len(x), -1)
    means = model.predict(x, torch.zeros(len(x), JOINTS, dtype=torch.bool), every).mean()
    squares = (means - x[:, :JOINTS]).square().mean(dim=1) / 2
    assert torch.allclose(loss, squares + np.log(2 * np.pi) / 2, atol=1e-5)
    assert isinstance(model.conditionals, MeanConditionals)


def test_steered_rows_lead_to_the_same_place(demonstrations):
    """Wherever a joint is seen, it and its action add up to where it was told to go."""
    scaling = Scaling.of(demonstrations)
    x = scaling.rows(demonstrations.observations, demonstrations.actions)
    rows = SteeredRows(x, scaling=scaling, spread=0.5, reach=MOVE, noise=0.0, seed=0)
    plain = SteeredRows(x, scaling=scaling, spread=0.0, reach=MOVE, noise=0.0, seed=0)
    moved, still = (
        part.batch(0, 64, generator=torch.Generator().manual_seed(1))[0] for part in (rows, plain)
    )
    spread, mean = (
        torch.tensor([*getattr(scaling, f"action_{p}"), *getattr(scaling, f"seen_{p}")])
        for p in ("spread", "mean")
    )
    places = []
    for part in (moved, still):
        action, joints = (part * spread + mean)[:, : 2 * JOINTS].split(JOINTS, dim=1)
        places.append(joints + MOVE * action)
    assert torch.allclose(*places, atol=1e-4)
    assert not torch.allclose(moved, still, atol=0.1)
    assert torch.equal(moved[:, 2 * JOINTS :], still[:, 2 * JOINTS :])
    assert rows.describe() != plain.describe()


def test_the_state_network_reads_what_is_observed_and_no_more():
    schema = Scaling.of(toy_demonstrations(4)).schema
    network = StateMlp(schema, width=4, hidden=8, blocks=1)
    x, observed = torch.randn(5, len(schema)), torch.rand(5, JOINTS) < 0.5
    other = x.clone()
    other[:, :JOINTS][~observed] = 9.0
    assert torch.equal(network(x, observed), network(other, observed))
    targets = torch.tensor([[2]] * 5)
    assert torch.equal(network(x, observed, targets)[:, 0], network(x, observed)[:, 2])
    with pytest.raises(SchemaError, match="numbers only"):
        StateMlp(Schema((Variable.categorical("job", ["a", "b"]),)))


def test_half_of_the_questions_are_whole_actions():
    given, query = action_queries(JOINTS).sample(4_000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(given, ~query)
    share = float((~given).all(dim=1).double().mean())
    # One half, and a ninth of the others; the standard error is 0.008.
    assert share == pytest.approx(0.5 + 0.5 / 9, abs=0.03)


def test_episodes_depend_on_their_policy_and_their_seed_alone(cloning, conditional):
    shared = SharedAutonomy(cloning, conditional, (0, 1, 2, 3))
    turns = [(shared, 1), (cloning, 2), (shared, 3)]
    alone = rollouts(turns, ToyKitchen)
    assert alone == rollouts(pickle.loads(pickle.dumps(turns)), ToyKitchen)
    assert alone == [*reversed(rollouts(turns[::-1], ToyKitchen))]
    assert alone[0] == rollout(shared, ToyKitchen(), 1)
    assert [episode.seed for episode in alone] == [1, 2, 3]
    assert all(0 <= episode.reward <= len(SCORED) for episode in alone)


def test_somebody_who_knows_the_way_completes_the_toy():
    from anyorder.robots import kitchen as robot_toy

    class Knows:
        def start(self, _):
            self.left = list(range(len(SCORED)))

        def act(self, observation):
            self.left = [t for t in self.left if observation[JOINTS + t] == 0]
            return (robot_toy._PLACES[self.left[0]] - observation[:JOINTS]) / MOVE

    episode = rollout(Knows(), ToyKitchen(), 0)
    assert episode.reward == 4
    assert [task for task, _ in episode.completed] == list(SCORED)
    assert episode.steps < robot_toy.EPISODE
