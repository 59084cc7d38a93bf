"""What every explainer is besides: a scikit-learn estimator, named in records, shown in plots and notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from sointer._support.validation import is_integer, some
from sointer.errors import CheckpointWarning, InputError, LoadError, warn_caller

if TYPE_CHECKING:
    from typing_extensions import Self

    from sointer.blackbox.box import BlackBox
    from sointer.explainers.record_check import Probe
    from sointer.explainers.sequences import SequenceExplainer


class Identified(BaseEstimator):
    """An explainer that can be named in records, and cloned."""

    model: Any
    random_state: Any
    black_box_: BlackBox | None
    method_: str | None = None
    n_queries_: int
    n_queries_replayed_: int = 0
    """Outputs that fit took from its checkpoint; `n_queries_` counts those that it queried itself."""
    probe_: Probe | None = None
    """What the model can be recognised by later; None if an older version saved the explainer."""
    sequences_: SequenceExplainer | None = None
    """The explainer behind this one, where it was fitted on token lists."""
    _known_digest: tuple[Any, str] | None = None

    def identity(self) -> dict[str, Any]:
        """What records say of the explainer and its model."""
        name, seed = None if self.black_box_ is None else self.black_box_.name, self.random_state
        return {
            "explainer": {
                "class": type(self).__name__,
                "sha256": self._digest(),
                "random_state": int(seed) if is_integer(seed) else None,
                "queries_of_fit": getattr(self, "n_queries_", 0) + self.n_queries_replayed_,
            },
            "model": {
                "name": None if name == "<lambda>" else name,
                "method": self.method_,
                "probe": None if self.probe_ is None else self.probe_.summary,
            },
        }

    def _digest(self) -> str | None:
        """SHA-256 of all that decides what is explained, where that can be saved; computed once after each fit."""
        network = getattr(self, "energy_", None)
        if network is None:
            return None
        known = self._known_digest
        if known is None or known[0] is not network:
            known = self._known_digest = network, self._compute_digest()
        return known[1]

    def _compute_digest(self) -> str:
        raise NotImplementedError

    def _adopt_saved(self, path: Path, black_box: BlackBox) -> bool:
        """Become the explainer that a finished fit left in its checkpoint; False if its files were damaged."""
        try:
            saved = self._load_saved(path)
        except LoadError as error:
            warn_caller(f"{error} It is fitted again, from the outputs kept.", CheckpointWarning)
            return False
        self.__dict__.update(fitted_attributes(saved))
        self.black_box_ = black_box
        self.n_queries_, self.n_queries_replayed_ = 0, saved.n_queries_
        return True

    def _load_saved(self, path: Path) -> Identified:
        """The explainer that a fit with the same parameters wrote there."""
        raise NotImplementedError

    def __sklearn_clone__(self) -> Self:
        """An unfitted copy with the same model: cloning must not un-fit what is being explained."""
        params = self.get_params(deep=False)
        model = params.pop("model")
        return type(self)(model, **{name: clone(value, safe=False) for name, value in params.items()})


def fitted_attributes(explainer: BaseEstimator) -> dict[str, Any]:
    """What fit has set, by name."""
    return {name: value for name, value in vars(explainer).items() if name.endswith("_") and not name.startswith("_")}


def refuse_for_sequences(explainer: Any, what: str) -> None:
    """InputError for what only rows with features have."""
    if getattr(explainer, "sequences_", None) is not None:
        raise InputError(
            f"{what} is for tables, texts and images, but this explainer was fitted on sequences, where every token is "
            "a target of its own; use explain, report, score, save, sointer.metrics.evaluate_sequences or, for files "
            "of any size, the command sointer explain."
        )


class ShowsItself:
    """An explainer with a history of its training and a view in notebooks."""

    def plot_history(self, *, ax: Any = None) -> Any:
        """Draw loss and agreement with the model on held-out queries, over the steps of training.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib Axes
        """
        from sointer.viz.plots.bars import history

        explainer: Any = self
        check_is_fitted(explainer, "history_")
        return history(explainer.history_, ax=ax)

    def _html(self) -> str | None:
        """What is explained and how well; None before fit."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """In notebooks: what is explained and how well, once fitted; before that scikit-learn's diagram."""
        from sklearn.utils import estimator_html_repr

        return self._html() or str(estimator_html_repr(self))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


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
        """Return the scores of the selected features, and 0 for all others.

        Use it to cluster samples by their explanations; `explain` returns more.

        Parameters
        ----------
        X : samples, in the format of fit

        Returns
        -------
        array (samples, features or groups)

        Raises
        ------
        InputError
            Unless the explainer was fitted on one output, as in fit(X, targets=["games"]).
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
        """Return the names of the columns of `transform`: features, or groups.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        array of str
        """
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
