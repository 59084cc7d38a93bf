"""Scores of the pixels, or groups of pixels, of images; targets of one image share what they can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.energy.image import ImageEnergy
from sointer.interpreter.image import ImageInterpreter
from sointer.interpreter.pixels import PixelUnits, distance_to
from sointer.interpreter.sharing import shared_slots
from sointer.outputs.regions import majority
from sointer.refinement import Likely
from sointer.scoring.scorer import Targets, reduced
from sointer.selection import Scored
from sointer.source import Source
from sointer.threads import one_thread

CHUNK_PIXELS, FEWEST_IMAGES = 2**14, 4
BLOCK_PIXELS = 2**20


@dataclass(frozen=True)
class ImageScorer:
    """Scores of the pixels, or groups of pixels, of images."""

    interpreter: ImageInterpreter

    @property
    def energy(self) -> ImageEnergy:
        return self.interpreter.energy

    def scores(self, source: Source, targets: Targets) -> Scored:
        n_rows = len(targets)
        codes = self._codes(source)
        scores = np.empty((n_rows, source.groups.n_units), dtype=np.float32)
        at_once = max(self._chunk, BLOCK_PIXELS // self.energy.image.n_pixels)
        with one_thread(), torch.no_grad():
            for start in range(0, n_rows, at_once):
                rows = np.arange(start, min(start + at_once, n_rows))
                scores[rows] = self._of_block(source, targets, rows, codes[rows])
        return Scored(scores, majority(codes, targets, source.regions))

    def _of_block(
        self, source: Source, targets: Targets, rows: Targets, codes: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Scores of some rows, as many as may be held in memory at once."""
        raw, region = source.rows(rows), regions_of(targets[rows], source, self.energy.image.n_pixels)
        gradients, expected = self._gradients(raw, region, codes)
        distance = distance_to(region, self.energy.image.size)
        parts = []
        for start in range(0, len(rows), self._chunk):
            some = slice(start, start + self._chunk)
            nothing = np.zeros(raw[some].shape, dtype=bool)
            absent = next(source.removal.draws(raw[some], nothing, 1, np.random.default_rng(0)))
            x = self._padded(raw[some])
            salient = self.interpreter.saliency(gradients[some], x[: len(absent)] - self._padded(absent)[: len(absent)])
            of_pixels = self.interpreter.scores(
                x,
                self._padded(region[some]),
                self._padded(codes[some]).long(),
                self._padded(distance[some]),
                self._padded(salient),
                self._padded(expected[some]),
            )[: len(absent)]
            units = PixelUnits.of(source.groups.take(rows[some]), len(absent))
            parts.append(np.nan_to_num(units.means(of_pixels).numpy(), neginf=np.finfo(np.float32).min))
        return np.concatenate(parts)

    def _gradients(
        self, raw: NDArray[np.float64], region: NDArray[np.bool_], codes: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        """Of every row's target in its image, and what mask is expected; targets of one image share a pass."""
        energy = self.energy
        gradients = torch.empty(len(raw), raw.shape[1])
        expected = torch.empty(len(raw), energy.n_maps, *energy.image.size)
        keys = [image.tobytes() + mask.tobytes() for image, mask in zip(raw, codes, strict=True)]
        for slots in shared_slots(keys, self._chunk):
            first = slots[:, 0]
            regions = [self._padded(region[own] * (own >= 0)[:, None]) for own in slots.T]
            found, mask = self.interpreter.gradients(
                self._padded(raw[first]), regions, self._padded(codes[first]).long()
            )
            for own, gradient in zip(slots.T, found, strict=True):
                there = np.flatnonzero(own >= 0)
                gradients[own[there]], expected[own[there]] = gradient[there], mask[there]
        return gradients, expected

    def likely(self, source: Source, targets: Targets, values: NDArray[Any]) -> Likely:
        codes = self._codes(source)

        def likely(rows: Targets, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
            parts = []
            for start in range(0, len(rows), self._chunk):
                some = slice(start, start + self._chunk)
                x = self._padded(reduced(source, rows[some], keep_units[some]))
                region = self._padded(regions_of(targets[rows[some]], source, self.energy.image.n_pixels))
                wanted = self._padded(codes[rows[some]]).long()
                with one_thread(), torch.no_grad():
                    found = self.energy.region_log_likelihood(x, region, wanted)
                parts.append(found[: len(rows[some])].double().numpy())
            return np.concatenate(parts)

        return likely

    @property
    def _chunk(self) -> int:
        return max(FEWEST_IMAGES, CHUNK_PIXELS // self.energy.image.n_pixels)

    def _padded(self, rows: NDArray[Any] | Tensor) -> Tensor:
        """Always as many rows, so that an image's explanation cannot depend on those around it."""
        padded = torch.zeros(self._chunk, *rows.shape[1:])
        padded[: len(rows)] = torch.as_tensor(rows)
        padded[len(rows) :].flatten(1)[:, 0] = 1.0
        return padded

    def _codes(self, source: Source) -> NDArray[np.int64]:
        """The class of every pixel: what the model predicts, where that is known, else what the energy expects.

        A mask with a label that was never seen in fit cannot be encoded, so it counts as not known.
        """
        known = np.zeros(source.data.shape[0], dtype=bool)
        codes = np.empty((len(known), source.outputs.n_outputs), dtype=np.int64)
        if source.predicted is not None:
            known = source.outputs.knows(source.predicted)
            codes[known] = source.outputs.labels(source.predicted[known])
        like = {source.data[row].tobytes(): row for row in np.flatnonzero(~known)[::-1]}
        unknown = np.array(sorted(like.values()), dtype=np.int64)
        with one_thread(), torch.no_grad():
            for start in range(0, len(unknown), self._chunk):
                rows = unknown[start : start + self._chunk]
                codes[rows] = self.energy.predict(self._padded(source.rows(rows)))[: len(rows)].numpy()
        for row in np.flatnonzero(~known):
            codes[row] = codes[like[source.data[row].tobytes()]]
        return codes


def regions_of(targets: Targets, source: Source, n_pixels: int) -> NDArray[np.bool_]:
    """The pixels of each target: (rows, pixels)."""
    region = np.zeros((len(targets), n_pixels), dtype=bool)
    single = targets < n_pixels
    region[np.flatnonzero(single), targets[single]] = True
    region[~single] = source.regions[targets[~single] - n_pixels]
    return region
