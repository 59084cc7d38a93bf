"""What is explained: black boxes, the rows that explainers may learn from, and questions about fresh rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sointer.zoo import fit_or_load
from sointer.zoo.image_models import UNet
from sointer.zoo.loaders import load_bibtex, load_weizmann_horses
from sointer.zoo.structured_models import DeepValueNetwork
from sointer.zoo.synthetic import paper_e1
from studies.frame.study import model_cache

"""Shared with the study of texts, which trains the same models."""
N_QUESTIONS, N_QUICK, N_BACKGROUND = 10_000, 120, 100
Function = Callable[[Any], NDArray[Any]]


@dataclass(frozen=True)
class Subject:
    """A black box, and questions: why this output of this row?"""

    title: str
    predict: Function
    """Rows to (rows, outputs), or masks for images."""
    train: Any
    rows: Any
    targets: NDArray[np.int64]
    """Which output of each row is asked about."""
    n_outputs: int
    k: int
    removal: str
    relevant: tuple[int, ...] | None = None
    """The features that decide every output, where they are known."""

    @property
    def has_images(self) -> bool:
        return np.ndim(self.rows) == 4

    @property
    def n_players(self) -> int:
        """Features of a row; pixels of an image."""
        return int(self.rows.shape[2] * self.rows.shape[3] if self.has_images else self.rows.shape[1])

    def named(self, targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Targets as our explainers take them: for masks (row, column)."""
        return np.stack(np.divmod(targets, self.rows.shape[3]), axis=1) if self.has_images else targets

    def game(self, index: int, box: Function) -> tuple[Function, NDArray[Any], NDArray[Any]]:
        """A question as other packages ask it: a function of tables, a row for it, and its background.

        What is absent from a table of numbers is taken from 100 rows of the data; from a text or an image it is
        nothing, so there the background is a single row of zeros. The features of an image are its pixels: kept or not.
        """
        row = self.rows[[index]]
        if self.has_images:
            size = row.shape[2:]

            def of_kept(keep: NDArray[Any]) -> NDArray[Any]:
                pictures = (keep.reshape(-1, 1, *size) > 0.5) * row
                return box(pictures.astype(row.dtype)).reshape(len(keep), -1)

            return of_kept, np.ones(self.n_players), np.zeros((1, self.n_players))
        if sparse.issparse(row):
            return box, row.toarray()[0].astype(np.float64), np.zeros((1, self.n_players))
        return box, row[0], self.train[:N_BACKGROUND]


def e1(n_features: int, quick: bool = False) -> Subject:
    problem = paper_e1(n_features)
    return Subject(
        title=f"E1, n = {n_features}",
        predict=problem,
        train=problem.sample(300 if quick else 5000 if n_features >= 50 else 2000, random_state=0),
        rows=problem.sample(N_QUICK if quick else N_QUESTIONS, random_state=1),
        targets=np.zeros(N_QUICK if quick else N_QUESTIONS, dtype=np.int64),
        n_outputs=problem.n_outputs,
        k=4,
        removal="marginal",
        relevant=problem.relevant[0],
    )


def bibtex(quick: bool = False) -> Subject:
    """A deep value network that gives documents tags; asked about are tags that it gave."""
    if quick:
        words = sparse.random(150, 40, density=0.2, format="csr", random_state=0, data_rvs=np.ones)
        train, test = words[:100], words[100:]
        tags = np.asarray((words[:, :4] + words[:, 4:8]).toarray() > 0)[:100].astype(np.uint8)
        model = DeepValueNetwork(n_steps=30, random_state=0, verbose=False)
    else:
        data = load_bibtex()
        (train, tags), (test, _) = data.train, data.test
        model = DeepValueNetwork(random_state=0)
    model = fit_or_load(model, train, tags, model_cache())
    document, tag = np.nonzero(model.predict(test))
    chosen = np.random.default_rng(0).integers(len(tag), size=N_QUICK if quick else N_QUESTIONS)
    return Subject(
        title="Bibtex, deep value network",
        predict=model.predict,
        train=train,
        rows=test[document[chosen]],
        targets=tag[chosen],
        n_outputs=tags.shape[1],
        k=10,
        removal="zero",
    )


def horses(quick: bool = False) -> Subject:
    """A U-Net that tells which pixels of a photograph are horse; asked about are any pixels."""
    if quick:
        rng = np.random.default_rng(0)
        images = rng.integers(256, size=(24, 3, 8, 8)).astype(np.uint8)
        masks, is_test = (images[:, 0] > 127).astype(np.uint8), np.arange(24) >= 16
        model = UNet(width=4, depth=2, n_steps=30, batch_size=8, augment=False, random_state=0, verbose=False)
    else:
        data = load_weizmann_horses(size=32)
        images, masks, is_test = data.images, data.masks, data.split == "test"
        model = UNet(n_steps=3000, random_state=0)
    model = fit_or_load(model, images[~is_test], masks[~is_test], model_cache())
    rng, n = np.random.default_rng(0), N_QUICK if quick else N_QUESTIONS
    test = images[is_test]
    return Subject(
        title="Horses, U-Net",
        predict=model.predict,
        train=images[~is_test],
        rows=test[rng.integers(len(test), size=n)],
        targets=rng.integers(masks[0].size, size=n),
        n_outputs=masks[0].size,
        k=30,
        removal="zero",
    )


SUBJECTS: dict[str, Callable[[bool], Subject]] = {
    "e1-20": lambda quick: e1(8 if quick else 20, quick),
    "e1-200": lambda quick: e1(200, quick),
    "bibtex": bibtex,
    "horses": horses,
}
