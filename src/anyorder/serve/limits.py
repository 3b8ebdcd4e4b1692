"""How much a request may ask, and what is said when it asks for more.

Every refusal is a status between 400 and 499 and one sentence: which limit, what was received, what
to do.
"""

from dataclasses import dataclass

from anyorder.errors import check_count


class RefusalError(Exception):
    """A request that is not answered.

    Args:
        status: Of HTTP.
        sentence: Why, and what to do.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(frozen=True)
class Limits:
    """The most that one request may ask.

    Args:
        rows: Of a batch.
        draws: Of one row.
        cells: Rows times draws of an answer.
        values: Characters or pixels that are drawn for an answer, of all its draws.
        body_bytes: Of a request.
        seconds: From when a request was read to its answer, and for a client to send its body.
        waiting: Questions that wait for the model; more are sent away.
    """

    rows: int = 1_000
    draws: int = 1_000
    cells: int = 10_000
    values: int = 100_000
    body_bytes: int = 2_000_000
    seconds: float = 30.0
    waiting: int = 4_000

    @property
    def told(self) -> dict[str, float]:
        """Those that an asker can keep to."""
        names = ("rows", "draws", "cells", "values")
        return {name: getattr(self, name) for name in names}

    def check_size(self, *, rows: int = 1, draws: int = 1) -> None:
        """Refuses what is too large."""
        for what, number, most in (("rows", rows, self.rows), ("draws", draws, self.draws)):
            if number > most:
                raise RefusalError(
                    413, f"A request may hold {most:,} {what}; this one has {number:,}. Split it."
                )
        if rows * draws > self.cells:
            raise RefusalError(
                413,
                f"Rows times draws of a request may be {self.cells:,}; {rows:,} times {draws:,} is "
                f"{rows * draws:,}. Split it.",
            )

    def check_values(self, number: int, noun: str) -> None:
        """Refuses to draw more values, one after another, than a request has time for."""
        if number > self.values:
            raise RefusalError(
                413,
                f"A request may have {self.values:,} {noun} drawn, those of all its draws; this "
                f"one asks for {number:,}. Split it.",
            )


def check_port(port: int) -> int:
    """Returns a port if it is one; 0 takes any that is free."""
    return check_count("port", port, low=0, high=65_535)
