"""To MLflow: explainers kept as models that load as a pyfunc, by their own files and without pickle."""

from __future__ import annotations

import json
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sointer._support import __version__
from sointer._support.containers import as_pandas, is_frame
from sointer.config import Rows
from sointer.data.times import times_of
from sointer.errors import InputError, require_extra
from sointer.explainers.sointer import SOInter
from sointer.io import explainers as persistence

if TYPE_CHECKING:
    import pandas as pd

FLAVOR = "sointer"
FOLDER = "explainer"
REQUIREMENTS = [f"sointer=={__version__}", "pandas"]


def save_model(
    explainer: SOInter,
    path: str | os.PathLike[str],
    *,
    mlflow_model: Any = None,
    pip_requirements: list[str] | None = None,
    metadata: dict[str, Any] | None = None,
    rows: Rows = "keep",
) -> None:
    """Write a fitted explainer as an MLflow model into a new directory; the black box is never stored.

    It loads with `mlflow.pyfunc.load_model`, and its `predict` returns the table of `explanation.to_frame()`. **By
    default it contains up to 2,000 rows of the training data**, and so does the store that it is logged to.

    Parameters
    ----------
    explainer : SOInter
        Fitted.
    path : path
        A directory that does not exist yet.
    mlflow_model : mlflow.models.Model, optional
        The description to complete; default: a new one.
    pip_requirements : list of str, optional
        Default: those of sointer.
    metadata : dict, optional
        Stored with the model.
    rows : {"keep", "synthetic", "none"}, default "keep"
        As in `SOInter.save`. `predict` does not need rows: "none" leaves them out.

    Raises
    ------
    InputError
        If the explainer is not a fitted SOInter, or the directory exists.
    """
    require_extra("mlflow", "mlflow")
    from mlflow import pyfunc
    from mlflow.models import Model

    persistence.check_fitted(explainer, "MLflow")
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"save_model: {os.fspath(path)!r} exists already; give a path that does not exist yet.")
    folder.mkdir(parents=True, exist_ok=True)
    explainer.save(folder / FOLDER, rows=rows)
    model = Model() if mlflow_model is None else mlflow_model
    model.signature = _signature(explainer)
    if metadata is not None:
        model.metadata = metadata
    model.add_flavor(FLAVOR, sointer_version=__version__, data=FOLDER)
    pyfunc.add_to_model(model, loader_module=__name__, data=FOLDER, python_env="python_env.yaml")
    _write_environment(folder, REQUIREMENTS if pip_requirements is None else pip_requirements)
    model.save(str(folder / "MLmodel"))


def log_model(explainer: SOInter, name: str = FOLDER, **options: Any) -> Any:
    """Log a fitted explainer to the active run, or to a new one.

    Parameters
    ----------
    explainer : SOInter
        Fitted.
    name : str, optional
        Name of the model in its run.
    **options
        Those of `save_model` and of MLflow; `registered_model_name=` registers it too.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Its `model_uri` loads it.
    """
    require_extra("mlflow", "mlflow")
    import mlflow
    from mlflow.models import Model

    persistence.check_fitted(explainer, "MLflow")
    is_named = int(mlflow.__version__.split(".")[0]) >= 3  # before that, models had a path in their run
    where = {"artifact_path": None, "name": name} if is_named else {"artifact_path": name}
    return Model.log(flavor=sys.modules[__name__], explainer=explainer, **where, **options)


def load_model(model_uri: str, black_box: Any = None, *, removal: Any = None) -> SOInter:
    """Load the explainer itself.

    Parameters
    ----------
    model_uri : str
        A path or any address that MLflow knows.
    black_box, removal : optional
        As in `sointer.load`.

    Returns
    -------
    SOInter
        Fitted.

    Raises
    ------
    LoadError
        If there is no complete explainer.
    """
    require_extra("mlflow", "mlflow")
    from mlflow.artifacts import download_artifacts

    folder = Path(download_artifacts(artifact_uri=os.fspath(model_uri)))
    return persistence.load(folder / FOLDER, black_box, removal=removal)


def _load_pyfunc(data_path: str, model_config: Any = None) -> Predictor:
    """What MLflow calls to load the model as a pyfunc."""
    return Predictor(persistence.load(data_path))


class Predictor:
    """An explainer as MLflow calls it: rows in, a table of selected features out."""

    def __init__(self, explainer: SOInter) -> None:
        self.explainer = explainer

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """One line per sample and selected feature: sample, target, value, value_source, rank, feature, score.

        The model is not stored, so values are those that the explainer expects (`value_source` is "expected").

        params : "target", the output to explain, by name ("" where there is one only); "k", how many features
            (0 for as many as the explainer was made for, which may differ from sample to sample).
        """
        given = params or {}
        unknown = sorted(set(given) - {"target", "k"})
        if unknown:
            raise InputError(f"predict: params holds {', '.join(unknown)}; expected target and k only.")
        target, k = given.get("target") or None, int(given.get("k") or 0) or self.explainer.k
        X = _as_in_fit(self.explainer, model_input)
        table: pd.DataFrame = as_pandas(self.explainer.explain(X, target, k=k).to_frame()).reset_index(drop=True)
        if "feature_value" in table:  # JSON, as which MLflow's server sends the table, has no durations
            table["feature_value"] = [str(v) if type(v).__name__ == "Timedelta" else v for v in table["feature_value"]]
        return table

    def get_raw_model(self) -> SOInter:
        """The explainer itself, which MLflow's models give under this name."""
        return self.explainer


def _as_in_fit(explainer: SOInter, X: Any) -> Any:
    """A table as it was in fit: MLflow's server gets JSON, which has no dates, and columns named by text only."""
    columns = explainer.input_format_.columns
    if not columns or not is_frame(X):
        return X
    given = set(X.columns)
    X = X.rename(columns={str(c.label): c.label for c in columns if c.label not in given})
    for column in columns:
        if column.time is None or column.label not in X.columns:
            continue
        cells = X[column.label]
        if all(isinstance(cell, str) for cell in cells.dropna()):
            with suppress(ValueError, TypeError):  # what is no date is refused, as ever
                texts = cells.astype(object).where(cells.notna(), None).tolist()
                X[column.label] = times_of(texts, column.time, column.label).set_axis(X.index)
    return X


def _signature(explainer: SOInter) -> Any:
    """The parameters of predict; columns are checked by the explainer itself, which knows them better."""
    from mlflow.models import ModelSignature
    from mlflow.types import ParamSchema, ParamSpec

    only = explainer.output_names_[explainer.targets_[0]] if len(explainer.targets_) == 1 else ""
    params = [
        ParamSpec("target", "string", only),
        ParamSpec("k", "long", 0 if explainer.k == "auto" else int(explainer.k)),
    ]
    return ModelSignature(params=ParamSchema(params))


def _write_environment(folder: Path, requirements: list[str]) -> None:
    """The files from which MLflow builds an environment to serve in."""
    (folder / "requirements.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")
    python = {"python": platform.python_version(), "build_dependencies": ["pip"]}
    # JSON is YAML too.
    (folder / "python_env.yaml").write_text(json.dumps(python | {"dependencies": ["-r requirements.txt"]}), "utf-8")
