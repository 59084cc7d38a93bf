"""What an explainer says of itself: who it is, as records name it, plots, and its view in notebooks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from sointer._support.validation import check_positive_int, is_integer
from sointer.errors import CheckpointWarning, LoadError

if TYPE_CHECKING:
    from typing_extensions import Self

    from sointer.blackbox.box import BlackBox
    from sointer.explainers.records import Probe


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
    """By which the model can be recognised later; None where an older version saved the explainer."""
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
            warnings.warn(f"{error} It is fitted again, from the outputs kept.", CheckpointWarning, stacklevel=3)
            return False
        adopt(self, fitted_attributes(saved))
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


def adopt(explainer: BaseEstimator, attributes: dict[str, Any]) -> None:
    """Set what another explainer has learned."""
    for name, value in attributes.items():
        setattr(explainer, name, value)


def fitted_attributes(explainer: BaseEstimator) -> dict[str, Any]:
    """What fit has set, by name."""
    return {name: value for name, value in vars(explainer).items() if name.endswith("_") and not name.startswith("_")}


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


class ShowsCouplings(ShowsItself):
    """The plots and the notebook view of `SOInter`."""

    def plot_interactions(self, *, n: int = 40, ax: Any = None) -> Any:
        """Draw a heat map of how strongly outputs are coupled.

        For masks: how strongly a pixel of the mask depends on places in the image, by displacement, on average.

        Parameters
        ----------
        n : int, default 40
            Number of outputs shown: those with the strongest couplings.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib Axes
        """
        from sointer.viz.plots.maps import interactions, neighbours

        explainer: Any = self
        check_is_fitted(explainer, "output_interactions_")
        check_positive_int(n, "n")
        matrix = np.asarray(explainer.output_interactions_)
        if len(matrix) != explainer.n_outputs_:
            return neighbours(matrix, ax=ax)
        shown = np.sort(np.argsort(-matrix.max(axis=1), kind="stable")[:n])
        return interactions(matrix[np.ix_(shown, shown)], [explainer.output_names_[i] for i in shown], ax=ax)

    def _html(self) -> str | None:
        from sointer.viz.plots.notebook import html_explainer

        explainer: Any = self
        if explainer.sequences_ is not None:
            return str(explainer.sequences_._repr_html_())
        return html_explainer(explainer) if hasattr(explainer, "interpreter_") else None
