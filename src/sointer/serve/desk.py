"""Who may come in, who waits, and who is told to come back later."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

from fastapi import Request, Response

from sointer.explainers.base import Explainer
from sointer.serve.answers import Answer, explain_together
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
        self.explainer = explainer
        self.batches = Batches(self._explain, limits.concurrency)
        self._asking = threading.Lock()
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

    def _explain(self, questions: Sequence[Question]) -> list[Answer]:
        # Explaining is for many threads at a time; the model's own code may not be.
        with self._asking if questions[0].asks_model else nullcontext():
            return explain_together(self.explainer, questions)

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
