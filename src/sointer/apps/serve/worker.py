"""Who may come in, who waits, and who is told to come back later."""

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

from sointer.apps.serve.limits import Limits
from sointer.apps.serve.request import Question, parse_json, read_body, shutting_down, too_busy, too_slow
from sointer.apps.serve.response import Answer, explain_together
from sointer.explainers.base import Explainer

MOST_ROWS = 256
"""An explanation of so many rows takes hardly longer than of one."""
Explain = Callable[[Sequence[Question]], list[Answer]]
Write = Callable[[Question, Answer], bytes]


@dataclass(eq=False)
class Job:
    """A question that waits, how to write its answer, and the promise of the reply."""

    question: Question
    write: Write
    future: Future[bytes] = field(default_factory=Future)


class Batches:
    """Takes questions one by one and answers them together, in the order in which they came."""

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

    def submit(self, question: Question, write: Write) -> Future[bytes]:
        """The promise of a reply; cancelled, it is dropped unless someone is working on it."""
        job = Job(question, write)
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
            n_rows, first = jobs[0].question.n_rows, jobs[0].question
            others: list[Job] = []
            while self._waiting and n_rows < MOST_ROWS:
                job = self._waiting.popleft()
                fits = n_rows + job.question.n_rows <= MOST_ROWS and first.goes_with(job.question)
                (jobs if fits else others).append(job)
                n_rows += job.question.n_rows if fits else 0
            self._waiting.extendleft(reversed(others))
        return [job for job in jobs if job.future.set_running_or_notify_cancel()]

    def _answer(self, jobs: list[Job]) -> None:
        try:
            answers = self._explain([job.question for job in jobs])
        except BaseException as error:
            if len(jobs) == 1:
                jobs[0].future.set_exception(error)
            else:
                for job in jobs:  # the fault of one must not be that of all
                    self._answer([job])
            return
        with self._news:
            self.n_explained += sum(job.question.n_rows for job in jobs)
            self.n_batches += 1
        for job, answer in zip(jobs, answers, strict=True):
            try:
                job.future.set_result(job.write(job.question, answer))
            except BaseException as error:
                job.future.set_exception(error)


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
