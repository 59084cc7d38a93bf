"""SOInter: the estimator that users see."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from sointer.adapters import as_black_box
from sointer.blackbox import BlackBox
from sointer.config import PRESETS, EnergyConfig, InterpreterConfig, Preset, TrainingConfig
from sointer.containers import is_sparse
from sointer.energy.interactions import output_interactions
from sointer.energy.likelihood import Likelihood
from sointer.errors import (
    BudgetWarning,
    ConstantFeatureWarning,
    ConstantOutputWarning,
    InputError,
    PoorFitWarning,
    SointerWarning,
)
from sointer.explanation import Explanation, Source
from sointer.groups import Groups
from sointer.inputs import InputFormat
from sointer.outputs import MOST_CLASSES, Outputs
from sointer.removal import Background, Removal, make_removal
from sointer.selection import rank_units, smallest_confirmed
from sointer.training.default import train_default
from sointer.training.history import History
from sointer.training.paper import train_paper
from sointer.training.task import Configs, Task, Trained
from sointer.training.threads import threads_for
from sointer.validation import check_k, check_positive_int, check_random_state, resolve_targets

N_AUTO_QUERIES = (5_000, 50_000)
AUTO_QUERIES_PER_FEATURE = 250
AUTO_K = 10
POOR_SKILL = 0.5
# Every chunk has the same shape, so a row's explanation cannot depend on the rows around it.
CHUNK_ROWS = 256


class SOInter(BaseEstimator):
    """Explains one output at a time of a model that predicts many, by the few features that decide it.

    Parameters
    ----------
    model : function X -> Y, fitted scikit-learn estimator, torch module, or BlackBox.
    k : how many features to select, or "auto": per row, as few of the best as the black box confirms.
    removal : what "absent" means: "zero", "mean", "marginal" (another row's values), an array of values,
        a function (x, keep, rng) -> x, or "auto" (zero for mostly-zero data, else marginal).
    structured : let features act through other outputs; False explains each output alone (SOInter-1).
    preset : "default" (what works best) or "paper" (SOInter as published).
    feature_names, output_names : names, where the data or the model bring none.
    output_kind : "binary", "categorical", "probability" or "continuous", for all outputs; None reads it off the
        model's answers.
    tolerance : continuous outputs that differ by at most this share of their standard deviation agree (0.1).
    groups : features that stand or fall together, as {name: features}.
    query_budget : most rows sent to the black box during fit.
    batch_size : most rows sent to the black box in one call (1024 unless told).
    random_state : a number gives the same explainer every time.
    verbose : show progress; None shows it on a terminal only.
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

    def __init__(
        self,
        model: Any,
        *,
        k: int | Literal["auto"] = 10,
        removal: Any = "auto",
        structured: bool = True,
        preset: Preset = "default",
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        output_kind: str | None = None,
        tolerance: float | None = None,
        groups: Any = None,
        query_budget: int | None = None,
        batch_size: int | None = None,
        random_state: Any = None,
        verbose: bool | None = None,
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
        self.tolerance = tolerance
        self.groups = groups
        self.query_budget = query_budget
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose
        self.energy = energy
        self.interpreter = interpreter
        self.training = training

    # --- fitting -----------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, targets: Sequence[int | str] | None = None) -> SOInter:
        """Learn to explain the model on data X, for all outputs or for some; y is not used.

        `targets` limits which outputs will be explained (by name or number); the others still help.
        """
        if self.preset not in PRESETS:
            raise InputError(f"preset must be one of {', '.join(map(repr, PRESETS))}, got {self.preset!r}.")
        if not isinstance(self.structured, bool):
            raise InputError(f"structured must be True or False, got {self.structured!r}.")
        configs = Configs(
            (self.energy or EnergyConfig()).resolve(self.preset),
            (self.interpreter or InterpreterConfig()).resolve(self.preset),
            (self.training or TrainingConfig()).resolve(self.preset),
        )
        input_format = InputFormat.infer(X, feature_names=self.feature_names)
        data = input_format.encode(X, caller="fit")
        groups = Groups.build(self.groups, input_format.feature_names, input_format.column_feature)
        k = check_k(self.k, groups.n_units)
        wants_auto = isinstance(self.removal, str) and self.removal == "auto"
        removal_spec = "zero" if wants_auto and self.preset == "paper" else self.removal
        rng = check_random_state(self.random_state)
        removal = make_removal(removal_spec, data, input_format, rng=rng)
        _warn_constant_features(data, input_format)

        black_box = self._black_box()
        plan = self._n_queries(groups.n_units)

        def check(raw: NDArray[Any]) -> None:
            _fitted_targets(targets, self._outputs(raw, black_box))

        def describe(raw: NDArray[Any]) -> tuple[Outputs, list[int]]:
            outputs = self._outputs(raw, black_box)
            _warn_constant_outputs(outputs, len(raw))
            _warn_mixed_outputs(outputs, raw)
            return outputs, _fitted_targets(targets, outputs)

        task = Task(
            data=data,
            black_box=black_box,
            input_format=input_format,
            removal=removal,
            groups=groups,
            k=min(AUTO_K, groups.n_units) if k == "auto" else k,
            n_queries=plan if black_box.remaining is None else min(plan, black_box.remaining),
            configs=configs,
            structured=self.structured,
            shift_inputs=self.preset == "default",
            check=check,
            describe=describe,
            rng=rng,
            generator=torch.Generator().manual_seed(int(rng.integers(2**62))),
            history=History(self.verbose),
        )
        recipe = train_default if self.preset == "default" else train_paper
        queries_before = black_box.n_queries
        try:
            with black_box.budget(self.query_budget), threads_for(input_format.n_columns):
                trained = recipe(task)
        finally:
            task.history.close()
        self._adopt(trained, task)
        self.n_queries_ = black_box.n_queries - queries_before
        self._warn_about(task, trained, plan)
        return self

    def _black_box(self) -> BlackBox:
        if isinstance(self.model, BlackBox) and self.batch_size is not None:
            raise InputError(
                f"batch_size={self.batch_size!r} was given together with a BlackBox, which has its own "
                f"({self.model.batch_size}); set it there."
            )
        return as_black_box(self.model, batch_size=self.batch_size)

    def _n_queries(self, n_units: int) -> int:
        planned = int(np.clip(AUTO_QUERIES_PER_FEATURE * n_units, *N_AUTO_QUERIES))
        if self.query_budget is None:
            return planned
        return check_positive_int(self.query_budget, "query_budget")

    def _outputs(self, raw: NDArray[Any], black_box: BlackBox) -> Outputs:
        names = self.output_names if self.output_names is not None else black_box.output_names
        outputs = Outputs.infer(raw, names=names, kind=self.output_kind, tolerance=self.tolerance)
        _refuse_mixed_outputs(outputs)
        return outputs

    def _adopt(self, trained: Trained, task: Task) -> None:
        self.black_box_: BlackBox | None = task.black_box
        self.input_format_: InputFormat = task.input_format
        self.groups_: Groups = task.groups
        self.removal_: Removal = task.removal
        self.background_ = Background.of(task.data, task.rng)
        self.shift_ = task.shift
        self.outputs_: Outputs = trained.outputs
        self.energy_ = trained.energy
        self.interpreter_ = trained.interpreter.eval()
        self.config_ = task.configs
        self.targets_ = trained.targets
        self.n_features_in_ = task.input_format.n_features
        self.feature_names_in_ = np.array(task.input_format.feature_names, dtype=object)
        self.n_outputs_ = trained.outputs.n_outputs
        self.output_names_ = list(trained.outputs.names)
        self.held_out_agreement_ = trained.agreement
        self.held_out_skill_ = trained.skill
        self.history_: list[dict[str, Any]] = task.history.rows
        self.output_interactions_ = output_interactions(trained.energy)

    def _warn_about(self, task: Task, trained: Trained, plan: int) -> None:
        if task.budget_ran_out or task.n_queries < plan:
            warnings.warn(
                f"the black box's query budget ended after {self.n_queries_} rows, of {plan} planned; the explainer "
                f"is usable and agrees with the black box on {trained.agreement:.0%} of the outputs it was "
                "checked on. Raise the budget for better explanations.",
                BudgetWarning,
                stacklevel=3,
            )
        if self.preset == "default" and trained.skill < POOR_SKILL:
            warnings.warn(
                f"the energy has learned little of this black box: on held-out answers it avoids only "
                f"{max(trained.skill, 0):.0%} of the errors of always guessing the usual value (below "
                f"{POOR_SKILL:.0%}), so explanations may be wrong. Check them with explanation.verify(); raise "
                "query_budget or give more data.",
                PoorFitWarning,
                stacklevel=3,
            )

    # --- explaining --------------------------------------------------------------------------------------

    def explain(self, X: Any, target: Any = None, *, k: int | Literal["auto"] | None = None) -> Explanation:
        """The features that decide the target of every row: network passes only, no query to the black box.

        `target` is an output's name or number, or one per row; it may be left out where there is one
        output. `k` overrides the constructor's; k="auto" asks the black box to confirm each selection.
        """
        check_is_fitted(self, "interpreter_")
        data = self.input_format_.encode(X, caller="explain")
        n_rows = data.shape[0]
        if target is None:
            if len(self.targets_) != 1:
                raise InputError(
                    f"target is missing; choose one of the outputs {', '.join(self.output_names_[:5])}"
                    f"{' ...' if self.n_outputs_ > 5 else ''} by name or number, or give one per row."
                )
            target = self.targets_[0]
        targets = resolve_targets(target, self.output_names_, n_rows)
        self._check_fitted_targets(targets)
        size = check_k(self.k if k is None else k, self.groups_.n_units)
        with threads_for(data.shape[1]):
            scores, values, allowed = self._scores(data, targets)
        ranking = rank_units(scores, allowed)
        source = Source(
            self.black_box_, self.input_format_, self.removal_, self.outputs_, self.groups_, self.background_, data
        )
        sizes = smallest_confirmed(source, ranking, targets) if size == "auto" else np.full(n_rows, size)
        return Explanation.of(ranking, sizes, scores, targets, values, source)

    def _check_fitted_targets(self, targets: NDArray[np.int64]) -> None:
        unknown = sorted(set(targets.tolist()) - set(self.targets_))
        if unknown:
            raise InputError(
                f"target {self.output_names_[unknown[0]]!r} was not among the targets given to fit "
                f"({', '.join(self.output_names_[t] for t in self.targets_[:5])}); fit again with it, or without "
                "targets= for all outputs."
            )

    def _scores(
        self, data: Any, targets: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[np.bool_]]:
        """Scores (rows, units), the expected value of each row's target, and units that can be chosen."""
        n_rows, n_units = data.shape[0], self.groups_.n_units
        scores = np.empty((n_rows, n_units), dtype=np.float32)
        allowed = np.empty((n_rows, n_units), dtype=bool)
        values = np.empty(n_rows, dtype=np.float32 if self.outputs_.kind == "continuous" else np.int64)
        for start in range(0, n_rows, CHUNK_ROWS):
            rows = slice(start, min(start + CHUNK_ROWS, n_rows))
            chunk = data[rows].toarray() if is_sparse(data) else data[rows]
            n = len(chunk)
            differs = self.removal_.differs(chunk)
            allowed[rows] = self.groups_.sum_columns(differs.astype(np.float64)) > 0
            x = torch.zeros(CHUNK_ROWS, chunk.shape[1])
            x[:n] = torch.from_numpy((chunk - self.shift_).astype(np.float32))
            t = torch.zeros(CHUNK_ROWS, dtype=torch.long)
            t[:n] = torch.from_numpy(targets[rows])
            with torch.no_grad():
                scores[rows] = self.interpreter_(x, t)[:n].numpy()
                values[rows] = self._expected(x, t)[:n].numpy()
        return scores, values, allowed

    def _expected(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        likelihood = Likelihood.of(self.config_[0])
        return likelihood.predict(self.energy_, x).gather(1, targets.unsqueeze(1)).squeeze(1)

    # --- keeping -----------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted explainer to a new directory; the black box itself is never stored."""
        from sointer.persistence import save

        check_is_fitted(self, "interpreter_")
        save(self, path)

    def __sklearn_clone__(self) -> SOInter:
        """An unfitted copy with the same model: cloning must not un-fit what is being explained."""
        params = self.get_params(deep=False)
        model = params.pop("model")
        return type(self)(model, **{name: clone(value, safe=False) for name, value in params.items()})


def _fitted_targets(targets: Sequence[int | str] | None, outputs: Outputs) -> list[int]:
    if targets is None:
        return list(range(outputs.n_outputs))
    if isinstance(targets, str | int | np.integer):
        raise InputError(f"fit: targets must be a list of outputs, got {targets!r}; write targets=[{targets!r}].")
    chosen = list(dict.fromkeys(int(t) for t in resolve_targets(list(targets), outputs.names, len(targets))))
    if not chosen:
        raise InputError("fit: targets is empty; name at least one output, or leave it out for all.")
    return chosen


def _refuse_mixed_outputs(outputs: Outputs) -> None:
    for name, n_classes in zip(outputs.names, outputs.n_classes, strict=True):
        if outputs.kind == "categorical" and n_classes > MOST_CLASSES:
            raise InputError(
                f"output {name!r} has {n_classes} different values, too many for classes (at most {MOST_CLASSES}); "
                "all outputs must be of one kind. Give a function that returns only the labels, or only the numbers."
            )


def _warn_mixed_outputs(outputs: Outputs, raw: NDArray[Any]) -> None:
    if outputs.kind != "continuous":
        return
    n_values = np.array([len(np.unique(raw[:, i])) for i in range(raw.shape[1])])
    like_labels = (n_values == 2) & (n_values.max() > 2)
    if like_labels.any():
        names = [outputs.names[i] for i in np.flatnonzero(like_labels)]
        warnings.warn(
            f"outputs {', '.join(names[:5])} have two values only, beside others that are numbers; all are treated as "
            "numbers. For labels, give a function that returns only those, and explain the numbers separately.",
            SointerWarning,
            stacklevel=5,
        )


def _warn_constant_outputs(outputs: Outputs, n_answers: int) -> None:
    if outputs.constant.any():
        constant = [outputs.names[i] for i in np.flatnonzero(outputs.constant)]
        warnings.warn(
            f"{len(constant)} of {outputs.n_outputs} outputs never changed in {n_answers} answers: "
            f"{', '.join(constant[:5])}{' ...' if len(constant) > 5 else ''}. Their explanations mean little: "
            "no feature decided them. Give data on which they vary.",
            ConstantOutputWarning,
            stacklevel=5,
        )


def _warn_constant_features(data: Any, input_format: InputFormat) -> None:
    low, high = data.min(axis=0), data.max(axis=0)
    if is_sparse(data):
        low, high = low.toarray().ravel(), high.toarray().ravel()
    varies = np.bincount(input_format.column_feature, weights=(low != high).astype(float)) > 0
    if not varies.all():
        names = [input_format.feature_names[i] for i in np.flatnonzero(~varies)]
        warnings.warn(
            f"{len(names)} of {input_format.n_features} features are constant in X and can never be selected: "
            f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}. Drop them, or give data on which they vary.",
            ConstantFeatureWarning,
            stacklevel=3,
        )
