"""A server on a port, from the first line that it prints to the last."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sointer.errors import InputError
from sointer.persistence import load
from sointer.serve import create_app
from sointer.serve.guard import LOOPBACK, is_loopback
from sointer.serve.limits import Limits

MOST_CONNECTIONS = 800
HEADER_SECONDS = 10.0


class Connection(H11Protocol):
    """A connection that is closed if its first request does not begin in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEADER_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """Refuses new requests as soon as it is told to stop."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.config.app.state.desk.closing = True  # type: ignore[union-attr]
        super().handle_exit(sig, frame)


def serve_explainer(
    path: str | PathLike[str], host: str, port: int, model: Any, examples: Any, limits: Limits, quiet: bool
) -> None:
    """Answer until a signal says stop, then finish what was accepted."""

    def say(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    logging.basicConfig(stream=sys.stderr, format="%(levelname)s: %(message)s")
    explainer = load(path, model)
    loopback = is_loopback(host)
    name = Path(path).resolve().name or "explainer"
    app = create_app(
        explainer, limits=limits, name=name, examples=examples, hosts=(*LOOPBACK, host) if loopback else None
    )
    listener = listen(host, port)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=max(MOST_CONNECTIONS, 4 * limits.n_places),
        timeout_graceful_shutdown=int(limits.timeout) + 1,
    )
    shown = f"[{host}]" if ":" in host else host
    say(f"{name}: {len(explainer.targets_):,} outputs, {explainer.n_features_in_:,} features")
    say(f"open http://{shown}:{listener.getsockname()[1]}   (stop with Ctrl-C)")
    if not loopback:
        say("warning: whoever can reach this machine can ask, unencrypted and without a password; put a proxy in front")
    try:
        with listener:
            Server(config).run(sockets=[listener])
    finally:
        say(f"stopped; {sum(app.state.replies.values()):,} requests answered")


def listen(host: str, port: int) -> socket.socket:
    """A socket on the port, or any free one if that is 0."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}. Choose another with --port (0 takes any "
            "that is free), or stop what listens there."
        ) from None
