"""Middleware and limits: checks hosts, tokens, sizes and slow clients, and counts requests.

Every refusal is a 4xx status and one sentence: the limit, what was received, what to do.
"""

import asyncio
import hmac
import json
from collections import Counter
from dataclasses import dataclass
from time import monotonic

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class RefusalError(Exception):
    """A request that is not answered."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(frozen=True)
class Limits:
    """Greatest sizes of one request.

    `draws` are samples of a row, `cells` rows times samples, `values` characters or pixel values
    over all samples. A client has `seconds` to send the body, and waits as long for the answer;
    `waiting` is the length of the queue.
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


SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the buckets of response times."""

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Upper ends of the buckets of batch sizes."""


class Metrics:
    """Counts requests, their response times and the batches that answered them."""

    def __init__(self) -> None:
        self.started = monotonic()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.times = _Histogram(SECONDS)
        self.batches = _Histogram(SIZES)
        self.under_way = 0

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Counts a request, by the path of its route."""
        self.requests[path, status] += 1
        self.times.add(seconds)

    def to_text(self) -> str:
        """Returns the counts in the text format of Prometheus."""
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
    """Counts values by buckets.

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


LOOPBACK = ("localhost", "127.0.0.1", "::1")

OPEN_PATHS = ("/", "/health")
"""Paths answered without a token: the empty page, and the health check."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""The page loads nothing from elsewhere, is shown in no other, and tells nobody where it is."""


class Guard:
    """Refuses requests that must not reach the application, and counts all.

    Args:
        app: Application behind it.
        limits: Limits of a request.
        metrics: Counters of requests.
        token: Token that a request must bear; None for no token.
        hosts: Host names under which a server without a token answers. A page of another site could
            otherwise make its own name point here, and read the answers through the browser.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        metrics: Metrics,
        token: str | None,
        hosts: tuple[str, ...] = LOOPBACK,
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.token, self.hosts = token, tuple(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = monotonic(), 500
        self.metrics.under_way += 1

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._admit(scope)
            body = await self._body(Headers(scope=scope), receive)
            await self.app(scope, _replayed(body, receive), sending)
        except RefusalError as refusal:
            await refuse(refusal, sending)
        finally:
            self.metrics.under_way -= 1
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.count_request(path, status, monotonic() - started)

    def _admit(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        if self.token is None:
            host = _host_name(headers.get("host", ""))
            if host not in self.hosts:
                raise RefusalError(
                    400, f'This server answers as {self.hosts[0]}, not as "{host[:100]}".'
                )
        elif not (path in OPEN_PATHS or path.startswith("/page/")):
            kind, _, given = headers.get("authorization", "").partition(" ")
            same = hmac.compare_digest(given.strip().encode(), self.token.encode())
            if kind.lower() != "bearer" or not same:
                raise RefusalError(
                    401, "This server wants its token, as the header `Authorization: Bearer ...`."
                )

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Reads the whole body, if it is small enough and arrives in time."""
        most = self.limits.body_bytes
        too_large = RefusalError(413, f"A request may have {most:,} bytes; this one has more.")
        stated = headers.get("content-length", "0")
        if stated.isdecimal() and int(stated[:20]) > most:
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusalError(400, "The request ended before its body did.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RefusalError(
                408, f"The request did not arrive within {self.limits.seconds:g} seconds."
            ) from None


async def refuse(refusal: RefusalError, send: Send) -> None:
    """Sends the sentence of a refusal."""
    body = json.dumps({"detail": refusal.sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(body)).encode()))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that gives the body read already as one message, then what follows."""
    waiting = [body]

    async def receiving() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receiving


def _host_name(host: str) -> str:
    """Returns the name of a Host header, without its port.

    Example:
        >>> _host_name("LOCALHOST:8765"), _host_name("[::1]:8765")
        ('localhost', '::1')
    """
    host = host.lower()  # names of machines have no case
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] or host
