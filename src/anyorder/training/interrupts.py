"""Ctrl-C, and the end of a job, at a moment when nothing is half done."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

IMPATIENCE = 5.0
"""Seconds after which a second Ctrl-C does not wait for the step to end: a step hangs."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What is heard: Ctrl-C, and what schedulers send before they kill a job."""


class Stopped(KeyboardInterrupt):
    """A training was stopped; the words say what was saved."""


class Interrupts:
    """Turns Ctrl-C into a KeyboardInterrupt between steps; a late second one does not wait.

    Args:
        patient: Whether even between steps Ctrl-C only sets `asked`, for several processes that
            must stop at the same step.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.asked = False
        self._patient = patient
        self._shielded = self._deaf = False
        self._since = 0.0
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others receive no signals
            self._former = {name: signal.signal(name, self._hear) for name in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for name, handler in self._former.items():
            signal.signal(name, handler)

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Nothing is heard in this block: what is being saved is wanted."""
        self._deaf = True
        try:
            yield
        finally:
            self._deaf = False

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Ctrl-C waits for the end of this block."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self.asked and not self._patient:
            raise KeyboardInterrupt

    def _hear(self, *signal_and_frame: object) -> None:
        del signal_and_frame
        if self._deaf:
            return
        late = self.asked and time.monotonic() - self._since > IMPATIENCE
        if late or not (self._shielded or self._patient):
            raise KeyboardInterrupt
        self._since = self._since if self.asked else time.monotonic()
        self.asked = True
