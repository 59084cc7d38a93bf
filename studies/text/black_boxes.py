"""The models that are explained: three kinds on three data sets, trained once and kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain

from sointer import zoo
from sointer.zoo.files import MultiLabelSource
from sointer.zoo.loaders import load_multilabel
from studies.frame.study import model_cache

# Films in Wikipedia and their genres, of the same kind as IMDB-F; only a local .npz copy can be read.
WIKIMOVIES = MultiLabelSource(
    "wikimovies",
    "https://github.com/prust/wikipedia-movie-data",
    "Extracts of English Wikipedia (CC BY-SA) as collected in prust/wikipedia-movie-data, commit "
    "91ae721d3672e8ef4f15b213c763a634250ef61a.",
    shape=(34131, 1001, 28),
    npz_sha256="db368163c2b892892bae18a623d0c65bcedc0cab91646bbad851cf9b089b8e71",
    content_sha256="038b52789b9f08dba083349cd2186bb4339d092ee1e17e03e969dcfa40d28e00",
)
GENERATED = "generated"
"""Documents of the smoke setting."""
LOADERS = {
    "bibtex": zoo.load_bibtex,
    "enron": zoo.load_enron,
    "imdb": zoo.load_imdb,
    "wikimovies": lambda: load_multilabel(WIKIMOVIES, None, download=False),
    GENERATED: lambda: generated(),
}


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


def generated() -> zoo.MultiLabelData:
    """300 documents of 60 words; each of four tags depends on two of them."""
    rng = np.random.default_rng(0)
    words = rng.random((300, 60)) < 0.15
    tags = np.column_stack([words[:, 2 * tag] | words[:, 2 * tag + 1] for tag in range(4)])
    return zoo.MultiLabelData(
        GENERATED,
        sparse.csr_matrix(words.astype(np.float32)),
        tags.astype(np.uint8),
        tuple(f"word{number}" for number in range(60)),
        tuple(f"tag{number}" for number in range(4)),
        np.repeat(["train", "test"], [200, 100]),
        split_is_official=False,
        source="generated",
        citation="",
    )


def load_data(name: str) -> zoo.MultiLabelData:
    return LOADERS[name]()


def trained(kind: str, data: zoo.MultiLabelData) -> Any:
    """A black box of the given kind, fitted to the training split."""
    X, Y = data.train
    if kind == "chain":
        return Chain(X, Y)
    model = {"dvn": zoo.DeepValueNetwork, "spen": zoo.SPEN}[kind](random_state=0)
    return zoo.fit_or_load(model, X, Y, model_cache())
