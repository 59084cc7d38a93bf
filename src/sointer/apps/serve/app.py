"""The web application: which address gives what, and the page at / where one row is explained."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from sointer._support import __version__, containers
from sointer._support.files import as_finite
from sointer.apps.serve import open_inference
from sointer.apps.serve.request import ExplainBody, ExplainRequest, as_http_error, one_line, read_request
from sointer.apps.serve.response import RecordLog, ResponseWriter, as_json
from sointer.apps.serve.rows import row_as_json
from sointer.apps.serve.security import LOOPBACK, Limits, SecurityMiddleware, digest_of
from sointer.apps.serve.sequences import SequenceBody, read_sequence_request, sequence_info, write_sequences
from sointer.apps.serve.worker import AnyRequest, Read, RequestQueue, Write
from sointer.data.sequences import read_sequences
from sointer.data.text_tables import TextTableFormat
from sointer.explainers.base import Explainer
from sointer.explainers.sequence_base import as_explainer
from sointer.explainers.sequences import SequenceExplainer
from sointer.io.columns import names_in_fit
from sointer.viz.report.page import render_template
from sointer.viz.report.samples import sample_names_of

ERROR_SCHEMA = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": why, "content": {"application/json": {"schema": ERROR_SCHEMA}}}
    for status, why in (
        (400, "The body is not JSON."),
        (401, "The token is missing or wrong."),
        (408, "The body did not arrive in time."),
        (413, "The body is too large."),
        (415, "The content type is not JSON."),
        (422, "The request cannot be answered; the reply says why."),
        (429, "Too many requests are waiting; try again after the seconds in Retry-After."),
        (502, "The model that is explained failed."),
        (503, "No answer in time, or the server is shutting down; try again."),
    )
}


def with_body(schema: dict[str, Any]) -> dict[str, Any]:
    """The part of OpenAPI about a request's body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def info(explainer: Explainer, name: str, limits: Limits) -> dict[str, Any]:
    """What the server explains, and its limits."""
    if explainer.sequences_ is not None:
        known: dict[str, Any] = as_finite(sequence_info(explainer.sequences_, name) | {"limits": asdict(limits)})
        return known
    image, outputs = explainer.input_format_.image, explainer.outputs_
    takes = "images" if image is not None else "texts" if explainer.reads_text else "rows"
    metadata = {
        "name": name,
        "sointer": __version__,
        "takes": takes,
        "features": names_in_fit(explainer.input_format_) if takes == "rows" else None,
        "text_columns": [str(column.label) for column in explainer.input_format_.columns if column.is_text] or None,
        "n_features": explainer.n_features_in_,
        "missing_is_zero": takes == "rows" and explainer.input_format_.kind == "csr",
        "image": None if image is None else [image.channels, image.height, image.width],
        "groups": explainer.groups_.unit_names if explainer.groups_.spec is not None and image is None else None,
        "targets": [explainer.output_names_[t] for t in explainer.targets_] if outputs.shape is None else None,
        "masks": outputs.shape,
        "output_kind": outputs.kind,
        "k": explainer.k,
        "has_model": explainer.black_box_ is not None,
        "held_out_agreement": getattr(explainer, "held_out_agreement_", None),
        "held_out_skill": getattr(explainer, "held_out_skill_", None),
        "known": list(explainer.known_columns),
        "limits": asdict(limits),
    }
    plain: dict[str, Any] = as_finite(metadata)
    return plain


def metrics(queue: RequestQueue, replies: Counter[int]) -> str:
    """Counters, in the text format that Prometheus reads."""
    lines = ["# TYPE sointer_replies_total counter"]
    lines += [f'sointer_replies_total{{status="{status}"}} {n}' for status, n in sorted(replies.items())]
    for name, kind, value in (
        ("sointer_rows_explained_total", "counter", sum(batches.n_explained for batches in queue.all)),
        ("sointer_batches_total", "counter", sum(batches.n_batches for batches in queue.all)),
        ("sointer_bodies_arriving", "gauge", queue.bodies.n_arriving),
        ("sointer_requests_inside", "gauge", queue.n_inside),
        ("sointer_places", "gauge", len(queue.all) * queue.limits.n_places),
    ):
        lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
    return "\n".join(lines) + "\n"


def create_app(
    explainer: Explainer | SequenceExplainer,
    *,
    limits: Limits | None = None,
    name: str = "explainer",
    examples: Any = None,
    hosts: tuple[str, ...] | None = LOOPBACK,
    token: str | None = None,
    records: str | PathLike[str] | None = None,
) -> FastAPI:
    """Create the web application that serves a fitted explainer; run it with any ASGI server, in one process.

    Parameters
    ----------
    explainer : Explainer
        A fitted explainer.
    limits : Limits, optional
        How much the server accepts at once.
    name : str, default "explainer"
        The name of the model in the paths of the Open Inference Protocol.
    examples : table, array, list of texts or of token lists, optional
        Rows to choose from on the page, as for `explain`. Everyone who sees the page sees them.
    hosts : tuple of str or None, default ("localhost", "127.0.0.1", "::1")
        The host names by which the server may be addressed, against DNS rebinding; None for any. Behind a proxy, give
        the name that clients use.
    token : str, optional
        A secret of at least 16 characters that every request must bring, as ``Authorization: Bearer <token>``, or from
        browsers as the password. Default: none is needed.
    records : path, optional
        A file to which the record of every explanation is appended, as JSON lines (docs/how-to/records.md).

    Returns
    -------
    fastapi.FastAPI

    Raises
    ------
    InputError
        If the token is too short.

    Examples
    --------
    With ``app = create_app(sointer.load("why/", model))`` in ``main.py``: ``uvicorn main:app``.
    """
    explainer, limits = as_explainer(explainer), limits or Limits()
    # `app.state.queue` is where requests wait, `app.state.replies` counts them.
    name = name.encode(errors="replace").decode()  # that of a folder need not be text
    sequences = explainer.sequences_
    log = None if records is None else RecordLog(records)
    queue, replies = RequestQueue(explainer, limits, log), Counter[int]()
    writer = None if sequences is not None else ResponseWriter(explainer)
    metadata = info(explainer, name, limits) | {"needs_token": token is not None}
    digest = None if token is None else digest_of(token)
    page, policy = render_page(explainer, metadata, examples)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        queue.start()
        yield
        queue.close()

    # The pages that FastAPI offers on its own load scripts from elsewhere.
    app = FastAPI(title="sointer", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_middleware(SecurityMiddleware, hosts=hosts, token_digest=digest, replies=replies)
    app.state.queue, app.state.replies = queue, replies
    for kind in (HTTPException, Exception):
        app.add_exception_handler(kind, handle_error)

    def recorded(request: ExplainRequest) -> ExplainRequest:
        return request if log is None else replace(request, recorded=True)

    def read_explain(content: dict[str, Any]) -> tuple[AnyRequest, Write]:
        if sequences is not None:
            return read_sequence_request(sequences, content, limits), write_sequences
        return recorded(read_request(explainer, content, limits)), tensors().write

    def tensors() -> ResponseWriter:
        """What writes responses about rows."""
        if writer is None:
            raise HTTPException(422, "Sequences are no tensors: send token lists to POST /explain.")
        return writer

    def read_infer(content: dict[str, Any]) -> tuple[AnyRequest, Write]:
        rows_writer = tensors()
        outputs, reply = open_inference.wanted_outputs(content), {"model_name": name}
        if content.get("id") is not None:
            reply["id"] = content["id"]
        request = open_inference.read_infer(explainer, content, limits)
        return recorded(request), partial(open_inference.write_infer, explainer, rows_writer, outputs, reply)

    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)

    body = ExplainBody if sequences is None else SequenceBody

    @app.post("/explain", openapi_extra=with_body(body.model_json_schema()), responses=ERRORS)
    async def explain(request: Request) -> Response:
        """Which features decided an output, for each row."""
        return await answer(queue, request, read_explain)

    @app.get("/info")
    async def about() -> Response:
        """What the server explains, and its limits."""
        return as_json(metadata)

    @app.get("/healthz")
    async def healthy() -> Response:
        """Whether requests are accepted."""
        return ready()

    @app.get("/metrics")
    async def counters() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(metrics(queue, replies), media_type="text/plain; version=0.0.4")

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
        tensors()
        return as_json(open_inference.model_metadata(explainer, name))

    @app.get("/v2/models/{model}/ready")
    async def ready_model(model: str) -> Response:
        check_name(model)
        return ready()

    @app.post("/v2/models/{model}/infer", openapi_extra=with_body(open_inference.INFER_SCHEMA), responses=ERRORS)
    async def infer(model: str, request: Request) -> Response:
        """Open Inference Protocol: explain rows given as tensors."""
        check_name(model)
        return await answer(queue, request, read_infer)

    def check_name(model: str) -> None:
        if model != name:
            raise HTTPException(404, f"There is no model {model!r:.60}; this server has {name!r}.")

    def ready() -> Response:
        is_ready = not queue.closing and queue.start()
        return as_json({"ready": is_ready}, 200 if is_ready else 503)

    return app


async def answer(queue: RequestQueue, request: Request, read: Read) -> Response:
    """A reply, also where something went wrong."""
    try:
        return await queue.answer(request, read)
    except Exception as error:
        return await handle_error(request, error)


async def handle_error(request: Request, error: Exception) -> Response:
    """The reply to a request that failed, or that reaches no address."""
    known = as_http_error(error)
    why = {
        "Not Found": "There is nothing at this address.",
        "Method Not Allowed": "This address does not take that method.",
    }
    message = one_line(why.get(known.detail, known.detail))
    return as_json({"error": message}, known.status_code, dict(known.headers or {}))


MAX_EXAMPLES, MAX_NAMES = 200, 2000


def render_page(explainer: Explainer, metadata: dict[str, Any], examples: Any) -> tuple[str, str]:
    """The page, and the policy that lets browsers run its own scripts and no others."""
    shown, drawn = _examples(explainer, examples)
    data = {
        "takes": metadata["takes"],
        "features": (metadata.get("features") or [])[:MAX_NAMES],
        "nFeatures": len(metadata.get("features") or []),
        "missingIsZero": metadata.get("missing_is_zero"),
        "targets": metadata.get("targets") or [],
        "k": metadata["k"],
        "hasModel": metadata["has_model"],
        "needsToken": metadata["needs_token"],
        "examples": as_finite(shown),
        "typical": None if drawn is None else as_finite(drawn),
        "textColumns": metadata.get("text_columns") or [],
        "name": metadata["name"],
    }
    page = render_template("serve.html", data=data, metadata=metadata)
    sources = {kind: re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL) for kind in ("script", "style")}
    script, style = (" ".join(map(_digest, sources[kind])) for kind in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy


def _digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _examples(explainer: Explainer, examples: Any) -> tuple[list[dict[str, Any]], Any]:
    """Rows to pick, by name, and a row to begin with that is nobody's."""
    if explainer.sequences_ is not None:
        if examples is None:
            return [], ""
        sequences = read_sequences(examples, explainer.sequences_.splitter, "examples")[:MAX_EXAMPLES]
        return [{"name": f"sequence {i}", "row": tokens} for i, tokens in enumerate(sequences)], None
    if explainer.input_format_.image is not None:
        return [], None
    names = names_in_fit(explainer.input_format_)
    if examples is None:
        return [], _typical(explainer, names)
    if not isinstance(examples, list):
        explainer.input_format_.encode(examples, caller="examples")
    n = min(MAX_EXAMPLES, containers.n_rows(examples))
    X = containers.rows(examples, np.arange(n))
    called = sample_names_of(X, None)
    return [{"name": called[i], "row": row_as_json(X, i, names)} for i in range(n)], None


def _typical(explainer: Explainer, names: list[str]) -> Any:
    """The mean of the training rows: rows themselves may be private. Of mostly-zero rows, its largest entries.

    Without rows, medians, which the networks start from.
    """
    if explainer.reads_text:
        return ""
    form = explainer.input_format_
    if isinstance(form, TextTableFormat):
        return row_as_json(containers.as_pandas(form.typical(explainer.background_.rows.values)), 0, names)
    rows, is_sparse = explainer.background_.rows, form.kind == "csr"
    if rows.shape[0] == 0:  # saved with rows="none"
        rows = np.zeros((1, rows.shape[1])) if is_sparse else explainer.shift_.reshape(1, -1)
    mean = np.asarray(rows.mean(axis=0), dtype=np.float64).reshape(1, -1)
    if is_sparse:
        largest = np.argsort(-mean[0], kind="stable")[:5]
        return {names[place]: 1 for place in sorted(largest.tolist())}
    row = row_as_json(containers.as_pandas(form.decode(mean)), 0, names)
    return {name: float(f"{value:.3g}") if isinstance(value, float) else value for name, value in row.items()}
