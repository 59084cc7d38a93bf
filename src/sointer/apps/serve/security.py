"""What every request passes: is it meant for us, and what its reply tells browsers; every reply is counted."""

from __future__ import annotations

import ipaddress
from collections import Counter

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sointer.apps.serve.response import as_json

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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


class SecurityMiddleware:
    """Refuses requests for other hosts, adds headers to every reply, and counts replies by status."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] | None, replies: Counter[int]) -> None:
        self.app = app
        self.hosts = None if hosts is None else {host.lower() for host in hosts}
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

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        app = self.app
        if self.hosts is not None and [host_name(host) in self.hosts for host in hosts] != [True]:
            # A page elsewhere can point its own name at this machine, and would then be let in by the browser.
            why = "This server does not answer to that host name; use 127.0.0.1 or localhost."
            app = as_json({"error": why}, 421)
        await app(scope, receive, send_with_headers)
