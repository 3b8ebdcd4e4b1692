"""Protocols rank the members of a set, and canonical orders are permutations."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anyorder import (
    ConfigError,
    QueryError,
    RemoveGreatest,
    RemoveRandom,
    channel_interleaved,
    lexicographic,
    patch_major,
    raster,
    strided,
)
from anyorder.lattice.enumeration import all_sets
from tests.laws import as_set, assert_drawn_from


@given(st.integers(1, 400), st.integers(1, 500))
def test_strided_is_a_permutation(n, stride):
    order = strided(n, stride)
    assert torch.equal(order.sort().values, torch.arange(n))
    rounds = order % stride
    assert (rounds.diff() >= 0).all()


def test_orders_of_images():
    assert torch.equal(
        strided(3072, 32)[:97], torch.cat([torch.arange(96) * 32, torch.tensor([1])])
    )
    assert torch.equal(raster(2, 3, 2), torch.arange(12))
    pixels = channel_interleaved(2, 3, 2).view(6, 2)
    assert torch.equal(pixels[:, 1] - pixels[:, 0], torch.full((6,), 6))
    assert torch.equal(pixels[:, 0], torch.arange(6))


def test_patches_are_finished_one_after_another():
    order = patch_major(4, 6, 3, patch=(2, 3))
    assert torch.equal(order.sort().values, torch.arange(72))
    channel, row, column = torch.unravel_index(order, (3, 4, 6))
    patch, pixel = row // 2 * 2 + column // 3, row % 2 * 3 + column % 3
    assert torch.equal(patch, torch.arange(4).repeat_interleave(18))
    assert torch.equal(pixel, torch.arange(6).repeat_interleave(3).repeat(4))
    assert torch.equal(channel, torch.arange(3).repeat(24))
    assert torch.equal(patch_major(4, 6, 3, patch=1), channel_interleaved(4, 6, 3))
    assert torch.equal(patch_major(4, 6, patch=(4, 6)), raster(4, 6))


@given(st.permutations(range(6)))
def test_greatest_ranks_members_by_the_order(order):
    ranks = RemoveGreatest(order).rank(all_sets(6))
    for members, rank in zip(all_sets(6), ranks, strict=True):
        inside = sorted(as_set(members), key=order.index)
        outside = sorted(set(range(6)) - as_set(members), key=order.index)
        assert rank.argsort().tolist() == inside + outside


def test_random_ranks_are_uniform_orders_of_the_members(generator):
    members = torch.tensor([True, False, True, True]).expand(12_000, -1)
    ranks = RemoveRandom().rank(members, generator=generator)
    assert (ranks[:, 1] == 3).all()
    codes = ranks[:, 0] * 3 + ranks[:, 2]  # the rank of variable 3 follows
    expected = torch.tensor([0, 1, 1, 1, 0, 1, 1, 1, 0]) / 6
    assert_drawn_from(codes, expected.double())


@pytest.mark.parametrize("protocol", [RemoveRandom(), RemoveGreatest([2, 0, 3, 1])], ids=repr)
def test_removal_is_a_law_over_the_members(protocol):
    sets = all_sets(4)
    removal = protocol.removal(sets)
    assert not removal[~sets].any()
    torch.testing.assert_close(removal.sum(dim=1), sets.any(dim=1).double())


def test_greatest_is_removed_first():
    removal = RemoveGreatest([2, 0, 3, 1]).removal(torch.tensor([[True, False, True, True]]))
    assert removal.tolist() == [[0, 0, 0, 1]]


BAD_INPUT = {
    "no variables": (lambda: lexicographic(0), "`num_variables` must be a whole number, 1 or more"),
    "stride 0": (lambda: strided(4, 0), "`stride` must be a whole number, 1 or more; got 0"),
    "half a stride": (lambda: strided(4, 0.5), "got 0.5"),
    "repeat": (lambda: RemoveGreatest([0, 1, 1]), "each of 0..2 exactly once; 1 occurs 2 times"),
    "beyond": (
        lambda: RemoveGreatest([0, 1, 3]),
        "each of 0..2 exactly once; 3 is not one of them",
    ),
    "negative": (lambda: RemoveGreatest([0, -1]), "exactly once; -1 is not one of them"),
    "floats": (lambda: RemoveGreatest([0.0, 1.0]), "one vector of whole numbers"),
    "empty": (lambda: RemoveGreatest([]), "one vector of whole numbers"),
    "words": (lambda: RemoveGreatest("ab"), "must be a list of whole numbers; got 'ab'"),
    "matrix": (lambda: RemoveGreatest([[0, 1]]), "got shape (1, 2)"),
    "patch": (lambda: patch_major(4, 6, patch=4), "patches of 4 x 4 for 4 x 6 pixels"),
    "width 0": (lambda: raster(3, 0), "`width` must be a whole number, 1 or more; got 0"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_orders_are_refused_in_a_sentence(name):
    build, sentence = BAD_INPUT[name]
    with pytest.raises(ConfigError) as caught:
        build()
    assert sentence in str(caught.value)


def test_orders_come_in_many_forms_and_are_copied():
    mine = torch.tensor([1, 0, 2])
    protocol = RemoveGreatest(mine)
    mine[:] = torch.tensor([0, 1, 2])
    assert protocol.canonical_order.tolist() == [1, 0, 2]
    assert RemoveGreatest(np.arange(3)[::-1]).canonical_order.tolist() == [2, 1, 0]
    assert RemoveGreatest(range(3)).canonical_order.tolist() == [0, 1, 2]


def test_sets_of_another_width_are_refused():
    with pytest.raises(QueryError, match=r"must have shape \(batch, 3\).*got \(2, 4\)"):
        RemoveGreatest([0, 1, 2]).rank(torch.ones(2, 4).bool())
    with pytest.raises(QueryError, match=r"boolean tensor.*got torch\.int64"):
        RemoveRandom().rank(torch.ones(2, 4).long())
    with pytest.raises(QueryError, match="boolean tensor"):
        RemoveRandom().removal([[True]])
