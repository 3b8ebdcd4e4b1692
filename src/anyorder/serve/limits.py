"""Limits of a request, and refusals: a 4xx status and one sentence with limit, value and remedy."""

from dataclasses import dataclass

from anyorder.errors import check_count


class RefusalError(Exception):
    """A request that is not answered.

    Args:
        status: HTTP status, 400 to 499.
        sentence: Reason and remedy.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(frozen=True)
class Limits:
    """Greatest sizes of one request.

    Args:
        rows: Rows of a request.
        draws: Samples of a row.
        cells: Rows times samples.
        values: Characters or pixel values to sample, over all samples.
        body_bytes: Bytes of the body.
        seconds: Seconds for a client to send the body, and again until the answer.
        waiting: Queries in the queue; more are refused.
    """

    rows: int = 1_000
    draws: int = 1_000
    cells: int = 10_000
    values: int = 100_000
    body_bytes: int = 2_000_000
    seconds: float = 30.0
    waiting: int = 4_000

    @property
    def public(self) -> dict[str, float]:
        """The limits that a client can keep to."""
        names = ("rows", "draws", "cells", "values")
        return {name: getattr(self, name) for name in names}

    def check_size(self, *, rows: int = 1, draws: int = 1) -> None:
        """Refuses a request of too many rows or samples."""
        for what, number, most in (("rows", rows, self.rows), ("samples", draws, self.draws)):
            if number > most:
                raise RefusalError(
                    413, f"A request may hold {most:,} {what}; this one has {number:,}. Split it."
                )
        if rows * draws > self.cells:
            raise RefusalError(
                413,
                f"Rows times samples of a request may be {self.cells:,}; {rows:,} times {draws:,} "
                f"is {rows * draws:,}. Split it.",
            )

    def check_values(self, number: int, noun: str) -> None:
        """Refuses to sample more values, one after another, than a request has time for."""
        if number > self.values:
            raise RefusalError(
                413,
                f"A request may sample {self.values:,} {noun}, over all its samples; this one asks "
                f"for {number:,}. Split it.",
            )


def check_port(port: int) -> int:
    """Returns a port if it is one; 0 takes any that is free."""
    return check_count("port", port, low=0, high=65_535)
