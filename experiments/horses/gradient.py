"""The black box's own gradient: how much each pixel would change its mind about the target, times the pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.baselines.usual import UsualValue
from sointer.models import ImageDeepValueNetwork, UNet
from sointer.models.image_value_network import climb
from sointer.source import Source

AT_ONCE = 32


class GradientTimesInput(UsualValue):
    """Looks inside the model, which no other method here does; `predicted` says for which value pixels must speak."""

    def _scores(self, source: Source, targets: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        segmenter, image = self.model.__self__, source.input_format.image
        assert image is not None
        said, _ = source.outputs.encode_targets(source.answers, targets, source.regions)
        scores = np.empty((len(targets), image.n_pixels), dtype=np.float32)
        for start in range(0, len(targets), AT_ONCE):
            some = np.arange(start, min(start + AT_ONCE, len(targets)))
            x = torch.from_numpy((image.unflatten(source.rows(some)) / 255).astype(np.float32)).requires_grad_()
            with torch.enable_grad():
                speaks = preference(segmenter, x, *np.divmod(targets[some], image.width))
                (gradient,) = torch.autograd.grad((speaks * torch.from_numpy(2.0 * said[some] - 1)).sum(), x)
            scores[some] = (gradient * x.detach()).sum(1).flatten(1).numpy()
        return scores, said


class SizeOfGradient(GradientTimesInput):
    """The same, whether a pixel speaks for or against what the black box says."""

    def _scores(self, source: Source, targets: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        scores, said = super()._scores(source, targets)
        return np.abs(scores), said


def preference(segmenter: Any, images: Tensor, row: NDArray[np.int64], column: NDArray[np.int64]) -> Tensor:
    """How much the model prefers "horse" to "background" at one pixel of every image: (n,)."""
    if isinstance(segmenter, UNet):
        return segmenter.folded_(images)[np.arange(len(images)), 0, row, column]
    assert isinstance(segmenter, ImageDeepValueNetwork)
    return value_difference(segmenter, images, row, column)


def value_difference(
    segmenter: ImageDeepValueNetwork, images: Tensor, row: NDArray[np.int64], column: NDArray[np.int64]
) -> Tensor:
    """By how much the mask that inference found is worth more with the pixel in it than without, over all crops.

    The gradient through inference itself is zero almost everywhere: the network is made of pieces that are linear in
    the mask, so the steps that inference takes do not change when the image changes a little.
    """
    network, total = segmenter.folded_, torch.zeros(len(images))
    for window in segmenter._windows():
        _, down, across = window
        inside = (row >= down.start) & (row < down.stop) & (column >= across.start) & (column < across.stop)
        if not inside.any():
            continue
        seen = network.seen(images[inside][window])
        with torch.no_grad():
            empty = torch.zeros(len(seen), segmenter.crop, segmenter.crop)
            found = climb(network, seen.detach(), empty, segmenter.n_inference_steps, segmenter.step_size)
        at = (np.arange(len(seen)), row[inside] - down.start, column[inside] - across.start)
        with_it, without = found.clone(), found.clone()
        with_it[at], without[at] = 1.0, 0.0
        total = total.index_add(
            0, torch.from_numpy(np.flatnonzero(inside)), network(seen, with_it) - network(seen, without)
        )
    return total
