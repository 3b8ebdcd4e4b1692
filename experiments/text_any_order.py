"""What it costs a model of text to be asked anything, beside one that reads left to right only.

    python -m experiments.text_any_order --data text8 --length 250 --minutes 5 --seeds 0 1 2

Every model has blocks of the same size and the same processor time:

    left_to_right   tokens of a single stream, trained on whole chunks alone
    any             two streams, trained on any question from the first step on
    TextModel       the same, on whole chunks at first and on ever fewer of them, as `TextModel` is

Bits are a character; less is better. Errors of differences cover test chunks and training seeds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
from cyclopts import App, Parameter
from torch import Tensor

from anyorder.cli.app import run
from anyorder.diagnostics.evaluation import (
    Estimate,
    conditional_bits,
    joint_bits,
    marginal_bits,
)
from anyorder.errors import check_choice, check_count, check_positive, check_seed
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.lattice.masks import FixedCardinality
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.networks.path_transformer import PathTransformer, SingleStreamPathTransformer
from anyorder.reproduce.record import Paired, Record, Row, check_record, progress_console
from anyorder.text.data import Crops, Text, chunks, load_text8, text_schema
from anyorder.text.model import TEXT_SETTINGS, text_queries
from anyorder.training.loop import fit
from anyorder.training.losses import Objective, PathLoss, whole_first
from benchmarks.table_variants import show

LAYERS, WIDTH, HEADS = 4, 128, 4
METRICS = {"joint": joint_bits, "marginal": marginal_bits, "conditional": conditional_bits}

app = App(name="text_any_order", help=__doc__)


@dataclass(frozen=True)
class Variant:
    """A way to train a model of text.

    Args:
        whole_only: True for tokens of a single stream, trained on whole chunks alone.
        whole_first: True for whole chunks at first.
    """

    whole_only: bool = False
    whole_first: bool = False

    def objective(self, length: int) -> Objective:
        """Returns the training objective."""
        if self.whole_only:
            return PathLoss(FixedCardinality(length, length))
        law = text_queries(length)
        return whole_first(law) if self.whole_first else PathLoss(law)


VARIANTS: Mapping[str, Variant] = {
    "left_to_right": Variant(whole_only=True),
    "any": Variant(),
    "TextModel": Variant(whole_first=True),
}


@app.default
def measure(
    *,
    data: Path,
    length: int = 250,
    minutes: float = 5.0,
    seeds: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    variants: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    batch: int = TEXT_SETTINGS.batch,
    rows: int = 512,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Trains every variant with every seed, and measures the same test chunks.

    Args:
        data: File, folder or archive of text8.
        length: Characters of a chunk.
        minutes: Processor minutes of each training.
        seeds: Training seeds; 0, 1 and 2 by default.
        variants: Variants; all by default. Differences are from the first.
        batch: Chunks of a step.
        rows: Number of test chunks.
        json: Print one JSON object, the last line of the output.
        record: File to which the numbers are written with the command and the commit.
    """
    for name, count in (("length", length), ("rows", rows), ("batch", batch)):
        check_count(name, count, low=2)
    check_positive("minutes", minutes)
    numbers, chosen = [check_seed(each) for each in seeds or [0, 1, 2]], variants or list(VARIANTS)
    for name in chosen:
        check_choice("variants", name, VARIANTS)
    check_record(record)
    text = load_text8(data)
    test, console = chunks(text.test, length, rows), progress_console()
    bits: dict[str, dict[str, list[Tensor]]] = {name: {m: [] for m in METRICS} for name in chosen}
    for seed in numbers:  # all variants of a seed together: a busy machine is so for all of them
        for name in chosen:
            with console.status(f"Training {name}, seed {seed} ..."):
                model, steps = trained(VARIANTS[name], text, length, minutes, batch, seed)
            for metric, score in METRICS.items():
                bits[name][metric].append(score(model, test).rows)
            shown = {
                metric: f"{float(found[-1].mean()):.3f}" for metric, found in bits[name].items()
            }
            console.print(f"{name}, seed {seed}, {steps} steps: {shown}")
    cells = [
        (name, metric, torch.stack(found))
        for name in chosen
        for metric, found in bits[name].items()
    ]
    kept = Record(
        f"python -m experiments.text_any_order --data DIR --length {length} --minutes {minutes:g} "
        f"--seeds {' '.join(map(str, numbers))} --variants {' '.join(chosen)} --batch {batch}",
        {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "threads": torch.get_num_threads()},
        [
            Row(
                "text8",
                name,
                f"{metric}_bits",
                float(found.mean()),
                over_both(found),
                found.shape[1],
            )
            for name, metric, found in cells
        ],
        [
            Paired("text8", name, chosen[0], f"{metric}_bits", float(gap.mean()), over_both(gap))
            for name, metric, found in cells
            if name != chosen[0]
            for gap in [found - torch.stack(bits[chosen[0]][metric])]
        ],
    )
    if kept.publish(record, json=json):
        show(kept.rows, kept.paired, "Bits a character: less is better")


def over_both(values: Tensor) -> float:
    """Returns the standard error of a mean over seeds and rows ``(seeds, rows)``, of both."""
    rows, seeds = Estimate(values.mean(dim=0)).se, Estimate(values.mean(dim=1)).se
    return rows if math.isnan(seeds) else math.hypot(rows, seeds)


def trained(
    variant: Variant, text: Text, length: int, minutes: float, batch: int, seed: int
) -> tuple[AnyOrderModel, int]:
    """Returns a trained model, and the number of its steps."""
    schema = text_schema(text.alphabet, length)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        build = SingleStreamPathTransformer if variant.whole_only else PathTransformer
        network = build(schema, layers=LAYERS, width=WIDTH, heads=HEADS, positions="rotary")
        conditionals = CategoricalConditionals(schema, width=WIDTH)
    model = AnyOrderModel(schema, network, conditionals, RemoveGreatest(lexicographic(length)))
    settings = replace(TEXT_SETTINGS, minutes=minutes, clock="processor", seed=seed, batch=batch)
    done = fit(model, Crops(text.train, length), variant.objective(length), settings=settings)
    return model.eval(), done.step


if __name__ == "__main__":
    run(app)
