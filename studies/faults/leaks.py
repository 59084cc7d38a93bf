"""Do secrets given as headers turn up anywhere: in logs, messages, tracebacks, files, pages, pickles?"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import pickle
import sys
import tempfile
import traceback
import warnings
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from safetensors.numpy import load_file

import sointer
from sointer import HTTPBlackBox, SOInter, TrainingConfig
from sointer.config import Rows
from sointer.errors import SointerError
from studies.faults.served_token import PLACES as SERVED_PLACES
from studies.faults.served_token import run_served
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study

FAULTS = ("none", "refuses", "echoes", "breaks", "nonsense", "redirects", "hangs up")
PLACES = ("logs", "printed", "messages and tracebacks", "saved files", "checkpoints", "report", "pickle and repr")
SERVES = "serves"
"""The other way round: an explainer is served, to those who bring a token."""


def cases(smoke: bool) -> Iterator[Case]:
    for seed in range(1 if smoke else 20):
        for fault in (*FAULTS[:2], SERVES) if smoke else (*FAULTS, SERVES):
            yield {"fault": fault, "seed": seed}


class Handler(BaseHTTPRequestHandler):
    """Speaks MLflow's protocol, and misbehaves; some errors repeat all that was sent, as real servers do."""

    fault = "none"
    n_seen = 0

    def do_GET(self) -> None:
        self._reply(200, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        type(self).n_seen += SENT in str(self.headers)
        sent = f"{self.path} {self.headers}"
        if self.fault == "refuses":
            return self._reply(401, {"error": f"unknown token in {sent}"})
        if self.fault == "echoes":
            return self._reply(400, {"error": sent, "headers": dict(self.headers)})
        if self.fault == "breaks":
            return self._reply(500, {"error": sent})
        if self.fault == "nonsense":
            return self._reply(200, {"predictions": [[sent, sent]]})
        if self.fault == "redirects":
            return self._reply(302, {}, location=f"http://127.0.0.1:9/{quote(sent)}")
        if self.fault == "hangs up":
            return self.connection.close()
        X = np.array(json.loads(body)["inputs"])
        return self._reply(200, {"predictions": (X[:, :2] > 0).astype(int).tolist()})

    def _reply(self, status: int, content: Any, location: str | None = None) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if location is not None:
            self.send_header("location", location)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass  # the server's own log is not ours


SENT = ""


def run(fault: str, seed: int) -> dict[str, Any]:
    """Use a model behind HTTP for everything there is, and look for its secrets in all that comes of it."""
    global SENT
    if fault == SERVES:
        return run_served(seed)
    rng = np.random.default_rng(seed)
    token, password, key = (bytes(rng.integers(97, 123, size=24, dtype=np.uint8)).decode() for _ in range(3))
    SENT = token
    needles = [token, password, key, b64encode(f"user:{password}".encode()).decode()[8:]]
    found: Counter[str] = Counter()

    def look(place: str, text: str | bytes) -> None:
        content = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        found[place] += sum(content.count(needle.encode()) for needle in needles)

    log = io.StringIO()
    handler, root = logging.StreamHandler(log), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    Handler.fault, Handler.n_seen = fault, 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    printed = io.StringIO()
    try:
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(printed))
            stack.enter_context(contextlib.redirect_stderr(printed))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("always")
            folder = Path(name)
            url = f"http://user:{password}@127.0.0.1:{server.server_port}/invocations?key={key}"
            box = HTTPBlackBox(url, headers={"Authorization": f"Bearer {token}"}, retries=0, timeout=5, n_jobs=1)
            try:
                use(box, folder)
            except SointerError:
                look("messages and tracebacks", "".join(traceback.format_exception(*sys.exc_info())))
            look("pickle and repr", pickle.dumps(box) + repr(box).encode() + repr(vars(box)).encode())
            rows = {how: rows_in(folder / how) for how in ROWS if (folder / how).exists()}
            for path in folder.rglob("*"):
                if path.is_file():
                    place = "report" if path.suffix == ".html" else path.relative_to(folder).parts[0]
                    look(place if place in PLACES else "saved files", path.read_bytes())
    finally:
        server.shutdown()
        server.server_close()
        root.removeHandler(handler)
        root.setLevel(level)
    look("logs", log.getvalue())
    look("printed", printed.getvalue())
    places = {place: found[place] for place in PLACES}
    return {"places": places, "n_requests_with_it": Handler.n_seen, "training_rows": rows}


ROWS: tuple[Rows, ...] = ("keep", "synthetic", "none")
X = np.random.default_rng(0).normal(size=(80, 3))
SAME = 1e-4
"""How close what is stored comes to a row that it determines."""


def rows_in(saved: Path) -> int:
    """How many rows of the training data a saved explainer holds, as they are or in a form that determines them."""
    (weights,) = saved.glob("weights-*")
    energy, shift = sointer.load(saved).energy_, load_file(weights)["shift"]
    x = torch.as_tensor((X - shift).astype(np.float32))
    forms = [np.asarray(form) for form in (X, x, energy.encoding(x), energy.project(x).detach())]
    held = np.zeros(len(X), dtype=bool)
    for tensor in load_file(weights).values():
        for form in forms:
            if tensor.ndim == 2 and tensor.shape[1] == form.shape[1] and len(tensor):
                held |= np.abs(form[:, None] - tensor[None]).max(axis=2).min(axis=1) < SAME
    return int(held.sum())


def use(box: HTTPBlackBox, folder: Path) -> None:
    quick = {"training": TrainingConfig(n_epochs=1)}
    explainer = SOInter(box, k=2, query_budget=100, random_state=0, verbose=True, **quick)
    explainer.fit(X, checkpoint=folder / "checkpoints").save(folder / "saved")
    for how in ROWS:
        explainer.save(folder / how, rows=how)
    explanation = sointer.load(folder / "saved", black_box=box).explain(X[:4], target=1, k="auto")
    print(explanation, explanation.verify(), explainer, explanation.source)
    (folder / "why.html").write_text(explanation.to_html())
    explainer.report(X[:4], folder / "report.html", paths=False)


# --- the page ----------------------------------------------------------------------------------------------


def verdict(rows: list[Row]) -> tuple[str, str]:
    n = sum(sum(row["places"].values()) for row in rows)
    return f"secrets given as headers and in addresses, and tokens of servers, in {len(rows)} runs", (
        f"{n} occurrences in logs, saved files, reports, tracebacks, replies"
    )


def _training_rows(rows: list[Row]) -> list[str]:
    """How many rows of the training data saved explainers hold, where that was counted."""
    counted = [row["training_rows"] for row in rows if row.get("training_rows")]
    if not counted:
        return []
    lines = [[f"`{how}`", f"{sum(row[how] for row in counted):,}"] for how in ROWS]
    text = f"{len(counted)} explainers of {len(X)} rows are saved in three ways; the files are searched for the rows."
    return ["## Training rows in saved explainers", text, table(["rows=", "rows found"], lines)]


def page(rows: list[Row], images: Path) -> str:
    lines = [["place", "occurrences"]]
    for place in (*PLACES, *SERVED_PLACES):
        lines.append([place, f"{sum(row['places'].get(place, 0) for row in rows):,}"])
    used, served = ([row for row in rows if (row["fault"] == SERVES) == wanted] for wanted in (False, True))
    return sections(
        *_training_rows(rows),
        "## Secrets",
        "An explainer of a model behind HTTP, with a token in a header and a password and a key in the address, is "
        "fitted with a checkpoint, saved, loaded, verified and reported, with all logging on. The server works, or "
        f"{', '.join(FAULTS[1:])} (some replies repeat the request). It received the token in "
        f"{sum(row['n_requests_with_it'] for row in used):,} requests.",
        "`sointer serve` with a token, a failing model and records receives valid requests and requests with broken "
        f"heads, all with the token; {len(served)} servers answered "
        f"{sum(row['n_requests_with_it'] for row in served):,} of these.",
        table(lines[0], lines[1:]),
    )


STUDY = Study("leaks", cases, run, page)
