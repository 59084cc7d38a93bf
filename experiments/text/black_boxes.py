"""The models that are explained: three kinds on three data sets, trained once and kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain

from sointer import datasets
from sointer.zoo.model_cache import fit_or_load
from sointer.zoo.records import MultiLabelData
from sointer.zoo.structured_models import SPEN, DeepValueNetwork

LOADERS = {
    "bibtex": datasets.load_bibtex,
    "enron": datasets.load_enron,
    "imdb": datasets.load_imdb,
    "wikimovies": datasets.load_wikimovies,
}
CACHE = Path(os.environ.get("SOINTER_CACHE", Path.home() / ".cache" / "sointer")) / "models"


class Chain:
    """scikit-learn's ClassifierChain of logistic regressions over the labels that vary; the others stay as they are."""

    def __init__(self, X: Any, Y: NDArray[np.uint8]) -> None:
        self.varies = Y.min(axis=0) != Y.max(axis=0)
        self.usual = Y[0].astype(np.int64)
        self.chain = ClassifierChain(LogisticRegression(solver="liblinear"), random_state=0)
        self.chain.fit(X, Y[:, self.varies])

    def predict(self, X: Any) -> NDArray[np.int64]:
        labels = np.tile(self.usual, (X.shape[0], 1))
        labels[:, self.varies] = self.chain.predict(X)
        return labels


def load_data(name: str) -> MultiLabelData:
    return LOADERS[name]()


def trained(kind: str, data: MultiLabelData) -> Any:
    """A black box of the given kind, fitted to the training split."""
    X, Y = data.train
    if kind == "chain":
        return Chain(X, Y)
    model = {"dvn": DeepValueNetwork, "spen": SPEN}[kind](random_state=0)
    return fit_or_load(model, X, Y, CACHE)
