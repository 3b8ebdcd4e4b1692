"""Trees: against enumeration of all spanning trees and of all assignments of states."""

import math

import pytest
import torch

from anyorder.priors.tree_fit import chow_liu, cut, dependence, mutual_information, preorder
from anyorder.priors.trees import Beliefs, Tree, code_pairs, swept
from tests.oracle import best_spanning_tree, tree_beliefs

PARENT = [2, 0, -1, 2, 3, 3]
STATES, ROWS = 3, 4


@pytest.fixture
def parts(generator):
    """Root, transitions, and likelihoods of the states by the value of each variable."""
    root = torch.rand(STATES, generator=generator, dtype=torch.float64)
    branch = torch.rand(6, STATES, STATES, generator=generator, dtype=torch.float64)
    values = torch.rand(6, ROWS, STATES, generator=generator, dtype=torch.float64)
    return root / root.sum(), branch / branch.sum(dim=-1, keepdim=True), values


def expected_beliefs(root, branch, values, known, row):
    likelihoods = [
        values[i, row].tolist() if known[i] else [1.0] * STATES for i in range(len(PARENT))
    ]
    return tree_beliefs(PARENT, root.tolist(), branch.tolist(), likelihoods)


def test_two_sweeps_give_all_beliefs(parts, generator):
    root, branch, values = parts
    known = torch.rand(6, ROWS, generator=generator) < 0.5
    own = values.log().masked_fill(~known[..., None], 0)
    inner, up, down = swept(Tree(PARENT), own, root.log()[None], branch)
    found = (inner + down).softmax(dim=-1)
    for row in range(ROWS):
        expected = expected_beliefs(root, branch, values, known[:, row], row)
        torch.testing.assert_close(found[:, row], torch.tensor(expected, dtype=torch.float64))
    assert up[2].eq(0).all()


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 1, 4, 0], [2, 3]])
def test_a_walk_gives_the_belief_at_every_turn(parts, generator, order):
    root, branch, values = parts
    given = torch.rand(6, ROWS, generator=generator) < 0.3
    evidence = values.log().masked_fill(~given[..., None], 0)
    told = values.log().masked_fill(given[..., None], 0)
    beliefs, known = Beliefs(Tree(PARENT), evidence, root.log()[None], branch), given.clone()
    some = torch.tensor([2, 0])  # rows that go on after half of the way
    for turn, variable in enumerate(order):
        if turn == len(order) // 2:
            beliefs, told = beliefs.select(some), told[:, some]
            values, known, given = values[:, some], known[:, some], given[:, some]
        found = beliefs.at(variable).softmax(dim=-1)
        for row in (~given[variable]).nonzero()[:, 0].tolist():
            expected = expected_beliefs(root, branch, values, known[:, row], row)[variable]
            torch.testing.assert_close(found[row], torch.tensor(expected, dtype=torch.float64))
        beliefs.tell(variable, told[variable])
        known[variable] = True


def test_evidence_that_excludes_all_is_finite(parts):
    root, branch, values = parts
    own = torch.full_like(values, -1e4)
    inner, _, down = swept(Tree(PARENT), own, root.log()[None], branch)
    assert (inner + down).isfinite().all()


def test_the_tree_of_chow_and_liu_has_most_information(generator):
    for _ in range(5):
        information = torch.rand(5, 5, generator=generator)
        information = information + information.T
        parent = chow_liu(information)
        assert parent.count(-1) == 1
        total = sum(float(information[i, p]) for i, p in enumerate(parent) if p >= 0)
        assert total == pytest.approx(best_spanning_tree(information.tolist()), rel=1e-5)


def test_a_chain_is_rooted_at_its_middle():
    information = torch.zeros(5, 5)
    for i in range(4):
        information[i, i + 1] = information[i + 1, i] = 1.0 + i
    assert chow_liu(information) == [1, 2, -1, 2, 3]


def test_information_of_pairs_is_that_of_their_counts(generator):
    a = torch.randint(2, (20_000,), generator=generator)
    flip = torch.rand(20_000, generator=generator) < 0.1
    x = torch.stack([a, a ^ flip, torch.randint(3, (20_000,), generator=generator)], dim=1)
    have = torch.ones_like(x, dtype=torch.bool)
    have[:5000, 1] = False
    codes, sizes = cut(x.float(), have, [2, 2, 3])
    assert sizes == [2, 2, 3]
    assert (codes[:5000, 1] == -1).all()
    found = mutual_information(code_pairs(codes, torch.ones(20_000), sizes), sizes)
    noisy = math.log(2) + 0.9 * math.log(0.9) + 0.1 * math.log(0.1)
    assert found[0, 1] == pytest.approx(noisy, abs=0.01)
    assert found[0, 2] == pytest.approx(0, abs=5e-4)
    # Counted: rows that have both, their shares, and the bias of a table of two by two.
    own, other = x[5000:, 0], x[5000:, 1]
    both = torch.stack(
        [((own == i) & (other == j)).double().mean() for i in (0, 1) for j in (0, 1)]
    )
    both = both.view(2, 2)
    apart = both.sum(dim=1, keepdim=True) * both.sum(dim=0)
    exact = float((both * (both / apart).log()).sum()) - 0.5 / 15_000
    assert found[0, 1] == pytest.approx(exact, abs=1e-6)


def test_weights_count_as_so_many_rows(generator):
    codes = torch.randint(3, (200, 4), generator=generator)
    weights = torch.randint(1, 4, (200,), generator=generator)
    found = code_pairs(codes, weights, [3] * 4)
    expected = code_pairs(
        codes.repeat_interleave(weights, dim=0), torch.ones(int(weights.sum())), [3] * 4
    )
    torch.testing.assert_close(found, expected)


def test_numbers_are_cut_at_quantiles_and_rare_levels_share_a_code(generator):
    x = torch.stack(
        [torch.randn(4000, generator=generator), torch.arange(4000.0) % 50, torch.zeros(4000)],
        dim=1,
    )
    x[:1000, 1] = 7
    codes, sizes = cut(x, torch.ones_like(x, dtype=torch.bool), [0, 50, 0])
    assert sizes[:2] == [8, 32]
    assert codes[:, 0].bincount().float().std() < 5
    assert (codes[:1000, 1] == 0).all()  # the most frequent level
    assert codes[:, 1].max() == 31
    assert codes[:, 2].unique().numel() == 1


def test_relatives_follow_each_other_and_strangers_come_last():
    information = torch.zeros(5, 5)
    for i, j, shared in [(0, 1, 0.5), (0, 2, 0.9), (2, 3, 0.4), (0, 4, 0.0)]:
        information[i, j] = information[j, i] = shared
    assert preorder([-1, 0, 0, 2, 0], information) == [0, 2, 3, 1, 4]


def test_dependence_of_known_tables(generator):
    a = torch.randint(2, (20_000,), generator=generator)
    other = torch.randint(3, (20_000,), generator=generator)
    x = torch.stack([a, a * 5 + 1, other], dim=1).float()
    found = dependence(x, torch.ones_like(x, dtype=torch.bool), [2, 0, 3])
    assert found[0, 1] == pytest.approx(math.log(2), abs=0.001)
    assert found[0, 2] < 0.001
    torch.testing.assert_close(found, found.T)
    assert found.diagonal().eq(0).all()
    assert found.min() >= 0


def test_missing_values_do_not_count(generator):
    x = torch.randn(20_000, 1, generator=generator).repeat(1, 2)
    available = torch.rand(20_000, 2, generator=generator) < 0.7
    whole = dependence(x, torch.ones_like(available), [0, 0])[0, 1]
    x[~available] = torch.randn(int((~available).sum()), generator=generator)
    assert dependence(x, available, [0, 0])[0, 1] == pytest.approx(float(whole), abs=0.15)
