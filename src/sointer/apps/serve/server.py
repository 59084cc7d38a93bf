"""A server on a port, from the first line that it prints to the last."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from sklearn.utils.validation import check_is_fitted
from uvicorn.protocols.http.h11_impl import H11Protocol

from sointer.apps.serve import create_app
from sointer.apps.serve.limits import Limits
from sointer.apps.serve.security import LOOPBACK, is_loopback
from sointer.errors import InputError
from sointer.explainers.base import Explainer
from sointer.explainers.novelty import unwarned
from sointer.io.explainers import load

MAX_CONNECTIONS = 800
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
    """Refuses new requests as soon as it is to stop, and says when it has."""

    def __init__(self, config: uvicorn.Config, at_end: Callable[[], None]) -> None:
        super().__init__(config)
        self.at_end = at_end

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.config.app.state.queue.closing = True  # type: ignore[union-attr]
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self.at_end()  # here, since the signal ends the process right after


def serve_explainer(
    explainer: str | PathLike[str] | Explainer,
    host: str,
    port: int,
    model: Any,
    name: str | None,
    examples: Any,
    limits: Limits,
    quiet: bool,
) -> None:
    """Serve until a signal says stop, then finish what was accepted."""

    def say(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    logging.basicConfig(stream=sys.stderr, format="%(levelname)s: %(message)s")
    if not isinstance(explainer, Explainer):
        name = name or Path(explainer).resolve().name
        explainer = load(explainer, model)
    elif model is not None:
        raise InputError("run: model is given together with an explainer, which has its own; leave it out.")
    check_is_fitted(explainer, "outputs_")
    loopback = is_loopback(host)
    hosts = (*LOOPBACK, host) if loopback else None
    app = create_app(explainer, limits=limits, name=name or "explainer", examples=examples, hosts=hosts)
    warm_up(explainer)
    listener = listen(host, port)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=max(MAX_CONNECTIONS, 20 * limits.n_places),
        timeout_graceful_shutdown=int(limits.timeout) + 1,
    )
    shown = f"[{host}]" if ":" in host else host
    say(f"explains {_many(len(explainer.targets_), 'output')} by {_many(explainer.n_features_in_, 'feature')}")
    if explainer.black_box_ is None:
        say("no model: explains what is expected of it, not what it predicts; attach it with --model (or model=)")
    say(f"open http://{shown}:{listener.getsockname()[1]} (Ctrl-C stops)")
    if not loopback:
        say(
            "warning: anyone who reaches this machine can use it, unencrypted, without a password; put a proxy in front"
        )
    with listener:
        Server(config, lambda: say(f"stopped; {_many(sum(app.state.replies.values()), 'request')} answered")).run(
            sockets=[listener]
        )


def _many(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def warm_up(explainer: Explainer) -> None:
    """Explain a row that is at hand, so that the first client need not wait for what is loaded when needed."""
    with unwarned():
        example = explainer.input_format_.feature_names[0]
        row = [example] if explainer.reads_text else explainer.input_format_.decode(explainer.background_.rows[:1])
        explainer.explain(row, explainer.targets_[0], k=1, query=explainer.asks_to_explain)


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
