"""Ways from a model of any make to a `BlackBox`; nothing of xgboost and transformers is imported to recognise them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from sointer._support import containers
from sointer.blackbox.box import BlackBox
from sointer.blackbox.call import CopiedAsItself
from sointer.errors import InputError, SointerWarning, warn_caller

__all__ = ["as_black_box"]


def as_black_box(
    model: Any,
    *,
    method: str | None = None,
    batch_size: int | None = None,
    query_budget: int | None = None,
    cache: bool | None = None,
    output_names: Sequence[str] | None = None,
    name: str | None = None,
    retries: int | None = None,
    timeout: float | None = None,
    n_jobs: int | None = None,
    client: Any = None,
    caller_thread: bool | None = None,
) -> BlackBox:
    """Make a `BlackBox` of any kind of model.

    Parameters
    ----------
    model : estimator, nn.Module, callable, BlackBox, str or Path
        A fitted estimator, an xgboost Booster, a torch module, a text-classification pipeline of transformers or a
        function X -> Y; X may be a list of strings. A `BlackBox` is returned as it is. A string is the address of a
        model ("http://host:8000/v2/models/name") or the path of one ("model.onnx").
    method : {"predict", "predict_proba"} or None, default None
        For estimators only; None chooses predict_proba if its most probable labels are those that predict returns,
        otherwise predict.
    batch_size, query_budget, cache, output_names, name, retries, timeout, n_jobs, client, caller_thread
        As in `BlackBox`; None takes its default.

    Returns
    -------
    BlackBox

    Raises
    ------
    InputError
        If `model` is none of these or is not fitted, or an option does not apply to it.

    Examples
    --------
    >>> import numpy as np
    >>> as_black_box(lambda X: X > 0, name="signs")(np.array([[1.0, -1.0]]))
    array([[ True, False]])
    """
    given = {
        "batch_size": batch_size,
        "query_budget": query_budget,
        "cache": cache,
        "output_names": output_names,
        "name": name,
        "retries": retries,
        "timeout": timeout,
        "n_jobs": n_jobs,
        "client": client,
        "caller_thread": caller_thread,
    }
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if isinstance(model, BlackBox):
        refused = sorted(options) + (["method"] if method is not None else [])
        if refused:
            raise InputError(
                f"as_black_box got a BlackBox together with {', '.join(refused)}, which would be ignored; "
                "expected the BlackBox alone. Set these where the BlackBox is made, or pass the model "
                "itself."
            )
        return model
    if isinstance(model, (str, PurePath)):
        _refuse_method(method, model)
        return _elsewhere(str(model), options)
    options.setdefault("name", getattr(model, "__name__", type(model).__name__))
    return BlackBox(_predictor(model, method), **options)


def _elsewhere(where: str, options: dict[str, Any]) -> BlackBox:
    """The black box for a model named by its address or path."""
    if where.lower().startswith(("http://", "https://")):
        from sointer.blackbox.adapters.http import HTTPBlackBox

        box, parts = HTTPBlackBox(where, **options), urlsplit(where)
        if parts.username or parts.query:
            raise InputError(
                f"model is an address on {parts.hostname} with a user, password or query in it, which would be shown "
                "wherever the model is. Give HTTPBlackBox(address), or its headers=, which keep secrets."
            )
        return box
    if where.lower().endswith(".onnx"):
        from sointer.blackbox.adapters.onnx import ONNXBlackBox

        return ONNXBlackBox(where, **options)
    raise InputError(
        f"model is the string {where!r:.80}, expected an address that begins with http:// or https://, or the path of "
        "a file that ends in .onnx. Give one of these, or the model itself."
    )


def _predictor(model: Any, method: str | None) -> Callable[[Any], Any]:
    torch = sys.modules.get("torch")  # a module cannot exist unless torch was imported
    is_estimator = hasattr(model, "predict")
    if isinstance(model, type):
        raise InputError(
            f"model is the class {model.__name__}, expected a fitted instance of it. "
            f"Give {model.__name__}(...).fit(X, Y)."
        )
    if torch is not None and isinstance(model, torch.nn.Module):
        from sointer.blackbox.adapters.torch import TorchPredict

        _refuse_method(method, model)
        return TorchPredict(model)
    if is_text_classification(model):
        _refuse_method(method, model)
        return TextClassification(model)
    if is_booster(model):
        _refuse_method(method, model)
        return BoosterPredict(model)
    if is_estimator:
        from sointer.blackbox.adapters.sklearn import EstimatorPredict

        return EstimatorPredict(model, method)
    if callable(model):
        _refuse_method(method, model)
        return model  # type: ignore[no-any-return]
    raise InputError(
        f"model is {containers.describe(model)}, expected a function X -> Y, an estimator with predict, a torch "
        "nn.Module or a BlackBox. Wrap the model in a function that takes X and returns one row of outputs "
        "per row."
    )


def _refuse_method(method: str | None, model: Any) -> None:
    if method is not None:
        raise InputError(
            f"method={method!r} was given with {containers.describe(model)}, expected an estimator with predict. Leave "
            "method out, or give a function that calls what you want."
        )


def is_booster(model: object) -> bool:
    """Whether a model is an xgboost Booster; xgboost is never imported for this."""
    xgboost = sys.modules.get("xgboost")
    return xgboost is not None and isinstance(model, xgboost.Booster)


class BoosterPredict(CopiedAsItself):
    """Calls an xgboost Booster on tables: with its own feature names, categories and missing values."""

    def __init__(self, booster: Any) -> None:
        self.booster = booster

    def __call__(self, X: Any) -> Any:
        """What the Booster predicts: probabilities, numbers or margins, as its objective says."""
        import xgboost

        from sointer.blackbox.adapters.sklearn import refuse_other_columns

        names = self.booster.feature_names
        if containers.is_tensor(X):
            X = containers.tensor_to_numpy(X)
        has_names = containers.is_frame(X) or containers.backend_of(X) is not None
        if has_names and names is not None:
            refuse_other_columns(self.booster, X)
        if names is not None and X.shape[1] != len(names):
            raise InputError(
                f"X is {containers.describe(X)}, but the Booster was trained on {len(names)} features. Give these."
            )
        options = {} if has_names or names is None else {"feature_names": names}
        return self.booster.predict(xgboost.DMatrix(X, enable_categorical=True, **options))

    def __repr__(self) -> str:
        return "Booster"


def is_text_classification(model: Any) -> bool:
    """Whether a model is a text-classification pipeline of transformers."""
    return any(
        base.__name__ == "TextClassificationPipeline" and base.__module__.split(".")[0] == "transformers"
        for base in type(model).__mro__
    )


class TextClassification:
    """From texts to the score of every label, whatever the pipeline's own `top_k` is."""

    declared_kind = "probability"

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline
        self._has_warned = False

    def __call__(self, X: Any) -> Any:
        """The scores of all labels, for each text."""
        texts = list(X)
        self._warn_about_long(texts)
        return self.pipeline(texts, top_k=None, truncation=True)

    def _warn_about_long(self, texts: list[str]) -> None:
        """Say once that texts are longer than what the model reads."""
        tokenizer = getattr(self.pipeline, "tokenizer", None)
        limit = getattr(tokenizer, "model_max_length", None)
        if tokenizer is None or limit is None or self._has_warned:
            return
        # No token is shorter than a letter.
        n_long = sum(len(tokenizer(text)["input_ids"]) > limit for text in texts if len(text) > limit)
        if n_long:
            self._has_warned = True
            warn_caller(
                f"{n_long} of {len(texts)} texts are longer than the {limit} tokens that the model reads: it is given "
                "their beginnings, and what stands behind can only be selected once words before it are deleted. "
                "Explain shorter parts of them to see what decides there.",
                SointerWarning,
            )
