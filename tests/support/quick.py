"""Explainers that are fitted in a moment: for what must hold however little was learned."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline

from sointer import EnergyConfig, SOInter, TrainingConfig
from sointer.errors import SointerWarning
from sointer.explainers.baselines.trained import HideAndSeek

QUICK: dict[str, Any] = {
    "k": 2,
    "query_budget": 200,
    "random_state": 0,
    "energy": EnergyConfig(hidden=(16,)),
    "training": TrainingConfig(n_epochs=1),
}
"""Too little to learn anything."""
TAUGHT: dict[str, Any] = {
    **QUICK,
    "query_budget": 1000,
    "energy": EnergyConfig(hidden=(32,)),
    "training": TrainingConfig(n_epochs=15),
}
"""Enough for a simple rule of few features, in a second; what the default settings find is tested in tests/quality."""

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(120, 5))
FRAME = pd.DataFrame(
    {"colour": np.where(TABLE[:, 0] > 0, "red", "blue"), "size": TABLE[:, 1], "n": np.arange(120) % 7, 4: TABLE[:, 2]}
)
SPARSE = sp.csr_array(np.where(RNG.random((120, 40)) < 0.1, 1.0, 0.0))
IMAGES = RNG.random((60, 1, 6, 6))
WORDS = ["rain", "sun", "wind", "snow", "warm", "cold", "dry", "wet"]
TEXTS = [" ".join(RNG.choice(WORDS, size=6)) for _ in range(120)]
SENTENCES = [text.split()[: 2 + i % 5] for i, text in enumerate(TEXTS)]
LAYOUT = ["sample", "target", "value", "value_source", "rank", "feature", "feature_value", "score"]
LAYOUT += ["needed", "effect", "locality"]
"""Columns of the explanation of a table."""
WIDE = RNG.normal(size=(80, 300))


def labels(X: Any) -> Any:
    """Three labels of a table: of one feature, of two, of another."""
    dense = X.toarray() if sp.issparse(X) else np.asarray(X)
    return np.column_stack([dense[:, 0] > 0, dense[:, 0] * dense[:, 1] > 0, dense[:, 2] > 0.3]).astype(int)


def frame_labels(X: pd.DataFrame) -> Any:
    return pd.DataFrame(
        {"warm": np.where(X["colour"] == "red", "yes", "no"), "big": np.where(X["size"] > 0, "yes", "no")}
    )


def first_words(X: Any) -> Any:
    return (X.toarray()[:, :3] > 0).astype(int)


def masks(X: Any) -> Any:
    return (np.asarray(X)[:, 0] > 0.5).astype(int)


def weather(batch: Any) -> Any:
    """A label for each token: "after rain" if the one before it is "rain", else "dry"."""
    return [["after rain" if before == "rain" else "dry" for before in ["", *words[:-1]]] for words in batch]


def text_pipeline() -> Any:
    said = np.array([["rain" in text, "sun" in text] for text in TEXTS]).astype(int)
    return make_pipeline(CountVectorizer(), MultiOutputClassifier(LogisticRegression())).fit(TEXTS, said)


def quick_fit(model: Any, X: Any, *, targets: Any = None, **changes: Any) -> SOInter:
    """SOInter fitted with the settings QUICK, but for `changes`, without our warnings."""
    with warnings.catch_warnings(), few_steps() if "training" not in changes else nullcontext():
        warnings.simplefilter("ignore", SointerWarning)
        return SOInter(model, **{**QUICK, **changes}).fit(X, targets=targets)


@contextmanager
def few_steps(n: int = 60) -> Iterator[None]:
    """Fits of sparse rows and texts may take fewer steps than their recipes take at the least."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sointer.training.sparse_rows.N_STEPS", (n, 10_000))
        yield


@contextmanager
def few_effect_steps(n: int = 400) -> Iterator[None]:
    """The network that explains tables in one pass takes a quarter of its steps and is checked on fewer samples: that
    is most of the time of a short fit."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"N_STEPS": n, "N_CHECKED": 64, "N_PRECISE": 64}.items():
            patch.setattr(f"sointer.training.gradient_network.{name}", value)
        yield


@contextmanager
def few_path_steps(n: int = 40) -> Iterator[None]:
    """The networks that only paths() needs learn little: for tests of form, not of quality."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sointer.training.energy.N_STEPS", n)
        yield


@contextmanager
def few_hide_and_seek_epochs(n: int = 20) -> Iterator[None]:
    """Where evaluate() trains a baseline, it learns little: for tests of form, not of quality."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sointer.metrics.evaluation_baselines.HideAndSeek", partial(HideAndSeek, n_epochs=n))
        yield


@contextmanager
def short_training(n_epochs: int = 8) -> Iterator[None]:
    """Fits of tables with default settings take a fraction of their steps: for commands, which have no such option."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TrainingConfig.presets["default"], "n_epochs", n_epochs)
        yield


@cache
def quick_explainer(kind: str) -> SOInter:
    """An explainer of that kind of input, fitted once in each process; tests must not change it."""
    if kind == "sequences":
        with warnings.catch_warnings(), patch("sointer.training.sequences.MIN_STEPS", 150):
            warnings.simplefilter("ignore", SointerWarning)
            return SOInter(weather, query_budget=600, random_state=0).fit(SENTENCES)
    model, X = {
        "table": (labels, TABLE),
        "groups": (labels, TABLE),
        "wide": (labels, WIDE),
        "frame": (frame_labels, FRAME),
        "sparse": (first_words, SPARSE),
        "images": (masks, IMAGES),
        "texts": (None, TEXTS),
    }[kind]
    return quick_fit(model or text_pipeline(), X, **({"groups": {"both": [0, 1]}} if kind == "groups" else {}))
