"""An explainer without the model it explains, so that it can go to another process whatever the model is."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, TypeVar

from sointer.errors import InputError
from sointer.explainers.base import Explainer

AnyExplainer = TypeVar("AnyExplainer", bound=Explainer)


def without_model(explainer: AnyExplainer) -> AnyExplainer:
    """A shallow copy with everything that explaining needs and nothing of the black box."""
    alone = copy.copy(explainer)
    alone.model, alone.black_box_ = None, None
    if alone.text_ is not None:
        alone.text_ = replace(alone.text_, rest=None)
    return alone


def with_model(explainer: Explainer, cloudpickle: Any) -> bytes:
    """The explainer and its model, pickled: workers query copies of the model."""
    instead = (
        "Pass what the model predicts as predicted=, such as X.map_partitions(model.predict), or explain what is "
        "expected of it with query=False."
    )
    if explainer.black_box_ is not None and explainer.black_box_.remaining is not None:
        raise InputError(
            "the model has a query budget, which cannot be kept on dask's workers; lift it with "
            f"black_box.reset_budget(None). {instead}"
        )
    try:
        content: bytes = cloudpickle.dumps(explainer)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            f"the model cannot be sent to dask's workers, since it cannot be pickled ({reason:.200}). {instead}"
        ) from error
    return content


def needs_no_model(explainer: Explainer, k: object, refine: int) -> None:
    """Refuse what only the black box can answer."""
    asks = "k='auto'" if k == "auto" and explainer.asks_for_sizes else "refine=" if refine else ""
    if explainer.asks_to_explain:
        asks = type(explainer).__name__
    if asks:
        raise InputError(
            f"{asks} queries the model many times for every sample, which is not done on dask's workers. Leave it out, "
            "or compute the rows first and explain them here."
        )
