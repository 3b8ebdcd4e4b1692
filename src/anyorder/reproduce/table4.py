"""Table 4 of the paper: marginals of the public tables, of their first variables and of any."""

import torch

from anyorder.query_laws import Query
from anyorder.random_sets import subsets
from anyorder.reproduce.options import TablesOptions
from anyorder.reproduce.uci_tables import Printed, UciTable, run_table

SIZES = (3, 5, 10)
"""How many variables are asked; at most all of them."""


def table4(options: TablesOptions) -> None:
    """Trains models of the public tables, and prints likelihoods of some of their variables."""
    title = "Table 4, marginals of the first variables and of any,"
    run_table(UciTable("table4", title, marginals, PRINTED), options)


def marginals(num_variables: int, rows: int, seed: int) -> dict[str, Query]:
    """The first k variables, as the paper asks; and random k, others in each row."""
    generator, found = torch.Generator().manual_seed(seed), {}
    everything = torch.ones(rows, num_variables, dtype=torch.bool)
    for size in dict.fromkeys(min(size, num_variables) for size in SIZES):
        first = (torch.arange(num_variables) < size).expand(rows, -1)
        found[f"first_{size}_nats"] = Query(torch.zeros_like(first), first)
    for size in (size for size in SIZES if size < num_variables):
        sizes = torch.full((rows,), size)
        chosen = subsets(sizes, everything, generator=generator)
        found[f"any_{size}_nats"] = Query(torch.zeros_like(chosen), chosen)
    return found


def _printed(last: int, **models: tuple[float, float, float]) -> dict[str, dict[str, float]]:
    names = [f"first_{size}_nats" for size in (3, 5, last)]
    return {name: dict(zip(names, values, strict=True)) for name, values in models.items()}


PRINTED: Printed = {
    "power": _printed(
        6,
        SPFlow=(-0.63, 1.01, -0.12),
        ACFlow=(-0.57, 1.34, 0.42),
        ACE=(-0.56, 1.42, 0.58),
        MAC=(-0.55, 1.43, 0.61),
    ),
    "gas": _printed(
        8,
        SPFlow=(0.68, 1.88, 4.81),
        ACFlow=(0.78, 3.01, 10.13),
        ACE=(1.31, 4.31, 12.20),
        MAC=(1.59, 4.98, 13.02),
    ),
    "hepmass": _printed(
        10,
        SPFlow=(-4.01, -6.58, -13.38),
        ACFlow=(-4.03, -6.19, -11.58),
        ACE=(-4.00, -5.91, -10.72),
        MAC=(-4.00, -5.90, -10.69),
    ),
    "miniboone": _printed(
        10,
        SPFlow=(-2.21, -4.31, -9.85),
        ACFlow=(-2.76, -5.31, -10.36),
        ACE=(-2.13, -3.80, -7.94),
        MAC=(-2.12, -3.76, -7.76),
    ),
    "bsds": _printed(
        10,
        SPFlow=(-2.87, -4.42, -8.15),
        ACFlow=(5.06, 9.26, 19.60),
        ACE=(5.10, 9.37, 20.31),
        MAC=(5.10, 9.37, 20.33),
    ),
}
"""Of whole test sets, by models that were trained for up to 1.6 million steps."""
