"""The web application: which address gives what."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from sointer._version import __version__
from sointer.explainers.base import Explainer
from sointer.serve import open_inference
from sointer.serve.answers import Writer, to_bytes
from sointer.serve.batching import Write
from sointer.serve.desk import Desk
from sointer.serve.guard import Guard
from sointer.serve.limits import Limits
from sointer.serve.page import render_page
from sointer.serve.question import Question, read_question
from sointer.serve.refusals import Refusal, refusal_of
from sointer.serve.schema import INFERENCE, QUESTION, info, metrics, refusals, with_body


def build_app(explainer: Explainer, limits: Limits, name: str, examples: Any, hosts: tuple[str, ...] | None) -> FastAPI:
    """Put it together; `app.state.desk` is where requests wait, `app.state.replies` counts them."""
    desk, writer, replies = Desk(explainer, limits), Writer(explainer), Counter[int]()
    facts = info(explainer, name, limits)
    page, policy = render_page(explainer, facts, examples)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        desk.closing = True
        desk.batches.close()

    # The pages that FastAPI offers on its own load scripts from elsewhere.
    app = FastAPI(title="sointer", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_middleware(Guard, hosts=hosts, replies=replies)
    app.state.desk, app.state.replies = desk, replies
    for kind in (Refusal, HTTPException, Exception):
        app.add_exception_handler(kind, refuse)

    def read_explain(content: dict[str, Any]) -> tuple[Question, Write]:
        return read_question(explainer, content, limits), writer.write

    def read_infer(content: dict[str, Any]) -> tuple[Question, Write]:
        open_inference.wanted_outputs(content)
        question = open_inference.read_infer(explainer, content, limits)
        return question, partial(open_inference.write_infer, explainer, writer, name, content)

    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)

    @app.post("/explain", openapi_extra=with_body(QUESTION), responses=refusals())
    async def explain(request: Request) -> Response:
        """Which features decided an output, for each row."""
        return await answered(desk, request, read_explain)

    @app.get("/info")
    async def about() -> Response:
        """What can be asked."""
        return as_json(facts)

    @app.get("/healthz")
    async def healthy() -> Response:
        """Whether requests are accepted."""
        return ready()

    @app.get("/metrics")
    async def counters() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(metrics(desk, replies), media_type="text/plain; version=0.0.4")

    @app.get("/v2")
    async def server() -> Response:
        """Open Inference Protocol: the server."""
        return as_json({"name": "sointer", "version": __version__, "extensions": []})

    @app.get("/v2/health/live")
    async def live() -> Response:
        return as_json({"live": True})

    @app.get("/v2/health/ready")
    async def ready_server() -> Response:
        return ready()

    @app.get("/v2/models/{model}")
    async def described(model: str) -> Response:
        """Open Inference Protocol: what the explainer takes and gives."""
        check_name(model)
        return as_json(open_inference.metadata(explainer, name))

    @app.get("/v2/models/{model}/ready")
    async def ready_model(model: str) -> Response:
        check_name(model)
        return ready()

    @app.post("/v2/models/{model}/infer", openapi_extra=with_body(INFERENCE), responses=refusals())
    async def infer(model: str, request: Request) -> Response:
        """Open Inference Protocol: explain rows given as tensors."""
        check_name(model)
        return await answered(desk, request, read_infer)

    def check_name(model: str) -> None:
        if model != name:
            raise Refusal(404, f"There is no model {model!r:.60}; this server has {name!r}.")

    def ready() -> Response:
        return as_json({"ready": not desk.closing}, 503 if desk.closing else 200)

    return app


async def answered(desk: Desk, request: Request, read: Any) -> Response:
    """A reply, also where something went wrong."""
    try:
        return await desk.answer(request, read)
    except Exception as error:
        return refused(refusal_of(error))


async def refuse(request: Request, error: Exception) -> Response:
    """The reply to requests that reach no address, or fail on their way."""
    if isinstance(error, HTTPException):
        why = {404: "There is nothing at this address.", 405: "This address does not take that method."}
        told = why.get(error.status_code, str(error.detail))
        return as_json({"error": told}, error.status_code, dict(error.headers or {}))
    return refused(refusal_of(error))


def refused(refusal: Refusal) -> Response:
    return as_json({"error": refusal.why}, refusal.status, refusal.headers)


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_bytes(content), status, headers, media_type="application/json")
