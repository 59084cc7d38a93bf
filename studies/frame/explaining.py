"""What the studies of tables ask of an explainer: a ranking, a selection of its own size, signed effects."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sointer.explainers.baselines
from sointer import Explanation, SOInter, TrainingConfig

QUICK = {"training": TrainingConfig(n_epochs=2)}
"""The smoke setting's training, good for nothing but to see that all of it runs."""
OURS = {"SOInter": True, "SOInter-1": False}
"""Our explainers by their names: with and without structure between outputs."""
PER_ROW = ("ShapleySampling", "KernelShap", "Lime")
"""Baselines that query the model about every row."""
INVASE_PAPER = "Invase, paper"
"""Our implementation of its paper; "Invase" is the package, which is another method."""
LEARNED = ("L2X", "Invase", INVASE_PAPER, "HideAndSeek")
"""Baselines that learn from the model's outputs for whole rows. Those that are not installed are left out."""
CHOOSE_SIZE = ("Invase", INVASE_PAPER, "HideAndSeek")
"""Baselines that choose how many features to select."""
N_PER_ROW = 1_000
"""Queries per row of the baselines that query the model about every row."""


def baseline(name: str) -> Any:
    """A baseline by its name, or None if there is none; what follows a comma is a setting."""
    if name == "Invase" and importlib.util.find_spec("invase") is None:
        return None
    return getattr(sointer.explainers.baselines, name.split(",")[0], None)


def fit_ours(
    model: Any,
    X: Any,
    *,
    name: str,
    k: int,
    seed: int,
    targets: list[int],
    budget: int | None,
    quick: bool,
    output_kind: str | None = None,
) -> SOInter:
    """SOInter or SOInter-1 at its defaults, fitted with this query budget."""
    settings = QUICK if quick else {}
    explainer = SOInter(
        model,
        **size_of_fit(SOInter, k),
        structured=OURS[name],
        query_budget=budget,
        output_kind=output_kind,
        random_state=seed,
        verbose=False,
        **settings,
    )
    return explainer.fit(X, targets=targets)


def size_of_fit(kind: Any, k: int) -> dict[str, int]:
    """Nothing for explainers that choose a size per sample by default; for others the largest size needed."""
    return {} if inspect.signature(kind).parameters["k"].default == "auto" else {"k": k}


def ranking_of(explanation: Explanation) -> NDArray[np.int64]:
    """(rows, k) best first: what was selected, in its order."""
    return np.asarray(explanation.selected)


def own_selection(explanation: Explanation) -> NDArray[np.bool_]:
    """(rows, features) True for what the explainer says is needed; of one that does not say, what it selected."""
    needed = getattr(explanation, "needed", None)
    return np.asarray(explanation.unit_mask if needed is None else needed, dtype=bool)


def effects_of(explanation: Explanation, kind: str) -> NDArray[np.float64]:
    """(rows, features) signed, towards the value that is explained, as the scores of baselines are.

    Effects on a probability are effects on the probability itself: below one half they are turned round here.
    """
    assert explanation.effects is not None
    effects = np.asarray(explanation.effects, dtype=np.float64)
    if kind != "probability":
        return effects
    return np.where(np.asarray(explanation.value, dtype=np.float64)[:, None] > 0.5, effects, -effects)


def first_of(ranking: NDArray[np.int64], sizes: NDArray[np.int64], n_features: int) -> NDArray[np.bool_]:
    """(rows, features) True for the first of each row's ranking, as many as its size says."""
    mask = np.zeros((len(ranking), n_features), dtype=bool)
    row, place = np.nonzero((np.arange(ranking.shape[1]) < sizes[:, None]) & (ranking >= 0))
    mask[row, ranking[row, place]] = True
    return mask
