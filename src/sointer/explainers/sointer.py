"""SOInter: the estimator that users see."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from sointer._support.devices import device_of, resolve_device
from sointer._support.torch_state import one_thread
from sointer._support.validation import check_positive_int, is_integer
from sointer.blackbox.checkpoint import Checkpoint
from sointer.config import EnergyConfig, InterpreterConfig, Preset, Rows, TrainingConfig
from sointer.energy.interactions import output_interactions
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import VectorEnergy
from sointer.errors import CheckpointWarning, InputError, LoadError
from sointer.explainers.base import Explainer
from sointer.explainers.data_checks import warn_about_no_opposite
from sointer.explainers.records import Probe
from sointer.explainers.sequence_dispatch import fit_sequences, refuse_for_sequences, save_sequences
from sointer.explainers.tracing import Tracer
from sointer.explanation import Explanation
from sointer.interpreter.image import ImageInterpreter
from sointer.interpreter.image_scoring import ImageScorer
from sointer.interpreter.networks import EliminationInterpreter
from sointer.interpreter.scoring import RowScorer, Scorer, describe_localities
from sointer.interpreter.tables import TableInterpreter
from sointer.interpreter.text_scoring import SCORERS
from sointer.masking.rows import ExplainedRows, Subject
from sointer.masking.selection import N_DRAWS, EnergyConfirms, Scored, refine_ranking, smallest_confirmed
from sointer.paths import Localities, NoPaths, Trace

if TYPE_CHECKING:
    from sointer.training.context import FitContext, Trained


class SOInter(Explainer):
    """Explains one output at a time of a model that predicts many, by the few features that decide it.

    Parameters
    ----------
    model : function X -> Y, fitted scikit-learn estimator, torch module, or BlackBox; X may be a list of strings, or of
        token lists with an output for every token (then see SequenceExplainer, which stands behind it).
    k : how many features to select, or "auto": those that matter for each row, without any query.
    removal : what "absent" means: "zero", "mean", "marginal" (another row's values), "conditional" (those of a row
        that is alike in what is kept), an array, a function (x, keep, rng) -> x, or "auto" (zero for mostly-zero
        data, else marginal). Of texts, "delete", or a token such as "[MASK]" in place of each word.
    structured : let features act through other outputs; False explains each output alone (SOInter-1).
    preset : "default" (what works best) or "paper" (SOInter as published).
    feature_names, output_names : names, where the data or the model bring none.
    output_kind : "binary", "categorical", "probability" or "continuous", for all outputs; or a list with one for each,
        or a dictionary by name. What is left open is read off the model's predictions.
    method : of an estimator, what is explained: "predict" or "predict_proba"; None takes the probabilities where their
        most probable labels are those that predict returns, else predict. Of more than two classes the label that
        predict returns is explained, and probabilities only teach.
    tolerance : continuous outputs that differ by at most this share of their standard deviation agree (0.1).
    groups : features that stand or fall together, as {name: features}; of texts see docs/texts.md.
    query_budget : most rows sent to the black box during fit.
    batch_size : most rows sent to the black box in one call (default 1024).
    random_state : a number gives the same explainer every time.
    verbose : show progress; None shows it on a terminal only.
    device : where networks are computed: "cpu", "cuda", "cuda:1", "mps", or "auto" for the best that is there. The
        model stays where it is, and so do inputs that are torch tensors.
    energy, interpreter, training : finer settings; print `explainer.config_` to see them all.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer import SOInter
    >>> X = np.random.default_rng(0).normal(size=(500, 6))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 0] * X[:, 1] > 0])
    >>> explainer = SOInter(model, k=2, random_state=0).fit(X)
    >>> sorted(explainer.explain(X[:1], target=1).selected[0].tolist())
    [0, 1]
    """

    asks_for_sizes = False
    n_queries_replayed_: int = 0
    """Answers that fit took from its checkpoint; `n_queries_` counts those that it asked for itself."""
    _tracer: Tracer | None = None
    _folded: tuple[ImageInterpreter, ImageInterpreter] | None = None
    """The interpreter, and the same made quicker, which takes longer than an explanation."""
    _interactions: NDArray[np.float32] | None = None
    _known_digest: tuple[Any, str] | None = None

    def __init__(
        self,
        model: Any,
        *,
        k: int | Literal["auto"] = "auto",
        removal: Any = "auto",
        structured: bool = True,
        preset: Preset = "default",
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        output_kind: str | None = None,
        method: str | None = None,
        tolerance: float | None = None,
        groups: Any = None,
        query_budget: int | None = None,
        batch_size: int | None = None,
        random_state: Any = None,
        verbose: bool | None = None,
        device: str = "cpu",
        energy: EnergyConfig | None = None,
        interpreter: InterpreterConfig | None = None,
        training: TrainingConfig | None = None,
    ) -> None:
        self.model = model
        self.k = k
        self.removal = removal
        self.structured = structured
        self.preset = preset
        self.feature_names = feature_names
        self.output_names = output_names
        self.output_kind = output_kind
        self.method = method
        self.tolerance = tolerance
        self.groups = groups
        self.query_budget = query_budget
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.energy = energy
        self.interpreter = interpreter
        self.training = training

    # --- fitting -----------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        targets: Sequence[int | str] | None = None,
        checkpoint: str | PathLike[str] | None = None,
    ) -> SOInter:
        """Learn to explain the model on data X, for all outputs or for some; y is not used.

        `targets` limits which outputs will be explained (by name or number); the others still help. `checkpoint` is a
        directory that keeps every answer of the model as it arrives, and the state of training: if fit is stopped, by
        whatever, the same call goes on from there, asks and learns nothing again, and gives the same explainer. See
        docs/reliability.md.
        """
        from sointer.explainers import fitting  # saved explainers are loaded and used without what trains them

        if fit_sequences(self, X, targets, checkpoint):
            return self
        fitting.check_settings(self)
        device = resolve_device(self.device)
        wants_auto = isinstance(self.removal, str) and self.removal == "auto"
        removal = "zero" if wants_auto and self.preset == "paper" else self.removal
        with nullcontext() if checkpoint is None else Checkpoint(checkpoint, self.random_state) as kept:
            subject = self._read(X, removal, seed=None if kept is None else kept.seed)
            black_box = fitting.replayed(self, kept, subject, targets)
            snapshots = fitting.snapshots_in(kept)
            if kept is not None and kept.is_finished and self._adopt_saved(kept, subject):
                snapshots.clear()
                return self
            context, plan = fitting.make_context(self, subject, black_box, targets)
            context.snapshots = snapshots
            recipe = fitting.recipe_for(self, subject)
            queries_before = subject.rows.model.n_queries
            try:
                with black_box.budget(self.query_budget), one_thread(device, lasts=True):
                    trained = recipe(context)
            finally:
                context.history.close()
                context.asker.stop()
            self._adopt_subject(subject, trained.outputs, trained.targets)
            self._adopt(trained, context)
            queried, codes = trained.whole
            self.training_codes_ = fitting.distinct_codes(subject.rows.data[queried], codes)
            self.n_queries_ = subject.rows.model.n_queries - queries_before
            self.n_queries_replayed_ = 0 if kept is None else kept.journal.n_replayed
            if kept is not None and not trained.interrupted:
                kept.keep(self.save)
                snapshots.clear()
            fitting.warn_about_fit(self, context, trained, plan)
            return self

    def _adopt_saved(self, kept: Checkpoint, subject: Subject) -> bool:
        """Become the explainer that was fitted with this checkpoint before; False if its files were damaged."""
        from sointer.io.explainers import load

        try:
            removal = self.removal if callable(self.removal) else None
            saved = load(kept.finished, self.model, removal=removal, device=self.device)
        except LoadError as error:
            warnings.warn(f"{error} It is fitted again, from the answers kept.", CheckpointWarning, stacklevel=3)
            return False
        for name, value in vars(saved).items():
            if name.endswith("_") and not name.endswith("__"):
                setattr(self, name, value)
        self.black_box_, self._interactions = subject.rows.model, None
        self.n_queries_, self.n_queries_replayed_ = 0, saved.n_queries_
        return True

    def _adopt(self, trained: Trained, context: FitContext) -> None:
        self.shift_ = context.shift
        self.energy_ = trained.energy
        self.interpreter_ = trained.interpreter.eval()
        self.config_ = context.configs
        self.held_out_agreement_ = float(trained.quality.agreement.mean())
        self.held_out_skill_ = trained.quality.mean_skill()
        self.output_agreement_, self.output_skill_ = trained.quality.agreement, trained.quality.skill
        self.history_: list[dict[str, Any]] = context.history.rows
        self._interactions = None
        self.probe_ = None if context.probe is None else Probe.of(*context.probe)

    @property
    def output_interactions_(self) -> NDArray[np.float32]:
        """(outputs, outputs) how strongly the energy couples each pair; computed when first asked for."""
        check_is_fitted(self, "energy_")
        refuse_for_sequences(self, "output_interactions_")
        if self._interactions is None:
            with one_thread(device_of(self.energy_)):
                self._interactions = output_interactions(self.energy_)
        return self._interactions

    # --- explaining --------------------------------------------------------------------------------------

    def _check_refine(self, refine: Any, k: int | Literal["auto"] | None) -> int:
        if not is_integer(refine) or refine < 0:
            raise InputError(f"refine must be a whole number of queries per row, 0 or more, got {refine!r}.")
        if refine and (self.k if k is None else k) == "auto":
            raise InputError('refine= looks for a better selection of k features, but k="auto" is no number; give k=.')
        return int(refine)

    def _warn_about(self, explanation: Explanation, *, stacklevel: int) -> None:
        super()._warn_about(explanation, stacklevel=stacklevel + 1)
        warn_about_no_opposite(explanation, stacklevel=stacklevel + 1)

    def _scored(self, source: ExplainedRows, targets: NDArray[np.int64]) -> Scored:
        return self._scorer.scores(source, targets)

    def _scores(self, source: ExplainedRows, targets: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        scored = self._scored(source, targets)
        return scored.scores, scored.values

    def _sizes(
        self, source: ExplainedRows, ranking: NDArray[np.int64], targets: NDArray[np.int64], values: NDArray[Any]
    ) -> NDArray[np.int64]:
        """Of texts and images, as few units as the energy holds to suffice: the black box is not asked."""
        return smallest_confirmed(EnergyConfirms(self._scorer.likely(source, targets, values)), ranking, targets)

    @property
    def known_columns(self) -> tuple[str, ...]:
        """Columns of `to_frame()` that are known here, beside those that always are."""
        if isinstance(self.interpreter_, (TableInterpreter, ImageInterpreter)):
            return ("needed", "effect", "locality")[: 3 if isinstance(self.interpreter_, TableInterpreter) else 2]
        needed = ("needed",) if self.reads_text else ()
        has_effects = isinstance(self.interpreter_, EliminationInterpreter) and "continuous" not in self.outputs_.kinds
        return (*needed, "effect") if has_effects else needed

    @property
    def _scorer(self) -> Scorer:
        if isinstance(self.interpreter_, ImageInterpreter):
            folded = self._folded
            if folded is None or folded[0] is not self.interpreter_:
                with one_thread(device_of(self.interpreter_)):
                    folded = self._folded = self.interpreter_, self.interpreter_.folded()
            return ImageScorer(folded[1])
        likelihood = Likelihood.of(self.config_.energy)
        kind = SCORERS.get(type(self.interpreter_), RowScorer)
        return kind(self.energy_, self.interpreter_, likelihood, self.shift_)

    def _refine(
        self,
        source: ExplainedRows,
        ranking: NDArray[np.int64],
        scores: NDArray[np.float32],
        values: NDArray[Any],
        targets: NDArray[np.int64],
        k: int,
        n_questions: int,
    ) -> NDArray[np.int64]:
        return refine_ranking(
            source,
            self._scorer.likely(source, targets, values),
            ranking,
            scores,
            targets,
            k,
            n_questions=n_questions,
            n_draws=N_DRAWS if self.removal_.is_random else 1,
            seed=0,
        )

    def _trace(self, source: ExplainedRows, values: NDArray[Any]) -> Trace:
        if self.input_format_.image is not None:
            return NoPaths("paths between the pixels of a mask are not distinguished")
        if self.reads_text:
            return NoPaths(
                "paths between the words of texts are not distinguished",
                "give the counts of words as a scipy CSR matrix, with a model that takes them",
            )
        if not isinstance(self.energy_, VectorEnergy):
            return NoPaths("SOInter(structured=False) explains every output on its own")
        tracer = self._tracer
        if tracer is None or tracer.energy is not self.energy_:
            likelihood = Likelihood.of(self.config_[0])
            tracer = Tracer(self.energy_, likelihood, self.shift_, self.training_codes_)
            self._tracer = tracer
        return partial(tracer.trace, source, values)

    # --- localities --------------------------------------------------------------------------------------

    def localities(self, target: int | str | None = None) -> Localities:
        """Where in the input space which features decide an output, as found in fit; for tables.

        Parameters
        ----------
        target : an output's name or number; it may be left out where there is one output.
        """
        refuse_for_sequences(self, "localities")
        check_is_fitted(self, "interpreter_")
        number = int(self._resolve(target, 1).index[0])
        if not isinstance(self.interpreter_, TableInterpreter):
            raise InputError(
                "localities are found in tables with preset='default' only; this explainer was fitted "
                "on images, on texts, or as in the paper."
            )
        with one_thread(device_of(self.energy_)):
            return describe_localities(
                self.interpreter_.localities, number, self.input_format_, self.groups_, self.outputs_
            )

    # --- pictures ----------------------------------------------------------------------------------------

    def plot_interactions(self, *, n: int = 40, ax: Any = None) -> Any:
        """A heat map of how strongly outputs are coupled; of many, the n strongest. Returns the Axes.

        Of masks: where in the image a pixel of the mask looks, by displacement, on average.
        """
        from sointer.viz.plots.maps import interactions, neighbours

        check_is_fitted(self, "output_interactions_")
        check_positive_int(n, "n")
        matrix = np.asarray(self.output_interactions_)
        if len(matrix) != self.n_outputs_:
            return neighbours(matrix, ax=ax)
        shown = np.sort(np.argsort(-matrix.max(axis=1), kind="stable")[:n])
        return interactions(matrix[np.ix_(shown, shown)], [self.output_names_[i] for i in shown], ax=ax)

    def plot_history(self, *, ax: Any = None) -> Any:
        """Loss, and agreement with the black box, on answers held out of training, over its steps. Returns the Axes."""
        from sointer.viz.plots.bars import history

        check_is_fitted(self, "history_")
        return history(self.history_, ax=ax)

    def _repr_html_(self) -> str:
        """In notebooks: what is explained and how well, once fitted; before that scikit-learn's diagram."""
        from sklearn.utils import estimator_html_repr

        from sointer.viz.plots.notebook import html_explainer

        if self.sequences_ is not None:
            return self.sequences_._repr_html_()
        return html_explainer(self) if hasattr(self, "interpreter_") else str(estimator_html_repr(self))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    # --- keeping -----------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str], *, rows: Rows = "keep") -> None:
        """Write the fitted explainer to a new directory; the black box itself is never stored.

        **By default the files hold up to 2,000 rows of the training data, number for number**, and only you can read
        them (mode 0600). With rows="synthetic" they hold rows with features drawn independently of each other instead:
        `verify`, `paths` and `far` work, but judge by combinations that may not occur. With rows="none" they hold none:
        `explain` works, `far` is never true, and what fills in values of other rows (`verify`, `paths`, `refine`) is
        refused. What stays in any case, and what each costs: docs/reliability.md. Of sequences the files hold every
        token, by the kind of its place, but no sequence.
        """
        from sointer.io.explainers import save

        if save_sequences(self, path, rows):
            return
        check_is_fitted(self, "interpreter_")
        save(self, path, rows)

    def _digest(self) -> str:
        from sointer.io.explainers import digest

        known = self._known_digest
        if known is None or known[0] is not self.interpreter_:
            known = self._known_digest = self.interpreter_, digest(self)
        return known[1]
