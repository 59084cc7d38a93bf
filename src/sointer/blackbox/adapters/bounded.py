"""Network streams that keep to one deadline for a whole exchange."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore

from sointer.blackbox.call import CallTimeout, within

PIECE = 2**14

_here = threading.local()


@contextmanager
def deadline_in(seconds: float) -> Iterator[None]:
    """All that this thread reads and writes within the block must be done within so many seconds."""
    _here.deadline = time.monotonic() + seconds
    try:
        yield
    finally:
        del _here.deadline


def _left(timeout: float | None, error: type[Exception]) -> float | None:
    """Seconds for the next step: a library's timeout is for each step, of which a reply may have any number."""
    deadline = getattr(_here, "deadline", None)
    if deadline is None:
        return timeout
    left = float(deadline - time.monotonic())
    if left <= 0:
        raise error("the deadline has passed")
    return left if timeout is None else min(left, timeout)


class BoundedStream(httpcore.NetworkStream):
    """Reads and writes within the deadline of this thread."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout=_left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE):
            piece = buffer[start : start + PIECE]
            self._stream.write(piece, timeout=_left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return BoundedStream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class BoundedBackend(httpcore.NetworkBackend):
    """Opens connections as usual, and wraps them."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        try:
            # In a thread: looking up a name takes as long as it likes, and each of its addresses may take all the time.
            stream = within(left, lambda: self._backend.connect_tcp(host, port, left, local_address, socket_options))
        except CallTimeout:
            raise httpcore.ConnectTimeout("the deadline has passed") from None
        return BoundedStream(stream)
