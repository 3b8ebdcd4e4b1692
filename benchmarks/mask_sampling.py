"""Exact sampler of the paper's D^CR against the paper's own sampler.

    python -m benchmarks.mask_sampling --json

Three samplers of the same batch of training masks take turns in one process:

    paper   appendix B, step by step: a hundred times too many masks, each by three sorts (random
            keys, members to the front, ranks), then resampled by weight without replacement
    exact   `training_masks(UniformCardinality(N), RemoveGreatest(...), reweight=True)`
    floor   random bits in a boolean tensor of the same shape, the least work of a sampler

`speedup` and `memory_ratio` are paper / exact, `over_floor` is exact / floor. A round times each
once (the median of many calls for the fast ones). A ratio is the mean over rounds, with its
standard error, of one run on one machine. Memory is torch's peak allocation, from its profiler.
"""

from pathlib import Path
from typing import Literal

import torch
from cyclopts import App
from rich.console import Console
from rich.table import Table

from anyorder import RemoveGreatest, UniformCardinality, lexicographic, training_masks
from anyorder.cli.app import run
from anyorder.cli.console import print_json
from anyorder.errors import check_count
from anyorder.lattice.enumeration import all_sets, edge_law, node_law
from anyorder.reproduce.record import Record, Row, check_record
from anyorder.reproduce.table7 import POOL, papers_sampler
from benchmarks.measuring import peak_bytes, seconds, standard_error

SHAPES = {"N250": (512, 250), "N3072": (128, 3072)}
"""Batch and N of the paper: text8 and CIFAR-10."""


def measure(batch: int, num_variables: int, *, rounds: int, seed: int) -> dict[str, float]:
    """Measures time and memory of the three samplers in turn; see the module's docstring."""
    generator = torch.Generator().manual_seed(seed)
    law, protocol = UniformCardinality(num_variables), RemoveGreatest(lexicographic(num_variables))

    def exact() -> object:
        return training_masks(law, protocol, batch, reweight=True, generator=generator)

    def paper() -> object:
        return papers_sampler(batch, num_variables, generator)

    def floor() -> object:
        bits = torch.empty(batch, num_variables, dtype=torch.bool)
        return bits.random_(0, 2, generator=generator)

    for sampler in (exact, floor):
        seconds(sampler, repeats=20)  # warm up
    times = torch.tensor(
        [
            [seconds(paper, repeats=1), seconds(exact, repeats=50), seconds(floor, repeats=50)]
            for _ in range(rounds)
        ]
    )
    speedup, over_floor = times[:, 0] / times[:, 1], times[:, 1] / times[:, 2]
    return {
        "speedup": float(speedup.mean()),
        "speedup_se": standard_error(speedup),
        "memory_ratio": peak_bytes(paper) / peak_bytes(exact),
        "over_floor": float(over_floor.mean()),
        "over_floor_se": standard_error(over_floor),
        "rounds": rounds,
    }


def _show(results: dict[str, dict[str, float]]) -> None:
    table = Table(title="Sampling training masks from the paper's D^CR")
    for title in ("", "faster than the paper's sampler", "less memory", "times the floor"):
        table.add_column(title, justify="right")
    for name, result in results.items():
        batch, n = SHAPES[name]
        table.add_row(
            f"N = {n}, batch {batch}",
            f"{result['speedup']:,.0f} ± {result['speedup_se']:,.0f} times",
            f"{result['memory_ratio']:,.0f} times",
            f"{result['over_floor']:.2f} ± {result['over_floor_se']:.2f}",
        )
    Console().print(table)


app = App(name="python -m benchmarks.mask_sampling", help=(__doc__ or "").splitlines()[0])


@app.default
def main(*, rounds: int = 5, seed: int = 0, json: bool = False, record: Path | None = None) -> None:
    """Measures both shapes of the paper.

    Args:
        rounds: Number of turns of the three samplers.
        seed: Seed of the masks.
        json: Print one JSON object in place of the table.
        record: File to which the numbers are written with the command and the commit.
    """
    check_count("rounds", rounds, low=2)
    check_count("seed", seed, low=0)
    check_record(record)
    torch.set_num_threads(1)
    with Console(stderr=True).status("Sampling masks ..."):
        results = {
            name: measure(batch, n, rounds=rounds, seed=seed) for name, (batch, n) in SHAPES.items()
        }
    if record is not None:
        command = f"python -m benchmarks.mask_sampling --rounds {rounds} --seed {seed}"
        rows = [
            Row(name, "exact", metric, result[metric], result.get(f"{metric}_se"), rounds)
            for name, result in results.items()
            for metric in ("speedup", "memory_ratio", "over_floor")
        ]
        settings = {"rounds": rounds, "seed": seed, "pool": POOL, "threads": 1, "shapes": SHAPES}
        Record(command, settings, rows).save(record)
    if json:
        print_json(results)
    else:
        _show(results)


@app.command
def bias(*, batches: int = 400, seed: int = 0, json: bool = False) -> None:
    """Measures the bias of the mean cardinality of resampled masks, by the size of the pool.

    N = 8, batches of 512. The paper's pool is 100 times the batch.

    Args:
        batches: Number of batches.
        seed: Seed of the masks.
        json: Print one JSON object in place of the table.
    """
    check_count("batches", batches, low=2)
    n, batch, generator = 8, 512, torch.Generator().manual_seed(seed)
    law, protocol = UniformCardinality(n), RemoveGreatest(lexicographic(n))
    expected = float(
        node_law(edge_law(law, protocol, reweight=True)) @ all_sets(n).sum(dim=1).double()
    )

    def relative(method: Literal["exact", "sir"], pool: int) -> dict[str, float]:
        options = {"reweight": True, "method": method, "pool": pool, "generator": generator}
        means = torch.stack(
            [
                training_masks(law, protocol, batch, **options).observed.sum(dim=1).double().mean()  # type: ignore[arg-type]
                for _ in range(batches)
            ]
        )
        off = means / expected - 1
        return {"bias": float(off.mean()), "se": standard_error(off)}

    found = {"exact": relative("exact", 1)}
    found |= {f"sir_{pool}": relative("sir", pool) for pool in (4, 20, 100)}
    if json:
        print_json(found)
        return
    table = Table(title="Mean cardinality of the masks, relative to the exact law")
    table.add_column("sampler")
    table.add_column("bias", justify="right")
    for name, result in found.items():
        table.add_row(name, f"{result['bias']:+.2%} ± {result['se']:.2%}")
    Console().print(table)


if __name__ == "__main__":
    run(app)
