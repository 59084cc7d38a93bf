"""Baselines, set up to explain the very outputs that an explainer explains."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.errors import InputError, MissingExtraError, require_extra
from sointer.explainers.base import Explainer
from sointer.explainers.baselines.base import N_FIRST, Baseline, NearestPixels, QueriedRows, Random, UsualValue
from sointer.explainers.baselines.by_swaps import BySwaps, Occlusion, Rise
from sointer.explainers.baselines.invase import Invase, invase_package
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime, ShapleySampling
from sointer.explainers.baselines.row_by_row import RowByRow
from sointer.explainers.baselines.trained import MAX_NUMBERS, HideAndSeek, TrainedBaseline
from sointer.explainers.baselines.tree_shap import TreeShap, tree_model
from sointer.explanation import Explanation
from sointer.masking.rows import ExplainedRows, MaskableRows, Subject
from sointer.masking.selection import Scored


class GlobalList(Baseline):
    """Ranks the units of each target by the mean size of another explainer's scores, the same for every sample.

    An explainer that does no better has found which features matter, but not in which samples.
    """

    def learn_from(self, explanation: Explanation) -> None:
        """Take the mean of |scores| over the samples of each target."""
        n_units = explanation.scores.shape[1]
        self.mean_scores_ = np.zeros((len(explanation.output_names), n_units), dtype=np.float32)
        for target in np.unique(explanation.target):
            of_target = explanation.scores[explanation.target == target]
            self.mean_scores_[target] = np.abs(of_target).mean(axis=0)

    def _learn(self, subject: Subject, queried: QueriedRows) -> None:
        raise NotImplementedError("GlobalList learns from an explanation, by learn_from().")

    def _scored(self, source: ExplainedRows, targets: NDArray[np.int64]) -> Scored:
        return Scored(self.mean_scores_[targets], np.zeros(len(targets), dtype=np.int64))


KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Random, GlobalList, NearestPixels, Rise, Occlusion, Lime, KernelShap, ShapleySampling),
        *(TreeShap, HideAndSeek, Invase),
    )
}
BASELINES = tuple(KINDS)
"""Names that `evaluate(against=...)` takes."""
ALL = "all"
PACKAGES = {"Lime": "lime", "KernelShap": "shap", "TreeShap": "shap", "Invase": "invase"}
TABLES_ONLY = ("GlobalList", "TreeShap", "HideAndSeek", "Invase")
NUMBERS_ONLY = ("TreeShap", "HideAndSeek", "Invase")
"""Those that cannot delete words from texts."""
IMAGES_ONLY = ("NearestPixels", "Rise", "Occlusion")
MAX_TARGETS_TRAINED = 8
"""Networks are trained for at most so many targets by default."""
MAX_COLUMNS_OF_PACKAGE = 20
"""Tables of at most so many columns are given to the invase package, whose time grows with their third power."""

SHARED = (
    "black_box_",
    "input_format_",
    "groups_",
    "removal_",
    "background_",
    "outputs_",
    "targets_",
    "n_features_in_",
    "feature_names_in_",
    "n_outputs_",
    "output_names_",
)


@dataclass(frozen=True)
class FittedBaseline:
    """A method to compare with, ready to explain."""

    method: Baseline
    n_fit_queries: int = 0
    fit_seconds: float = 0.0


def choose_baselines(
    names: Sequence[str] | None, explainer: Explainer, targets: list[int], tell: Callable[[str], None]
) -> list[str]:
    """The methods of these names; "all", or None for those that take seconds, as far as they can be used here.

    Tells which are left out, and why; those for another kind of data go without saying.
    """
    wants_all = names is not None and [name.lower() for name in names] == [ALL]
    if names is not None and not wants_all:
        known = {name.lower(): name for name in BASELINES}
        unknown = [name for name in names if name.lower() not in known]
        if unknown:
            choice = f"{', '.join(BASELINES)}, or {ALL}"
            raise InputError(f"there is no method {unknown[0]!r} to compare with; choose among {choice}.")
        chosen = list(dict.fromkeys(known[name.lower()] for name in names))
        unfit = [name for name in chosen if not suits(name, explainer)]
        if unfit:
            data = "tables" if unfit[0] in TABLES_ONLY else "images and models that return masks"
            raise InputError(f"{unfit[0]} is for {data} only; leave it out.")
        return chosen
    found = []
    stands_in = importlib.util.find_spec("shap") is None
    for name in (name for name in BASELINES if suits(name, explainer) and (name != "ShapleySampling" or stands_in)):
        why = why_not(name, explainer, targets, slow_ones=wants_all)
        if why is None:
            found.append(name)
        else:
            tell(f"{name} is left out, for {why}")
    return found


def suits(name: str, explainer: Explainer) -> bool:
    """Whether a method is for this kind of data."""
    if explainer.has_words and name in NUMBERS_ONLY:
        return False
    if explainer.input_format_.image is None:
        return name not in IMAGES_ONLY
    return name not in TABLES_ONLY and (name not in IMAGES_ONLY or explainer.outputs_.shape is not None)


def why_not(name: str, explainer: Explainer, targets: list[int], *, slow_ones: bool) -> str | None:
    """Why a method is left out, if so: it cannot be used here, or it is slow and `slow_ones` are not wanted."""
    form = explainer.input_format_
    if name == "Invase" and not slow_ones:
        return "it trains for minutes; name it to include it"
    if name == "HideAndSeek" and not slow_ones and len(targets) > MAX_TARGETS_TRAINED:
        return f"it would train {len(targets)} times, once per output; name it to include it"
    try:
        if name in PACKAGES:
            invase_package() if name == "Invase" else require_extra(PACKAGES[name], "baselines")
    except MissingExtraError:
        return f'{PACKAGES[name]} is not installed (pip install "sointer[baselines]")'
    if name == "TreeShap":
        try:
            tree_model(explainer.black_box_)
        except InputError:
            return "the model is not one of trees that it can read"
        if form.is_categorical.any():
            return "some features are categories"
    return None


def make_baseline(
    name: str, explainer: Explainer, targets: list[int], n_samples: int, seed: int, tell: Callable[[str], None]
) -> FittedBaseline:
    """A method beside the explainer: same model, features, outputs and meaning of "absent".

    Methods that train networks may query the model as often as the explainer's fit did.
    """
    black_box = explainer.black_box_
    assert black_box is not None
    baseline = _make(name, explainer, n_samples, seed, tell)
    baseline._check_settings()
    before, started = black_box.n_queries, time.perf_counter()
    if isinstance(baseline, TrainedBaseline | TreeShap | BySwaps):
        data, form = explainer.background_.known_rows(), explainer.input_format_
        rows = MaskableRows(data, black_box, form, explainer.groups_, explainer.removal_)
        subject = Subject(rows, 1, np.random.default_rng(seed))
        if isinstance(baseline, TrainedBaseline):
            tell(f"training {name} with {baseline.query_budget:,} queries, once for each of {len(targets)} outputs")
            queried = baseline._query_rows(subject, targets)
            baseline._learn(subject, replace(queried, outputs=explainer.outputs_.with_new_labels(queried.raw)))
        elif isinstance(baseline, BySwaps):
            tell(f"querying {min(baseline.max_rows_queried, data.shape[0]):,} training images for {name}")
            baseline._learn(subject, baseline._query_rows(subject, targets))
        else:
            nothing = np.zeros((0, explainer.n_outputs_))
            baseline._learn(subject, QueriedRows(np.zeros(0, dtype=np.int64), nothing, explainer.outputs_, targets))
    for attribute in SHARED:
        setattr(baseline, attribute, getattr(explainer, attribute))
    baseline.seed_ = seed
    if isinstance(baseline, UsualValue):  # its guess of the value, never used where the value is given
        baseline.usual_ = np.zeros(explainer.n_outputs_, dtype=np.int64)
    return FittedBaseline(baseline, black_box.n_queries - before, time.perf_counter() - started)


def queries_of_fit(explainer: Explainer) -> int:
    """Rows whose outputs an explainer learned from, those of a checkpoint included."""
    return int(getattr(explainer, "n_queries_", 0)) + int(getattr(explainer, "n_queries_replayed_", 0))


def _make(name: str, explainer: Explainer, n_samples: int, seed: int, tell: Callable[[str], None]) -> Baseline:
    box, kind = explainer.black_box_, KINDS[name]
    options: dict[str, Any] = {"random_state": seed, "verbose": False}
    if issubclass(kind, RowByRow):
        options["n_samples"] = n_samples
    elif issubclass(kind, TrainedBaseline):
        n_columns = explainer.input_format_.n_columns
        budget = min(max(N_FIRST, queries_of_fit(explainer)), MAX_NUMBERS // n_columns)
        options |= {"query_budget": budget, "output_kind": explainer.output_kind, "tolerance": explainer.tolerance}
        if kind is Invase and n_columns > MAX_COLUMNS_OF_PACKAGE:
            tell(f"Invase is trained as in its paper, for its package is too slow for {n_columns} columns")
            options["protocol"] = "paper"
    made: Baseline = kind(box, **options)
    return made
