"""Boosters of xgboost, which take nothing but their own matrices."""

from __future__ import annotations

import sys
from typing import Any

from sointer._support import containers, frames
from sointer._support.containers import describe
from sointer.errors import InputError


def is_booster(model: object) -> bool:
    """Whether a model is an xgboost Booster; xgboost is never imported for this."""
    xgboost = sys.modules.get("xgboost")
    return xgboost is not None and isinstance(model, xgboost.Booster)


class BoosterPredict:
    """Calls an xgboost Booster on tables: with its own feature names, categories and missing values."""

    def __init__(self, booster: Any) -> None:
        self.booster = booster

    def __call__(self, X: Any) -> Any:
        """What the Booster predicts: probabilities, numbers or margins, as its objective says."""
        import xgboost

        names = self.booster.feature_names
        if containers.is_tensor(X):
            X = containers.tensor_to_numpy(X)
        has_names = containers.is_frame(X) or frames.backend_of(X) is not None
        if names is not None and X.shape[1] != len(names):
            raise InputError(f"X is {describe(X)}, but the Booster was trained on {len(names)} features. Give these.")
        options = {} if has_names or names is None else {"feature_names": names}
        return self.booster.predict(xgboost.DMatrix(X, enable_categorical=True, **options))

    def __sklearn_clone__(self) -> BoosterPredict:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> BoosterPredict:
        return self

    def __repr__(self) -> str:
        return "Booster"
