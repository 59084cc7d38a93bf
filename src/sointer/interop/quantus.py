"""To Quantus: a fitted explainer as an `explain_func`, so that its metrics can judge it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.explainers.base import Explainer
from sointer.interop.attributions import as_rows, attributions


def explain_func(
    explainer: Explainer, *, k: int | None = None, query: bool = True, selected_only: bool = False
) -> Callable[..., NDArray[np.float32]]:
    """A function (model, inputs, targets, **kwargs) -> attributions in the shape of the inputs, as Quantus calls it.

    Attributions are the signed effects, or the scores where effects are not known. What is explained is the explainer's
    own black box: the model that Quantus gives is not looked at, nor are its settings for other methods, so metrics
    that change the model's weights say nothing about it. `targets` are outputs, one for each input. With query=False
    the black box is not queried, and what is expected of it is explained.
    """

    def explain(model: Any, inputs: Any, targets: Any, **_: Any) -> NDArray[np.float32]:
        values = np.asarray(inputs)
        explanation = explainer.explain(as_rows(values, explainer), np.asarray(targets), k=k, query=query)
        return attributions(explanation, selected_only=selected_only).reshape(values.shape)

    return explain
