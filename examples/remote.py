"""A model behind HTTP that is slow, sometimes fails, and then stops: retries, journal, resume.

Run it as a script, or cell by cell in an editor that knows `# %%`. It keeps the model's outputs in the folder
`remote-fit`: delete it to begin anew. Needs: pip install "sointer[http]"
"""

# %% [markdown]
# ## A server
# Yours is somewhere else. This one uses the protocol of `mlflow models serve` (`/invocations`), fails on every eighth
# request, and stops after 20.

# %%
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np


def model(X):
    """Three labels; the last depends on the first two."""
    warm, wet = X[:, 0] > X[:, 1], X[:, 2] > X[:, 3]
    return np.column_stack([warm, wet, warm & wet]).astype(int)


class Handler(BaseHTTPRequestHandler):
    n_requests, n_rows, power_fails_after = 0, 0, 20

    def do_POST(self):
        Handler.n_requests += 1
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]
        if Handler.n_requests > Handler.power_fails_after or Handler.n_requests % 8 == 0:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        Handler.n_rows += len(rows)
        body = json.dumps({"predictions": model(np.array(rows)).tolist()}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()

# %% [markdown]
# ## Fit with a journal
# `retries` says how often a request is sent again; `checkpoint` keeps every output in a folder as it arrives.

# %%
from sointer import HTTPBlackBox, SOInter
from sointer.errors import BlackBoxError

X = np.random.default_rng(0).normal(size=(1500, 6)).round(3)


def make_explainer():
    box = HTTPBlackBox(f"http://127.0.0.1:{server.server_port}/invocations", timeout=10, retries=3, batch_size=64)
    names = ["warm", "wet", "rainbow"]
    return SOInter(box, output_names=names, query_budget=2000, random_state=0, verbose=False)


try:
    make_explainer().fit(X, checkpoint="remote-fit")
except BlackBoxError as error:
    print("The fit stopped:", error)

# %% [markdown]
# ## The server is back
# The same call resumes where the other stopped. No query is repeated, and the explainer is the same, bit for bit, as
# without the interruption.

# %%
Handler.power_fails_after = 10**9
explainer = make_explainer().fit(X, checkpoint="remote-fit")
print(f"queried now: {explainer.n_queries_:,}; taken from the journal: {explainer.n_queries_replayed_:,}")
print(f"requests sent again: {explainer.black_box_.n_retries}; rows that the server predicted: {Handler.n_rows:,}")

# %% [markdown]
# ## Explain
# The model is queried once per sample. If you have its predictions, pass them as `predicted=`, and nothing is queried.

# %%
explanation = explainer.explain(X[:100], target="rainbow")
print("features that decide the first sample:", sorted(explanation.selected[0].tolist()))
print(explanation.verify())
server.shutdown()
server.server_close()
