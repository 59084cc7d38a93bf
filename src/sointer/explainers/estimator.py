"""What scikit-learn expects of an explainer: score, transform and tags."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sointer._support.validation import some
from sointer.errors import InputError
from sointer.explainers.sequence_dispatch import refuse_for_sequences

MAX_SCORED_TARGETS = 16
SCORE_DRAWS = 3


class ExplainerMixin(TransformerMixin):
    """An explainer as the last step of a Pipeline, or in GridSearchCV."""

    def score(self, X: Any, y: Any = None) -> float:
        """Return fidelity: the share of samples and targets whose prediction stays on the selected features alone.

        The model is queried once per sample, and for each of its targets once with everything else removed (three times
        if removal is random). If more than 16 outputs were fitted, 16 are scored per sample. Fidelity rarely falls
        with k, so a search usually picks the largest: look at `cv_results_` for the smallest that is good enough.

        Parameters
        ----------
        X : samples, in the format of fit
        y : ignored

        Returns
        -------
        float
        """
        explainer: Any = self
        check_is_fitted(explainer, "outputs_")
        if explainer.sequences_ is not None:
            return float(explainer.sequences_.score(X))
        source, targets = explainer._source(X, None).queried(), np.array(explainer.targets_)
        row, n_scored = np.arange(source.n_samples), min(len(targets), MAX_SCORED_TARGETS)
        agreement = []
        for place in range(n_scored):
            shift = row if len(targets) > n_scored else 0  # so that all targets have their rows
            target = targets[(place * len(targets) // n_scored + shift) % len(targets)]
            of_rows = np.broadcast_to(target, row.shape).astype(np.int64)
            explanation = explainer._explain_rows(source, of_rows)
            checked = explanation.source.agreement
            agreement.append(checked(explanation.unit_mask, of_rows, rows=row, n_draws=SCORE_DRAWS, seed=0))
        return float(np.mean(agreement))

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the scores of the selected features, and 0 for all others: (samples, features or groups).

        The explainer must be fitted on one output, as in fit(X, targets=["games"]). Use it to cluster samples by their
        explanations; `explain` returns more.
        """
        explainer: Any = self
        check_is_fitted(explainer, "outputs_")
        refuse_for_sequences(explainer, "transform")
        if len(explainer.targets_) != 1:
            names = [explainer.output_names_[target] for target in explainer.targets_]
            raise InputError(
                f"transform: {len(names)} outputs were fitted ({some(names)}), expected one, for a table is about one "
                f"target; fit with targets=[{names[0]!r}], or call explain(X, target)."
            )
        explanation = explainer.explain(X)
        return np.asarray(np.where(explanation.unit_mask, explanation.scores, np.float32(0.0)))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns of `transform`: features, or groups; input_features is not used."""
        explainer: Any = self
        check_is_fitted(explainer, "outputs_")
        refuse_for_sequences(explainer, "get_feature_names_out")
        return np.array(explainer.groups_.unit_names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True  # if the model does
        tags.target_tags.required = False
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = []  # scores are float32, whatever comes in
        return tags
