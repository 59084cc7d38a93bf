"""What every explainer shares: reading what is to be explained, and turning scores into an Explanation."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from sointer._support.containers import is_dask, is_frame, row_labels
from sointer._support.validation import _some as some
from sointer._support.validation import check_k, check_random_state, resolve_targets
from sointer.blackbox.adapters import as_black_box
from sointer.blackbox.adapters.text import TextPipeline, is_text
from sointer.blackbox.box import N_COMPARED, BlackBox
from sointer.blackbox.replies import WRONG, read_outputs
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.data.targets import NO_REGIONS, Targets, outputs_of, pixels_of_targets, resolve_mask_targets
from sointer.errors import BlackBoxError, InputError
from sointer.explainers.data_checks import (
    refuse_too_many_classes,
    warn_about_constant_features,
    warn_about_far_rows,
    warn_about_unseen_labels,
)
from sointer.explainers.novelty import Distance
from sointer.explanation import Explanation
from sointer.masking.build import make_removal
from sointer.masking.groups import Groups
from sointer.masking.removal import Background, Removal
from sointer.masking.rows import CHUNK_ROWS, Queried, Source, Subject
from sointer.masking.selection import Scored, allowed_units, rank_units, smallest_confirmed
from sointer.paths import NoPaths, Trace

MOST_SCORED_TARGETS = 16
SCORE_DRAWS = 3


class ExplainerMixin(TransformerMixin):
    """An explainer as the last step of a Pipeline, or inside GridSearchCV."""

    def score(self, X: Any, y: Any = None) -> float:
        """Fidelity: the share of rows and targets where the model says the same on the selected features alone.

        The black box is asked once about every row, and for each of its targets about what is left of it, three times
        where removal is random. Where more than 16 outputs were fitted, every row is judged on 16 of them, other ones
        from row to row. y is not used. More features hardly ever keep less of a row, so the largest k of a search wins
        as a rule: look at `cv_results_` for the smallest that is good enough.
        """
        explainer: Any = self
        check_is_fitted(explainer, "outputs_")
        source, targets = explainer._source(X, None), np.array(explainer.targets_)
        row, n_scored = np.arange(source.data.shape[0]), min(len(targets), MOST_SCORED_TARGETS)
        agreement = []
        for place in range(n_scored):
            shift = row if len(targets) > n_scored else 0  # so that all targets have their rows
            target = targets[(place * len(targets) // n_scored + shift) % len(targets)]
            of_rows = np.broadcast_to(target, row.shape).astype(np.int64)
            explanation = explainer.explain(X, of_rows, predicted=Queried(source.answers))
            checked = explanation.source.agreement
            agreement.append(checked(explanation.unit_mask, of_rows, rows=row, n_draws=SCORE_DRAWS, seed=0))
        return float(np.mean(agreement))

    def transform(self, X: Any) -> NDArray[np.float32]:
        """What decides the target of every row, as a table: the scores of the selected features, and 0 for all others.

        (rows, features or groups). It is about the one output that fit was given, as in fit(X, targets=["games"]); use
        it to group rows that are explained alike, or to hand explanations on. `explain` says more.
        """
        explainer: Any = self
        check_is_fitted(explainer, "outputs_")
        if len(explainer.targets_) != 1:
            names = [explainer.output_names_[target] for target in explainer.targets_]
            raise InputError(
                f"transform: {len(names)} outputs were fitted ({some(names)}), expected one, for a table is about one "
                f"target; fit with targets=[{names[0]!r}], or call explain(X, target)."
            )
        explanation = explainer.explain(X)
        return np.asarray(np.where(explanation.unit_mask, explanation.scores, np.float32(0.0)))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The columns of `transform`: features, or groups; input_features is not used."""
        explainer: Any = self
        check_is_fitted(explainer, "outputs_")
        return np.array(explainer.groups_.unit_names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.target_tags.required = False
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = []  # scores are float32, whatever comes in
        return tags


_counting = threading.Lock()
AUTO_K = 10
N_IMAGES = 8
"""Images by which an estimator chooses its method."""


class Explainer(ExplainerMixin, BaseEstimator):
    """The frame of an explainer: `fit` reads and adopts a `Subject`, `_scores` says how much each feature matters."""

    model: Any
    k: int | Literal["auto"]
    removal: Any
    feature_names: Sequence[str] | None
    output_names: Sequence[str] | None
    output_kind: str | None
    tolerance: float | None
    groups: Any
    method: str | None
    batch_size: int | None
    random_state: Any

    method_: str | None = None
    """Of an estimator, the method that is explained: "predict" or "predict_proba"."""
    asks_to_explain: ClassVar[bool] = False
    """Whether every explanation asks the black box."""
    asks_for_sizes: ClassVar[bool] = True
    """Whether k="auto" queries the model about masked samples."""
    text_: TextPipeline | None = None
    """The way from raw texts to words, where fit was given texts."""
    n_explain_queries_: int = 0
    """Rows sent to the black box by all calls of explain since fit."""
    _distance: tuple[Background, Distance] | None = None
    """What `distance` needs, and the training rows it was made from."""

    @abstractmethod
    def _scores(self, source: Source, targets: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Scores (rows, units), larger is more, and the encoded value of each row's target."""

    # --- fitting -----------------------------------------------------------------------------------------

    def _read(self, X: Any, removal: Any, *, seed: int | None = None) -> Subject:
        """Check and encode what the user gave; called by fit itself, so that warnings point to its caller.

        `seed` replaces a random_state that was left open.
        """
        if is_dask(X):
            raise InputError(
                f"fit: X is a dask {type(X).__name__}, expected rows in memory; some thousand rows are enough to learn "
                "from. Fit on a sample, such as X.sample(frac=0.01, random_state=0).compute() of a dataframe or "
                "X[:10_000].compute() of an array; explain() takes the whole collection."
            )
        self.text_ = TextPipeline.of(self.model) if is_text(X) else None
        names = self.feature_names
        if self.text_ is not None:
            X, names = self.text_.count(X), self.text_.words if names is None else names
        input_format = InputFormat.infer(X, feature_names=names)
        data = input_format.encode(X, caller="fit")
        groups = Groups.build(self.groups, input_format.feature_names, input_format.column_feature, input_format)
        k = check_k(self.k, groups.n_units)
        rng = check_random_state(self.random_state if seed is None else seed)
        made = make_removal(removal, data, input_format, rng=rng)
        warn_about_constant_features(data, input_format)
        trained_k = min(AUTO_K, groups.n_units) if k == "auto" else k
        black_box = self._black_box(self.method or self._method_for_kind())
        some = np.unique(np.linspace(0, data.shape[0] - 1, N_COMPARED if input_format.image is None else N_IMAGES))
        black_box.prepare(input_format.decode(data[some.astype(np.int64)]), stacklevel=3)
        return Subject(data, black_box, input_format, groups, made, trained_k, rng)

    def _method_for_kind(self) -> str | None:
        """The method of an estimator that returns outputs of the kind that the user wants, if that says it."""
        is_estimator = hasattr(self.model, "predict_proba") and not isinstance(self.model, BlackBox)
        if not is_estimator or not isinstance(self.output_kind, str):
            return None
        return "predict_proba" if self.output_kind == "probability" else "predict"

    def _black_box(self, method: str | None) -> BlackBox:
        if isinstance(self.model, BlackBox) and self.batch_size is not None:
            raise InputError(
                f"batch_size={self.batch_size!r} was given together with a BlackBox, which has its own "
                f"({self.model.batch_size}); set it there."
            )
        model = self.model if self.text_ is None else self.text_.rest
        return as_black_box(model, method=method, batch_size=self.batch_size)

    def _black_box_again(self) -> BlackBox:
        """The model of a fitted explainer as a black box, asked for what fit asked for: labels or probabilities."""
        of_kind = "predict_proba" if self.outputs_.kind == "probability" else "predict"
        method = self.method_ or of_kind
        if not isinstance(self.model, BlackBox) and callable(getattr(self.model, "predict_proba", None)):
            return self._black_box(method)
        black_box = self._black_box(None)
        black_box.settle_method(method)
        return black_box

    def _outputs(self, raw: NDArray[Any], black_box: BlackBox) -> Outputs:
        """What the outputs are, judging by many answers."""
        names, shape = self._names(black_box), black_box.output_shape
        kind = self._kind_of(black_box)
        outputs = Outputs.infer(raw, names=names, kind=kind, tolerance=self.tolerance, shape=shape)
        refuse_too_many_classes(outputs)
        return outputs

    def _check_first(self, raw: NDArray[Any], black_box: BlackBox, targets: Any) -> None:
        """Refuse wrong names and targets; a few answers say too little about the outputs to refuse more."""
        names, shape = self._names(black_box), black_box.output_shape
        fitted_targets(targets, Outputs.infer(raw, names=names, kind=self._kind_of(black_box), shape=shape))

    def _kind_of(self, black_box: BlackBox) -> Any:
        """The kind of the outputs as the user says, else as the model does; None where neither does."""
        return black_box.declared_kind if self.output_kind is None else self.output_kind

    def _names(self, black_box: BlackBox) -> Sequence[str] | None:
        return self.output_names if self.output_names is not None else black_box.output_names

    def _adopt_subject(self, subject: Subject, outputs: Outputs, targets: list[int]) -> None:
        self.black_box_: BlackBox | None = subject.black_box
        self.method_ = subject.black_box.method
        self.input_format_: InputFormat = subject.input_format
        self.groups_: Groups = subject.groups
        self.removal_: Removal = subject.removal
        self.background_ = Background.of(subject.data, subject.rng)
        self.outputs_: Outputs = outputs
        self.targets_ = targets
        self.n_features_in_ = subject.input_format.n_features
        self.feature_names_in_ = np.array(subject.input_format.feature_names, dtype=object)
        self.n_outputs_ = outputs.n_outputs
        self.output_names_ = list(outputs.names)
        self.n_explain_queries_ = 0

    # --- explaining --------------------------------------------------------------------------------------

    def explain(
        self,
        X: Any,
        target: Any = None,
        *,
        k: int | Literal["auto"] | None = None,
        predicted: Any = None,
        query: bool = True,
        refine: int = 0,
    ) -> Explanation:
        """The features that decide what the model predicts for the target of every sample.

        Parameters
        ----------
        target : an output's name or number, or one per sample; it may be left out where there is one output. For masks
            it is a pixel (row, column), a box np.s_[4:10, 8:20], a set of pixels, a boolean mask, or one of these per
            image.
        k : overrides the constructor's; k="auto" queries the model to confirm each selection.
        predicted : the model's predictions for X, all outputs of every sample. They are explained as given, and the
            model is not queried for them.
        query : query the model once per sample, so that what it predicts is what is explained. With query=False, or
            where there is no model and no `predicted`, what the explainer expects it to predict is explained;
            `explanation.value_source` says so.
        refine : for SOInter only.
        """
        if refine:
            raise InputError(f"refine={refine!r} is for SOInter; {type(self).__name__} cannot refine, leave it out.")
        explanation = self._explain(X, target, k, predicted, query=query, refine=0)
        warn_about_far_rows(explanation, stacklevel=2)
        return explanation

    @property
    def known_columns(self) -> tuple[str, ...]:
        """What `explanation.to_frame()` says besides ranks and scores: of "needed", "effect" and "locality"."""
        return ()

    def distance(self, X: Any) -> NDArray[np.float64]:
        """For each row, how far it lies from the training data: above 1 it is far, as at most 1 % of those were.

        What is compared: docs/trust.md. The black box is not asked. Explanations know it too: `explanation.far`.
        """
        check_is_fitted(self, "outputs_")
        return self._distance_of(self._source(X, None).data)

    def _distance_of(self, data: Any) -> NDArray[np.float64]:
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
            from sointer.integrations.dask import explain

            # Not an Explanation but a lazy table of many, which only those who give dask collections see.
            return explain(  # type: ignore[no-any-return]
                self, X, target, k=k, predicted=predicted, query=bool(query), refine=refine
            )
        source, targets = self._with_targets(self._source(X, predicted), target)
        size = check_k(self.k if k is None else k, source.groups.n_units)
        try:
            return self._explain_source(self._with_predictions(source, bool(query)), targets, size, refine)
        finally:
            with _counting:
                self.n_explain_queries_ += source.sent.n

    def _with_predictions(self, source: Source, query: bool) -> Source:
        """The source with what the model predicts, queried unless it was given or must not be."""
        if source.predicted is not None:
            return source
        if query and source.black_box is not None:
            return source.queried()
        if self.asks_to_explain:
            why = "query=False was given" if source.black_box is not None else "it has no model"
            raise InputError(
                f"{type(self).__name__} explains what the model predicts for each sample, but {why}; leave query=False "
                "out, or pass the model's predictions as predicted=."
            )
        return source

    def _explain_source(
        self, source: Source, targets: NDArray[np.int64], size: int | Literal["auto"], refine: int
    ) -> Explanation:
        scored = self._scored(source, targets)
        values = scored.values
        if source.predicted is None:
            source = replace(source, expected=self.outputs_.label_targets(values, targets))
        else:
            codes, known = self.outputs_.encode_targets(source.predicted, targets, source.regions)
            values = np.where(known, codes, values)
            warn_about_unseen_labels(source, targets, known, stacklevel=4)
        allowed = self._allowed(source)
        needed = scored.needed
        if needed is not None:  # nothing decides an output that never changed in fit
            constant = np.broadcast_to(self.outputs_.constant, (len(targets), self.n_outputs_))
            needed = needed & allowed & (source.at_targets(constant, targets) < 1)[:, None]
        n_ranked = source.groups.n_units if refine or size == "auto" else size
        ranking = self._rank(scored.ranked_by, allowed, source, n_ranked)
        if refine and size != "auto":
            key = scored.scores if scored.key is None else scored.key
            ranking = self._refine(source, ranking, key, values, targets, size, refine)
        sizes = np.full(len(targets), size)
        if size == "auto":
            sizes = self._sizes(source, ranking, targets, values) if needed is None else needed.sum(axis=1)
        trace, distance = self._trace(source, values), self._distance_of(source.data)
        scored = replace(scored, values=values, needed=needed)
        return Explanation.of(ranking, sizes, scored, targets, source, trace, distance)

    def _scored(self, source: Source, targets: NDArray[np.int64]) -> Scored:
        """What is known of the units of rows, by explainers that know more than scores."""
        return Scored(*self._scores(source, targets))

    def _sizes(
        self, source: Source, ranking: NDArray[np.int64], targets: NDArray[np.int64], values: NDArray[Any]
    ) -> NDArray[np.int64]:
        """How many of the best units each row needs, for k="auto": as few as the black box confirms."""
        return smallest_confirmed(source, ranking, targets)

    def _refine(
        self,
        source: Source,
        ranking: NDArray[np.int64],
        scores: NDArray[np.float32],
        values: NDArray[Any],
        targets: NDArray[np.int64],
        k: int,
        n_questions: int,
    ) -> NDArray[np.int64]:
        """Better rankings for n_questions queries a row, from explainers that can."""
        return ranking

    def _trace(self, source: Source, values: NDArray[Any]) -> Trace:
        """What computes an explanation's paths, from explainers that know how outputs hang together."""
        return NoPaths(f"{type(self).__name__} explains every output on its own")

    def _source(self, X: Any, predicted: Any) -> Source:
        labels, texts = row_labels(X), None
        if is_text(X):
            if self.text_ is None:
                raise InputError(
                    "explain: X holds strings, but the explainer was not fitted on strings (or was loaded without its "
                    "pipeline); give what fit was given, or load it with sointer.load(path, black_box=pipeline)."
                )
            X, texts = self.text_.count(X), list(X)
        data = self.input_format_.encode(X, caller="explain")
        from_model = isinstance(predicted, Queried)
        if isinstance(predicted, Queried):
            predicted = predicted.outputs
        elif predicted is not None:
            predicted = self._read_predicted(predicted, data.shape[0])
        return Source(
            self.black_box_,
            self.input_format_,
            self.removal_,
            self.outputs_,
            self.groups_.bind(data),
            self.background_,
            data,
            predicted,
            index=labels,
            texts=texts,
            from_model=from_model,
        )

    def _read_predicted(self, predicted: Any, n_rows: int) -> NDArray[Any]:
        shape = self.outputs_.shape
        each = f"rows of {self.n_outputs_} outputs" if shape is None else f"masks of {shape[0]} x {shape[1]} pixels"
        wanted = f"explain: predicted must be what the model predicts for X, {n_rows} {each}"
        if is_frame(predicted):
            names = [str(column) for column in predicted.columns]
            if sorted(names) == sorted(self.output_names_):
                predicted = predicted.iloc[:, [names.index(name) for name in self.output_names_]]
            elif any(isinstance(column, str) for column in predicted.columns):
                raise InputError(f"{wanted}, got the columns {some(names)}; name them {some(self.output_names_)}.")
        if self.outputs_.kind == "probability":
            predicted = _of_second_class(predicted, self.n_outputs_)
        try:
            table = read_outputs(predicted, n_rows, self.n_outputs_, shape).table
            self.outputs_.encode(table)
        except BlackBoxError as error:
            got = str(error).removeprefix(WRONG).split(". ")[0]
            call = self.method_ or "predict"
            raise InputError(f"{wanted}; {got}. Pass model.{call}(X), whole and in the order of X.") from error
        return table

    def _with_targets(self, source: Source, target: Any) -> tuple[Source, NDArray[np.int64]]:
        """The source with the regions that are explained, and the target of every row."""
        found = self._resolve(target, source.data.shape[0])
        return replace(source, regions=found.regions, region_names=found.region_names), found.index

    def _resolve(self, target: Any, n_rows: int) -> Targets:
        """The target of each of n_rows rows, refused where fit did not learn it."""
        shape = self.outputs_.shape
        if target is None:
            if len(self.targets_) != 1:
                raise InputError(
                    f"target is missing; choose one of the outputs {', '.join(self.output_names_[:5])}"
                    f"{' ...' if self.n_outputs_ > 5 else ''} by name or number, or give one per row."
                )
            target = self.targets_[0]
        if shape is None:
            found = Targets(resolve_targets(target, self.output_names_, n_rows), NO_REGIONS, [])
        else:
            found = resolve_mask_targets(target, self.output_names_, shape, n_rows)
        asked = outputs_of(found.index, self.n_outputs_, found.regions)
        unknown = asked[~np.isin(asked, self.targets_)]
        if len(unknown):
            raise InputError(
                f"target {self.output_names_[unknown[0]]!r} was not among the targets given to fit "
                f"({', '.join(self.output_names_[t] for t in self.targets_[:5])}"
                f"{' ...' if len(self.targets_) > 5 else ''}); fit again with it, or without targets= for all outputs."
            )
        return found

    def _allowed(self, source: Source) -> NDArray[np.bool_]:
        """Units that differ from their reference, the only ones that can be chosen: (rows, units)."""
        n_rows = source.data.shape[0]
        allowed = np.empty((n_rows, source.groups.n_units), dtype=bool)
        for start in range(0, n_rows, CHUNK_ROWS):
            some = slice(start, min(start + CHUNK_ROWS, n_rows))
            groups = source.groups.take(np.arange(some.start, some.stop))
            allowed[some] = allowed_units(source.removal, groups, source.rows(some))
        return allowed

    def _rank(
        self, scores: NDArray[np.float32], allowed: NDArray[np.bool_], source: Source, n: int
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
        """Write a page (one HTML file that works offline) on which people can look around; returns its path.

        Of tables and texts: how good the explainer is, what decides each target, every sample's explanations, and how
        outputs hang together. Of masks: a click on any pixel shows what made it so; of images with more than 1,024
        pixels some rows and columns are left out.

        Parameters
        ----------
        X : samples to show; of more than n_samples, some are drawn at random (of images, the first). Fewer are shown
            where the file would exceed 5 MB.
        targets : outputs to show, by name or number; all that fit was asked for, unless told.
        k : how many features are shown, at most; the explainer's own unless told; if that is "auto", 10, of pixels 50.
        predicted : the model's predictions for X; without it the model, if there is one, is queried once per sample.
        verify : how many questions the black box may be asked to confirm explanations: a number, True for as many as it
            takes, False for none; None for at most as many as fit asked.
        sample_names : one name per row of X; otherwise the labels of a DataFrame, or row numbers.
        paths : follow features through other outputs: True for the five targets that depend most on others, a
            number for as many, False for none. Takes a few seconds for each.
        """
        from sointer.viz.report.write import write_report

        return write_report(
            self,
            X,
            path,
            targets=targets,
            n_samples=n_samples,
            k=k,
            predicted=predicted,
            verify=verify,
            title=title,
            sample_names=sample_names,
            paths=paths,
        )

    def __sklearn_clone__(self) -> Explainer:
        """An unfitted copy with the same model: cloning must not un-fit what is being explained."""
        params = self.get_params(deep=False)
        model = params.pop("model")
        return type(self)(model, **{name: clone(value, safe=False) for name, value in params.items()})


def _of_second_class(predicted: Any, n_outputs: int) -> Any:
    """What predict_proba returned as one column per output: a table (samples, 2) of each, or the only one."""
    if isinstance(predicted, list) and len(predicted) == n_outputs and all(np.ndim(p) == 2 for p in predicted):
        tables = [np.asarray(one) for one in predicted]
        return np.column_stack([one[:, 1] for one in tables]) if all(one.shape[1] == 2 for one in tables) else predicted
    if n_outputs == 1 and isinstance(predicted, np.ndarray) and predicted.ndim == 2 and predicted.shape[1] == 2:
        return predicted[:, 1]
    return predicted


def fitted_targets(targets: Any, outputs: Outputs) -> list[int]:
    """The outputs that fit was asked to explain, by number; all of them if it was not told.

    In masks, these are all pixels of the pixels, boxes, sets and masks that it was given.
    """
    if targets is None:
        return list(range(outputs.n_outputs))
    if outputs.shape is not None:
        return [int(pixel) for pixel in pixels_of_targets(targets, outputs.names, outputs.shape)]
    if isinstance(targets, str | int | np.integer):
        raise InputError(f"fit: targets must be a list of outputs, got {targets!r}; write targets=[{targets!r}].")
    chosen = list(dict.fromkeys(int(t) for t in resolve_targets(list(targets), outputs.names, len(targets))))
    if not chosen:
        raise InputError("fit: targets is empty; name at least one output, or leave it out for all.")
    return chosen
