"""Images of which only some pixels are kept: what the others become."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sointer.errors import InputError

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
        By default the mean of `images`. Give that of other images, so that the fill does not depend on what is
        explained.

    Returns
    -------
    array like `images`
        With the same dtype; whole numbers are rounded.

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
