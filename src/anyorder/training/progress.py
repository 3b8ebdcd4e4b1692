"""Progress of a training: a file of metrics, TensorBoard, and a progress bar."""

import json
import logging
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from anyorder.saving.checkpoint import replace_text

log = logging.getLogger(__name__)


def shows(progress: bool | None) -> bool:
    """Returns whether progress is shown: as said, or by default in terminals and notebooks."""
    if progress is not None:
        return progress
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class Metrics:
    """Appends lines of JSON to `metrics.jsonl`: losses, and evaluations on held-out data.

    Args:
        folder: Folder of the run; None writes nothing.
        step: Step at which the training resumes; losses of later steps are dropped.
        evaluated: Last evaluated step at which it resumes; later evaluations are dropped.
        tensorboard: True writes TensorBoard files too.
    """

    def __init__(
        self, folder: Path | None, *, step: int = 0, evaluated: int = 0, tensorboard: bool = False
    ) -> None:
        self._file = None
        self._board: Any = None
        if folder is not None:
            path = folder / "metrics.jsonl"
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(path, _kept_lines(path, step, evaluated))
            self._file = path.open("a", encoding="utf-8", buffering=1)  # a line at a time
        if folder is not None and tensorboard:
            self._board = _board(folder / "tensorboard", step)

    def write(self, step: int, **values: float) -> None:
        """Adds a line."""
        if self._file is not None:
            self._file.write(json.dumps({"step": step, **values}) + "\n")
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Closes the files."""
        for sink in (self._file, self._board):
            if sink is not None:
                sink.close()


class ProgressLine:
    """Line on standard error: step, loss and held-out loss in bits a variable, rows a second."""

    def __init__(self, *, shown: bool, share: float = 0.0) -> None:
        self._bar: Any = None
        if shown:
            self._bar = _bar()
            self._task = self._bar.add_task("training", total=1.0, completed=share)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(
        self, share: float, *, step: int, loss: float | None, held_out: float | None, speed: float
    ) -> None:
        """Updates the line."""
        if self._bar is not None:
            train = "" if loss is None else f" · {loss / math.log(2):.4f} bits"
            held = "" if held_out is None else f" · held-out {held_out:.4f}"
            words = f"step {step:,}{train}{held} · {speed:,.0f} rows/s"
            self._bar.update(self._task, completed=min(share, 1.0), description=words)


def _kept_lines(path: Path, step: int, evaluated: int) -> str:
    """Returns the lines to keep: those that a resumed run will not write again."""
    return "".join(
        json.dumps(entry) + "\n"
        for entry in (read_metrics(path) if path.exists() else ())
        if entry["step"] <= (evaluated if "held_out" in entry else step)
    )


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the complete lines of metrics: a process that was killed leaves a partial one."""
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            yield entry


def _board(folder: Path, step: int) -> Any:
    if find_spec("tensorboard") is None:
        log.warning("TensorBoard is not installed, so only metrics.jsonl is written.")
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=step + 1)


@contextmanager
def stderr_bar(
    *, shown: bool, title: str, total: float
) -> Iterator[Callable[[float, str], object]]:
    """Shows a transient progress bar on standard error, for work other than training.

    Yields a function to call after each part, with the part's share of `total` and its name.
    """
    if not shown:
        yield lambda _, __: None
        return
    bar = _bar(transient=True)
    bar.disable = not bar.console.is_terminal  # elsewhere it would leave an empty line
    task = bar.add_task(title, total=total)
    with bar:
        yield lambda part, name: bar.update(task, advance=part, description=f"{title}: {name}")


def _bar(*, transient: bool = False) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=transient)
