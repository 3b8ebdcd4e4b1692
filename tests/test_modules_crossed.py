"""A reader who follows a call crosses few modules; the ceilings only ever go down."""

import pytest

from anyorder import TableModel
from benchmarks import modules_crossed
from benchmarks.modules_crossed import SMALL, crossed, people

MOST = {"fit": 40, "log_prob": 24, "query": 35}
"""Modules at most, as measured."""


@pytest.fixture(scope="module")
def model():
    return TableModel(**SMALL).fit(people())


def test_likelihoods_cross_few_modules(model):
    assert_few("log_prob", modules_crossed.log_prob(model))


def test_a_fit_crosses_few_modules_before_its_first_step():
    found = modules_crossed.fit()
    assert_few("fit", found)
    assert "anyorder.training.loop" in found.modules


def test_a_question_on_the_command_line_crosses_few_modules(model, tmp_path):
    found = modules_crossed.query(model, tmp_path / "run")
    assert_few("query", found)
    assert ("anyorder.cli.app", "main") in found.functions


def test_only_this_package_counts_and_only_what_runs():
    assert not crossed(lambda: sorted([2, 1])).modules
    found = crossed(lambda: modules_crossed.people(3).describe())
    assert not found.functions


def assert_few(name, found):
    assert 0 < len(found.modules) <= MOST[name], sorted(found.modules)
