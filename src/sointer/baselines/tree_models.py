"""Tree models taken apart: for each output, the SHAP values of its classes or its number, by shap's TreeExplainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.tree import BaseDecisionTree

from sointer.blackbox.adapters.sklearn import EstimatorPredict
from sointer.blackbox.box import BlackBox
from sointer.errors import InputError

FORESTS = (RandomForestClassifier, ExtraTreesClassifier, RandomForestRegressor, ExtraTreesRegressor)
BOOSTING = (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
OTHER_PACKAGES = ("xgboost", "lightgbm", "catboost")
SUPPORTED = (
    "a decision tree, random forest, extra trees or (histogram) gradient boosting, or a MultiOutputClassifier, "
    "MultiOutputRegressor or OneVsRestClassifier of these"
)


@dataclass(frozen=True)
class OutputTrees:
    """The trees behind one output."""

    explainer: Any
    """shap's TreeExplainer; None if the output is constant."""
    labels: NDArray[Any] | None
    """The labels of the columns of `values`; None for numbers and for scores of one label."""
    positive: int | None = None
    """The column whose probability the output is, if it is a probability."""
    is_single_precision: bool = False
    """Whether the trees compare numbers in single precision; shap itself knows it of models that it reads whole."""

    def values(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """SHAP values: (rows, features, columns), with a column per label or one for a number."""
        n_columns = 1 if self.labels is None else len(self.labels)
        if self.explainer is None:
            return np.zeros((*rows.shape, n_columns))
        if self.is_single_precision:
            rows = rows.astype(np.float32).astype(np.float64)
        found = np.asarray(self.explainer.shap_values(rows, check_additivity=False), dtype=np.float64)
        found = found.reshape(*rows.shape, -1)
        if n_columns == 2 and found.shape[2] == 1:  # boosting has one score, that of the second label
            return np.concatenate([-found, found], axis=2)
        return found


def tree_model(model: Any) -> tuple[Any, str]:
    """The estimator behind a model or black box, and which of its methods is explained; refuses what has no trees."""
    if isinstance(model, BlackBox):
        model = model.predict
    estimator, method = (
        (model.model, model.method or "predict") if isinstance(model, EstimatorPredict) else (model, "predict")
    )
    if isinstance(estimator, ClassifierChain | RegressorChain):
        raise InputError(
            f"TreeShap does not support {type(estimator).__name__}: each of its models takes the outputs before it as "
            "inputs, so their values do not add up to effects of the features. Use KernelShap or ShapleySampling."
        )
    parts = _parts(estimator)
    unsupported = [part for part in ([estimator] if parts is None else parts) if not _is_supported(part)]
    if unsupported:
        inside = "" if parts is None else f" of {type(unsupported[0]).__name__}"
        raise InputError(
            f"TreeShap looks inside tree models, got a {type(estimator).__name__}{inside}; expected {SUPPORTED}. "
            "Give the fitted estimator itself rather than a function, or use KernelShap, which works with any model."
        )
    return estimator, method


def take_apart(model: Any) -> list[OutputTrees]:
    """One entry per output of the model, in the order of its predictions."""
    estimator, method = tree_model(model)
    parts = _parts(estimator)
    if parts is not None:
        found = [_one_model(part, number) for number, part in enumerate(parts)]
        return [_as_probability(one, 1) for one in found] if method == "predict_proba" else found
    if isinstance(estimator, (*FORESTS, BaseDecisionTree)):
        found = [_forest_output(estimator, output) for output in range(estimator.n_outputs_)]
    else:
        found = [_one_model(estimator, 0)]
    if method == "predict":
        return found
    if len(found) > 1:
        return [_as_probability(one, 1) for one in found]
    (only,) = found  # one output: of more than two classes, a column of probabilities for each
    assert only.labels is not None
    n_classes = len(only.labels)
    return [_as_probability(only, column) for column in (range(n_classes) if n_classes > 2 else [1])]


def _parts(estimator: Any) -> list[Any] | None:
    """The single-output models that a model of many outputs consists of."""
    if isinstance(estimator, MultiOutputClassifier | MultiOutputRegressor):
        return list(estimator.estimators_)
    if isinstance(estimator, OneVsRestClassifier) and estimator.multilabel_:
        return list(estimator.estimators_)
    return None


def _is_supported(estimator: Any) -> bool:
    if isinstance(estimator, (*FORESTS, *BOOSTING, BaseDecisionTree)) or _is_constant(estimator):
        return True
    return type(estimator).__module__.split(".")[0] in OTHER_PACKAGES and hasattr(estimator, "predict")


def _is_constant(estimator: Any) -> bool:
    """What OneVsRestClassifier puts in place of a model for a label that never changed."""
    return type(estimator).__name__ == "_ConstantPredictor"


def _as_probability(trees: OutputTrees, column: int) -> OutputTrees:
    n_columns = 1 if trees.labels is None else len(trees.labels)
    return replace(trees, positive=min(column, n_columns - 1))


def _one_model(estimator: Any, number: int) -> OutputTrees:
    if _is_constant(estimator):
        return OutputTrees(None, np.array([0, 1]))
    if isinstance(estimator, (*FORESTS, BaseDecisionTree)):
        if estimator.n_outputs_ > 1:
            raise InputError(f"TreeShap: model {number} of the model has {estimator.n_outputs_} outputs, expected one.")
        return _forest_output(estimator, 0)
    from shap import TreeExplainer
    from shap.utils._exceptions import InvalidModelError

    labels = None if is_regressor(estimator) or not is_classifier(estimator) else np.asarray(estimator.classes_)
    try:
        return OutputTrees(TreeExplainer(estimator), labels)
    except InvalidModelError as exc:
        raise InputError(
            f"TreeShap: shap cannot read this {type(estimator).__name__} ({exc}). Use "
            "HistGradientBoostingClassifier for more than two classes, or KernelShap, which works with any model."
        ) from exc


def _forest_output(estimator: Any, output: int) -> OutputTrees:
    """One output of trees whose leaves hold the values of all outputs."""
    from shap import TreeExplainer

    members: Sequence[Any] = [estimator] if isinstance(estimator, BaseDecisionTree) else estimator.estimators_
    labels = None
    if is_classifier(estimator):
        labels = np.asarray(estimator.classes_ if estimator.n_outputs_ == 1 else estimator.classes_[output])
    trees = [_as_dictionary(member.tree_, output, labels, len(members)) for member in members]
    return OutputTrees(TreeExplainer({"trees": trees}), labels, is_single_precision=True)


def _as_dictionary(tree: Any, output: int, labels: NDArray[Any] | None, n_trees: int) -> dict[str, Any]:
    """A tree as shap reads it, with the values of one output only: shares of classes, or numbers."""
    values = tree.value[:, output, :1] if labels is None else tree.value[:, output, : len(labels)]
    if labels is not None:
        values = values / values.sum(axis=1, keepdims=True)
    return {
        "children_left": tree.children_left,
        "children_right": tree.children_right,
        "children_default": tree.children_left,
        "features": tree.feature,
        "thresholds": tree.threshold,
        "values": values / n_trees,
        "node_sample_weight": tree.weighted_n_node_samples,
    }
