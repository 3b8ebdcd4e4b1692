"""Estimates from a few steps of a walk have its log-likelihood as their expectation."""

import pytest
import torch

from anyorder import RemoveGreatest, RemoveRandom
from anyorder.inference import queries as stratified
from anyorder.inference.queries import log_prob, stratified_log_prob, univariates
from tests.toys import all_values, toy_model

MAC = RemoveGreatest([2, 0, 3, 1])
N = 4


def drawing(monkeypatch, place):
    """Lets every run draw the step at a place of it, from 0 to 1."""
    monkeypatch.setattr(stratified, "uniform", lambda shape, **_: torch.full(shape, place))


def test_one_run_is_its_guesses_and_what_one_of_them_is_wrong_by(monkeypatch):
    model, x = toy_model("masked", MAC), all_values()
    nothing = torch.zeros(N, dtype=torch.bool)
    guesses = univariates(model, x, nothing).log_prob(x).double()
    told = nothing.clone()
    estimates = []
    for place, variable in enumerate(MAC.canonical_order.tolist()):
        drawing(monkeypatch, (place + 0.5) / N)
        found = stratified_log_prob(model, x, steps=1)
        step = univariates(model, x, told).log_prob(x)[:, variable]
        expected = guesses.sum(dim=1) + N * (step - guesses[:, variable])
        torch.testing.assert_close(found, expected)
        estimates.append(found)
        told[variable] = True
    torch.testing.assert_close(torch.stack(estimates).mean(dim=0), log_prob(model, x))


def test_runs_of_unequal_length_of_a_conditional(monkeypatch):
    """Three asked variables in two runs of one and two steps: two draws, alike in weight."""
    model, x = toy_model("masked", MAC), all_values()
    given = torch.tensor([False, False, False, True])
    found = []
    for place in (0.25, 0.75):
        drawing(monkeypatch, place)
        found.append(stratified_log_prob(model, x, given=given.expand_as(x), steps=2))
    assert not torch.allclose(*found)
    torch.testing.assert_close(sum(found) / 2, log_prob(model, x, given=given))


@pytest.mark.parametrize("protocol", [MAC, RemoveRandom(N)])
def test_estimates_are_unbiased(protocol, generator):
    model, x = toy_model("masked", protocol), all_values()[:3]
    few, whole = (
        torch.stack([ask(generator) for _ in range(300)])
        for ask in (
            lambda g: stratified_log_prob(model, x, steps=2, generator=g),
            lambda g: log_prob(model, x, generator=g),
        )
    )
    difference = few.mean(dim=0) - whole.mean(dim=0)
    error = ((few.var(dim=0) + whole.var(dim=0)) / 300).sqrt()
    assert (difference.abs() < 4 * error).all()


def test_a_short_walk_is_walked_whole(generator):
    model, x = toy_model("masked", MAC), all_values()
    found = stratified_log_prob(model, x, steps=9, generator=generator)
    torch.testing.assert_close(found, log_prob(model, x))


def test_nothing_asked_has_probability_one():
    model, x = toy_model("masked", MAC), all_values()
    nothing = torch.zeros(x.shape, dtype=torch.bool)
    assert not stratified_log_prob(model, x, query=nothing, steps=3).any()


def test_one_pass_needs_no_estimate():
    model = toy_model("path", MAC)
    torch.testing.assert_close(
        stratified_log_prob(model, all_values(), steps=1), log_prob(model, all_values())
    )
