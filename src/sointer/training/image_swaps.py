"""Mixtures of two images, and what the black box says of them: what an energy for images learns from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.interpreter.pixels import PixelUnits
from sointer.outputs import Outputs
from sointer.training.image_masks import several_scales
from sointer.training.task import Question, Replies, Task

MIN_DIFFERENCE = 0.05
"""Probabilities of two images that differ by less do not tell which of them a mixture follows."""


class Predictions(NamedTuple):
    """Masks that the black box returned, kept small: (n, pixels)."""

    labels: Tensor
    """uint8."""
    probability: Tensor | None
    """float16, where the black box returns probabilities."""

    @classmethod
    def of(cls, outputs: Outputs, raw: NDArray[Any]) -> Predictions:
        labels = torch.from_numpy(outputs.labels(raw).astype(np.uint8))
        if outputs.kind != "probability":
            return cls(labels, None)
        return cls(labels, torch.from_numpy(np.asarray(raw, dtype=np.float16)))

    @property
    def n_unusual(self) -> Tensor:
        """(pixels,) how many masks differ from the usual one: in the label, or enough in its probability."""
        if self.probability is None:
            return (self.labels != self.labels.mode(0).values).sum(0)
        p = self.probability.float()
        return ((p - p.median(0).values).abs() >= MIN_DIFFERENCE).sum(0)

    def take(self, rows: Tensor, pixels: Tensor) -> Predictions:
        """Of some rows, at some pixels."""
        chosen = (None if part is None else part[rows][:, pixels] for part in self)
        labels, probability = chosen
        assert labels is not None
        return Predictions(labels, probability)


@dataclass(frozen=True)
class Mixtures:
    """Mixtures of some images, by their places among those: all (mixtures,) or (mixtures, pixels)."""

    images: NDArray[np.int64]
    """Places, among all images, of those that are mixed."""
    first: Tensor
    second: Tensor
    kept: NDArray[np.uint8]
    """Pixels of the first image, packed."""
    predictions: Predictions

    def __len__(self) -> int:
        return len(self.first)

    def kept_pixels(self, n_pixels: int) -> Tensor:
        return torch.from_numpy(np.unpackbits(self.kept, axis=1, count=n_pixels).astype(bool))


@dataclass(frozen=True)
class Planned:
    """Mixtures that the black box is being queried about."""

    images: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    kept: NDArray[np.uint8]
    question: Question

    def answers(self, outputs: Outputs, n_pixels: int) -> Mixtures | None:
        """Wait for the predictions; those with a label never seen before cannot be learned from."""
        replies: Replies | None = self.question.answers()
        if replies is None:
            return None
        known = np.flatnonzero(outputs.knows(replies.raw))
        if len(known) == 0:
            return None
        return Mixtures(
            self.images,
            torch.from_numpy(self.first[known]),
            torch.from_numpy(self.second[known]),
            self.kept[known],
            Predictions.of(outputs, replies.raw[known]),
        )


def plan_mixtures(task: Task, whole: NDArray[np.int64], n_images: int, n_mixtures: int) -> Planned:
    """Mix some of the images that were sent whole, two at a time, by random masks of several scales."""
    assert task.input_format.image is not None
    rng, size = task.rng, task.input_format.image.size
    images = rng.choice(len(whole), n_images, replace=False)
    first = rng.integers(n_images, size=n_mixtures)
    second = (first + rng.integers(1, n_images, size=n_mixtures)) % n_images
    index = whole[images[first]]
    units = PixelUnits.of(task.groups.take(index), n_mixtures)
    keep = several_scales(units, size, n_mixtures, rng)
    pixels = units.spread(torch.from_numpy(keep)).numpy()
    question = task.ask(index, keep, whole[images[second]])
    return Planned(images, first, second, np.packbits(pixels, axis=1), question)


def followed(first: Predictions, second: Predictions, mixture: Predictions) -> tuple[Tensor, Tensor]:
    """How far mixtures follow their first image, from 0 to 1, and how much that tells: both (mixtures, targets).

    Labels that are alike in both images tell nothing, nor does a mixture that has another label than both.
    """
    if first.probability is None or second.probability is None or mixture.probability is None:
        differs = first.labels != second.labels
        is_first = mixture.labels == first.labels
        return is_first.float(), (differs & (is_first | (mixture.labels == second.labels))).float()
    a, b, m = (part.float() for part in (first.probability, second.probability, mixture.probability))
    difference = a - b
    counts = difference.abs() >= MIN_DIFFERENCE
    share = ((m - b) / torch.where(counts, difference, 1.0)).clamp(0, 1)
    return share, torch.where(counts, difference.abs(), 0.0)
