"""The server process: listens, checks tokens against addresses, and shuts down in order."""

import asyncio
import ipaddress
import os
import signal
import webbrowser
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from anyorder.domains import load
from anyorder.errors import ConfigError, check_count
from anyorder.serve.app import create_app
from anyorder.serve.limits import LOOPBACK, Limits

SHORTEST_TOKEN = 16
"""Least number of characters of a token: fewer can be guessed."""

IDLE_SECONDS = 15
"""Seconds that a connection may be silent between requests."""

INTERRUPTED = 130
"""Exit code after a second Ctrl-C, as shells have it."""

HEAD_SECONDS = 15.0
"""Seconds that the head of a request may take."""


class PromptProtocol(H11Protocol):
    """Uvicorn's protocol with a time limit for the head of a request.

    A body has its own time, in `Guard`; a connection that is silent between requests is closed by
    uvicorn.
    """

    seconds = HEAD_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Starts the timer."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.seconds, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Keeps the timer running while a head is incomplete."""
        super().data_received(data)
        waits = self.cycle is None or self.cycle.response_complete
        if not waits and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif waits and self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        body = f'{{"detail": "The request did not arrive within {self.seconds:g} seconds."}}'
        head = f"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: {len(body)}"
        self.transport.write(f"{head}\r\nContent-Type: application/json\r\n\r\n{body}".encode())
        self.transport.close()


class Server(uvicorn.Server):
    """Uvicorn's server, which calls back when it listens, and ends at once on a second Ctrl-C."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[int], None]) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Starts to listen, then calls `ready`."""
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            self.ready(self.servers[0].sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Answers what was accepted, then ends; a second Ctrl-C does not wait for it."""
        if self.should_exit and sig == signal.SIGINT:
            # An ordinary exit would join the thread that computes, however long it takes.
            os._exit(INTERRUPTED)
        super().handle_exit(sig, frame)


def serve_run(
    run: Path,
    *,
    host: str,
    port: int,
    token: str | None,
    tell: Callable[[str], None],
    show: bool = False,
    limits: Limits | None = None,
) -> None:
    """Serves the model of a folder until it is stopped; see `anyorder serve --help`.

    A request that was accepted is answered before the server ends.
    """
    check_count("port", port, low=0, high=65_535)
    check_token(host, token)
    model = load(run)
    hosts, name = (*LOOPBACK, host), run.resolve().name
    shown = public_folder(run, host)
    app = create_app(model, limits=limits, token=token, hosts=hosts, name=name, run=shown)
    address = f"[{host}]" if ":" in host else host
    config = server_config(app, host=host, port=port)

    def ready(found: int) -> None:
        page = f"http://{address}:{found}/"
        tell(f"Serving {run} at {page} (Ctrl-C stops it).")
        if show:
            # What follows the # is for the page only: no server and no log sees it.
            webbrowser.open(page if token is None else f"{page}#token={quote(token, safe='')}")

    Server(config, ready).run()


def public_folder(run: Path, host: str) -> str:
    """Returns a run folder as the page may show it; other machines see no absolute path.

    Example:
        >>> public_folder(Path("runs/penguins"), "0.0.0.0")
        'runs/penguins'
        >>> public_folder(Path("/a/runs"), "0.0.0.0")
        'runs'
    """
    shown = is_loopback(host) or not run.is_absolute()
    return run.as_posix() if shown and run.name else run.resolve().name


def server_config(app: FastAPI, *, host: str = "127.0.0.1", port: int = 0) -> uvicorn.Config:
    """Returns uvicorn's configuration for an application."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=PromptProtocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
    )


def check_token(host: str, token: str | None) -> None:
    """Refuses a public address without a token, and tokens that can be guessed."""
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"`--token` must have {SHORTEST_TOKEN} characters or more; it has {len(token)}. "
            'Make one with: python -c "import secrets; print(secrets.token_urlsafe())"'
        )
    if token is None and not is_loopback(host):
        raise ConfigError(
            f'At "{host}" others can reach the server: set a `--token` that they must bear, or '
            "the variable ANYORDER_TOKEN; or serve at 127.0.0.1."
        )


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches an address.

    Example:
        >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
