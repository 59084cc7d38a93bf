"""Requests: their bodies, received and read within limits, their queue, and the threads that explain in batches."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from sointer._support.files import TooManyParts, check_parts, strict_json
from sointer.apps.serve.request import ExplainRequest
from sointer.apps.serve.response import MAX_BATCH_ROWS, RecordLog, explain_batch
from sointer.apps.serve.security import Limits
from sointer.apps.serve.sequences import SequenceRequest, explain_sequence_batch
from sointer.explainers.base import Explainer

PARTS_PER_ROW = 3
"""How many lists, objects and different names a body may hold for each row that may be sent."""
CLOSE = {"Connection": "close"}


class Bodies:
    """Receives bodies. However slowly they arrive, they take no place in a queue, and bounded memory together."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._arriving: dict[asyncio.Task[bytearray], int] = {}
        """How much of each is there, oldest first."""

    @property
    def n_arriving(self) -> int:
        """How many bodies are being received."""
        return len(self._arriving)

    async def receive(self, request: Request) -> bytearray:
        """A body; refused if it is not JSON, too large (counted, whatever the header says) or too slow."""
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            # Browsers ask before they send this type to another site, so pages elsewhere cannot use this server.
            raise HTTPException(
                415, f"The content type is {kind or 'missing'!r}, expected JSON: send 'Content-Type: application/json'."
            )
        declared = request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared[:20]) > 2 * self.limits.max_body_bytes:
            raise _too_large(self.limits)
        task = asyncio.ensure_future(self._collect(request))
        self._arriving[task] = 0
        try:
            await asyncio.wait({task}, timeout=self.limits.timeout)
            if not task.done():
                raise HTTPException(408, f"The body did not arrive within {self.limits.timeout:g} s.", CLOSE)
            if task.cancelled():
                why = "Too much is being sent at once, and this body was the oldest that was not complete. Try again."
                raise HTTPException(429, why, {"Retry-After": "1", **CLOSE})
            return task.result()
        except ClientDisconnect:
            raise HTTPException(400, "The client went away.") from None
        finally:
            task.cancel()
            del self._arriving[task]

    async def _collect(self, request: Request) -> bytearray:
        limit, body, size = self.limits.max_body_bytes, bytearray(), 0
        me = asyncio.current_task()
        async for part in request.stream():
            size += len(part)
            if size <= limit:
                body += part
            else:
                body.clear()  # a little more is read and dropped: who is still sending would not see our reply
            if size > 2 * limit:
                break
            self._arriving[me] = min(size, limit)  # type: ignore[index]
            if sum(self._arriving.values()) > self.limits.n_places * limit:
                next(iter(self._arriving)).cancel()
        if size > limit:
            raise _too_large(self.limits)
        return body


def _too_large(limits: Limits) -> HTTPException:
    why = f"The body is larger than {limits.max_body_bytes:,} bytes. Send fewer rows at a time."
    return HTTPException(413, why, CLOSE)


def parse_json(body: bytearray, limits: Limits) -> dict[str, Any]:
    """The object that a body says. The body is emptied: whoever called holds it until all is done."""
    try:
        text = body.decode()
        body.clear()
        check_parts(text, PARTS_PER_ROW * limits.max_rows)
        content, all_finite = strict_json(text)
        if "\\u" in text:
            del text
            _check_characters(content)
    except UnicodeDecodeError:
        raise HTTPException(400, "The body is not UTF-8, expected JSON.") from None
    except UnicodeEncodeError:
        raise HTTPException(400, "The JSON holds half of a character, an unpaired surrogate.") from None
    except RecursionError:
        raise HTTPException(400, "The JSON is nested too deeply.") from None
    except TooManyParts as error:
        raise HTTPException(413, f"The body holds {error.what}. Send fewer rows at a time.") from None
    except ValueError as error:
        raise HTTPException(400, f"The body is not JSON: {error}.") from None
    if not isinstance(content, dict):
        kinds = {list: "array", str: "string", bool: "boolean", type(None): "null"}
        kind = kinds.get(type(content), "number")
        raise HTTPException(422, f'The body is a JSON {kind}, expected an object such as {{"rows": [...]}}.')
    if not all_finite:
        raise HTTPException(422, "The body holds NaN or infinite numbers, expected finite ones.")
    return content


def _check_characters(content: Any) -> None:
    """UnicodeEncodeError if a string holds half of a character; one by one, as all of them together are large."""
    waiting = [content]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            one.encode()
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one


AnyRequest = ExplainRequest | SequenceRequest
Explain = Callable[[Sequence[Any]], list[Any]]
"""The responses to requests of one kind."""
Write = Callable[[Any, Any], bytes]
Read = Callable[[dict[str, Any]], tuple[AnyRequest, Write]]


@dataclass(eq=False)
class Job:
    """A request that waits, how to write its response, and the promise of the reply."""

    request: AnyRequest
    write: Write
    future: Future[bytes] = field(default_factory=Future)


class Batches:
    """Takes requests one by one and answers them together, in the order in which they came."""

    def __init__(self, explain: Explain, name: str, n_threads: int) -> None:
        self._explain = explain
        self._name, self._n_threads = name, n_threads
        self.n_explained = 0
        """Rows explained so far."""
        self.n_batches = 0
        self.n_inside = 0
        """Requests that wait or are being explained; only the event loop's own thread counts them."""
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._waiting: deque[Job] = deque()
        self._news = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()

    def start(self) -> None:
        """Have all threads at work, also in a process that was forked since, which has none."""
        if self._process != os.getpid():
            self._reset()
            self.n_inside = 0
        with self._news:
            if not self._closed:
                self._threads = [thread for thread in self._threads if thread.is_alive()]
                while len(self._threads) < self._n_threads:
                    thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def submit(self, request: AnyRequest, write: Write) -> Future[bytes]:
        """The promise of a reply; cancelled, it is dropped unless someone is working on it."""
        self.start()
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
    """A bounded number of requests that wait or are being explained.

    Those that query the model have a queue and a thread of their own: its code may not be for several threads, and if
    it hangs, the others go on.
    """

    def __init__(self, explainer: Explainer, limits: Limits, log: RecordLog | None = None) -> None:
        self.limits = limits
        behind = explainer.sequences_
        explain: Explain = (
            partial(explain_batch, explainer, log=log)
            if behind is None
            else partial(explain_sequence_batch, behind, log=log)
        )
        self.plain = Batches(explain, "sointer-explain", limits.concurrency)
        self.querying = Batches(explain, "sointer-query", 1)
        self.all = [self.plain] if explainer.black_box_ is None else [self.plain, self.querying]
        self.closing = False
        self._reset()

    def _reset(self) -> None:
        self.bodies, self.n_reading, self._process = Bodies(self.limits), 0, os.getpid()
        # What reads a body takes many times its bytes. One for each event loop: an app may be served again in another.
        self._reading = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()

    @property
    def n_inside(self) -> int:
        """Requests that are whole and not yet answered."""
        return self.n_reading + sum(batches.n_inside for batches in self.all)

    def start(self) -> bool:
        """Whether all threads are at work."""
        try:
            for batches in self.all:
                batches.start()
        except RuntimeError:  # the system has no more threads
            return False
        return True

    def close(self) -> None:
        """Accept no more requests, and let the threads end when nothing is waiting."""
        self.closing = True
        for batches in self.all:
            batches.close()

    async def answer(self, request: Request, read: Read) -> Response:
        """Read a request, wait for its turn and reply."""
        if self._process != os.getpid():  # none of the requests at the time of the fork are here
            self._reset()
            self.start()
        self._refuse_if_closing()
        self._refuse_if_full(self.all)  # without reading it, if it is sure to be refused
        body = await self.bodies.receive(request)
        self._refuse_if_closing()
        self._refuse_if_full(self.all)
        self.n_reading += 1
        reading = self._reading.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.limits.concurrency))
        try:
            async with reading:
                explain_request, write = await asyncio.to_thread(lambda: read(parse_json(body, self.limits)))
        finally:
            self.n_reading -= 1
        batches = self.querying if explain_request.queries_model else self.plain
        self._refuse_if_full([batches])
        future = batches.submit(explain_request, write)
        batches.n_inside += 1
        loop = asyncio.get_running_loop()

        def leave() -> None:
            batches.n_inside -= 1

        # A thread cannot be stopped: its place is free when it has really ended, not when we gave up waiting.
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(leave))
        try:
            content = await asyncio.wait_for(asyncio.wrap_future(future), self.limits.timeout)
        except asyncio.TimeoutError:
            why = f"No answer within {self.limits.timeout:g} s; nothing was kept. Try again with fewer rows."
            raise HTTPException(503, why, {"Retry-After": "1"}) from None
        return Response(content, media_type="application/json")

    def _refuse_if_closing(self) -> None:
        if self.closing:
            raise HTTPException(503, "The server is shutting down. Try again when it is back.", {"Retry-After": "5"})

    def _refuse_if_full(self, queues: Sequence[Batches]) -> None:
        n_places = self.limits.n_places
        if self.n_reading >= len(self.all) * n_places or all(batches.n_inside >= n_places for batches in queues):
            raise HTTPException(429, "Too many requests are waiting already. Try again.", {"Retry-After": "1"})
