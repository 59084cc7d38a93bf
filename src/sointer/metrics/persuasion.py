"""Persuasion credit: can an explainer find pixels for a wrong label as well as for the right one?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sointer.metrics.fills import Fill, fill_masked
from sointer.metrics.pixels import as_masks, best_pixels, check_sizes
from sointer.metrics.targets import Model, TargetModel, at_targets, read_images, read_targets


@dataclass(frozen=True, eq=False)
class PersuasionCredit:
    """Fidelity of explanations of the predicted label, and success of explanations of another one, per size k."""

    ks: tuple[int, ...]
    fidelity: NDArray[np.float64]
    """(ks,) share of samples that keep their label on the pixels selected for it."""
    persuaded: NDArray[np.float64]
    """(ks,) share of samples that get the other label on the pixels selected for that."""
    n_queries: int

    @property
    def credit(self) -> NDArray[np.float64]:
        """Fidelity minus persuaded, from -1 to 1: (ks,).

        1 if explanations of the label always hold and those of another never do; 0 if any label can be explained.
        """
        return np.asarray(self.fidelity - self.persuaded)


def persuasion_credit(
    model: Model,
    X: Any,
    targets: ArrayLike,
    scores: ArrayLike,
    opposite_scores: ArrayLike,
    *,
    opposite_values: ArrayLike | None = None,
    ks: Sequence[int] | None = None,
    fill: Fill = "black",
    mean_image: ArrayLike | None = None,
    batch_size: int = 256,
    random_state: int = 0,
) -> PersuasionCredit:
    """Fidelity when the predicted label is explained, minus success when another one is.

    For explainers that are given the label to explain (`predicted=`). Those that are not select the same pixels both
    times; with two labels their credit is twice their fidelity minus one.

    Parameters
    ----------
    model, X, targets, ks, batch_size, random_state : see `swap_scores`
    scores : of explanations of what the model predicts
    opposite_scores : of explanations of the same targets, with another label given as the prediction
    opposite_values : (n,) the labels that were given, optional
        By default any label but the predicted one counts as success.
    fill : what becomes of pixels that are not selected; the one used in fitting is the severest
    mean_image : see `fill_masked`

    Returns
    -------
    PersuasionCredit

    Examples
    --------
    >>> from sointer.datasets import WindowSegmenter, random_scenes
    >>> images = random_scenes(80, size=16).images
    >>> model = WindowSegmenter(images)
    >>> scores = model.relevant(images, target=(5, 9))
    >>> persuasion_credit(model, images, (5, 9), scores, scores, ks=[9]).credit.tolist()
    [1.0]
    """
    images = read_images(X, "X")
    places = read_targets(targets, len(images))
    sizes = check_sizes(ks, images.shape[2] * images.shape[3])
    queried = TargetModel(model, batch_size)
    predicted = at_targets(queried.labels(images), places)
    wanted = None if opposite_values is None else np.asarray(opposite_values)
    mean = images.mean(axis=0) if mean_image is None else mean_image
    labels = []
    for given in (scores, opposite_scores):
        best = best_pixels(given, images.shape, sizes[-1], random_state)
        labels.append([_masked_labels(queried, images, places, best[:, :k], fill, mean) for k in sizes])
    return PersuasionCredit(
        ks=sizes,
        fidelity=np.array([np.mean(own == predicted) for own in labels[0]]),
        persuaded=np.array([np.mean(own != predicted if wanted is None else own == wanted) for own in labels[1]]),
        n_queries=queried.n_queries,
    )


def _masked_labels(
    model: TargetModel,
    images: NDArray[Any],
    targets: NDArray[np.int64],
    selected: NDArray[np.int64],
    fill: Fill,
    mean_image: ArrayLike,
) -> NDArray[Any]:
    return model.at(
        lambda some: fill_masked(images[some], as_masks(selected[some], images.shape), fill, mean_image), targets
    )
