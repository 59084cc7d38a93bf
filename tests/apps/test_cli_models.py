"""What --model and --header say: modules, ONNX files, servers; pickles stay closed and secrets stay secret."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sointer import BlackBox
from sointer.errors import InputError, SointerError

pytest.importorskip("typer")

from typer.testing import CliRunner

from sointer.apps.cli.app import build_app
from sointer.apps.cli.inputs import load_model, read_header

SECRET = "t0p-s3cr3t"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, from which modules are imported; no module stays behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    return tmp_path


def write_module(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)


def test_names_of_modules_are_looked_up_from_the_working_directory(folder: Path) -> None:
    write_module(folder, "cli_model_a", "class Holder:\n    def f(X): return X\n\nholder = Holder\n")
    assert load_model("cli_model_a:holder.f").__name__ == "f"


def test_a_box_of_the_users_own_is_used_as_it_is(folder: Path) -> None:
    write_module(folder, "cli_model_b", "from sointer import BlackBox\nbox = BlackBox(lambda X: X, batch_size=7)\n")
    assert load_model("cli_model_b:box").batch_size == 7
    with pytest.raises(InputError, match="batch_size, which would be ignored"):
        load_model("cli_model_b:box", batch_size=9)


def test_probabilities_of_an_estimator(folder: Path) -> None:
    write_module(
        folder,
        "cli_model_c",
        "from sklearn.tree import DecisionTreeClassifier\n"
        "tree = DecisionTreeClassifier(max_depth=1).fit([[0], [0], [1], [1]], [[0, 1], [1, 1], [1, 0], [1, 0]])\n",
    )
    box = load_model("cli_model_c:tree", method="predict_proba", batch_size=2)
    assert isinstance(box, BlackBox)
    np.testing.assert_allclose(box(np.array([[0], [1]])), [[0.5, 1.0], [1.0, 0.0]])
    assert box.batch_size == 2
    with pytest.raises(InputError, match="method must be one of"):
        load_model("cli_model_c:tree", method="guess")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("model.pkl", r"looks like a pickle, which is never opened here.*model = joblib.load\('model.pkl'\)"),
        ("trained/forest.joblib", r"my_model:forest"),
        ("net.pt", "looks like a pickle"),
        ("model.py:predict", "did you mean model:predict"),
        ("model.py", "did you mean model:predict"),
        ("predict", "For predict\\(\\) in model.py, give model:predict"),
        ("a b:c", "expected module:name"),
        ("module:", "expected module:name"),
        ("no_such_module_here:f", "there is no module no_such_module_here"),
        ("json.nothing:f", "there is no module json.nothing"),
        ("json:dumbs", "Did you mean 'dumps'"),
        ("nowhere.onnx", "nowhere.onnx does not exist"),
        ("", "expected module:name"),
    ],
)
def test_what_is_no_model_is_said_with_advice(folder: Path, spec: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        load_model(spec)


def test_a_module_that_fails_is_not_our_failure(folder: Path) -> None:
    write_module(folder, "cli_model_d", "import no_such_package_here\n")
    write_module(folder, "cli_model_e", "raise SystemExit('no licence\\nfound')\n")
    with pytest.raises(InputError, match="cli_model_d cannot be imported: No module named 'no_such_package_here'"):
        load_model("cli_model_d:f")
    with pytest.raises(InputError, match="cli_model_e failed when imported: SystemExit: no licence found"):
        load_model("cli_model_e:f")


def test_a_pickle_is_not_opened(folder: Path) -> None:
    (folder / "evil.pkl").write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    with pytest.raises(InputError, match="never opened"):
        load_model("evil.pkl")
    assert not (folder / "opened").exists()


def test_a_model_in_an_onnx_file(folder: Path) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    from sklearn.tree import DecisionTreeClassifier

    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    tree = DecisionTreeClassifier(random_state=0).fit(X, (X[:, :2] > 0).astype(int))
    exported = skl2onnx.to_onnx(tree, X[:1], options={"zipmap": False})
    (folder / "tree.onnx").write_bytes(exported.SerializeToString())
    box = load_model("tree.onnx", batch_size=50)
    np.testing.assert_array_equal(box(X), tree.predict(X))
    assert box.batch_size == 50
    with pytest.raises(InputError, match="--method predict is for estimators"):
        load_model("tree.onnx", method="predict")
    with pytest.raises(InputError, match="--header is for model servers"):
        load_model("tree.onnx", headers=["A: b"])


class Server(BaseHTTPRequestHandler):
    """MLflow's /invocations, for those who know the token."""

    def do_POST(self) -> None:
        rows: Any = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.headers["Authorization"] == f"Bearer {SECRET}"
        table = rows.get("inputs") or rows["dataframe_split"]["data"]
        answers = [[int(row[0] > 0), int(row[1] > 0)] for row in table]
        content = json.dumps({"predictions": answers} if known else {"error": "unknown token"}).encode()
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Any:
    pytest.importorskip("httpx")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/invocations"
    server.shutdown()
    server.server_close()


def test_a_model_server_gets_the_header_and_nobody_else_sees_it(
    folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLI_TOKEN", SECRET)
    box = load_model(url, headers=["Authorization: Bearer ${CLI_TOKEN}"])
    np.testing.assert_array_equal(box(np.array([[1.0, -1.0], [-1.0, 1.0]])), [[1, 0], [0, 1]])
    assert SECRET not in repr(box)
    np.save("X.npy", np.random.default_rng(0).normal(size=(50, 3)))
    ask = ["fit", "--model", url, "--data", "X.npy", "--out", "why", "-v"]
    result = CliRunner().invoke(build_app(), [*ask, "--header", f"Authorization: Basic {SECRET}"])
    assert result.exit_code == 1
    assert "401" in result.stderr
    assert SECRET not in result.output + result.stderr


def test_headers_come_from_the_environment_or_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLI_TOKEN", SECRET)
    (folder / "token").write_text(f"Bearer {SECRET}\n")
    assert read_header("Authorization: Bearer ${CLI_TOKEN}") == ("Authorization", f"Bearer {SECRET}")
    assert read_header("Authorization: @token") == ("Authorization", f"Bearer {SECRET}")
    assert read_header("X-Tenant:5") == ("X-Tenant", "5")


@pytest.mark.parametrize(
    "text",
    [SECRET, f": {SECRET}", f"a b: {SECRET}", f"A: {SECRET}\r\nB: x", "A:", "A: ${NO_SUCH_VARIABLE}", f"A: @{SECRET}"],
)
def test_wrong_headers_are_refused_without_being_shown(folder: Path, text: str) -> None:
    with pytest.raises(SointerError) as caught:
        read_header(text)
    assert SECRET not in str(caught.value)
