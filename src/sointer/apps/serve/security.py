"""What the server lets in: how much at once, which requests are meant for it; and what replies tell browsers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import os
from collections import Counter
from dataclasses import dataclass, field

from fastapi import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sointer._support.validation import check_positive_int
from sointer.apps.serve.response import as_json
from sointer.errors import InputError


@dataclass(frozen=True)
class Limits:
    """How much the server accepts; it rejects the rest at once, so that accepted requests are answered in time.

    Reading a body takes at most 20 times its bytes and 16 MB, `concurrency` of them at a time. What arrives and what
    waits is bounded by (concurrency + queue) * max_body_bytes, times about ten for what is made from a body.

    Parameters
    ----------
    max_body_bytes : int, default 2**22
        Size of the largest request.
    max_rows : int, default 1000
        Rows in one request.
    concurrency : int, default one per processor, at most 4
        Threads that explain; one more queries the model.
    queue : int, default 64
        Requests that may wait in addition to those being explained; more get status 429. Those that query the model
        have a queue of their own, of the same size.
    timeout : float, default 30.0
        Seconds that a body may take to arrive, and after that the answer.

    Raises
    ------
    InputError
        If a limit is not a number in its range.

    Examples
    --------
    >>> Limits(max_rows=100, concurrency=2, queue=10).n_places
    12
    """

    max_body_bytes: int = 2**22
    max_rows: int = 1000
    concurrency: int = field(
        default_factory=lambda: max(1, min(4, os.cpu_count() or 1))
    )  # they share Python's one lock
    queue: int = 64
    timeout: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_rows", "concurrency"):
            check_positive_int(getattr(self, name), name)
        check_positive_int(self.queue, "queue", minimum=0)
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float) or not 0 < self.timeout < 86400:
            raise InputError(f"timeout must be a number of seconds, more than 0 and below 86400, got {self.timeout!r}.")

    @property
    def n_places(self) -> int:
        """How many requests may be read, wait or be explained at the same time."""
        return self.concurrency + self.queue


HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")
WITHOUT_TOKEN = ("/healthz", "/v2/health/live", "/v2/health/ready")
"""For probes; they say whether requests are accepted, and nothing else."""
MIN_TOKEN_LENGTH = 16


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(header: str) -> str:
    """The name in a Host header, without its port."""
    name, end, port = header[1:].partition("]") if header.startswith("[") else header.partition(":")
    return header.lower() if end == "]" and port[:1] not in ("", ":") else name.lower()


def digest_of(token: str) -> bytes:
    """What is kept of a token, so that it is in no repr and no traceback; InputError if it could be guessed."""
    if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(
            f"the token must be at least {MIN_TOKEN_LENGTH} ASCII characters without spaces, got {len(token)}. "
            'Make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
        )
    return hashlib.sha256(token.encode()).digest()


class SecurityMiddleware:
    """Refuses requests for other hosts or without the token, adds headers to every reply, and counts replies."""

    def __init__(
        self, app: ASGIApp, hosts: tuple[str, ...] | None, token_digest: bytes | None, replies: Counter[int]
    ) -> None:
        self.app = app
        self.hosts = None if hosts is None else {host.lower() for host in hosts}
        self.token_digest = token_digest
        self.replies = replies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.replies[message["status"]] += 1
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        app = self._refusal(Headers(scope=scope), scope["path"]) or self.app
        await app(scope, receive, send_with_headers)

    def _refusal(self, headers: Headers, path: str) -> Response | None:
        # Not Starlette's TrustedHostMiddleware: it looks at the first of two Host headers only, refuses in plain text
        # with 400, and older versions of it refuse [::1].
        if self.hosts is not None and [host_name(host) in self.hosts for host in headers.getlist("host")] != [True]:
            # A page elsewhere can point its own name at this machine, and would then be let in by the browser.
            why = "This server does not answer to that host name; use 127.0.0.1 or localhost."
            return as_json({"error": why}, 421)
        if self.token_digest is not None and path not in WITHOUT_TOKEN and not self._has_token(headers):
            # With this, a browser asks its user for a password, which is the token, and then sends it by itself.
            kind = 'Basic realm="sointer"' if "text/html" in headers.get("accept", "") else "Bearer"
            why = "This server wants its token: send 'Authorization: Bearer <token>'. In a browser it is the password."
            return as_json({"error": why}, 401, {"WWW-Authenticate": kind})
        return None

    def _has_token(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        token = given.strip().encode("latin-1")
        if kind.lower() == "basic":
            try:
                token = base64.b64decode(token).partition(b":")[2]
            except ValueError:
                return False
        elif kind.lower() != "bearer":
            return False
        assert self.token_digest is not None
        return hmac.compare_digest(hashlib.sha256(token).digest(), self.token_digest)
