"""The benchmarks measure what they say, at a size that takes no time."""

import torch

from anyorder import RemoveGreatest, UniformCardinality, lexicographic
from anyorder.enumeration import all_sets, edge_law, node_law, set_index
from benchmarks.mask_sampling import measure, papers_way


def test_mask_sampling_compares_the_same_law(generator):
    masks = torch.cat([papers_way(200, 4, generator) for _ in range(20)])
    nodes = node_law(
        edge_law(UniformCardinality(4), RemoveGreatest(lexicographic(4)), reweight=True)
    )
    shares = torch.bincount(set_index(masks), minlength=len(all_sets(4))) / len(masks)
    # 4000 draws: a share's standard error is at most 0.008, and its bias is below that
    torch.testing.assert_close(shares.double(), nodes, atol=0.035, rtol=0)


def test_mask_sampling_reports_its_keys():
    result = measure(8, 40, rounds=2, seed=0)
    assert {"speedup", "memory_ratio", "over_floor"} <= set(result)
    assert result["speedup"] > 1
    assert result["memory_ratio"] > 1
