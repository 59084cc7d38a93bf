"""SOInter: the estimator that users see."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from sointer._support.torch_state import device_of, one_thread, resolve_device
from sointer._support.validation import check_positive_int, is_integer
from sointer.blackbox.checkpoint import Checkpoint
from sointer.config import EnergyConfig, InterpreterConfig, Preset, Rows, TrainingConfig
from sointer.energy.inference import output_interactions
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import VectorEnergy
from sointer.errors import InputError
from sointer.explainers.base import Explainer
from sointer.explainers.data_checks import warn_about_no_opposite
from sointer.explainers.estimator import ShowsItself, refuse_for_sequences
from sointer.explainers.record_check import Probe
from sointer.explainers.sequence_base import fit_sequences
from sointer.explainers.tracing import Tracer
from sointer.explanation import Explanation
from sointer.interpreter.elimination import EliminationInterpreter
from sointer.interpreter.image import ImageInterpreter, ImageScorer
from sointer.interpreter.scoring import RowScorer, Scorer
from sointer.interpreter.tables import TableInterpreter
from sointer.interpreter.texts import SCORERS
from sointer.interpreter.trees import describe_localities
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import EnergyConfirms, Likely, Scored, smallest_confirmed
from sointer.paths import NO_PATHS_OF_IMAGES, Localities, NoPaths, Trace

if TYPE_CHECKING:
    from sointer.training.context import FitContext, Trained


@dataclass(kw_only=True, eq=False, repr=False)
class SOInter(ShowsItself, Explainer):
    """Explain one output of a model that predicts many, by the few features that decide it.

    Parameters
    ----------
    model : function, fitted scikit-learn estimator, torch module, BlackBox, or str
        What is explained: a function X -> Y, the address of a model server, or the path of an ONNX file. X may be a
        list of strings too, or of token lists with an output for every token (see `SequenceExplainer`).
    k : int or "auto", default "auto"
        Number of features to select; "auto" selects those that matter for each sample, without queries.
    removal : str, array or function, default "auto"
        What replaces a removed feature: "zero", "mean", "marginal" (values of another row), "conditional" (of a row
        that is similar in the kept features), "nan", an array, a function (x, keep, rng) -> x, or "auto" (zero for
        mostly-zero data, otherwise marginal). For texts "delete", or a token such as "[MASK]".
    structured : bool, default True
        Let features act through other outputs; False explains each output separately (SOInter-1).
    preset : {"default", "paper"}, default "default"
        "paper" is SOInter as published.
    feature_names, output_names : sequence of str, optional
        Names, if neither the data nor the model provide them.
    output_kind : str, list or dict, optional
        "binary", "categorical", "probability" or "continuous"; for all outputs, or one for each. Inferred by default.
    method : {"predict", "predict_proba"}, optional
        Which method of an estimator is explained. By default the probabilities, if they agree with the labels.
    tolerance : float, default 0.1
        Numbers agree if they differ by at most this share of their standard deviation.
    groups : dict, str, Patches, Superpixels or function, optional
        Features that are selected together, as {name: features}; for texts see docs/how-to/texts.md.
    text_columns : list, optional
        Columns of a DataFrame that hold free text, whose words are features. Found by default, with a warning.
    query_budget : int, optional
        Maximum number of samples sent to the model during fit.
    batch_size : int, default 1024
        Maximum number of samples sent to the model in one call.
    random_state : int, optional
        Makes results reproducible.
    verbose : bool, optional
        Show progress; by default only on a terminal.
    device : str, default "cpu"
        Where networks are computed: "cpu", "cuda", "cuda:1", "mps" or "auto". The model stays where it is.
    energy, interpreter, training : EnergyConfig, InterpreterConfig, TrainingConfig, optional
        Finer settings; `explainer.config_` shows those in use.

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

    queries_for_sizes = False

    model: Any = field(kw_only=False)
    k: int | Literal["auto"] = "auto"
    removal: Any = "auto"
    structured: bool = True
    preset: Preset = "default"
    feature_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    output_kind: str | None = None
    method: str | None = None
    tolerance: float | None = None
    groups: Any = None
    text_columns: Sequence[Any] | None = None
    query_budget: int | None = None
    batch_size: int | None = None
    random_state: Any = None
    verbose: bool | None = None
    device: str = "cpu"
    energy: EnergyConfig | None = None
    interpreter: InterpreterConfig | None = None
    training: TrainingConfig | None = None

    _tracer: Tracer | None = field(default=None, init=False)
    _folded: tuple[ImageInterpreter, ImageInterpreter] | None = field(default=None, init=False)
    """The interpreter, and the same made quicker, which takes longer than an explanation."""
    _interactions: NDArray[np.float32] | None = field(default=None, init=False)

    # --- fitting -----------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        targets: Sequence[int | str] | None = None,
        checkpoint: str | PathLike[str] | None = None,
    ) -> SOInter:
        """Learn to explain the model on data X.

        Parameters
        ----------
        X : table, list of texts or token lists, or images
            Data as the model takes them.
        y : ignored
        targets : sequence of int or str, optional
            Outputs that will be explained; default: all. The others are used for training, too.
        checkpoint : path, optional
            Directory that stores every output of the model and the state of training. If fit is stopped, the same call
            resumes there, repeats no query, and gives the same explainer. See docs/how-to/save-and-resume.md.

        Returns
        -------
        SOInter
            The fitted explainer.

        Raises
        ------
        InputError
            If X, targets or a setting does not fit.
        BlackBoxError
            If the model fails or returns an invalid result.
        """
        # Saved explainers are loaded and used without what trains them.
        from sointer.explainers import fitting

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
            if kept is not None and kept.is_finished and self._adopt_saved(kept.finished, subject.rows.model):
                self._interactions = None
                snapshots.clear()
                return self
            context, recipe, plan = fitting.make_context(self, subject, black_box, targets)
            context.snapshots = snapshots
            queries_before = subject.rows.model.n_queries
            try:
                with black_box.budget(self.query_budget), one_thread(device, lasts=True):
                    trained = recipe(context)
            finally:
                context.history.close()
                context.query_worker.stop()
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

    def _load_saved(self, path: Path) -> SOInter:
        from sointer.io.explainers import load

        removal = self.removal if callable(self.removal) else None
        return load(path, self.model, removal=removal, device=self.device)

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
        """(outputs, outputs) how strongly the energy couples each pair; computed on first access."""
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

    def _warn_about(self, explanation: Explanation) -> None:
        super()._warn_about(explanation)
        warn_about_no_opposite(explanation)

    def _scored(self, source: ExplainedRows, targets: NDArray[np.int64]) -> Scored:
        scored = self._scorer.scores(source, targets)
        for found in (scored.scores, scored.effects, scored.base):
            if found is not None and not np.isfinite(found).all():
                raise InputError(
                    "the explainer's networks give scores that are not finite. Their weights are damaged, or were made "
                    "to do harm: load an intact copy, or fit again."
                )
        return scored

    def _likely(self, source: ExplainedRows, targets: NDArray[np.int64], values: NDArray[Any]) -> Likely:
        return self._scorer.likely(source, targets, values)

    def _sizes(
        self, source: ExplainedRows, ranking: NDArray[np.int64], targets: NDArray[np.int64], values: NDArray[Any]
    ) -> NDArray[np.int64]:
        """Of texts and images, as few units as the energy holds to suffice: the model is not queried."""
        return smallest_confirmed(EnergyConfirms(self._likely(source, targets, values)), ranking, targets)

    @property
    def known_columns(self) -> tuple[str, ...]:
        """Columns of `to_frame()` that are known here, beside those that always are."""
        if isinstance(self.interpreter_, (TableInterpreter, ImageInterpreter)):
            return ("needed", "effect", "locality")[: 3 if isinstance(self.interpreter_, TableInterpreter) else 2]
        needed = ("needed",) if self.has_words else ()
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

    def _trace(self, source: ExplainedRows, values: NDArray[Any]) -> Trace:
        if self.input_format_.image is not None:
            return NO_PATHS_OF_IMAGES
        if self.has_words:
            remedy = "give the counts of words as a scipy CSR matrix, with a model that takes them"
            remedy = remedy if self.reads_text else "give the counts of words as columns of their own"
            return NoPaths("paths between the words of texts are not distinguished", remedy)
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
        """Find the regions of the input space in which different features decide an output; for tables.

        Parameters
        ----------
        target : int or str
            Name or index of an output; optional if there is only one.

        Returns
        -------
        Localities

        Raises
        ------
        InputError
            If the explainer was not fitted on tables, or with preset="paper".
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

    # --- showing -----------------------------------------------------------------------------------------

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

        check_is_fitted(self, "output_interactions_")
        check_positive_int(n, "n")
        matrix = self.output_interactions_
        if len(matrix) != self.n_outputs_:
            return neighbours(matrix, ax=ax)
        shown = np.sort(np.argsort(-matrix.max(axis=1), kind="stable")[:n])
        return interactions(matrix[np.ix_(shown, shown)], [self.output_names_[i] for i in shown], ax=ax)

    def _html(self) -> str | None:
        from sointer.viz.plots.notebook import html_explainer

        if self.sequences_ is not None:
            return self.sequences_._repr_html_()
        return html_explainer(self) if hasattr(self, "interpreter_") else None

    # --- keeping -----------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str], *, rows: Rows = "keep") -> None:
        """Write the fitted explainer to a new directory; the model itself is not stored.

        **By default the files contain up to 2,000 rows of the training data**, readable only by you (mode 0600). See
        docs/how-to/save-and-resume.md. For sequences, they contain all tokens,
        in an order from which the sequences can be reconstructed.

        Parameters
        ----------
        path : path
            The directory.
        rows : {"keep", "synthetic", "none"}, default "keep"
            With "synthetic", features of the stored rows are drawn independently: `verify`, `paths` and `far` use
            combinations of values that may not occur. With "none", no rows are stored: `explain` works, `far` is never
            true, and `verify`, `paths` and `refine` are refused where they need values of other rows.

        Raises
        ------
        InputError
            If the directory contains other files, or rows is wrong.
        """
        from sointer.io.explainers import save

        if self.sequences_ is not None:
            self.sequences_.save(path, rows=rows)
            return
        check_is_fitted(self, "interpreter_")
        save(self, path, rows)

    def _compute_digest(self) -> str:
        from sointer.io.explainers import digest

        return digest(self)
