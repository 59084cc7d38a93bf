"""TreeSHAP: exact Shapley values of tree models, read off their trees by the `shap` package."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import is_frame, is_sparse
from sointer._support.formatting import of_kind
from sointer.base import Subject
from sointer.baselines.baseline import Answers, Baseline
from sointer.baselines.tree_models import OutputTrees, take_apart, tree_model
from sointer.data.inputs import InputFormat
from sointer.errors import InputError, require_extra
from sointer.masking.rows import Source
from sointer.masking.selection import Scored


class TreeShap(Baseline):
    """TreeSHAP (Lundberg et al. 2020), with the `shap` package. It looks inside the model, which must be of trees.

    Supported are decision trees, random forests, extra trees, gradient boosting and histogram gradient boosting of
    scikit-learn, multi-output or inside MultiOutputClassifier, MultiOutputRegressor or OneVsRestClassifier, and what
    shap reads of xgboost, lightgbm and catboost. Not supported: ClassifierChain, functions, pipelines, categories.

    Scores are signed towards the value predicted: positive units speak for it. They are in the unit of the trees: the
    probability of the predicted label for forests, its log-odds for boosting. For numbers the score is the size of the
    effect. Absent features follow the shares of training rows in each branch (shap's "tree_path_dependent"), not
    `removal`. Explaining queries the model once per sample, for the value to explain, unless predicted= is given.

    Parameters are those of SOInter.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sointer.baselines import TreeShap
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> forest = RandomForestClassifier(20, random_state=0).fit(X, X[:, [0, 3]] > 0)
    >>> explainer = TreeShap(forest, k=1, random_state=0).fit(X)
    >>> explainer.explain(X[:3], target=1).selected.ravel().tolist(), explainer.n_explain_queries_
    ([3, 3, 3], 3)
    """

    asks_to_explain = True

    def _check_settings(self) -> None:
        require_extra("shap", "baselines")
        if self.text_ is None and not hasattr(self.model, "named_steps"):  # a pipeline may begin with a vectoriser
            tree_model(self.model)

    def _learn(self, subject: Subject, answers: Answers) -> None:
        form = subject.input_format
        if form.image is not None:
            raise InputError("TreeShap is for tables, but X holds images; explain them with SOInter.")
        if form.is_categorical.any():
            name = form.feature_names[int(np.argmax(form.is_categorical))]
            raise InputError(
                f"TreeShap takes numbers only, but feature {name!r} holds categories. Encode it before the model, or "
                "use KernelShap."
            )
        self.trees_: list[OutputTrees] = take_apart(subject.black_box)
        if len(self.trees_) != answers.outputs.n_outputs:
            raise InputError(
                f"TreeShap found {len(self.trees_)} outputs in the trees, but the model returns "
                f"{answers.outputs.n_outputs}; give the fitted estimator itself."
            )

    def _scores(self, source: Source, targets: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        effects = self._effects(source, targets)
        values, _ = source.outputs.encode_targets(source.answers, targets, source.regions)
        is_number = of_kind("continuous", source.outputs, targets)
        return np.where(is_number[:, None], np.abs(effects), effects), values

    def _scored(self, source: Source, targets: NDArray[np.int64]) -> Scored:
        scores, values = self._scores(source, targets)
        return Scored(scores, values, effects=self._effects(source, targets))

    def _effects(self, source: Source, targets: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = as_trees_see(source.input_format, source.data)
        effects = np.empty(rows.shape)
        predicted = source.at_targets(source.answers, targets)
        for target in np.unique(targets).tolist():
            index = np.flatnonzero(targets == target)
            trees = self.trees_[target]
            effects[index] = towards_predicted(trees, trees.values(rows[index]), predicted[index], source, target)
        return source.groups.sum_columns(effects).astype(np.float32)


def as_trees_see(form: InputFormat, data: Any) -> NDArray[np.float64]:
    """Encoded rows as the numbers that the model gets."""
    seen = form.decode(data)
    if is_sparse(seen):
        seen = seen.toarray()
    elif is_frame(seen):
        seen = seen.to_numpy(dtype=np.float64)
    return np.asarray(seen, dtype=np.float64)


def towards_predicted(
    trees: OutputTrees, values: NDArray[np.float64], predicted: NDArray[Any], source: Source, target: int
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
