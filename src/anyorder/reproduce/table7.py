"""Table 7 of the paper: laws over masks induced by queries and protocols, for N = 12.

The paper gives one simulation of a million masks. Here every law is enumerated exactly, simulated
with its standard error, and printed beside the paper's numbers. `papers_sampler` is the paper's
sampler of training masks (appendix B), against which the exact sampler is benchmarked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from torch import Tensor

from anyorder.errors import check_count, check_seed
from anyorder.lattice.enumeration import all_sets, edge_law, entropy, node_law, set_index
from anyorder.lattice.masks import UniformCardinality
from anyorder.lattice.protocols import (
    DecompositionProtocol,
    RemoveGreatest,
    RemoveRandom,
    lexicographic,
)
from anyorder.lattice.query_laws import ConditionalQueries, MarginalQueries, QueryLaw
from anyorder.lattice.query_samplers import Weighting
from anyorder.lattice.training_law import training_masks
from anyorder.reproduce.record import Record, Row, check_record

POOL = 100
"""Masks that the appendix samples for each one that it keeps."""


def papers_sampler(batch: int, num_variables: int, generator: torch.Generator) -> Tensor:
    """Samples training masks as appendix B of the paper does, step by step, at its cost.

    Returns:
        Shape ``(batch, num_variables)``.
    """
    pool, n = POOL * batch, num_variables
    # S ~ M: a random permutation of each row by sorting, its first c places; c uniform on 1..n
    shuffled = torch.rand(pool, n, generator=generator).argsort(dim=1)
    size = torch.randint(1, n + 1, (pool, 1), generator=generator)
    members = shuffled < size
    # t uniform on 0..c-1; keep the t smallest members, found by sorting members to the front
    steps = (torch.arange(n).expand(pool, n) < size).float()
    t = torch.multinomial(steps, 1, generator=generator)
    front = members.long().sort(dim=1, descending=True, stable=True).indices
    kept = front.argsort(dim=1) < t
    # resample by 1 + |e|
    chosen = torch.multinomial((t + 1.0).squeeze(1), batch, generator=generator)
    return kept[chosen]


NUM_VARIABLES = 12
ALL = f"N={NUM_VARIABLES}"
"""Name of the set of all masks in a record."""

PAPER_SAMPLES = 1_000_000
PER_MILLION = 1e6

Rows = Mapping[tuple[str, str, str], Row]
"""Rows of a record by mask, law and metric."""


@dataclass(frozen=True)
class Column:
    """A law over masks; the protocol is None for the test law M itself."""

    title: str
    queries: QueryLaw
    protocol: DecompositionProtocol | None = None
    weighting: Weighting = "path"
    reweight: bool = False

    def exact(self) -> Tensor:
        """Returns the probability of each of the 2^N masks, by enumeration."""
        if self.protocol is None:
            nothing = torch.zeros_like(all_sets(NUM_VARIABLES))
            return self.queries.log_prob(nothing, all_sets(NUM_VARIABLES)).exp()
        edges = edge_law(
            self.queries, self.protocol, weighting=self.weighting, reweight=self.reweight
        )
        return node_law(edges)

    def simulated(self, samples: int, generator: torch.Generator) -> Tensor:
        """Returns the share of each of the 2^N masks among simulated samples."""
        counts = torch.zeros(2**NUM_VARIABLES, dtype=torch.float64)
        for start in range(0, samples, PAPER_SAMPLES):  # a million at a time, to keep memory flat
            masks = self._sample(min(PAPER_SAMPLES, samples - start), generator)
            counts += torch.bincount(set_index(masks), minlength=2**NUM_VARIABLES)
        return counts / samples

    def _sample(self, samples: int, generator: torch.Generator) -> Tensor:
        if self.protocol is None:
            return self.queries.sample(samples, generator=generator).query
        options = {"weighting": self.weighting, "reweight": self.reweight}
        edges = training_masks(
            self.queries,
            self.protocol,
            samples,
            generator=generator,
            **options,  # type: ignore[arg-type]
        )
        return edges.observed


MARGINAL = MarginalQueries(UniformCardinality(NUM_VARIABLES))
CONDITIONAL = ConditionalQueries(NUM_VARIABLES)
RND, MAC = RemoveRandom(), RemoveGreatest(lexicographic(NUM_VARIABLES))

COLUMNS = {
    "M": Column("M", MARGINAL),
    "rnd_path": Column("RND\npath", MARGINAL, RND),
    "mac_path": Column("MAC\npath", MARGINAL, MAC),
    "mac_path_cr": Column("MAC\npath+CR", MARGINAL, MAC, reweight=True),
    "rnd_edge": Column("RND\nedge", MARGINAL, RND, "edge"),
    "mac_edge": Column("MAC\nedge", MARGINAL, MAC, "edge"),
    "mac_edge_cr": Column("MAC\nedge+CR", MARGINAL, MAC, "edge", reweight=True),
    "cond_path_cr": Column("cond.\npath+CR", CONDITIONAL, MAC, reweight=True),
}

PAPER_LAWS = ("M", "rnd_path", "mac_path", "mac_path_cr", "cond_path_cr")
"""Laws that the paper simulated; the last is in its data file but not in print."""

PAPER_COUNTS = {
    "011111111110": (1261, 222, 650, 1827, 703),
    "100000000000": (7037, 14803, 76381, 41441, 1634),
    "100000000101": (407, 521, 0, 0, 68),
    "100000001000": (1288, 1975, 536, 430, 233),
    "111111111110": (6956, 433, 6935, 21094, 107774),
}
PAPER_ENTROPIES = (7.21, 5.74, 4.44, 5.51, 5.39)

PAPER_ROWS = {
    mask: dict(zip(PAPER_LAWS, counts, strict=True)) for mask, counts in PAPER_COUNTS.items()
}
PAPER_ENTROPY = dict(zip(PAPER_LAWS, PAPER_ENTROPIES, strict=True))


def table7(
    *, samples: int = PAPER_SAMPLES, seed: int = 0, json: bool = False, record: Path | None = None
) -> None:
    """Prints Table 7 by enumeration and by simulation, beside the paper's numbers."""
    check_count("samples", samples, high=10**10)
    check_seed(seed)
    check_record(record)
    generator = torch.Generator().manual_seed(seed)
    with Console(stderr=True).status("Enumerating and sampling the laws over masks ..."):
        exact = {name: column.exact() for name, column in COLUMNS.items()}
        simulated = {name: column.simulated(samples, generator) for name, column in COLUMNS.items()}
    command = f"anyorder reproduce table7 --samples {samples} --seed {seed}"
    settings = {"N": NUM_VARIABLES, "samples": samples, "seed": seed}
    found = Record(command, settings, _rows(exact, simulated, samples))
    if found.publish(record, json=json):
        _show(found)


def _rows(exact: dict[str, Tensor], simulated: dict[str, Tensor], samples: int) -> list[Row]:
    """Returns the numbers of each law: exact, simulated, and those of the paper."""
    rows = []
    for name in COLUMNS:
        value, se = _plug_in_entropy(simulated[name], samples)
        rows.append(Row(ALL, name, "entropy_exact_nats", entropy(exact[name])))
        rows.append(Row(ALL, name, "entropy_simulated_nats", value, se, samples))
        if name in PAPER_ENTROPY:
            rows.append(Row(ALL, name, "entropy_paper_nats", PAPER_ENTROPY[name]))
        for mask, counts in PAPER_ROWS.items():
            share, sampled = (float(law[name][_index(mask)]) for law in (exact, simulated))
            count, se = sampled * PER_MILLION, _share_se(sampled, samples) * PER_MILLION
            rows.append(Row(mask, name, "exact_per_million", share * PER_MILLION))
            rows.append(Row(mask, name, "simulated_per_million", count, se, samples))
            if name in counts:
                rows.append(Row(mask, name, "paper_per_million", counts[name]))
    return rows


def _show(record: Record) -> None:
    table = Table(
        title=f"Table 7: masks per million under each law, N = {NUM_VARIABLES}",
        caption=(
            f"sampled: {record.settings['samples']:,} masks, with their standard error. paper: its "
            "simulation of a million; the last column is in its data file, not in print. z: its "
            "deviation from the exact law in standard errors. Reweighted masks (CR) deviate "
            "because resampling is biased, RND's last one probably because its sort breaks ties by "
            "position."
        ),
        box=SIMPLE,
        padding=0,
    )
    table.add_column("mask", no_wrap=True)
    for column in COLUMNS.values():
        table.add_column(column.title, justify="right", no_wrap=True)
    rows = {(row.dataset, row.model, row.metric): row for row in record.rows}
    for mask in PAPER_ROWS:
        cells = [_share_cell(name, mask, rows) for name in COLUMNS]
        table.add_row(f"[bold]{mask}[/]\n sampled\n ±\n paper\n z", *cells, end_section=True)
    entropies = [_entropy_cell(name, rows) for name in COLUMNS]
    table.add_row("[bold]entropy, nats[/]\n sampled\n ±\n paper", *entropies)
    Console().print(table)


def _share_cell(name: str, mask: str, rows: Rows) -> str:
    share = rows[mask, name, "exact_per_million"].value
    sampled = rows[mask, name, "simulated_per_million"]
    lines = [
        f"[bold]{share:,.0f}[/]",
        f"{sampled.value:,.0f}",
        f"{sampled.se:,.0f}" if sampled.value or not share else "-",
    ]
    if paper := rows.get((mask, name, "paper_per_million")):
        lines.append(f"{paper.value:,}")
        if share > 0:
            se = _share_se(share / PER_MILLION, PAPER_SAMPLES) * PER_MILLION
            lines.append(f"[dim]{(paper.value - share) / se:+.1f}[/]")
    return "\n".join(lines)


def _entropy_cell(name: str, rows: Rows) -> str:
    sampled = rows[ALL, name, "entropy_simulated_nats"]
    exact = rows[ALL, name, "entropy_exact_nats"].value
    lines = [f"[bold]{exact:.3f}[/]", f"{sampled.value:.3f}", f"{sampled.se:.3f}"]
    if paper := rows.get((ALL, name, "entropy_paper_nats")):
        lines.append(f"{paper.value:.2f}")
    return "\n".join(lines)


def _index(mask: str) -> int:
    """Returns the row in `all_sets` of a mask in the notation of the paper, variable 1 first."""
    return int(set_index(torch.tensor([[digit == "1" for digit in mask]])))


def _share_se(share: float, samples: int) -> float:
    return (share * (1 - share) / samples) ** 0.5


def _plug_in_entropy(shares: Tensor, samples: int) -> tuple[float, float]:
    """Returns the entropy of a simulated law, with its standard error by the delta method.

    The plug-in entropy is biased by -(masks seen - 1) / (2 samples) to first order; this bias is
    removed (Miller and Madow).
    """
    seen = shares[shares > 0]
    value = entropy(shares)
    spread = float((seen * seen.log().square()).sum()) - value**2
    return value + (len(seen) - 1) / (2 * samples), (max(spread, 0.0) / samples) ** 0.5
