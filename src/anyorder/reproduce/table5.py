"""Table 5 of the paper: conditionals of the public tables, half of the variables given."""

from anyorder.evaluation import half_given
from anyorder.query_laws import Query
from anyorder.reproduce.options import TablesOptions
from anyorder.reproduce.uci_tables import Printed, UciTable, run_table

METRIC = "conditional_nats"


def table5(options: TablesOptions) -> None:
    """Trains models of the public tables, and prints likelihoods of the rest given a half."""
    title = "Table 5, the rest given a random half,"
    run_table(UciTable("table5", title, conditionals, PRINTED), options)


def conditionals(num_variables: int, rows: int, seed: int) -> dict[str, Query]:
    """Each variable is given with probability 1/2, the rest is asked."""
    return {METRIC: half_given(num_variables, rows, seed=seed)}


def _printed(**models: float) -> dict[str, dict[str, float]]:
    return {name: {METRIC: value} for name, value in models.items()}


PRINTED: Printed = {
    "power": _printed(SPFlow=-1.03, ACFlow=0.56, ACE=0.63, MAC=0.65),
    "gas": _printed(SPFlow=4.30, ACFlow=8.09, ACE=9.64, MAC=9.77),
    "hepmass": _printed(SPFlow=-12.78, ACFlow=-8.20, ACE=-3.86, MAC=-3.05),
    "miniboone": _printed(SPFlow=-18.34, ACFlow=-0.97, ACE=0.31, MAC=0.07),
    "bsds": _printed(SPFlow=-24.15, ACFlow=81.83, ACE=86.70, MAC=86.05),
}
"""Of whole test sets, by models that were trained for up to 1.6 million steps."""
