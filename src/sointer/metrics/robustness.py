"""Whether explanations stay the same under noise too small to matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.metrics.ground_truth import top_k
from sointer.metrics.pixels import (
    FILLS,
    Fill,
    Model,
    TargetModel,
    at_targets,
    best_pixels,
    check_pixel_sizes,
    read_images,
    read_targets,
)
from sointer.metrics.swaps import SwapScores, swap_scores


@dataclass(frozen=True, eq=False)
class NoiseStability:
    """Overlap of the k best pixels with and without noise.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.metrics import NoiseStability
    >>> NoiseStability(10, np.array([0.8, np.nan, 0.6]), chance=0.1, label_changed=0.2).overlap
    0.7
    """

    k: int
    """Number of pixels compared."""
    overlap_rows: NDArray[np.float64]
    """(samples,) share of the k best pixels that stay among them, averaged over draws; NaN where no draw counts."""
    chance: float
    """Overlap of selections at random; k over the number of pixels."""
    label_changed: float
    """Share of noisy copies that the model gives another label; they are left out."""

    @property
    def overlap(self) -> float:
        """Mean over samples, from 0 to 1."""
        return float(np.nanmean(self.overlap_rows))


def noise_stability(
    explain: Callable[[NDArray[Any]], ArrayLike],
    X: Any,
    *,
    k: int,
    noise: float = 0.05,
    n_draws: int = 3,
    model: Model | None = None,
    targets: ArrayLike | None = None,
    batch_size: int = 256,
    random_state: int = 0,
) -> NoiseStability:
    """Overlap of the k best pixels of images and of the same images with small noise.

    A constant selection is perfectly stable, so stability alone does not show quality.

    Parameters
    ----------
    explain : function from images (n, channels, height, width) to scores (n, height, width) or (n, pixels)
    X : images
    k : number of best pixels to compare
    noise : standard deviation of the normal noise, as a share of that of X. Noisy images stay within the range of X,
        and whole numbers are rounded.
    n_draws : noisy copies of each image
    model, targets : optional, as in `swap_scores`
        Copies whose label changes are left out: their explanation may change, too.
    batch_size : images per call of the model
    random_state : seed of the noise and of the order of equal scores

    Returns
    -------
    NoiseStability

    Raises
    ------
    InputError
        If only one of model and targets is given, or the noise changes every label.

    Examples
    --------
    >>> from sointer.zoo import random_scenes
    >>> images = random_scenes(20, size=16).images
    >>> noise_stability(lambda images: images.mean(axis=1), images, k=20).overlap > 0.7
    True
    """
    images = read_images(X, "X")
    if (model is None) != (targets is None):
        raise InputError("give model and targets together, or neither.")
    if not noise >= 0:
        raise InputError(f"noise must be at least 0, got {noise!r}.")
    rng, low, high, spread = np.random.default_rng(random_state), images.min(), images.max(), images.std()
    plain = explain(images)
    labels = None if model is None or targets is None else _labels(model, targets, batch_size)
    before = None if labels is None else labels(images)
    found = np.full((check_positive_int(n_draws, "n_draws"), len(images)), np.nan)
    for draw in range(n_draws):
        noisy = (images + noise * spread * rng.standard_normal(images.shape)).clip(low, high)
        noisy = (np.rint(noisy) if images.dtype.kind in "iu" else noisy).astype(images.dtype)
        same = np.ones(len(images), dtype=bool) if labels is None else labels(noisy) == before
        found[draw, same] = top_k_overlap(plain, explain(noisy), k, random_state=random_state)[same]
    counts = (~np.isnan(found)).sum(axis=0)
    rows = np.where(counts > 0, np.nansum(found, axis=0) / np.maximum(counts, 1), np.nan)
    if not counts.any():
        raise InputError(f"noise={noise} changes the label of every image; choose less.")
    return NoiseStability(k, rows, k / (images.shape[2] * images.shape[3]), float(np.isnan(found).mean()))


def top_k_overlap(scores: ArrayLike, other: ArrayLike, k: int, *, random_state: int = 0) -> NDArray[np.float64]:
    """Share of each sample's k best features that are also among its k best by other scores: (n,), from 0 to 1.

    Parameters
    ----------
    scores, other : arrays (samples, features), or maps (samples, height, width)
    k : int
    random_state : int, default 0
        Seed of the order of equal scores, the same on both sides.

    Returns
    -------
    array (samples,)

    Raises
    ------
    InputError
        If the shapes differ.

    Examples
    --------
    >>> top_k_overlap([[3, 2, 1, 0]], [[3, 0, 2, 1]], k=2).tolist()
    [0.5]
    """
    masks = []
    for one in (scores, other):
        values = np.asarray(one, dtype=np.float64)
        values = values.reshape(len(values), -1)
        mask = np.zeros(values.shape, dtype=bool)
        np.put_along_axis(mask, top_k(values, check_positive_int(k, "k"), random_state), True, axis=1)
        masks.append(mask)
    if masks[0].shape != masks[1].shape:
        raise InputError(f"both scores must have one shape, got {masks[0].shape} and {masks[1].shape}.")
    return np.asarray((masks[0] & masks[1]).sum(axis=1) / k)


def _labels(model: Model, targets: ArrayLike, batch_size: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    queried = TargetModel(model, batch_size)
    return lambda images: at_targets(queried.labels(images), read_targets(targets, len(images)))


def transfer_scores(
    models: Mapping[str, Model],
    X: Any,
    targets: ArrayLike,
    scores: ArrayLike,
    pool: Any,
    values: ArrayLike,
    *,
    ks: Sequence[int] | None = None,
    fills: Sequence[Fill] = FILLS,
    n_pairs: int = 1,
    batch_size: int = 256,
    random_state: int = 0,
) -> dict[str, SwapScores]:
    """Insert, delete and J of the same selections on other models, trained for the same task.

    Selections that depend on quirks of the explained model, such as pixels on which it errs, do not transfer.

    Parameters
    ----------
    models : dict of str to function
        Other models by name.
    X, targets, scores, pool : as in `swap_scores`
    values : array (n,)
        Labels that the explained model predicts for the targets. Samples for which another model predicts another label
        are left out of its scores; `other_value` is their share.
    ks, fills, n_pairs, batch_size, random_state : as in `swap_scores`

    Returns
    -------
    dict of SwapScores
        By the models' names; ranges as in `swap_scores`.

    Examples
    --------
    >>> from sointer.zoo import MajoritySegmenter, WindowSegmenter, random_scenes
    >>> images = random_scenes(150, size=16).images
    >>> X, pool, model = images[:50], images[50:], WindowSegmenter(images)
    >>> scores, values = model.relevant(X, target=(5, 9)), model(X)[:, 5, 9]
    >>> found = transfer_scores({"majority": MajoritySegmenter(images)}, X, (5, 9), scores, pool, values, ks=[9])
    >>> 0 < found["majority"].other_value < 1, found["majority"].mean < 1
    (True, True)
    """
    return {
        name: swap_scores(
            model,
            X,
            targets,
            scores,
            pool,
            ks=ks,
            fills=fills,
            values=values,
            n_pairs=n_pairs,
            batch_size=batch_size,
            random_state=random_state,
        )
        for name, model in models.items()
    }


@dataclass(frozen=True, eq=False)
class PersuasionCredit:
    """Fidelity of explanations of the predicted label, and success of explanations of another one, per size k.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.metrics import PersuasionCredit
    >>> PersuasionCredit((5,), fidelity=np.array([0.75]), persuaded=np.array([0.5]), n_queries=8).credit.tolist()
    [0.25]
    """

    ks: tuple[int, ...]
    """The sizes, smallest first."""
    fidelity: NDArray[np.float64]
    """(ks,) share of samples that keep their label on the pixels selected for it."""
    persuaded: NDArray[np.float64]
    """(ks,) share of samples that get the other label on the pixels selected for that."""
    n_queries: int
    """Images sent to the model."""

    @property
    def credit(self) -> NDArray[np.float64]:
        """Fidelity minus persuaded, from -1 to 1, shape (ks,).

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
    """Fidelity when the predicted label is explained, minus the rate of success when another label is explained.

    For explainers to which the label to explain is passed (`predicted=`). Others select the same pixels both times;
    with two labels their credit is twice their fidelity minus one.

    Parameters
    ----------
    model, X, targets : as in `swap_scores`
    scores : array
        Of explanations of what the model predicts.
    opposite_scores : array
        Of explanations of the same targets, with another label given as the prediction.
    opposite_values : array (n,), optional
        The labels that were given. By default any label but the predicted one counts as success.
    ks : as in `swap_scores`
    fill : str, default "black"
        What replaces pixels that are not selected; the one used in fitting is the strictest.
    mean_image : as in `fill_masked`
    batch_size, random_state : as in `swap_scores`

    Returns
    -------
    PersuasionCredit

    Examples
    --------
    >>> from sointer.zoo import WindowSegmenter, random_scenes
    >>> images = random_scenes(80, size=16).images
    >>> model = WindowSegmenter(images)
    >>> scores = model.relevant(images, target=(5, 9))
    >>> persuasion_credit(model, images, (5, 9), scores, scores, ks=[9]).credit.tolist()
    [1.0]
    """
    images = read_images(X, "X")
    places = read_targets(targets, len(images))
    sizes = check_pixel_sizes(ks, images.shape)
    queried = TargetModel(model, batch_size)
    predicted = at_targets(queried.labels(images), places)
    wanted = None if opposite_values is None else np.asarray(opposite_values)
    mean = images.mean(axis=0) if mean_image is None else mean_image
    labels = []
    for given in (scores, opposite_scores):
        best = best_pixels(given, images.shape, sizes[-1], random_state)
        labels.append([queried.where_kept(images, best[:, :k], places, fill, mean) for k in sizes])
    return PersuasionCredit(
        ks=sizes,
        fidelity=np.array([np.mean(own == predicted) for own in labels[0]]),
        persuaded=np.array([np.mean(own != predicted if wanted is None else own == wanted) for own in labels[1]]),
        n_queries=queried.n_queries,
    )
