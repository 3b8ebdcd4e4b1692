"""Figure 3 of the paper: what each idea adds to the law that training masks are drawn from."""

import csv
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from anyorder.errors import check_choice, check_count
from anyorder.evaluation import Estimate, marginal_bits
from anyorder.losses import MacLoss
from anyorder.masks import UniformCardinality
from anyorder.model import AnyOrderModel
from anyorder.protocols import RemoveGreatest, RemoveRandom, lexicographic
from anyorder.query_laws import MarginalQueries, Query, QueryLaw
from anyorder.reproduce.jobs import run_jobs
from anyorder.reproduce.record import Paired, Record, Row, check_record, command, print_json
from anyorder.reproduce.showing import TOO_SHORT, legend, report_console, report_table
from anyorder.reproduce.text_models import (
    SCALES,
    TABLE1,
    Entry,
    TextJob,
    identity,
    mac_protocol,
    read_text,
    with_minutes,
)


class LastEdges(QueryLaw):
    """The last edge of the path of S ~ M: its greatest variable, given all the others of S.

    Insight (A) without (B): one edge a node, but every node as often as it is asked about, not as
    often as it is passed. The paper does not define its ablation; this is our reading.
    """

    def __init__(self, num_variables: int) -> None:
        self.num_variables = num_variables
        self._sets = MarginalQueries(UniformCardinality(num_variables))
        self._protocol = RemoveGreatest(lexicographic(num_variables))

    @property
    def max_sizes(self) -> tuple[int, int]:
        """Bounds on the numbers of given and of queried variables."""
        return self.num_variables - 1, 1

    def _draw(self, batch: int, device: torch.device, generator: torch.Generator | None) -> Query:
        members = self._sets._draw(batch, device, generator).query
        greatest = self._protocol.removal(members).bool()
        return Query(members & ~greatest, greatest)

    def _log_prob(self, given: Tensor, query: Tensor) -> Tensor:
        last = (self._protocol.removal(given | query).bool() == query).all(dim=1)
        nothing = torch.zeros_like(given)
        return self._sets._log_prob(nothing, given | query).masked_fill(~last, -torch.inf)


BASELINE = "card_uniform"
"""The law that differences are from."""


def _uniform(n: int) -> UniformCardinality:
    return UniformCardinality(n)


LAWS: Mapping[str, Entry] = {
    "card_uniform": TABLE1["ardm"],
    "a_only": Entry(
        "insight A: one edge a mask, the masks as often as they are asked",
        "masked", lambda n: MacLoss(LastEdges(n), reweight=False), mac_protocol,
    ),
    "b_only": Entry(
        "insight B: masks as often as inference visits them, in random orders",
        "masked", lambda n: MacLoss(_uniform(n), reweight=False), lambda _: RemoveRandom(),
    ),
    "a_and_b": Entry(
        "A and B: masks as often as MAC visits them",
        "masked", lambda n: MacLoss(_uniform(n), reweight=False), mac_protocol,
    ),
    "b_cr": Entry(
        "B with cardinality reweighting",
        "masked", lambda n: MacLoss(_uniform(n)), lambda _: RemoveRandom(),
    ),
    "a_and_b_cr": TABLE1["mac"],
    "exact_weights": Entry(
        "MAC, each prediction weighted as inference uses it",
        "masked", lambda n: MacLoss(_uniform(n), targets="exact"), mac_protocol,
    ),
    "exact_path": TABLE1["path"],
}  # fmt: skip


def figure3_entry(name: str) -> Entry:
    """A law of the figure."""
    return LAWS[name]


def measure(model: AnyOrderModel, x: Tensor, seed: int) -> dict[str, Estimate]:
    """Full marginal likelihoods."""
    generator = torch.Generator().manual_seed(seed)
    return {"marginal": marginal_bits(model, x, seed=seed, generator=generator)}


def figure3(
    *,
    scale: str = "tiny",
    data: Path | None = None,
    out: Path = Path("runs/figure3"),
    models: list[str] | None = None,
    minutes: float | None = None,
    at_once: int = 1,
    seed: int = 0,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Trains a model on each law, and draws its marginal bits while it learns.

    Args:
        scale: "tiny", "small" or "paper"; see `table1`.
        data: text8, or the folder that holds it; without it, the text that ships with Python.
        out: Where runs go, and `figure3.csv` and `figure3.png` beside them.
        models: Which laws; all by default.
        minutes: Of training for each law, in place of the scale's budget.
        at_once: How many are trained at a time, one thread each.
        seed: Of the questions that are evaluated.
        json: Whether to print one JSON object in place of a sentence.
        record: A file to which the numbers are written with the command and the commit.
    """
    check_choice("scale", scale, SCALES)
    check_count("at_once", at_once)
    check_record(record)
    names = models or list(LAWS)
    for name in names:
        check_choice("models", name, LAWS)
    size, text = with_minutes(SCALES[scale], minutes), read_text(data)
    folder, about = out / scale, identity(size, text, seed)
    job = TextJob(figure3_entry, measure, size, data, seed)
    results, source = run_jobs(job, names, folder, identity=about, at_once=at_once)
    curves = {name: read_curve(folder / name) for name in results}
    write_curves(folder / "figure3.csv", curves)
    rows = [
        Row(text.name, name, "marginal_bits", found.value, found.se, len(found.rows))
        for name, found in ((name, results[name]["marginal"]) for name in results)
    ]
    options: dict[str, object] = {
        "scale": scale,
        "data": data and "text8",
        "minutes": minutes,
        "seed": seed,
    }
    ran = command("figure3", options, models=models)
    kept = Record(ran, about, rows, _paired(text.name, results), source)
    if record is not None:
        kept.save(record)
    if json:
        print_json(kept.to_json())
        return
    _show(text.name, scale, results)
    drawn = draw_curves(folder / "figure3.png", curves)
    picture = f" and {drawn}" if drawn else '. No picture: pip install "anyorder[plot]"'
    report_console().print(f"\nCurves: {folder / 'figure3.csv'}{picture}", soft_wrap=True)


def _paired(source: str, results: dict[str, dict[str, Estimate]]) -> list[Paired]:
    if BASELINE not in results:
        return []
    baseline = results[BASELINE]["marginal"]
    differences = {name: found["marginal"].minus(baseline) for name, found in results.items()}
    return [
        Paired(source, name, BASELINE, "marginal_bits", found.value, found.se)
        for name, found in differences.items()
        if name != BASELINE
    ]


def _show(source: str, scale: str, results: dict[str, dict[str, Estimate]]) -> None:
    console = report_console()
    console.print(f"Figure 3 at scale {scale}: {source}, marginal bits; less is better")
    table = report_table("law", "bits", f"minus {BASELINE}")
    differences = {pair.a: pair for pair in _paired(source, results)}
    for name, found in results.items():
        pair = differences.get(name)
        difference = "" if pair is None else f"{pair.difference:+.4f} ± {pair.se:.4f}"
        table.add_row(name, str(found["marginal"]), difference)
    console.print(table)
    console.print(legend(LAWS, results))
    if scale == "tiny":
        console.print(f"\n{TOO_SHORT}")


def draw_curves(path: Path, curves: dict[str, list[tuple[float, float]]]) -> Path | None:
    """Draws the curves, where matplotlib is installed (the extra `plot`)."""
    if find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for law, curve in curves.items():
        minutes, bits = [seconds / 60 for seconds, _ in curve], [value for _, value in curve]
        axes.plot(minutes, bits, label=law.replace("_", " "))
    axes.set(xlabel="minutes of training", ylabel="marginal bits a character, held out")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=160)
    return path


def read_curve(folder: Path) -> list[tuple[float, float]]:
    """Seconds of training and held-out marginal bits, from the metrics of a run."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [(line["seconds"], line["held_out"]) for line in found if "held_out" in line]


def write_curves(path: Path, curves: dict[str, list[tuple[float, float]]]) -> None:
    """One line a point: law, seconds, bits."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["law", "seconds", "marginal_bits"])
        for law, curve in curves.items():
            writer.writerows([law, round(seconds, 1), bits] for seconds, bits in curve)
