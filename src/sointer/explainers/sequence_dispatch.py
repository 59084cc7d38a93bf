"""SOInter on lists of tokens: what it is given goes to a SequenceExplainer, which stands behind it."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from sointer._support import containers
from sointer.config import Rows
from sointer.errors import InputError
from sointer.explainers.sequences import SequenceExplainer
from sointer.explainers.showing import adopt, fitted_attributes

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer
    from sointer.explainers.sequence_explanation import SequenceExplanation
    from sointer.explainers.sointer import SOInter

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
    behind = SequenceExplainer(explainer.model, **settings, replacement=replacement)
    put_behind(explainer, behind.fit(X, checkpoint=checkpoint))
    return True


def put_behind(explainer: SOInter, behind: SequenceExplainer) -> SOInter:
    """The explainer with everything fitted of the one behind it, and nothing of an earlier fit."""
    for name in fitted_attributes(explainer):
        delattr(explainer, name)
    adopt(explainer, {**fitted_attributes(behind), "sequences_": behind})
    return explainer


def as_sointer(behind: SequenceExplainer) -> SOInter:
    """A fitted SOInter with this explainer behind it."""
    from sointer.explainers.sointer import SOInter

    shared = {name: getattr(behind, name) for name in SHARED}
    removal = "auto" if behind.replacement is None else behind.replacement
    return put_behind(SOInter(behind.model, **shared, removal=removal, tolerance=behind.tolerance), behind)


def as_explainer(explainer: Any) -> Any:
    """The same, with a SOInter before a SequenceExplainer."""
    return as_sointer(explainer) if isinstance(explainer, SequenceExplainer) else explainer


def explain_sequences(
    explainer: Explainer, behind: SequenceExplainer, X: Any, target: Any, refine: Any, **options: Any
) -> SequenceExplanation:
    """What the explainer behind says of sequences."""
    if refine:
        raise InputError(f"refine={refine!r} is not for sequences; leave it out, and verify() what is selected.")
    try:
        return behind.explain(X, "all" if target is None else target, **options)
    finally:
        explainer.n_explain_queries_ = behind.n_explain_queries_


def save_sequences(explainer: SOInter, path: str | PathLike[str], rows: Rows) -> bool:
    """Save the explainer behind this one, if there is one."""
    if explainer.sequences_ is None:
        return False
    explainer.sequences_.save(path, rows=rows)
    return True


def refuse_for_sequences(explainer: Any, what: str) -> None:
    """InputError for what only rows with features have."""
    if isinstance(explainer, SequenceExplainer) or getattr(explainer, "sequences_", None) is not None:
        raise InputError(
            f"{what} is for tables, texts and images, but this explainer was fitted on sequences, where every token is "
            "a target of its own; use explain, report, score, save, sointer.metrics.evaluate_sequences or, for files "
            "of any size, the command sointer explain."
        )


def _is_same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, str) and value == default)
