"""Ways from a model of any make to a `BlackBox`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from sointer.blackbox import BlackBox
from sointer.containers import describe
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
) -> BlackBox:
    """Wrap a fitted estimator, an `nn.Module` or a function X -> Y; a `BlackBox` is returned as it is.

    `method` is "predict" (the default) or "predict_proba", for estimators only. Any other option left at None
    takes `BlackBox`'s default.
    """
    given = {
        "batch_size": batch_size,
        "query_budget": query_budget,
        "cache": cache,
        "output_names": output_names,
        "name": name,
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
    options.setdefault("name", getattr(model, "__name__", type(model).__name__))
    return BlackBox(_predictor(model, method), **options)


def _predictor(model: Any, method: str | None) -> Callable[[Any], Any]:
    torch = sys.modules.get("torch")  # a module cannot exist unless torch was imported
    is_estimator = hasattr(model, "predict")
    if isinstance(model, type):
        raise InputError(
            f"model is the class {model.__name__}, expected a fitted instance of it. "
            f"Give {model.__name__}(...).fit(X, Y)."
        )
    if torch is not None and isinstance(model, torch.nn.Module):
        from sointer.adapters.torch import TorchPredict

        _refuse_method(method, model)
        return TorchPredict(model)
    if is_estimator:
        from sointer.adapters.scikit_learn import EstimatorPredict

        return EstimatorPredict(model, "predict" if method is None else method)
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
