"""Ways from a model of any make to a `BlackBox`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from sointer._support.containers import describe
from sointer.blackbox.adapters.boosting import BoosterPredict, is_booster
from sointer.blackbox.adapters.transformers import TextClassification, is_text_classification
from sointer.blackbox.box import BlackBox
from sointer.errors import InputError

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
    """Make a `BlackBox` of a model of any make.

    Parameters
    ----------
    model : estimator, nn.Module, callable, BlackBox, str or Path
        A fitted estimator, an xgboost Booster, a torch module, a text-classification pipeline of transformers or a
        function X -> Y; X may be a list of strings. A `BlackBox` is returned as it is. A string is the address of a
        model ("http://host:8000/v2/models/name") or the path of one ("model.onnx").
    method : {"predict", "predict_proba"} or None, default None
        For estimators only; None chooses predict_proba where its most probable labels are those that predict returns,
        else predict.
    batch_size, query_budget, cache, output_names, name, retries, timeout, n_jobs, client, caller_thread
        As in `BlackBox`; None takes its default.

    Returns
    -------
    BlackBox

    Raises
    ------
    InputError
        If `model` is none of these, or is not fitted, or an option does not go with it.

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
        f"model is {describe(model)}, expected a function X -> Y, an estimator with predict, a torch "
        "nn.Module or a BlackBox. Wrap the model in a function that takes X and returns one row of outputs "
        "per row."
    )


def _refuse_method(method: str | None, model: Any) -> None:
    if method is not None:
        raise InputError(
            f"method={method!r} was given with {describe(model)}, expected an estimator with predict. Leave "
            "method out, or give a function that calls what you want."
        )
