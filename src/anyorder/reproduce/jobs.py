"""Experiments of many models: each is trained and evaluated in a folder of its own, some at a time.

What is done is read from its folder, so a command that was stopped goes on where it was.
"""

import json
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from anyorder.evaluation import Estimate
from anyorder.training.settings import is_first_process

Job = Callable[[str, Path], dict[str, Estimate]]
"""Trains and evaluates the model of a name in a folder."""

EVALUATION = "evaluation.json"


def run_jobs(
    job: Job, names: Iterable[str], folder: Path, *, at_once: int = 1
) -> dict[str, dict[str, Estimate]]:
    """Runs the jobs that are not done yet, and returns the results of all.

    Args:
        job: A function that can be sent to another process.
        names: Of the models.
        folder: Each model has a folder of its name in it.
        at_once: How many processes, with one thread each; 1 stays in this process.
    """
    wanted = list(names)
    left = [name for name in wanted if not (folder / name / EVALUATION).exists()]
    console = Console(stderr=True)
    if at_once == 1:
        for name in left:
            console.print(f"{name}: training")
            _run(job, name, folder / name)
    else:
        with ProcessPoolExecutor(
            at_once, get_context("spawn"), _one_thread, max_tasks_per_child=1
        ) as pool:
            futures = {pool.submit(_run, job, name, folder / name): name for name in left}
            for future in as_completed(futures):
                future.result()
                console.print(f"{futures[future]}: done")
    if not is_first_process():  # of torchrun: it has helped to train, and the first one tells
        sys.exit()
    return {name: read_estimates(folder / name / EVALUATION) for name in wanted}


def _one_thread() -> None:
    torch.set_num_threads(1)


def _run(job: Job, name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    estimates = job(name, folder)
    if is_first_process():
        write_estimates(folder / EVALUATION, estimates)


def write_estimates(path: Path, estimates: dict[str, Estimate]) -> None:
    """Writes estimates with all their rows, so that they can be compared in pairs."""
    document = {metric: estimate.rows.tolist() for metric, estimate in estimates.items()}
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(document))
    aside.replace(path)


def read_estimates(path: Path) -> dict[str, Estimate]:
    """Reads what `write_estimates` wrote."""
    document: dict[str, Any] = json.loads(path.read_text())
    return {
        metric: Estimate(torch.tensor(rows, dtype=torch.float64))
        for metric, rows in document.items()
    }
