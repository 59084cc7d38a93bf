"""TreeSHAP: exact Shapley values of tree models, read off their trees by the `shap` package."""

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

from sointer._support.containers import as_pandas, is_frame, is_sparse
from sointer.blackbox.adapters.sklearn import EstimatorPredict
from sointer.blackbox.box import BlackBox
from sointer.data.inputs import InputFormat
from sointer.data.targets import of_kind
from sointer.errors import InputError, require_extra
from sointer.explainers.baselines.base import Baseline, QueriedRows
from sointer.masking.rows import ExplainedRows, Subject
from sointer.masking.selection import Scored

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


class TreeShap(Baseline):
    """TreeSHAP (Lundberg et al. 2020), with the `shap` package. It looks inside the model, which must consist of trees.

    Supported are decision trees, random forests, extra trees, gradient boosting and histogram gradient boosting of
    scikit-learn, multi-output or inside MultiOutputClassifier, MultiOutputRegressor or OneVsRestClassifier, and what
    shap reads of xgboost, lightgbm and catboost. Not supported: ClassifierChain, functions, pipelines, categories.

    Scores are signed towards the value predicted: positive units speak for it. They are in the unit of the trees: the
    probability of the predicted label for forests, its log-odds for boosting. For numbers the score is the size of the
    effect. Absent features follow the shares of training rows in each branch (shap's "tree_path_dependent"), not
    `removal`. Explaining queries the model once per sample, for the value to explain, unless predicted= is given.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sointer.explainers.baselines import TreeShap
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> forest = RandomForestClassifier(20, random_state=0).fit(X, X[:, [0, 3]] > 0)
    >>> explainer = TreeShap(forest, k=1, random_state=0).fit(X)
    >>> explainer.explain(X[:3], target=1).selected.ravel().tolist(), explainer.n_explain_queries_
    ([3, 3, 3], 3)
    """

    queries_to_explain = True

    def _check_settings(self) -> None:
        require_extra("shap", "baselines")
        tree_model(self.model)

    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        form = subject.rows.input_format
        if form.image is not None:
            raise InputError("TreeShap is for tables, but X holds images; explain them with SOInter.")
        if form.is_categorical.any():
            name = form.feature_names[int(np.argmax(form.is_categorical))]
            raise InputError(
                f"TreeShap takes numbers only, but feature {name!r} holds categories. Encode it before the model, or "
                "use KernelShap."
            )
        self.trees_: list[OutputTrees] = take_apart(subject.rows.model)
        if len(self.trees_) != queried.outputs.n_outputs:
            raise InputError(
                f"TreeShap found {len(self.trees_)} outputs in the trees, but the model returns "
                f"{queried.outputs.n_outputs}; give the fitted estimator itself."
            )

    def _scored(self, source: ExplainedRows, targets: NDArray[np.int64]) -> Scored:
        effects = self._effects(source, targets)
        values, _ = source.encoded_values(targets)
        is_number = of_kind("continuous", source.outputs, targets)
        return Scored(np.where(is_number[:, None], np.abs(effects), effects), values, effects=effects)

    def _effects(self, source: ExplainedRows, targets: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = as_trees_see(source.input_format, source.data)
        effects = np.empty((len(targets), rows.shape[1]))
        predicted = source.predictions[source.sample_of_row, targets]
        for target in np.unique(targets).tolist():
            index = np.flatnonzero(targets == target)
            trees = self.trees_[target]
            effects[index] = towards_predicted(
                trees, trees.values(rows[source.of_samples(index)]), predicted[index], source, target
            )
        return source.groups.sum_columns(effects).astype(np.float32)


def as_trees_see(form: InputFormat, data: Any) -> NDArray[np.float64]:
    """Encoded rows as the numbers that the model gets."""
    seen = as_pandas(form.decode(data))
    if is_sparse(seen):
        seen = seen.toarray()
    elif is_frame(seen):
        seen = seen.to_numpy(dtype=np.float64)
    return np.asarray(seen, dtype=np.float64)


def towards_predicted(
    trees: OutputTrees, values: NDArray[np.float64], predicted: NDArray[Any], source: ExplainedRows, target: int
) -> NDArray[np.float64]:
    """SHAP values (rows, features, columns) of one output, signed towards each row's prediction: (rows, features)."""
    if trees.positive is not None:
        sign = np.where(predicted.astype(np.float64) > 0.5, 1.0, -1.0)
        return np.asarray(sign[:, None] * values[:, :, trees.positive])
    if trees.labels is not None:
        column = np.array([np.flatnonzero(trees.labels == label)[0] for label in predicted])
        return np.asarray(values[np.arange(len(values)), :, column])
    numbers = values[:, :, 0]
    kind, classes = source.outputs.kinds[target], source.outputs.label_sets[target]
    if kind == "continuous" or classes is None:
        return np.asarray(numbers)
    # A regressor that returns labels or probabilities: towards means upwards for those above the middle.
    middle = 0.5 if kind == "probability" else float(np.mean(classes.values().astype(np.float64)))
    return np.asarray(np.where(predicted.astype(np.float64) > middle, 1.0, -1.0)[:, None] * numbers)
