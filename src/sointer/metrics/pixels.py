"""The best pixels of images, by their scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.explanation import Explanation
from sointer.metrics.ground_truth import top_k

KS = (10, 30, 100, 300)
"""Default sizes, as far as there are more pixels than that."""


def pixel_scores(explanation: Explanation) -> NDArray[np.float32]:
    """The scores of an explanation of images as maps, the score of a patch or superpixel at each of its pixels.

    Returns
    -------
    array (samples, height, width)
        What `swap_scores` and `r_precision` take; they rank the pixels of one patch or superpixel at random.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer import Patches
    >>> from sointer.baselines import NearestPixels
    >>> images = np.random.default_rng(0).random((50, 1, 6, 6))
    >>> explainer = NearestPixels(lambda images: images[:, 0] > 0.5, k=1, groups=Patches(3)).fit(images)
    >>> pixel_scores(explainer.explain(images[:1], target=(1, 5)))[0, 0].tolist()
    [-3.0, -3.0, -3.0, -0.0, -0.0, -0.0]
    """
    image, groups = explanation.source.input_format.image, explanation.source.groups
    if image is None:
        raise InputError("pixel_scores is for images, but the explanation is of a table; use its scores.")
    units = groups.unit_of_features(len(explanation))
    return np.take_along_axis(explanation.scores, units, axis=1).reshape(-1, *image.size)


def best_pixels(scores: ArrayLike, shape: tuple[int, ...], k: int, random_state: int) -> NDArray[np.int64]:
    """The k best pixels of every image, best first, equal ones at random: (n, k)."""
    n, _, height, width = shape
    values = np.asarray(scores, dtype=np.float64)
    if values.shape not in ((n, height, width), (n, height * width)):
        raise InputError(f"scores must have shape ({n}, {height}, {width}), one number per pixel, got {values.shape}.")
    return top_k(values.reshape(n, -1), k, random_state)


def as_masks(pixels: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Selected pixels (n, k) as masks (n, 1, height, width)."""
    masks = np.zeros((len(pixels), shape[2] * shape[3]), dtype=np.bool_)
    np.put_along_axis(masks, pixels, True, axis=1)
    return masks.reshape(-1, 1, *shape[2:])


def check_sizes(ks: Sequence[int] | None, n_pixels: int) -> tuple[int, ...]:
    """Sizes in rising order, each once."""
    if ks is None:
        return tuple(k for k in KS if k < n_pixels) or (1,)
    sizes = sorted({check_positive_int(k, "each of ks") for k in ks})
    if not sizes or sizes[-1] > n_pixels:
        raise InputError(f"ks must be sizes from 1 to {n_pixels}, the number of pixels, got {list(ks)}.")
    return tuple(sizes)
