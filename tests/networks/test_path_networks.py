"""Path networks leak nothing; one pass, buckets and cache give the same features."""

import pytest
import torch

from anyorder.networks.patch_path_transformer import PatchPathTransformer
from anyorder.networks.path_perceptron import PathPerceptron
from anyorder.networks.path_transformer import PathTransformer
from anyorder.networks.paths import split_rows
from anyorder.networks.state_path import StatePath
from tests.networks.conftest import NUM_VARIABLES, schema_of, wake

LEXICOGRAPHIC = torch.arange(NUM_VARIABLES)
# float32, three layers: the orders of summation differ between the ways of computing.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def permutations(batch: int) -> torch.Tensor:
    return torch.rand(batch, NUM_VARIABLES, generator=torch.Generator().manual_seed(2)).argsort(1)


def orders(network, batch: int) -> torch.Tensor:
    """Random ranks that the network can walk: one patch after another if it has patches."""
    rank = permutations(batch)
    if not isinstance(network, PatchPathTransformer):
        return rank
    first = network.patches.split(rank).amin(2)
    return (NUM_VARIABLES * first[:, network.patches.patch_of] + rank).argsort(1).argsort(1)


def step_by_step(network, x, query, given, rank):
    """The slow, obvious way for one row: encode, then ask and tell one variable after the other."""
    state = network.encode(x, given)
    features = []
    for variable in sorted(query[0].nonzero().flatten().tolist(), key=lambda i: int(rank[i])):
        variable = torch.tensor([variable])
        features.append(network.ask(state, variable)[:, 0])
        state = network.tell(state, variable, x[:, variable])
    return torch.cat(features) if features else torch.zeros(0, network.width)


@pytest.mark.parametrize("ranked", ["canonical", "by_row"])
@torch.no_grad()
def test_one_pass_equals_step_by_step_row_by_row(path_network, x, sets, ranked):
    query, given = sets
    rank = LEXICOGRAPHIC if ranked == "canonical" else orders(path_network, len(x))
    path = path_network(x, query, given, rank)
    for row in range(len(x)):
        one = slice(row, row + 1)
        row_rank = rank if ranked == "canonical" else rank[row]
        expected = step_by_step(path_network, x[one], query[one], given[one], row_rank)
        torch.testing.assert_close(path.features[path.row == row], expected, **CLOSE)


@torch.no_grad()
def test_edges_are_in_order_of_row_and_step(path_network, x, sets):
    query, given = sets
    rank = orders(path_network, len(x))
    path = path_network(x, query, given, rank)
    expected = [
        (row, step, target)
        for row in range(len(x))
        for step, target in enumerate(
            sorted(query[row].nonzero().flatten().tolist(), key=rank[row].__getitem__)
        )
    ]
    assert list(zip(*(t.tolist() for t in path[1:4]), strict=True)) == expected


@torch.no_grad()
def test_equal_lengths_take_the_unpadded_way_to_the_same_features(path_network, x):
    given = torch.zeros_like(x, dtype=torch.bool)
    given.scatter_(1, permutations(len(x))[:, :4], True)
    together = path_network(x, ~given, given, LEXICOGRAPHIC).features.view(len(x), 5, -1)
    for row in range(len(x)):
        one = slice(row, row + 1)
        alone = path_network(x[one], ~given[one], given[one], LEXICOGRAPHIC).features
        torch.testing.assert_close(together[row], alone, **CLOSE)


@torch.no_grad()
def test_no_feature_sees_its_target_what_comes_later_or_what_is_absent(path_network, x, sets):
    query, given = sets
    before = path_network(x, query, given, LEXICOGRAPHIC)
    for variable in range(NUM_VARIABLES):
        other = x.clone()
        other[:, variable] = (other[:, variable] + 1) % 5
        after = path_network(other, query, given, LEXICOGRAPHIC)
        visible = given[:, variable][before.row] | (
            query[:, variable][before.row] & (variable < before.target)
        )
        moved = (before.features - after.features).abs().amax(1) > 1e-6
        assert torch.equal(moved, visible), (
            "exactly the features that condition on the variable move"
        )


@torch.no_grad()
def test_features_do_not_depend_on_what_else_is_asked(path_network, x, sets):
    query, given = sets
    path = path_network(x, query, given, LEXICOGRAPHIC)
    shorter = query & (LEXICOGRAPHIC < 6)
    part = path_network(x, shorter, given, LEXICOGRAPHIC)
    torch.testing.assert_close(part.features, path.features[path.target < 6], **CLOSE)


@torch.no_grad()
def test_draws_share_evidence(path_network, x, sets):
    _, given = sets
    given[:, :3] = False
    draws = 4
    state = path_network.encode(x, given).expand(draws)
    copies = path_network.encode(x.repeat_interleave(draws, 0), given.repeat_interleave(draws, 0))
    values = torch.randint(5, (len(x) * draws, 3), generator=torch.Generator().manual_seed(4))
    for step in range(3):
        variable = torch.tensor([step])
        torch.testing.assert_close(
            path_network.ask(state, variable), path_network.ask(copies, variable), **CLOSE
        )
        state = path_network.tell(state, variable, values[:, variable])
        copies = path_network.tell(copies, variable, values[:, variable])
    if not isinstance(path_network, StatePath | PathPerceptron):  # they keep values for each draw
        assert state.evidence[0][0].shape[0] == len(x)


@torch.no_grad()
def test_expand_and_select_in_the_middle_of_a_path(path_network, x, sets):
    _, given = sets
    given[:, :3] = False
    first, rest, last = torch.tensor([0]), torch.tensor([1]), torch.tensor([2])
    state = path_network.encode(x, given)
    path_network.ask(state, first)
    path_network.tell(state, first, x[:, first])
    path_network.ask(state, rest)
    path_network.tell(state, rest, x[:, rest])
    rows = torch.tensor([5, 0, 2])
    part = path_network.ask(state.expand(3).select(rows), last)
    whole = path_network.ask(state, last)
    torch.testing.assert_close(part, whole[rows].repeat_interleave(3, 0), **CLOSE)


@pytest.mark.parametrize("draws", [1, 3])
@torch.no_grad()
def test_telling_many_at_once_is_telling_one_by_one(path_network, x, sets, draws):
    _, given = sets
    given[:, 2:6] = False
    told, asked = torch.tensor([2, 3, 4]), torch.tensor([5])
    values = torch.randint(5, (len(x) * draws, 3), generator=torch.Generator().manual_seed(5))
    at_once = path_network.tell(path_network.encode(x, given).expand(draws), told, values)
    one_by_one = path_network.encode(x, given).expand(draws)
    for index, variable in enumerate(told[:, None]):
        path_network.ask(one_by_one, variable)
        path_network.tell(one_by_one, variable, values[:, index : index + 1])
    torch.testing.assert_close(
        path_network.ask(at_once, asked), path_network.ask(one_by_one, asked), **CLOSE
    )


@pytest.mark.parametrize("given_size", [0, 4])
def test_every_parameter_has_a_gradient(path_network, x, given_size):
    given = (given_size > LEXICOGRAPHIC).expand_as(x)
    path_network(x, ~given, given, LEXICOGRAPHIC).features.sum().backward()
    assert [name for name, p in path_network.named_parameters() if p.grad is None] == []


@torch.no_grad()
def test_a_question_changes_nothing(path_network, x, sets):
    _, given = sets
    given[:, :3] = False
    state, undisturbed = path_network.encode(x, given), path_network.encode(x, given)
    one, two, three = torch.tensor([[0], [1], [2]])
    path_network.ask(state, two)
    path_network.ask(state, three)
    for each in (state, undisturbed):
        path_network.tell(each, one, x[:, one])
    torch.testing.assert_close(
        path_network.ask(state, two), path_network.ask(undisturbed, two), **CLOSE
    )


@torch.no_grad()
def test_all_variables_can_be_asked_at_once(path_network, x, sets):
    _, given = sets
    state = path_network.encode(x, given)
    for told in (False, True):  # at the start of a path, and along it
        together = path_network.ask(state, LEXICOGRAPHIC)
        for variable in LEXICOGRAPHIC:
            torch.testing.assert_close(
                path_network.ask(state, variable[None])[:, 0], together[:, variable], **CLOSE
            )
        if not told:
            two = torch.tensor([3, 5])
            state = path_network.tell(state, two, x[:, two])


def test_gradients_of_a_ragged_batch_are_the_sum_of_the_rows(path_network, x, sets):
    query, given = sets
    path_network(x, query, given, LEXICOGRAPHIC).features.square().sum().backward()
    together = [p.grad.clone() for p in path_network.parameters()]
    path_network.zero_grad()
    for row in query.any(1).nonzero().flatten().tolist():
        one = slice(row, row + 1)
        alone = path_network(x[one], query[one], given[one], LEXICOGRAPHIC)
        alone.features.square().sum().backward()
    for parameter, expected in zip(path_network.parameters(), together, strict=True):
        scale = expected.abs().max().item()
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-5 * scale)


@torch.no_grad()
def test_no_row_asks_anything(path_network, x):
    nothing = torch.zeros_like(x, dtype=torch.bool)
    path = path_network(x, nothing, ~nothing, LEXICOGRAPHIC)
    assert path.features.shape == (0, 16)


def test_buckets_hold_every_asking_row_once_and_split_only_what_pays():
    num_given = torch.tensor([0] * 8 + [200] * 8)
    num_query = torch.tensor([250] * 8 + [40, 50, 0, 45, 40, 50, 41, 42])
    buckets = split_rows(num_given, num_query)
    assert sorted(torch.cat(buckets).tolist()) == [row for row in range(16) if row != 10]
    assert len(buckets) == 2
    assert len(split_rows(torch.full((16,), 3), torch.full((16,), 7))) == 1


@torch.no_grad()
def test_images_have_two_axes(x):
    grid = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    network = wake(
        PathTransformer(schema_of(*[5] * 9), layers=2, width=16, heads=2, coordinates=grid.tolist())
    )
    everything = torch.ones_like(x, dtype=torch.bool)
    path = network(x, everything, ~everything, LEXICOGRAPHIC)
    expected = step_by_step(network, x[:1], everything[:1], ~everything[:1], LEXICOGRAPHIC)
    torch.testing.assert_close(path.features[path.row == 0], expected, **CLOSE)
