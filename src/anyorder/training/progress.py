"""What a training shows while it runs: a file of metrics, TensorBoard, and a line with a bar."""

import json
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from anyorder.saving.run_folder import replace_text

log = logging.getLogger(__name__)


class Metrics:
    """Appends lines of JSON to `metrics.jsonl`: losses, and evaluations on held-out data.

    Args:
        folder: Beside the checkpoints; None writes nothing.
        step: Where the training goes on: what was written after it is dropped.
        evaluated: The last step that was evaluated, likewise.
        tensorboard: Whether TensorBoard is written too.
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
    """One line on standard error: step, loss and held-out loss in bits a variable, rows a second.

    Args:
        shown: Whether there is a line at all.
        share: How much of the budget is spent already.
    """

    def __init__(self, *, shown: bool, share: float = 0.0) -> None:
        self._bar: Any = None
        if shown:
            self._bar = _bar()
            self._task = self._bar.add_task("training", total=1.0, completed=share)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(
        self, share: float, *, step: int, loss: float | None, held_out: float | None, speed: float
    ) -> None:
        """Redraws the line."""
        if self._bar is not None:
            learnt = "" if loss is None else f" · {loss / math.log(2):.4f} bits"
            held = "" if held_out is None else f" · held-out {held_out:.4f}"
            words = f"step {step:,}{learnt}{held} · {speed:,.0f} rows/s"
            self._bar.update(self._task, completed=min(share, 1.0), description=words)


def _kept_lines(path: Path, step: int, evaluated: int) -> str:
    """The lines that a resumed run would write again to the same effect are left out."""
    return "".join(
        json.dumps(entry) + "\n"
        for entry in (read_metrics(path) if path.exists() else ())
        if entry["step"] <= (evaluated if "held_out" in entry else step)
    )


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of metrics that are whole: a process that was killed leaves a part of one."""
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
    """A bar on standard error for work that is no training; it goes when the work is done.

    Yields what to call after each part, with the share of `total` that it was and its name.
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
