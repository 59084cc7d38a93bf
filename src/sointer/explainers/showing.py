"""How a fitted SOInter shows itself: plots, and its view in notebooks."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sointer._support.validation import check_positive_int


class ShowsItself:
    """Plots and the notebook view of `SOInter`."""

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

    def _repr_html_(self) -> str:
        """In notebooks: what is explained and how well, once fitted; before that scikit-learn's diagram."""
        from sklearn.utils import estimator_html_repr

        from sointer.viz.plots.notebook import html_explainer

        explainer: Any = self
        if explainer.sequences_ is not None:
            return str(explainer.sequences_._repr_html_())
        return html_explainer(explainer) if hasattr(explainer, "interpreter_") else str(estimator_html_repr(explainer))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
