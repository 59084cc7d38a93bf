"""What every explainer shares: reading what is to be explained, and turning scores into an Explanation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from sointer._support.containers import is_dask
from sointer._support.torch_state import ForkSafeLock
from sointer._support.validation import check_k
from sointer.errors import InputError
from sointer.explainers.data_checks import (
    refuse_beyond_memory,
    warn_about_far_rows,
    warn_about_number,
    warn_about_unseen_labels,
)
from sointer.explainers.estimator import ExplainerMixin, Identified, refuse_for_sequences
from sointer.explainers.novelty import BesideTexts, Distance
from sointer.explainers.reading import ReadsModelAndData
from sointer.explainers.records import Provenance
from sointer.explainers.sequence_explanation import SequenceExplanation
from sointer.explanation import Explanation
from sointer.masking.removal import Background
from sointer.masking.rows import CHUNK_ROWS, ExplainedRows
from sointer.masking.selection import (
    N_DRAWS,
    Likely,
    Scored,
    allowed_units,
    rank_units,
    refine_ranking,
    smallest_confirmed,
)
from sointer.paths import NO_PATHS_OF_IMAGES, NoPaths, Trace

_counting = ForkSafeLock()
TokenLists: TypeAlias = Sequence[list[str] | tuple[str, ...]]
"""Sequences; a list of strings, which are texts, is none."""


class Explainer(ReadsModelAndData, ExplainerMixin, Identified):
    """The frame of an explainer: `fit` reads and adopts a `Subject`, `_scored` says how much each feature matters."""

    queries_to_explain: ClassVar[bool] = False
    """Whether every explanation queries the model."""
    queries_for_sizes: ClassVar[bool] = True
    """Whether k="auto" queries the model about masked samples."""
    _distance: tuple[Background, Distance | BesideTexts] | None = None
    """What `distance` needs, and the training rows it was made from."""

    @abstractmethod
    def _scored(self, source: ExplainedRows, targets: NDArray[np.int64]) -> Scored:
        """How much each unit of each row matters, and the encoded value of the row's target."""

    # --- explaining --------------------------------------------------------------------------------------

    @overload
    def explain(
        self,
        X: TokenLists,
        target: Any = ...,
        *,
        k: int | Literal["auto"] | None = ...,
        predicted: Any = ...,
        query: bool = ...,
        refine: int = ...,
    ) -> SequenceExplanation: ...
    @overload
    def explain(
        self,
        X: Any,
        target: Any = ...,
        *,
        k: int | Literal["auto"] | None = ...,
        predicted: Any = ...,
        query: bool = ...,
        refine: int = ...,
    ) -> Explanation: ...
    def explain(
        self,
        X: Any,
        target: Any = None,
        *,
        k: int | Literal["auto"] | None = None,
        predicted: Any = None,
        query: bool = True,
        refine: int = 0,
    ) -> Explanation | SequenceExplanation:
        """Find the features that decide the model's prediction of a target, for every sample.

        SOInter queries the model once per sample. For dask collections use `sointer.integrations.dask.explain`.

        Parameters
        ----------
        X : samples, in the format of fit
        target : int, str, sequence, or pixels
            Name or index of an output, or one per sample; optional if there is only one output. "all": all fitted
            outputs of every sample (see `explanation.sample`). For masks a pixel (row, column), a box np.s_[4:10,
            8:20], a set of pixels, a boolean mask, or one of these per image. For sequences one or several positions,
            or "all" (default).
        k : int or "auto", optional
            Number of features; default: the constructor's. With "auto", baselines query the model.
        predicted : array or DataFrame, optional
            The model's predictions for X, all outputs. They are explained as given, and the model is not queried.
        query : bool, default True
            With False, or without a model, expected values are explained (`explanation.value_source`).
        refine : int, default 0
            SOInter only: maximum number of extra queries per sample, to confirm the selection or find a better one;
            `selected` then starts with the confirmed features and may differ from the order of `scores`.

        Returns
        -------
        Explanation or SequenceExplanation
            The latter if the explainer was fitted on token lists: its entries are tokens.

        Raises
        ------
        InputError
            If X, target, predicted or an option does not fit.
        BlackBoxError
            If the model fails or returns an invalid result.
        """
        if self.sequences_ is not None:
            if refine:
                raise InputError(
                    f"refine={refine!r} is not for sequences; leave it out, and verify() what is selected."
                )
            target = "all" if target is None else target
            try:
                return self.sequences_.explain(X, target, k=k, predicted=predicted, query=query)
            finally:
                self.n_explain_queries_ = self.sequences_.n_explain_queries_
        explanation = self._explain(X, target, k, predicted, query=query, refine=self._check_refine(refine, k))
        warn_about_number(target, self.output_names_)
        self._warn_about(explanation)
        return explanation

    def _check_refine(self, refine: Any, k: int | Literal["auto"] | None) -> int:
        """How many queries may refine the selection of each row."""
        if refine:
            raise InputError(f"refine={refine!r} is for SOInter; {type(self).__name__} cannot refine, leave it out.")
        return 0

    def _warn_about(self, explanation: Explanation) -> None:
        """Say what makes an explanation doubtful."""
        warn_about_far_rows(explanation)

    @property
    def known_columns(self) -> tuple[str, ...]:
        """What `explanation.to_frame()` says besides ranks and scores, of "needed", "effect" and "locality"."""
        return ()

    def distance(self, X: Any) -> NDArray[np.float64]:
        """Return each sample's distance from the training data; above 1 it is far.

        At most 1 % of samples like the training data are far. The model is not queried. See `explanation.far` and
        docs/concepts/trust.md.

        Parameters
        ----------
        X : samples, in the format of fit

        Returns
        -------
        array (samples,)
            NaN if the explainer was saved without training data.

        Raises
        ------
        InputError
            If X does not fit, or the explainer was fitted on sequences.
        """
        check_is_fitted(self, "outputs_")
        refuse_for_sequences(self, "distance")
        return self._distance_of(self._source(X, None).data)

    def _distance_of(self, data: Any) -> NDArray[np.float64]:
        if self.background_.rows.shape[0] == 0:  # saved without them, so that nothing can be said
            return np.full(data.shape[0], np.nan)
        known = self._distance
        if known is None or known[0] is not self.background_:
            known = self._distance = self.background_, Distance.of(self.background_, self.input_format_.image)
        return known[1](data)

    def _explain(
        self, X: Any, target: Any, k: int | Literal["auto"] | None, predicted: Any, *, query: bool, refine: int
    ) -> Explanation:
        check_is_fitted(self, "outputs_")
        if not isinstance(query, bool | np.bool_):
            raise InputError(
                f"query must be True (the model is queried once per sample, default) or False (it is not), got "
                f"{query!r}. To give its predictions yourself, use predicted=."
            )
        if is_dask(X):
            raise InputError(
                f"explain: X is a dask {type(X).__name__}, expected samples in memory; call "
                "sointer.integrations.dask.explain(explainer, X, ...), which returns a lazy dask DataFrame."
            )
        source, targets = self._with_targets(self._source(X, predicted), target)
        return self._explain_rows(source, targets, k, query=bool(query), refine=refine)

    def _explain_rows(
        self,
        source: ExplainedRows,
        targets: NDArray[np.int64],
        k: int | Literal["auto"] | None = None,
        *,
        query: bool = True,
        refine: int = 0,
    ) -> Explanation:
        """Explain rows that were read before, each about one target of one sample."""
        size = check_k(self.k if k is None else k, source.groups.n_units)
        refuse_beyond_memory(len(targets), source.groups.n_units)
        sent_before = source.sent.n
        try:
            explanation = self._explain_source(self._with_predictions(source, query), targets, size, refine)
            return replace(explanation, provenance=Provenance(self, size, refine, source.sent.n - sent_before))
        finally:
            with _counting:
                self.n_explain_queries_ += source.sent.n - sent_before

    def _with_predictions(self, source: ExplainedRows, query: bool) -> ExplainedRows:
        """The source with what the model predicts, queried unless it was given or must not be."""
        if source.predicted is not None:
            return source
        if query and source.black_box is not None:
            return source.queried()
        if self.queries_to_explain:
            why = "query=False was given" if source.black_box is not None else "it has no model"
            raise InputError(
                f"{type(self).__name__} explains what the model predicts for each sample, but {why}; leave query=False "
                "out, or pass the model's predictions as predicted=."
            )
        return source

    def _explain_source(
        self, source: ExplainedRows, targets: NDArray[np.int64], size: int | Literal["auto"], refine: int
    ) -> Explanation:
        scored = self._scored(source, targets)
        values = scored.values
        if source.predicted is None:
            source = replace(source, expected=self.outputs_.label_targets(values, targets))
        else:
            codes, known = source.encoded_values(targets)
            values = np.where(known, codes, values)
            warn_about_unseen_labels(source, targets, known)
        allowed = self._allowed(source)
        needed = scored.needed
        if needed is not None:  # nothing decides an output that never changed in fit
            constant = np.broadcast_to(self.outputs_.constant, (len(targets), self.n_outputs_))
            needed = needed & allowed & (source.at_targets(constant, targets) < 1)[:, None]
        n_ranked = source.groups.n_units if refine or size == "auto" else size
        ranking = self._rank(scored.ranked_by, allowed, source, n_ranked)
        if refine and size != "auto":
            ranking = refine_ranking(
                source,
                self._likely(source, targets, values),
                ranking,
                scored.scores if scored.key is None else scored.key,
                targets,
                size,
                n_queries=refine,
                n_draws=N_DRAWS if self.removal_.is_random else 1,
                seed=0,
            )
        sizes = np.full(len(targets), size)
        if size == "auto":
            sizes = self._sizes(source, ranking, targets, values) if needed is None else needed.sum(axis=1)
        trace, distance = self._trace(source, values), self._distance_of(source.data)[source.sample_of_row]
        scored = replace(scored, values=values, needed=needed)
        return Explanation.of(ranking, sizes, scored, targets, source, trace, distance)

    def _sizes(
        self, source: ExplainedRows, ranking: NDArray[np.int64], targets: NDArray[np.int64], values: NDArray[Any]
    ) -> NDArray[np.int64]:
        """How many of the best units each row needs, for k="auto": as few as the black box confirms."""
        return smallest_confirmed(source, ranking, targets)

    def _likely(self, source: ExplainedRows, targets: NDArray[np.int64], values: NDArray[Any]) -> Likely:
        """How likely selections are to keep the values, from explainers that refine."""
        raise NotImplementedError

    def _trace(self, source: ExplainedRows, values: NDArray[Any]) -> Trace:
        """What computes an explanation's paths, from explainers that know how outputs depend on each other."""
        if self.input_format_.image is not None:
            return NO_PATHS_OF_IMAGES
        return NoPaths(f"{type(self).__name__} explains every output on its own")

    def _allowed(self, source: ExplainedRows) -> NDArray[np.bool_]:
        """Units that differ from their reference, the only ones that can be chosen: (rows, units)."""
        allowed = np.empty((source.n_samples, source.groups.n_units), dtype=bool)
        for start in range(0, source.n_samples, CHUNK_ROWS):
            chunk = slice(start, start + CHUNK_ROWS)
            allowed[chunk] = allowed_units(source.removal, source.groups.take(chunk), source.samples(chunk))
        return allowed if source.sample is None else allowed[source.sample]

    def _rank(
        self, scores: NDArray[np.float32], allowed: NDArray[np.bool_], source: ExplainedRows, n: int
    ) -> NDArray[np.int64]:
        """At least the n best units of each row, best first, then -1 for those that cannot be chosen."""
        return rank_units(scores, allowed, n)

    def report(
        self,
        X: Any,
        path: str | PathLike[str],
        *,
        targets: Sequence[int | str] | None = None,
        n_samples: int = 500,
        k: int | None = None,
        predicted: Any = None,
        verify: bool | int | None = None,
        title: str | None = None,
        sample_names: Sequence[str] | None = None,
        paths: bool | int = True,
    ) -> Path:
        """Write an interactive report, a single HTML file that works offline, and return its path.

        For masks, click a pixel to see what decided it (beyond 1,024 pixels, some rows and columns are left out); for
        sequences, click a label. See docs/how-to/plots-and-reports.md.

        Parameters
        ----------
        X : samples, in the format of fit
            If there are more than n_samples, a random subset is shown (of images, the first).
        path : path
            Where to write the file.
        targets : sequence of int or str, optional
            Outputs to show; default: all that were fitted.
        n_samples : int, default 500
            Maximum number of samples shown; fewer if the file would exceed 5 MB.
        k : int, optional
            Maximum number of features shown; default: the explainer's own, or 10 if that is "auto" (50 pixels).
        predicted : array or DataFrame, optional
            The model's predictions for X; otherwise the model, if there is one, is queried once per sample.
        verify : bool or int, optional
            Maximum number of queries to confirm explanations; True: no limit. Default: as many as in fit.
        title : str, optional
            Title of the page.
        sample_names : sequence of str, optional
            One name per sample; default: the labels of a DataFrame, or numbers.
        paths : bool or int, default True
            For how many targets paths are computed, a few seconds each. True: the five that depend most on others.

        Returns
        -------
        Path
        """
        from sointer.viz.report import ReportOptions, write_report

        options = ReportOptions(n_samples, k, predicted, verify, title, sample_names, paths)
        return write_report(self, X, path, targets, options)
