"""Do explanations stay the same under noise too small to matter?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.metrics.ground_truth import top_k
from sointer.metrics.targets import Model, TargetModel, at_targets, read_images, read_targets


@dataclass(frozen=True, eq=False)
class NoiseStability:
    """Overlap of the k best pixels with and without noise."""

    k: int
    overlap_rows: NDArray[np.float64]
    """(samples,) share of the k best pixels that stay among them, averaged over draws; NaN where no draw counts."""
    chance: float
    """Overlap of selections at random: k over the number of pixels."""
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

    A constant selection is perfectly stable, so stability is no merit by itself.

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

    Examples
    --------
    >>> from sointer.datasets import random_scenes
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

    Equal scores are ranked at random, in the same order on both sides.

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
