"""Real tables with several outputs, and the models of them that are explained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sointer.zoo.digits import load_seven_segment_digits
from sointer.zoo.loaders import load_emotions, load_scene

FloatArray = NDArray[np.float64]
N_ROWS = 100
N_QUERIES = 18_000
"""For emotions and scene. Elsewhere it is SOInter's default: 250 per feature, at least 5,000."""


@dataclass(frozen=True)
class Table:
    """Rows to learn from, and rows that no model and no explainer has seen."""

    X_train: FloatArray
    Y_train: NDArray[Any]
    X_test: FloatArray
    Y_test: NDArray[Any]
    sizes: tuple[int, ...]
    """How many features are kept or deleted."""
    n_queries: int
    """Queries that SOInter and the one list for all samples may use."""
    n_rows: int = N_ROWS
    """Test rows that are explained, at most."""
    numbers: bool = False
    """Outputs are numbers, not labels."""


@dataclass(frozen=True)
class Model:
    """A fitted model as a function from rows to one column per output."""

    predict: Callable[[FloatArray], NDArray[Any]]
    trees: Any = None
    """The fitted estimator, if it is made of trees: what TreeSHAP looks inside of."""
    importances: FloatArray | None = None
    """What the forest itself calls important, one number per feature."""
    kind: str = "probability"
    """Of its outputs: "probability", "binary" or "continuous". Extra trees are certain about every training row, so
    that it cannot be seen from the first predictions."""

    def __call__(self, X: FloatArray) -> NDArray[Any]:
        return self.predict(np.asarray(X, dtype=np.float64))


# --- tables ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def load_table(name: str, seed: int) -> Table:
    """A table by its name; where there is no official split, the seed splits it."""
    if name in ("emotions", "scene"):
        data = load_emotions() if name == "emotions" else load_scene()
        (X, Y), (X_test, Y_test) = data.train, data.test
        return Table(
            _dense(X), _dense(Y).astype(int), _dense(X_test), _dense(Y_test).astype(int), (3, 8, 15, 30), N_QUERIES,
            n_rows=N_ROWS if name == "emotions" else 60,
        )  # fmt: skip
    if name == "digits":
        digits = load_seven_segment_digits(random_state=seed)
        return Table(digits.X_train, digits.Y_train, digits.X_test, digits.Y_test, (3, 5, 10, 20), 16_000)
    X, Y, sizes = {"wine": _wine, "breast cancer": _breast_cancer, "diabetes": _diabetes}[name]()
    X, X_test, Y, Y_test = train_test_split(X, Y, test_size=0.4, random_state=seed)
    return Table(X, Y, X_test, Y_test, sizes, 5_000, numbers=name == "diabetes")


def _dense(table: Any) -> FloatArray:
    return np.asarray(table.toarray() if hasattr(table, "toarray") else table, dtype=np.float64)


def _wine() -> tuple[FloatArray, NDArray[Any], tuple[int, ...]]:
    """The three cultivars, and whether a wine is strong (alcohol) or dark (colour) above the median: five outputs."""
    data = load_wine()
    names = list(data.feature_names)
    measured = [names.index("alcohol"), names.index("color_intensity")]
    outputs = np.column_stack([data.target[:, None] == np.arange(3), _above_median(data.data[:, measured])])
    return np.delete(data.data, measured, axis=1), outputs.astype(int), (1, 2, 3, 5)


def _breast_cancer() -> tuple[FloatArray, NDArray[Any], tuple[int, ...]]:
    """Malignant, and five of the "worst" measures above the median, from the means and errors: six outputs."""
    data = load_breast_cancer()
    names = list(data.feature_names)
    worst = [names.index(f"worst {what}") for what in ("radius", "texture", "smoothness", "concavity", "symmetry")]
    outputs = np.column_stack([data.target == 0, _above_median(data.data[:, worst])])
    return data.data[:, :20], outputs.astype(int), (1, 3, 5, 10)


def _diabetes() -> tuple[FloatArray, NDArray[Any], tuple[int, ...]]:
    """Numbers: progression of the disease and the serum measures s5 and s6, from the other eight: three outputs."""
    data = load_diabetes()
    return data.data[:, :8], np.column_stack([data.target, data.data[:, 8:]]), (1, 2, 3, 5)


def _above_median(columns: FloatArray) -> NDArray[np.bool_]:
    return np.asarray(columns > np.median(columns, axis=0))


# --- models ----------------------------------------------------------------------------------------------

MODELS: dict[str, tuple[str, ...]] = {
    "emotions": ("forest", "boosting", "chain", "MLP"),
    "scene": ("forest", "boosting", "chain", "MLP"),
    "digits": ("MLP", "extra trees", "demo"),
    "breast cancer": ("forest", "boosting", "chain", "MLP"),
    "wine": ("forest", "MLP"),
    "diabetes": ("forest",),
}
"""The models of every table."""


@lru_cache(maxsize=2)
def fit_model(table: str, name: str, seed: int) -> Model:
    """A model of a table by its name, fitted on the training rows.

    "demo" gives labels, as the extra trees of `sointer demo` do; all others give probabilities, or numbers.
    """
    data = load_table(table, seed)
    X, Y = data.X_train, data.Y_train
    if data.numbers:
        center, scale = Y.mean(axis=0), Y.std(axis=0)
        regressor = RandomForestRegressor(50, random_state=seed).fit(X, (Y - center) / scale)
        return Model(regressor.predict, regressor, regressor.feature_importances_, kind="continuous")
    if name in ("forest", "extra trees", "demo"):
        kind, n_trees = (RandomForestClassifier, 50) if name == "forest" else (ExtraTreesClassifier, 100)
        forest = kind(n_trees, random_state=seed).fit(X, Y)
        predict = forest.predict if name == "demo" else lambda Z: _second(forest.predict_proba(Z))
        return Model(predict, forest, forest.feature_importances_, kind="binary" if name == "demo" else "probability")
    if name == "boosting":
        boosted = MultiOutputClassifier(HistGradientBoostingClassifier(max_iter=60, random_state=seed)).fit(X, Y)
        return Model(lambda Z: _second(boosted.predict_proba(Z)), boosted)
    if name == "chain":
        chain = ClassifierChain(LogisticRegression(max_iter=1000), order="random", random_state=seed)
        return Model(make_pipeline(StandardScaler(), chain).fit(X, Y).predict_proba)
    if name != "MLP":
        raise ValueError(f"no model is called {name!r}; {table} has {', '.join(MODELS[table])}")
    network = MLPClassifier((64,), max_iter=300, random_state=seed)
    return Model(make_pipeline(StandardScaler(), network).fit(X, Y).predict_proba)


def _second(by_output: list[FloatArray]) -> FloatArray:
    """The probability of label 1 of every output."""
    return np.column_stack([probabilities[:, 1] for probabilities in by_output])
