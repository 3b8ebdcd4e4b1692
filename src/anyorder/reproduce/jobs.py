"""Experiments of many models: each is trained and evaluated in a folder of its own, some at a time.

What is done is read from its folder, so a command that was stopped goes on where it was. A folder
says what was done in it, and with which code; results of other settings are refused.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import torch

from anyorder.diagnostics.evaluation import Estimate
from anyorder.errors import ConfigError
from anyorder.reproduce.record import progress_console, source
from anyorder.training.settings import is_first_process

Job = Callable[[str, Path], dict[str, Estimate]]
"""Trains and evaluates the model of a name in a folder."""


class Results(NamedTuple):
    """The estimates of each model, and the code that they came from."""

    estimates: dict[str, dict[str, Estimate]]
    source: dict[str, Any]


def run_jobs(
    job: Job,
    names: Iterable[str],
    folder: Path,
    *,
    identity: dict[str, Any],
    evaluation: str = "evaluation.json",
    doing: str = "training",
    at_once: int = 1,
) -> Results:
    """Runs the jobs that are not done yet, and returns the results of all.

    Args:
        job: A function that can be sent to another process.
        names: Of the models.
        folder: Each model has a folder of its name in it.
        identity: What the results depend on, in plain values.
        evaluation: The file in it that holds the estimates.
        doing: What a job does, in a word, for those who wait.
        at_once: How many processes, with one thread each; 1 stays in this process.
    """
    wanted, plain = list(dict.fromkeys(names)), json.loads(json.dumps(identity))
    places = {name: folder / name / evaluation for name in wanted}
    for path in places.values():
        _check_same(path, plain)
    left = [name for name in wanted if not places[name].exists()]
    console = progress_console()
    if at_once == 1:
        for name in left:
            _run(job, name, places[name], plain, doing)
    else:
        with ProcessPoolExecutor(
            at_once, get_context("spawn"), _begin, max_tasks_per_child=1
        ) as pool:
            futures = {
                pool.submit(_run, job, name, places[name], plain, doing): name for name in left
            }
            try:
                for future in as_completed(futures):
                    future.result()
                    console.print(f"{futures[future]}: done")
            except BaseException:  # also Ctrl-C: what has not begun does not begin
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    if not is_first_process():  # of torchrun: it has helped to train, and the first one tells
        sys.exit()
    found = {name: _document(path) for name, path in places.items()}
    estimates = {name: read_estimates(document) for name, document in found.items()}
    return Results(estimates, joint_source([document["source"] for document in found.values()]))


def _begin() -> None:
    """What a process does first: takes one thread, and minds that it does not outlive its parent.

    A parent that is killed cannot stop it, and the same command, given again, would find its folder
    taken. Nothing is lost but what was done since the last checkpoint.
    """
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(job: Job, name: str, path: Path, identity: dict[str, Any], doing: str) -> None:
    if is_first_process():
        progress_console().print(f"{name}: {doing}")
    path.parent.mkdir(parents=True, exist_ok=True)
    began = source()
    estimates = job(name, path.parent)
    if is_first_process():
        write_estimates(path, estimates, identity=identity, source=began)


def _check_same(path: Path, identity: dict[str, Any]) -> None:
    if not path.exists():
        return
    done = _document(path)["identity"]
    if done != identity:
        both = [*identity, *(done if isinstance(done, dict) else ())]
        odd = next(k for k in both if not isinstance(done, dict) or done.get(k) != identity.get(k))
        raise ConfigError(
            f'"{path.parent}" holds results of another experiment: `{odd}` differs. Give another '
            "`out`, or delete that folder."
        )


def _document(path: Path) -> dict[str, Any]:
    """What `write_estimates` wrote, if all of it is there."""
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        joint_source([document["source"]])
        read_estimates(document)
        return {"identity": document["identity"], **document}
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError):
        raise ConfigError(
            f'"{path}" is damaged or was altered: delete it, and it is made again.'
        ) from None


def joint_source(sources: list[dict[str, Any]]) -> dict[str, Any]:
    """The code that several results came from: its commits, the last one first."""
    commits = list(dict.fromkeys(one["commit"] for one in reversed(sources)))
    found = {"commit": commits[0], "dirty": any(one["dirty"] for one in sources)}
    return found if len(commits) == 1 else {**found, "commits": commits}


def write_estimates(
    path: Path,
    estimates: dict[str, Estimate],
    *,
    identity: dict[str, Any],
    source: dict[str, Any],
) -> None:
    """Writes estimates with all their rows, so that they can be compared in pairs."""
    rows = {metric: estimate.rows.tolist() for metric, estimate in estimates.items()}
    document = {"identity": identity, "source": source, "estimates": rows}
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(document))
    aside.replace(path)


def read_estimates(document: dict[str, Any]) -> dict[str, Estimate]:
    """Reads what `write_estimates` wrote."""
    return {
        metric: Estimate(torch.tensor(rows, dtype=torch.float64))
        for metric, rows in document["estimates"].items()
    }
