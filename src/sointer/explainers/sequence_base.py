"""What explainers of sequences share with others; SOInter on lists of tokens, with a SequenceExplainer behind it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sointer._support import containers
from sointer._support.torch_state import resolve_device
from sointer._support.validation import check_random_state
from sointer.blackbox.adapters.tagger import as_tagger
from sointer.blackbox.box import BlackBox
from sointer.blackbox.checkpoint import Checkpoint, plain_fingerprint
from sointer.config import Rows
from sointer.data.sequences import Splitter, Tokens, read_sequences
from sointer.errors import InputError
from sointer.explainers.estimator import SCORE_DRAWS, Identified, ShowsItself, fitted_attributes
from sointer.explainers.sequence_explanation import SequenceExplanation
from sointer.masking.conditional import ReplacementFunction

if TYPE_CHECKING:
    from typing_extensions import Self

    from sointer.energy.chain import ChainEnergy
    from sointer.explainers.sequences import SequenceExplainer
    from sointer.explainers.sointer import SOInter
    from sointer.training.snapshots import Snapshots

DECIDE_QUERIES = ("window", "tolerance", "query_budget")


class SequenceFrame(ShowsItself, Identified):
    """The frame of an explainer of sequences: `_fit` learns, `explain` says what was learned."""

    replacement: ReplacementFunction | None
    splitter: Splitter | None
    batch_size: int | None
    device: str
    history_: list[dict[str, Any]]
    n_explain_queries_: int = 0
    """Sequences sent to the model by all calls of explain since fit."""
    additive_: ChainEnergy | None = None
    """A simpler energy, from which paths are read if it predicts held-out labels better; otherwise None."""

    @property
    def sequences_(self) -> SequenceExplainer:  # type: ignore[override]
        """Itself: what `SOInter` has behind it where it was fitted on token lists."""
        return cast("SequenceExplainer", self)

    def fit(self, X: Any, y: Any = None, *, checkpoint: str | PathLike[str] | None = None) -> Self:
        """Learn to explain the model on sequences X, at every position and for every length.

        Parameters
        ----------
        X : list of token lists
            Or of strings, with a splitter.
        y : ignored
        checkpoint : path, optional
            Directory that stores every output of the model and the state of training. If fit is stopped, the same call
            resumes there, repeats no query, and gives the same explainer.

        Returns
        -------
        SequenceExplainer
            The fitted explainer.

        Raises
        ------
        InputError
            If X or a parameter is wrong.
        BlackBoxError
            If the model does not return one output per token.
        """
        from sointer.explainers.fitting import snapshots_in  # saved explainers are used without what trains them

        self._check_parameters()
        device = resolve_device(self.device)  # before the model is looked at
        sequences = read_sequences(X, self.splitter, "fit")
        model = as_tagger(self.model, self.batch_size)
        with nullcontext() if checkpoint is None else Checkpoint(checkpoint, self.random_state) as kept:
            black_box, seed, snapshots = model, self.random_state, snapshots_in(None)
            if kept is not None:
                settings = {name: getattr(self, name) for name in DECIDE_QUERIES}
                function = None if self.replacement is None else getattr(self.replacement, "__name__", "a function")
                wanted = plain_fingerprint({**settings, "replacement": function, "data": sequences})
                black_box = kept.replaying(model, wanted)
                seed = self.random_state if kept.seed is None else kept.seed
                snapshots = snapshots_in(kept, device)
                if kept.is_finished and self._adopt_saved(kept.finished, model):
                    snapshots.clear()
                    return self
            before = model.n_queries
            self._fit(sequences, black_box, check_random_state(seed), snapshots)
            self.black_box_ = model
            self.n_queries_ = model.n_queries - before
            self.n_queries_replayed_ = 0 if kept is None else kept.journal.n_replayed
            if kept is not None:
                kept.keep(self.save)
                snapshots.clear()
        return self

    def _load_saved(self, path: Path) -> SequenceExplainer:
        return self.load(path, replacement=self.replacement, splitter=self.splitter, device=self.device)

    @abstractmethod
    def _check_parameters(self) -> None:
        """InputError where a parameter is wrong."""

    @abstractmethod
    def _fit(
        self, sequences: list[Tokens], black_box: BlackBox, rng: np.random.Generator, snapshots: Snapshots
    ) -> None:
        """Query and learn."""

    @abstractmethod
    def explain(
        self,
        X: Any,
        target: Any = "all",
        *,
        k: int | Literal["auto"] | None = None,
        predicted: Any = None,
        query: bool = True,
    ) -> SequenceExplanation:
        """The tokens that decide what the model predicts for the targets of every sequence."""

    def score(self, X: Any, y: Any = None) -> float:
        """Return fidelity: the share of labels that stay on the selected tokens alone.

        Every sequence is sent once, and three times per token with all but the selected tokens replaced.

        Parameters
        ----------
        X : list of token lists
            Or of strings, with a splitter.
        y : ignored

        Returns
        -------
        float
        """
        return float(self.explain(X).verify(n_draws=SCORE_DRAWS).agreement.mean())

    def report(
        self,
        X: Any,
        path: str | PathLike[str],
        *,
        n_samples: int = 100,
        k: int | Literal["auto"] | None = None,
        predicted: Any = None,
        verify: bool | int | None = None,
        title: str | None = None,
        sample_names: Sequence[str] | None = None,
        paths: bool | int = True,
    ) -> Path:
        """Write an interactive report, a single HTML file that works offline, and return its path.

        Click a label, or use the arrow keys, to see which tokens decided it, directly or through other labels.

        Parameters
        ----------
        X : list of token lists
            Shown are the first n_samples, up to 5,000 tokens in total.
        path : path
            Where to write the file.
        n_samples : int, default 100
            Maximum number of sequences.
        k : int or "auto", optional
            Number of tokens shown; default: the explainer's own.
        predicted : list, optional
            The model's outputs for X; otherwise the model, if there is one, is queried once per sequence.
        verify : bool or int, optional
            Maximum number of queries to confirm explanations; True: no limit. Default: as many as in fit.
        title : str, optional
            Title of the page.
        sample_names : sequence of str, optional
            One name per sequence; default: numbers.
        paths : bool, default True
            Whether to show which tokens act through other labels.

        Returns
        -------
        Path
        """
        from sointer.viz.report import ReportOptions, write_report

        options = ReportOptions(n_samples, k, predicted, verify, title, sample_names, paths)
        return write_report(self, X, path, None, options)

    def _compute_digest(self) -> str:
        from sointer.io.sequences import digest

        return digest(self.sequences_)

    def save(self, path: str | PathLike[str], *, rows: Rows = "keep") -> None:
        """Write the fitted explainer to a new directory; the model itself is never stored.

        Parameters
        ----------
        path : path
            The directory.
        rows : {"keep", "synthetic", "none"}, default "keep"
            **By default the files contain the tokens of the training data, in an order from which the sequences can be
            reconstructed.** With "synthetic" they contain how often each token stood at each kind of place, but not
            with which others; `verify` and `paths` draw other tokens of the same distribution. With "none" there are no
            tokens: `explain` works, but `verify` and `paths` need a replacement of your own.
        """
        from sointer.io.sequences import save

        check_is_fitted(self, "energy_")
        save(self.sequences_, path, rows)

    @staticmethod
    def load(
        path: str | PathLike[str],
        model: Any = None,
        *,
        replacement: ReplacementFunction | None = None,
        splitter: Splitter | None = None,
        device: str = "cpu",
    ) -> SequenceExplainer:
        """Read a saved explainer; nothing in the files is executed.

        Parameters
        ----------
        path : path
            The directory written by `save`.
        model : optional
            What is explained; without it, expected values are explained and nothing can be verified.
        replacement, splitter : function, optional
            Those given to fit; they are not stored.
        device : str, default "cpu"
            Where networks are computed.

        Returns
        -------
        SequenceExplainer
            Fitted.

        Raises
        ------
        LoadError
            If files are missing, damaged, or of another format.
        """
        from sointer.io.sequences import load

        return load(path, model, replacement=replacement, splitter=splitter, device=device)

    def _html(self) -> str | None:
        from sointer.viz.plots.notebook import html_sequence_explainer

        return html_sequence_explainer(self.sequences_) if hasattr(self, "energy_") else None


SHARED = ("k", "query_budget", "batch_size", "random_state", "verbose", "device")
"""Parameters that mean the same for both."""


def holds_token_lists(X: Any) -> bool:
    """Whether X is a list (or Series) of lists of strings, which can be no table: those of strings are DataFrames."""
    is_list = isinstance(X, (list, tuple)) or containers.is_series(X)
    if not is_list and not (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1):
        return False
    each = list(X)
    is_nested = all(isinstance(one, (list, tuple)) or (isinstance(one, np.ndarray) and one.ndim == 1) for one in each)
    return is_nested and any(isinstance(token, str) for one in each for token in one[:1])


def fit_sequences(explainer: SOInter, X: Any, targets: Any, checkpoint: str | PathLike[str] | None) -> bool:
    """Where X holds token lists, fit a SequenceExplainer with the parameters of `explainer`, and put it behind it."""
    if not holds_token_lists(X):
        if explainer.sequences_ is not None:
            del explainer.sequences_
        return False
    defaults = type(explainer)(None).get_params(deep=False)
    others = [name for name in defaults if name not in ("model", "removal", "tolerance", *SHARED)]
    given = [name for name in others if not _is_same(getattr(explainer, name), defaults[name])]
    given += ["targets"] if targets is not None else []
    given += [] if callable(explainer.removal) or _is_same(explainer.removal, "auto") else ["removal"]
    if given:
        raise InputError(
            f"fit: X holds token lists, for which {', '.join(given)} cannot be set; leave it out. What can be set for "
            "sequences are the parameters of SequenceExplainer; removal= may be a function (tokens, position, rng) -> "
            "token."
        )
    settings: dict[str, Any] = {name: getattr(explainer, name) for name in SHARED}
    if explainer.tolerance is not None:
        settings["tolerance"] = explainer.tolerance
    replacement = explainer.removal if callable(explainer.removal) else None
    from sointer.explainers.sequences import SequenceExplainer

    behind = SequenceExplainer(explainer.model, **settings, replacement=replacement)
    put_behind(explainer, behind.fit(X, checkpoint=checkpoint))
    return True


def put_behind(explainer: SOInter, behind: SequenceExplainer) -> SOInter:
    """The explainer with everything fitted of the one behind it, and nothing of an earlier fit."""
    for name in fitted_attributes(explainer):
        delattr(explainer, name)
    explainer.__dict__.update(fitted_attributes(behind), sequences_=behind)
    return explainer


def as_sointer(behind: SequenceExplainer) -> SOInter:
    """A fitted SOInter with this explainer behind it."""
    from sointer.explainers.sointer import SOInter

    shared = {name: getattr(behind, name) for name in SHARED}
    removal = "auto" if behind.replacement is None else behind.replacement
    return put_behind(SOInter(behind.model, **shared, removal=removal, tolerance=behind.tolerance), behind)


def as_explainer(explainer: Any) -> Any:
    """The same, with a SOInter before a SequenceExplainer."""
    return as_sointer(explainer) if isinstance(explainer, SequenceFrame) else explainer


def _is_same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, str) and value == default)
