"""The queue of requests and the threads that explain them in batches."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from sointer.apps.serve.limits import Limits
from sointer.apps.serve.request import ExplainRequest, parse_json, read_body
from sointer.apps.serve.response import ExplainResponse, explain_batch
from sointer.explainers.base import Explainer

MAX_BATCH_ROWS = 256
"""An explanation of so many rows takes hardly longer than of one."""
Explain = Callable[[Sequence[ExplainRequest]], list[ExplainResponse]]
Write = Callable[[ExplainRequest, ExplainResponse], bytes]
Read = Callable[[dict[str, Any]], tuple[ExplainRequest, Write]]


@dataclass(eq=False)
class Job:
    """A request that waits, how to write its response, and the promise of the reply."""

    request: ExplainRequest
    write: Write
    future: Future[bytes] = field(default_factory=Future)


class Batches:
    """Takes requests one by one and answers them together, in the order in which they came."""

    def __init__(self, explain: Explain, n_threads: int) -> None:
        self._explain = explain
        self._waiting: deque[Job] = deque()
        self._news = threading.Condition()
        self._closed = False
        self.n_explained = 0
        """Rows explained so far."""
        self.n_batches = 0
        for number in range(n_threads):
            threading.Thread(target=self._work, name=f"sointer-explain-{number}", daemon=True).start()

    def submit(self, request: ExplainRequest, write: Write) -> Future[bytes]:
        """The promise of a reply; cancelled, it is dropped unless someone is working on it."""
        job = Job(request, write)
        with self._news:
            self._waiting.append(job)
            self._news.notify()
        return job.future

    def close(self) -> None:
        """Let the threads end once nothing is waiting."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def _work(self) -> None:
        while (jobs := self._next()) is not None:
            if jobs:
                self._answer(jobs)
            del jobs  # nothing of it stays in memory while this thread waits

    def _next(self) -> list[Job] | None:
        """What is to be done now; None when there will be nothing more."""
        with self._news:
            while not self._waiting and not self._closed:
                self._news.wait()
            if not self._waiting:
                return None
            jobs = [self._waiting.popleft()]
            n_rows, first = jobs[0].request.n_rows, jobs[0].request
            others: list[Job] = []
            while self._waiting and n_rows < MAX_BATCH_ROWS:
                job = self._waiting.popleft()
                fits = n_rows + job.request.n_rows <= MAX_BATCH_ROWS and first.can_join(job.request)
                (jobs if fits else others).append(job)
                n_rows += job.request.n_rows if fits else 0
            self._waiting.extendleft(reversed(others))
        return [job for job in jobs if job.future.set_running_or_notify_cancel()]

    def _answer(self, jobs: list[Job]) -> None:
        try:
            responses = self._explain([job.request for job in jobs])
        except BaseException as error:
            if len(jobs) == 1:
                jobs[0].future.set_exception(error)
            else:
                for job in jobs:  # the fault of one must not be that of all
                    self._answer([job])
            return
        with self._news:
            self.n_explained += sum(job.request.n_rows for job in jobs)
            self.n_batches += 1
        for job, response in zip(jobs, responses, strict=True):
            try:
                job.future.set_result(job.write(job.request, response))
            except BaseException as error:
                job.future.set_exception(error)


class RequestQueue:
    """A bounded number of requests inside: being read, waiting, or being explained."""

    def __init__(self, explainer: Explainer, limits: Limits) -> None:
        self.limits = limits
        self.explainer = explainer
        self.batches = Batches(self._explain, limits.concurrency)
        self._model_lock = threading.Lock()
        self.n_inside = 0
        self.closing = False

    async def answer(self, request: Request, read: Read) -> Response:
        """Read a request, wait for its turn and reply; only the event loop's own thread counts places."""
        if self.closing:
            raise HTTPException(503, "The server is shutting down. Try again when it is back.", {"Retry-After": "5"})
        if self.n_inside >= self.limits.n_places:
            raise HTTPException(
                429, "Too many requests are waiting already; this one was not read. Try again.", {"Retry-After": "1"}
            )
        self.n_inside += 1
        future: Future[bytes] | None = None
        try:
            body = await read_body(request, self.limits)
            explain_request, write = await asyncio.to_thread(lambda: read(parse_json(body)))
            future = self.batches.submit(explain_request, write)
        finally:
            if future is None:
                self._leave()
        loop = asyncio.get_running_loop()
        # A thread cannot be stopped: its place is free when it has really ended, not when we gave up waiting.
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._leave))
        try:
            content = await asyncio.wait_for(asyncio.wrap_future(future), self.limits.timeout)
        except asyncio.TimeoutError:
            why = f"No answer within {self.limits.timeout:g} s; nothing was kept. Try again with fewer rows."
            raise HTTPException(503, why, {"Retry-After": "1"}) from None
        return Response(content, media_type="application/json")

    def _explain(self, requests: Sequence[ExplainRequest]) -> list[ExplainResponse]:
        # Explaining is for many threads at a time; the model's own code may not be.
        with self._model_lock if requests[0].queries_model else nullcontext():
            return explain_batch(self.explainer, requests)

    def _leave(self) -> None:
        self.n_inside -= 1
