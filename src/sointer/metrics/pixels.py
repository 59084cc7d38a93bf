"""Masks and pixels of images: how masks cover the true ones, the best pixels by their scores, filling in the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sointer._support import containers
from sointer._support.validation import check_positive_int
from sointer.data.images import mask_iou
from sointer.errors import InputError
from sointer.explanation import Explanation
from sointer.metrics.faithfulness import check_sizes
from sointer.metrics.ground_truth import top_k

KS = (10, 30, 100, 300)
"""Default sizes, as far as there are more pixels than that."""


def iou(truth: ArrayLike, prediction: ArrayLike) -> float:
    """Intersection over union of masks, averaged over images.

    For each image it is the mean over the classes on either side, except 0, the background; it is 1 if there are none.

    Parameters
    ----------
    truth, prediction : arrays (images, height, width) of booleans or of classes 0, 1, ...

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ValueError
        If the shapes differ, or the values are not classes.

    Examples
    --------
    >>> iou([[[1, 1], [0, 0]]], [[[1, 0], [0, 0]]])
    0.5
    """
    expected, given = _read_masks(truth), _read_masks(prediction)
    if expected.shape != given.shape:
        raise ValueError(f"the two sides differ in shape: {expected.shape} and {given.shape}")
    return float(mask_iou(given, expected).mean())


def _read_masks(values: ArrayLike) -> NDArray[Any]:
    masks = np.asarray(values)
    if masks.ndim != 3 or masks.size == 0:
        raise ValueError(f"masks need the axes (image, row, column), got shape {masks.shape}")
    if masks.dtype != np.bool_ and (np.any(masks < 0) or np.any(masks != np.floor(masks))):
        raise ValueError("masks must be booleans or the classes 0, 1, ...; threshold probabilities first")
    return masks


def pixel_scores(explanation: Explanation) -> NDArray[np.float32]:
    """The scores of an explanation of images as maps, the score of a patch or superpixel at each of its pixels.

    Parameters
    ----------
    explanation : Explanation
        Of images.

    Returns
    -------
    array (samples, height, width)
        What `swap_scores` and `r_precision` take; they rank the pixels of one patch or superpixel at random.

    Raises
    ------
    InputError
        If the explanation is of a table.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer import Patches
    >>> from sointer.explainers.baselines import NearestPixels
    >>> images = np.random.default_rng(0).random((50, 1, 6, 6))
    >>> explainer = NearestPixels(lambda images: images[:, 0] > 0.5, k=1, groups=Patches(3)).fit(images)
    >>> pixel_scores(explainer.explain(images[:1], target=(1, 5)))[0, 0].tolist()
    [-3.0, -3.0, -3.0, -0.0, -0.0, -0.0]
    """
    image, groups = explanation.source.input_format.image, explanation.source.units()
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


def check_pixel_sizes(ks: Sequence[int] | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of pixels of images (..., height, width) in rising order, each once."""
    return check_sizes(ks, shape[-2] * shape[-1], default=KS, units="pixels")


Model: TypeAlias = Callable[[NDArray[Any]], Any]
"""From images (n, channels, height, width) to masks (n, height, width), of labels or probabilities, or to tables
(n, outputs)."""


class TargetModel:
    """A model queried in batches, whose outputs are read as labels: probabilities as whether they exceed 0.5.

    Class scores (n, classes, height, width) are read as the class with the largest score.
    """

    def __init__(self, model: Model, batch_size: int) -> None:
        self.model = model
        self.batch_size = check_positive_int(batch_size, "batch_size")
        self.n_queries = 0

    def labels(self, images: NDArray[Any]) -> NDArray[Any]:
        """Labels of all outputs: (n, height, width) or (n, outputs)."""
        return np.concatenate([self._query(images[batch]) for batch in containers.slices(len(images), self.batch_size)])

    def at(self, images: Callable[[slice], NDArray[Any]], targets: NDArray[np.int64]) -> NDArray[Any]:
        """Labels of each image's target (n,); `images` makes the images of a batch."""
        batches = containers.slices(len(targets), self.batch_size)
        return np.concatenate([at_targets(self._query(images(batch)), targets[batch]) for batch in batches])

    def where_kept(
        self,
        images: NDArray[Any],
        pixels: NDArray[np.int64],
        targets: NDArray[np.int64],
        fill: Fill,
        mean_image: ArrayLike,
    ) -> NDArray[Any]:
        """Labels of each image's target where all but some pixels (n, k) are filled in."""

        def filled(batch: slice) -> NDArray[Any]:
            return fill_masked(images[batch], as_masks(pixels[batch], images.shape), fill, mean_image)

        return self.at(filled, targets)

    def _query(self, images: NDArray[Any]) -> NDArray[Any]:
        self.n_queries += len(images)
        reply = self.model(images)
        outputs = containers.tensor_to_numpy(reply) if containers.is_tensor(reply) else np.asarray(reply)
        if len(outputs) != len(images) or outputs.ndim not in (1, 2, 3, 4):
            raise InputError(
                f"the model returned shape {outputs.shape} for {len(images)} images; one mask each is due."
            )
        if outputs.ndim == 4:
            return np.asarray(outputs.argmax(axis=1) if outputs.shape[1] > 1 else as_labels(outputs[:, 0]))
        return as_labels(outputs[:, None] if outputs.ndim == 1 else outputs)


def as_labels(outputs: NDArray[Any]) -> NDArray[Any]:
    """Labels as they are; probabilities as 1 where they exceed 0.5, else 0."""
    if outputs.dtype.kind == "b":
        return outputs.astype(np.int64)
    if outputs.dtype.kind != "f":
        return outputs
    if (outputs == np.rint(outputs)).all():
        return outputs.astype(np.int64)
    if outputs.min() < 0 or outputs.max() > 1:
        raise InputError(
            f"the model returned numbers from {outputs.min():.3g} to {outputs.max():.3g}, expected labels or "
            "probabilities. Apply a sigmoid to logits, or threshold them."
        )
    return (outputs > 0.5).astype(np.int64)


def read_images(images: Any, what: str) -> NDArray[Any]:
    """Images (n, channels, height, width) as an array."""
    pixels = containers.tensor_to_numpy(images) if containers.is_tensor(images) else np.asarray(images)
    if pixels.ndim != 4 or len(pixels) == 0:
        raise InputError(f"{what} must be images (n, channels, height, width), got shape {pixels.shape}.")
    return pixels


def read_targets(targets: ArrayLike, n: int) -> NDArray[np.int64]:
    """One target per image: pixels (n, 2) or output numbers (n, 1). A single pixel or number stands for all images."""
    places = np.asarray(targets)
    if places.dtype.kind not in "iu":
        raise InputError(f"targets must be whole numbers, got {places.dtype}.")
    if places.shape in ((), (2,)):
        return np.broadcast_to(np.atleast_1d(places), (n, max(1, places.size))).astype(np.int64)
    if places.shape == (n,):
        places = places[:, None]
    if places.shape not in ((n, 1), (n, 2)):
        raise InputError(
            f"targets must be a pixel (row, column), pixels ({n}, 2), or output numbers ({n},), got {places.shape}."
        )
    return places.astype(np.int64)


def at_targets(outputs: NDArray[Any], targets: NDArray[np.int64]) -> NDArray[Any]:
    """Outputs (n, height, width) or (n, outputs) at each image's own target: (n,)."""
    _check_fit(outputs, targets)
    index = (np.arange(len(outputs)), *targets.T)
    return np.asarray(outputs[index])


def at_all_targets(outputs: NDArray[Any], targets: NDArray[np.int64]) -> NDArray[Any]:
    """Outputs of every image at every target: (targets, images)."""
    _check_fit(outputs, targets)
    index = (slice(None), *targets.T)
    return np.asarray(outputs[index].T)


def _check_fit(outputs: NDArray[Any], targets: NDArray[np.int64]) -> None:
    if outputs.ndim - 1 != targets.shape[1]:
        each = "pixels (row, column)" if outputs.ndim == 3 else "output numbers"
        raise InputError(f"the model returns shape {outputs.shape}, so targets must be {each}, got {targets.shape}.")
    if (targets < 0).any() or (targets >= outputs.shape[1:]).any():
        raise InputError(f"targets lie outside the outputs, which have shape {outputs.shape[1:]}.")


def opposite_samples(
    labels: NDArray[Any], pool_labels: NDArray[Any], n_pairs: int, random_state: int
) -> NDArray[np.int64]:
    """For each sample, places in the pool of images with another label, drawn at random: (n, n_pairs).

    `pool_labels` (n, pool) are the labels of the pool at each sample's target. -1 where the pool has none; drawn with
    replacement where it has fewer than n_pairs.
    """
    uniforms = np.random.default_rng(random_state).random(pool_labels.shape)
    other = pool_labels != labels[:, None]
    count = other.sum(axis=1)
    order = np.argsort(np.where(other, uniforms, np.inf), axis=1)
    chosen = order[np.arange(len(labels))[:, None], np.arange(n_pairs) % np.maximum(count, 1)[:, None]]
    return np.where(count[:, None] > 0, chosen, -1)


Fill = Literal["black", "mean", "inpaint"]
FILLS: tuple[Fill, ...] = ("black", "mean", "inpaint")
N_SMOOTHING_STEPS = 40


def fill_masked(images: ArrayLike, keep: ArrayLike, fill: Fill, mean_image: ArrayLike | None = None) -> NDArray[Any]:
    """Images with all but the kept pixels filled in.

    Parameters
    ----------
    images : array (n, channels, height, width)
    keep : boolean array (n, height, width) or (n, 1, height, width)
        True for pixels that stay as they are.
    fill : "black", "mean" or "inpaint"
        Zeros; the mean image; or a smooth continuation of the kept pixels (local means at falling scales, then
        diffusion), with the mean image where no kept pixel is near.
    mean_image : array (channels, height, width), optional
        By default the mean of `images`. Pass the mean of other images, so that the fill does not depend on what is
        explained.

    Returns
    -------
    array like `images`
        With the same dtype; whole numbers are rounded.

    Raises
    ------
    InputError
        If keep does not fit the images, or the fill is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.arange(1, 10).reshape(1, 1, 3, 3)
    >>> fill_masked(images, np.eye(3, dtype=bool)[None], "black")[0, 0].tolist()
    [[1, 0, 0], [0, 5, 0], [0, 0, 9]]
    """
    pixels, kept = np.asarray(images), np.asarray(keep)
    if kept.ndim == 3:
        kept = kept[:, None]
    if pixels.ndim != 4 or kept.dtype != np.bool_ or kept.shape != (len(pixels), 1, *pixels.shape[2:]):
        raise InputError(f"keep must be booleans, one per pixel of images {pixels.shape}, got {kept.shape}.")
    if fill == "black":
        return np.where(kept, pixels, np.zeros((), pixels.dtype))
    if fill not in FILLS:
        raise InputError(f"fill must be one of {', '.join(map(repr, FILLS))}, got {fill!r}.")
    mean = pixels.mean(axis=0) if mean_image is None else np.asarray(mean_image)
    filled = mean if fill == "mean" else _inpainted(pixels, kept, mean)
    if pixels.dtype.kind in "iu":
        filled = np.rint(filled)
    return np.where(kept, pixels, filled.astype(pixels.dtype))


def _inpainted(images: NDArray[Any], keep: NDArray[np.bool_], mean: NDArray[Any]) -> NDArray[np.float32]:
    x, kept = torch.from_numpy(images.astype(np.float32)), torch.from_numpy(keep)
    weight = kept.float()
    filled = torch.from_numpy(mean.astype(np.float32)).expand_as(x)
    side = 2 ** int(np.log2(min(images.shape[2:]))) - 1
    while side >= 3:  # from coarse to fine, each scale where it sees a kept pixel
        share = _box_means(weight, side)
        local = _box_means(x * weight, side) / share.clamp_min(1e-8)
        filled = torch.where(share > 0, local, filled)
        side = (side - 1) // 2
    for _ in range(N_SMOOTHING_STEPS):
        around = F.avg_pool2d(F.pad(filled, (1, 1, 1, 1), mode="replicate"), 3, 1)
        filled = torch.where(kept, x, around)
    return np.asarray(filled.numpy())


def _box_means(maps: Tensor, side: int) -> Tensor:
    """Means over squares, zeros around the image: first down, then across, which is the same and faster."""
    down = F.avg_pool2d(maps, (side, 1), 1, (side // 2, 0))
    return F.avg_pool2d(down, (1, side), 1, (0, side // 2))
