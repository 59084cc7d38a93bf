"""Mixtures and swaps of two images, and what the model returns for them: to learn from, and to choose by."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import zoom
from torch import Tensor

from sointer.data.outputs import Outputs
from sointer.interpreter.image import ImageInterpreter, PixelUnits
from sointer.training.context import FitContext, PendingQuery
from sointer.training.image_mixtures import Predictions

CELLS = (1, 2, 4, 8)
"""Sides of the blobs, in pixels of an image 32 pixels high; larger images have larger ones."""
USUAL_HEIGHT = 32
NOISE_AROUND = (0.02, 0.4)
"""How frayed the surroundings of a place are, as shares of the image's height."""


def several_scales(
    units: PixelUnits, size: tuple[int, int], n_rows: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Random units of images to keep, the share kept anywhere between 0 and 1: (rows, units)."""
    n_kinds = len(CELLS) + len(NOISE_AROUND)
    fields = np.empty((n_rows, *size), dtype=np.float32)
    kinds = rng.integers(n_kinds, size=n_rows)
    scale = max(1, round(size[0] / USUAL_HEIGHT))
    for kind in range(n_kinds):
        chosen = np.flatnonzero(kinds == kind)
        if kind < len(CELLS):
            fields[chosen] = _blobs(len(chosen), size, CELLS[kind] * (scale if kind else 1), rng)
        else:
            fields[chosen] = _surroundings(len(chosen), size, NOISE_AROUND[kind - len(CELLS)], rng)
    height = units.means(torch.as_tensor(fields.reshape(n_rows, -1))).numpy()
    share = rng.random(n_rows)
    rank = np.argsort(np.argsort(-height, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(rank < np.rint(share * np.isfinite(height).sum(axis=1))[:, None])


def _blobs(n: int, size: tuple[int, int], cell: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Smooth noise whose hills are about `cell` pixels wide."""
    if cell == 1:
        return rng.random((n, *size), dtype=np.float32)
    coarse = rng.random((n, *(-(-side // cell) + 2 for side in size)), dtype=np.float32)
    fine = zoom(coarse, (1, cell, cell), order=1) if n else coarse
    top, left = rng.integers(cell, size=2)
    return np.asarray(fine[:, top : top + size[0], left : left + size[1]]) if n else np.empty((0, *size), np.float32)


def _surroundings(n: int, size: tuple[int, int], noise: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Nearness to a place of each image, with noise."""
    place = rng.random((n, 2)) * size
    down = np.arange(size[0])[None, :, None] - place[:, 0, None, None]
    right = np.arange(size[1])[None, None, :] - place[:, 1, None, None]
    frayed = noise * rng.random((n, *size))
    return np.asarray(frayed - np.hypot(down, right) / size[0], dtype=np.float32)


@dataclass(frozen=True)
class ImageMixtures:
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
        return torch.as_tensor(np.unpackbits(self.kept, axis=1, count=n_pixels).astype(bool))


@dataclass(frozen=True)
class Planned:
    """Groups of mixtures that the black box is being queried about, all by one call."""

    images: NDArray[np.int64]
    """(groups, images)."""
    first: NDArray[np.int64]
    """(groups, mixtures), as the others."""
    second: NDArray[np.int64]
    kept: NDArray[np.uint8]
    pending: PendingQuery

    def mixtures(self, outputs: Outputs) -> Iterator[ImageMixtures]:
        """Wait for the predictions; mixtures with a label never seen before cannot be learned from."""
        replies = self.pending.wait()
        n_groups, n_mixtures = self.first.shape
        n_answered = 0 if replies is None else len(replies)
        for group in range(n_groups):
            start = group * n_mixtures
            end = min(start + n_mixtures, n_answered)
            if replies is None or start >= end:
                continue
            known = np.flatnonzero(outputs.knows(replies.raw[start:end]))
            if len(known) == 0:
                continue
            yield ImageMixtures(
                self.images[group],
                torch.as_tensor(self.first[group, known]),
                torch.as_tensor(self.second[group, known]),
                self.kept[group, known],
                Predictions.of(outputs, *replies.subset(start + known)),
            )


def plan_mixtures(
    context: FitContext, whole: NDArray[np.int64], n_groups: int, n_images: int, n_mixtures: int
) -> Planned:
    """Groups of the images that were sent whole, mixed two at a time by random masks of several scales."""
    assert context.rows.input_format.image is not None
    rng, size = context.rng, context.rows.input_format.image.size
    images = np.stack([rng.choice(len(whole), n_images, replace=False) for _ in range(n_groups)])
    first = rng.integers(n_images, size=(n_groups, n_mixtures))
    second = (first + rng.integers(1, n_images, size=first.shape)) % n_images
    index, other = (whole[np.take_along_axis(images, part, axis=1).ravel()] for part in (first, second))
    units = PixelUnits.of(context.rows.groups.take(index), len(index))
    keep = several_scales(units, size, len(index), rng)
    kept = np.packbits(units.spread(torch.as_tensor(keep)).numpy(), axis=1)
    pending = context.submit(index, keep, other)
    return Planned(images, first, second, kept.reshape(n_groups, n_mixtures, -1), pending)


SIZES = (0.01, 0.03, 0.1, 0.3)
"""Shares of the units that are swapped."""
MIN_PAIRS, MAX_PAIRS = 24, 160
MIN_GAIN = 0.01
"""By how much smoothing must raise insert and delete, on average, to be used: it blurs what is fine."""
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MIN_INSERTED, MIN_CASES = 0.9, 12
USUAL_SHARE = 0.8
"""Of the decision, where too few queries are left to learn what suffices."""


def choose_by_queries(
    context: FitContext,
    interpreter: ImageInterpreter,
    outputs: Outputs,
    predictions: Predictions,
    targets: Tensor,
    whole: NDArray[np.int64],
    n_queries: int,
) -> float:
    """Swap the best units of images with those of others that have another label at the target, and see what follows.

    Sharp or smoothed relevance: whichever does better when units are inserted and deleted. How much of it suffices: the
    least share that, inserted, brings the image's label along in nine of ten cases.

    Returns in how many of the swaps the label went with the units, from 0 to 1; NaN if too few could be made.
    """
    interpreter.evidence_share.fill_(USUAL_SHARE)
    n_pairs = min(MAX_PAIRS, n_queries // (4 * len(SIZES)))
    pairs = opposite_pairs(predictions.labels, targets, n_pairs, context.rng)
    if len(pairs) < MIN_PAIRS:
        return math.nan
    found = {}
    context.history.stage("checking by queries", 4 * len(SIZES) * len(pairs), unit="rows")
    for smooth in (False, True):
        tried = Swapped.of(context, interpreter, outputs, predictions, pairs, whole, smooth=smooth)
        if tried is None:
            return math.nan
        found[smooth] = tried
    is_smooth = found[True].mean - found[False].mean > MIN_GAIN
    interpreter.is_smooth.fill_(is_smooth)
    interpreter.evidence_share.fill_(found[is_smooth].share_that_suffices())
    context.history.record(stage="swaps", sharp=found[False].mean, smooth=found[True].mean)
    return found[is_smooth].mean


def opposite_pairs(labels: Tensor, targets: Tensor, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Image, target, and another image with another label there: (pairs, 3)."""
    pairs = []
    for _ in range(4 * n):
        target = int(targets[int(rng.integers(len(targets)))])
        first = int(rng.integers(len(labels)))
        others = np.flatnonzero((labels[:, target] != labels[first, target]).numpy())
        if len(others):
            pairs.append((first, target, int(rng.choice(others))))
        if len(pairs) == n:
            break
    return np.array(pairs, dtype=np.int64).reshape(-1, 3)


class Swapped:
    """What became of swaps: (pairs, sizes)."""

    def __init__(self, inserted: NDArray[np.bool_], deleted: NDArray[np.bool_], held: NDArray[np.float64]) -> None:
        self.inserted, self.deleted, self.held = inserted, deleted, held
        """Whether the label came along, whether it was lost, and the share of the decision that was swapped."""

    @classmethod
    def of(
        cls,
        context: FitContext,
        interpreter: ImageInterpreter,
        outputs: Outputs,
        predictions: Predictions,
        pairs: NDArray[np.int64],
        whole: NDArray[np.int64],
        *,
        smooth: bool,
    ) -> Swapped | None:
        """Query the black box about both directions of every pair, at all sizes; None where the budget ends."""
        first, target, other = pairs.T
        relevance = relevance_of_units(context, interpreter, whole[first], torch.as_tensor(target), smooth=smooth)
        n_there = np.isfinite(relevance).sum(axis=1)
        order = np.argsort(-relevance, axis=1, kind="stable")
        rank = np.argsort(order, axis=1, kind="stable")
        shares = np.where(np.isfinite(relevance), relevance, 0.0)
        wanted = predictions.labels.numpy()[first, target]
        parts: list[list[NDArray[np.bool_]]] = [[], []]
        held = []
        for size in SIZES:
            best = rank < np.maximum(1, np.rint(size * n_there))[:, None]
            held.append((shares * best).sum(axis=1) / np.maximum(shares.sum(axis=1), 1e-12))
            for part, keep in zip(parts, (best, ~best), strict=True):
                replies = context.query(whole[first], keep, whole[other])
                if replies is None or len(replies) < len(pairs):
                    return None
                known = outputs.knows(replies.raw)
                after = np.full(len(pairs), -1, dtype=np.int64)
                after[known] = outputs.labels(replies.raw[known])[np.arange(known.sum()), target[known]]
                part.append(after == wanted)
        inserted, kept = (np.stack(part, axis=1) for part in parts)
        return cls(inserted, ~kept, np.stack(held, axis=1))

    @property
    def mean(self) -> float:
        return float((self.inserted.mean() + self.deleted.mean()) / 2)

    def share_that_suffices(self) -> float:
        for share in SHARES:
            near = np.abs(self.held - share) <= 0.1
            if near.sum() >= MIN_CASES and self.inserted[near].mean() >= MIN_INSERTED:
                return share
        return SHARES[-1]


def relevance_of_units(
    context: FitContext, interpreter: ImageInterpreter, index: NDArray[np.int64], targets: Tensor, *, smooth: bool
) -> NDArray[np.float64]:
    """Share of the decision in each unit of images: (images, units), -inf for units that an image does not have."""
    parts = []
    with torch.no_grad():
        for start in range(0, len(index), 32):
            batch = slice(start, start + 32)
            maps = interpreter.energy.maps(context.as_tensor(context.rows.samples(index[batch])))
            cells = interpreter(maps, targets[batch].unsqueeze(1), smooth).relevance
            units = PixelUnits.of(context.rows.groups.take(index[batch]), len(cells))
            parts.append(units.sums(interpreter.of_pixels(cells)).double().numpy())
    return np.concatenate(parts)
