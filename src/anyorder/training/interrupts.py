"""Ctrl-C at a moment when nothing is half done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self


class Interrupts:
    """Turns Ctrl-C into a KeyboardInterrupt between steps; the second one does not wait.

    Args:
        patient: Whether even between steps Ctrl-C only sets `asked`, for several processes that
            must stop at the same step.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.asked = False
        self._patient = patient
        self._shielded = False
        self._former: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others receive no signals
            self._former = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        if self._former is not None:
            signal.signal(signal.SIGINT, self._former)

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
        if self.asked or not (self._shielded or self._patient):
            raise KeyboardInterrupt
        self.asked = True
