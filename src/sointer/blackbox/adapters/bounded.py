"""Network streams that keep to one deadline for a whole exchange, and to one reply for each request."""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore

PIECE = 2**14
MAX_HEAD_BYTES = 2**17
LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*\r\n", re.IGNORECASE)
STATUS = re.compile(rb"HTTP/\d\.\d (\d{3})")
END = b"\r\n\r\n"

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
    """Hands on the bytes of one reply; if there are more, the connection is not used again.

    Otherwise what a server sent too much would be the reply to the next request.
    """

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._held = b""  # received, and not part of the reply under way
        self._head: bytes | None = b""  # as far as it is here; None once it is complete
        self._n_left: int | None = 0  # bytes of the body to come; None if the head does not say

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._head is None and self._n_left == 0:
            return b""
        received = self._held or self._stream.read(max_bytes, timeout=_left(timeout, httpcore.ReadTimeout))
        self._held = b""
        if self._head is not None:
            n = self._n_of_head(received)
        elif self._n_left is None:
            n = len(received)
        else:
            n = min(len(received), self._n_left)
            self._n_left -= n
        self._held = received[n:]
        return received[:n]

    def _n_of_head(self, received: bytes) -> int:
        """How many of these bytes belong to the head; notes what it says of the body once it is complete."""
        assert self._head is not None
        n_before = len(self._head)
        self._head += received
        end = self._head.find(END)
        if end < 0:
            if len(self._head) > MAX_HEAD_BYTES:
                raise httpcore.RemoteProtocolError(f"the head of the reply has more than {MAX_HEAD_BYTES} bytes")
            return len(received)
        head, status = self._head[: end + len(END)], STATUS.match(self._head)
        if status is not None and status[1].startswith(b"1"):  # 100 Continue: the reply itself is to come
            self._head = b""
        else:
            length = LENGTH.search(head)
            is_chunked = b"\r\ntransfer-encoding:" in head.lower()
            self._head, self._n_left = None, None if length is None or is_chunked else int(length[1])
        return len(head) - n_before

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._head, self._n_left = b"", 0
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
        if info == "is_readable" and (self._held or self._n_left is None):
            return True  # by which the library knows that an idle connection is of no more use
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
        return BoundedStream(self._backend.connect_tcp(host, port, left, local_address, socket_options))
