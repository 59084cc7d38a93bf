"""Models behind HTTP, in ONNX files and in other programs, against real servers, files and processes."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import re
import sys
import traceback
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import sointer
from model_server import ModelServer, model, serve
from quick import QUICK, TAUGHT
from sointer import CommandBlackBox, HTTPBlackBox, ONNXBlackBox, SOInter
from sointer.blackbox.adapters import as_black_box
from sointer.blackbox.adapters.secrets import Secret, hide
from sointer.errors import BlackBoxError, InputError

X = np.random.default_rng(0).normal(size=(50, 4))
FRAME = pd.DataFrame(X, columns=list("abcd"))


# --- the two protocols -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v2/models/tags", "/v2/models/tags/infer", "", "/v2", "/invocations", "/"])
def test_the_models_own_answers(server: ModelServer, path: str) -> None:
    with HTTPBlackBox(server.url + path, batch_size=7) as box:
        answers = box(X)
    np.testing.assert_array_equal(answers, model(X.astype(np.float32)))
    assert (box.n_queries, box.n_outputs, box.n_failures) == (50, 3, 0)


def test_a_bare_address_of_an_mlflow_server(server: ModelServer) -> None:
    server.speaks_v2 = False
    np.testing.assert_array_equal(HTTPBlackBox(server.url)(X), model(X))
    assert set(server.requests[0]) == {"inputs"}
    server.speaks_mlflow = False
    with pytest.raises(BlackBoxError, match=r"speaks neither .*/v2/models/name or .*/invocations"):
        HTTPBlackBox(server.url)(X)


@pytest.mark.parametrize(
    "make", [np.asarray, sparse.csr_matrix, torch.tensor, lambda X: pd.DataFrame(X, columns=list("abcd"))]
)
def test_all_containers(server: ModelServer, make: object) -> None:
    for path in ("/v2/models/tags", "/invocations"):
        np.testing.assert_array_equal(as_black_box(server.url + path)(make(X)), model(X))  # type: ignore[operator]


def test_numbers_arrive_exactly(server: ModelServer) -> None:
    server.metadata["inputs"][0]["datatype"] = "FP64"
    HTTPBlackBox(server.url, n_jobs=None)(X)
    np.testing.assert_array_equal(np.array(server.requests[0]["inputs"][0]["data"]).reshape(50, 4), X)
    HTTPBlackBox(server.url + "/invocations", n_jobs=None)(FRAME)
    assert server.requests[1]["dataframe_split"]["columns"] == list("abcd")
    np.testing.assert_array_equal(np.array(server.requests[1]["dataframe_split"]["data"]), X)


def test_several_named_inputs_take_the_columns_of_a_frame(server: ModelServer) -> None:
    inputs = [{"name": name, "datatype": "FP64", "shape": [-1, 1]} for name in "abc"]
    server.metadata["inputs"] = [*inputs, {"name": "word", "datatype": "BYTES", "shape": [-1]}]

    def reply(body: dict[str, object]) -> object:
        sent = {tensor["name"]: tensor for tensor in body["inputs"]}  # type: ignore[index, attr-defined]
        assert [sent[name]["shape"] for name in ("a", "word")] == [[2, 1], [2]]
        labels = [[word, value] for word, value in zip(sent["word"]["data"], sent["c"]["data"], strict=True)]
        return {
            "outputs": [
                {"name": "word", "datatype": "BYTES", "shape": [2, 1], "data": [word for word, _ in labels]},
                {"name": "half", "datatype": "FP64", "shape": [2], "data": [value / 2 for _, value in labels]},
            ]
        }

    server.reply = reply
    box = HTTPBlackBox(server.url)
    frame = pd.DataFrame({"word": ["no", "Käse"], "c": [1.0, 3.0], "b": [0.0, 0.0], "a": [5, 6]})
    answers = box(frame)
    assert answers.tolist() == [["no", 0.5], ["Käse", 1.5]]
    assert box.output_names == ["word", "half"]
    with pytest.raises(InputError, match=r"missing are \['word'\], not known are \['d'\]"):
        box(FRAME)
    with pytest.raises(InputError, match=r"4 inputs.*'word' \[any\] of strings.*DataFrame"):
        box(X)
    with pytest.raises(InputError, match=r"takes strings, but X holds 3"):
        box(frame.assign(word=3))
    server.metadata["inputs"][0]["datatype"] = "INT64"
    fresh = HTTPBlackBox(server.url)
    with pytest.raises(InputError, match=r"takes int64, but X holds 0\.5"):
        fresh(frame.assign(a=0.5))


def test_outputs_are_chosen_by_name(server: ModelServer) -> None:
    def reply(body: dict[str, object]) -> object:
        n = body["inputs"][0]["shape"][0]  # type: ignore[index]
        both = [
            {"name": "tags", "datatype": "FP32", "shape": [n, 2], "data": [[1, 2]] * n},
            {"name": "more", "datatype": "BOOL", "shape": [n, 3], "data": [True] * (3 * n)},
        ]
        asked = [output["name"] for output in body.get("outputs", [])]  # type: ignore[attr-defined]
        return {"outputs": [output for output in both if not asked or output["name"] in asked]}

    server.reply = reply
    with pytest.raises(InputError, match=r"several outputs, 'tags' \[50, 2\], 'more' \[50, 3\]: .*output_name="):
        HTTPBlackBox(server.url, n_jobs=None)(X)
    assert HTTPBlackBox(server.url, output_name="more", n_jobs=None)(X).dtype == bool
    with pytest.raises(InputError, match="output_name='tag' is none"):
        HTTPBlackBox(server.url, output_name="tag")(X)


def test_a_server_that_says_nothing_about_its_model(server: ModelServer) -> None:
    server.metadata = {"name": "tags"}
    np.testing.assert_array_equal(HTTPBlackBox(server.url, n_jobs=None)(X), model(X))
    assert server.requests[-1]["inputs"][0]["name"] == "input-0"
    HTTPBlackBox(server.url, input_name="mine", n_jobs=None)(X)
    assert server.requests[-1]["inputs"][0]["name"] == "mine"
    np.testing.assert_array_equal(HTTPBlackBox(server.url, n_jobs=None)(FRAME), model(X))
    assert server.requests[-1]["parameters"] == {"content_type": "pd"}
    assert [tensor["name"] for tensor in server.requests[-1]["inputs"]] == list("abcd")


def test_predictions_of_mlflow_in_all_their_forms(server: ModelServer) -> None:
    url = server.url + "/invocations"
    server.reply = lambda body: {"predictions": [{"p": 1.5, "q": "yes"}] * len(body["inputs"])}
    box = HTTPBlackBox(url)
    assert box(X).tolist() == [[1.5, "yes"]] * 50
    assert box.output_names == ["p", "q"]
    assert HTTPBlackBox(url, output_name="p")(X).tolist() == [[1.5]] * 50
    server.reply = lambda body: {"predictions": {"p": [1] * len(body["inputs"]), "q": [2] * len(body["inputs"])}}
    assert HTTPBlackBox(url)(X).tolist() == [[1, 2]] * 50
    server.reply = lambda body: {"predictions": [0.5] * len(body["inputs"])}
    assert HTTPBlackBox(url)(X).shape == (50, 1)
    server.reply = lambda body: {"result": 1}
    with pytest.raises(BlackBoxError, match=r"no predictions, but the keys \['result'\]\. It was tried once"):
        HTTPBlackBox(url, retries=0)(X)


def test_missing_values(server: ModelServer) -> None:
    holes = np.where(X > 2, np.nan, X)
    assert np.isnan(holes).any()
    server.reply = lambda body: {"predictions": [[sum(v is None for v in row)] for row in body["inputs"]]}
    np.testing.assert_array_equal(HTTPBlackBox(server.url + "/invocations")(holes)[:, 0], np.isnan(holes).sum(axis=1))
    with pytest.raises(InputError, match=r"cannot be sent as JSON.*fill in missing"):
        HTTPBlackBox(server.url, n_jobs=None)(holes)


def test_requests_run_at_the_same_time_and_answers_keep_their_order(server: ModelServer) -> None:
    server.slow = 0.05
    box = HTTPBlackBox(server.url, n_jobs=4, batch_size=5)
    np.testing.assert_array_equal(box(X), model(X))
    assert 2 <= server.most_at_once <= 4
    assert box.n_queries == 50


@pytest.mark.slow
def test_a_real_mlflow_scoring_server(tmp_path: Path) -> None:
    mlflow_sklearn = pytest.importorskip("mlflow.sklearn")
    from mlflow.models import infer_signature
    from mlflow.pyfunc import load_model
    from mlflow.pyfunc.scoring_server import init
    from sklearn.linear_model import LinearRegression

    truth = LinearRegression().fit(FRAME, X @ np.ones((4, 3)) + X[:, :3])
    mlflow_sklearn.save_model(truth, tmp_path / "m", signature=infer_signature(FRAME, truth.predict(FRAME)))
    with serve(init(load_model(str(tmp_path / "m")))) as url:
        box = HTTPBlackBox(url, batch_size=20)
        np.testing.assert_allclose(box(FRAME), truth.predict(FRAME))
        with pytest.raises(BlackBoxError, match=r"status 400: .*"):
            box(FRAME.rename(columns={"a": "z"}))


def test_a_forked_process_has_connections_of_its_own(server: ModelServer) -> None:
    from multiprocessing import get_context

    box = HTTPBlackBox(server.url, n_jobs=None)
    box(X)
    ours = box.predict.connection._client.get()  # type: ignore[attr-defined]
    _inherited[:] = [box]
    with get_context("fork").Pool(1) as pool:
        answers, is_ours = pool.apply_async(_ask_in_a_fork, (id(ours),)).get(20)
    np.testing.assert_array_equal(answers, model(X))
    assert not is_ours
    assert box.predict.connection._client.get() is ours  # type: ignore[attr-defined]


_inherited: list[HTTPBlackBox] = []


def _ask_in_a_fork(client: int) -> tuple[np.ndarray, bool]:
    (box,) = _inherited
    return box(X), id(box.predict.connection._client.get()) == client  # type: ignore[attr-defined]


# --- errors ------------------------------------------------------------------------------------------------


def test_errors_say_what_is_wrong(server: ModelServer) -> None:
    with pytest.raises(BlackBoxError, match=r"status 404.*It has the models 'tags'"):
        HTTPBlackBox(server.url + "/v2/models/tag")(X)
    assert server.n_requests == 0
    with pytest.raises(InputError, match=r"takes a tensor 'x' \[any, 4\] of float32, but X would give \[any, 3\]"):
        HTTPBlackBox(server.url, n_jobs=None)(X[:, :3])
    with pytest.raises(BlackBoxError, match=r"cannot be reached.*It was tried 2 times, in \d+\.\d s"):
        HTTPBlackBox("http://127.0.0.1:1/v2/models/m", retries=1)(X)
    with pytest.raises(BlackBoxError, match=r"status 404"):
        HTTPBlackBox(server.url + "/nothing/here/invocations")(X)
    server.reply = lambda body: {"outputs": [{"name": "y", "datatype": "FP32", "shape": [50, 3], "data": [1, 2]}]}
    with pytest.raises(BlackBoxError, match=r"holds 2 values, but its shape is \[50, 3\]"):
        HTTPBlackBox(server.url, retries=0, n_jobs=None)(X)
    server.reply = lambda body: {"outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 1], "data": [1, 2]}]}
    with pytest.raises(BlackBoxError, match=r"2 rows .*for 50 rows of input"):
        HTTPBlackBox(server.url, retries=0, n_jobs=None)(X)
    with pytest.raises(BlackBoxError, match="more than max_reply_bytes=10"):
        HTTPBlackBox(server.url + "/invocations", max_reply_bytes=10)(X)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "ftp://host/m"}, "scheme 'ftp'"),
        ({"url": "http://"}, "host None"),
        ({"url": "http://host:port/"}, "no address"),
        ({"url": 3}, "type int"),
        ({"protocol": "grpc"}, "protocol must be one of"),
        ({"timeout": 0}, "timeout must be a number of seconds"),
        ({"retries": -1}, "retries"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"verify": False}, "verify must be True or the path"),
        ({"verify": "/no/such/ca.pem"}, "verify must be True or the path"),
        ({"headers": {"a b": "c"}}, "the name 'a b'"),
        ({"headers": {"a": "hush\r\nb: c"}}, r"headers\['a'\] must be a string"),
        ({"headers": {"a": 3}}, r"headers\['a'\] must be a string"),
        ({"max_reply_bytes": 0}, "max_reply_bytes"),
    ],
)
def test_wrong_options(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words) as info:
        HTTPBlackBox(**{"url": "http://host/m"} | options)  # type: ignore[arg-type]
    assert "hush" not in str(info.value)


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    import subprocess

    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    options = "-x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *options.split(), *files], check=True, capture_output=True)
    server = ModelServer()
    with serve(server.app, ssl_keyfile=str(key), ssl_certfile=str(certificate)) as url:
        assert url.startswith("https://")
        with pytest.raises(BlackBoxError, match=r"CERTIFICATE_VERIFY_FAILED.*verify="):
            HTTPBlackBox(url, retries=20)(X)
        np.testing.assert_array_equal(HTTPBlackBox(url, verify=certificate)(X), model(X))


# --- secrets -----------------------------------------------------------------------------------------------

HUSH = "h0sh-t0ken/+ 1"


def secret_box(server: ModelServer, **options: object) -> HTTPBlackBox:
    url = server.url.replace("//", "//bob:h0sh-pass%20w@") + "/v2/models/tags?key=h0sh-key%2F1&b=h0shb"
    return HTTPBlackBox(url, headers={"X-Token": HUSH}, **options)  # type: ignore[arg-type]


def test_secrets_are_sent(server: ModelServer) -> None:
    secret_box(server, n_jobs=None)(X)
    assert server.headers[0]["x-token"] == HUSH
    assert server.headers[0]["authorization"] == "Basic Ym9iOmgwc2gtcGFzcyB3"
    assert server.queries[0] == "key=h0sh-key%2F1&b=h0shb"


@pytest.mark.parametrize("fault", ["echoes", "500", "drops", "garbage", "404", "hangs"])
def test_secrets_are_never_seen(server: ModelServer, fault: str, caplog: pytest.LogCaptureFixture) -> None:
    server.fault = lambda n: fault
    box = secret_box(server, retries=1, timeout=0.3 if fault == "hangs" else 20)
    with caplog.at_level(logging.DEBUG), pytest.raises(BlackBoxError) as info:
        box(X)
    seen = [caplog.text, repr(box), str(box), repr(vars(box)), repr(vars(box.predict)), json.dumps(box, default=str)]
    seen += [repr(vars(box.predict.connection)), str(info.value), repr(pickle.dumps(box))]  # type: ignore[attr-defined]
    seen += traceback.TracebackException.from_exception(info.value, capture_locals=True).format()
    assert info.value.__context__ is None
    assert caplog.records, "nothing was logged: this would not show a leak"
    for secret in ("h0sh", "Ym9iOmgwc2"):
        assert not [text for text in seen if secret in text]
    if fault == "echoes":
        assert "unknown token" in str(info.value)


def test_a_copy_elsewhere_needs_the_variable(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = pickle.loads(pickle.dumps(secret_box(server)))
    with pytest.raises(InputError, match=r"does not travel.*from_environment"):
        copied(X)
    token = Secret.from_environment("MODEL_TOKEN", "Bearer ")
    box = pickle.loads(pickle.dumps(HTTPBlackBox(server.url, headers={"Authorization": token})))
    with pytest.raises(InputError, match="variable MODEL_TOKEN is not set"):
        box(X)
    monkeypatch.setenv("MODEL_TOKEN", "h0sh\n")
    np.testing.assert_array_equal(box(X), model(X))
    assert server.headers[-1]["authorization"] == "Bearer h0sh"


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret("Bearer h0sh")
    assert copy.deepcopy(secret) is secret
    for text in (repr(secret), str(secret), f"{secret!s:>20}", repr([secret]), repr(pickle.dumps(secret))):
        assert "h0sh" not in text
    with pytest.raises(TypeError):
        json.dumps(secret)
    assert hide("the token h0sh of Bearer", [secret]) == "the token <secret> of Bearer"


def test_addresses_with_secrets_are_not_taken_as_plain_strings() -> None:
    with pytest.raises(InputError, match="HTTPBlackBox") as info:
        as_black_box("http://bob:h0sh@host/invocations?key=h0sh")
    assert "h0sh" not in str(info.value)
    with pytest.raises(InputError, match=r"string 'model\.pkl', expected an address .*\.onnx"):
        as_black_box("model.pkl")


# --- ONNX --------------------------------------------------------------------------------------------------

Y = np.column_stack([X[:, 0] > 0, X[:, 1] + X[:, 2] > 0, X[:, 3] > 0.5]).astype(int)


def skl_file(estimator: object, path: Path, **options: object) -> Path:
    from skl2onnx import to_onnx

    path.write_bytes(to_onnx(estimator, X[:1].astype(np.float32), **options).SerializeToString())
    return path


@pytest.mark.parametrize("kind", ["forest", "one by one", "one versus rest"])
def test_exported_classifiers(kind: str, tmp_path: Path) -> None:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.multioutput import MultiOutputClassifier

    estimator = {
        "forest": RandomForestClassifier(5, random_state=0),
        "one by one": MultiOutputClassifier(LogisticRegression()),
        "one versus rest": OneVsRestClassifier(LogisticRegression()),
    }[kind].fit(X, Y)
    path = skl_file(estimator, tmp_path / "model.onnx", options={"zipmap": False})
    box = as_black_box(path, batch_size=7)
    assert isinstance(box, ONNXBlackBox)
    small = X.astype(np.float32).astype(float)
    np.testing.assert_array_equal(box(X), estimator.predict(small))
    chances = ONNXBlackBox(path, output_name="probabilities", batch_size=3)(X[:6])  # as many rows as outputs, too
    np.testing.assert_allclose(
        chances, as_black_box(estimator, method="predict_proba")(small[:6]), rtol=1e-4, atol=1e-5
    )
    copied = pickle.loads(pickle.dumps(box))
    np.testing.assert_array_equal(copied(X), box(X))


def test_dictionaries_of_probabilities_are_refused(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    path = skl_file(OneVsRestClassifier(LogisticRegression()).fit(X, Y), tmp_path / "model.onnx")
    np.testing.assert_array_equal(ONNXBlackBox(path)(X).shape, (50, 3))
    with pytest.raises(InputError, match=r"one dictionary for each row.*'zipmap': False"):
        ONNXBlackBox(path, output_name="output_probability")
    with pytest.raises(InputError, match=r"output_name='z' is none.*'output_label' \(tensor\(int64\)"):
        ONNXBlackBox(path, output_name="z")
    with pytest.raises(InputError, match=r"input_name='z' is none of the inputs of the model in model\.onnx: 'X'"):
        ONNXBlackBox(path, input_name="z")
    with pytest.raises(InputError, match=r"takes a tensor 'X' \[any, 4\] of float32, but X would give \[any, 3\]"):
        ONNXBlackBox(path)(X[:, :3])


def test_a_pipeline_with_named_columns(tmp_path: Path) -> None:
    from skl2onnx import to_onnx
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder
    from sklearn.tree import DecisionTreeClassifier

    frame = pd.DataFrame({"colour": np.where(X[:, 0] > 0, "red", "blue"), "size": X[:, 1].astype(np.float32)})
    columns = make_column_transformer((OneHotEncoder(), ["colour"]), remainder="passthrough")
    estimator = make_pipeline(columns, DecisionTreeClassifier(random_state=0)).fit(frame, Y[:, :2])
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(estimator, frame[:1], options={"zipmap": False}).SerializeToString())
    np.testing.assert_array_equal(ONNXBlackBox(path)(frame), estimator.predict(frame))
    with pytest.raises(InputError, match=r"2 inputs, 'colour' \[any, 1\] of strings"):
        ONNXBlackBox(path)(X)


class TwoHeads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x).sigmoid(), self.layer(x).sum(1)


def test_a_torch_export(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    heads, rows = TwoHeads().eval(), torch.tensor(X, dtype=torch.float32)
    path = tmp_path / "heads.onnx"
    batch = torch.export.Dim("batch")
    torch.onnx.export(
        heads, (rows[:2],), path, output_names=["tags", "total"], dynamo=True, dynamic_shapes=({0: batch},)
    )
    with pytest.raises(InputError, match=r"several outputs: 'tags' .*'total' .*output_name="):
        ONNXBlackBox(path)
    expected = heads(rows)[0].detach().numpy()
    np.testing.assert_allclose(ONNXBlackBox(path, output_name="tags", batch_size=9)(X), expected, rtol=1e-5)
    assert ONNXBlackBox(path, output_name="total")(X).shape == (50, 1)
    fixed = tmp_path / "fixed.onnx"
    torch.onnx.export(heads.layer, (rows[:3],), fixed, dynamo=True)  # for batches of three, and fifty are asked
    np.testing.assert_allclose(ONNXBlackBox(fixed)(X), heads.layer(rows).detach().numpy(), rtol=1e-4, atol=1e-6)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        as_black_box(str(tmp_path / "none.onnx"))
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(InputError, match="cannot be opened as an ONNX model"):
        as_black_box(tmp_path / "bad.onnx")


# --- programs ----------------------------------------------------------------------------------------------

PROGRAM = """
import json, os, sys, time
print("ready", file=sys.stderr, flush=True)
mode = sys.argv[1] if len(sys.argv) > 1 else ""
for number, line in enumerate(sys.stdin):
    asked = json.loads(line)
    if mode == "dies" and number == 2:
        print("out of cheese", file=sys.stderr, flush=True)
        sys.exit(7)
    if mode == "hangs":
        time.sleep(60)
    if mode == "chats":
        print("hello", flush=True)
    if mode == "errors":
        print(json.dumps({"error": "no model loaded"}), flush=True)
        continue
    rows = asked["rows"]
    outputs = [[row[0] > 0, row[1] + row[2] > 0, row[3] < 0] for row in rows]
    reply = {"outputs": outputs, "names": asked.get("columns", ["p", "q", "r"])[:3]}
    print(json.dumps(reply), flush=True)
"""


def command(tmp_path: Path, *arguments: str) -> list[str]:
    script = tmp_path / "model.py"
    script.write_text(PROGRAM, encoding="utf-8")
    return [sys.executable, "-S", str(script), *arguments]


def test_a_program_answers(tmp_path: Path) -> None:
    with CommandBlackBox(command(tmp_path), batch_size=20) as box:
        np.testing.assert_array_equal(box(X), model(X))
        assert (box.output_names, box.n_restarts, box.n_queries) == (["p", "q", "r"], 0, 50)
        process, _ = box.predict._program.get()  # type: ignore[attr-defined]
        assert process.poll() is None
    assert process.poll() is not None
    np.testing.assert_array_equal(box(X), model(X))  # started again
    box.close()
    with CommandBlackBox(command(tmp_path)) as framed:
        framed(FRAME)
        assert framed.output_names == ["a", "b", "c"]
        copied = pickle.loads(pickle.dumps(framed))
        np.testing.assert_array_equal(copied(FRAME), model(X))
        copied.close()


def test_a_program_that_dies_is_started_again(tmp_path: Path) -> None:
    with CommandBlackBox(command(tmp_path, "dies"), batch_size=10) as box:
        np.testing.assert_array_equal(box(X), model(X))
        assert (box.n_restarts, box.n_failures, box.n_retried_rows, box.n_queries) == (2, 2, 20, 50)
    with (
        CommandBlackBox(command(tmp_path, "dies"), batch_size=10, retries=0) as box,
        pytest.raises(BlackBoxError, match=r"ended with code 7.*out of cheese"),
    ):
        box(X)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("hangs", r"returned nothing within timeout=1.5 s.*Its last words: ready.*tried 2 times"),
        ("chats", r"wrote b'hello\\n', expected \{\"outputs\": "),
        ("errors", "says: no model loaded"),
    ],
)
def test_a_program_that_misbehaves(mode: str, words: str, tmp_path: Path) -> None:
    with (
        CommandBlackBox(command(tmp_path, mode), timeout=1.5 if mode == "hangs" else 30, retries=1) as box,
        pytest.raises(BlackBoxError, match=words),
    ):
        box(X)
    assert box.predict._program.take() is None  # type: ignore[attr-defined]


def test_commands_are_lists_and_no_shell_is_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"list of strings.*shlex"):
        CommandBlackBox("python model.py")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cannot be started"):
        CommandBlackBox([str(tmp_path / "no-such-program")])(X)
    with CommandBlackBox(command(tmp_path, "; exit 3")) as box:
        assert box(X).shape == (50, 3)


# --- together ----------------------------------------------------------------------------------------------


def test_names_are_imported_when_used() -> None:
    assert {"HTTPBlackBox", "ONNXBlackBox", "CommandBlackBox"} <= set(sointer.__all__)
    with pytest.raises(AttributeError, match=re.escape("'sointer' has no attribute 'Nothing'")):
        sointer.Nothing  # noqa: B018


def test_explaining_a_model_behind_http_is_explaining_the_model(server: ModelServer, tmp_path: Path) -> None:
    rows = X.astype(np.float32).astype(float)
    here = SOInter(model, **TAUGHT).fit(rows).explain(rows, target=1)
    explainer = SOInter(secret_box(server), **TAUGHT).fit(rows)
    there = explainer.explain(rows, target=1)
    np.testing.assert_array_equal(here.selected, there.selected)
    np.testing.assert_array_equal(here.scores, there.scores)
    assert (np.sort(there.selected, axis=1) == [1, 2]).all(axis=1).mean() > 0.8
    assert (server.headers[-1]["x-token"], "h0sh" in repr(explainer)) == (HUSH, False)
    explainer.save(tmp_path / "explainer")
    there.to_html(tmp_path / "why.html")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert not [path for path in files if b"h0sh" in path.read_bytes()]


def test_a_string_is_enough(server: ModelServer) -> None:
    assert SOInter(server.url, **QUICK).fit(X).n_outputs_ == 3
