"""An explainer without the model it explains, so that it can go to another process whatever the model is."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TypeVar

from sointer.base import Explainer
from sointer.errors import InputError

AnyExplainer = TypeVar("AnyExplainer", bound=Explainer)


def without_model(explainer: AnyExplainer) -> AnyExplainer:
    """A shallow copy with everything that explaining needs and nothing of the black box."""
    alone = copy.copy(explainer)
    alone.model, alone.black_box_ = None, None
    if alone.text_ is not None:
        alone.text_ = replace(alone.text_, rest=None)
    return alone


def needs_no_model(explainer: Explainer, k: object, refine: int) -> None:
    """Refuse what only the black box can answer."""
    asks = "k='auto'" if k == "auto" else "refine=" if refine else ""
    if explainer.asks_to_explain:
        asks = type(explainer).__name__
    if asks:
        raise InputError(
            f"{asks} asks the black box about every row, but explainers go to dask's workers without it. Leave it out "
            "(pass predicted= for surer explanations), or compute the rows first and explain them here."
        )
