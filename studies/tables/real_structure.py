"""Models of real labels in which outputs depend on each other: a chain of classifiers, a conditional random field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from studies.tables.black_boxes import load_table

REAL = ("emotions, chain", "emotions, random field")
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Real:
    model: Callable[[FloatArray], NDArray[Any]]
    """From rows to a label per output."""
    X_train: FloatArray
    X_test: FloatArray


class RandomField(BaseEstimator):
    """p(y | x) ~ exp(y' W x + y' V y / 2), labels 0 and 1, learned exactly; says the most likely labels together."""

    def __init__(self, penalty: float = 1.0) -> None:
        self.penalty = penalty

    def fit(self, X: FloatArray, Y: NDArray[Any]) -> RandomField:
        n, n_outputs = Y.shape
        self.labels_ = np.array(list(product((0.0, 1.0), repeat=n_outputs)))
        pairs = np.triu_indices(n_outputs, 1)
        self.pairs_ = self.labels_[:, pairs[0]] * self.labels_[:, pairs[1]]
        with_one, n_weights = self._with_one(X), n_outputs * (X.shape[1] + 1)
        seen, seen_pairs = with_one.T @ Y, (Y[:, pairs[0]] * Y[:, pairs[1]]).sum(axis=0)

        def loss(flat: FloatArray) -> tuple[float, FloatArray]:
            self.weights_, self.links_ = flat[:n_weights].reshape(-1, n_outputs), flat[n_weights:]
            scores = self._scores(with_one)
            log_z = logsumexp(scores, axis=1, keepdims=True)
            p = np.exp(scores - log_z)
            value = log_z.sum() - (seen * self.weights_).sum() - seen_pairs @ self.links_
            gradient = np.concatenate(
                [(with_one.T @ (p @ self.labels_) - seen).ravel(), p.sum(axis=0) @ self.pairs_ - seen_pairs]
            )
            return value / n + self.penalty * flat @ flat / 2 / n, gradient / n + self.penalty * flat / n

        start = np.zeros(n_weights + len(pairs[0]))
        best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
        self.weights_, self.links_ = best[:n_weights].reshape(-1, n_outputs), best[n_weights:]
        return self

    def predict(self, X: FloatArray) -> NDArray[np.int64]:
        return self.labels_[self._scores(self._with_one(X)).argmax(axis=1)].astype(np.int64)

    def _scores(self, with_one: FloatArray) -> FloatArray:
        """(rows, all labellings)."""
        return np.asarray(with_one @ self.weights_ @ self.labels_.T + self.pairs_ @ self.links_)

    @staticmethod
    def _with_one(X: FloatArray) -> FloatArray:
        return np.column_stack([X, np.ones(len(X))])


@lru_cache(maxsize=1)
def load_real(name: str, seed: int) -> Real:
    table, kind = name.split(", ")
    data = load_table(table, seed)
    if kind == "chain":
        last: Any = ClassifierChain(LogisticRegression(max_iter=1000), order="random", random_state=seed)
    else:
        last = RandomField()
    model = make_pipeline(StandardScaler(), last).fit(data.X_train, data.Y_train)
    return Real(lambda X: np.asarray(model.predict(X)).astype(int), data.X_train, data.X_test)
