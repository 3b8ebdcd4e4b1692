"""What the server did, as plain text that Prometheus reads."""

from collections import Counter
from time import monotonic

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""The upper ends of the cells in which response times are counted."""

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Those in which the sizes of batches are counted."""


class Metrics:
    """Counts of requests, of their times and of the batches that answered them."""

    def __init__(self) -> None:
        self.started = monotonic()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.times = _Histogram(SECONDS)
        self.batches = _Histogram(SIZES)
        self.under_way = 0

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """One request, by the path of its route."""
        self.requests[path, status] += 1
        self.times.add(seconds)

    def count_batch(self, size: int) -> None:
        """One batch of so many questions."""
        self.batches.add(size)

    def to_text(self) -> str:
        """In the text format of Prometheus."""
        lines = ["# TYPE anyorder_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'anyorder_requests_total{{path="{path}",status="{status}"}} {count}')
        lines += self.times.lines("anyorder_request_seconds")
        lines += self.batches.lines("anyorder_batch_questions")
        lines += ["# TYPE anyorder_requests_under_way gauge"]
        lines += [f"anyorder_requests_under_way {self.under_way}"]
        lines += ["# TYPE anyorder_uptime_seconds gauge"]
        lines += [f"anyorder_uptime_seconds {monotonic() - self.started:.0f}"]
        return "\n".join(lines) + "\n"


class _Histogram:
    """Counts of values at most so large.

    Example:
        >>> histogram = _Histogram((1, 2))
        >>> histogram.add(2)
        >>> histogram.lines("size")[1:4]
        ['size_bucket{le="1"} 0', 'size_bucket{le="2"} 1', 'size_bucket{le="+Inf"} 1']
    """

    def __init__(self, ends: tuple[float, ...]) -> None:
        self.ends, self.counts = ends, [0] * len(ends)
        self.count, self.total = 0, 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        for place, end in enumerate(self.ends):
            self.counts[place] += value <= end

    def lines(self, name: str) -> list[str]:
        cells = zip((*self.ends, "+Inf"), (*self.counts, self.count), strict=True)
        found = [f"# TYPE {name} histogram"]
        found += [f'{name}_bucket{{le="{end}"}} {count}' for end, count in cells]
        return [*found, f"{name}_sum {self.total:.6f}", f"{name}_count {self.count}"]
