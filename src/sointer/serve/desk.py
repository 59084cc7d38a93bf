"""Who may come in, who waits, and who is told to come back later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from fastapi import Request, Response

from sointer.base import Explainer
from sointer.serve.answers import explain_together
from sointer.serve.batching import Batches, Write
from sointer.serve.body import parse_json, read_body
from sointer.serve.limits import Limits
from sointer.serve.question import Question
from sointer.serve.refusals import shutting_down, too_busy, too_slow

Read = Callable[[dict[str, Any]], tuple[Question, Write]]


class Desk:
    """A bounded number of requests inside: being read, waiting, or being explained."""

    def __init__(self, explainer: Explainer, limits: Limits) -> None:
        self.limits = limits
        self.batches = Batches(lambda questions: explain_together(explainer, questions), limits.concurrency)
        self.n_inside = 0
        self.closing = False

    async def answer(self, request: Request, read: Read) -> Response:
        """Read a request, wait for its turn and reply; only the event loop's own thread counts places."""
        self._enter()
        future: Future[bytes] | None = None
        try:
            body = await read_body(request, self.limits)
            question, write = await asyncio.to_thread(_read, read, body)
            future = self.batches.submit(question, write)
        finally:
            if future is None:
                self._leave()
        loop = asyncio.get_running_loop()
        # A thread cannot be stopped: its place is free when it has really ended, not when we gave up waiting.
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._leave))
        try:
            content = await asyncio.wait_for(asyncio.wrap_future(future), self.limits.timeout)
        except asyncio.TimeoutError:
            raise too_slow(self.limits.timeout) from None
        return Response(content, media_type="application/json")

    def _enter(self) -> None:
        if self.closing:
            raise shutting_down()
        if self.n_inside >= self.limits.n_places:
            raise too_busy()
        self.n_inside += 1

    def _leave(self) -> None:
        self.n_inside -= 1


def _read(read: Read, body: bytes) -> tuple[Question, Write]:
    return read(parse_json(body))
