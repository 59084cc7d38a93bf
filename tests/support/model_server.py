"""A real HTTP server on loopback that speaks both protocols, and misbehaves in the ways that servers do."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

TRUTH = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]])


def model(X: np.ndarray) -> np.ndarray:
    """Three labels of four features; the second needs two of them."""
    return (np.asarray(X, dtype=float) @ TRUTH > 0).astype(int)


class ModelServer:
    """Counts and remembers what it was asked; `fault(n)` may spoil the nth request for outputs."""

    def __init__(self) -> None:
        self.url = ""
        self.fault: Callable[[int], str | None] = lambda n: None
        self.reply: Callable[[dict[str, Any]], Any] | None = None
        self.metadata: dict[str, Any] = {
            "name": "tags",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": "y", "datatype": "INT64", "shape": [-1, 3]}],
        }
        self.speaks_v2 = True
        self.speaks_mlflow = True
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.queries: list[str] = []
        self.n_requests = 0
        self.n_at_once = 0
        self.most_at_once = 0
        self.slow = 0.0
        self.app = self._app()

    def outputs(self, body: dict[str, Any]) -> Any:
        if self.reply is not None:
            return self.reply(body)
        if "inputs" in body and body["inputs"] and isinstance(body["inputs"][0], dict):
            tensors = body["inputs"]
            columns = [np.array(t["data"]).reshape(t["shape"]).reshape(t["shape"][0], -1) for t in tensors]
            table = model(np.hstack(columns))
            output = {"name": "y", "datatype": "INT64", "shape": list(table.shape), "data": table.ravel().tolist()}
            return {"model_name": "tags", "outputs": [output]}
        rows = body["inputs"] if "inputs" in body else body["dataframe_split"]["data"]
        return {"predictions": model(np.array(rows)).tolist()}

    def _app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/v2")
        async def server() -> Response:
            return JSONResponse({"name": "test"}, 200 if self.speaks_v2 else 404)

        @app.get("/ping")
        async def ping() -> Response:
            return JSONResponse({}, 200 if self.speaks_mlflow else 404)

        @app.post("/v2/repository/index")
        async def index() -> Any:
            return [{"name": "tags"}] if self.speaks_v2 else JSONResponse({}, 404)

        @app.get("/v2/models/tags")
        async def metadata() -> Any:
            return self.metadata

        @app.post("/v2/models/tags/infer")
        async def infer(request: Request) -> Response:
            return await self._answer(request)

        @app.post("/invocations")
        async def invocations(request: Request) -> Response:
            return await self._answer(request)

        return app

    async def _answer(self, request: Request) -> Response:
        self.n_requests += 1
        number = self.n_requests
        self.headers.append(dict(request.headers))
        self.queries.append(request.url.query)
        fault = self.fault(number)
        body = json.loads(await request.body())
        self.n_at_once += 1
        self.most_at_once = max(self.most_at_once, self.n_at_once)
        try:
            await asyncio.sleep(self.slow)
        finally:
            self.n_at_once -= 1
        if fault == "hangs":
            await asyncio.sleep(5)
        if fault == "drips":
            return StreamingResponse(_drip(), media_type="application/json")
        if fault == "drops":
            return StreamingResponse(_part(), headers={"Content-Length": "100000"})
        if fault == "garbage":
            return Response(b"<html>no gateway \xff</html>", media_type="text/html")
        if fault == "nan":
            shape = [len(model(np.zeros((1, 4)))), 3]
            return Response(
                json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": shape, "data": [float("nan")] * 3}]})
            )
        if fault == "echoes":
            return JSONResponse({"error": f"unknown token in {dict(request.headers)} {request.url}"}, 400)
        if fault is not None:
            status, _, wait = fault.partition(" ")
            return JSONResponse({"error": f"failed on purpose: {status}"}, int(status), {"Retry-After": wait or "0"})
        self.requests.append(body)
        return JSONResponse(self.outputs(body))


async def _drip() -> Any:
    for _ in range(50):
        yield b" "
        await asyncio.sleep(0.1)


async def _part() -> Any:
    yield b'{"outputs": ['


@contextmanager
def serve(app: Any, **options: Any) -> Iterator[str]:
    """The address of a server that runs `app` in a thread, on a port that was free."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", timeout_graceful_shutdown=1, **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield f"http{'s' if options else ''}://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
