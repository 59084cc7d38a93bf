"""MLflow: explainers as models that are logged, loaded as a pyfunc and queried over HTTP, without pickle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("mlflow")

import mlflow
from sklearn.exceptions import NotFittedError

from quick import LAYOUT, quick_fit
from sointer import SOInter
from sointer.errors import InputError
from sointer.integrations import mlflow as bridge
from tickets import desk, tickets

pytestmark = [
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def frame(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.normal(size=(n, 4)), columns=["rain", "wind", "sun", "heat"])


def model(X: pd.DataFrame) -> np.ndarray:
    return np.column_stack([X["rain"] > 0, X["sun"] + X["heat"] > 0])


@pytest.fixture(scope="module")
def explainer() -> SOInter:
    return quick_fit(model, frame(150, 0), output_names=["wet", "warm"])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """A store of its own for each test; what was set before comes back."""
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'runs.db'}")  # MLflow no longer keeps runs in plain files
    mlflow.set_experiment(
        experiment_id=mlflow.create_experiment("explanations", artifact_location=(tmp_path / "files").as_uri())
    )
    yield tmp_path
    mlflow.set_tracking_uri(before)


def test_saved_models_load_as_pyfunc_and_say_the_same(explainer: SOInter, tmp_path: Path) -> None:
    X = frame(6, 1)
    bridge.save_model(explainer, tmp_path / "model", metadata={"about": "weather"})
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    table = loaded.predict(X, params={"target": "warm", "k": 3})
    assert list(table.columns) == LAYOUT
    pd.testing.assert_frame_equal(table, explainer.explain(X, "warm", k=3, query=False).to_frame())
    usual = loaded.predict(X, params={"target": "wet"})
    pd.testing.assert_frame_equal(usual, explainer.explain(X, "wet", query=False).to_frame())
    assert loaded.metadata.metadata == {"about": "weather"}
    assert isinstance(loaded.get_raw_model(), SOInter)
    suffixes = {file.suffix for file in (tmp_path / "model").rglob("*") if file.is_file()}
    assert not suffixes & {".pkl", ".pickle", ".joblib", ".pt", ".pth"}
    assert "sointer==" in (tmp_path / "model" / "requirements.txt").read_text()


def test_an_open_size_stays_open(tmp_path: Path) -> None:
    automatic = quick_fit(model, frame(150, 0), output_names=["wet", "warm"], k="auto")
    bridge.save_model(automatic, tmp_path / "model")
    loaded, X = mlflow.pyfunc.load_model(str(tmp_path / "model")), frame(6, 1)
    wanted = automatic.explain(X, "warm", query=False).to_frame()
    pd.testing.assert_frame_equal(loaded.predict(X, params={"target": "warm"}), wanted)
    assert len(loaded.predict(X, params={"target": "warm", "k": 3})) == 18


def test_logged_models_load_back(explainer: SOInter, store: Path) -> None:
    with mlflow.start_run():
        info = bridge.log_model(explainer, "why")
    X = frame(5, 1)
    wanted = explainer.explain(X, "warm", query=False).to_frame()
    pd.testing.assert_frame_equal(
        mlflow.pyfunc.load_model(info.model_uri).predict(X, params={"target": "warm"}), wanted
    )
    back = bridge.load_model(info.model_uri, black_box=model)
    pd.testing.assert_frame_equal(back.explain(X, "warm", query=False).to_frame(), wanted)
    assert back.explain(X, "warm").verify().fidelity >= 0.0
    assert (store / "files").exists()


def test_a_scoring_request(explainer: SOInter, tmp_path: Path) -> None:
    """Through MLflow's own server, as `mlflow models serve` runs it."""
    from fastapi.testclient import TestClient
    from mlflow.pyfunc import scoring_server

    bridge.save_model(explainer, tmp_path / "model")
    client = TestClient(scoring_server.init(mlflow.pyfunc.load_model(str(tmp_path / "model"))))
    X = frame(3, 1)
    request = {"dataframe_split": X.to_dict(orient="split", index=False), "params": {"target": "warm", "k": 1}}
    reply = client.post("/invocations", content=json.dumps(request), headers={"Content-Type": "application/json"})
    assert reply.status_code == 200, reply.text
    answer = pd.DataFrame(reply.json()["predictions"])
    wanted = explainer.explain(X, "warm", k=1, query=False).to_frame()
    assert answer["feature"].tolist() == wanted["feature"].tolist()
    np.testing.assert_allclose(answer["score"], wanted["score"], rtol=1e-5)
    request["params"]["target"] = "cold"  # type: ignore[index]
    refused = client.post("/invocations", content=json.dumps(request), headers={"Content-Type": "application/json"})
    assert refused.status_code == 400
    assert "cold" in refused.text


def test_a_scoring_request_with_texts_dates_and_numbered_columns(tmp_path: Path) -> None:
    """JSON has no dates, and calls the column 7 "7"."""
    from fastapi.testclient import TestClient
    from mlflow.pyfunc import scoring_server

    X = tickets(60, 0).rename(columns={"age": 7})
    X["zoned"] = X["since"].dt.tz_localize("Europe/Oslo")
    X["lasted"] = X["since"] - X["since"].min()
    explainer = quick_fit(lambda X: desk(X.rename(columns={7: "age"})), X, text_columns=["text"])
    bridge.save_model(explainer, tmp_path / "model")
    client = TestClient(scoring_server.init(mlflow.pyfunc.load_model(str(tmp_path / "model"))))
    few = X[:3].assign(lasted=X["lasted"].astype(str))
    rows = json.loads(few.to_json(orient="records", date_format="iso"))
    request = {"dataframe_records": rows, "params": {"target": "urgent", "k": 31}}
    reply = client.post("/invocations", content=json.dumps(request), headers={"Content-Type": "application/json"})
    assert reply.status_code == 200, reply.text
    wanted = explainer.explain(X[:3], "urgent", k=31, query=False).to_frame()
    answer = pd.DataFrame(reply.json()["predictions"])
    assert {"since", "zoned", "lasted", "7"} <= set(answer["feature"].astype(str))
    assert answer["feature"].tolist() == wanted["feature"].tolist()
    np.testing.assert_allclose(answer["score"], wanted["score"], rtol=1e-5)
    request["dataframe_records"][0]["since"] = 5
    refused = client.post("/invocations", content=json.dumps(request), headers={"Content-Type": "application/json"})
    assert refused.status_code == 400
    assert "since" in refused.text


def test_one_target_needs_not_be_named(tmp_path: Path) -> None:
    one = quick_fit(model, frame(150, 0), output_names=["wet", "warm"], targets=["warm"])
    bridge.save_model(one, tmp_path / "model")
    table = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(frame(2, 1))
    assert table["target"].unique().tolist() == ["warm"]


def test_wrong_use(explainer: SOInter, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a fitted SOInter"):
        bridge.save_model(model, tmp_path / "a")  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        bridge.save_model(SOInter(model), tmp_path / "a")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(InputError, match="exists already"):
        bridge.save_model(explainer, tmp_path / "full")
    predictor = bridge.Predictor(explainer)
    with pytest.raises(InputError, match="target is missing"):
        predictor.predict(frame(2, 1))
    with pytest.raises(InputError, match="params holds goal; expected target and k"):
        predictor.predict(frame(2, 1), {"goal": "warm"})
    assert not (tmp_path / "a").exists()
