"""Divergence of answers from a known truth: `TableModel` beside a learnt Bayesian network.

    python -m benchmarks.known_networks --truths alarm asia --seconds 60 --seeds 0 1

Rows are sampled from a known distribution, models are fitted to them, and asked p(column | others)
with 0, 1, 3, 10 and all other columns given by held-out rows. The score is KL(truth || answer) in
nats, with its standard error over questions and over seeds. The joint is the log-likelihood of
held-out rows, beside the truth's own. The truths:

    asia, sachs, alarm, win95pts, hepar2, andes
                  public Bayesian networks of 8, 11, 37, 76, 70 and 223 categories; exact answers
                  by pyAgrum in an environment of its own (`benchmarks.rival_environments`)
    copula        Gaussian copula of 12 numbers with exponential, bimodal and normal marginals
    location      general location model: 4 latent classes, 6 categories and 6 numbers

The models:

    frequencies     column frequencies, whatever is given; of numbers the exact marginal density
    learnt_network  Bayesian network by pyAgrum from the same rows: greedy hill climbing, BIC
    TableModel      our model, within `--seconds` of CPU time, all that `fit` does included
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from cyclopts import App, Parameter
from rich.console import Console

from anyorder.cli.app import run
from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import ConfigError, check_choice, check_count, check_seed
from anyorder.reproduce.record import (
    Paired,
    Record,
    Row,
    cell,
    check_record,
    progress_console,
    report_console,
    report_table,
)
from anyorder.tables.model import TableModel
from benchmarks.known_truth import (
    LEARNT,
    Known,
    Measured,
    Sizes,
    asked_sizes,
    known_location,
    known_network,
    measured,
)
from benchmarks.location_model import LocationModel, copula, location
from benchmarks.rival_environments import NETWORK_FILES, NETWORKS, default_folder
from benchmarks.rivals.questions import Answers, Array

PUBLIC = ("asia", "sachs", "alarm", "win95pts", "hepar2", "andes")
SYNTHETIC: Mapping[str, Callable[[], LocationModel]] = {"copula": copula, "location": location}
TRUTHS = (*PUBLIC, *SYNTHETIC)

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "TableModel": {},
    "path": {"network": "path"},
    "one_stream": {"network": "path", "streams": 1},
    "mlp": {"network": "mlp"},
    "no_prior": {"prior": False},
    "prior_alone": {"network": None},
}
"""Variants of our model: their options besides the defaults."""

TRUTH = "truth"

app = App(name="known_networks", help=__doc__)


@app.default
def measure(
    *,
    truths: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    variants: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    seconds: float = 60.0,
    seeds: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    train_rows: int = 10_000,
    test_rows: int = 2000,
    questions: int = 500,
    data_seed: int = 0,
    timeout: float = 60.0,
    environments: Path | None = None,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Samples every truth, and scores every model on it.

    Args:
        truths: Known distributions; all by default.
        variants: Variants of our model: TableModel (the default), path, one_stream, mlp, no_prior,
            prior_alone.
        seconds: CPU seconds of each fit of our model, in all.
        seeds: Seeds of our model; 0 by default.
        train_rows: Number of training rows.
        test_rows: Number of held-out rows.
        questions: Number of questions with so many columns given; with none, one a column.
        data_seed: Seed of rows and questions.
        timeout: CPU minutes after which pyAgrum is stopped.
        environments: Folder of the rivals' environments; under the user's cache by default.
        json: Print one JSON object, the last line of the output.
        record: File to which the numbers are written with the command and the commit.
    """
    names, chosen = truths or list(TRUTHS), variants or ["TableModel"]
    for name in names:
        check_choice("truths", name, TRUTHS)
    for name in chosen:
        check_choice("variants", name, VARIANTS)
    for option, value in (("seconds", seconds), ("timeout", timeout)):
        if not value > 0:
            raise ConfigError(f"`{option}` must be above 0; got {value}.")
    counts = {"train_rows": train_rows, "test_rows": test_rows, "questions": questions}
    for option, count in counts.items():
        check_count(option, count, low=2)
    kept_seeds = [check_seed(seed) for seed in ([0] if seeds is None else seeds)]
    sizes = Sizes(**counts, seed=check_seed(data_seed, "data_seed"))
    check_record(record)
    rows, paired = list[Row](), list[Paired]()
    for name in names:
        known = known_table(name, sizes, environments or default_folder(), minutes=timeout)
        found = {other: measured(known, [answers]) for other, answers in known.others.items()}
        for variant in chosen:
            found[variant] = measured(known, ours(known, VARIANTS[variant], seconds, kept_seeds))
        new_rows, new_pairs = results(name, known, found)
        rows, paired = rows + new_rows, paired + new_pairs
        if not json:
            show(name, known, found)
    settings = {
        "sizes": vars(sizes),
        "seconds": seconds,
        "seeds": kept_seeds,
        "variants": {variant: dict(VARIANTS[variant]) for variant in chosen},
        "threads": torch.get_num_threads(),
        "packages": [*(NETWORKS.requirements or ()), NETWORK_FILES],
    }
    command = f"python -m benchmarks.known_networks --truths {' '.join(names)}"
    command += f" --variants {' '.join(chosen)} --seconds {seconds:g}"
    command += f" --seeds {' '.join(map(str, kept_seeds))} --train-rows {train_rows}"
    command += f" --test-rows {test_rows} --questions {questions} --data-seed {data_seed}"
    Record(command, settings, rows, paired).publish(record, json=json)


def known_table(name: str, sizes: Sizes, environments: Path, *, minutes: float) -> Known:
    """Returns the rows, questions and exact answers of a truth."""
    with progress_console().status(f"{name}: rows and exact answers ..."):
        if name in SYNTHETIC:
            return known_location(SYNTHETIC[name](), sizes)
        return known_network(name, environments, sizes, minutes=minutes)


def ours(
    known: Known, options: Mapping[str, Any], seconds: float, seeds: list[int]
) -> Iterator[Answers]:
    """Fits our model with each seed, and yields its answers."""
    frame = known.frame(known.train)
    console = progress_console()
    with warnings.catch_warnings():
        # Evidence outside the training range is for the score to judge.
        warnings.simplefilter("ignore")
        for seed in seeds:
            with console.status(f"Fitting, seed {seed} ..."):
                model, spent = fitted(frame, options, minutes=seconds / 60, random_state=seed)
                yield answered(known, model, spent)


def fitted(
    frame: pd.DataFrame, options: Mapping[str, Any], **others: Any
) -> tuple[TableModel, float]:
    """Returns a fitted model, and the CPU seconds of its fit."""
    start = time.process_time()
    model = TableModel(clock="processor", **options, **others).fit(frame)
    return model, time.process_time() - start


def answered(known: Known, model: TableModel, seconds: float) -> Answers:
    """Asks a model everything, as users ask."""
    logs: list[Array] = []
    with np.errstate(divide="ignore"):
        for question, nodes in zip(known.questions, known.nodes, strict=True):
            name = known.columns[question.target].name
            found = model.conditional(name, given=known.evidence(question))
            logs.append(np.log(found.pdf(known.values(question.target, nodes.points))))
    return Answers(logs, model.log_prob(known.frame(known.test)), seconds)


def results(
    name: str, known: Known, found: Mapping[str, Measured]
) -> tuple[list[Row], list[Paired]]:
    """Returns the rows of a record, and the paired differences to the truth and the learnt one."""
    truth = Estimate(torch.from_numpy(known.truth.joint))
    rows = [Row(name, TRUTH, "joint_nats", truth.value, truth.se, len(truth.rows))]
    pairs = []
    for model, scores in found.items():
        for size, asked in asked_sizes(known).items():
            kl, seeds = scores.over_questions(asked), scores.over_seeds(asked)
            rows.append(Row(name, model, f"kl_{size}", kl.value, _se(kl), len(kl.rows)))
            if len(seeds.rows) > 1:
                rows.append(
                    Row(name, model, f"kl_{size}/seeds", seeds.value, seeds.se, len(seeds.rows))
                )
            if model != LEARNT and LEARNT in found:
                less = kl.minus(found[LEARNT].over_questions(asked))
                pairs.append(Paired(name, model, LEARNT, f"kl_{size}", less.value, less.se))
        joint = scores.joint_rows()
        rows.append(Row(name, model, "joint_nats", joint.value, _se(joint), len(joint.rows)))
        less = joint.minus(truth)
        pairs.append(Paired(name, model, TRUTH, "joint_nats", less.value, less.se))
        rows.append(Row(name, model, "fit_seconds", float(scores.seconds.mean())))
        rows.append(Row(name, model, "zero_answers", float(scores.zeros)))
    return rows, pairs


def show(name: str, known: Known, found: Mapping[str, Measured]) -> None:
    """Prints the table of a truth."""
    sizes = asked_sizes(known)
    titles = [f"{size} given" for size in sizes]
    table = report_table("KL in nats", *titles, "joint - truth", "CPU s")
    table.title = f"{name}: {len(known.columns)} columns, {len(known.train):,} training rows"
    truth = Estimate(torch.from_numpy(known.truth.joint))
    for model, scores in found.items():
        cells = [_small(scores.over_questions(asked)) for asked in sizes.values()]
        joint = scores.joint_rows().minus(truth)
        seconds = f"{scores.seconds.mean():.1f}"
        digits = 3 if abs(joint.value) < 10 else 2  # as wide as its title
        less = f"{joint.value:+.{digits}f} ± {_digits(joint.se, digits)}"
        table.add_row(model, *cells, less, seconds)
        if len(scores.seconds) > 1:
            errors = [f"± {_digits(scores.over_seeds(asked).se)}" for asked in sizes.values()]
            table.add_row(f"  over {len(scores.seconds)} seeds", *errors, "", "")
    console: Console = report_console()
    console.print(table)
    console.print(f"Joint of the truth: {cell(truth.value, truth.se)} nats a row.")


def _small(kl: Estimate) -> str:
    return f"{_digits(kl.value)} ± {_digits(kl.se)}"


def _digits(value: float, digits: int = 4) -> str:
    """Formats a small number without its leading zero, so that all sizes fit on a line."""
    shown = f"{value:.{digits}f}"
    return shown[1:] if shown.startswith("0.") else shown


def _se(estimate: Estimate) -> float | None:
    return estimate.se if len(estimate.rows) > 1 else None


if __name__ == "__main__":
    run(app)
