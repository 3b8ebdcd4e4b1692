"""Table of the paper's claims, beside the results here at scale small."""

from math import log
from typing import Any, NamedTuple

from anyorder.reproduce import table1_figure3 as table1
from anyorder.reproduce import table6
from anyorder.reproduce import tables2_3 as image_tables
from anyorder.reproduce.tables4_5 import METRIC, PRINTED_CONDITIONALS, PRINTED_MARGINALS
from experiments.records import record

MNIST_NATS = 28 * 28 * log(2)
"""Nats of an image at one bit per pixel."""


class Claim(NamedTuple):
    """Gain of the paper's model over its rival, and of one of ours over the paper's.

    Args:
        what: Description, with the unit.
        source: Name of the record.
        dataset: Prefix of the data set's name in the record.
        metric: Name of the metric in the record.
        scale: Factor from a difference of the metric to a gain in the unit of `what`.
        mac: Model of the paper and its rival.
        ours: A model of ours and its baseline, if there is one.
        paper: Published numbers of the rival and of the paper's model.
    """

    what: str
    source: str
    dataset: str
    metric: str
    scale: float
    mac: tuple[str, str]
    ours: tuple[str, str] | None
    paper: tuple[float, float] | None


def _of_numbers(metric: str, dataset: str) -> tuple[float, float]:
    printed = PRINTED_CONDITIONALS if metric == METRIC else PRINTED_MARGINALS
    ace, mac = (printed[dataset][model][metric] for model in ("ACE", "MAC"))
    return ace, mac


def _both(printed: Any, place: int) -> tuple[float, float]:
    return printed["ardm"][place], printed["mac_strided"][place]


TEXT, PIXELS = "bits per character", "bits per dimension"
STRIDED, PATH = ("mac_strided", "ardm"), ("path_mix", "mac_strided")
UCI, MIXTURE = ("mac", "ace"), ("mac_mixture", "mac")
CIFAR10 = image_tables.PAPER["cifar10"]
CLAIMS = (
    Claim(f"Table 1, text8: joint, {TEXT}", "table1.small", "text8", "joint_bits", -1,
          STRIDED, PATH, _both(table1.PAPER, 0)),
    Claim(f"Table 1, text8: marginals, {TEXT}", "table1.small", "text8", "marginal_bits", -1,
          STRIDED, PATH, _both(table1.PAPER, 1)),
    Claim(f"Table 3, CIFAR-10 (here 8x8): joint, {PIXELS}", "table3.small", "CIFAR", "joint_bits",
          -1, STRIDED, ("path", "mac"), _both(CIFAR10, 0)),
    Claim(f"Table 3, CIFAR-10 (here 8x8): marginals, {PIXELS}", "table3.small", "CIFAR",
          "marginal_bits", -1, STRIDED, ("path", "mac"), _both(CIFAR10, 1)),
    Claim("binarised MNIST: joint, nats per image", "table3.mnist", "binarized", "joint_bits",
          -MNIST_NATS, ("mac", "ardm"), ("path", "mac"), None),
    Claim("Table 4, power: all six variables, nats", "table4.small", "power", "first_6_nats",
          1, UCI, MIXTURE, _of_numbers("first_6_nats", "power")),
    Claim("Table 4, bsds: its first ten variables, nats", "table4.small", "bsds", "first_10_nats",
          1, UCI, MIXTURE, _of_numbers("first_10_nats", "bsds")),
    Claim("Table 4, miniboone: its first ten variables, nats", "table4.small", "miniboone",
          "first_10_nats", 1, UCI, MIXTURE, _of_numbers("first_10_nats", "miniboone")),
    Claim("Table 5, power: half of a row given the other, nats", "table5.small", "power",
          METRIC, 1, UCI, MIXTURE, _of_numbers(METRIC, "power")),
    Claim("Table 5, bsds: half of a row given the other, nats", "table5.small", "bsds",
          METRIC, 1, UCI, MIXTURE, _of_numbers(METRIC, "bsds")),
    Claim("Table 5, miniboone: half of a row given the other, nats", "table5.small", "miniboone",
          METRIC, 1, UCI, MIXTURE, _of_numbers(METRIC, "miniboone")),
    Claim("Table 6, FrankaKitchen: tasks of four completed together", "table6.small", "kitchen",
          "reward", 1, ("mac_fill", "bc_fill"), None,
          (table6.PAPER["bc_fill"][0], table6.PAPER["mac_fill"][0])),
)  # fmt: skip


def paper() -> str:
    """Returns a row for each claim: published numbers, and gains here with standard errors."""
    lines = [
        "| | paper: rival, MAC | here: MAC against its rival | one of ours against MAC |",
        "|---|---|---|---|",
    ]
    for claim in CLAIMS:
        printed = "" if claim.paper is None else ", ".join(f"{value:.2f}" for value in claim.paper)
        ours = "" if claim.ours is None else _gain(claim, claim.ours)
        lines.append(f"| {claim.what} | {printed} | {_gain(claim, claim.mac)} | {ours} |")
    return "\n".join(lines)


def _gain(claim: Claim, models: tuple[str, str]) -> str:
    for pair in record(claim.source)["paired"]:
        alike = pair["dataset"].startswith(claim.dataset) and pair["metric"] == claim.metric
        if alike and (pair["a"], pair["b"]) == models:
            gain, error = claim.scale * pair["difference"], abs(claim.scale) * pair["se"]
            digits = 3 if "bits" in claim.what else 2
            return f"{gain:+.{digits}f} ± {error:.{digits}f} `{models[0]}`, `{models[1]}`"
    raise LookupError(f"{claim.source}.json has no difference {models} of {claim.what}.")
