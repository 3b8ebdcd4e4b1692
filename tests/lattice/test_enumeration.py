"""Enumeration equals the oracle, and gives the paper's numbers."""

import pytest
import torch

from anyorder import (
    ConditionalQueries,
    ConfigError,
    FixedCardinality,
    QueryError,
    RemoveGreatest,
    RemoveRandom,
    UniformCardinality,
    lexicographic,
)
from anyorder.lattice.enumeration import all_sets, edge_law, entropy, node_law, set_index
from tests import oracle
from tests.laws import CASES, as_row


@pytest.mark.parametrize("reweight", [False, True])
@pytest.mark.parametrize("weighting", ["path", "edge"])
@pytest.mark.parametrize("order", [None, [2, 0, 3, 1]], ids=["rnd", "mac"])
@pytest.mark.parametrize("name", CASES)
def test_edge_law_equals_every_path_spelled_out(name, order, weighting, reweight):
    n, case = 4, CASES[name]
    expected = torch.zeros(2**n, n, dtype=torch.float64)
    edges = oracle.edge_law(case.table(n), order, weighting=weighting, reweight=reweight)
    for (e, i), mass in edges.items():
        expected[set_index(as_row(e, n)[None]), i] = float(mass)
    protocol = RemoveRandom() if order is None else RemoveGreatest(order)
    actual = edge_law(case.law(n), protocol, weighting=weighting, reweight=reweight)
    torch.testing.assert_close(actual, expected, atol=1e-14, rtol=1e-12)


RND, MAC = RemoveRandom(), RemoveGreatest(lexicographic(12))
PUBLISHED = {
    "rnd_path": (RND, "path", False, 5.745),
    "mac_path": (MAC, "path", False, 4.439),
    "mac_path_cr": (MAC, "path", True, 5.521),
    "rnd_edge": (RND, "edge", False, 6.691),
    "mac_edge": (MAC, "edge", False, 4.738),
    "mac_edge_cr": (MAC, "edge", True, 5.343),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_entropies_of_table_7(name):
    protocol, weighting, reweight, expected = PUBLISHED[name]
    law = edge_law(UniformCardinality(12), protocol, weighting=weighting, reweight=reweight)
    assert round(entropy(node_law(law)), 3) == expected


def test_entropies_of_the_test_law_and_of_conditional_queries():
    assert round(entropy(UniformCardinality(12).log_prob(all_sets(12)).exp()), 3) == 7.212
    conditional = edge_law(ConditionalQueries(12), MAC, reweight=True)
    assert round(entropy(node_law(conditional)), 3) == 5.378


@pytest.mark.parametrize(
    "law", [FixedCardinality(4, 0), ConditionalQueries(4, FixedCardinality(4, 4))], ids=repr
)
def test_laws_that_ask_nothing_are_refused(law):
    with pytest.raises(QueryError, match="never queries a variable"):
        edge_law(law, RemoveRandom())


def test_too_many_variables_are_refused():
    with pytest.raises(ConfigError, match="up to 13 variables; the law has 14"):
        edge_law(UniformCardinality(14), RemoveRandom())
