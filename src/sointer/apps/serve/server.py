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

import h11
import uvicorn
from sklearn.utils.validation import check_is_fitted
from uvicorn.protocols.http.h11_impl import H11Protocol

from sointer._support.containers import as_pandas
from sointer._support.validation import counted
from sointer.apps.serve.app import create_app
from sointer.apps.serve.security import LOOPBACK, Limits, is_loopback
from sointer.data.text_tables import TextTableFormat
from sointer.errors import InputError
from sointer.explainers.base import Explainer
from sointer.explainers.novelty import unwarned
from sointer.explainers.sequence_base import as_explainer
from sointer.explainers.sequences import SequenceExplainer
from sointer.io.explainers import load

MAX_CONNECTIONS, BACKLOG, OTHER_FILES = 4096, 1024, 256
"""Connections at a time (of more, those that waited longest are closed), those taken in one go, and other files."""
HEADER_SECONDS, REPLY_SECONDS = 10.0, 60.0
"""For the head of a request, counted from the reply before it, and for a reply to be taken; bodies have `timeout`."""
MAX_TINY_PARTS, BYTES_PER_PART = 1000, 64
"""Beyond so many parts, those of a body must be so large on average."""


class Parts(h11.Connection):
    """What arrives on a connection. Bodies in very many tiny parts end it, as each takes as long as a large one."""

    n_parts, n_bytes = 0, 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next part of what arrived."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.n_parts = self.n_bytes = 0
        elif isinstance(event, h11.Data):
            self.n_parts, self.n_bytes = self.n_parts + 1, self.n_bytes + len(event.data)
            if self.n_parts > MAX_TINY_PARTS and self.n_bytes < BYTES_PER_PART * self.n_parts:
                raise h11.RemoteProtocolError("the body comes in too many tiny parts", error_status_hint=413)
        return event


class ServerConnection(H11Protocol):
    """A connection on which every request begins in time, and every reply is taken in time."""

    max_connections = MAX_CONNECTIONS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = Parts(h11.SERVER)
        self._timer: asyncio.TimerHandle | None = None
        # Of all connections of a server, those on which a request has not arrived whole, longest waiting first.
        self._receiving: dict[ServerConnection, None] = vars(self.server_state).setdefault("receiving", {})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch(HEADER_SECONDS)
        if len(self.connections) > self.max_connections:
            oldest = next(iter(self._receiving))
            del self._receiving[oldest]
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._receiving.pop(self, None)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch(REPLY_SECONDS if self.transport.get_write_buffer_size() else HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._receiving.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self, seconds: float) -> None:
        self._receiving.pop(self, None)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._receiving[self] = None
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        # A request that is being answered has deadlines of its own, unless its reply waits for one that nobody takes.
        if self.cycle is None or self.cycle.response_complete or self.flow.write_paused:
            self.transport.abort()  # close() would wait until all was taken


def allowed_connections() -> int:
    """How many connections there may be at a time, after asking the system for as many as we would like."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return MAX_CONNECTIONS
    wanted, limits = MAX_CONNECTIONS + BACKLOG + OTHER_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (wanted if limit == resource.RLIM_INFINITY else limit for limit in limits)
    if soft < wanted:
        soft = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, limits[1]))
    return max(OTHER_FILES, min(MAX_CONNECTIONS, soft - BACKLOG - OTHER_FILES))


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


def run(
    explainer: str | PathLike[str] | Explainer | SequenceExplainer,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    model: Any = None,
    name: str | None = None,
    examples: Any = None,
    limits: Limits | None = None,
    token: str | None = None,
    records: str | PathLike[str] | None = None,
    quiet: bool = False,
) -> None:
    """Serve until the process is stopped (Ctrl-C or SIGTERM); requests accepted by then are answered first.

    Parameters
    ----------
    explainer : Explainer, str or path
        A fitted explainer, or the folder of a saved one.
    host : str, default "127.0.0.1"
        The address to listen on.
    port : int, default 8000
        The port to listen on; 0 takes any that is free.
    model : callable or BlackBox, optional
        The model that a saved explainer explains. With it, every row is also sent to the model, and what it predicts is
        explained; `verify` and raw texts need it too. Without it, the values that the explainer expects are explained.
    name : str, optional
        The name of the model in the paths of the Open Inference Protocol. Default: that of the folder.
    examples, limits, token, records
        As in `create_app`.
    quiet : bool, default False
        Whether to print nothing.

    Raises
    ------
    InputError
        If nothing can listen on the port, or `model` is given together with an explainer that has its own.

    Examples
    --------
    ``run("why/", model=predict, port=9000)`` serves until Ctrl-C.
    """
    limits = limits or Limits()

    def say(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    logging.basicConfig(stream=sys.stderr, format="%(levelname)s: %(message)s")
    explainer = as_explainer(explainer)
    if not isinstance(explainer, Explainer):
        name = name or Path(explainer).resolve().name
        explainer = load(explainer, model)
    elif model is not None:
        raise InputError("run: model is given together with an explainer, which has its own; leave it out.")
    check_is_fitted(explainer, "outputs_")
    loopback = is_loopback(host)
    hosts = (*LOOPBACK, host) if loopback else None
    name = name or "explainer"
    app = create_app(explainer, limits=limits, name=name, examples=examples, hosts=hosts, token=token, records=records)
    warm_up(explainer)
    listener = listen(host, port)
    ServerConnection.max_connections = allowed_connections()
    config = uvicorn.Config(
        app,
        http=ServerConnection,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=int(limits.timeout) + 1,
    )
    shown = f"[{host}]" if ":" in host else host
    if explainer.sequences_ is not None:
        say(f"explains {counted(explainer.sequences_.outputs_.n_labels, 'label')} of tokens")
    else:
        say(f"explains {counted(len(explainer.targets_), 'output')} by {counted(explainer.n_features_in_, 'feature')}")
    if explainer.black_box_ is None:
        say("no model: explains what is expected of it, not what it predicts; attach it with --model (or model=)")
    say(f"open http://{shown}:{listener.getsockname()[1]} (Ctrl-C stops)")
    if not loopback and token is None:
        say("warning: anyone who reaches this machine can use it, unencrypted; set a token, or put a proxy in front")
    elif not loopback:
        say("warning: the token and all else are sent unencrypted; put a proxy with TLS in front")
    with listener:
        Server(config, lambda: say(f"stopped; {counted(sum(app.state.replies.values()), 'request')} answered")).run(
            sockets=[listener]
        )


def warm_up(explainer: Explainer) -> None:
    """Explain a row that is at hand, so that the first client need not wait for what is loaded when needed."""
    with unwarned():
        if explainer.sequences_ is not None:
            explainer.sequences_.explain([[*explainer.sequences_.replacement_.tokens, "a"][:1]], query=False)
            return
        form = explainer.input_format_
        if isinstance(form, TextTableFormat):
            rows = form.typical(explainer.background_.rows.values)
        else:
            rows = form.feature_names[:1] if explainer.reads_text else form.decode(explainer.background_.rows[:1])
        explainer.explain(as_pandas(rows), explainer.targets_[0], k=1, query=explainer.queries_to_explain)


def listen(host: str, port: int) -> socket.socket:
    """A socket on the port, or any free one if that is 0."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}. Choose another with --port (0 takes any "
            "that is free), or stop what listens there."
        ) from None
