"""Fitted scikit-learn estimators, and whatever else has `predict`, as functions X -> Y."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from sointer.errors import InputError

METHODS = ("predict", "predict_proba")


class EstimatorPredict:
    """Calls one method of an estimator, which is held frozen: copies share it, still fitted."""

    def __init__(self, model: Any, method: str = "predict") -> None:
        if method not in METHODS:
            raise InputError(f"method must be one of {METHODS}, got {method!r}. Choose 'predict' if in doubt.")
        if isinstance(model, BaseEstimator):
            try:
                check_is_fitted(model)
            except NotFittedError as exc:
                raise InputError(
                    f"model is a {type(model).__name__} that is not fitted, expected a fitted one. "
                    "Call its fit(X, Y) first."
                ) from exc
        if not callable(getattr(model, method, None)):
            raise InputError(
                f"model is a {type(model).__name__} without {method}, expected one that has it. Use "
                f"method={'predict' if method == 'predict_proba' else 'predict_proba'!r}, or give a function."
            )
        self.model = model
        self.method = method

    def __call__(self, X: Any) -> Any:
        """The outputs for X, as the estimator returns them or, for probabilities, of the positive class."""
        reply = getattr(self.model, self.method)(X)
        if self.method == "predict_proba" and isinstance(reply, list):
            return self._positive(reply)
        return reply

    def _positive(self, reply: list[Any]) -> npt.NDArray[np.float64]:
        """A list of (n, n_classes) arrays, one per output, as one (n, n_outputs) array."""
        columns = []
        for output, table in enumerate(np.asarray(part, dtype=np.float64) for part in reply):
            if table.ndim != 2 or not 1 <= table.shape[1] <= 2:
                raise InputError(
                    f"predict_proba gave an array of shape {table.shape} for output {output}, expected (n, "
                    "2): two classes. Use method='predict', which explains outputs with any number of "
                    "classes."
                )
            if table.shape[1] == 2:
                columns.append(table[:, 1])
            else:
                # Only one class was seen in training: its probability is 1, and it may be the negative one.
                columns.append(table[:, 0] if self._only_class_is_positive(output) else 1.0 - table[:, 0])
        return np.column_stack(columns)

    def _only_class_is_positive(self, output: int) -> bool:
        classes = getattr(self.model, "classes_", None)
        try:
            return bool(np.asarray(classes[output]).ravel()[0] == 1) if classes is not None else False
        except (IndexError, TypeError):
            return False

    def __sklearn_clone__(self) -> EstimatorPredict:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> EstimatorPredict:
        return self

    def __repr__(self) -> str:
        return f"{type(self.model).__name__}.{self.method}"
